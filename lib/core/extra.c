/* config.state_extra: it is checked, compared between ranks, and saved. lib/core/weights.c gives it
 * to all ranks, lib/core/common_state.c to those that lag. */
#include "lib/core/extra.h"

#include <stdio.h>
#include <string.h>

#include "drivers/base/fnv.h"
#include "lib/core/arena.h"
#include "lib/settings/settings.h"

gf_status gf_extra_check(const struct gf_config *config, char *error_out)
{
    if (config->state_extra_count > GF_STATE_EXTRA_MAX) {
        return gf_config_refuse(error_out, GF_ERR_PARAM, "state_extra_count = %u; allowed are %u",
                                config->state_extra_count, GF_STATE_EXTRA_MAX);
    }
    for (uint32_t i = 0; i < config->state_extra_count; i++) {
        const struct gf_state_extra *extra =
            (config->state_extra != NULL) ? &config->state_extra[i] : NULL;
        bool valid = (extra != NULL) && (extra->name != NULL) &&
                     ((extra->data != NULL) || (extra->bytes == 0)) &&
                     (extra->bytes <= UINT64_MAX - (uintptr_t)extra->data);
        if (valid) continue;
        return gf_config_refuse(error_out, GF_ERR_PARAM,
                                "state_extra[%u] of %u: %.47s, %llu bytes at %p; it must have "
                                "a name, and an address unless it has no bytes",
                                i, config->state_extra_count,
                                ((extra != NULL) && (extra->name != NULL)) ? extra->name
                                                                           : "no name",
                                (extra != NULL) ? (unsigned long long)extra->bytes : 0,
                                (extra != NULL) ? extra->data : NULL);
    }
    return GF_OK;
}

uint64_t gf_extra_names_bytes(const struct gf_config *config)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < config->state_extra_count; i++)
        bytes += strlen(config->state_extra[i].name) + 1;
    return bytes;
}

void gf_extra_keep(struct gf_config *config, struct gf_state_extra *table, char *names)
{
    for (uint32_t i = 0; i < config->state_extra_count; i++) {
        size_t bytes = strlen(config->state_extra[i].name) + 1;
        table[i] = config->state_extra[i];
        table[i].name = memcpy(names, config->state_extra[i].name, bytes);
        names += bytes;
    }
    config->state_extra = table;
}

uint64_t gf_extra_hash(const struct gf_config *config)
{
    uint64_t hash = (config->state_extra_count > 0) ? GF_FNV_START : 0;
    for (uint32_t i = 0; i < config->state_extra_count; i++) {
        const struct gf_state_extra *extra = &config->state_extra[i];
        hash = gf_fnv_u64(gf_fnv_bytes(hash, extra->name, strlen(extra->name) + 1), extra->bytes);
    }
    return hash;
}

#define SUMMARY_NAME_BYTES 24 /* of a region's name */

void gf_extra_summary(const struct gf_config *config, char *summary, size_t bytes)
{
    size_t used = strlen(summary);
    int wrote =
        snprintf(summary + used, bytes - used, " state_extra_count=%u", config->state_extra_count);
    for (uint32_t i = 0; (wrote > 0) && ((size_t)wrote < bytes - used); i++) {
        char name[SUMMARY_NAME_BYTES + 1];
        used += (size_t)wrote;
        if (i == config->state_extra_count) return;
        (void)snprintf(name, sizeof name, "%s", config->state_extra[i].name);
        for (char *at = name; *at != '\0'; at++)
            if ((unsigned char)*at <= ' ') *at = '_'; /* blanks part the fields */
        wrote = snprintf(summary + used, bytes - used, " state_extra[%u]=%s:%lluB", i, name,
                         (unsigned long long)config->state_extra[i].bytes);
    }
    summary[used] = '\0'; /* what does not fit whole is left out */
}

uint64_t gf_extra_bytes(const gf_context *gf)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < gf->config.state_extra_count; i++)
        bytes += gf_align_up(gf->config.state_extra[i].bytes, 8);
    return bytes;
}

void gf_extra_save(const gf_context *gf, unsigned char *to)
{
    for (uint32_t i = 0; i < gf->config.state_extra_count; i++) {
        const struct gf_state_extra *extra = &gf->config.state_extra[i];
        uint64_t padded = gf_align_up(extra->bytes, 8);
        memset(to + extra->bytes, 0, padded - extra->bytes);
        if (extra->bytes > 0) memcpy(to, extra->data, extra->bytes);
        to += padded;
    }
}

void gf_extra_load(const gf_context *gf, const unsigned char *from)
{
    for (uint32_t i = 0; i < gf->config.state_extra_count; i++) {
        const struct gf_state_extra *extra = &gf->config.state_extra[i];
        if (extra->bytes > 0) memcpy(extra->data, from, extra->bytes);
        from += gf_align_up(extra->bytes, 8);
    }
}

/* ---- how regions travel ---- */

#define WORD_BYTES sizeof(float)
#define BULK_BYTES 4096u   /* a region of so many has a message of its own */
#define STAGE_BYTES 65536u /* of rests in a message; no rest is larger */
_Static_assert(BULK_BYTES <= STAGE_BYTES, "each rest fits");

/* How many whole words of a region are sent from where it lies. This depends on its size alone:
 * ranks have the region at different addresses, and must make the same messages. */
static uint64_t bulk_bytes(const struct gf_state_extra *extra)
{
    return (extra->bytes < BULK_BYTES) ? 0 : extra->bytes / WORD_BYTES * WORD_BYTES;
}

static uint64_t rest_bytes(const struct gf_state_extra *extra)
{
    return extra->bytes - bulk_bytes(extra);
}

uint64_t gf_extra_stage_bytes(const struct gf_config *config)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; (i < config->state_extra_count) && (bytes < STAGE_BYTES); i++)
        bytes += rest_bytes(&config->state_extra[i]);
    return (bytes < STAGE_BYTES) ? gf_align_up(bytes, WORD_BYTES) : STAGE_BYTES;
}

uint64_t gf_extra_bulk(const gf_context *gf, uint32_t *next, gf_mem *data_out)
{
    while (*next < gf->config.state_extra_count) {
        const struct gf_state_extra *extra = &gf->config.state_extra[(*next)++];
        *data_out = (gf_mem)(uintptr_t)extra->data;
        if (bulk_bytes(extra) > 0) return bulk_bytes(extra) / WORD_BYTES;
    }
    return 0;
}

uint64_t gf_extra_rests(const gf_context *gf, uint32_t first, uint32_t *end_out)
{
    uint64_t used = 0;
    uint32_t i = first;
    for (; i < gf->config.state_extra_count; i++) {
        uint64_t bytes = rest_bytes(&gf->config.state_extra[i]);
        if (used + bytes > STAGE_BYTES) break;
        used += bytes;
    }
    *end_out = i;
    return gf_align_up(used, WORD_BYTES) / WORD_BYTES;
}

void gf_extra_rests_move(gf_context *gf, uint32_t first, uint32_t end, bool to_stage)
{
    char *at = gf->extra_stage;
    for (uint32_t i = first; i < end; i++) {
        const struct gf_state_extra *extra = &gf->config.state_extra[i];
        char *theirs = (char *)extra->data + bulk_bytes(extra);
        uint64_t bytes = rest_bytes(extra);
        if (bytes == 0) continue;
        memcpy(to_stage ? at : theirs, to_stage ? theirs : at, bytes);
        at += bytes;
    }
    for (; to_stage && ((at - gf->extra_stage) % (ptrdiff_t)WORD_BYTES != 0); at++) *at = 0;
}
