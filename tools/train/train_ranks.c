/* Sums over ranks. The library adds fp32, which holds whole numbers up to 2^24; a larger one
 * travels as its bytes. What the library compares itself (the configuration, the tensor table) is
 * not compared again. */
#include "tools/train/train_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/fnv.h"
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

#define VALUE_BYTES 32u

/* Every value travels as 64 bits: a count, a double, or up to eight letters. */
typedef enum same_kind { SAME_COUNT, SAME_REAL, SAME_TEXT } same_kind;

struct same_option {
    const char *name;
    same_kind kind;
    uint64_t value;
};

static uint64_t bits_of_real(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t bits_of_text(const char *text)
{
    uint64_t bits = 0;
    memcpy(&bits, text, strnlen(text, sizeof bits));
    return bits;
}

static void value_print(same_kind kind, uint64_t value, char text_out[static VALUE_BYTES])
{
    double real;
    memcpy(&real, &value, sizeof real);
    switch (kind) {
    case SAME_COUNT: snprintf(text_out, VALUE_BYTES, "%llu", (unsigned long long)value); return;
    case SAME_REAL: /* the shortest text that is this fp32 and no other */
        for (int digits = 6; digits <= 9; digits++) {
            snprintf(text_out, VALUE_BYTES, "%.*g", digits, real);
            if (strtof(text_out, NULL) == (float)real) return;
        }
        return;
    case SAME_TEXT: snprintf(text_out, VALUE_BYTES, "%.8s", (const char *)&value); return;
    }
}

#define OPTIONS_MAX 13u

static void options_list(const struct train *train, struct same_option list_out[static OPTIONS_MAX])
{
    const struct train_options *options = train->options;
    const struct same_option all[] = {
        {"--model", SAME_TEXT, bits_of_text(options->model->name)},
        {"images of --data", SAME_COUNT, train->images.image_count},
        {"test images of --data", SAME_COUNT, train->tests.image_count},
        {"--batch", SAME_COUNT, options->batch},
        {"--split", SAME_TEXT, bits_of_text((options->split != NULL) ? options->split : "none")},
        {"--seed", SAME_COUNT, options->seed},
        {"steps of --steps or --epochs", SAME_COUNT, train->step_count},
        {"--lr", SAME_REAL, bits_of_real((double)options->schedule.base_rate)},
        /* gf-train's own schedule has no more than these; the library compares rate.* of the
         * configuration. */
        {"where the schedule comes from", SAME_TEXT,
         bits_of_text(options->configured_rate ? "rate.*" : "gf-train")},
        {"the power of the schedule", SAME_REAL, bits_of_real((double)options->schedule.power)},
        {"whether there is --checkpoint", SAME_COUNT, options->checkpoint_path != NULL},
        {"--checkpoint-every", SAME_COUNT, options->checkpoint_every},
        {"whether there is --resume", SAME_COUNT, options->resume},
    };
    _Static_assert(sizeof all / sizeof *all == OPTIONS_MAX, "the list has room for all");
    memcpy(list_out, all, sizeof all);
}

uint64_t train_same_hash(const struct train *train)
{
    uint64_t hash = GF_FNV_START;
    struct same_option all[OPTIONS_MAX];
    options_list(train, all);
    for (size_t i = 0; i < OPTIONS_MAX; i++) hash = gf_fnv_word(hash, all[i].value);
    return hash;
}

gf_status train_same(struct train *train, char error_out[static TRAIN_SAME_ERROR_BYTES])
{
    struct same_option all[OPTIONS_MAX];
    uint64_t *found = train->result.weights_hash; /* until there are weights */
    error_out[0] = '\0';
    options_list(train, all);
    for (size_t i = 0; i < OPTIONS_MAX; i++) {
        gf_status status = ranks_gather_u64(train->gf, all[i].value, train->hash_limbs, found);
        if (status < 0) return status;
        for (uint32_t rank = 1; rank < train->world; rank++) {
            char first[VALUE_BYTES];
            char other[VALUE_BYTES];
            if (found[rank] == found[0]) continue;
            value_print(all[i].kind, found[0], first);
            value_print(all[i].kind, found[rank], other);
            snprintf(error_out, TRAIN_SAME_ERROR_BYTES,
                     "ranks differ in %s: %s at rank 0, %s at rank %u; allowed is one "
                     "value for all ranks",
                     all[i].name, first, other, rank);
            return GF_OK;
        }
    }
    return GF_OK;
}
