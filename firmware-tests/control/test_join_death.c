/* A death while the job joins for the first time, over the simulated network: whoever it is and
 * whenever, nobody waits beyond the deadline of the join, and whoever fails names the one that
 * died. */
#include <errno.h>

#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/elastic.h"
#include "lib/context.h"

#define MS UINT64_C(1000000)

static struct world_setup rigid_setup(uint32_t world)
{
    struct world_setup setup = elastic_setup(world);
    setup.config.job.elastic = false;
    return setup;
}

static uint32_t victim;
static uint64_t death_ns, begin_ns;
static bool opened; /* by somebody, before the death: it must hear of it too */

static gf_status turn(struct world *w, uint32_t rank, void *arg)
{
    gf_context *gf = w->ranks[rank].gf;
    gf_status status;
    if ((gf_sim_now_ns(w->sim) - begin_ns >= death_ns) && gf_sim_runs(w->sim, victim))
        gf_sim_kill(w->sim, victim);
    if (!gf_sim_runs(w->sim, rank)) return GF_AGAIN;
    status = gf_open_poll(gf);
    if (status != GF_OK) return status;
    opened = opened || gf_sim_runs(w->sim, victim);
    status = gf_heartbeat(gf);
    return (status < 0) ? status : GF_AGAIN;
}

TEST(a_death_in_the_join_is_named_in_time)
{
    uint32_t deaths = 0;
    uint32_t met = 0;
    for (uint32_t size = 2; size <= 5; size++) {
        for (victim = 0; victim < size; victim++) {
            for (death_ns = 0; death_ns < 3 * MS; death_ns += (death_ns < MS / 2) ? 11000 : MS) {
                struct world_setup setup = rigid_setup(size);
                setup.config.rendezvous.join_timeout_ns = 500 * MS;
                setup.config.exchange.timeout_ns = 200 * MS;
                WORLD_CREATE(w, &setup);
                begin_ns = gf_sim_now_ns(w.sim);
                opened = false;
                world_run(&w, turn, NULL);
                deaths++;
                met += opened ? 0 : 1;
                if (gf_sim_now_ns(w.sim) - begin_ns > death_ns + 500 * MS + 2500 * MS)
                    fail_msg("world %u, rank %u dies after %u us: %.1f s: %s %s", size, victim,
                             (unsigned)(death_ns / 1000),
                             (double)(gf_sim_now_ns(w.sim) - begin_ns) * 1e-9, w.ranks[0].log,
                             w.ranks[1].log);
                for (uint32_t rank = 0; rank < size; rank++) {
                    const struct gf_error *error = gf_error_last(w.ranks[rank].gf);
                    if (rank == victim) continue;
                    if ((w.ranks[rank].status >= 0) || (error->peer != victim))
                        fail_msg("world %u, rank %u dies after %u us: rank %u: %s, names %d: %s",
                                 size, victim, (unsigned)(death_ns / 1000), rank,
                                 gf_status_name(w.ranks[rank].status), (int)error->peer,
                                 error->text);
                }
            }
        }
    }
    print_message("%u deaths, %u before anybody was open\n", deaths, met);
    assert_true(met > 100);
}

/* The link of a rank tells it while it connects that there is no way to a peer. */
static uint32_t from, to;
static const struct gf_link_driver *whole;

static gf_status cut_connect(struct gf_link *link, uint32_t peer, const void *endpoint,
                             size_t bytes)
{
    if (peer == to)
        return gf_fault_set(&link->fault, GF_ERR_LINK, peer, "connect", 0, "connection reset");
    return whole->connect(link, peer, endpoint, bytes);
}

static gf_status cut_turn(struct world *w, uint32_t rank, void *arg)
{
    static struct gf_link_driver cut;
    gf_context *gf = w->ranks[rank].gf;
    (void)arg;
    if ((rank == from) && (gf->link != NULL) && (gf->link->driver->connect != cut_connect)) {
        whole = gf->link->driver;
        cut = *whole;
        cut.connect = cut_connect;
        gf->link->driver = &cut;
    }
    return gf_open_poll(gf);
}

/* Whoever finds it out says so before it ends: else the others read its end, and name that rank. */
TEST(a_connection_that_fails_while_all_connect_is_told_to_all)
{
    for (from = 0; from < 4; from++) {
        for (to = 0; to < 4; to++) {
            struct world_setup setup = rigid_setup(4);
            uint32_t named = (to > from) ? to : from;
            if (from == to) continue;
            setup.config.rendezvous.join_timeout_ns = setup.config.exchange.timeout_ns = SECOND;
            WORLD_CREATE(w, &setup);
            begin_ns = gf_sim_now_ns(w.sim);
            world_run(&w, cut_turn, NULL);
            assert_true(gf_sim_now_ns(w.sim) - begin_ns < 100 * MS);
            for (uint32_t rank = 0; rank < 4; rank++) {
                assert_int_equal(w.ranks[rank].status, GF_ERR_LINK);
                assert_int_equal(gf_error_last(w.ranks[rank].gf)->peer, named);
            }
        }
    }
}

/* Connections that never come, a bit each peer; a rank that lacks something makes none, and says
 * so. */
static struct gf_link_driver apart_drivers[5];
static unsigned apart_of[5], connected[5][5];
static uint32_t lacking;
static bool is_late; /* the deadline of who lacks passes behind those of the others, who ask */

static gf_status apart_connect(struct gf_link *link, uint32_t peer, const void *endpoint,
                               size_t bytes)
{
    const uint32_t rank = (uint32_t)(link->driver - apart_drivers);
    if ((apart_of[rank] >> peer & 1u) != 0) return GF_AGAIN;
    return connected[rank][peer]++ ? GF_OK : whole->connect(link, peer, endpoint, bytes);
}

static bool apart_is_broken(struct gf_link *link, uint32_t peer, struct gf_fault *fault_out)
{
    const uint32_t rank = (uint32_t)(link->driver - apart_drivers);
    if ((apart_of[rank] >> peer & 1u) == 0) return whole->edge_is_broken(link, peer, fault_out);
    if (rank == lacking)
        (void)gf_fault_set(fault_out, GF_ERR_SYSTEM, rank, "connect", EMFILE,
                           "rank %u has no descriptor", rank);
    else
        (void)gf_fault_set(fault_out, GF_ERR_LINK, peer, "connect", EHOSTUNREACH,
                           "rank %u cannot connect to rank %u", rank, peer);
    return true;
}

static gf_status apart_turn(struct world *w, uint32_t rank, void *arg)
{
    gf_context *gf = w->ranks[rank].gf;
    if ((gf->link != NULL) && (gf->link->driver->connect != apart_connect)) {
        whole = gf->link->driver;
        apart_drivers[rank] = *whole;
        apart_drivers[rank].connect = apart_connect;
        apart_drivers[rank].edge_is_broken = apart_is_broken;
        gf->link->driver = &apart_drivers[rank];
    }
    if (is_late && (rank == lacking) && (gf->warm.connect_ns != 0) &&
        (gf_sim_now_ns(w->sim) - gf->warm.connect_ns > 500 * MS)) {
        gf->warm.connect_ns += 250 * MS;
        is_late = false;
    }
    return gf_open_poll(gf);
}

/* Whoever's deadline passes first: ranks with all their connections wait in the first operation. */
TEST(a_connection_that_never_comes_is_an_edge_with_both_ends)
{
    static const struct {
        uint32_t edges[4][2], count, lacking, named;
        const char *text;
        bool is_late;
    } rows[] = {
        {{{2, 3}}, 1, GF_RANK_NONE, 3, "rank 2 cannot connect to rank 3", false},
        {{{0, 1}}, 1, GF_RANK_NONE, 1, "cannot connect to rank", false},
        {{{4, 0}, {4, 1}, {4, 2}, {4, 3}}, 4, GF_RANK_NONE, 4, "cannot connect to rank", false},
        {{{0, 1}, {0, 2}, {0, 3}, {0, 4}}, 4, GF_RANK_NONE, 0, "cannot connect to rank", false},
        {{{1, 2}, {1, 3}}, 2, GF_RANK_NONE, 1, "cannot connect to rank", false},
        {{{2, 0}, {2, 1}, {2, 3}, {2, 4}}, 4, 2, 2, "rank 2 has no descriptor", false},
        {{{2, 4}}, 1, 2, 2, "rank 2 has no descriptor", false},
        {{{2, 0}, {2, 1}, {2, 3}, {2, 4}}, 4, 2, 2, "rank 2 has no descriptor", true},
        {{{2, 4}}, 1, 2, 2, "rank 2 has no descriptor", true},
    };
    for (size_t row = 0; row < LENGTH(rows); row++) {
        struct world_setup setup = rigid_setup(5);
        setup.config.rendezvous.join_timeout_ns = setup.config.exchange.timeout_ns = SECOND;
        memset(apart_of, 0, sizeof apart_of);
        memset(connected, 0, sizeof connected);
        lacking = rows[row].lacking;
        is_late = rows[row].is_late;
        for (uint32_t i = 0; i < rows[row].count; i++) {
            apart_of[rows[row].edges[i][0]] |= 1u << rows[row].edges[i][1];
            apart_of[rows[row].edges[i][1]] |= 1u << rows[row].edges[i][0];
        }
        WORLD_CREATE(w, &setup);
        begin_ns = gf_sim_now_ns(w.sim);
        world_run(&w, apart_turn, NULL);
        assert_true(gf_sim_now_ns(w.sim) - begin_ns < 2500 * MS);
        for (uint32_t rank = 0; rank < 5; rank++) {
            const struct gf_error *error = gf_error_last(w.ranks[rank].gf);
            if (w.ranks[rank].status >= 0) fail_msg("row %zu, rank %u ended well", row, rank);
            if ((error->peer != rows[row].named) || (strstr(error->text, rows[row].text) == NULL) ||
                ((lacking == GF_RANK_NONE) && (error->code != GF_ERR_LINK)))
                fail_msg("row %zu, rank %u: %s %u %s", row, rank, gf_status_name(error->code),
                         error->peer, error->text);
        }
    }
}
