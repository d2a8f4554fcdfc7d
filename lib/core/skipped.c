/* What is logged after a vote: why a step was skipped, and that ranks weigh their samples otherwise
 * than the program may believe. */
#include "lib/core/skipped.h"

#include <stdio.h>
#include <string.h>

#include "lib/core/vote.h"

#define SKIPS_FORGOTTEN 100u /* good steps in a row: the next skipped one is logged as the first */

void gf_skip_none(gf_context *gf)
{
    if (++gf->observed.taken_in_row >= SKIPS_FORGOTTEN)
        memset(gf->observed.skips, 0, sizeof gf->observed.skips);
}

/* Limits the warnings: a lasting cause would fill the log with equal lines. */
bool gf_skip_is_news(gf_context *gf, uint32_t reason, char text_out[GF_SKIP_TEXT_BYTES])
{
    struct gf_skips *skips = &gf->observed.skips[reason];
    gf->observed.taken_in_row = 0;
    if (skips->count++ == 0) skips->first_step = gf->step.number;
    text_out[0] = '\0';
    if (skips->count > 1)
        (void)snprintf(text_out, GF_SKIP_TEXT_BYTES, " (%llu such steps since step %llu)",
                       (unsigned long long)skips->count, (unsigned long long)skips->first_step);
    return (skips->count & (skips->count - 1)) == 0;
}

void gf_skip_values_log(gf_context *gf, const uint64_t *words)
{
    const struct gf_finite_location location = gf_finite_location_of(words[GF_VOTE_FIRST_BAD]);
    char many[GF_SKIP_TEXT_BYTES];
    if (!gf_skip_is_news(gf, GF_SKIP_VALUES, many)) return;
    gf_log_line(&gf->log, GF_LOG_WARN,
                "step %llu skipped on all ranks: %llu values are not finite, first on rank %u, "
                "tensor %u \"%s\", element %llu%s",
                (unsigned long long)gf->step.number, (unsigned long long)words[GF_VOTE_BAD],
                location.rank, location.tensor, gf->tensors[location.tensor].name,
                (unsigned long long)location.elem, many);
}

/* The largest power of two that keeps the sum of `world` finite values in range. */
static double pre_scale_for(uint32_t world)
{
    double scale = 1.0;
    while (scale * world > 1.0) scale /= 2.0;
    return scale;
}

void gf_skip_sum_log(gf_context *gf, const uint64_t *words)
{
    const struct gf_finite_location location = gf_finite_location_of(words[GF_VOTE_FIRST_SUM]);
    const double is = (double)gf->config.exchange.pre_scale;
    const double enough = pre_scale_for(gf->world);
    char many[GF_SKIP_TEXT_BYTES];
    char help[96] = "exchange.pre_scale is small enough: the result itself leaves its type";
    if (!gf_skip_is_news(gf, GF_SKIP_SUM, many)) return;
    if (is > enough)
        (void)snprintf(help, sizeof help,
                       "exchange.pre_scale = %g (now %g) keeps sums of %u ranks in range", enough,
                       is, gf->world);
    gf_log_line(
        &gf->log, GF_LOG_WARN,
        "step %llu skipped on all ranks: a sum left the range of the wire or of its "
        "gradient, where rank %u added or rounded it, tensor %u \"%s\", element %llu; every "
        "local gradient was finite; %s%s",
        (unsigned long long)gf->step.number, location.rank, location.tensor,
        gf->tensors[location.tensor].name, (unsigned long long)location.elem, help, many);
}

/* Warns where ranks weigh samples differently from what the program believes; training gets worse
 * and nothing else shows why. A rank that did not call gf_step_samples() counts as one sample, and
 * with the mean over ranks samples do not count. The warning comes at the first, second, fourth ..
 * such step. */
void gf_samples_log(gf_context *gf, const uint64_t *words)
{
    const uint32_t said = (uint32_t)(words[GF_VOTE_WAITING] >> GF_VOTE_SAID_BIT);
    const bool by_samples = gf->config.exchange.average == GF_AVERAGE_SAMPLES;
    const bool some = by_samples && (said > 0) && (said < gf->world);
    const bool differ = (gf->config.exchange.average == GF_AVERAGE_RANKS) && (said == gf->world) &&
                        (gf->step.samples * gf->world != words[GF_VOTE_SAMPLES]);
    if (!some && !differ) return;
    gf->observed.uneven++;
    if ((gf->observed.uneven & (gf->observed.uneven - 1)) != 0) return;
    if (some)
        gf_log_line(
            &gf->log, GF_LOG_WARN,
            "step %llu: %u of %u ranks said gf_step_samples(), and each of the others counts "
            "as one sample (exchange.average is samples)",
            (unsigned long long)gf->step.number, said, gf->world);
    else
        gf_log_line(
            &gf->log, GF_LOG_WARN,
            "step %llu: this rank has %llu of %llu samples of %u ranks, and exchange.average "
            "is ranks, which weighs ranks alike whatever their samples",
            (unsigned long long)gf->step.number, (unsigned long long)gf->step.samples,
            (unsigned long long)words[GF_VOTE_SAMPLES], gf->world);
}
