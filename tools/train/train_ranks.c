/* Sums over ranks. The library adds fp32, which holds whole numbers up to 2^24; a larger one
 * travels as its bytes. What the library compares itself (the configuration, the tensor table) is
 * not compared again. */
#include "tools/train/train_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/base/fnv.h"
#include "tools/train/train_loop.h"

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
    for (uint32_t i = 0; i < RANKS_LIMBS; i++)
        limbs[i] = (float)((value >> (i * LIMB_BITS)) & LIMB_MASK);
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

/* By halves, each of which fp32 holds: the lower one of those that have the largest upper one. */
gf_status ranks_max_u32(gf_context *gf, uint32_t *value)
{
    uint32_t largest = 0;
    for (uint32_t shift = 32; shift > 0; shift -= 16) {
        const uint32_t mine = *value >> (shift - 16);
        float half = (mine >> 16 == largest) ? (float)(mine & 0xffffu) : 0;
        struct gf_request request = {0};
        gf_status status = gf_allreduce_by(gf, GF_REDUCTION_MAX, (gf_mem)(uintptr_t)&half, 1,
                                           GF_TYPE_F32, &request);
        if (status >= 0) status = gf_request_wait(gf, &request);
        if (status < 0) return status;
        largest = largest << 16 | (uint32_t)half;
    }
    *value = largest;
    return GF_OK;
}

gf_status ranks_gather_u64(gf_context *gf, uint64_t value, float *limbs, uint64_t *values_out)
{
    struct gf_request request = {0};
    uint32_t world = gf_world(gf);
    limbs_split(value, limbs + (size_t)gf_rank(gf) * RANKS_LIMBS);
    gf_status status = gf_allgather(gf, (gf_mem)(uintptr_t)limbs, (uint64_t)world * RANKS_LIMBS,
                                    GF_TYPE_F32, &request);
    if (status >= 0) status = gf_request_wait(gf, &request);
    if (status < 0) return status;
    for (uint32_t i = 0; i < world; i++)
        values_out[i] = limbs_join(limbs + (size_t)i * RANKS_LIMBS);
    return GF_OK;
}

static int float_compare(const void *a, const void *b)
{
    float left;
    float right;
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

/* ---- the command lines of all ranks must say the same ---- */

static void options_text(const struct train *train, bool resume,
                         char text_out[static TRAIN_SAME_BYTES])
{
    const struct train_options *options = train->options;
    char rate[32] = "rate.* of the configuration"; /* whose values the library compares */
    char checkpoints[64] = "no checkpoint";
    if (!options->configured_rate)
        snprintf(rate, sizeof rate, "--lr %.7g", (double)options->schedule.base_rate);
    if (options->checkpoint_path != NULL)
        snprintf(checkpoints, sizeof checkpoints, "a checkpoint each %llu%s",
                 (unsigned long long)options->checkpoint_every, resume ? ", --resume" : "");
    snprintf(text_out, TRAIN_SAME_BYTES,
             "--model %s --batch %u --seed %llu --split %s, %llu steps, %s, %s, data of %u and %u "
             "images",
             options->model->name, options->batch, (unsigned long long)options->seed,
             (options->split != NULL) ? options->split : "none",
             (unsigned long long)train->step_count, rate, checkpoints, train->images.image_count,
             train->tests.image_count);
}

static uint64_t options_hash(const struct train *train, bool resume)
{
    char text[TRAIN_SAME_BYTES];
    options_text(train, resume, text);
    return gf_fnv_bytes(GF_FNV_START, text, strlen(text));
}

uint64_t train_same_hash(const struct train *train)
{
    return options_hash(train, false);
}

gf_status train_same(struct train *train, char error_out[static TRAIN_SAME_BYTES])
{
    static const char differ[] = "ranks differ in their options; here: ";
    char text[TRAIN_SAME_BYTES];
    uint64_t *found = train->result.weights_hash; /* until there are weights */
    error_out[0] = '\0';
    bool resume = train->options->resume;
    gf_status status =
        ranks_gather_u64(train->gf, options_hash(train, resume), train->hash_limbs, found);
    for (uint32_t rank = 1; (status >= 0) && (rank < train->world); rank++) {
        if (found[rank] == found[0]) continue;
        options_text(train, resume, text);
        snprintf(error_out, TRAIN_SAME_BYTES, "%s%.*s", differ,
                 (int)(TRAIN_SAME_BYTES - sizeof differ), text);
    }
    return status;
}
