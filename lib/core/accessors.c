/* Numbers and addresses that a program asks for. */
#include "lib/core/accessors.h"

#include "lib/core/arena.h"

uint32_t gf_rank(const gf_context *gf)
{
    return (gf == NULL) ? 0 : gf->rank;
}
uint32_t gf_world(const gf_context *gf)
{
    return (gf == NULL) ? 0 : gf->world;
}
uint32_t gf_first_rank(const gf_context *gf)
{
    return (gf == NULL) ? 0 : gf->config.job.rank;
}
uint32_t gf_first_world(const gf_context *gf)
{
    return (gf == NULL) ? 0 : gf->config.job.world;
}
uint32_t gf_world_max(const gf_context *gf)
{
    return (gf == NULL) ? 0 : gf->config.job.world_max;
}

uint64_t gf_steps(const gf_context *gf)
{
    if (gf == NULL) return 0;
    return gf->step.number - (((gf->step.state != GF_STEP_NONE) && !gf_step_is_whole(gf)) ? 1 : 0);
}

gf_mem gf_gradient(gf_context *gf, uint32_t tensor)
{
    if ((gf == NULL) || (tensor >= gf->tensor_count) || (gf->gradient == 0) || gf_region_moves(gf))
        return 0;
    /* it could not be made anew */
    if (!gf->on_device && ((gf->link == NULL) || (gf->link->region == NULL))) return 0;
    return gf->gradient + gf->tensors[tensor].gradient_offset;
}

gf_mem gf_weight(gf_context *gf, uint32_t tensor)
{
    if ((gf == NULL) || (tensor >= gf->tensor_count) || (gf->optimizer.weight == 0)) return 0;
    return gf->optimizer.weight + gf->tensors[tensor].first_elem * sizeof(float);
}

gf_mem gf_weight_half(gf_context *gf, uint32_t tensor)
{
    if ((gf == NULL) || (tensor >= gf->tensor_count)) return 0;
    return gf_half_at(gf, gf->tensors[tensor].first_elem);
}

/* On the host an address is a pointer. */
static void *on_host(const gf_context *gf, gf_mem at)
{
    return ((at == 0) || gf->on_device) ? NULL : (void *)(uintptr_t)at;
}

float *gf_gradient_f32(gf_context *gf, uint32_t tensor)
{
    gf_mem at = gf_gradient(gf, tensor);
    return ((at != 0) && (gf->tensors[tensor].type == GF_TYPE_F32)) ? on_host(gf, at) : NULL;
}

uint16_t *gf_gradient_bits16(gf_context *gf, uint32_t tensor)
{
    gf_mem at = gf_gradient(gf, tensor);
    return ((at != 0) && (gf->tensors[tensor].type != GF_TYPE_F32)) ? on_host(gf, at) : NULL;
}

float *gf_weight_f32(gf_context *gf, uint32_t tensor)
{
    return on_host(gf, gf_weight(gf, tensor));
}

uint16_t *gf_weight_bits16(gf_context *gf, uint32_t tensor)
{
    return on_host(gf, gf_weight_half(gf, tensor));
}

gf_path gf_path_of(const gf_context *gf)
{
    bool in_regions = (gf->algorithm == GF_ALGORITHM_DIRECT) || gf->nodes.used;
    if (!gf->on_device) return GF_PATH_HOST;
    if (gf->ipc.agreed) return GF_PATH_PEERS;
    return ((gf->link != NULL) && gf->link->reaches_device && !in_regions) ? GF_PATH_WIRE
                                                                           : GF_PATH_STAGED;
}

gf_mem gf_exchange_take(gf_context *gf, uint64_t size_bytes)
{
    uint64_t at;
    if ((gf_enter(gf) < 0) || gf_region_moves(gf)) return 0;
    if (gf->change.state != GF_CHANGE_NONE) return 0; /* the next region would hand it out again */
    at = gf_align_up(gf->region.user_used, GF_ALIGN_BYTES);
    if ((size_bytes == 0) || (at > gf->config.exchange.user_bytes) ||
        (size_bytes > gf->config.exchange.user_bytes - at))
        return 0;
    gf->region.user_used = at + size_bytes;
    return gf->region.user + at;
}

void gf_block(uint64_t elem_count, uint32_t world, uint32_t rank, uint64_t *first_out,
              uint64_t *count_out)
{
    uint64_t first;
    uint64_t count;
    gf_coll_block((rank < world) ? elem_count : 0, (rank < world) ? world : 1, rank, &first,
                  &count);
    if (first_out != NULL) *first_out = first;
    if (count_out != NULL) *count_out = count;
}
