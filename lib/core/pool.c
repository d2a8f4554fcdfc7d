/* Where tensors lie in the pool, and how they are grouped into fused buffers. Both follow from
 * the tensor table and the configuration alone, so that all ranks agree. */
#include "lib/core/pool.h"

#include <stdio.h>
#include <string.h>

#include "drivers/base/fnv.h"
#include "lib/core/arena.h"
#include "lib/core/finite.h"
#include "lib/settings/settings.h"

static bool tensor_is_sparse(const struct gf_config *config, uint32_t flags)
{
    return config->sparse.enabled && ((flags & GF_TENSOR_DENSE) == 0);
}

/* the vote packs an element into so many bits */
#define ELEMS_MAX (UINT64_C(1) << GF_KEY_ELEM_BITS)

/* Says the types that there are: "0 (fp32), 1 (fp16) ..". */
static gf_status type_refuse(const struct gf_tensor *tensor, uint32_t index, const char *name,
                             char *error_out)
{
    char allowed[GF_TYPE_COUNT * 24];
    size_t used = 0;
    for (uint32_t t = 0; t < GF_TYPE_COUNT; t++)
        used += (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%u (%s)",
                                 (t > 0) ? ", " : "", t, gf_type_names[t]);
    return gf_config_refuse(error_out, GF_ERR_PARAM, "tensor %u \"%s\": type is %d, allowed are %s",
                            index, name, (int)tensor->type, allowed);
}

/* May this tensor, which would begin at element `first`, be in the pool? */
static gf_status tensor_check(const struct gf_tensor *tensor, uint32_t index, uint64_t first,
                              char *error_out)
{
    const char *name = tensor->name ? tensor->name : "";
    if ((uint32_t)tensor->type >= GF_TYPE_COUNT) return type_refuse(tensor, index, name, error_out);
    if ((tensor->flags & ~(GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY)) != 0)
        return gf_config_refuse(error_out, GF_ERR_PARAM, "tensor %u \"%s\": unknown flags 0x%x",
                                index, name, tensor->flags);
    if ((first <= ELEMS_MAX) && (tensor->elem_count <= ELEMS_MAX - first)) return GF_OK;
    return gf_config_refuse(error_out, GF_ERR_PARAM,
                            "tensor %u \"%s\": %llu elements; all tensors together may have "
                            "2^%u",
                            index, name, (unsigned long long)tensor->elem_count, GF_KEY_ELEM_BITS);
}

#define NAMED 1024u /* are marked at a time, for a small stack */

/* Each tensor once. */
static gf_status order_check(const struct gf_config *config, const struct gf_tensor *tensors,
                             uint32_t tensor_count, char *error_out)
{
    if (config->pool_order == NULL) return GF_OK;
    if (config->sparse.enabled)
        return gf_config_refuse(error_out, GF_ERR_CONFIG,
                                "pool_order and sparse.enabled: chunks need tensors in the "
                                "order given");
    for (uint32_t i = 0; i < tensor_count; i++) {
        if (config->pool_order[i] >= tensor_count)
            return gf_config_refuse(error_out, GF_ERR_PARAM, "pool_order[%u] = %u of %u tensors", i,
                                    config->pool_order[i], tensor_count);
        if (tensors[i].type != tensors[0].type)
            return gf_config_refuse(error_out, GF_ERR_PARAM,
                                    "tensor %u has another type than tensor 0: with "
                                    "pool_order all have one",
                                    i);
    }
    for (uint32_t first = 0; first < tensor_count; first += NAMED) {
        bool named[NAMED] = {false};
        for (uint32_t i = 0; i < tensor_count; i++) {
            uint32_t at = config->pool_order[i] - first; /* below it, it wraps */
            if ((at < NAMED) && named[at])
                return gf_config_refuse(error_out, GF_ERR_PARAM,
                                        "pool_order names a tensor twice: %u; it must name "
                                        "each of %u once",
                                        first + at, tensor_count);
            if (at < NAMED) named[at] = true;
        }
    }
    return GF_OK;
}

/* Into how many buffers a run is cut, and how long each but the last is. `most` is a multiple of
 * what lengths are rounded to. Therefore two runs together never make more buffers than each by
 * itself. */
static uint32_t run_buffers(const struct gf_config *config, uint64_t elem_count,
                            uint64_t *length_out)
{
    uint64_t unit_bytes = GF_POOL_CUT_ELEMS * gf_type_size_bytes(config->exchange.wire);
    uint64_t most = gf_pool_cut_bytes(config) / unit_bytes * GF_POOL_CUT_ELEMS;
    uint64_t count = (elem_count + most - 1) / most;
    *length_out = (count <= 1) ? elem_count
                               : gf_align_up((elem_count + count - 1) / count, GF_POOL_CUT_ELEMS);
    return (count <= 1) ? 1 : (uint32_t)count;
}

static bool run_is_full(const struct gf_config *config, uint64_t elem_count)
{
    return elem_count * gf_type_size_bytes(config->exchange.wire) >= config->exchange.fuse_bytes;
}

/* Where the walk over the tensors is. A run is what gf_pool_group() puts together. */
struct walk {
    const struct gf_config *config;
    struct gf_pool_tensor *table; /* NULL: it only counts */
    bool sparse;                  /* the part; the sparse one lies first */
    uint32_t slot;                /* tensors before this one, of both parts */
    uint64_t next;                /* the first free element */
    uint64_t bytes;               /* of gradients before it */
    int type;                     /* of the tensor before, in this part; -1: none */
    bool open;                    /* the run takes more tensors, if they have its type */
    uint64_t run_first;           /* its first element */
    uint32_t run_buffers;         /* buffers that it makes so far */
    uint64_t buffer_count;        /* of all runs, this one too */
};

/* Where a tensor begins: aligned where a part, or a type within a part, begins; else aligned if it
 * is large, and without a gap if it is small or if pool_order is set. */
static uint64_t walk_first(const struct walk *walk, const struct gf_tensor *tensor)
{
    bool is_packed =
        (walk->config->pool_order != NULL) || (tensor->elem_count < GF_POOL_SMALL_ELEMS);
    if (walk->type != (int)tensor->type) return gf_align_up(walk->next, GF_POOL_ALIGN_ELEMS);
    return is_packed ? walk->next : gf_align_up(walk->next, GF_POOL_ALIGN_ELEMS);
}

static void walk_put(const struct walk *walk, uint32_t index, const struct gf_tensor *tensor,
                     uint64_t first)
{
    struct gf_pool_tensor *placed = &walk->table[index];
    *placed = (struct gf_pool_tensor){.first_elem = first,
                                      .elem_count = tensor->elem_count,
                                      .gradient_offset = walk->bytes,
                                      .slot = walk->slot,
                                      .flags = tensor->flags,
                                      .at_slot = placed->at_slot,
                                      .type = (uint8_t)tensor->type,
                                      .sparse = walk->sparse ? 1 : 0};
    (void)snprintf(placed->name, sizeof placed->name, "%s", tensor->name ? tensor->name : "");
    walk->table[walk->slot].at_slot = index;
}

/* Counts the buffers of the run after a tensor was placed. With pool_order the runs are not known
 * here, because they follow the order of backward: then each tensor counts as a run, and there are
 * at most as many buffers. */
static void walk_count(struct walk *walk, uint64_t first, uint64_t elem_count)
{
    uint64_t run_elems;
    uint64_t length;
    if (!walk->open) {
        walk->run_first = first;
        walk->run_buffers = 0;
    }
    run_elems = first + elem_count - walk->run_first;
    walk->buffer_count -= walk->run_buffers;
    walk->run_buffers = run_buffers(walk->config, run_elems, &length);
    walk->buffer_count += walk->run_buffers;
    walk->open = (walk->config->pool_order == NULL) && !run_is_full(walk->config, run_elems);
}

static gf_status walk_tensor(struct walk *walk, uint32_t index, const struct gf_tensor *tensor,
                             char *error_out)
{
    const uint64_t first = walk_first(walk, tensor);
    gf_status status = tensor_check(tensor, index, first, error_out);
    if (status < 0) return status;
    if (walk->type == (int)tensor->type) {
        /* the same gap in elements and in bytes */
        walk->bytes += (first - walk->next) * gf_type_size_bytes(tensor->type);
    } else {
        if (walk->sparse && (walk->type >= 0))
            return gf_config_refuse(error_out, GF_ERR_PARAM,
                                    "tensor %u \"%s\": sparse tensors must share one "
                                    "type; mark it dense",
                                    index, tensor->name ? tensor->name : "");
        walk->bytes = gf_align_up(walk->bytes, GF_ALIGN_BYTES);
        walk->type = (int)tensor->type;
        walk->open = false;
    }
    if (walk->table != NULL) walk_put(walk, index, tensor, first);
    walk_count(walk, first, tensor->elem_count);
    walk->slot++;
    walk->next = first + tensor->elem_count;
    walk->bytes += tensor->elem_count * gf_type_size_bytes(tensor->type);
    return GF_OK;
}

/* The tensors of one part. */
static gf_status walk_part(struct walk *walk, bool sparse, const struct gf_tensor *tensors,
                           uint32_t tensor_count, char *error_out)
{
    const uint32_t *order = walk->config->pool_order;
    walk->sparse = sparse;
    walk->type = -1;
    walk->open = false;
    for (uint32_t i = 0; i < tensor_count; i++) {
        uint32_t index = (order != NULL) ? order[i] : i;
        gf_status status;
        if (tensor_is_sparse(walk->config, tensors[index].flags) != sparse) continue;
        status = walk_tensor(walk, index, &tensors[index], error_out);
        if (status < 0) return status;
    }
    return GF_OK;
}

gf_status gf_pool_layout(const struct gf_config *config, const struct gf_tensor *tensors,
                         uint32_t tensor_count, struct gf_pool_tensor *table,
                         struct gf_pool_sizes *sizes_out, char *error_out)
{
    struct walk walk = {.config = config, .table = table};
    uint64_t sparse_elem_count;
    gf_status status;

    if ((tensors == NULL) || (tensor_count == 0) || (tensor_count > GF_TENSORS_MAX)) {
        return gf_config_refuse(error_out, GF_ERR_PARAM, "%u tensors; allowed are 1 to %u",
                                tensor_count, GF_TENSORS_MAX);
    }
    status = order_check(config, tensors, tensor_count, error_out);
    if (status < 0) return status;
    status = walk_part(&walk, true, tensors, tensor_count, error_out);
    if (status < 0) return status;
    sparse_elem_count = walk.next;
    walk.next = gf_align_up(walk.next, GF_POOL_ALIGN_ELEMS);
    status = walk_part(&walk, false, tensors, tensor_count, error_out);
    if (status < 0) return status;
    *sizes_out = (struct gf_pool_sizes){
        .elem_count = gf_align_up(walk.next, GF_POOL_ALIGN_ELEMS),
        .sparse_elem_count = sparse_elem_count,
        .gradient_bytes = gf_align_up(walk.bytes, GF_ALIGN_BYTES),
        .buffer_count = walk.buffer_count,
    };
    return GF_OK;
}

/* Which of the `count` buffers from buffers[at] on hold elements of tensor `index`, all of them
 * `length` elements long but the last. A tensor without elements belongs to the buffer in which it
 * lies. */
static void run_pair(const struct gf_buffer *run, struct gf_pool_tensor *tensor, uint32_t index,
                     uint64_t length, struct gf_buffer *buffers, uint32_t at, uint32_t count)
{
    const uint64_t first = tensor->first_elem - run->first_elem;
    const uint64_t end = first + tensor->elem_count;
    uint32_t low = (first < run->elem_count) ? (uint32_t)(first / length) : count - 1;
    uint32_t high = (tensor->elem_count > 0) ? (uint32_t)((end - 1) / length) : low;
    tensor->buffer_first = at + low;
    tensor->buffer_count = high + 1 - low;
    for (struct gf_buffer *b = &buffers[at + low]; b <= &buffers[at + high]; b++) {
        if (b->tensor_count++ == 0) b->first_tensor = index;
        b->last_tensor = index;
    }
}

/* Cuts a whole run into buffers[at] and on, and pairs them with its tensors.
 *
 *     run        | tensor 7 | tensor 6 |gap|         tensor 5         |
 *     buffers    |       at        |     at + 1      |   at + 2   |
 *                 <---- length --->                   <- what is left
 *
 * Invariant: run_buffers() alone says into how many. walk_count() asked it for the same run when
 * the pool was measured, so the buffers that were measured are those that are made. That holds as
 * long as both end a run by the same rule, run_is_full() or another type. With config.pool_order
 * each tensor was counted alone, and runs make fewer. Returns how many there are. */
static uint32_t run_cut(const struct gf_config *config, const struct gf_buffer *run,
                        struct gf_pool_tensor *table, struct gf_buffer *buffers, uint32_t at)
{
    uint64_t first = 0;
    uint64_t length;
    const uint32_t count = run_buffers(config, run->elem_count, &length);
    for (uint32_t i = 0; i < count; i++, first += length) {
        struct gf_buffer *buffer = &buffers[at + i];
        *buffer = *run;
        buffer->first_elem = run->first_elem + first;
        buffer->gradient_offset =
            run->gradient_offset + first * gf_type_size_bytes((gf_type)run->type);
        buffer->elem_count = (run->elem_count - first < length) ? run->elem_count - first : length;
        buffer->tensor_count = 0;
    }
    for (uint32_t i = run->first_tensor; i <= run->last_tensor; i++)
        if (table[i].sparse == run->sparse) run_pair(run, &table[i], i, length, buffers, at, count);
    return count;
}

uint32_t gf_pool_group(const struct gf_config *config, struct gf_pool_tensor *table,
                       uint32_t tensor_count, bool sparse, struct gf_buffer *buffers,
                       uint32_t count)
{
    struct gf_buffer run = {0};
    bool open = false;
    const struct gf_pool_tensor *low = NULL;
    const struct gf_pool_tensor *high = NULL; /* of the open run, by where they lie */
    for (uint32_t i = 0; i < tensor_count; i++) {
        const struct gf_pool_tensor *tensor = &table[i];
        if ((tensor->sparse != 0) != sparse) continue;
        if (open && ((run.type != tensor->type) ||
                     ((tensor->slot != high->slot + 1) && (tensor->slot + 1 != low->slot)))) {
            count += run_cut(config, &run, table, buffers, count);
            open = false;
        }
        if (!open) {
            run = (struct gf_buffer){
                .first_tensor = i, .type = tensor->type, .sparse = tensor->sparse};
            low = high = tensor;
            open = true;
        }
        if (tensor->slot > high->slot) high = tensor;
        if (tensor->slot < low->slot) low = tensor;
        run.first_elem = low->first_elem;
        run.gradient_offset = low->gradient_offset;
        run.last_tensor = i;
        run.elem_count = high->first_elem + high->elem_count - low->first_elem;
        if (!run_is_full(config, run.elem_count)) continue;
        count += run_cut(config, &run, table, buffers, count);
        open = false;
    }
    return open ? count + run_cut(config, &run, table, buffers, count) : count;
}

uint32_t gf_pool_find(const struct gf_pool_tensor *table, uint32_t first, uint32_t last,
                      bool sparse, uint64_t elem)
{
    for (uint32_t i = first; i <= last; i++) {
        const struct gf_pool_tensor *tensor = &table[i];
        if (((tensor->sparse != 0) == sparse) && (elem >= tensor->first_elem) &&
            (elem - tensor->first_elem < tensor->elem_count))
            return i;
    }
    return GF_TENSOR_NONE;
}

uint64_t gf_pool_hash(const struct gf_config *config, const struct gf_tensor *tensors,
                      uint32_t tensor_count)
{
    uint64_t hash = gf_fnv_u64(GF_FNV_START, tensor_count);
    for (uint32_t i = 0; (config->pool_order != NULL) && (i < tensor_count); i++)
        hash = gf_fnv_u64(hash, config->pool_order[i]);
    for (uint32_t i = 0; i < tensor_count; i++) {
        const char *name = tensors[i].name ? tensors[i].name : "";
        hash = gf_fnv_bytes(hash, name, strnlen(name, GF_NAME_BYTES - 1));
        hash = gf_fnv_u64(hash, tensors[i].elem_count);
        hash = gf_fnv_u64(hash, tensors[i].flags);
        hash = gf_fnv_u64(hash, (uint64_t)tensors[i].type);
    }
    return hash;
}
