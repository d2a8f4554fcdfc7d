/* See coll_fault.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/coll_fault.h"

/* `expect` on at least one rank where the fault was met; the others end well, or time out. */
static const struct fault_case {
    gf_sim_fault_kind kind;
    gf_status expect;
    uint64_t delay_ns;
} faults[] = {
    {GF_SIM_FAULT_KILL, GF_ERR_ABORTED, 0}, /* the first: coll_fault_kill() */
    {GF_SIM_FAULT_FULL, GF_OK, 0},
    {GF_SIM_FAULT_DUPLICATE, GF_OK, 0},
    {GF_SIM_FAULT_DELAY, GF_OK, COLL_TIMEOUT_NS / 2},
    {GF_SIM_FAULT_STOP, GF_OK, COLL_TIMEOUT_NS / 2},
    {GF_SIM_FAULT_DELAY, GF_ERR_TIMEOUT, 3ull * COLL_TIMEOUT_NS},
    {GF_SIM_FAULT_DROP, GF_ERR_TIMEOUT, 0},
    {GF_SIM_FAULT_ERROR, GF_ERR_LINK, 0},
    {GF_SIM_FAULT_SHORT, GF_ERR_MISMATCH, 0},
};

static void status_check(struct coll_group *group, uint32_t i, const struct fault_case *fault,
                         gf_status expect)
{
    struct gf_coll *coll = &group->nodes[i].coll;
    gf_status status = group->nodes[i].status;
    /* A rank that reduces in its node may also meet the link of the dead rank. */
    bool is_dead_link = (fault->kind == GF_SIM_FAULT_KILL) && (coll->kind == &gf_coll_hierarchy) &&
                        (status == GF_ERR_LINK);
    if ((status != expect) && (status != GF_OK))
        assert_true((status == GF_ERR_TIMEOUT) || is_dead_link);
    if ((status != GF_OK) && ((status != GF_ERR_ABORTED) || (coll->kind != &gf_coll_hierarchy)))
        assert_true((coll->waits_for < group->c.size) && (coll->waits_for != i));
    for (uint32_t m = 0; m < coll->msg_count; m++) assert_false(coll->msgs[m].active);
    if (status == GF_ERR_DATA) {
        char named[32];
        (void)snprintf(named, sizeof named, " from rank %u, ", coll->waits_for);
        assert_true((coll->link->fault.peer == coll->waits_for) &&
                    (strstr(coll->link->fault.text, named) != NULL));
    }
    assert_int_equal(gf_coll_poll(coll, gf_sim_now_ns(group->sim)), status);
}

/* True: the fault was met, by post number `at`. */
static bool fault_run(const struct fault_case *fault, struct coll_case c, struct gf_sim_setup sim,
                      uint64_t at, bool may_reset)
{
    struct coll_group group;
    uint32_t expected = 0;
    gf_status expect;
    bool is_met;
    sim.bind_receives = may_reset;
    sim.fault_count = 1;
    sim.faults[0] = (struct gf_sim_fault){fault->kind, GF_RANK_NONE, at, fault->delay_ns};
    coll_group_open(&group, &c, &sim);
    group.may_reset = may_reset;
    coll_group_fill(&group, false);
    for (uint32_t i = 0; i < c.size; i++) {
        coll_group_start(&group, i, 4095);
        /* Polls while nothing happens: else a late message would be there before anybody looks at
         * the clock. */
        for (uint64_t half = 1; half < 6; half++)
            gf_sim_wake_at(group.sim, i, half * COLL_TIMEOUT_NS / 2);
    }
    coll_group_run(&group);
    coll_group_check(&group);
    is_met = gf_sim_counts(group.sim)->fault_met;
    expect = is_met ? fault->expect : GF_OK;
    for (uint32_t i = 0; i < c.size; i++) {
        status_check(&group, i, fault, expect);
        if (group.nodes[i].status == expect) expected++;
    }
    assert_in_range(expected, (expect != GF_OK) ? 1 : c.size, c.size);
    coll_group_close(&group);
    return is_met;
}

static void each_post(const struct fault_case *fault, const struct coll_case *c,
                      const struct gf_sim_setup *sim, bool may_reset)
{
    uint64_t at = 1;
    while (fault_run(fault, *c, *sim, at, may_reset)) assert_in_range(++at, 1, 10000);
    assert_true(at > 1);
}

void coll_fault_each(const struct coll_case *c, const struct gf_sim_setup *sim)
{
    for (size_t f = 0; f < LENGTH(faults); f++) each_post(&faults[f], c, sim, false);
}

void coll_fault_kill(const struct coll_case *c, const struct gf_sim_setup *sim)
{
    each_post(&faults[0], c, sim, true);
}
