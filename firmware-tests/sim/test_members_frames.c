/* Frames of peers that are late, of another try, or wrong: each guard has a row that fails without it. What is refused
 * changes nothing. */
#include "firmware-tests/support/suite.h"
#include "lib/membership/members_state.h"
#include "firmware-tests/support/members_world.h"

static const struct gf_error fell = {.code = GF_ERR_DEVICE, .peer = GF_RANK_NONE, .text = "out of memory"};
static const struct gf_members_standing own = {.steps = 4, .applied = 1};

/* ---- proposals ---- */

static void proposal_send(uint32_t from, int32_t code, uint32_t epoch, uint32_t bits)
{
    unsigned char payload[256];
    struct gf_put put = {payload, sizeof payload};
    struct members_list list = {.epoch = epoch, .first = 0, .bits = {(unsigned char)bits}};
    struct gf_get get = {.at = payload};
    gf_put_u32(&put, (uint32_t)code);
    gf_put_u32(&put, epoch);
    gf_put_u32(&put, 0);
    gf_put_u32(&put, 0);
    gf_put_u32(&put, 1);
    gf_put_u64(&put, 4);
    gf_put_u64(&put, 0);
    gf_members_list_put(&put, &list, 3);
    gf_put_text(&put, "", 160);
    get.left = (uint32_t)(sizeof payload - put.left);
    assert_true(gf_members_shrink_frame(world.ranks[1].members, from, MEMBERS_PROPOSE, &get));
}

/* Rank 2 fails in epoch 1 of three ranks; rank 1 seeks the next epoch at rank 0, or has not begun to. */
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
    gf_members_shrink(members, world.now_ns, 2, &own, SECOND);
    assert_int_equal(gf_members_shrink_poll(members, world.now_ns, &plan), GF_AGAIN);
    return members;
}

TEST(a_proposal_counts_from_the_coordinator_of_this_try_alone)
{
    static const struct {
        const char *name;
        uint32_t from, epoch, bits, epoch_last;
        gf_status status;
    } rows[] = {
        {"valid", 0, 2, 0x3, 1, GF_OK},
        {"of_another_rank", 2, 2, 0x3, 1, GF_AGAIN},
        {"of_a_try_that_was_left", 0, 2, 0x3, 2, GF_AGAIN},
        {"without_this_rank", 0, 2, 0x5, 1, GF_ERR_QUORUM},
        {"without_this_rank_of_an_older_epoch", 0, 0, 0x5, 1, GF_AGAIN},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct gf_members *members = survivor(true);
        struct gf_members_plan plan = {0};
        gf_status status;
        members->shrink.epoch_last = rows[i].epoch_last;
        proposal_send(rows[i].from, GF_OK, rows[i].epoch, rows[i].bits);
        status = gf_members_shrink_poll(members, world.now_ns, &plan);
        if (status != rows[i].status) print_error("%s: %s\n", rows[i].name, gf_status_name(status));
        assert_int_equal(status, rows[i].status);
        assert_int_equal(members->shrink.prepared.epoch, (status == GF_OK) ? 2 : 0);
        members_world_end();
    }
}

/* Also with a code that is none: it ends with an error. */
TEST(a_refusal_ends_with_its_code_or_for_want_of_a_quorum)
{
    static const struct { int32_t code; gf_status status; } rows[] = {
        {GF_ERR_DATA, GF_ERR_DATA}, {GF_ERR_QUORUM, GF_ERR_QUORUM}, {1, GF_ERR_QUORUM}, {77, GF_ERR_QUORUM}};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct gf_members *members = survivor(true);
        struct gf_members_plan plan = {0};
        proposal_send(0, rows[i].code, 2, 0x7);
        assert_int_equal(gf_members_shrink_poll(members, world.now_ns, &plan), rows[i].status);
        assert_string_equal(members->error.text, "the coordinator gave no reason");
        members_world_end();
    }
}

TEST(a_member_hears_no_proposal)
{
    members_world_open_epoch(3, 1);
    members_world_until(GF_OK);
    proposal_send(0, GF_OK, 2, 0x3);
    assert_int_equal(gf_members_poll(world.ranks[1].members, world.now_ns), GF_OK);
    assert_int_equal(world.ranks[1].members->shrink.prepared.epoch, 0);
    members_world_end();
}

/* The others may have gone on before it shrinks: its error stays, and the shrink says so. The first such word counts.
 * */
TEST(who_has_failed_and_is_left_behind_keeps_its_error)
{
    struct gf_members *members = survivor(false);
    proposal_send(0, GF_OK, 2, 0x5);
    proposal_send(0, GF_OK, 3, 0x5);
    assert_int_equal(gf_members_poll(members, world.now_ns), GF_ERR_PEER);
    assert_int_equal(error_of(1)->code, GF_ERR_PEER);
    assert_non_null(strstr(error_of(1)->text, "out of memory"));
    gf_members_shrink(members, world.now_ns, 2, &own, SECOND);
    assert_int_equal(error_of(1)->code, GF_ERR_QUORUM);
    assert_non_null(strstr(error_of(1)->text, "went on without rank 1: epoch 1 is closed, epoch 2 has begun"));
    members_world_end();
}

/* ---- reports ---- */

struct report {
    uint32_t seat_count, epoch_last, base, prepared, dead;
};

static bool report_take(uint32_t from, const struct report *report)
{
    unsigned char payload[256];
    struct gf_put put = {payload, sizeof payload};
    struct members_list base = {.epoch = report->base, .bits = {0x7}};
    struct members_list prepared = {.epoch = report->prepared, .bits = {(unsigned char)(report->prepared ? 0x7 : 0)}};
    struct members_list dead = {.bits = {(unsigned char)report->dead}};
    struct gf_get get = {.at = payload};
    gf_put_u32(&put, report->seat_count);
    gf_put_u32(&put, report->epoch_last);
    gf_put_u32(&put, 1);
    gf_put_u64(&put, 4);
    gf_put_u64(&put, 0);
    gf_members_list_put(&put, &base, 3);
    gf_members_list_put(&put, &prepared, 3);
    gf_members_list_put(&put, &dead, 3);
    get.left = (uint32_t)(sizeof payload - put.left);
    return gf_members_shrink_frame(world.ranks[0].members, from, MEMBERS_REPORT, &get);
}

/* Rank 0 collects, rank 1 is connected, rank 2 is gone. */
static struct gf_members *collector(void)
{
    struct gf_members_plan plan = {0};
    (void)survivor(false);
    world.ranks[2].stopped = true;
    fake_cut(&fake, 2, "timed out");
    gf_members_shrink(world.ranks[0].members, world.now_ns, GF_RANK_NONE, &own, SECOND);
    assert_int_equal(gf_members_shrink_poll(world.ranks[0].members, world.now_ns, &plan), GF_AGAIN);
    assert_true(world.ranks[0].members->seats[1].up);
    assert_false(world.ranks[0].members->seats[2].up);
    world.ranks[0].members->seats[2].dead = false;
    return world.ranks[0].members;
}

TEST(a_report_counts_where_it_fits)
{
    static const struct {
        const char *name;
        struct report report;
        bool valid, reported;
        uint32_t dead; /* then */
    } rows[] = {
        {"valid", {3, 1, 1, 0, 0}, true, true, 0},
        {"of_another_world", {4, 1, 1, 0, 0}, false, false, 0},
        {"of_who_never_joined", {3, 1, 0, 0, 0}, true, false, 0},
        {"says_who_is_dead", {3, 1, 1, 0, 0x4}, true, true, 0x4},
        {"says_that_the_connected_are_dead", {3, 1, 1, 0, 0x2}, true, true, 0},
        {"says_that_the_collector_is_dead", {3, 1, 1, 0, 0x1}, true, true, 0},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct gf_members *members = collector();
        uint32_t dead = 0;
        bool valid = report_take(1, &rows[i].report);
        for (uint32_t seat = 0; seat < 3; seat++) dead |= (members->seats[seat].dead ? 1u : 0u) << seat;
        if ((valid != rows[i].valid) || (dead != rows[i].dead)) print_error("%s\n", rows[i].name);
        assert_int_equal(valid, rows[i].valid);
        assert_int_equal(members->seats[1].reported, rows[i].reported);
        assert_int_equal(dead, rows[i].dead);
        members_world_end();
    }
}

/* Epochs are numbered upwards: behind the last number there is none. */
TEST(the_numbers_of_epochs_can_be_used_up)
{
    const struct report report = {3, UINT32_MAX, 1, 0, 0x4};
    struct gf_members_plan plan = {0};
    struct gf_members *members = collector();
    assert_true(report_take(1, &report));
    world.now_ns += 2 * SECOND;
    assert_int_equal(gf_members_shrink_poll(members, world.now_ns, &plan), GF_ERR_PEER);
    assert_non_null(strstr(members->error.text, "used up the numbers of epochs"));
    members_world_end();
}

/* More proposals that may have begun elsewhere than are kept: no quorum can be counted. */
TEST(too_many_open_proposals_leave_no_quorum)
{
    for (uint32_t more = 0; more < 2; more++) {
        struct gf_members *members = collector();
        struct gf_members_plan plan = {0};
        for (uint32_t n = 0; n < MEMBERS_PREPARED_MAX + more; n++) {
            const struct report report = {3, 9, 1, 2 + n, 0x4};
            assert_true(report_take(1, &report));
        }
        world.now_ns += 2 * SECOND;
        assert_int_equal(gf_members_shrink_poll(members, world.now_ns, &plan), (more == 0) ? GF_OK : GF_ERR_QUORUM);
        members_world_end();
    }
}

/* ---- knocks ---- */

TEST(who_knocks_is_let_wait_where_all_fits)
{
    static const struct {
        const char *name;
        bool joins, begun, leaves;
        uint32_t seat_count, epoch_last;
        bool same, valid, waits;
    } rows[] = {
        {"valid", true, true, false, 3, 7, true, true, true},
        {"a_connection_that_did_not_say_so", false, true, false, 3, 7, true, false, false},
        {"told_of_another_world", true, true, false, 4, 7, true, true, false},
        {"before_the_job_has_begun", true, false, false, 3, 7, true, true, false},
        {"while_the_job_ends", true, true, true, 3, 7, true, true, false},
        {"given_other_things", true, true, false, 3, 7, false, true, false},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        unsigned char payload[1024];
        struct gf_put put = {payload, sizeof payload};
        struct gf_get get = {.at = payload};
        members_world_open_epoch(3, 1);
        members_world_until(GF_OK);
        struct gf_members *members = world.ranks[0].members, *other = world.ranks[1].members;
        if (!rows[i].same) other->setup.offer.config_hash++;
        if (!rows[i].begun) members->shrink.base.epoch = 0;
        members->leaving = rows[i].leaves;
        members->seats[1].joins = rows[i].joins;
        members->seats[1].reported = false;
        gf_put_u32(&put, rows[i].seat_count);
        gf_put_u32(&put, rows[i].epoch_last);
        gf_members_offer_put(&put, other);
        get.left = (uint32_t)(sizeof payload - put.left);
        bool valid = gf_members_shrink_frame(members, 1, MEMBERS_KNOCK, &get);
        if ((valid != rows[i].valid) || (members->seats[1].reported != rows[i].waits))
            print_error("%s\n", rows[i].name);
        assert_int_equal(valid, rows[i].valid);
        assert_int_equal(members->seats[1].reported, rows[i].waits);
        if (rows[i].waits) assert_int_equal(members->shrink.epoch_last, 7); /* the next epoch is above */
        members_world_end();
    }
}

/* ---- lists, errors, addresses ---- */

TEST(a_list_has_its_first)
{
    static const struct { uint32_t epoch, first, bits; bool valid; } rows[] = {
        {2, 1, 0x3, true}, {2, 2, 0x3, false}, {2, 3, 0x7, false}, {2, 8192, 0x7, false}, {0, 77, 0x3, true}};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        unsigned char bytes[64] = {0};
        struct gf_put put = {bytes, sizeof bytes};
        struct members_list list = {.epoch = rows[i].epoch, .first = rows[i].first,
                                    .bits = {(unsigned char)rows[i].bits}};
        struct gf_get get = {.at = bytes, .left = sizeof bytes};
        gf_members_list_put(&put, &list, 3);
        assert_int_equal(gf_members_list_get(&get, 3, &list), rows[i].valid);
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

/* Rank `to` of three, which hears of `size` bytes of rank `of`, `piece` of them at `at`, from rank `from`. */
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
        {"larger_than_any", 0, 1, 1, ENDPOINT_MAX + GF_CONTROL_ADDRESS_BYTES + 1, 0, 100, 0, 0, false},
        {"out_of_order", 0, 1, 1, 100, 60, 40, 40, 100, false},
        {"beyond_its_end", 0, 1, 1, 100, 40, 61, 40, 100, false},
        {"another_size_than_before", 0, 1, 1, 101, 40, 60, 40, 100, false},
        {"too_short_for_an_address", 0, 1, 1, GF_CONTROL_ADDRESS_BYTES - 1, 0, GF_CONTROL_ADDRESS_BYTES - 1,
         0, 0, false},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        static unsigned char bytes[ENDPOINT_MAX];
        struct gf_put put = {bytes, sizeof bytes};
        struct gf_get get = {.at = bytes};
        members_world_open(3, false, 0);
        members_world_until(GF_OK);
        struct gf_members *members = world.ranks[rows[i].to].members;
        if (rows[i].of < 3) {
            members->peers[rows[i].of].endpoint_have = rows[i].have;
            members->peers[rows[i].of].endpoint_bytes = rows[i].of_size;
        }
        gf_put_u32(&put, rows[i].of);
        gf_put_u32(&put, rows[i].size);
        gf_put_u32(&put, rows[i].at);
        gf_put_u32(&put, rows[i].piece);
        get.left = 16 + rows[i].piece;
        bool valid = gf_members_endpoints_take(members, rows[i].from, &get);
        if (valid != rows[i].valid) print_error("%s\n", rows[i].name);
        assert_int_equal(valid, rows[i].valid);
        members_world_end();
    }
}
