/* See train_elastic.h. The global batch stays what it is: each rank that is left takes a larger
 * part of it, and the order of images and the learning rate follow from the step alone. */
#include "tools/train/train_elastic.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/tool_clock.h"
#include "tools/train/train_ranks.h"
#include "tools/train/train_weights.h"

static volatile sig_atomic_t leave_wanted;

static void leave_ask(int number)
{
    (void)number;
    leave_wanted = 1;
}

void train_leave_on_signal(void)
{
    const struct sigaction action = {.sa_handler = leave_ask, .sa_flags = SA_RESTART};
    (void)sigaction(SIGUSR1, &action, NULL);
}

static double clock_seconds(void)
{
    return (double)tool_clock_ns() * 1e-9;
}

/* The lowest rank that has the job's own values: rank 0 may be the one that comes in. */
static gf_status root_find(struct train *train, uint32_t *root_out)
{
    float root = train->joins ? (float)train->world : (float)train->rank;
    struct gf_request request = {0};
    gf_status status = gf_allreduce_by(train->gf, GF_REDUCTION_MIN, (gf_mem)(uintptr_t)&root, 1,
                                       GF_TYPE_F32, &request);
    if (status >= 0) status = gf_request_wait(train->gf, &request);
    *root_out = (root < (float)train->world) ? (uint32_t)root : 0;
    return status;
}

/* Everybody of a new world learns from one that was of the one before what the appliance itself
 * keeps: where the run began. */
static gf_status meet(struct train *train)
{
    uint64_t words[4] = {0};
    uint32_t root = 0;
    gf_status status = root_find(train, &root);
    if (status < 0) return status;
    if (train->rank == root) {
        words[0] = train->step_first;
        words[1] = train->checkpoint.id;
        memcpy(&words[2], &train->result.loss_first, sizeof words[2]);
        words[3] = train_same_hash(train);
    }
    status = ranks_sum_u64(train->gf, words, 4);
    if (status < 0) return status;
    if (words[3] != train_same_hash(train)) {
        snprintf(
            train->checkpoint.error, sizeof train->checkpoint.error,
            "came back with other options than the job has; allowed are the same for all ranks");
        return GF_ERR_MISMATCH;
    }
    train->step_first = words[0];
    train->checkpoint.id = words[1];
    memcpy(&train->result.loss_first, &words[2], sizeof words[2]);
    train->joins = false;
    train->checkpoint.saved = 0; /* by the world before */
    return GF_OK;
}

static void world_take(struct train *train)
{
    train->rank = train->checkpoint.rank = gf_rank(train->gf);
    train->world = train->checkpoint.world = gf_world(train->gf);
    train->step = gf_steps(train->gf);
    train_pools(train);
}

/* The new epoch is on its way; further deaths begin it anew. */
static gf_status epoch_wait(struct train *train, double begin, const char *cause)
{
    uint32_t rank_before = train->rank;
    uint32_t world_before = train->world;
    for (;;) {
        gf_status status = gf_regroup_wait(train->gf);
        if ((status >= 0) && gf_left(train->gf)) {
            fprintf(stderr, "elastic: rank %u of %u has left after step %llu\n", rank_before,
                    world_before, (unsigned long long)train->step);
            return GF_OK;
        }
        if (status >= 0) {
            world_take(train);
            train->joins = train->joins || gf_left_out(train->gf);
            status = meet(train);
            if (status >= 0) break;
        }
        if ((train->checkpoint.error[0] != '\0') || (gf_regroup_begin(train->gf) < 0))
            return status;
    }
    fprintf(stderr, "elastic: rank %u of %u is rank %u of %u from step %llu on, after %.3f s: %s\n",
            rank_before, world_before, train->rank, train->world,
            (unsigned long long)train->step + 1u, clock_seconds() - begin, cause);
    return GF_OK;
}

gf_status train_shrink(struct train *train, gf_status status)
{
    char cause[sizeof gf_error_last(train->gf)->text];
    double begin = clock_seconds();
    if (!train->options->elastic || (train->checkpoint.error[0] != '\0') ||
        (train->diverged[0] != '\0'))
        return status;
    snprintf(cause, sizeof cause, "%s", gf_error_last(train->gf)->text);
    if (train->on_device) device_abandon(&train->device);
    /* this rank's own failure: the record says it */
    if (gf_regroup_begin(train->gf) < 0) return status;
    return epoch_wait(train, begin, cause);
}

gf_status train_admit(struct train *train)
{
    char cause[48];
    double begin = clock_seconds();
    uint32_t count = gf_joiners(train->gf);
    uint32_t due = gf_regroup_due(train->gf);
    /* with the next step's vote */
    if (leave_wanted && train->options->elastic) (void)gf_leave(train->gf);
    if ((due == 0) || !train->options->elastic) return GF_OK;
    snprintf(cause, sizeof cause, "%u came in, %u left", count, due - count);
    gf_status status = gf_regroup_begin(train->gf);
    return (status < 0) ? train_shrink(train, status) : epoch_wait(train, begin, cause);
}

gf_status train_joiner(struct train *train)
{
    gf_status status = train_begin_joiner(train);
    if (status < 0) return status;
    world_take(train);
    train->joins = true;
    status = meet(train);
    if (status < 0) return train_shrink(train, status);
    bool is_new = gf_first_rank(train->gf) >= gf_first_world(train->gf);
    fprintf(stderr, "elastic: member %u %s as rank %u of %u from step %llu on\n",
            gf_first_rank(train->gf), is_new ? "came in" : "came back", train->rank, train->world,
            (unsigned long long)train->step + 1u);
    return GF_OK;
}

gf_status train_finish(struct train *train)
{
    for (;;) {
        gf_status status = train_save(train, train->step_count);
        if (status >= 0) status = train_test(train);
        if (status >= 0) status = train_end(train);
        if (status >= 0) return GF_OK;
        status = train_shrink(train, status);
        if (status < 0) return status;
    }
}
