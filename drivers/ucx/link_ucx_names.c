/* Lists of names, comma-separated, and what UCX's transports are for. */
#include "drivers/ucx/link_ucx.h"

#include <stdio.h>
#include <string.h>

const char *gf_ucx_name_next(const char **list, size_t *bytes_out)
{
    const char *name = *list;
    *bytes_out = strcspn(name, ",");
    *list = name + *bytes_out + ((name[*bytes_out] == ',') ? 1 : 0);
    return (name[0] != '\0') ? name : NULL;
}

/* The name is a part of another list, so it does not end with a zero byte. gf-check has the like
 * for lists that people read, with blanks and groups (check_list_has()). */
static bool has(const char *list, const char *name, size_t name_bytes)
{
    size_t bytes;
    for (const char *item; (item = gf_ucx_name_next(&list, &bytes)) != NULL;)
        if ((bytes == name_bytes) && (memcmp(item, name, bytes) == 0)) return true;
    return false;
}

uint32_t gf_ucx_list_count(const char *list, char separator)
{
    uint32_t parts = 1;
    for (; *list != '\0'; list++) parts += (*list == separator);
    return parts;
}

/* rc also opens ud to connect; rc_verbs and rc_mlx5 do not. A name that is not listed is some
 * fabric. */
static const struct {
    const char *names;
    unsigned kinds;
} transports[] = {
    {"self,posix,sysv,cma,all,sm,shm,mm", GF_UCX_LOCAL},
    {"cuda,cuda_copy,cuda_ipc,gdr_copy", GF_UCX_CUDA},
    {"tcp", GF_UCX_TCP},
    {"ud,ud_v,ud_x,ud_verbs,ud_mlx5,rc,rc_v,rc_x,dc,dc_x,ib",
     GF_UCX_FABRIC | GF_UCX_INFINIBAND | GF_UCX_UD},
    {"rc_verbs,rc_mlx5,dc_mlx5", GF_UCX_FABRIC | GF_UCX_INFINIBAND},
};

static unsigned kinds_of(const char *name, size_t name_bytes)
{
    for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++)
        if (has(transports[i].names, name, name_bytes)) return transports[i].kinds;
    return GF_UCX_FABRIC;
}

const char *gf_ucx_find(const char *list, unsigned kinds, size_t *name_bytes_out)
{
    const char *name;
    while ((name = gf_ucx_name_next(&list, name_bytes_out)) != NULL)
        if ((kinds_of(name, *name_bytes_out) & kinds) != 0) break;
    return name;
}

bool gf_ucx_any(const char *list, unsigned kinds)
{
    size_t name_bytes;
    return gf_ucx_find(list, kinds, &name_bytes) != NULL;
}
