/* config.state_extra over the simulated network: a trainer's own weights and momentum reach all
 * ranks at once, and are the same on all of them after a death, a rejoin and a load. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/elastic.h"
#include "lib/core/extra.h"

#define STATE_BYTES offsetof(struct trainer, extra)
#define SMALL 250u /* regions that travel many in a message, in more than one */

/* A trainer: flat weights and momentum of its own, and regions of any size on any address. */
static struct trainer {
    float weight[ELASTIC_ELEMS], momentum[ELASTIC_ELEMS];
    uint32_t odd[3];     /* no multiple of 8 bytes */
    char half[1 + 30];   /* 15 values of 16 bits, on an odd address */
    char wide[1 + 5001]; /* likewise, and more than a small one */
    char flag;
    char small[SMALL][301];
    struct gf_state_extra extra[7 + SMALL];
    uint32_t thinks; /* turns between the end of a step and its update */
} trainers[ELASTIC_RANKS_MAX];
static const char *third_name;
static uint32_t third_rank = 1;

static void vary(uint32_t rank, struct gf_config *config, const struct gf_tensor **t,
                 uint32_t *tensor_count)
{
    struct trainer *trainer = &trainers[rank];
    trainer->extra[0] = (struct gf_state_extra){"weight", trainer->weight, sizeof trainer->weight};
    trainer->extra[1] =
        (struct gf_state_extra){"momentum", trainer->momentum, sizeof trainer->momentum};
    trainer->extra[2] = (struct gf_state_extra){"odd", trainer->odd, sizeof trainer->odd};
    trainer->extra[3] = (struct gf_state_extra){"half", trainer->half + 1, 30};
    trainer->extra[4] = (struct gf_state_extra){"wide", trainer->wide + 1, 5001};
    trainer->extra[5] = (struct gf_state_extra){"flag", &trainer->flag, 1};
    trainer->extra[6] = (struct gf_state_extra){"nothing", NULL, 0};
    for (uint32_t i = 0; i < SMALL; i++)
        trainer->extra[7 + i] = (struct gf_state_extra){"small", trainer->small[i], 300 - i % 5};
    if ((rank == third_rank) && (third_name != NULL)) trainer->extra[2].name = third_name;
    config->state_extra = trainer->extra;
    config->state_extra_count = LENGTH(trainer->extra);
}

static struct world_setup setup_of(uint32_t world)
{
    struct world_setup setup = elastic_setup(world);
    memset(trainers, 0, sizeof trainers);
    third_name = NULL;
    setup.config.optimizer.kind = GF_OPTIMIZER_NONE;
    setup.vary = vary;
    return setup;
}

/* All of each region but the first three, by a step's number; what lies around them is 0. */
static void regions_fill(struct trainer *trainer, int step)
{
    for (uint32_t i = 3; i < LENGTH(trainer->extra); i++)
        if (trainer->extra[i].bytes > 0)
            memset(trainer->extra[i].data, step + (int)i, trainer->extra[i].bytes);
}

/* Momentum SGD as somebody else wrote it. */
static gf_status apply(struct world *w, uint32_t rank)
{
    struct trainer *trainer = &trainers[rank];
    uint32_t at = 0;
    gf_status status = gf_heartbeat(w->ranks[rank].gf); /* here a step is whole and not applied */
    if (status < 0) trainer->thinks = 0;
    if ((status < 0) || (++trainer->thinks <= 20 * (rank % 2)))
        return (status < 0) ? status : GF_AGAIN;
    trainer->thinks = 0;
    for (uint32_t t = 0; t < ELASTIC_TENSORS; t++) {
        const float *gradient = world_gradient(w, rank, t);
        for (uint64_t i = 0; i < elastic_tensors[t].elem_count; i++, at++) {
            trainer->momentum[at] = 0.9f * trainer->momentum[at] + gradient[i];
            trainer->weight[at] -= 0.1f * trainer->momentum[at];
        }
    }
    trainer->odd[2] = (uint32_t)gf_steps(w->ranks[rank].gf);
    regions_fill(trainer, (int)gf_steps(w->ranks[rank].gf));
    return gf_updated(w->ranks[rank].gf);
}

/* a new process knows nothing */
static void start(uint32_t rank)
{
    for (uint32_t i = 0; i < LENGTH(trainers[rank].extra); i++)
        if (trainers[rank].extra[i].bytes > 0)
            memset(trainers[rank].extra[i].data, 0xa5, trainers[rank].extra[i].bytes);
}

static void train(struct world *w, const struct elastic_event *script)
{
    elastic.hooks.apply = apply;
    elastic.hooks.start = start;
    elastic_run(w, script, 0);
}

/* Of `members`, by bits. */
static void expect_common(struct world *w, uint32_t members, const char *what)
{
    const struct trainer *first = &trainers[__builtin_ctz(members)];
    elastic_expect(w, members, what);
    for (uint32_t r = 0; r < w->world; r++)
        if (((members >> r) & 1u) && (memcmp(first, &trainers[r], STATE_BYTES) != 0))
            fail_msg("%s: rank %u differs", what, r);
    assert_int_equal(first->odd[2], elastic.goal);
    assert_true((first->momentum[7] != 0.0f) || (first->momentum[8] != 0.0f));
}

TEST(a_survivors_own_optimizer_state_is_everybodys)
{
    uint32_t deaths = 0;
    for (uint32_t world = 2; world <= 4; world++)
        for (uint32_t victim = 0; victim < world; victim++) {
            bool met = true;
            for (uint64_t at = 1; met; at += 1 + at / 24) {
                struct world_setup setup = setup_of(world);
                char what[96];
                bool joined = true;
                (void)snprintf(what, sizeof what, "world %u, rank %u dies at post %u", world,
                               victim, (unsigned)at);
                setup.sim.faults[0] =
                    (struct gf_sim_fault){.kind = GF_SIM_FAULT_KILL, .rank = victim, .at = at};
                setup.sim.fault_count = 1;
                WORLD_CREATE(w, &setup);
                world_join(&w);
                for (uint32_t r = 0; r < world; r++)
                    joined = joined && (w.ranks[r].status == GF_OK);
                if (joined) {
                    train(&w, NULL);
                    met = gf_sim_counts(w.sim)->fault_met;
                    expect_common(&w, ((1u << world) - 1) & ~(met ? 1u << victim : 0), what);
                    deaths += met ? 1 : 0;
                }
            }
        }
    print_message("%u deaths in a step\n", deaths);
    assert_true(deaths > 50);
}

TEST(a_rank_that_rejoins_has_it_too)
{
    for (uint32_t victim = 0; victim < 3; victim++) {
        const struct elastic_event script[] = {{2500, victim, KILL}, {50000, victim, START}, END};
        struct world_setup setup = setup_of(3);
        WORLD_OPEN(w, &setup);
        train(&w, script);
        expect_common(&w, 0x7, "rejoin");
    }
}

/* Rank 1 in turns what gf_broadcast_weights() does in one call on rank 0. `next` is 1 while a
 * message is under way, DONE after the last. */
#define DONE 2u
static struct {
    uint32_t bulk, first, end; /* the next region; those whose rests are in the message */
    struct gf_request request;
} receiving;

static gf_status receive(struct world *w, uint32_t rank, void *arg)
{
    gf_context *gf = w->ranks[rank].gf;
    uint32_t *next = &w->ranks[rank].next;
    gf_status status = GF_AGAIN;
    gf_mem data;
    uint64_t words;
    if (*next == 1) {
        if ((status = gf_request_poll(gf, &receiving.request)) != GF_OK) return status;
        gf_extra_rests_move(gf, receiving.first, receiving.end, false);
        receiving.first = receiving.end;
        *next = 0;
    }
    if (*next == DONE) return GF_AGAIN;
    if ((words = gf_extra_bulk(gf, &receiving.bulk, &data)) == 0) {
        words = gf_extra_rests(gf, receiving.first, &receiving.end);
        data = (gf_mem)(uintptr_t)gf->extra_stage;
    }
    *next = (words > 0) ? 1 : DONE;
    if (words > 0) status = gf_broadcast(gf, data, words, GF_TYPE_F32, 0, &receiving.request);
    return (status < 0) ? status : GF_AGAIN;
}

TEST(first_weights_reach_all_in_one_call)
{
    struct world_setup setup = setup_of(2);
    WORLD_OPEN(w, &setup);
    for (uint32_t i = 0; i < ELASTIC_ELEMS; i++) trainers[0].weight[i] = (float)i;
    regions_fill(&trainers[0], 77);
    trainers[0].odd[1] = 0x7f800001u; /* bits that are no number stay what they are */
    memset(&receiving, 0, sizeof receiving);
    assert_int_equal(gf_broadcast_weights(w.ranks[0].gf, 2), GF_ERR_PARAM);
    world_block(&w, 0, receive, NULL);
    assert_int_equal(gf_broadcast_weights(w.ranks[0].gf, 0), GF_OK);
    for (uint32_t turns = 0; (turns < 100000) && (w.ranks[1].next != DONE); turns++)
        (void)gf_heartbeat(w.ranks[0].gf);
    world_unblock(&w);
    assert_int_equal(w.ranks[1].next, DONE);
    assert_memory_equal(&trainers[0], &trainers[1], STATE_BYTES);
}

TEST(a_step_that_was_not_applied_is_told_at_the_next)
{
    static const struct world_step step;
    struct world_setup setup = setup_of(2);
    setup.config.job.elastic = true;
    WORLD_OPEN(w, &setup);
    world_step_ok(&w, &step);
    assert_int_equal(gf_step_begin(w.ranks[0].gf), GF_ERR_STATE);
    assert_true(
        world_logged(&w, 0, "step 1 of an elastic job was not applied; gf_update() is first"));
    assert_int_equal(gf_updated(w.ranks[0].gf), GF_OK);
    assert_int_equal(gf_step_begin(w.ranks[0].gf), GF_OK);
}

static void fill_nan(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    (void)w, (void)rank, (void)arg;
    memset(gradient, 0xff, elastic_tensors[tensor].elem_count * sizeof(float));
}

/* Who does not ask has NaN for weights from then on. */
/* A binding says it as the first call after the update, which may be long after gf_step_wait(). */
TEST(a_step_is_said_to_be_applied_though_a_peer_has_died_since)
{
    static const struct world_step step;
    struct world_setup setup = setup_of(3);
    WORLD_OPEN(w, &setup);
    world_step_ok(&w, &step);
    gf_sim_kill(w.sim, 2);
    gf_sim_advance_to(w.sim, gf_sim_now_ns(w.sim) + SECOND);
    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(gf_updated(w.ranks[rank].gf), GF_OK);
    world_step_run(&w, &step);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(w.ranks[rank].status, GF_ERR_PEER);
        w.ranks[rank].next = 0;
    }
    world_run(&w, world_regroup_progress, NULL);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(w.ranks[rank].status, GF_OK);
        assert_int_equal(gf_steps(w.ranks[rank].gf), 1);
        assert_int_equal(gf_updated(w.ranks[rank].gf), GF_ERR_STATE); /* it counts as applied */
    }
}

/* Until it has met the death that has happened. */
static gf_status hears(struct world *w, uint32_t rank, void *arg)
{
    (void)arg;
    if (!gf_sim_runs(w->sim, rank)) return GF_AGAIN;
    return (gf_heartbeat(w->ranks[rank].gf) < 0) ? GF_OK : GF_AGAIN;
}

/* A program that ignores what gf_heartbeat() answers updates all the same; one that does not
 * regroups at once. */
TEST(who_applies_a_step_after_it_has_met_a_death_is_ahead)
{
    static const struct world_step step;
    for (uint32_t ahead = 0; ahead < 2; ahead++) {
        struct world_setup setup = setup_of(3);
        WORLD_OPEN(w, &setup);
        world_step_ok(&w, &step);
        gf_sim_kill(w.sim, 2);
        world_run(&w, hears, NULL);
        regions_fill(&trainers[ahead], 1);
        trainers[ahead].weight[7] = 1.0f;
        assert_int_equal(gf_updated(w.ranks[ahead].gf), GF_ERR_PEER);
        world_run(&w, world_regroup_progress, NULL);
        for (uint32_t rank = 0; rank < 2; rank++) {
            assert_int_equal(w.ranks[rank].status, GF_OK);
            assert_int_equal(gf_steps(w.ranks[rank].gf), 1);
            assert_true(trainers[rank].weight[7] == 1.0f);
        }
        assert_memory_equal(&trainers[0], &trainers[1], STATE_BYTES);
    }
}

TEST(a_skipped_step_that_is_applied_all_the_same_is_told)
{
    static const struct world_step step = {.fill = fill_nan};
    struct world_setup setup = setup_of(2);
    WORLD_OPEN(w, &setup);
    world_step_run(&w, &step);
    assert_true(gf_step_skipped(w.ranks[0].gf));
    assert_int_equal(gf_updated(w.ranks[0].gf), GF_OK);
    world_expect_log(&w, 0, "step 1 was skipped, so no rank may have applied it");
}

/* Who joins later would go on with weights of its own. */
TEST(a_job_whose_weights_nobody_has_named_says_so)
{
    struct world_setup setup = setup_of(2);
    setup.config.job.elastic = true;
    setup.vary = NULL;
    WORLD_OPEN(w, &setup);
    assert_true(world_logged(&w, 0, "a rank that joins later is given none"));
    assert_int_equal(gf_broadcast_weights(w.ranks[0].gf, 0), GF_ERR_STATE);
    assert_true(world_logged(&w, 0, "the library knows no weights"));
}

TEST(a_saved_state_holds_it)
{
    struct world_setup setup = setup_of(2);
    static struct trainer after;
    struct world w;
    uint64_t bytes;
    void *data;
    world_open(&w, &setup);
    train(&w, NULL);
    bytes = gf_state_bytes(w.ranks[0].gf);
    data = malloc(bytes);
    assert_non_null(data);
    assert_int_equal(gf_state_save(w.ranks[0].gf, data, bytes), GF_OK);
    after = trainers[0];
    world_step_run(&w, &(struct world_step){0});
    for (uint32_t rank = 0; rank < 2; rank++)
        while (apply(&w, rank) == GF_AGAIN) {
        }
    assert_memory_not_equal(after.weight, trainers[0].weight, sizeof after.weight);
    assert_int_equal(gf_state_load(w.ranks[0].gf, data, bytes), GF_OK);
    assert_memory_equal(&after, &trainers[0], STATE_BYTES);
    assert_int_equal(gf_steps(w.ranks[0].gf), elastic.goal);
    ((unsigned char *)data)[300] ^= 1;
    memset(trainers[1].weight, 0, sizeof trainers[1].weight);
    assert_int_equal(gf_state_load(w.ranks[1].gf, data, bytes), GF_ERR_DATA);
    assert_true(trainers[1].weight[5] == 0.0f);
    world_close(&w);
    setup = setup_of(1);
    setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
    ((unsigned char *)data)[300] ^= 1;
    world_open(&w, &setup);
    assert_int_equal(gf_updated(w.ranks[0].gf), GF_ERR_STATE);
    assert_int_equal(gf_state_load(w.ranks[0].gf, data, bytes), GF_ERR_DATA);
    world_close(&w);
    setup = setup_of(1);
    setup.vary = NULL;
    world_open(&w, &setup);
    assert_int_equal(gf_state_load(w.ranks[0].gf, data, bytes), GF_ERR_DATA);
    world_expect_log(&w, 0, "another run: state_extra has ");
    world_close(&w);
    setup = setup_of(1);
    third_name = "even";
    third_rank = 0;
    world_open(&w, &setup);
    assert_int_equal(gf_state_load(w.ranks[0].gf, data, bytes), GF_ERR_DATA);
    world_expect_log(&w, 0,
                     "or the regions of state_extra in theirs: weight, momentum, even, half");
    world_close(&w);
    third_name = NULL;
    third_rank = 1;
    free(data);
}

/* A table of the caller's stack is gone when gf_open() has returned. */
TEST(the_table_and_its_names_may_go_after_open)
{
    struct world_setup setup = setup_of(1);
    unsigned char *data;
    uint64_t bytes;
    WORLD_OPEN(w, &setup);
    bytes = gf_state_bytes(w.ranks[0].gf);
    data = malloc(bytes);
    assert_non_null(data);
    memset(trainers[0].extra, 0xee, sizeof trainers[0].extra);
    assert_int_equal(gf_state_bytes(w.ranks[0].gf), bytes);
    trainers[0].odd[0] = 77;
    assert_int_equal(gf_state_save(w.ranks[0].gf, data, bytes), GF_OK);
    trainers[0].odd[0] = 0;
    assert_int_equal(gf_state_load(w.ranks[0].gf, data, bytes), GF_OK);
    assert_int_equal(trainers[0].odd[0], 77);
    free(data);
}

TEST(an_unapplied_step_is_neither_saved_nor_sent)
{
    struct world_setup setup = setup_of(1);
    unsigned char *data;
    WORLD_OPEN(w, &setup);
    data = malloc(gf_state_bytes(w.ranks[0].gf));
    assert_non_null(data);
    assert_int_equal(gf_updated(w.ranks[0].gf), GF_ERR_STATE);
    world_step_run(&w, &(struct world_step){0});
    assert_int_equal(gf_state_save(w.ranks[0].gf, data, gf_state_bytes(w.ranks[0].gf)),
                     GF_ERR_STATE);
    world_expect_log(&w, 0, "is not applied yet; gf_updated() comes first");
    assert_int_equal(gf_broadcast_weights(w.ranks[0].gf, 0), GF_ERR_STATE);
    world_expect_log(&w, 0, "state_extra may be half written");
    assert_int_equal(gf_updated(w.ranks[0].gf), GF_OK);
    assert_int_equal(gf_updated(w.ranks[0].gf), GF_ERR_STATE);
    assert_int_equal(gf_state_save(w.ranks[0].gf, data, gf_state_bytes(w.ranks[0].gf)), GF_OK);
    free(data);
}

TEST(ranks_with_other_regions_do_not_join)
{
    struct world_setup setup = setup_of(2);
    third_name = "even";
    WORLD_CREATE(w, &setup);
    world_join(&w);
    assert_int_equal(w.ranks[0].status, GF_ERR_MISMATCH);
    world_expect_log(&w, 0, "state_extra[2] is odd:12B at rank 0, even:12B at rank 1");
    third_name = NULL;
}
