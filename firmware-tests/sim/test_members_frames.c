/* Frames of peers that are late, of another try, or wrong: each guard has a row that fails without
 * it. What is refused changes nothing. */
#include "firmware-tests/support/suite.h"
#include "lib/membership/members_state.h"
#include "firmware-tests/support/members_world.h"

static const struct gf_error fell = {
    .code = GF_ERR_DEVICE, .peer = GF_RANK_NONE, .text = "out of memory"};
static const struct gf_members_progress own = {.steps = 4, .applied = 1};
#define REASON(who)                                                                               \
    {                                                                                             \
        .own = {.steps = 4, .applied = 1}, .culprit = who, .silent_ns = SECOND, .away_ns = SECOND \
    }
static const struct gf_members_reason died = REASON(2), nobody = REASON(GF_RANK_NONE);

/* ---- to a member: PREPARE, COMMIT, START_VIEW ---- */

struct sent {
    uint32_t from, epoch, first, bits, lead;
};

static struct view_proposal proposal_of(const struct sent *sent)
{
    const struct members_list list = {
        .epoch = sent->epoch, .first = sent->first, .bits = {(unsigned char)sent->bits}};
    return (struct view_proposal){.list = list, .lead = sent->lead, .progress = own};
}

static void proposal_put(struct gf_put *put, const struct sent *sent)
{
    struct view_proposal proposal = proposal_of(sent);
    gf_view_proposal_walk(&(struct gf_walk){.put = put}, &proposal, 3);
}

static bool commit_take(int32_t code, const struct sent *sent)
{
    unsigned char payload[512];
    struct view_proposal proposal = proposal_of(sent);
    struct gf_put put = {payload, sizeof payload};
    struct gf_get get = {.at = payload};
    gf_put_u32(&put, (uint32_t)code);
    gf_put_u32(&put, 0);
    gf_view_commit_put(&put, world.ranks[0].members, &proposal, "");
    get.left = (uint32_t)(sizeof payload - put.left);
    return gf_view_frame(world.ranks[1].members, sent->from, MEMBERS_COMMIT, &get);
}

static bool prepare_take(uint32_t view, const struct sent *sent)
{
    unsigned char payload[512];
    struct gf_put put = {payload, sizeof payload};
    struct gf_get get = {.at = payload};
    gf_put_u32(&put, view);
    proposal_put(&put, sent);
    get.left = (uint32_t)(sizeof payload - put.left);
    return gf_view_frame(world.ranks[1].members, sent->from, MEMBERS_PREPARE, &get);
}

static void number_take(uint32_t to, uint32_t from, uint32_t kind, uint32_t epoch, uint32_t view)
{
    unsigned char payload[8];
    struct gf_put put = {payload, sizeof payload};
    struct gf_get get = {.at = payload, .left = sizeof payload};
    gf_put_u32(&put, epoch);
    gf_put_u32(&put, view);
    assert_true(gf_view_frame(world.ranks[to].members, from, kind, &get));
}

/* Rank 2 fails in epoch 1 of three ranks; rank 1 seeks the next epoch at rank 0 in view 1, or has
 * not begun to. */
static struct gf_members *survivor(bool seeks)
{
    struct gf_members *members;
    struct gf_members_plan plan = {0};
    members_world_open_epoch(3, 1);
    members_world_until(GF_OK);
    members = world.ranks[1].members;
    gf_members_tell(world.ranks[2].members, &fell);
    for (int turn = 0; turn < 20; turn++) (void)members_world_progress(GF_ERR_PEER);
    if (!seeks) return members;
    gf_view_change(members, world.now_ns, &died);
    assert_true(members->table[2].excluded); /* it said itself that it has failed */
    assert_int_equal(gf_view_poll(members, world.now_ns, &plan), GF_AGAIN);
    assert_int_equal(members->view.view, 1);
    return members;
}

TEST(a_commit_counts_from_the_coordinator_of_the_promised_view_alone)
{
    static const struct {
        const char *name;
        struct sent sent;
        bool valid;
        gf_status status;
    } rows[] = {
        {"valid", {0, 2, 0, 0x3, 1}, true, GF_OK},
        {"of_another_rank", {2, 2, 0, 0x3, 1}, true, GF_AGAIN},
        {"of_this_epoch", {0, 1, 0, 0x7, 0}, true, GF_AGAIN},
        {"without_this_rank", {0, 2, 0, 0x5, 0}, true, GF_AGAIN},
        {"two_epochs_on_for_another_process", {0, 3, 0, 0x3, 0}, true, GF_ERR_QUORUM},
        {"whose_first_is_not_of_it", {0, 2, 2, 0x3, 0}, false, GF_AGAIN},
        {"whose_lead_is_not_of_it", {0, 2, 0, 0x3, 2}, false, GF_AGAIN},
        {"with_more_members_than_there_are", {0, 2, 0, 0xb, 0}, false, GF_AGAIN},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct gf_members *members = survivor(true);
        struct gf_members_plan plan = {0};
        bool valid = commit_take(GF_OK, &rows[i].sent);
        gf_status status = gf_view_poll(members, world.now_ns, &plan);
        if ((valid != rows[i].valid) || (status != rows[i].status))
            print_error("%s: %s\n", rows[i].name, gf_status_name(status));
        assert_int_equal(valid, rows[i].valid);
        assert_int_equal(status, rows[i].status);
        bool left_out = (strcmp(rows[i].name, "without_this_rank") == 0);
        assert_int_equal(members->view.epoch.epoch, (status == GF_OK) ? 2 : left_out ? 0 : 1);
        if (status == GF_OK) assert_true((plan.rank == 1) && (plan.world == 2) && (plan.lead == 1));
        members_world_end();
    }
}

/* Also with a code that is none: it ends with an error. */
TEST(a_refusal_ends_with_its_code_or_for_want_of_a_quorum)
{
    static const struct {
        int32_t code;
        gf_status status;
    } rows[] = {{GF_ERR_DATA, GF_ERR_DATA},
                {GF_ERR_QUORUM, GF_ERR_QUORUM},
                {1, GF_ERR_QUORUM},
                {77, GF_ERR_QUORUM}};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        const struct sent sent = {0, 2, 0, 0x7, 0};
        struct gf_members *members = survivor(true);
        struct gf_members_plan plan = {0};
        (void)commit_take(rows[i].code, &sent);
        assert_int_equal(gf_view_poll(members, world.now_ns, &plan), rows[i].status);
        assert_string_equal(members->error.text, "the coordinator gave no reason");
        members_world_end();
    }
}

/* After the promise of view 4 nothing of a lower view is acknowledged. */
TEST(a_promise_is_kept)
{
    const struct sent sent = {0, 2, 0, 0x3, 0};
    const struct sent other = {2, 2, 2, 0x6, 0};
    const struct sent later = {0, 3, 0, 0x3, 0};
    struct gf_members *members = survivor(true);
    number_take(1, 0, MEMBERS_START_VIEW, 1, 4);
    assert_int_equal(members->view.view, 4);
    number_take(1, 0, MEMBERS_START_VIEW, 1, 1);
    number_take(1, 2, MEMBERS_START_VIEW, 1, 6);
    number_take(1, 0, MEMBERS_START_VIEW, 2, 7);
    assert_int_equal(members->view.view, 4);
    assert_true(prepare_take(1, &sent));
    assert_true(prepare_take(7, &sent));
    assert_true(prepare_take(4, &other)); /* of who does not coordinate */
    assert_int_equal(members->view.accepted_view, 0);
    assert_int_equal(members->table[0].owed & (1u << MEMBERS_ACCEPT), 0);
    assert_false(prepare_take(4, &later));
    assert_int_equal(members->view.accepted_view, 0);
    assert_true(prepare_take(4, &sent));
    assert_int_equal(members->view.accepted_view, 4);
    assert_true((members->table[0].owed & (1u << MEMBERS_ACCEPT)) != 0);
    assert_int_equal(members->view.epoch.epoch, 1); /* accepted is not committed */
}

TEST(a_member_in_use_hears_of_no_commit_but_one_without_it)
{
    const struct sent with = {0, 2, 0, 0x3, 0};
    const struct sent without = {0, 2, 0, 0x5, 0};
    members_world_open_epoch(3, 1);
    members_world_until(GF_OK);
    assert_true(commit_take(GF_OK, &with));
    assert_int_equal(gf_members_poll(world.ranks[1].members, world.now_ns), GF_OK);
    assert_int_equal(world.ranks[1].members->view.epoch.epoch, 1);
    assert_true(commit_take(GF_OK, &without));
    assert_int_equal(gf_members_poll(world.ranks[1].members, world.now_ns), GF_ERR_PEER);
    assert_non_null(
        strstr(error_of(1)->text, "went on without rank 1: epoch 1 is closed, epoch 2 has begun"));
}

/* The others may have gone on before it shrinks: its error stays, and then it waits to come in again,
 * as another process that has promised nothing. */
TEST(who_has_failed_and_is_left_behind_keeps_its_error)
{
    const struct sent first = {0, 2, 0, 0x5, 0};
    const struct sent second = {0, 3, 0, 0x5, 0};
    struct gf_members *members = survivor(false);
    (void)commit_take(GF_OK, &first);
    (void)commit_take(GF_OK, &second);
    assert_int_equal(gf_members_poll(members, world.now_ns), GF_ERR_PEER);
    assert_int_equal(error_of(1)->code, GF_ERR_PEER);
    assert_non_null(strstr(error_of(1)->text, "out of memory"));
    uint32_t incarnation = members->incarnation;
    gf_view_change(members, world.now_ns, &died);
    assert_int_equal(members->view.state, VIEW_SEEK);
    assert_true(gf_view_is_left_out(members) && (members->incarnation != incarnation));
    assert_int_equal(members->view.view + members->view.accepted_view + members->view.asked_view,
                     0);
}

/* It asks those that went on, and not the coordinator that it had, which need not be one any more. */
TEST(who_is_left_behind_asks_those_that_went_on)
{
    const struct sent of_2 = {0, 2, 2, 0x4, 0};
    struct gf_members *members = survivor(false);
    (void)commit_take(GF_OK, &of_2);
    assert_true(members->table[0].connected);
    gf_view_change(members, world.now_ns, &died);
    assert_true(gf_view_is_left_out(members));
    assert_int_equal(members->table[0].owed & (1u << MEMBERS_JOIN), 0);
    members_world_end();
}

/* ---- to the coordinator: DO_VIEW_CHANGE, ACCEPT ---- */

struct report {
    uint32_t id_count, view, epoch, bits, accepted_view, accepted_bits, accepted_epoch;
};

static bool report_take_of(uint32_t from, const struct report *report, bool leaves)
{
    unsigned char payload[512];
    struct gf_put put = {payload, sizeof payload};
    struct members_list list = {.epoch = report->epoch, .bits = {(unsigned char)report->bits}};
    const struct sent accepted = {0, report->accepted_epoch, 1, report->accepted_bits, 0};
    struct gf_get get = {.at = payload};
    gf_put_u32(&put, report->id_count);
    gf_put_u32(&put, report->view);
    gf_put_u32(&put, report->accepted_view);
    gf_put_u32(&put, 1); /* it answers START_VIEW */
    gf_put_u32(&put, 0); /* planned */
    gf_put_u32(&put, leaves ? 1 : 0);
    gf_put_u32(&put, 1);
    gf_put_u64(&put, 4);
    gf_put_u64(&put, 0);
    gf_view_list_walk(&(struct gf_walk){.put = &put}, &list, 3);
    proposal_put(&put, &accepted);
    get.left = (uint32_t)(sizeof payload - put.left);
    return gf_view_frame(world.ranks[0].members, from, MEMBERS_DO_VIEW_CHANGE, &get);
}

static bool report_take(uint32_t from, const struct report *report)
{
    return report_take_of(from, report, false);
}

/* Rank 0 collects, rank 1 is connected, rank 2 is silent. */
static struct gf_members *collector(void)
{
    struct gf_members_plan plan = {0};
    (void)survivor(false);
    world.ranks[2].stopped = true;
    fake_cut(&fake, 2, "timed out");
    gf_view_change(world.ranks[0].members, world.now_ns, &nobody);
    assert_int_equal(gf_view_poll(world.ranks[0].members, world.now_ns, &plan), GF_AGAIN);
    assert_true(world.ranks[0].members->table[1].connected);
    assert_false(world.ranks[0].members->table[2].connected);
    return world.ranks[0].members;
}

TEST(a_report_counts_where_it_fits)
{
    static const struct {
        const char *name;
        struct report report;
        bool valid, reported;
        uint32_t view, accepted; /* then */
    } rows[] = {
        {"valid", {3, 1, 1, 0x7, 0, 0, 0}, true, true, 1, 0},
        {"of_another_world", {4, 1, 1, 0x7, 0, 0, 0}, false, false, 1, 0},
        {"of_who_never_joined", {3, 1, 0, 0, 0, 0, 0}, true, false, 1, 0},
        {"of_another_epoch_of_this_number", {3, 1, 1, 0x3, 0, 0, 0}, false, false, 1, 0},
        {"of_a_higher_view_that_rank_0_leads", {3, 4, 1, 0x7, 0, 0, 0}, true, true, 4, 0},
        {"of_a_higher_view_that_another_leads", {3, 2, 1, 0x7, 0, 0, 0}, true, true, 1, 0},
        {"with_a_proposal", {3, 4, 1, 0x7, 2, 0x6, 2}, true, true, 4, 0x6},
        {"with_a_proposal_for_another_epoch", {3, 4, 1, 0x7, 2, 0x6, 3}, false, false, 1, 0},
        {"with_a_proposal_of_a_view_above_its_own", {3, 1, 1, 0x7, 2, 0x6, 2}, false, false, 1, 0},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct gf_members *members = collector();
        struct gf_members_plan plan = {0};
        bool valid = report_take(1, &rows[i].report);
        bool reported = (members->table[1].state == MEMBER_REPORTED);
        (void)gf_view_poll(members, world.now_ns, &plan);
        if ((valid != rows[i].valid) || (reported != rows[i].reported) ||
            (members->view.view != rows[i].view))
            print_error("%s: view %u\n", rows[i].name, members->view.view);
        assert_int_equal(valid, rows[i].valid);
        assert_int_equal(reported, rows[i].reported);
        assert_int_equal(members->view.view, rows[i].view);
        if (rows[i].accepted != 0)
            assert_int_equal(members->view.accepted.list.bits[0], rows[i].accepted);
        members_world_end();
    }
}

/* .. whatever the number of ids, of which it carries a bit each. */
TEST(a_refusal_is_read_as_it_was_written)
{
    for (uint32_t size = 2; size <= FAKE_RANKS_MAX; size++) {
        unsigned char payload[512];
        struct gf_put put = {payload, sizeof payload};
        struct gf_get get = {.at = payload};
        struct view_proposal none = {0};
        members_world_open_epoch(size, 1);
        members_world_until(GF_OK);
        gf_view_change(world.ranks[1].members, world.now_ns, &nobody);
        gf_put_u32(&put, (uint32_t)GF_ERR_DATA);
        gf_put_u32(&put, 0);
        gf_view_commit_put(&put, world.ranks[0].members, &none, "why");
        get.left = (uint32_t)(sizeof payload - put.left);
        assert_true(gf_view_frame(world.ranks[1].members, 0, MEMBERS_COMMIT, &get));
        assert_string_equal(error_of(1)->text, "why");
        members_world_end();
    }
}

/* Rank 1 has promised view 4 before rank 0 begins: that leads it at once, and no lower one. */
TEST(who_leads_leads_the_view_in_which_somebody_is)
{
    const struct report report = {3, 4, 1, 0x7, 0, 0, 0};
    struct gf_members_plan plan = {0};
    (void)survivor(false);
    struct gf_members *members = world.ranks[0].members;
    assert_true(report_take(1, &report));
    gf_view_change(members, world.now_ns, &nobody);
    assert_int_equal(gf_view_poll(members, world.now_ns, &plan), GF_AGAIN);
    assert_int_equal(members->view.view, 4);
    members_world_end();
}

/* Rank 2, connected anew, says so many bytes of its JOIN as this process; 0: as much as it has. */
static bool join_take(struct gf_members *members, uint32_t incarnation, uint32_t bytes)
{
    struct gf_members *from = world.ranks[2].members;
    struct gf_get get = {.at = from->scratch};
    from->incarnation = incarnation;
    get.left = gf_view_frame_put(from, MEMBERS_JOIN);
    if (bytes != 0) get.left = bytes;
    members->table[2].connected = true;
    return gf_view_frame(members, 2, MEMBERS_JOIN, &get);
}

/* .. cut short anywhere changes nothing. Its number is any but 0; on a plain connection, too. */
TEST(a_join_is_whole_and_names_a_process)
{
    struct gf_members *members = collector();
    struct member *member = &members->table[2];
    member->state = MEMBER_RECOVERING;
    member->incarnation = 5;
    uint32_t whole = gf_view_frame_put(world.ranks[2].members, MEMBERS_JOIN);
    for (uint32_t bytes = 1; bytes < whole; bytes++) {
        assert_false(join_take(members, 7, bytes));
        assert_int_equal(member->state, MEMBER_RECOVERING);
        assert_int_equal(member->incarnation, 5);
    }
    member->state = MEMBER_EXPECTED;
    assert_false(join_take(members, 0, 0));
    assert_int_equal(member->state, MEMBER_EXPECTED);
    assert_true(join_take(members, 1, 0));
    assert_int_equal(member->state, MEMBER_WAITS);
    members_world_end();
}

TEST(a_process_that_proved_nothing_changes_no_view)
{
    const struct gf_rendezvous_event refused = {
        .kind = GF_RENDEZVOUS_REFUSED, .rank = GF_RANK_NONE, .unproven = true};
    struct gf_members *members = collector();
    struct gf_members_plan plan;
    fake_push(&fake.ends[0], refused);
    assert_int_equal(gf_view_poll(members, world.now_ns, &plan), GF_AGAIN);
    assert_int_equal(fake.ends[0].count, 0);
    assert_int_equal(members->view.state, VIEW_COLLECT);
}

/* Two of three are enough; the proposal that one of them had accepted is proposed again, and
 * committed by two. */
TEST(what_may_have_been_chosen_is_proposed_again)
{
    const struct report report = {3, 4, 1, 0x7, 2, 0x6, 2};
    struct gf_members *members = collector();
    struct gf_members_plan plan = {0};
    assert_true(report_take(1, &report));
    world.now_ns += 2 * SECOND;
    assert_int_equal(gf_view_poll(members, world.now_ns, &plan), GF_AGAIN);
    assert_int_equal(members->view.state, VIEW_PROPOSED);
    assert_int_equal(fake.frames[MEMBERS_PREPARE], 1);
    assert_true(report_take(1, &report)); /* as one does that comes late, or again */
    number_take(0, 1, MEMBERS_ACCEPT, 1, 1);
    assert_int_equal(gf_view_poll(members, world.now_ns, &plan), GF_AGAIN);
    assert_int_equal(fake.frames[MEMBERS_PREPARE], 2);
    number_take(0, 1, MEMBERS_ACCEPT, 1, 4);
    /* it is of ranks 1 and 2 */
    assert_int_equal(gf_view_poll(members, world.now_ns, &plan), GF_AGAIN);
    assert_true(gf_view_is_left_out(members));
    assert_int_equal(members->view.current.list.bits[0], 0x6);
}

TEST(nobody_goes_on_where_all_leave)
{
    const struct report report = {3, 1, 1, 0x7, 0, 0, 0};
    struct gf_members *members = collector();
    struct gf_members_plan plan;
    members->view.reason.leaves = true;
    assert_true(report_take_of(1, &report, true));
    world.now_ns += 2 * SECOND;
    assert_int_equal(gf_view_poll(members, world.now_ns, &plan), GF_ERR_QUORUM);
    assert_string_equal(members->error.text,
                        "every rank that is here leaves: nobody is left to go on");
    assert_int_equal(fake.frames[MEMBERS_COMMIT], 1); /* rank 1 hears so */
    members_world_end();
}

/* Rank 0 collects for a planned epoch. Whoever has failed in its last step, or asks why it waits, hears
 * that it has ended; other words of it change nothing. */
TEST(who_is_in_the_last_step_hears_that_the_epoch_has_ended)
{
    static const struct {
        members_frame frame;
        bool warns;
    } rows[] = {{MEMBERS_FAULT, true}, {MEMBERS_GIVES_UP, true}, {MEMBERS_POSITION, false}};
    struct gf_members_reason planned = nobody;
    struct gf_members_plan plan = {0};
    planned.planned = true;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        members_world_open_epoch(3, 1);
        members_world_until(GF_OK);
        struct gf_members *members = world.ranks[0].members;
        gf_view_change(members, world.now_ns, &planned);
        assert_int_equal(gf_view_poll(members, world.now_ns, &plan), GF_AGAIN);
        assert_true(gf_view_was_led(members)); /* alone */
        struct gf_rendezvous_event event = {.kind = GF_RENDEZVOUS_FRAME, .rank = 1, .payload = ""};
        event.frame_kind = (uint32_t)rows[i].frame | (1u << MEMBERS_KIND_BITS);
        fake_push(&fake.ends[0], event);
        assert_int_equal(gf_view_poll(members, world.now_ns, &plan), GF_AGAIN);
        assert_int_equal(fake.frames[MEMBERS_ERROR], rows[i].warns ? 2 : 0);
        members_world_end();
    }
}

/* The answer to an inquiry, of a rank that has not reached another one. */
TEST(why_a_rank_is_not_reached_is_one_of_few_codes)
{
    static const struct {
        int32_t code;
        uint32_t peer;
        bool valid;
    } rows[] = {{GF_OK, GF_RANK_NONE, true}, {GF_ERR_LINK, 2, true}, {GF_ERR_SYSTEM, 1, true},
                {GF_ERR_LINK, 3, false},     {GF_AGAIN, 2, false},   {5, 2, false},
                {GF_ERR_CONFIG, 2, false},   {-1000, 2, false}};
    static const unsigned char rest[240 + GF_WORLD_MAX / 8];
    members_world_open_epoch(3, 1);
    for (size_t i = 0; i < LENGTH(rows); i++) {
        unsigned char payload[2048];
        struct gf_waits waits;
        struct gf_put put = {payload, sizeof payload};
        struct gf_get get = {.at = payload};
        for (uint32_t word = 0; word < 4; word++) gf_put_u64(&put, 0);
        gf_put_u32(&put, 0);
        gf_put_u32(&put, GF_RANK_NONE);
        gf_put_u32(&put, 0);
        gf_put_u32(&put, 1); /* there is one */
        gf_put_u32(&put, (uint32_t)rows[i].code);
        gf_put_u32(&put, rows[i].peer);
        gf_put_u64(&put, 0);
        gf_put_bytes(&put, rest, sizeof rest);
        get.left = (uint32_t)(sizeof payload - put.left);
        if (gf_members_waits_get(world.ranks[0].members, &get, &waits) != rows[i].valid)
            fail_msg("row %zu: code %d, peer %u", i, rows[i].code, rows[i].peer);
    }
    members_world_end();
}

TEST(who_is_behind_by_an_epoch_learns_of_it)
{
    static const struct {
        struct report report;
        view_state state;
        uint32_t epoch;
    } rows[] = {
        {{3, 1, 2, 0x3, 0, 0, 0}, VIEW_COLLECT, 2},
        {{3, 1, 3, 0x3, 0, 0, 0}, VIEW_FAILED, 1}}; /* it could not have been of the one between */
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct gf_members *members = collector();
        assert_true(report_take(1, &rows[i].report));
        assert_int_equal(members->view.state, rows[i].state);
        assert_int_equal(members->view.epoch.epoch, rows[i].epoch);
        members_world_end();
    }
}

/* ---- lists, errors, addresses ---- */

TEST(a_list_has_its_first)
{
    static const struct {
        uint32_t epoch, first, bits;
        bool valid;
    } rows[] = {{2, 1, 0x3, true},
                {2, 2, 0x3, false},
                {2, 3, 0x7, false},
                {2, 8192, 0x7, false},
                {0, 77, 0x3, true}};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        unsigned char bytes[64] = {0};
        struct gf_put put = {bytes, sizeof bytes};
        struct members_list list = {
            .epoch = rows[i].epoch, .first = rows[i].first, .bits = {(unsigned char)rows[i].bits}};
        struct gf_get get = {.at = bytes, .left = sizeof bytes};
        gf_view_list_walk(&(struct gf_walk){.put = &put}, &list, 3);
        gf_view_list_walk(&(struct gf_walk){.get = &get}, &list, 3);
        assert_int_equal(!get.bad, rows[i].valid);
    }
}

/* An error whose code is none would leave a failed rank without one. */
TEST(an_error_has_a_code)
{
    static const int32_t codes[] = {GF_ERR_PEER, 0, 1, 77};
    for (size_t i = 0; i < LENGTH(codes); i++) {
        unsigned char bytes[512] = {0};
        struct gf_put put = {bytes, sizeof bytes};
        struct gf_get get = {.at = bytes};
        struct gf_error error = {.code = GF_OK};
        gf_put_u32(&put, (uint32_t)codes[i]);
        gf_put_u32(&put, 1);
        gf_put_u32(&put, 0);
        gf_put_u32(&put, 0);
        gf_put_u64(&put, 3);
        gf_put_u64(&put, 0);
        gf_put_text(&put, "", 40);
        gf_put_text(&put, "x", 256);
        get.left = (uint32_t)(sizeof bytes - put.left);
        gf_members_error_get(&get, &error);
        assert_int_equal(get.bad, codes[i] >= 0);
        assert_int_equal(error.code, (codes[i] < 0) ? codes[i] : GF_OK);
    }
}

/* Of a rank whose address fills its place. */
TEST(an_address_ends_in_its_place)
{
    members_world_open(3, false, 0);
    members_world_until(GF_OK);
    struct gf_members *members = world.ranks[0].members;
    memset(members_endpoint_at(members, 1), 'x', GF_CONTROL_ADDRESS_BYTES);
    gf_view_epoch_begun(members);
    assert_int_equal(strnlen(members->table[1].address, GF_CONTROL_ADDRESS_BYTES),
                     GF_CONTROL_ADDRESS_BYTES - 1);
    members_world_end();
}

/* Rank `to` of three, which hears of `size` bytes of rank `of`, `piece` of them at `at`, from rank
 * `from`. */
TEST(an_address_comes_in_order_and_whole)
{
    static const struct {
        const char *name;
        uint32_t to, from, of, size, at, piece, have, of_size;
        bool valid;
    } rows[] = {
        {"valid", 0, 1, 1, 100, 0, 100, 0, 0, true},
        {"its_second_part", 0, 1, 1, 100, 40, 60, 40, 100, true},
        {"this_ranks_own_comes_back", 1, 0, 1, 100, 0, 100, 50, 100, true},
        {"of_somebody_else", 0, 1, 2, 100, 0, 100, 0, 0, false},
        {"all_come_from_the_coordinator", 1, 0, 2, 100, 0, 100, 0, 0, true},
        {"not_from_another", 1, 2, 2, 100, 0, 100, 0, 0, false},
        {"of_no_rank", 1, 0, 3, 100, 0, 100, 0, 0, false},
        {"larger_than_any", 0, 1, 1, ENDPOINT_MAX + GF_CONTROL_ADDRESS_BYTES + 1, 0, 100, 0, 0,
         false},
        {"out_of_order", 0, 1, 1, 100, 60, 40, 40, 100, false},
        {"beyond_its_end", 0, 1, 1, 100, 40, 61, 40, 100, false},
        {"a_size_that_wraps", 0, 1, 1, 100, 40, UINT32_MAX, 40, 100, false},
        {"cut_short", 0, 1, 1, ENDPOINT_MAX, 0, ENDPOINT_MAX, 0, 0, false}, /* 8 bytes follow */
        {"another_size_than_before", 0, 1, 1, 101, 40, 60, 40, 100, false},
        {"too_short_for_an_address", 0, 1, 1, GF_CONTROL_ADDRESS_BYTES - 1, 0,
         GF_CONTROL_ADDRESS_BYTES - 1, 0, 0, false},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        static unsigned char bytes[ENDPOINT_MAX];
        struct gf_put put = {bytes, sizeof bytes};
        struct gf_get get = {.at = bytes};
        members_world_open(3, false, 0);
        members_world_until(GF_OK);
        struct gf_members *members = world.ranks[rows[i].to].members;
        if (rows[i].of < 3) {
            members->table[rows[i].of].said.endpoint_have = rows[i].have;
            members->table[rows[i].of].said.endpoint_bytes = rows[i].of_size;
        }
        gf_put_u32(&put, rows[i].of);
        gf_put_u32(&put, rows[i].size);
        gf_put_u32(&put, rows[i].at);
        gf_put_u32(&put, rows[i].piece);
        get.left = 16 + ((rows[i].piece < sizeof bytes) ? rows[i].piece : 8);
        bool valid = gf_members_endpoints_take(members, rows[i].from, &get);
        if (valid != rows[i].valid) print_error("%s\n", rows[i].name);
        assert_int_equal(valid, rows[i].valid);
        members_world_end();
    }
}

TEST_EACH(NULL, members_world_end)
