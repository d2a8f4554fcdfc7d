/* Ranks that died are started again and come back, over the simulated network: whoever dies on
 * their way in, the joiner ahead of all, in the end the world is whole and holds the same weights.
 * One death, several joiners, whatever makes up the state, and that it is the sum of the steps that
 * were applied: the soak's elastic jobs.
 * link: wrap gf_node_host_id_set */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/elastic.h"
#include "lib/context.h"

/* All but the ranks of `out`. */
static void expect_world(struct world *w, uint32_t out, const char *what)
{
    elastic_expect(w, ((1u << w->world) - 1) & ~out, what);
}

/* ---- the cases ---- */

/* Another death at each moment of the way in, of the joiner itself or another; all are started
 * again in the end. */
TEST(a_death_on_the_way_in_begins_it_anew)
{
    uint32_t deaths = 0;
    elastic.on_the_way = 0;
    for (uint32_t first = 0; first < 3; first++) {
        for (uint32_t second = 0; second < 4; second++) {
            for (int32_t delay = 0; delay < 9000; delay += 230) {
                struct world_setup setup = elastic_setup(4);
                const struct elastic_event list[] = {{1000, first, KILL},
                                                     {6000, first, START},
                                                     {6000 + delay, second, KILL},
                                                     {40000, second, START},
                                                     END};
                char what[96];
                if (!real_links_takes(4)) continue;
                setup.config.optimizer.momentum = 0.5f;
                (void)snprintf(what, sizeof what, "rank %u comes back, rank %u dies %d us later",
                               first, second, delay);
                WORLD(w);
                elastic_play(&w, &setup, list);
                expect_world(&w, 0, what);
                deaths++;
            }
        }
    }
    print_message("%u second deaths, %u of them on the way in\n", deaths, elastic.on_the_way);
    assert_true((elastic.on_the_way > 30) || (real_links_driver() != NULL));
}

/* Rank 0 dies while a joiner comes in, and another rank is silent: that is waited for no longer
 * than after a failure, however long a step may take. */
TEST(a_silent_rank_on_the_way_in_is_waited_for_as_after_a_failure)
{
    SIM_ONLY;
    elastic.longest_ns = 0;
    for (int32_t delay = 0; delay < 4000; delay += 110) {
        struct world_setup setup = elastic_setup(6);
        const struct elastic_event list[] = {{1000, 5, KILL},
                                             {6000, 5, START},
                                             {6000 + delay, 2, STOP},
                                             {6000 + delay, 0, KILL},
                                             END};
        char what[64];
        setup.config.exchange.timeout_ns = 4 * SECOND;
        (void)snprintf(what, sizeof what, "rank 5 comes back, 2 stops and 0 dies %d us later",
                       delay);
        WORLD(w);
        elastic_play(&w, &setup, list);
        expect_world(&w, 0x5, what);
    }
    print_message("the longest took %.3f s\n", (double)elastic.longest_ns * 1e-9);
    assert_true(elastic.longest_ns > SECOND); /* a quarter of join_timeout, and not half of it */
    assert_true(elastic.longest_ns < 3 * SECOND);
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
    world_expect_log(&w, gf_sim_coordinator(w.sim), "fuse_bytes is ");
    expect_world(&w, 1u << 1, "the others");
}

TEST(nobody_lets_it_in_before_the_deadline)
{
    SIM_ONLY;
    struct world_setup setup = elastic_setup(3);
    const struct elastic_event list[] = {{1000, 2, KILL}, {5000, 2, START}, END};
    setup.config.rendezvous.join_timeout_ns = SECOND;
    elastic.hooks.blind = true;
    WORLD(w);
    elastic_play(&w, &setup, list);
    assert_int_equal(w.ranks[2].status, GF_ERR_TIMEOUT);
    world_expect_log(&w, 2, "the ranks of the job under way let nobody in");
    expect_world(&w, 1u << 2, "the others");
}

/* A member that comes in reaches nobody by the link; in `both` ways, or they would reach it. */
static uint32_t apart;
static bool both;
static const struct gf_link_driver *whole;

static gf_status connect_apart(struct gf_link *link, uint32_t peer)
{
    return gf_fault_set(&link->fault, GF_ERR_LINK, peer, "connect", 0, "no way to member %u", peer);
}

/* A simulated endpoint begins with its process. */
static uint32_t member_of(const void *endpoint)
{
    uint32_t proc;
    memcpy(&proc, endpoint, sizeof proc);
    return proc;
}

static gf_status its_connect(struct gf_link *link, uint32_t peer, const void *endpoint,
                             size_t bytes)
{
    return (member_of(endpoint) != apart) ? connect_apart(link, peer)
                                          : whole->connect(link, peer, endpoint, bytes);
}

static gf_status others_connect(struct gf_link *link, uint32_t peer, const void *endpoint,
                                size_t bytes)
{
    return (member_of(endpoint) == apart) ? connect_apart(link, peer)
                                          : whole->connect(link, peer, endpoint, bytes);
}

static void apart_turn(struct world *w, uint32_t rank)
{
    static struct gf_link_driver its;
    static struct gf_link_driver others;
    gf_context *gf = w->ranks[rank].gf;
    /* the process ends */
    if (elastic.started && (w->ranks[apart].status == GF_ERR_PEER)) gf_sim_kill(w->sim, apart);
    if (!elastic.started || (gf == NULL) || (gf->link == NULL) ||
        (gf->link->driver->connect == its_connect) || (gf->link->driver->connect == others_connect))
        return;
    whole = gf->link->driver;
    its = others = *whole;
    its.connect = its_connect;
    others.connect = others_connect;
    gf->link->driver = (rank == apart) ? &its : both ? &others : whole;
}

TEST(who_reaches_nobody_does_not_come_in_and_ends_nobody)
{
    SIM_ONLY;
    for (uint32_t row = 2; row <= 11; row++) {
        for (uint32_t ranks = row / 2, id = 0; id <= ranks; id++) {
            const struct elastic_event comes[] = {{2000, id, START}, END};
            const struct elastic_event comes_back[] = {{1000, id, KILL}, {6000, id, START}, END};
            struct world_setup setup = elastic_setup(ranks);
            uint32_t out = 1u << id | 1u << ranks;
            char what[64];
            if ((ranks == 1) && (id < ranks)) continue;
            apart = id;
            both = (row % 2 == 0);
            (void)snprintf(what, sizeof what, "member %u of %u", id, ranks);
            elastic.hooks.turn = apart_turn;
            setup.config.job.world_max = ranks + 1;
            WORLD(w);
            elastic_play(&w, &setup, (id == ranks) ? comes : comes_back);
            assert_int_equal(w.ranks[id].status, GF_ERR_PEER);
            assert_non_null(strstr(gf_error_last(w.ranks[id].gf)->text, "no way to member "));
            expect_world(&w, out, what);
        }
    }
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

/* Whoever died before the job had begun was started again like any other. */
TEST(a_restarted_rank_is_of_the_first_generation)
{
    SIM_ONLY;
    struct world_setup setup = elastic_setup(2);
    setup.vary = rank_1_rejoins;
    WORLD_CREATE(w, &setup);
    world_run(&w, open_only, NULL);
    world_expect(&w, GF_OK);
}

static void all_rejoin(uint32_t rank, struct gf_config *config, const struct gf_tensor **table,
                       uint32_t *tensor_count)
{
    config->rendezvous.rejoin = true;
}

/* Where rank 0 hosts the coordinator the job ends with it, and all are started again. It begins
 * anew at once: nobody of the job before can live and dial. */
TEST(a_job_whose_rank_0_hosts_it_begins_anew)
{
    SIM_ONLY;
    struct world_setup setup = elastic_setup(3);
    setup.vary = all_rejoin;
    setup.separate = false;
    WORLD_CREATE(w, &setup);
    uint64_t begin_ns = gf_sim_now_ns(w.sim);
    world_run(&w, open_only, NULL);
    world_expect(&w, GF_OK);
    assert_true(gf_sim_now_ns(w.sim) - begin_ns < SECOND);
    for (uint32_t rank = 0; rank < 3; rank++) assert_false(gf_rejoined(w.ranks[rank].gf));
}

/* ---- GO and what came after it, in one poll ---- */

/* A member whose program is elsewhere when the coordinator says GO, until something has befallen
 * that generation. Its next poll takes GO and all that was said after it. */
static struct nap {
    uint32_t of;
    bool (*befalls)(struct world *w);
    bool edge_breaks; /* first of all, in step 2: from it to rank 1 */
    enum { AWAKE, SLEEPS, HAS_SLEPT } state;
    uint32_t goes_on; /* with this state of its appliance */
    uint64_t wake_ns;
} nap;

static bool nap_begins(struct world *w, const gf_context *gf)
{
    const struct gf_coordinator_status status = world_coordinator_status(w);
    return (gf->change.state == GF_CHANGE_AWAIT) && (status.state == GF_COORDINATOR_RUN) &&
           (status.generation == gf->generation) &&
           (gf_control_generation(gf->control)->number < gf->generation);
}

static void nap_turn(struct world *w, uint32_t rank)
{
    const gf_context *gf = w->ranks[nap.of].gf;
    struct elastic_rank *job = &elastic.ranks[nap.of];
    uint64_t now_ns = gf_sim_now_ns(w->sim);
    if (nap.edge_breaks && (gf_steps(gf) == 1) && (job->state == STEPS)) {
        gf_sim_fail_post(w->sim, nap.of, 3);
        nap.edge_breaks = false;
    }
    if ((nap.state == AWAKE) && nap_begins(w, gf)) {
        nap.state = SLEEPS;
        nap.goes_on = job->state;
        job->state = IDLE; /* nap_before() */
    }
    if (nap.state != SLEEPS) return;
    if ((nap.wake_ns == 0) && nap.befalls(w)) nap.wake_ns = now_ns + SECOND / 50;
    if ((nap.wake_ns == 0) || (now_ns < nap.wake_ns)) return;
    job->state = nap.goes_on;
    nap.state = HAS_SLEPT;
}

static gf_status nap_before(struct world *w, uint32_t rank)
{
    return ((rank == nap.of) && (nap.state == SLEEPS)) ? GF_AGAIN : GF_OK;
}

static void nap_play(struct world *w, uint32_t ranks, const struct nap *how,
                     const struct elastic_event *script)
{
    struct world_setup setup = elastic_setup(ranks);
    nap = *how;
    elastic.hooks.turn = nap_turn;
    elastic.hooks.before = nap_before;
    world_open(w, &setup);
    elastic_run(w, script, 5 * SECOND);
    assert_int_equal(nap.state, HAS_SLEPT);
}

/* Its kernel says that it has ended, as no word is unread. */
static bool rank_0_dies(struct world *w)
{
    const struct gf_control *control = w->ranks[0].gf->control;
    if (gf_control_generation(control)->number < world_coordinator_status(w).generation)
        return false;
    gf_sim_kill(w->sim, 0);
    return true;
}

/* The others went on without it, and the only one that had later weights has died. */
TEST(old_weights_are_not_whole_where_the_generation_fails_in_the_poll_that_begins_it)
{
    SIM_ONLY;
    const struct nap how = {.of = 1, .befalls = rank_0_dies};
    const struct elastic_event list[] = {{1000, 1, STOP}, {4000000, 1, GO_ON}, END};
    elastic.hooks.work_ns = SECOND / 100;
    WORLD(w);
    nap_play(&w, 2, &how, list);
    assert_int_equal(w.ranks[1].status, GF_ERR_DATA);
}

TEST(who_was_started_again_knows_it_where_the_generation_fails_in_the_poll_that_begins_it)
{
    SIM_ONLY;
    const struct nap how = {.of = 2, .befalls = rank_0_dies};
    const struct elastic_event list[] = {{1000, 2, KILL}, {6000, 2, START}, END};
    WORLD(w);
    nap_play(&w, 3, &how, list);
    expect_world(&w, 1u << 0, "rank 2 comes back, rank 0 dies");
    assert_true(gf_rejoined(w.ranks[2].gf));
}

static bool all_are_asked(struct world *w)
{
    return world_coordinator_status(w).state == GF_COORDINATOR_INQUIRE;
}

/* Its link to rank 1 broke in the generation before, in which another process was rank 1. */
TEST(a_broken_edge_is_not_told_in_the_numbers_of_the_next_generation)
{
    SIM_ONLY;
    const struct nap how = {.of = 0, .befalls = all_are_asked, .edge_breaks = true};
    WORLD(w);
    nap_play(&w, 3, &how, NULL);
    assert_int_equal(w.ranks[1].status, GF_ERR_PEER); /* is to go */
    expect_world(&w, 1u << 1, "rank 0 names nobody");
}

TEST(a_world_of_one_rank_has_none_to_rejoin)
{
    struct gf_config config = {.job = {.world = 1, .ignore_environment = true},
                               .rendezvous.rejoin = true};
    struct gf_footprint need;
    assert_int_equal(gf_measure(&config, elastic_tensors, ELASTIC_TENSORS, &need), GF_ERR_CONFIG);
}
