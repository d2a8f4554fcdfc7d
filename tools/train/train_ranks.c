/* Sums over ranks. The library adds fp32, which holds whole numbers up to 2^24; a larger one travels as its bytes. */
#include "tools/train/train_ranks.h"

#include <stdlib.h>
#include <string.h>

#define LIMB_BITS 8u
#define LIMB_MASK 0xffu

gf_status ranks_sum(gf_context *gf, float *data, uint64_t count)
{
    struct gf_request request = {0};
    gf_status status = gf_allreduce(gf, (gf_mem)(uintptr_t)data, count, GF_TYPE_F32, &request);
    return (status < 0) ? status : gf_request_wait(gf, &request);
}

static void limbs_split(uint64_t value, float *limbs)
{
    for (uint32_t i = 0; i < RANKS_LIMBS; i++) limbs[i] = (float)((value >> (i * LIMB_BITS)) & LIMB_MASK);
}

static uint64_t limbs_join(const float *limbs)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < RANKS_LIMBS; i++) value += (uint64_t)limbs[i] << (i * LIMB_BITS);
    return value;
}

gf_status ranks_sum_u64(gf_context *gf, uint64_t *data, uint32_t count)
{
    float limbs[RANKS_SUMS_MAX * RANKS_LIMBS];
    if (count > RANKS_SUMS_MAX) return GF_ERR_PARAM;
    for (uint32_t i = 0; i < count; i++) limbs_split(data[i], limbs + i * RANKS_LIMBS);
    gf_status status = ranks_sum(gf, limbs, (uint64_t)count * RANKS_LIMBS);
    if (status < 0) return status;
    for (uint32_t i = 0; i < count; i++) data[i] = limbs_join(limbs + i * RANKS_LIMBS);
    return GF_OK;
}

gf_status ranks_gather_u64(gf_context *gf, uint64_t value, float *limbs, uint64_t *values_out)
{
    struct gf_request request = {0};
    uint32_t world = gf_world(gf);
    limbs_split(value, limbs + (size_t)gf_rank(gf) * RANKS_LIMBS);
    gf_status status = gf_allgather(gf, (gf_mem)(uintptr_t)limbs, (uint64_t)world * RANKS_LIMBS, GF_TYPE_F32, &request);
    if (status >= 0) status = gf_request_wait(gf, &request);
    if (status < 0) return status;
    for (uint32_t i = 0; i < world; i++) values_out[i] = limbs_join(limbs + (size_t)i * RANKS_LIMBS);
    return GF_OK;
}

static int float_compare(const void *a, const void *b)
{
    float left, right;
    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    return (left > right) - (left < right);
}

double ranks_median(const float *data, uint64_t count, float *sorted)
{
    memcpy(sorted, data, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, float_compare);
    return 0.5 * ((double)sorted[(count - 1u) / 2u] + (double)sorted[count / 2u]);
}
