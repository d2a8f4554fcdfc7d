/* What a member says to its coordinator, word by word: the rows play the coordinator, and each row
 * says all that is heard. */
#include "firmware-tests/support/suite.h"
#include "gradientflow.h"
#include "drivers/link.h"
#include "firmware-tests/support/control_words.h"
#include "lib/control/member_state.h"

#define SECOND (1000 * CONTROL_MS)

static struct control_world world;
static struct gf_member *member;

/* The coordinator hears exactly that since the last call. */
static void heard_at(const char *file, int line, const char *text)
{
    const char *heard = control_words_heard(&world.channel);
    if (strcmp(heard, text) != 0)
        fail_msg("%s:%d: heard \"%s\", not \"%s\"", file, line, heard, text);
}
#define heard(text) heard_at(__FILE__, __LINE__, text)

static void turn(void)
{
    world.procs[0].now_ns += 5 * CONTROL_MS;
    (void)gf_member_poll(member, world.procs[0].now_ns);
}

static void spend(uint64_t for_ns)
{
    for (uint64_t spent_ns = 0; spent_ns < for_ns; spent_ns += 5 * CONTROL_MS) turn();
}

/* A member of three, that the coordinator hosted by `host_id` has not heard of. */
static void open_hosted(uint32_t host_id)
{
    control_world_open_hosted(&world, 3, 1, host_id);
    for (uint32_t id = 1; id < 3; id++) control_world_kill(&world, id);
    world.is_stopped = true;
    member = world.procs[0].member;
    turn(); /* it dials, */
    turn(); /* and is connected */
}

static void say_list(uint32_t number, uint32_t rank, uint32_t of)
{
    unsigned char payload[64];
    struct gf_put put = {payload, sizeof payload};
    struct control_list list = {.number = number, .rank = rank, .world = of};
    gf_frame_list_walk(&(struct gf_walk){.put = &put}, &list);
    control_words_send(&world, 0, CONTROL_LIST, payload, sizeof payload - put.left);
    turn();
}

static void say_go(uint32_t number, uint32_t of)
{
    unsigned char payload[256];
    struct gf_put put = {payload, sizeof payload};
    struct control_go go = {.number = number};
    gf_frame_go_walk(&(struct gf_walk){.put = &put}, &go);
    for (uint32_t rank = 0; rank < of; rank++) {
        struct control_piece piece = {.rank = rank, .total = 8, .bytes = 8};
        gf_frame_piece_walk(&(struct gf_walk){.put = &put}, &piece);
        gf_put_u64(&put, 100 + rank); /* its process, in this world */
    }
    control_words_send(&world, 0, CONTROL_GO, payload, sizeof payload - put.left);
    turn();
}

static void say_waiting(uint32_t count)
{
    unsigned char payload[256];
    struct gf_put put = {payload, sizeof payload};
    struct control_waiting waiting = {.number = 1, .count = count, .awaited = GF_RANK_NONE};
    gf_frame_waiting_walk(&(struct gf_walk){.put = &put}, &waiting);
    control_words_send(&world, 0, CONTROL_WAITING, payload, sizeof payload - put.left);
    turn();
}

static void say_ask(uint32_t inquiry)
{
    unsigned char payload[8];
    struct gf_put put = {payload, sizeof payload};
    gf_put_u32(&put, inquiry);
    control_words_send(&world, 0, CONTROL_ASK, payload, sizeof payload - put.left);
    turn();
}

static void say_error(bool may_go_on)
{
    unsigned char payload[512];
    struct gf_put put = {payload, sizeof payload};
    struct control_finding finding = {
        .may_go_on = may_go_on,
        .error = {.code = GF_ERR_PEER, .peer = 2, .tensor = GF_TENSOR_NONE, .text = "rank 2 died"}};
    gf_frame_finding_walk(&(struct gf_walk){.put = &put}, &finding);
    control_words_send(&world, 0, CONTROL_ERROR, payload, sizeof payload - put.left);
    turn();
}

static void say_closed(uint32_t rank, uint64_t step)
{
    unsigned char payload[16];
    struct gf_put put = {payload, sizeof payload};
    struct control_closed closed = {.rank = rank, .step = step};
    gf_frame_closed_walk(&(struct gf_walk){.put = &put}, &closed);
    control_words_send(&world, 0, CONTROL_CLOSED, payload, sizeof payload - put.left);
    turn();
}

static void say_all_gone(void)
{
    control_words_send(&world, 0, CONTROL_ALL_GONE, "", 0);
    turn();
}

static void say_refused(gf_status code, bool may_retry, uint32_t peer)
{
    unsigned char payload[512];
    struct gf_put put = {payload, sizeof payload};
    struct control_refusal refusal = {
        .code = (uint32_t)code, .may_retry = may_retry, .peer = peer, .text = "it is in use"};
    gf_frame_refusal_walk(&(struct gf_walk){.put = &put}, &refusal);
    control_words_send(&world, 0, CONTROL_REFUSED, payload, sizeof payload - put.left);
    turn();
}

static void endpoint_set(void)
{
    struct gf_generation listed;
    assert_true(gf_member_list_due(member, &listed));
    gf_member_endpoint_set(member, "12345678", 8);
    assert_false(gf_member_list_due(member, &listed));
    turn();
}

static void begin_hosted(uint32_t host_id)
{
    open_hosted(host_id);
    say_waiting(0);
    say_list(1, 0, 3);
    endpoint_set();
    say_go(1, 3);
    assert_int_equal(gf_member_current_state(member), GF_MEMBER_WORKS);
    (void)control_words_heard(&world.channel);
}

static void begin(void)
{
    begin_hosted(GF_RANK_NONE);
}

/* Its connection breaks, and it has dialled again. */
static void breaks(void)
{
    control_world_cut(&world, 0);
    turn();
    (void)control_words_heard(&world.channel);
    spend(110 * CONTROL_MS);
}

static void say_fault(bool ends)
{
    static const struct gf_error seen = {.code = GF_ERR_TIMEOUT,
                                         .peer = GF_RANK_NONE,
                                         .tensor = GF_TENSOR_NONE,
                                         .text = "it stands"};
    gf_member_fault(member, &seen, ends);
}

static void say_ready(bool planned, bool leaves)
{
    struct control_ready ready = {.planned = planned, .leaves = leaves, .progress = {.steps = 5}};
    gf_member_ready(member, &ready);
}

static void state_is(gf_member_state state)
{
    assert_int_equal(gf_member_current_state(member), state);
}

TEST(it_joins)
{
    open_hosted(GF_RANK_NONE);
    heard("offer 0 generation 0 rank 0 of 0 said 0 listed 0");
    say_waiting(0);
    heard("");
    say_list(1, 0, 3);
    heard("");
    endpoint_set();
    heard("endpoint of 1 rank 0");
    say_go(2, 3); /* of no list that it knows */
    state_is(GF_MEMBER_LISTED);
    say_go(1, 3);
    state_is(GF_MEMBER_WORKS);
    heard("status 0 of 1 step 0 sequence 0 patience 0 edges 0");
    control_world_close(&world);
}

TEST(it_offers_itself_again_and_says_where_it_stands)
{
    open_hosted(GF_RANK_NONE);
    heard("offer 0 generation 0 rank 0 of 0 said 0 listed 0");
    breaks();
    heard("offer 0 generation 0 rank 0 of 0 said 0 listed 0");
    say_list(1, 0, 3);
    breaks(); /* before its endpoint is set */
    heard("offer 0 generation 0 rank 0 of 0 said 0 listed 1");
    endpoint_set();
    heard("endpoint of 1 rank 0");
    breaks();
    heard("offer 0 generation 0 rank 0 of 0 said 0 listed 1; endpoint of 1 rank 0");
    say_list(1, 0, 3); /* said again */
    heard("endpoint of 1 rank 0");
    say_go(1, 3);
    state_is(GF_MEMBER_WORKS);
    breaks();
    heard("offer 0 generation 1 rank 0 of 3 said 0 listed 1");
    say_ask(3);
    heard("position 3 of 1 step 0 sequence 0 patience 0 edges 0");
    say_fault(false);
    heard("fault of 1 code -6 peer -1 edges 0");
    breaks();
    heard("offer 0 generation 1 rank 0 of 3 said 1 listed 1; fault of 1 code -6 peer -1 edges 0");
    say_error(true);
    heard("");
    breaks();
    heard("offer 0 generation 1 rank 0 of 3 said 1 listed 1");
    say_ready(false, false);
    heard("ready of 1 steps 5");
    breaks();
    heard("offer 0 generation 1 rank 0 of 3 said 2 listed 1; ready of 1 steps 5");
    say_list(2, 0, 2);
    endpoint_set();
    heard("endpoint of 2 rank 0");
    breaks();
    heard("offer 0 generation 1 rank 0 of 3 said 2 listed 2; endpoint of 2 rank 0; ready of 1 "
          "steps 5");
    say_go(2, 2); /* it has said neither list nor endpoint on this connection */
    state_is(GF_MEMBER_WORKS);
    gf_member_bye(member);
    heard("status 0 of 2 step 0 sequence 0 patience 0 edges 0; status 0 of 2 step 0 sequence 0 "
          "patience 0 edges 0; bye of 2 step 0");
    state_is(GF_MEMBER_CLOSING);
    say_all_gone();
    state_is(GF_MEMBER_GONE);
    control_world_close(&world);
}

TEST(a_question_is_of_its_connection)
{
    begin();
    world.room = 1;
    say_fault(false); /* fills it */
    say_ask(1);
    world.room = 0;
    breaks();
    heard("offer 0 generation 1 rank 0 of 3 said 1 listed 1; fault of 1 code -6 peer -1 edges 0");
    control_world_close(&world);
}

TEST(it_says_where_it_is)
{
    begin();
    spend(SECOND);
    heard("status 0 of 1 step 0 sequence 0 patience 0 edges 0; status 0 of 1 step 0 sequence 0 "
          "patience 0 edges 0");
    gf_member_report(member)->step = 1;
    turn();
    heard("status 0 of 1 step 1 sequence 0 patience 0 edges 0");
    gf_member_report(member)->step = 2;
    turn();
    heard("");
    spend(110 * CONTROL_MS);
    heard("status 0 of 1 step 2 sequence 0 patience 0 edges 0");
    gf_member_call(member, GF_OPERATION_ALLREDUCE, GF_TYPE_F32, 0, 10);
    spend(110 * CONTROL_MS);
    heard("status 0 of 1 step 2 sequence 0 patience 0 edges 0");
    control_world_close(&world);
}

/* Its next report says that it has waited for nobody for so long. */
static void free_is(uint64_t least_ms, uint64_t most_ms)
{
    struct gf_channel_event event = {0};
    struct control_report report = {0};
    (void)control_words_heard(&world.channel);
    gf_member_report(member)->sequence++;
    spend(110 * CONTROL_MS);
    while ((event.frame_kind != CONTROL_STATUS) || (event.kind != GF_CHANNEL_FRAME))
        assert_true(world.channel.driver->poll(&world.channel, 0, &event));
    struct gf_get get = {.at = event.payload, .left = event.size_bytes};
    (void)gf_get_u32(&get);
    gf_frame_report_walk(&(struct gf_walk){.get = &get}, &report);
    uint64_t free_ms = report.free_ns / CONTROL_MS;
    if ((free_ms < least_ms) || (free_ms > most_ms))
        fail_msg("%u ms, not %u to %u", (unsigned)free_ms, (unsigned)least_ms, (unsigned)most_ms);
}

/* From the begin of its generation on, and only while it is polled: it may be stopped. */
TEST(it_says_for_how_long_it_has_waited_for_nobody)
{
    open_hosted(GF_RANK_NONE);
    world.procs[0].now_ns += 3 * SECOND;
    say_waiting(0);
    say_list(1, 0, 3);
    endpoint_set();
    spend(2 * SECOND); /* it waits for GO */
    say_go(1, 3);
    free_is(0, 120);
    spend(500 * CONTROL_MS);
    free_is(600, 740);
    world.procs[0].now_ns += 3 * SECOND;
    free_is(950, 1110);
    gf_member_report(member)->waits_for = 1;
    turn();
    gf_member_report(member)->waits_for = GF_RANK_NONE;
    free_is(0, 120);
    control_world_close(&world);
}

TEST(a_heartbeat_is_told)
{
    begin();
    spend(200 * CONTROL_MS);
    heard("");
    gf_member_heartbeat(member, world.procs[0].now_ns, SECOND);
    heard("status 0 of 1 step 0 sequence 0 patience 1000 edges 0");
    spend(90 * CONTROL_MS);
    gf_member_heartbeat(member, world.procs[0].now_ns, 9 * SECOND);
    heard("");
    spend(20 * CONTROL_MS);
    heard("status 0 of 1 step 0 sequence 0 patience 1985 edges 0");
    gf_member_report(member)->sequence = 1; /* what it was for has come */
    spend(110 * CONTROL_MS);
    heard("status 0 of 1 step 0 sequence 1 patience 0 edges 0");
    say_fault(false);
    heard("fault of 1 code -6 peer -1 edges 0");
    gf_member_heartbeat(member, world.procs[0].now_ns + SECOND, SECOND);
    heard("");
    control_world_close(&world);
}

TEST(words_that_it_does_not_await_change_nothing)
{
    begin();
    say_go(1, 3); /* it has begun */
    say_list(2, 0, 3);
    say_go(2, 3);
    say_all_gone();
    say_closed(7, 1);
    assert_null(gf_member_closed(member));
    state_is(GF_MEMBER_WORKS);
    heard("");
    say_ready(true, false);
    say_list(1, 0, 3); /* of the generation that it is of */
    say_error(true);   /* the list changes, and nothing else */
    say_all_gone();
    state_is(GF_MEMBER_READY);
    heard("ready of 1 steps 5 planned");
    say_list(2, 1, 2);
    state_is(GF_MEMBER_LISTED);
    say_list(3, 0, 1); /* another list, before it has set its endpoint */
    state_is(GF_MEMBER_LISTED);
    heard("");
    endpoint_set();
    heard("endpoint of 3 rank 0");
    say_go(2, 2);
    state_is(GF_MEMBER_LISTED);
    say_go(3, 1);
    state_is(GF_MEMBER_WORKS);
    assert_int_equal(gf_member_generation(member)->number, 3);
    assert_false(gf_member_is_found(member));
    control_world_close(&world);
}

TEST(one_that_leaves_may_go_at_once)
{
    begin();
    say_ready(true, true);
    heard("ready of 1 steps 5 planned leaves");
    say_list(2, 0, 2);
    say_all_gone();
    state_is(GF_MEMBER_GONE);
    control_world_close(&world);
}

TEST(a_finding_ends_whom_it_says)
{
    begin();
    gf_member_report(member)->step = 7;
    gf_member_report(member)->operation = GF_OPERATION_ALLREDUCE;
    say_error(false);
    state_is(GF_MEMBER_ENDED);
    assert_int_equal(gf_member_error(member)->code, GF_ERR_PEER);
    assert_int_equal(gf_member_error(member)->peer, 2);
    assert_int_equal(gf_member_error(member)->step, 7); /* that one is not ended */
    assert_int_equal(gf_member_error(member)->operation, GF_OPERATION_ALLREDUCE);
    assert_false(gf_member_is_lost(member));
    assert_true(gf_member_is_found(member));
    control_world_close(&world);
    begin();
    say_fault(true);
    assert_true(gf_member_has_ended(member));
    say_error(true); /* it has given up all the same, for its own error */
    state_is(GF_MEMBER_ENDED);
    assert_int_equal(gf_member_error(member)->code, GF_ERR_TIMEOUT);
    control_world_close(&world);
    begin();
    say_ready(false, false);
    say_error(false);
    state_is(GF_MEMBER_ENDED);
    control_world_close(&world);
    begin();
    gf_member_bye(member);
    say_error(true);
    state_is(GF_MEMBER_CLOSING);
    say_error(false);
    state_is(GF_MEMBER_GONE);
    control_world_close(&world);
}

TEST(a_refusal_ends_it_unless_it_may_try_again)
{
    open_hosted(GF_RANK_NONE);
    say_refused(GF_ERR_STATE, true, GF_RANK_NONE);
    state_is(GF_MEMBER_JOINING);
    say_refused(GF_OK, true, GF_RANK_NONE); /* no code of an end */
    state_is(GF_MEMBER_ENDED);
    assert_int_equal(gf_member_error(member)->code, GF_ERR_PEER);
    control_world_close(&world);
    open_hosted(GF_RANK_NONE);
    say_refused(GF_ERR_MISMATCH, false, 2);
    state_is(GF_MEMBER_ENDED);
    assert_int_equal(gf_member_error(member)->code, GF_ERR_MISMATCH);
    assert_int_equal(gf_member_error(member)->peer, 2);
    assert_string_equal(gf_member_error(member)->text, "it is in use");
    assert_true(gf_member_is_lost(member));
    control_world_close(&world);
    open_hosted(GF_RANK_NONE);
    say_refused(GF_ERR_MISMATCH, true, 3); /* there is no such rank */
    state_is(GF_MEMBER_ENDED);
    assert_non_null(strstr(gf_member_error(member)->text, "malformed"));
    control_world_close(&world);
}

/* In each state: after how long of silence it gives the coordinator up; 0: never. */
static const struct silence_row {
    const char *name;
    uint32_t state; /* a gf_member_state */
    bool is_found;
    bool is_cut;
    uint64_t least_ns, most_ns;
    gf_member_state end;
    gf_status code;
} silence_rows[] = {
    {"it joins, and was told so", GF_MEMBER_JOINING, false, false, 3900, 4100, GF_MEMBER_ENDED,
     GF_ERR_PEER},
    {"it works", GF_MEMBER_WORKS, false, false, 0, 0, GF_MEMBER_WORKS, GF_OK},
    {"it works, and is cut off", GF_MEMBER_WORKS, false, true, 7900, 8300, GF_MEMBER_ENDED,
     GF_ERR_PEER},
    {"it has failed", GF_MEMBER_FAILED, false, false, 3900, 4100, GF_MEMBER_ENDED, GF_ERR_PEER},
    {"what it failed for is found", GF_MEMBER_FAILED, true, false, 0, 0, GF_MEMBER_FAILED,
     GF_ERR_PEER},
    {"it is ready", GF_MEMBER_READY, false, false, 3900, 4100, GF_MEMBER_ENDED, GF_ERR_PEER},
    {"it is listed", GF_MEMBER_LISTED, false, false, 3900, 4100, GF_MEMBER_ENDED, GF_ERR_PEER},
    {"it closes", GF_MEMBER_CLOSING, false, false, 3900, 4100, GF_MEMBER_GONE, GF_OK},
};

static void silence_begin(const struct silence_row *row)
{
    if (row->state == GF_MEMBER_JOINING) {
        open_hosted(GF_RANK_NONE);
        say_waiting(0);
        return;
    }
    begin();
    if (row->state == GF_MEMBER_FAILED) say_fault(false);
    if (row->is_found) say_error(true);
    if ((row->state == GF_MEMBER_READY) || (row->state == GF_MEMBER_LISTED)) say_ready(true, false);
    if (row->state == GF_MEMBER_LISTED) say_list(2, 0, 2);
    if (row->state == GF_MEMBER_CLOSING) gf_member_bye(member);
    if (!row->is_cut) return;
    world.coordinator_lives = false;
    control_world_cut(&world, 0);
}

TEST(a_coordinator_that_is_silent_is_given_up_where_it_is_needed)
{
    for (uint32_t i = 0; i < LENGTH(silence_rows); i++) {
        const struct silence_row *row = &silence_rows[i];
        uint64_t spent_ms = 0;
        silence_begin(row);
        (void)control_words_heard(&world.channel);
        while ((spent_ms < 20000) && (gf_member_current_state(member) == row->state)) {
            turn();
            spent_ms += 5;
            (void)control_words_heard(&world.channel);
        }
        bool is_then =
            (row->most_ns == 0) || ((spent_ms >= row->least_ns) && (spent_ms <= row->most_ns));
        if (!is_then || (gf_member_current_state(member) != row->end) ||
            ((gf_member_error(member)->code != row->code)))
            fail_msg("%s: state %d after %u ms, error %d: %s", row->name,
                     gf_member_current_state(member), (unsigned)spent_ms,
                     gf_member_error(member)->code, gf_member_error(member)->text);
        control_world_close(&world);
    }
}

/* Time in which it was not polled does not count. */
TEST(a_member_that_was_stopped_gives_nobody_up)
{
    begin();
    say_ready(true, false);
    for (uint32_t i = 0; i < 10; i++) {
        world.procs[0].now_ns += 3 * SECOND;
        turn();
    }
    state_is(GF_MEMBER_READY);
    control_world_close(&world);
    begin();
    say_ready(true, false);
    for (uint32_t i = 0; i < 12;
         i++) { /* it hears now and then, for longer than it may hear nothing */
        spend(500 * CONTROL_MS);
        say_waiting(0);
        (void)control_words_heard(&world.channel);
    }
    world.procs[0].now_ns += 10 * SECOND;
    turn();
    state_is(GF_MEMBER_READY);
    control_world_close(&world);
}

TEST(the_host_of_the_coordinator_that_ends_takes_its_members_with_it)
{
    begin_hosted(1);
    control_world_coordinator_end(&world);
    world.is_stopped = false;
    turn();
    state_is(GF_MEMBER_ENDED);
    assert_int_equal(gf_member_error(member)->peer, 1);
    assert_true(gf_member_is_lost(member));
    control_world_close(&world);
}

TEST(who_has_closed_and_loses_the_coordinator_has_ended_well)
{
    begin_hosted(1);
    gf_member_bye(member);
    heard("status 0 of 1 step 0 sequence 0 patience 0 edges 0; bye of 1 step 0");
    control_world_cut(&world, 0);
    turn();
    state_is(GF_MEMBER_GONE);
    assert_int_equal(gf_member_error(member)->code, GF_OK);
    gf_member_bye(member); /* nothing more is said */
    heard("ended");
    control_world_close(&world);
}

TEST(who_has_closed_fewest_steps_is_known)
{
    begin();
    say_closed(2, 3);
    assert_int_equal(gf_member_closed(member)->rank, 2);
    assert_int_equal(gf_member_closed(member)->step, 3);
    say_waiting(4);
    assert_int_equal(gf_member_joiner_count(member), 4);
    control_world_cut(&world, 0);
    turn();
    breaks();
    assert_int_equal(gf_member_joiner_count(member), 0); /* until it is told again */
    say_ready(true, false);
    say_list(2, 0, 2);
    endpoint_set();
    say_go(2, 2);
    assert_null(gf_member_closed(member));
    control_world_close(&world);
}

/* What does not fit is sent later, and in the same order. */
TEST(a_channel_without_room_is_waited_for)
{
    begin();
    world.room = 1;
    spend(400 * CONTROL_MS);
    say_fault(false);
    say_ask(1);
    assert_false(gf_member_flushed(member));
    heard("status 0 of 1 step 0 sequence 0 patience 0 edges 0");
    turn();
    heard("fault of 1 code -6 peer -1 edges 0");
    turn();
    heard("position 1 of 1 step 0 sequence 0 patience 0 edges 0");
    assert_true(gf_member_flushed(member));
    control_world_close(&world);
}

TEST(who_has_closed_or_ended_fails_no_more)
{
    begin();
    gf_member_bye(member);
    heard("status 0 of 1 step 0 sequence 0 patience 0 edges 0; bye of 1 step 0");
    say_fault(false);
    heard("");
    state_is(GF_MEMBER_CLOSING);
    control_world_close(&world);
    begin();
    say_error(false);
    say_fault(false);
    gf_member_bye(member);
    heard("");
    state_is(GF_MEMBER_ENDED);
    control_world_close(&world);
}

TEST(who_closes_while_it_is_cut_off_says_so_later)
{
    begin();
    control_world_cut(&world, 0);
    turn();
    heard("ended");
    gf_member_bye(member);
    heard("");
    spend(110 * CONTROL_MS);
    heard("offer 0 generation 1 rank 0 of 3 said 3 listed 1; bye of 1 step 0");
    control_world_close(&world);
}

TEST(an_error_says_whose_it_is)
{
    open_hosted(GF_RANK_NONE);
    say_list(1, 2, 3);
    endpoint_set();
    say_go(1, 3);
    say_error(true);
    assert_int_equal(gf_member_error(member)->rank, 2);
    control_world_close(&world);
}

static void lost_one(void *of, struct control_edges *edges_out)
{
    (void)of;
    edges_out->count = 1;
    edges_out->peers[0] = 2;
}

/* Its link may have told an edge once, as the error that it fails for, or may tell it still. */
TEST(the_edge_that_it_fails_for_is_told_once)
{
    static const struct {
        gf_status code;
        uint32_t peer;
        const char *alone, *beside; /* .. an edge to rank 2 */
    } rows[] = {
        {GF_ERR_LINK, 0, "fault of 1 code -5 peer 0 edges 1", "fault of 1 code -5 peer 0 edges 2"},
        {GF_ERR_LINK, 2, "fault of 1 code -5 peer 2 edges 1", "fault of 1 code -5 peer 2 edges 1"},
        {GF_ERR_LINK, 1, "fault of 1 code -5 peer 1 edges 0", "fault of 1 code -5 peer 1 edges 1"},
        {GF_ERR_LINK, 3, "fault of 1 code -5 peer 3 edges 0", "fault of 1 code -5 peer 3 edges 1"},
        {GF_ERR_DATA, 0, "fault of 1 code -14 peer 0 edges 0",
         "fault of 1 code -14 peer 0 edges 1"},
    };
    open_hosted(GF_RANK_NONE);
    say_list(1, 1, 3);
    endpoint_set();
    say_go(1, 3);
    (void)control_words_heard(&world.channel);
    for (uint32_t i = 0; i < LENGTH(rows); i++) {
        struct gf_error seen = {
            .code = rows[i].code, .peer = rows[i].peer, .tensor = GF_TENSOR_NONE};
        world.procs[0].edges = NULL;
        gf_member_fault(member, &seen, false);
        heard(rows[i].alone);
        world.procs[0].edges = lost_one;
        gf_member_fault(member, &seen, false);
        heard(rows[i].beside);
    }
    control_world_close(&world);
}

static gf_status nothing_is_sent(struct gf_channel *channel, uint32_t connection,
                                 uint32_t frame_kind, const void *payload, uint32_t size_bytes)
{
    (void)channel;
    (void)connection;
    (void)frame_kind;
    (void)payload;
    (void)size_bytes;
    return GF_ERR_PEER;
}

/* What can't leave on a connection that has ended is not waited for; on the next one it is. */
TEST(words_are_waited_for_where_they_may_leave)
{
    const struct gf_channel_driver *driver;
    struct gf_channel_driver dead;
    begin();
    driver = world.procs[0].channel.driver;
    dead = *driver;
    dead.send = nothing_is_sent;
    world.procs[0].channel.driver = &dead;
    say_fault(false);
    assert_true(gf_member_flushed(member));
    world.procs[0].channel.driver = driver;
    breaks();
    heard("offer 0 generation 1 rank 0 of 3 said 1 listed 1; fault of 1 code -6 peer -1 edges 0");
    world.room = 1;
    say_ready(false, false);
    say_ask(1);
    assert_false(gf_member_flushed(member));
    control_world_close(&world);
}

static bool nothing_has_left(struct gf_channel *channel)
{
    (void)channel;
    return false;
}

/* .. nor is what the kernel still has. */
TEST(words_have_left_once_the_kernel_has_none)
{
    const struct gf_channel_driver *driver;
    struct gf_channel_driver dead;
    struct gf_channel_driver slow;
    begin();
    driver = world.procs[0].channel.driver;
    dead = slow = *driver;
    dead.send = nothing_is_sent;
    slow.flushed = nothing_has_left;
    assert_true(gf_member_flushed(member));
    world.procs[0].channel.driver = &dead;
    say_fault(false);
    world.procs[0].channel.driver = &slow;
    breaks();
    assert_false(gf_member_flushed(member));
    control_world_cut(&world, 0);
    turn();
    assert_true(gf_member_flushed(member)); /* nothing leaves without a connection */
    control_world_close(&world);
}

/* Its endpoint was for the list before: it is asked for another one, and says that. */
TEST(each_list_has_an_endpoint_of_its_own)
{
    begin();
    say_ready(true, false);
    say_list(2, 1, 2);
    endpoint_set();
    (void)control_words_heard(&world.channel);
    say_list(3, 0, 2);
    heard("");
    endpoint_set();
    heard("endpoint of 3 rank 0");
    say_list(3, 0, 2); /* said again */
    heard("endpoint of 3 rank 0");
    control_world_close(&world);
}

/* What has not left as a list comes is of the list before, and is not said. */
TEST(a_list_comes_before_what_had_no_room)
{
    begin();
    world.room = 1;
    say_ask(1); /* the answer fills it */
    say_ready(true, false);
    say_list(2, 0, 2);
    world.room = 0;
    heard("position 1 of 1 step 0 sequence 0 patience 0 edges 0");
    turn();
    heard("");
    world.room = 1;
    say_ask(2);
    endpoint_set();
    say_list(3, 0, 2);
    world.room = 0;
    heard("position 2 of 1 step 0 sequence 0 patience 0 edges 0");
    turn();
    heard("");
    endpoint_set();
    heard("endpoint of 3 rank 0");
    control_world_close(&world);
}

/* .. and what was found in one generation is not of the next. */
TEST(each_generation_has_its_own_finding)
{
    begin();
    gf_member_report(member)->step = 7;
    say_error(true);
    assert_true(gf_member_is_found(member));
    say_ready(false, false);
    say_list(2, 0, 2);
    endpoint_set();
    say_go(2, 2);
    assert_false(gf_member_is_found(member));
    assert_int_equal(gf_member_error(member)->code, GF_OK);
    assert_int_equal(gf_member_report(member)->step, 0);
    say_fault(false);
    say_error(true);
    assert_true(gf_member_is_found(member));
    assert_int_equal(gf_member_error(member)->code, GF_ERR_PEER);
    control_world_close(&world);
}

/* It asks for patience as its generation ends: the next one hears nothing of that. */
TEST(patience_is_of_a_generation)
{
    uint64_t from;
    begin();
    spend(200 * CONTROL_MS);
    gf_member_heartbeat(member, world.procs[0].now_ns + 15 * CONTROL_MS, SECOND);
    say_ready(true, false);
    (void)control_words_heard(&world.channel);
    say_list(2, 0, 2);
    endpoint_set();
    say_go(2, 2);
    spend(400 * CONTROL_MS);
    heard("endpoint of 2 rank 0; status 0 of 2 step 0 sequence 0 patience 0 edges 0");
    assert_int_equal(gf_member_patience(member, world.procs[0].now_ns, &from), 0);
    control_world_close(&world);
}

TEST(a_frame_that_no_coordinator_sends_ends_it)
{
    static const uint32_t kinds[] = {0, CONTROL_OFFER, CONTROL_STATUS_ANSWER, CONTROL_FRAME_COUNT,
                                     99};
    for (uint32_t i = 0; i < LENGTH(kinds); i++) {
        char text[120];
        open_hosted(GF_RANK_NONE);
        control_words_send(&world, 0, (control_frame)kinds[i], "abc", 3);
        turn();
        state_is(GF_MEMBER_ENDED);
        (void)snprintf(text, sizeof text,
                       "the coordinator at memory sent a frame that is malformed (kind %u, 3 "
                       "bytes)",
                       kinds[i]);
        assert_string_equal(gf_member_error(member)->text, text);
        assert_int_equal(gf_member_error(member)->code, GF_ERR_PEER);
        assert_int_equal(gf_member_error(member)->peer, GF_RANK_NONE);
        control_world_close(&world);
    }
}

/* gf_stats tells the bytes: of each payload that has left, once. */
TEST(the_bytes_of_its_words_are_counted)
{
    struct gf_channel_event event;
    uint64_t bytes = 0;
    open_hosted(GF_RANK_NONE);
    say_list(1, 0, 3);
    endpoint_set();
    say_go(1, 3);
    say_fault(false);
    while (world.channel.driver->poll(&world.channel, 0, &event))
        if (event.kind == GF_CHANNEL_FRAME) bytes += event.size_bytes;
    assert_true(bytes > 0);
    assert_int_equal(world.procs[0].channel.sent_bytes, bytes);
    control_world_close(&world);
}

/* It ends for what it has found itself: where it was, and whom it names. */
TEST(a_member_that_ends_by_itself_says_where_it_was)
{
    for (uint32_t i = 0; i < 4; i++) {
        const bool is_cut = (i % 2 == 0);
        const uint32_t host_id = (i < 2) ? GF_RANK_NONE : 1;
        open_hosted(host_id);
        say_list(1, 2, 3);
        endpoint_set();
        say_go(1, 3);
        gf_member_report(member)->step = 7;
        gf_member_report(member)->operation = GF_OPERATION_ALLREDUCE;
        if (is_cut) {
            world.channel.driver->drop(&world.channel, 0); /* no kernel says that it has died */
            member->setup.terms.join_timeout_ns = 20 * CONTROL_MS;
        } else {
            say_ready(true, false);
        }
        for (uint32_t n = 0; (n < 1000) && !gf_member_has_ended(member); n++) turn();
        const struct gf_error *error = gf_member_error(member);
        assert_string_equal(error->text,
                            is_cut ? "the coordinator at memory cannot be reached, for 0.0 s: ended"
                                   : "the coordinator at memory says nothing, for 4.0 s");
        assert_int_equal(error->code, GF_ERR_PEER);
        assert_int_equal(error->peer, host_id);
        assert_int_equal(error->rank, 2);
        assert_int_equal(error->step, 7);
        assert_int_equal(error->operation, GF_OPERATION_ALLREDUCE);
        assert_int_equal(error->tensor, GF_TENSOR_NONE);
        assert_true(gf_member_is_lost(member) && gf_member_is_found(member));
        control_world_close(&world);
    }
}

/* A death in a step that was not told yet was in that of this member; else it is as it was told. */
TEST(an_error_is_in_the_step_of_this_member_where_a_rank_has_ended)
{
    static const struct {
        gf_status code;
        uint64_t step; /* of this member; the error's is 7 */
        uint64_t then;
    } rows[] = {{GF_ERR_PEER, 8, 8}, {GF_ERR_PEER, 7, 7}, {GF_ERR_PEER, 6, 7}, {GF_ERR_LINK, 8, 7}};
    for (uint32_t i = 0; i < LENGTH(rows); i++) {
        unsigned char payload[512];
        struct gf_put put = {payload, sizeof payload};
        struct control_finding finding = {
            .may_go_on = true,
            .error = {.code = rows[i].code, .peer = 2, .step = 7, .tensor = 4, .text = "it died"}};
        bool is_own = (rows[i].then == 8);
        begin();
        gf_member_report(member)->step = rows[i].step;
        gf_member_report(member)->operation = GF_OPERATION_BARRIER;
        gf_member_report(member)->tensor = 5;
        gf_frame_finding_walk(&(struct gf_walk){.put = &put}, &finding);
        control_words_send(&world, 0, CONTROL_ERROR, payload, sizeof payload - put.left);
        turn();
        assert_int_equal(gf_member_error(member)->code, rows[i].code);
        assert_int_equal(gf_member_error(member)->peer, 2);
        assert_int_equal(gf_member_error(member)->step, rows[i].then);
        assert_int_equal(gf_member_error(member)->tensor, is_own ? 5 : 4);
        assert_int_equal(gf_member_error(member)->operation,
                         is_own ? GF_OPERATION_BARRIER : GF_OPERATION_NONE);
        assert_string_equal(gf_member_error(member)->text, "it died");
        control_world_close(&world);
    }
}

TEST(a_list_of_a_rank_that_its_world_has_not_ends_it)
{
    static const struct {
        uint32_t rank, world;
        gf_member_state state;
    } rows[] = {{2, 3, GF_MEMBER_LISTED},
                {3, 3, GF_MEMBER_ENDED},
                {0, 4, GF_MEMBER_ENDED},
                {0, 0, GF_MEMBER_ENDED},
                {0, 1, GF_MEMBER_LISTED}};
    for (uint32_t i = 0; i < LENGTH(rows); i++) {
        open_hosted(GF_RANK_NONE);
        say_list(1, rows[i].rank, rows[i].world);
        state_is(rows[i].state);
        control_world_close(&world);
    }
}

/* Another job, key or version listens there: to dial again would not help. */
TEST(a_channel_that_has_failed_ends_it)
{
    open_hosted(GF_RANK_NONE);
    world.procs[0].channel.fault.code = GF_ERR_MISMATCH;
    (void)snprintf(world.procs[0].channel.fault.text, sizeof world.procs[0].channel.fault.text,
                   "another job listens there");
    turn();
    state_is(GF_MEMBER_ENDED);
    assert_int_equal(gf_member_error(member)->code, GF_ERR_MISMATCH);
    assert_int_equal(gf_member_error(member)->peer, GF_RANK_NONE);
    assert_string_equal(gf_member_error(member)->text, "another job listens there");
    assert_true(gf_member_is_lost(member));
    control_world_close(&world);
}
