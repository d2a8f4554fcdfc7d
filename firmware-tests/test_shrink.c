/* Survivors go on without the dead, over the simulated network: whoever dies, at whatever post, they agree on an epoch,
 * hold the same weights, and sums are right afterwards; whoever is left on the smaller side ends. */
#include "world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define RANKS_MAX 9u
#define STEPS 6u
#define RATE 0.0625f /* a power of two: weights of whole numbers stay exact */
#define SECOND UINT64_C(1000000000)

static const struct gf_sim_setup network = {.seed = 1, .latency_ns = 5000, .jitter_ns = 20000, .bytes_per_ns = 1.0,
                                            .message_ns = 100, .detect_ns = 1000000, .bind_receives = true};

static const struct gf_tensor tensors[] = {
    {.name = "a", .elem_count = 301}, {.name = "b", .elem_count = 64}, {.name = "c", .elem_count = 2001}};

/* An appliance: steps, and a shrink where one fails. */
struct job {
    uint32_t tensor;     /* next to be declared */
    bool in_step, shrinking;
    uint32_t shrinks;
    uint64_t shrink_ns, shrink_began_ns;
};

static struct job jobs[RANKS_MAX];
static uint64_t settled_ns; /* nobody ends before: a death may not have been seen yet */
static void (*on_turn)(struct world *w, uint32_t rank); /* faults by hand */

static gf_status job_failed(struct world *w, uint32_t rank, gf_status status)
{
    struct job *job = &jobs[rank];
    gf_context *gf = w->ranks[rank].gf;
    gf_status began;
    if ((status != GF_ERR_PEER) && (status != GF_ERR_LINK) && (status != GF_ERR_TIMEOUT)) return status;
    began = gf_shrink(gf);
    if (began < 0) return status;
    job->shrinking = true;
    job->in_step = false;
    job->shrink_began_ns = gf_sim_now_ns(w->sim);
    return GF_AGAIN;
}

static gf_status job_shrink(struct world *w, uint32_t rank)
{
    struct job *job = &jobs[rank];
    gf_status status = gf_shrink_poll(w->ranks[rank].gf);
    if (status == GF_AGAIN) return GF_AGAIN;
    job->shrinking = false;
    job->shrink_ns = gf_sim_now_ns(w->sim) - job->shrink_began_ns;
    if (status < 0) return status;
    job->shrinks++;
    return GF_AGAIN;
}

/* Has all its steps; the others may still need it. */
static gf_status job_last(struct world *w, uint32_t rank)
{
    gf_status status = gf_heartbeat(w->ranks[rank].gf);
    if (status < 0) return job_failed(w, rank, status);
    for (uint32_t other = 0; other < w->world; other++) {
        bool out = !gf_sim_runs(w->sim, other) || (w->ranks[other].status < 0);
        if (!out && (jobs[other].shrinking || jobs[other].in_step || (gf_steps(w->ranks[other].gf) < STEPS))) return GF_AGAIN;
    }
    return (gf_sim_now_ns(w->sim) < settled_ns) ? GF_AGAIN : GF_OK;
}

static gf_status job_turn(struct world *w, uint32_t rank, void *arg)
{
    struct job *job = &jobs[rank];
    gf_context *gf = w->ranks[rank].gf;
    gf_status status;
    (void)arg;
    if (on_turn != NULL) on_turn(w, rank);
    if (!gf_sim_runs(w->sim, rank)) return GF_AGAIN;
    if (job->shrinking) return job_shrink(w, rank);
    if (!job->in_step) {
        if (gf_steps(gf) >= STEPS) return job_last(w, rank);
        if ((status = gf_step_begin(gf)) < 0) return job_failed(w, rank, status);
        job->in_step = true;
        job->tensor = 0;
        return GF_AGAIN;
    }
    if (job->tensor < LENGTH(tensors)) {
        world_fill(w, rank, job->tensor, (void *)(uintptr_t)gf_gradient(gf, job->tensor), NULL);
        status = gf_tensor_ready(gf, job->tensor++, 0);
        return (status < 0) ? job_failed(w, rank, status) : GF_AGAIN;
    }
    if ((status = gf_step_poll(gf)) == GF_AGAIN) return GF_AGAIN;
    if (status == GF_OK) status = gf_update(gf, RATE);
    if (status < 0) return job_failed(w, rank, status);
    job->in_step = false;
    return GF_AGAIN;
}

static struct world_setup setup_of(uint32_t world)
{
    struct world_setup setup = {.world = world, .tensors = tensors, .tensor_count = LENGTH(tensors), .sim = network};
    setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
    setup.config.rendezvous.join_timeout_ns = 8 * SECOND;
    setup.config.exchange.timeout_ns = SECOND;
    setup.config.exchange.fuse_bytes = 2048;
    setup.config.exchange.slice_bytes = 4096;
    return setup;
}

static void jobs_run(struct world *w)
{
    memset(jobs, 0, sizeof jobs);
    settled_ns = gf_sim_now_ns(w->sim) + SECOND / 50;
    world_run(w, job_turn, NULL);
}

static float sum_of(const struct world *w, uint32_t tensor, uint64_t elem, bool survivors)
{
    float sum = 0;
    for (uint32_t rank = 0; rank < w->world; rank++)
        if (!survivors || (w->ranks[rank].status == GF_OK)) sum += world_value(rank, tensor, elem);
    return sum;
}

static uint32_t survivors_of(const struct world *w)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < w->world; rank++) count += (w->ranks[rank].status == GF_OK) ? 1u : 0u;
    return count;
}

/* All that ended well are one world, in their order, with the same weights. */
static void expect_agreement(struct world *w, const char *what)
{
    uint32_t count = survivors_of(w), next = 0;
    const float *first[LENGTH(tensors)] = {0};
    for (uint32_t rank = 0; rank < w->world; rank++) {
        gf_context *gf = w->ranks[rank].gf;
        if (w->ranks[rank].status != GF_OK) continue;
        if ((gf_world(gf) != count) || (gf_rank(gf) != next) || (gf_steps(gf) != STEPS))
            fail_msg("%s: rank %u is %u of %u at step %u, expected %u of %u at %u", what, rank, gf_rank(gf), gf_world(gf),
                     (unsigned)gf_steps(gf), next, count, STEPS);
        next++;
        for (uint32_t tensor = 0; tensor < LENGTH(tensors); tensor++) {
            const float *weight = (const float *)(uintptr_t)gf_weight(gf, tensor);
            if (first[tensor] == NULL) first[tensor] = weight;
            if (memcmp(first[tensor], weight, tensors[tensor].elem_count * sizeof *weight) != 0)
                fail_msg("%s: tensor %u of rank %u differs", what, tensor, rank);
        }
    }
}

/* With one death and plain SGD: k steps of everybody, the rest of the survivors (one of them perhaps without its update);
 * the same k for each element. */
static void expect_sums(struct world *w, const char *what)
{
    gf_context *gf = NULL;
    bool fits[STEPS + 1][2];
    bool any = false;
    memset(fits, 1, sizeof fits);
    for (uint32_t rank = w->world; rank-- > 0;)
        if (w->ranks[rank].status == GF_OK) gf = w->ranks[rank].gf;
    assert_non_null(gf);
    for (uint32_t tensor = 0; tensor < LENGTH(tensors); tensor++) {
        const float *weight = (const float *)(uintptr_t)gf_weight(gf, tensor);
        for (uint64_t i = 0; i < tensors[tensor].elem_count; i++) {
            float all = sum_of(w, tensor, i, false), left = sum_of(w, tensor, i, true);
            for (uint32_t k = 0; k <= STEPS; k++)
                for (uint32_t lost = 0; lost < 2; lost++) {
                    float expected = -RATE * ((float)k * all + ((float)STEPS - (float)k - (float)lost) * left);
                    if (weight[i] != expected) fits[k][lost] = false;
                }
        }
    }
    for (uint32_t k = 0; k <= STEPS; k++) any = any || fits[k][0] || ((k < STEPS) && fits[k][1]);
    if (!any) fail_msg("%s: the weights are no sum of whole steps", what);
}

/* ---- one death ---- */

/* False: somebody died while joining, which no epoch survives. */
static bool all_joined(const struct world *w, uint32_t except)
{
    for (uint32_t rank = 0; rank < w->world; rank++)
        if ((rank != except) && (w->ranks[rank].status != GF_OK)) return false;
    return gf_sim_runs(w->sim, except);
}

static void whoever_dies_at_whatever_post_the_others_go_on(void **state)
{
    static const uint32_t worlds[] = {2, 3, 4, 5, 9};
    uint32_t deaths = 0;
    (void)state;
    for (size_t i = 0; i < LENGTH(worlds); i++) {
        for (uint32_t victim = 0; victim < worlds[i]; victim += (worlds[i] > 5) ? 4 : 1) {
            bool met = true;
            for (uint64_t at = 1; met; at += 1 + at / 16) {
                struct world_setup setup = setup_of(worlds[i]);
                struct world w;
                char what[96];
                (void)snprintf(what, sizeof what, "world %u, rank %u dies at post %u", worlds[i], victim, (unsigned)at);
                setup.sim.faults[0] = (struct gf_sim_fault){.kind = GF_SIM_FAULT_KILL, .rank = victim, .at = at};
                setup.sim.fault_count = 1;
                world_create(&w, &setup);
                world_join(&w);
                if (all_joined(&w, victim)) {
                    jobs_run(&w);
                    met = gf_sim_fault_met(w.sim);
                    if (survivors_of(&w) != worlds[i] - (met ? 1 : 0))
                        for (uint32_t r = 0; r < w.world; r++)
                            if ((w.ranks[r].status != GF_OK) && (r != victim))
                                fail_msg("%s: rank %u: %s\n%s", what, r, gf_status_name(w.ranks[r].status), w.ranks[r].log);
                    expect_agreement(&w, what);
                    expect_sums(&w, what);
                    deaths += met ? 1 : 0;
                }
                world_close(&w);
            }
        }
    }
    print_message("%u deaths in a step\n", deaths);
    assert_true(deaths > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_dies_at_whatever_post_the_others_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
