/* A death while the job joins for the first time, over the simulated network: whoever it is and
 * whenever, nobody waits beyond the deadline of the join, and whoever fails names the one that
 * died. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/elastic.h"
#include "lib/context.h"

#define MS UINT64_C(1000000)

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
                struct world_setup setup = elastic_setup(size);
                setup.config.rendezvous.join_timeout_ns = 500 * MS;
                setup.config.exchange.timeout_ns = 200 * MS;
                WORLD_CREATE(w, &setup);
                begin_ns = gf_sim_now_ns(w.sim);
                opened = false;
                world_run(&w, turn, NULL);
                deaths++;
                met += opened ? 0 : 1;
                assert_true(gf_sim_now_ns(w.sim) - begin_ns <= death_ns + 500 * MS + 2500 * MS);
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
            struct world_setup setup = elastic_setup(4);
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
