/* A death while the job joins for the first time, over the simulated network: whoever it is and
 * whenever, nobody waits beyond the deadline of the join, and whoever fails names the one that
 * died. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/elastic.h"

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
