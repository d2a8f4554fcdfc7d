/* Who is named, and who is cut, when messages between ranks that live are lost or late
 * (lib/DESIGN.md): whole elastic jobs over the simulated network. Seeds are drawn from the clock
 * and printed; SEED=n takes that one, JOBS=n makes so many jobs of each kind. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/elastic.h"
#include "lib/context.h"

#include <time.h>

#define MS UINT64_C(1000000)
#define JOBS 12u

typedef enum trouble {
    ONE_WAY,  /* from one rank to another */
    TWO_WAYS, /* between them */
    LOSSY,    /* likewise, one message of twenty */
    SLOW_NIC,
    SLOW_CPU,
    SLOW_NETWORK,
    TROUBLES
} trouble;
static const char *const trouble_names[TROUBLES] = {"one-way",  "two-way",  "5 % loss",
                                                    "slow NIC", "slow CPU", "slow network"};

/* Of a suite's jobs. */
static struct {
    uint64_t timeout_ns; /* exchange.timeout */
    bool busy;           /* two ranks that have no trouble compute for a part of it, now and then */
    bool in_a_row;       /* .. also twice, so for longer than a connection may be quiet */
} all;

static struct job {
    uint64_t seed;
    trouble trouble;
    uint32_t world, from, to;
    uint32_t after_turns; /* of rank `from`, once it has made two steps */
    double times;         /* slower */
    uint64_t work_ns;     /* of each turn */
    uint64_t busy_ns, busy_at_ns[ELASTIC_RANKS_MAX]; /* so long, next at */
    bool begun;
    uint32_t failures[ELASTIC_RANKS_MAX];
    uint32_t named[ELASTIC_RANKS_MAX]; /* at the first failure */
    /* the last step before it, the first one after the change */
    uint64_t before_ns[ELASTIC_RANKS_MAX];
    uint64_t after_ns[ELASTIC_RANKS_MAX];
} job;

/* ---- what is drawn ---- */

static uint64_t drawn;

static uint32_t draw_below(uint32_t end)
{
    uint64_t z = (drawn += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) % end);
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return (text != NULL) ? strtoull(text, NULL, 10) : otherwise;
}

static void job_draw(uint64_t seed, trouble what, uint32_t world)
{
    drawn = seed;
    job = (struct job){.seed = seed, .trouble = what, .world = world};
    job.from = draw_below(world);
    job.to = (job.from + 1 + draw_below(world - 1)) % world;
    job.after_turns = draw_below(12);
    /* a message of 2 KiB takes 2 us: these take nearly twice the timeout and more */
    job.times = 3.5e6 * (double)all.timeout_ns / (double)(4 * SECOND) * (1 + draw_below(20));
    /* longer than a connection may be quiet */
    job.work_ns = all.timeout_ns / 4000 * (1100 + draw_below(8000));
    job.busy_ns = all.timeout_ns / 1000 * (100 + draw_below(130));
}

static struct world_setup setup_draw(void)
{
    static const gf_algorithm algorithms[] = {GF_ALGORITHM_AUTO, GF_ALGORITHM_RING,
                                              GF_ALGORITHM_HALVING, GF_ALGORITHM_TREE,
                                              GF_ALGORITHM_SERVER};
    _Static_assert(GF_ALGORITHM_COUNT == 8,
                   "a new algorithm is drawn here, too: its seeds then make other jobs");
    struct world_setup setup = elastic_setup(job.world);
    setup.sim.seed = job.seed;
    setup.config.exchange.timeout_ns = all.timeout_ns;
    setup.config.exchange.algorithm = algorithms[draw_below(LENGTH(algorithms))];
    setup.config.exchange.buffers_active = (draw_below(2) == 0) ? 1 : 4;
    setup.config.exchange.fuse_bytes = (draw_below(2) == 0) ? 1 : 2048;
    return setup;
}

/* ---- a job ---- */

static void trouble_begin(struct world *w)
{
    double rate = (job.trouble == LOSSY) ? 0.05 : 1;
    job.begun = true;
    if (job.trouble <= LOSSY) gf_sim_lose(w->sim, job.from, job.to, rate);
    if ((job.trouble == TWO_WAYS) || (job.trouble == LOSSY))
        gf_sim_lose(w->sim, job.to, job.from, rate);
    if (job.trouble == SLOW_NIC) gf_sim_slow(w->sim, job.from, job.times);
    for (uint32_t rank = 0; (job.trouble == SLOW_NETWORK) && (rank < job.world); rank++)
        gf_sim_slow(w->sim, rank, job.times);
}

static void trouble_end(struct world *w)
{
    for (uint32_t rank = 0; rank < job.world; rank++) gf_sim_slow(w->sim, rank, 1);
}

/* .. until somebody complains. */
static bool is_slow(void)
{
    return (job.trouble == SLOW_NIC) || (job.trouble == SLOW_NETWORK);
}

/* The coordinator, and who comes after the trouble. */
static bool is_busy(uint32_t rank)
{
    return all.busy && (rank != job.from) && ((rank == 0) || (rank == (job.to + 1) % job.world));
}

/* Of two ranks the coordinator is not cut: the other one alone would be too few. */
static bool is_spared(void)
{
    return (job.trouble == SLOW_CPU) && (job.world == 2) && (job.from == 0);
}

static void job_turn(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    if (gf == NULL) return;
    if (elastic.ranks[rank].failures != job.failures[rank]) {
        if (job.failures[rank] == 0) job.named[rank] = gf_error_last(gf)->peer;
        job.failures[rank] = elastic.ranks[rank].failures;
        if (is_spared()) job.work_ns = 0;
        if (is_slow()) trouble_end(w); /* what was under way may still keep a port */
    }
    if (!job.begun && (rank == job.from) && (gf_steps(gf) >= 2) && (job.after_turns-- == 0))
        trouble_begin(w);
    if (job.begun && (job.trouble == SLOW_CPU) && (rank == job.from))
        gf_sim_work(w->sim, rank, job.work_ns);
    else if (job.begun && is_busy(rank) && (gf_sim_now_ns(w->sim) >= job.busy_at_ns[rank])) {
        uint64_t rest_ns = all.in_a_row ? 0 : job.busy_ns + all.timeout_ns / 20;
        job.busy_at_ns[rank] =
            gf_sim_now_ns(w->sim) + rest_ns + all.timeout_ns / 1000 * draw_below(1000);
        gf_sim_work(w->sim, rank, job.busy_ns);
    }
}

static void job_applied(struct world *w, uint32_t rank)
{
    uint64_t now_ns = gf_sim_now_ns(w->sim);
    if (job.failures[rank] == 0)
        job.before_ns[rank] = now_ns;
    else if (job.after_ns[rank] == 0)
        job.after_ns[rank] = now_ns;
}

static struct tally {
    uint32_t jobs, failed;
    uint32_t innocents;              /* somebody named a rank that is not of the edge */
    uint32_t edges;                  /* all named one that is */
    uint32_t cut[ELASTIC_RANKS_MAX]; /* so many did not go on */
    uint32_t again;                  /* all others trained again within the timeout and 5 s */
    uint64_t longest_ns;
} tally;

static bool is_of_edge(uint32_t rank)
{
    if (is_slow()) return rank == GF_RANK_NONE;
    if (job.trouble >= SLOW_CPU) return rank == job.from;
    return (rank == job.from) || (rank == job.to);
}

static void job_count(const struct world *w)
{
    bool innocent = false, failed = false, named = true, again = true;
    uint32_t cut = 0;
    for (uint32_t rank = 0; rank < job.world; rank++) {
        bool went_on = (w->ranks[rank].status == GF_OK);
        /* the failed step may have been the last: the change is what it went on with */
        uint64_t changed_ns = elastic.ranks[rank].change_began_ns + elastic.ranks[rank].change_ns;
        uint64_t after_ns = (job.after_ns[rank] != 0) ? job.after_ns[rank] : changed_ns;
        uint64_t took_ns = after_ns - job.before_ns[rank];
        cut += went_on ? 0u : 1u;
        if (job.failures[rank] == 0) continue;
        failed = true;
        /* A coordinator that did not answer is told that others gave up: it is of two ranks the one
         * that goes on. */
        bool is_late = (job.trouble == SLOW_CPU) && (rank == job.from);
        if (!is_late && !is_of_edge(job.named[rank])) {
            named = false;
            if (job.named[rank] != GF_RANK_NONE) innocent = true;
            if (getenv("VERBOSE") != NULL)
                print_message("seed %llu, %s of rank %u to %u of %u: rank %u names %d\n%s\n",
                              (unsigned long long)job.seed, trouble_names[job.trouble], job.from,
                              job.to, job.world, rank, (int)job.named[rank], w->ranks[rank].log);
        }
        /* a rank that computes goes on moving now and then, and is late itself */
        if (job.trouble == SLOW_CPU)
            took_ns = after_ns - elastic.ranks[rank].change_began_ns + all.timeout_ns;
        if (!went_on || is_late) continue;
        if (took_ns > all.timeout_ns + 5 * SECOND) again = false;
        if (took_ns > tally.longest_ns) tally.longest_ns = took_ns;
    }
    tally.jobs++;
    if (!failed) return;
    tally.failed++;
    tally.innocents += innocent;
    tally.edges += named;
    tally.cut[is_spared() ? 1 : cut]++;
    for (uint32_t rank = 0; (getenv("VERBOSE") != NULL) && (rank < job.world); rank++)
        if (cut != (is_slow() ? 0 : 1) && !is_spared())
            print_message("seed %llu, %u cut: rank %u: %s: %s\n", (unsigned long long)job.seed, cut,
                          rank, gf_status_name(w->ranks[rank].status), w->ranks[rank].log);
    tally.again += again;
}

static void jobs_run(trouble what, uint32_t world, uint64_t first_seed, uint32_t jobs)
{
    tally = (struct tally){0};
    for (uint32_t n = 0; n < jobs; n++) {
        job_draw(first_seed + n, what, world);
        struct world_setup setup = setup_draw();
        WORLD_OPEN(w, &setup);
        w.limit_ns = 400 * SECOND;
        elastic.hooks.turn = job_turn;
        elastic.hooks.applied = job_applied;
        elastic_run(&w, NULL, 0);
        job_count(&w);
    }
    print_message(
        "%.3f s%s, %u ranks, %s, seeds from %llu: %u of %u failed; innocents %u, edge named in %u, "
        "cut 0 1 2: %u %u %u, trained again in %u, after %.1f s at most\n",
        (double)all.timeout_ns / 1e9, all.busy ? ", busy" : "", world, trouble_names[what],
        (unsigned long long)first_seed, tally.failed, tally.jobs, tally.innocents, tally.edges,
        tally.cut[0], tally.cut[1], tally.cut[2], tally.again, (double)tally.longest_ns / 1e9);
}

static const uint32_t worlds[] = {2, 3, 4, 5, 8};

/* Of all but one in a hundred, and one. */
static bool is_almost(uint32_t count, uint32_t of)
{
    return count + 1 + of / 100 >= of;
}

static void each_world(trouble what)
{
    all.timeout_ns = 4 * SECOND;
    all.busy = false;
    uint64_t seed = number_of("SEED", (uint64_t)time(NULL) << 20);
    uint32_t jobs = (uint32_t)number_of("JOBS", JOBS);
    for (size_t i = 0; i < LENGTH(worlds); i++) {
        bool is_one = (what != SLOW_NIC) && (what != SLOW_NETWORK);
        jobs_run(what, worlds[i], seed, jobs);
        assert_int_equal(tally.innocents, 0);
        if (what == LOSSY) assert_int_equal(tally.failed, 0);
        assert_true(is_almost(tally.edges, tally.failed));
        assert_true(!is_one || is_almost(tally.again, tally.failed));
        assert_true(is_almost(tally.cut[is_one ? 1 : 0], tally.failed));
    }
}

TEST(of_a_connection_that_loses_all_of_one_direction_one_end_is_cut)
{
    each_world(ONE_WAY);
}

TEST(of_a_connection_that_loses_all_one_end_is_cut)
{
    each_world(TWO_WAYS);
}

/* What is lost is sent again. */
TEST(a_connection_that_loses_some_fails_no_job)
{
    each_world(LOSSY);
}

TEST(a_slow_port_cuts_nobody)
{
    each_world(SLOW_NIC);
}

TEST(a_rank_that_computes_too_long_is_cut)
{
    each_world(SLOW_CPU);
}

TEST(a_slow_network_cuts_nobody)
{
    each_world(SLOW_NETWORK);
}

static void nobody_else(trouble what, uint64_t timeout_ns)
{
    /* the same in each make check; the long run draws */
    uint64_t seed = number_of("SEED", (getenv("JOBS") != NULL) ? (uint64_t)time(NULL) << 20 : 1);
    uint32_t jobs = (uint32_t)number_of("JOBS", JOBS) / 4;
    all.timeout_ns = timeout_ns;
    all.busy = true;
    for (size_t i = 1; i < LENGTH(worlds); i++) {
        jobs_run(what, worlds[i], seed, jobs);
        assert_int_equal(tally.innocents, 0);
    }
}

/* Beside any trouble a rank may compute for a part of the timeout, just when it is asked. */
TEST(who_is_busy_beside_a_trouble_is_not_named)
{
    for (uint32_t what = 0; what < TROUBLES; what++) nobody_else((trouble)what, 4 * SECOND);
}

/* Jobs in which an innocent was named once. A rank that did not poll for long, while of another one
 * a message is lacked that was sent too short a time ago to be known as lost; a message that is
 * kept at its sender's port by one to a rank that is busy, and would say that its own comes. */
TEST(what_once_named_an_innocent_names_none)
{
    static const struct {
        uint64_t seed;
        trouble what;
        uint32_t world;
        bool in_a_row;
    } rows[] = {{1883059235324079, ONE_WAY, 8, true},
                {1883061964767355, SLOW_NETWORK, 3, false},
                {1883061964767744, SLOW_NETWORK, 3, false}};
    all.timeout_ns = 4 * SECOND;
    all.busy = true;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        all.in_a_row = rows[i].in_a_row;
        jobs_run(rows[i].what, rows[i].world, rows[i].seed, 1);
        assert_int_equal(tally.failed, 1);
        assert_int_equal(tally.innocents, 0);
    }
    all.in_a_row = false;
}

TEST(no_timeout_is_too_short_for_the_innocent)
{
    static const uint64_t timeouts_ns[] = {10 * MS, 30 * MS, 200 * MS, SECOND};
    for (size_t i = 0; i < LENGTH(timeouts_ns); i++)
        for (uint32_t what = 0; what < TROUBLES; what++) nobody_else((trouble)what, timeouts_ns[i]);
}

/* The link of a rank tells it that a connection failed, at a post that is drawn. */
TEST(of_a_connection_that_fails_one_end_is_cut_and_not_the_coordinator)
{
    uint64_t seed = number_of("SEED", (uint64_t)time(NULL) << 20);
    uint32_t jobs = (uint32_t)number_of("JOBS", JOBS);
    all.timeout_ns = 4 * SECOND;
    all.busy = false;
    print_message("seeds from %llu\n", (unsigned long long)seed);
    for (uint32_t n = 0; n < jobs * LENGTH(worlds); n++) {
        uint32_t world = worlds[n % LENGTH(worlds)];
        uint32_t named = GF_RANK_NONE, failed = 0, cut = 0;
        job_draw(seed + n, ONE_WAY, world);
        struct world_setup setup = setup_draw();
        job.begun = true; /* by the simulator */
        WORLD_OPEN(w, &setup);
        gf_sim_fail_post(w.sim, job.from, 1 + draw_below(40));
        elastic.hooks.turn = job_turn;
        elastic_run(&w, NULL, 0);
        for (uint32_t rank = 0; rank < world; rank++) {
            cut += (w.ranks[rank].status != GF_OK);
            if (job.failures[rank] == 0) continue;
            if (failed++ == 0) named = job.named[rank];
            assert_int_equal(job.named[rank], named);
        }
        if (failed == 0) continue;
        if ((named == 0) || (cut != 1))
            fail_msg("seed %llu: rank %d named, %u cut", (unsigned long long)job.seed, (int)named,
                     cut);
    }
}

static void port_turn(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    if (job.begun || (gf == NULL) || (gf_steps(gf) < 2)) return;
    job.begun = true;
    for (uint32_t other = 1; other < job.world; other++) {
        gf_sim_lose(w->sim, 0, other, 1);
        gf_sim_lose(w->sim, other, 0, 1);
    }
}

/* All connections of rank 0 are broken: it has most broken edges, is cut, and the others go on. */
TEST(who_has_lost_all_connections_is_cut)
{
    job = (struct job){.world = 3};
    struct world_setup setup = elastic_setup(3);
    setup.config.exchange.algorithm = GF_ALGORITHM_RING;
    setup.config.exchange.timeout_ns = 4 * SECOND;
    WORLD(w);
    world_open(&w, &setup);
    elastic.hooks.turn = port_turn;
    elastic_run(&w, NULL, 0);
    assert_int_equal(w.ranks[0].status, GF_ERR_PEER);
    for (uint32_t rank = 1; rank < 3; rank++) {
        assert_int_equal(w.ranks[rank].status, GF_OK);
        assert_int_equal(gf_world(w.ranks[rank].gf), 2);
        assert_int_equal(elastic.ranks[rank].failures, 1);
        assert_non_null(strstr(w.ranks[rank].log, "is not acknowledged"));
    }
}

static void fourth_turn(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    if (job.begun || (gf == NULL) || (gf_steps(gf) < 2)) return;
    job.begun = true;
    for (uint32_t other = 3; other < 6; other++) {
        gf_sim_lose(w->sim, 2, other, 1);
        gf_sim_lose(w->sim, other, 2, 1);
    }
    gf_sim_kill(w->sim, 1);
}

/* A process that has ended says so, and takes no edge with it: who is cut is whoever lost the
 * others. */
TEST(who_lost_three_is_cut_while_a_fourth_dies_and_no_innocent)
{
    for (uint32_t seed = 0; seed < 12; seed++) {
        job = (struct job){.world = 6};
        struct world_setup setup = elastic_setup(6);
        setup.sim.seed = seed;
        setup.config.exchange.algorithm = (seed % 2 == 0) ? GF_ALGORITHM_RING : GF_ALGORITHM_TREE;
        setup.config.exchange.timeout_ns = 4 * SECOND;
        WORLD_OPEN(w, &setup);
        elastic.hooks.turn = fourth_turn;
        elastic_run(&w, NULL, 0);
        for (uint32_t rank = 0; rank < 6; rank++) {
            gf_status status = w.ranks[rank].status;
            if ((rank == 1) || (status == ((rank == 2) ? GF_ERR_PEER : GF_OK))) continue;
            /* a tree in which rank 2 talks to none of the three has lost nothing */
            if ((rank == 2) && (status == GF_OK) && (seed % 2 == 1)) continue;
            fail_msg("seed %u, rank %u: %s: %s", seed, rank, gf_status_name(status),
                     w.ranks[rank].log);
        }
    }
}
