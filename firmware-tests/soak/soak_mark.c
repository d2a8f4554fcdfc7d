/* What ranks must agree on behind a step, as hashes of its bits; and which chunks are the next to
 * go. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/soak/soak.h"

void soak_step_fail(const gf_context *gf, uint64_t step, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fail_msg("step %llu, rank %u: %s", (unsigned long long)step, gf_rank(gf), text);
}

static uint64_t hash_of(uint64_t hash, const void *data, uint64_t bytes)
{
    const unsigned char *at = data;
    uint64_t word;
    for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word ^ (hash >> 29)) * UINT64_C(0x9e3779b97f4a7c15);
    }
    for (; bytes > 0; at++, bytes--) hash = (hash ^ *at) * UINT64_C(0x100000001b3);
    return hash;
}

struct soak_mark soak_mark_of(const struct soak_model *model, gf_context *gf)
{
    struct soak_mark mark = {.known = true,
                             .skipped = gf_step_skipped(gf),
                             .gradient_scale = gf_gradient_scale(gf),
                             .loss_scale = gf_loss_scale(gf)};
    /* u is a rank's own */
    uint64_t own = model->local_begun ? gf->sparse.elem_count : 0;
    uint64_t count = gf->pool.elem_count;
    /* of a skipped step they are undefined */
    for (uint32_t i = 0; !mark.skipped && (i < gf->tensor_count); i++)
        mark.gradient =
            hash_of(mark.gradient, (const void *)(uintptr_t)gf_gradient(gf, i),
                    gf->tensors[i].elem_count * gf_type_size_bytes((gf_type)gf->tensors[i].type));
    if (gf->optimizer.weight != 0)
        mark.weight =
            hash_of(1, (const void *)(uintptr_t)gf->optimizer.weight, count * sizeof(float));
    if (gf->optimizer.half != 0)
        mark.half =
            hash_of(1, (const void *)(uintptr_t)gf->optimizer.half, count * sizeof(uint16_t));
    if (gf->optimizer.momentum != 0)
        mark.momentum =
            hash_of(1, (const void *)(uintptr_t)(gf->optimizer.momentum + own * sizeof(float)),
                    (count - own) * sizeof(float));
    if (gf->optimizer.moment2 != 0)
        mark.moment2 =
            hash_of(gf->optimizer.updates, (const void *)(uintptr_t)gf->optimizer.moment2,
                    count * sizeof(float));
    if (gf->sparse.selected_count > 0)
        mark.selection =
            hash_of(1, gf->sparse.selection, gf->sparse.selected_count * sizeof(uint32_t));
    return mark;
}

void soak_mark_check(const gf_context *gf, uint64_t step, const struct soak_mark *a,
                     const struct soak_mark *b)
{
    const char *what = (a->skipped != b->skipped)                 ? "vote"
                       : (a->gradient != b->gradient)             ? "gradient"
                       : (a->weight != b->weight)                 ? "weight"
                       : (a->half != b->half)                     ? "half weight"
                       : (a->momentum != b->momentum)             ? "momentum"
                       : (a->moment2 != b->moment2)               ? "second moment"
                       : (a->selection != b->selection)           ? "selection"
                       : (a->gradient_scale != b->gradient_scale) ? "gradient scale"
                       : (a->loss_scale != b->loss_scale)         ? "loss scale"
                                                                  : NULL;
    if (what != NULL)
        soak_step_fail(gf, step, "its %s is not that of the first rank that was whole", what);
}

/* Norms of whole numbers are the same in every order of adding, so the set is too. */
static void largest_check(const struct soak_model *model, const gf_context *gf, uint64_t step)
{
    const struct gf_sparse *sparse = &gf->sparse;
    float *norms = calloc(sparse->chunk_count, sizeof *norms);
    uint32_t *expected = calloc(sparse->chunk_count, sizeof *expected);
    bool same;
    assert_true((norms != NULL) && (expected != NULL));
    for (uint32_t rank = 0; rank < model->plan->ids; rank++)
        for (uint64_t e = 0; soak_is_member(model, rank) && (e < sparse->elem_count); e++)
            norms[e / sparse->chunk_elems] +=
                (float)fabs(model->history[rank * model->elem_count + e]);
    gf_sparse_select(norms, sparse->chunk_count, sparse->selected_count, expected);
    same = memcmp(expected, sparse->selection, sparse->selected_count * sizeof *expected) == 0;
    free(norms);
    free(expected);
    if (!same) soak_step_fail(gf, step, "the selection is not that of the largest norms");
}

void soak_selection_check(const struct soak_model *model, const gf_context *gf, uint64_t step)
{
    const struct gf_sparse *sparse = &gf->sparse;
    uint32_t kept;
    if ((sparse->chunk_count == 0) || (sparse->selected_count == 0)) return;
    kept = gf_sparse_kept(&gf->config, sparse->chunk_count, step + 1);
    if (!gf_step_skipped(gf) && (sparse->selected_count != kept))
        soak_step_fail(gf, step, "%u chunks are selected, expected %u", sparse->selected_count,
                       kept);
    for (uint32_t i = 0; i < sparse->selected_count; i++)
        if ((sparse->selection[i] >= sparse->chunk_count) ||
            ((i > 0) && (sparse->selection[i] <= sparse->selection[i - 1])))
            soak_step_fail(gf, step, "the selection does not rise at %u", i);
    if (model->exact && gf->step.sparse && !gf_step_skipped(gf)) largest_check(model, gf, step);
}
