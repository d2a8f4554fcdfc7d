/* See perf_values.h. Values are small whole numbers, so that every order of adding gives the same
 * bits. */
#include "tools/perf/perf_values.h"

#include <string.h>

#include "ops/element/host/half.h"

#define PATTERN 7u

static uint32_t bits_of(gf_type type, float value)
{
    if (type == GF_TYPE_F16) return gf_f16_of_f32(value);
    return (type == GF_TYPE_BF16) ? gf_bf16_of_f32(value) : gf_f32_bits(value);
}

static uint32_t pattern_of(const struct perf_values *values)
{
    /* bf16 holds whole numbers up to 256 */
    return (values->world * (PATTERN - 1) <= 256) ? PATTERN : 2;
}

/* What a rank fills in. */
static float input(const struct perf_values *values, uint64_t elem, uint32_t rank)
{
    return (float)((elem + rank) % pattern_of(values));
}

void perf_value_put(const struct perf_values *values, uint64_t i, float value)
{
    size_t size = gf_type_size_bytes(values->type);
    uint32_t bits = bits_of(values->type, value);
    memcpy(values->data + i * size, &bits, size);
}

void perf_values_fill(const struct perf_values *values)
{
    for (uint64_t i = 0; i < values->elem_count; i++)
        perf_value_put(values, i, input(values, values->first_elem + i, values->rank));
}

static float reduced(const struct perf_values *values, uint32_t elem)
{
    float result = input(values, elem, 0);
    for (uint32_t rank = 1; rank < values->world; rank++) {
        float value = input(values, elem, rank);
        switch (values->reduction) {
        case GF_REDUCTION_MIN: result = (value < result) ? value : result; break;
        case GF_REDUCTION_MAX: result = (value > result) ? value : result; break;
        default: result += value; break;
        }
    }
    return result;
}

/* Element i of what must be there is want[i % pattern]; where nothing is added it is what from_rank
 * filled in. */
static void wanted(const struct perf_values *values, uint32_t from_rank, uint32_t *want)
{
    bool moves = (values->operation == GF_OPERATION_BROADCAST) ||
                 (values->operation == GF_OPERATION_ALLGATHER);
    for (uint32_t i = 0; i < pattern_of(values); i++)
        want[i] = bits_of(values->type, moves ? input(values, i, from_rank) : reduced(values, i));
}

static uint64_t wrong_in(const struct perf_values *values, uint64_t first, uint64_t count,
                         uint32_t from_rank)
{
    size_t size = gf_type_size_bytes(values->type);
    uint32_t want[PATTERN];
    uint32_t pattern = pattern_of(values);
    uint64_t wrong = 0;
    wanted(values, from_rank, want);
    for (uint64_t i = first; i < first + count; i++) {
        uint32_t got = 0;
        memcpy(&got, values->data + i * size, size);
        wrong += got != want[(values->first_elem + i) % pattern];
    }
    return wrong;
}

uint64_t perf_values_wrong(const struct perf_values *values)
{
    uint64_t first;
    uint64_t count;
    uint64_t wrong = 0;
    switch (values->operation) {
    case GF_OPERATION_BARRIER: return 0;
    case GF_OPERATION_REDUCE_SCATTER:
        gf_block(values->elem_count, values->world, values->rank, &first, &count);
        return wrong_in(values, first, count, 0);
    case GF_OPERATION_ALLGATHER:
        for (uint32_t rank = 0; rank < values->world; rank++) {
            gf_block(values->elem_count, values->world, rank, &first, &count);
            wrong += wrong_in(values, first, count, rank);
        }
        return wrong;
    default: return wrong_in(values, 0, values->elem_count, values->root);
    }
}
