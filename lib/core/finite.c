/* See finite.h. */
#include "lib/context.h"

struct gf_check *gf_finite_clear(gf_context *gf, uint32_t index)
{
    gf->finite.seen[index] = (struct gf_check){.bad_first = UINT64_MAX};
    return &gf->finite.seen[index];
}

static gf_mem seen(const gf_context *gf, uint32_t index) { return (gf_mem)(uintptr_t)&gf->finite.seen[index]; }

struct gf_check *gf_finite_counter(const gf_context *gf, uint32_t index)
{
    return (struct gf_check *)(uintptr_t)gf->finite.counters + index;
}

static gf_mem counter(const gf_context *gf, uint32_t index) { return (gf_mem)(uintptr_t)gf_finite_counter(gf, index); }

gf_status gf_finite_send(gf_context *gf, struct gf_queue *queue, uint32_t index)
{
    if (!gf->on_device) return GF_OK;
    return gf->gpu->driver->copy(queue, counter(gf, index), seen(gf, index), sizeof(struct gf_check));
}

gf_status gf_finite_end(gf_context *gf, struct gf_queue *queue, uint32_t index)
{
    const struct gf_gpu_driver *driver = gf->gpu->driver;
    gf_status status;
    if (!gf->on_device) return GF_OK;
    status = driver->copy(queue, seen(gf, index), counter(gf, index), sizeof(struct gf_check));
    return (status < 0) ? status : driver->mark(queue, index);
}

gf_status gf_finite_reached(gf_context *gf, uint32_t index)
{
    return gf->on_device ? gf->gpu->driver->reached(gf->gpu, index) : GF_OK;
}

void gf_finite_step(gf_context *gf)
{
    gf->finite.local_count = gf->finite.sum_count = 0;
    gf->finite.first_key = GF_KEY_NONE;
}

/* In a gap between tensors: the appliance wrote where nothing lies. */
static void bad_in(gf_context *gf, uint32_t rank, const struct gf_buffer *buffer, const struct gf_check *check)
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
    gf->finite.local_count += check->bad_count;
    if (key < gf->finite.first_key) gf->finite.first_key = key;
}

void gf_finite_local(gf_context *gf, const struct gf_buffer *buffer, const struct gf_check *check)
{
    bad_in(gf, gf->rank, buffer, check);
}

void gf_finite_sources(gf_context *gf, const struct gf_buffer *buffer, const struct gf_check *sources)
{
    struct gf_check check = *sources;
    check.bad_first = buffer->first_elem + (sources->bad_first & ((UINT64_C(1) << GF_SOURCE_SHIFT) - 1));
    bad_in(gf, (uint32_t)(sources->bad_first >> GF_SOURCE_SHIFT), buffer, &check);
}
