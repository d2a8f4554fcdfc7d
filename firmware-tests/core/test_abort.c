/* gf_abort() while a rank that has failed waits for the coordinator's finding: it gives up at once,
 * whether it regroups or not, and the others hear so. An abort of a rank that is well: test_leave.
 * link: wrap gf_node_host_id_set */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/elastic.h"
#include "lib/context.h"

#define SOON_NS UINT64_C(250000000) /* what was under way is drained */

static struct abort_case {
    bool lost;     /* the coordinator is gone: nobody finds anything before join_timeout */
    bool regroups; /* gf_regroup_begin() was called */
    uint64_t aborted_ns, ended_ns;
} now;

static void abort_turn(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[0].gf;
    if ((now.aborted_ns != 0) && (now.ended_ns == 0) && (gf->phase == GF_PHASE_FAILED))
        now.ended_ns = gf_sim_now_ns(w->sim);
    if ((rank != 0) || (now.aborted_ns != 0) || (gf->phase != GF_PHASE_FAILING) ||
        !gf->failing.asks)
        return;
    if (now.regroups) {
        assert_int_equal(gf_regroup_begin(gf), GF_OK);
        elastic.ranks[0].state = CHANGES;
    }
    gf_abort(gf);
    now.aborted_ns = gf_sim_now_ns(w->sim);
}

TEST(an_abort_ends_the_wait_for_a_finding)
{
    SIM_ONLY;
    for (uint32_t row = 0; row < 4; row++) {
        struct world_setup setup = elastic_setup(3);
        const struct elastic_event lost[] = {
            {50000, 2, STOP}, {51000, 0, COORDINATOR_KILL}, {20000000, 2, GO_ON}, END};
        const struct elastic_event lives[] = {{50000, 2, STOP}, {20000000, 2, GO_ON}, END};
        now = (struct abort_case){.lost = row / 2 == 1, .regroups = row % 2 == 1};
        elastic.hooks.turn = abort_turn;
        elastic.hooks.work_ns = SECOND / 100;
        WORLD(w);
        elastic_play(&w, &setup, now.lost ? lost : lives);
        assert_int_not_equal(now.aborted_ns, 0);
        const struct gf_error *error = gf_error_last(w.ranks[0].gf);
        assert_int_equal(w.ranks[0].status, GF_ERR_ABORTED);
        assert_int_equal(error->peer, 0);
        assert_memory_equal(error->text, "aborted by its appliance: ", 26);
        assert_true(now.ended_ns - now.aborted_ns < SOON_NS);
        if (!now.lost) world_expect_log(&w, 1, "gave up: aborted by its appliance");
    }
}
