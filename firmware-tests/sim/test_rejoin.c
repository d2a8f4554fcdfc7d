/* Ranks that died are started again and come back, over the simulated network: whoever dies whenever, the joiner ahead of
 * all, in the end the world is whole, holds the same weights, and these are the sums of the steps that were applied. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/elastic.h"

#define STEPS_MAX 20000u
#define ELEMS 3u /* of the tensor whose sums are kept */
#define KEPT 2u  /* that tensor */

static struct job { /* of the process that runs now */
    bool applied[STEPS_MAX];
    float sums[STEPS_MAX][ELEMS];
} jobs[ELASTIC_RANKS_MAX];

static void job_start(uint32_t rank) { memset(&jobs[rank], 0, sizeof jobs[rank]); }

static void step_keep(struct world *w, uint32_t rank)
{
    uint64_t step = gf_steps(w->ranks[rank].gf);
    assert_true(step < STEPS_MAX);
    jobs[rank].applied[step] = true;
    memcpy(jobs[rank].sums[step], world_gradient(w, rank, KEPT), sizeof jobs[rank].sums[step]);
}

static void play(struct world *w, const struct world_setup *setup, const struct elastic_event *script)
{
    memset(jobs, 0, sizeof jobs);
    elastic.hooks.start = job_start;
    elastic.hooks.applied = step_keep;
    elastic_play(w, setup, script);
}

/* All but the ranks of `out`. */
static void expect_world(struct world *w, uint32_t out, const char *what)
{
    elastic_expect(w, ((1u << w->world) - 1) & ~out, what);
}

/* With plain SGD: the weights are the sums of the steps that any of those that are left has applied. */
static void expect_sums(struct world *w, uint32_t out, const char *what)
{
    for (uint32_t i = 0; i < ELEMS; i++) {
        float expected = 0;
        for (uint64_t step = 1; step <= elastic.goal; step++)
            for (uint32_t rank = 0; rank < w->world; rank++) {
                if (((out >> rank) & 1u) || !jobs[rank].applied[step]) continue;
                expected -= RATE * jobs[rank].sums[step][i];
                break;
            }
        for (uint32_t rank = 0; rank < w->world; rank++) {
            const float *weight = (const float *)(uintptr_t)gf_weight(w->ranks[rank].gf, KEPT);
            if (((out >> rank) & 1u) || (weight[i] == expected)) continue;
            fail_msg("%s: element %u of rank %u is %g, its steps come to %g", what, i, rank, (double)weight[i],
                     (double)expected);
        }
    }
    for (uint32_t i = 0; (out == 0) && (i < ELEMS); i++) /* everybody was in the last step */
        assert_true(jobs[0].sums[elastic.goal][i] == world_sum(w->world, KEPT, i));
}

/* ---- the cases ---- */

TEST(whoever_dies_and_is_started_again_comes_back)
{
    static const int32_t delays_us[] = {0, 300, 1100, 2500, 20000};
    uint32_t came = 0;
    for (uint32_t size = 2; size <= 5; size++) {
        for (uint32_t victim = 0; victim < size; victim++) {
            for (int32_t at = 500; at < 4000; at += 333) {
                for (size_t d = 0; d < LENGTH(delays_us); d++) {
                    struct world_setup setup = elastic_setup(size);
                    const struct elastic_event list[] = {{at, victim, KILL}, {at + delays_us[d], victim, START}, END};
                    char what[96];
                    (void)snprintf(what, sizeof what, "world %u, rank %u dies at %d us, starts %d us later", size,
                                   victim, at, delays_us[d]);
                    WORLD(w);
                    play(&w, &setup, list);
                    expect_world(&w, 0, what);
                    expect_sums(&w, 0, what);
                    came++;
                }
            }
        }
    }
    print_message("%u joiners, %u calls of gf_admit()\n", came, elastic.admissions);
    assert_true(elastic.admissions > came / 2);
}

TEST(several_joiners_come_in)
{
    for (uint32_t size = 3; size <= 6; size++) {
        for (uint32_t dead = 1; dead < (1u << size) - 1; dead++) {
            struct world_setup setup = elastic_setup(size);
            struct elastic_event list[12];
            uint32_t used = 0, count = (uint32_t)__builtin_popcount(dead);
            char what[64];
            if ((count < 2) || (2 * count > size)) continue; /* the others keep their quorum whoever saw whom die */
            (void)snprintf(what, sizeof what, "world %u, ranks %#x come back", size, dead);
            for (uint32_t rank = 0; rank < size; rank++)
                if ((dead >> rank) & 1u) list[used++] = (struct elastic_event){1000, rank, KILL};
            if ((dead & 1u) && (size - count <= (uint32_t)__builtin_popcount(dead >> __builtin_ctz(~dead)))) continue;
            for (uint32_t rank = 0; rank < size; rank++)
                if ((dead >> rank) & 1u) list[used++] = (struct elastic_event){9000, rank, START};
            list[used] = (struct elastic_event)END;
            WORLD(w);
            play(&w, &setup, list);
            expect_world(&w, 0, what);
            expect_sums(&w, 0, what);
        }
    }
}

/* Another death at each moment of the way in, of the joiner itself or another; all are started again in the end. */
TEST(a_death_on_the_way_in_begins_it_anew)
{
    uint32_t deaths = 0;
    elastic.on_the_way = 0;
    for (uint32_t first = 0; first < 3; first++) {
        for (uint32_t second = 0; second < 4; second++) {
            for (int32_t delay = 0; delay < 9000; delay += 230) {
                struct world_setup setup = elastic_setup(4);
                const struct elastic_event list[] = {{1000, first, KILL}, {6000, first, START},
                                                 {6000 + delay, second, KILL}, {40000, second, START}, END};
                char what[96];
                setup.config.optimizer.momentum = 0.5f;
                (void)snprintf(what, sizeof what, "rank %u comes back, rank %u dies %d us later", first, second, delay);
                WORLD(w);
                play(&w, &setup, list);
                expect_world(&w, 0, what);
                deaths++;
            }
        }
    }
    print_message("%u second deaths, %u of them on the way in\n", deaths, elastic.on_the_way);
    assert_true(elastic.on_the_way > 50);
}

/* The coordinator dies while it lets a joiner in, another rank is silent: the next one has no connection with that, and
 * waits for it no longer than a shrink does, however long a step may take. */
TEST(a_silent_rank_on_the_way_in_is_waited_for_as_in_a_shrink)
{
    elastic.longest_ns = 0;
    for (int32_t delay = 0; delay < 4000; delay += 110) {
        struct world_setup setup = elastic_setup(6);
        const struct elastic_event list[] = {
            {1000, 5, KILL}, {6000, 5, START}, {6000 + delay, 2, STOP}, {6000 + delay, 0, KILL}, END};
        char what[64];
        setup.config.exchange.timeout_ns = 4 * SECOND;
        (void)snprintf(what, sizeof what, "rank 5 comes back, 2 stops and 0 dies %d us later", delay);
        WORLD(w);
        play(&w, &setup, list);
        expect_world(&w, 0x5, what);
    }
    print_message("the longest took %.3f s\n", (double)elastic.longest_ns * 1e-9);
    assert_true(elastic.longest_ns > SECOND); /* an eighth of join_timeout, and not half of it */
    assert_true(elastic.longest_ns < 2 * SECOND);
}

TEST(a_joiner_has_the_whole_state)
{
    for (size_t v = 0; v < LENGTH(elastic_variants); v++) {
        for (uint32_t victim = 0; victim < 3; victim++) {
            for (int32_t at = 700; at < 6000; at += 411) {
                struct world_setup setup = elastic_setup(3);
                const struct elastic_event list[] = {{at, victim, KILL}, {at + 3000, victim, START}, END};
                char what[96];
                (void)snprintf(what, sizeof what, "variant %u, rank %u dies at %d us", (unsigned)v, victim, at);
                elastic_variants[v](&setup.config);
                setup.config.sparse.warmup_steps = 6; /* joiners in the dense part and behind it */
                WORLD(w);
                play(&w, &setup, list);
                expect_world(&w, 0, what);
                for (uint32_t rank = 1; rank < w.world; rank++)
                    assert_true(gf_loss_scale(w.ranks[rank].gf) == gf_loss_scale(w.ranks[0].gf));
            }
        }
    }
}

/* ---- who does not come in ---- */

TEST(a_joiner_with_other_things_is_rejected)
{
    struct world_setup setup = elastic_setup(3);
    const struct elastic_event list[] = {{1000, 1, KILL}, {5000, 1, START}, END};
    WORLD_OPEN(w, &setup);
    w.ranks[1].config.exchange.fuse_bytes = 4096;
    elastic_run(&w, list, 0);
    assert_int_equal(w.ranks[1].status, GF_ERR_MISMATCH);
    assert_non_null(strstr(gf_error_last(w.ranks[1].gf)->text, "fuse_bytes is "));
    world_expect_log(&w, 0, "fuse_bytes is ");
    expect_world(&w, 1u << 1, "the others");
}

TEST(nobody_lets_it_in_before_the_deadline)
{
    struct world_setup setup = elastic_setup(3);
    const struct elastic_event list[] = {{1000, 2, KILL}, {5000, 2, START}, END};
    setup.config.rendezvous.join_timeout_ns = SECOND;
    elastic.hooks.blind = true;
    WORLD(w);
    play(&w, &setup, list);
    assert_int_equal(w.ranks[2].status, GF_ERR_QUORUM);
    world_expect_log(&w, 2, "before the deadline");
    expect_world(&w, 1u << 2, "the others");
}

static gf_status open_only(struct world *w, uint32_t rank, void *arg)
{
    return gf_open_poll(w->ranks[rank].gf);
}

static void rank_1_rejoins(uint32_t rank, struct gf_config *config, const struct gf_tensor **table,
                           uint32_t *tensor_count)
{
    config->rendezvous.rejoin = (rank == 1);
}

TEST(a_job_that_has_not_begun_takes_no_joiners)
{
    struct world_setup setup = elastic_setup(2);
    setup.config.rendezvous.join_timeout_ns = SECOND;
    setup.vary = rank_1_rejoins;
    WORLD_CREATE(w, &setup);
    world_run(&w, open_only, NULL);
    assert_int_equal(w.ranks[1].status, GF_ERR_STATE);
    assert_non_null(strstr(gf_error_last(w.ranks[1].gf)->text, "rendezvous.rejoin = false"));
    assert_int_equal(w.ranks[0].status, GF_ERR_TIMEOUT); /* names who is missing */
    assert_int_equal(gf_error_last(w.ranks[0].gf)->peer, 1);
}

TEST(a_world_of_one_rank_has_none_to_rejoin)
{
    struct gf_config config = {.job = {.world = 1, .ignore_environment = true}, .rendezvous.rejoin = true};
    struct gf_footprint need;
    assert_int_equal(gf_measure(&config, elastic_tensors, ELASTIC_TENSORS, &need), GF_ERR_CONFIG);
}
