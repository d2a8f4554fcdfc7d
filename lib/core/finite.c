/* See finite.h. */
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"

static const struct gf_check none = {.bad_first = UINT64_MAX};
static gf_mem mem(const struct gf_check *check) { return (gf_mem)(uintptr_t)check; }

struct gf_check *gf_finite_counter(const gf_context *gf, uint32_t index, gf_count which)
{
    return (struct gf_check *)(uintptr_t)gf->finite.counters + index * GF_COUNTS + which;
}

struct gf_check *gf_finite_seen(const gf_context *gf, uint32_t index, gf_count which)
{
    return &gf->finite.seen[index * GF_COUNTS + which];
}

/* No work is under way that counts there; both queues' later work comes after it. */
static gf_status counters_send(gf_context *gf, uint32_t index, const struct gf_check *from, uint32_t count)
{
    gf_status status = gf->gpu->driver->copy(&gf->queue, mem(gf_finite_counter(gf, index, 0)), mem(from),
                                             count * GF_COUNTS * sizeof none);
    return (status < 0) ? status : gf_queue_after(gf, &gf->queue, &gf->pack_queue);
}

gf_status gf_finite_open(gf_context *gf)
{
    uint32_t count = gf->under_way.count + 1;
    for (uint32_t i = 0; i < (count + 1) * GF_COUNTS; i++) gf->finite.seen[i] = none;
    return counters_send(gf, 0, gf->finite.seen, count);
}

void gf_finite_begin(gf_context *gf, uint32_t index)
{
    for (gf_count which = 0; !gf->on_device && (which < GF_COUNTS); which++) *gf_finite_counter(gf, index, which) = none;
}

gf_status gf_finite_mark(gf_context *gf, struct gf_queue *queue, uint32_t index)
{
    return gf->on_device ? gf->gpu->driver->mark(queue, index) : GF_OK;
}

gf_status gf_finite_end(gf_context *gf, struct gf_queue *queue, uint32_t index)
{
    gf_status status;
    if (!gf->on_device) return GF_OK;
    status = gf->gpu->driver->copy(queue, mem(gf_finite_seen(gf, index, 0)), mem(gf_finite_counter(gf, index, 0)),
                                   GF_COUNTS * sizeof none);
    return (status < 0) ? status : gf->gpu->driver->mark(queue, index);
}

gf_status gf_finite_taken(gf_context *gf, uint32_t index)
{
    uint64_t met = 0;
    for (gf_count which = 0; which < GF_COUNTS; which++) met += gf_finite_seen(gf, index, which)->bad_count;
    if (!gf->on_device || (met == 0)) return GF_OK;
    return counters_send(gf, index, gf_finite_seen(gf, gf->under_way.count + 1, 0), 1);
}

gf_status gf_finite_reached(gf_context *gf, uint32_t index)
{
    return gf->on_device ? gf->gpu->driver->reached(gf->gpu, index) : GF_OK;
}

void gf_finite_step(gf_context *gf)
{
    gf->finite.local_count = 0;
    gf->finite.first_key = gf->finite.first_sum = GF_KEY_NONE;
}

/* In a gap between tensors: the appliance wrote where nothing lies. */
static void first_put(const gf_context *gf, uint32_t rank, const struct gf_buffer *buffer,
                      const struct gf_check *check, uint64_t *key_out)
{
    uint32_t first = 0, last = gf->tensor_count - 1, tensor;
    uint64_t elem = 0, key;
    bool sparse = (buffer == NULL) || (buffer->sparse != 0);
    if (check->bad_count == 0) return;
    if (buffer != NULL) {
        first = buffer->first_tensor;
        last = buffer->last_tensor;
    }
    tensor = gf_pool_find(gf->tensors, first, last, sparse, check->bad_first);
    if (tensor == GF_TENSOR_NONE) tensor = 0;
    else elem = check->bad_first - gf->tensors[tensor].first_elem;
    key = ((uint64_t)rank << (GF_KEY_TENSOR_BITS + GF_KEY_ELEM_BITS)) | ((uint64_t)tensor << GF_KEY_ELEM_BITS) | elem;
    if (key < *key_out) *key_out = key;
}

void gf_finite_local(gf_context *gf, const struct gf_buffer *buffer, const struct gf_check *check)
{
    gf->finite.local_count += check->bad_count;
    first_put(gf, gf->rank, buffer, check, &gf->finite.first_key);
}

void gf_finite_sums(gf_context *gf, const struct gf_buffer *buffer, const struct gf_check *check)
{
    first_put(gf, gf->rank, buffer, check, &gf->finite.first_sum);
}

void gf_finite_sources(gf_context *gf, const struct gf_buffer *buffer, const uint32_t *members,
                       const struct gf_check *sources)
{
    struct gf_check check = *sources;
    if (check.bad_count == 0) return;
    check.bad_first &= (UINT64_C(1) << GF_SOURCE_SHIFT) - 1;
    gf->finite.local_count += check.bad_count;
    first_put(gf, gf_rank_of(gf, gf_member_at(members, (uint32_t)(sources->bad_first >> GF_SOURCE_SHIFT))), buffer,
              &check, &gf->finite.first_key);
}
