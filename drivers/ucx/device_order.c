/* Network devices in one order on every host. UCX up to 1.15 takes them as the kernel lists them, which differs from
 * host to host: of two equally fast ones it then connects a host's first with another's second, and the kernel sends
 * both connections through one. UCX's question is led here (ucx.mk, dynamic_calls.c) and answered by name; newer
 * UCX sorts them itself. */
#include <stdlib.h>
#include <string.h>

#include <uct/api/uct.h>

ucs_status_t __real_uct_md_query_tl_resources(uct_md_h domain, uct_tl_resource_desc_t **resources_out,
                                              unsigned *count_out) __attribute__((weak));
ucs_status_t __wrap_uct_md_query_tl_resources(uct_md_h domain, uct_tl_resource_desc_t **resources_out,
                                              unsigned *count_out);

static int by_name(const void *a, const void *b)
{
    const uct_tl_resource_desc_t *first = a, *second = b;
    int transports = strcmp(first->tl_name, second->tl_name);
    return (transports != 0) ? transports : strcmp(first->dev_name, second->dev_name);
}

ucs_status_t __wrap_uct_md_query_tl_resources(uct_md_h domain, uct_tl_resource_desc_t **resources_out,
                                              unsigned *count_out)
{
    ucs_status_t status = __real_uct_md_query_tl_resources(domain, resources_out, count_out);
    if ((status == UCS_OK) && (*count_out > 1)) qsort(*resources_out, *count_out, sizeof **resources_out, by_name);
    return status;
}
