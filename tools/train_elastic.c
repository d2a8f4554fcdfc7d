/* See train_elastic.h. The global batch stays what it is: each rank that is left takes a larger part of it, and the
 * order of images and the learning rate follow from the step alone. */
#include "train_elastic.h"

#include <stdio.h>
#include <time.h>

static double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

gf_status train_shrink(struct train *train, gf_status status)
{
    char cause[sizeof gf_error_last(train->gf)->text];
    uint32_t rank_before = train->rank, world_before = train->world;
    double begin = clock_seconds();
    if (!train->options->elastic || (train->checkpoint.error[0] != '\0')) return status;
    snprintf(cause, sizeof cause, "%s", gf_error_last(train->gf)->text);
    if (gf_shrink(train->gf) < 0) return status; /* this rank's own failure: the record says it */
    status = gf_shrink_wait(train->gf);
    if (status < 0) return status;
    train->rank = train->checkpoint.rank = gf_rank(train->gf);
    train->world = train->checkpoint.world = gf_world(train->gf);
    train->step = gf_steps(train->gf);
    train_pools(train);
    fprintf(stderr, "elastic: rank %u of %u is rank %u of %u from step %llu on, after %.3f s: %s\n", rank_before,
            world_before, train->rank, train->world, (unsigned long long)train->step + 1u, clock_seconds() - begin,
            cause);
    return GF_OK;
}

gf_status train_finish(struct train *train)
{
    for (;;) {
        gf_status status = train_test(train);
        if (status >= 0) status = train_end(train);
        if (status >= 0) return GF_OK;
        status = train_shrink(train, status);
        if (status < 0) return status;
    }
}
