/* What a coordinator says to each process, word by word: the rows play the processes, and each row
 * says all that is heard. A word too many is a failure, too: it makes a member answer, or end. */
#include "firmware-tests/support/suite.h"
#include "gradientflow.h"
#include "drivers/link.h"
#include "firmware-tests/support/control_words.h"
#include "lib/control/coordinator_state.h"

#define SECOND (1000 * CONTROL_MS)
#define PEERS 8u

static struct control_world world;
static struct control_words_process peers[PEERS];
static gf_status polled; /* what the coordinator's last poll gave */

static void turn(void)
{
    world.now_ns += 5 * CONTROL_MS;
    polled = gf_coordinator_poll(world.coordinator, world.now_ns);
}

static void spend(uint64_t for_ns)
{
    for (uint64_t spent_ns = 0; spent_ns < for_ns; spent_ns += 5 * CONTROL_MS) turn();
}

/* The process with this id hears exactly that. */
static void heard_at(const char *file, int line, uint32_t id, const char *text)
{
    const char *heard = control_words_heard(peers[id].channel);
    if (strcmp(heard, text) != 0)
        fail_msg("%s:%d: process %u heard \"%s\", not \"%s\"", file, line, id, heard, text);
}
#define heard(id, text) heard_at(__FILE__, __LINE__, id, text)

static void unheard(void)
{
    for (uint32_t i = 0; i < PEERS; i++)
        if (peers[i].channel != NULL) (void)control_words_heard(peers[i].channel);
}

/* A coordinator and no process; peers[id] has that id. */
static void open_for(uint32_t ids, uint32_t id_count, bool is_elastic)
{
    control_world_open_growing(&world, ids, 1, id_count, GF_RANK_NONE);
    for (uint32_t id = 0; id < ids; id++) control_world_kill(&world, id);
    for (uint32_t i = 0; i < PEERS; i++)
        peers[i] = (struct control_words_process){
            .offer = {.id = i,
                      .id_count = id_count,
                      .first_world = ids,
                      .process = 500 + i,
                      .terms = {.elastic = is_elastic,
                                .join_timeout_ns = 8 * SECOND,
                                .keepalive_ns = SECOND,
                                .exchange_timeout_ns = 2 * SECOND},
                      .values = {.version = 1, .world = ids, .node = i + 1}}};
}

static void come(uint32_t id)
{
    control_words_come(&world, &peers[id]);
    turn();
}

static void all_listed(uint32_t ids)
{
    for (uint32_t id = 0; id < ids; id++) control_words_come(&world, &peers[id]);
    turn();
    unheard();
}

/* All are of generation 1, and have heard so. */
static void all_begun(uint32_t ids, uint32_t id_count, bool is_elastic)
{
    open_for(ids, id_count, is_elastic);
    all_listed(ids);
    for (uint32_t id = 0; id < ids; id++) control_words_endpoint(&peers[id], 1, id);
    turn();
    unheard();
}

static void say_fault(uint32_t id, uint32_t number)
{
    struct control_fault fault = {.error = {.code = GF_ERR_TIMEOUT,
                                            .peer = GF_RANK_NONE,
                                            .tensor = GF_TENSOR_NONE,
                                            .text = "no step ends"}};
    control_words_fault(&peers[id], number, &fault);
}

static void say_ready(uint32_t id, uint32_t number, uint64_t steps, bool planned, bool leaves)
{
    struct control_ready ready = {
        .planned = planned, .leaves = leaves, .progress = {.steps = steps, .applied = 1}};
    control_words_ready(&peers[id], number, &ready);
}

static void say_position(uint32_t id, uint32_t number, uint32_t inquiry)
{
    struct control_report report = {.inquiry = inquiry,
                                    .step = 5,
                                    .sequence = 9,
                                    .waits_for = (id + 1) % 3,
                                    .tensor = GF_TENSOR_NONE};
    control_words_status(&peers[id], number, &report);
}

static void say_status(uint32_t id, uint32_t number, uint64_t step, uint64_t patience_ns)
{
    struct control_report report = {.step = step,
                                    .patience_ns = patience_ns,
                                    .patience_from = 42,
                                    .waits_for = GF_RANK_NONE,
                                    .tensor = GF_TENSOR_NONE};
    control_words_status(&peers[id], number, &report);
}

static void dies(uint32_t id)
{
    control_world_kill(&world, peers[id].proc);
    turn();
}

static void breaks(uint32_t id)
{
    control_world_cut(&world, peers[id].proc);
    (void)control_words_heard(peers[id].channel);
    turn();
}

/* What was found, in full. */
static void found(const char *text)
{
    struct gf_coordinator_status status;
    gf_coordinator_status(world.coordinator, &status);
    if (strstr(status.error.text, text) == NULL)
        fail_msg("not \"%s\": %s", text, status.error.text);
}

static void all_endpoints(uint32_t number, const uint32_t *ids, uint32_t count)
{
    for (uint32_t rank = 0; rank < count; rank++)
        control_words_endpoint(&peers[ids[rank]], number, rank);
    turn();
    unheard();
}

static void say_edges(uint32_t id, uint32_t number, uint32_t inquiry, uint32_t first,
                      uint32_t second)
{
    struct control_report report = {
        .inquiry = inquiry, .waits_for = 0, .tensor = GF_TENSOR_NONE, .edges = {.count = 2}};
    report.edges.peers[0] = (uint16_t)first;
    report.edges.peers[1] = (uint16_t)second;
    control_words_status(&peers[id], number, &report);
}

TEST(a_first_join)
{
    open_for(3, 3, true);
    come(0);
    heard(0, "waiting 0");
    come(1);
    heard(1, "waiting 0");
    come(2);
    heard(0, "list 1 rank 0 of 3");
    heard(2, "list 1 rank 2 of 3; waiting 0");
    control_words_endpoint(&peers[0], 1, 0);
    control_words_endpoint(&peers[1], 1, 1);
    turn();
    heard(0, "");
    control_words_endpoint(&peers[2], 1, 2);
    turn();
    heard(0, "go 1 lead 0 steps 0 pieces 3; waiting 0");
    heard(1, "list 1 rank 1 of 3; go 1 lead 0 steps 0 pieces 3; waiting 0");
    heard(2, "go 1 lead 0 steps 0 pieces 3; waiting 0");
    turn();
    heard(0, "");
    control_world_close(&world);
}

TEST(a_first_list_is_given_up_where_one_has_ended)
{
    open_for(2, 2, true);
    all_listed(2);
    control_words_endpoint(&peers[0], 1, 0);
    dies(1);
    turn();
    heard(0, "");
    peers[1].channel = NULL;
    peers[1].offer.process = 600;
    come(1);
    heard(0, "list 2 rank 0 of 2");
    heard(1, "list 2 rank 1 of 2; waiting 0");
    control_words_endpoint(&peers[0], 1, 0); /* of the list before */
    control_words_endpoint(&peers[1], 2, 1);
    turn();
    heard(0, "");
    control_words_endpoint(&peers[0], 2, 0);
    turn();
    heard(0, "go 2 lead 0 steps 0 pieces 2; waiting 0");
    heard(1, "go 2 lead 0 steps 0 pieces 2; waiting 0");
    control_world_close(&world);
}

TEST(who_does_not_answer_is_left_out_and_waits)
{
    all_begun(3, 3, true);
    spend(100 * CONTROL_MS);
    say_status(1, 1, 5, 0);
    say_fault(0, 1);
    turn();
    heard(0, "ask 1");
    heard(1, "ask 1");
    heard(2, "ask 1");
    say_fault(1, 1);
    say_position(0, 1, 1);
    say_position(1, 1, 1);
    spend(700 * CONTROL_MS);
    heard(0, "");
    spend(60 * CONTROL_MS);
    heard(0, "error -6 peer 2 step 0 goes on: rank 2 does not answer (asked 0.8 s ago): it is "
             "stopped or d");
    heard(1, "error -6 peer 2 step 0 goes on: rank 2 does not answer (asked 0.8 s ago): it is "
             "stopped or d");
    heard(2, "error -6 peer 2 step 0 goes on: rank 2 does not answer (asked 0.8 s ago): it is "
             "stopped or d");
    say_ready(1, 1, 4, false, false);
    turn();
    heard(1, "");
    say_ready(0, 1, 5, false, false);
    turn();
    heard(0, "list 2 rank 0 of 2");
    heard(1, "list 2 rank 1 of 2");
    heard(2, "");
    control_words_endpoint(&peers[0], 2, 0);
    control_words_endpoint(&peers[1], 2, 1);
    turn();
    heard(0, "go 2 lead 0 steps 5 lags pieces 2; waiting 0");
    heard(1, "go 2 lead 0 steps 5 lags pieces 2; waiting 0");
    heard(2, "error -7 peer -1 step 0 goes on: the other ranks went on without this one, as "
             "nothing was hea");
    /* it polls again, and goes through the same */
    say_status(2, 1, 5, 0);
    turn();
    heard(2, "error -7 peer -1 step 0 goes on: the other ranks went on without this one, as "
             "nothing was hea");
    say_fault(2, 1);
    turn();
    heard(2, "error -7 peer -1 step 0 goes on: the other ranks went on without this one, as "
             "nothing was hea");
    say_ready(2, 1, 4, false, false);
    turn();
    heard(2, "waiting 1");
    heard(0, "waiting 1");
    say_status(2, 1, 5, 0); /* it waits: nothing more is said */
    turn();
    heard(2, "");
    /* a word of the generation before changes nothing */
    say_fault(0, 1);
    turn();
    heard(0, "");
    unheard();
    say_ready(0, 2, 7, true, false);
    say_ready(1, 2, 7, true, false);
    turn();
    heard(0, "");
    heard(1, "");
    heard(2, "");
    turn();
    heard(0, "list 3 rank 0 of 3");
    heard(1, "list 3 rank 1 of 3");
    heard(2, "list 3 rank 2 of 3 comes in");
    control_world_close(&world);
}

/* Rank 2 does not answer, and generation 2 has begun without it. */
static void one_is_left_out(void)
{
    all_begun(3, 3, true);
    say_fault(0, 1);
    turn();
    say_position(0, 1, 1);
    say_position(1, 1, 1);
    spend(800 * CONTROL_MS);
    say_ready(0, 1, 5, false, false);
    say_ready(1, 1, 5, false, false);
    turn();
    control_words_endpoint(&peers[0], 2, 0);
    control_words_endpoint(&peers[1], 2, 1);
    turn();
    unheard();
}

TEST(who_was_left_out_may_wait_or_leave)
{
    one_is_left_out();
    say_ready(2, 1, 5, false, false);
    turn();
    heard(2, "waiting 1");
    heard(0, "waiting 1");
    control_words_bye(&peers[2], 1, 5); /* .. and gives it up */
    turn();
    heard(2, "waiting 0; all gone");
    turn();
    heard(0, "waiting 0");
    control_world_close(&world);
    one_is_left_out();
    control_words_bye(&peers[2], 1, 5);
    turn();
    heard(2, "all gone");
    heard(0, "");
    control_world_close(&world);
    one_is_left_out();
    say_ready(2, 1, 5, false, true);
    turn();
    heard(2, "all gone");
    heard(0, "");
    control_world_close(&world);
}

TEST(who_was_left_out_and_comes_again_hears_so)
{
    one_is_left_out();
    breaks(2);
    peers[2].offer.standing = (struct control_standing){.generation = 1, .rank = 2, .world = 3};
    come(2);
    heard(2, "waiting 0; error -7 peer -1 step 0 goes on: the other ranks went on without this "
             "one, as nothing was hea");
    heard(0, "");
    say_ready(2, 1, 5, false, false);
    turn();
    heard(2, "waiting 1");
    heard(0, "waiting 1");
    breaks(2); /* while it waits */
    turn();
    heard(0, "waiting 0");
    control_world_close(&world);
}

TEST(a_process_that_has_ended_is_told_to_the_others_at_once)
{
    all_begun(3, 4, true);
    say_status(0, 1, 5, 0);
    dies(1);
    heard(0, "error -7 peer 1 step 5 goes on: rank 1 died: ended; rank 0 was in step 5, between "
             "operations");
    heard(2, "error -7 peer 1 step 5 goes on: rank 1 died: ended; rank 0 was in step 5, between "
             "operations");
    come(3); /* an id that is new */
    heard(0, "waiting 1");
    heard(3, "waiting 1");
    say_ready(0, 1, 5, false, false);
    say_ready(2, 1, 5, false, false);
    turn();
    heard(0, "list 2 rank 0 of 3");
    heard(2, "waiting 1; list 2 rank 1 of 3");
    heard(3, "list 2 rank 2 of 3 comes in");
    dies(2); /* on the list that is out */
    turn();
    heard(0, "list 3 rank 0 of 2");
    heard(3, "list 3 rank 1 of 2 comes in");
    control_words_endpoint(&peers[0], 3, 0);
    control_words_endpoint(&peers[3], 3, 1);
    turn();
    heard(0, "go 3 lead 0 steps 5 lags pieces 2; waiting 0");
    heard(3, "go 3 lead 0 steps 5 lags pieces 2; waiting 0");
    control_world_close(&world);
}

/* What who comes again hears, where its job is. */
static void breaks_and_comes(uint32_t id)
{
    breaks(id);
    come(id);
}

TEST(who_comes_again_hears_the_last_word_once_more)
{
    all_begun(4, 4, true);
    peers[1].offer.standing = (struct control_standing){.generation = 1, .rank = 1, .world = 4};
    breaks_and_comes(1);
    heard(1, "waiting 0");
    say_status(0, 1, 5, 1500 * CONTROL_MS);
    turn();
    unheard();
    breaks_and_comes(1);
    heard(1, "waiting 0; patience 1490 from 42");
    say_fault(2, 1);
    turn();
    unheard();
    breaks_and_comes(1);
    heard(1, "waiting 0; ask 1; patience 1475 from 42");
    say_position(1, 1, 1);
    dies(3);
    heard(1, "error -7 peer 3 step 5 goes on: rank 3 died: ended; rank 0 was in step 5, between "
             "operations");
    breaks_and_comes(1);
    heard(1, "waiting 0; error -7 peer 3 step 5 goes on: rank 3 died: ended; rank 0 was in step 5, "
             "between operations; patience 1460 from 42");
    say_ready(1, 1, 5, false, false);
    turn();
    peers[1].offer.standing.said = CONTROL_SAID_READY;
    breaks_and_comes(1);
    heard(1, "waiting 0; patience 1445 from 42");
    say_ready(0, 1, 5, false, false);
    say_ready(2, 1, 5, false, false);
    turn();
    heard(1, "list 2 rank 1 of 3");
    control_words_endpoint(&peers[1], 2, 1);
    turn();
    breaks_and_comes(1);
    heard(1, "list 2 rank 1 of 3; waiting 0; patience 1425 from 42");
    control_words_endpoint(&peers[0], 2, 0);
    control_words_endpoint(&peers[2], 2, 2);
    turn();
    unheard();
    control_words_endpoint(&peers[1], 2, 1);
    turn();
    breaks_and_comes(1); /* before GO arrives */
    heard(1, "go 2 lead 0 steps 5 pieces 3; waiting 0");
    peers[1].offer.standing = (struct control_standing){.generation = 2, .rank = 1, .world = 3};
    breaks_and_comes(1);
    heard(1, "waiting 0");
    control_world_close(&world);
}

TEST(all_close)
{
    all_begun(3, 3, true);
    say_status(1, 1, 3, 0);
    control_words_bye(&peers[0], 1, 3);
    turn();
    heard(0, "closed 0 step 3");
    heard(1, "closed 0 step 3");
    heard(2, "closed 0 step 3");
    spend(1010 * CONTROL_MS);
    heard(0, "waiting 0 awaits 1 and 2 in all, step 3, between operations");
    heard(1, "");
    heard(2, "");
    control_words_bye(&peers[1], 1, 2);
    turn();
    heard(0, "closed 1 step 2");
    heard(1, "closed 1 step 2");
    heard(2, "closed 1 step 2");
    peers[2].offer.standing = (struct control_standing){.generation = 1, .rank = 2, .world = 3};
    breaks_and_comes(2);
    heard(2, "waiting 0; closed 1 step 2");
    world.room = 1; /* the last words wait for room */
    breaks(1);
    peers[1].offer.standing = (struct control_standing){
        .generation = 1, .rank = 1, .world = 3, .said = CONTROL_SAID_BYE, .closed_step = 2};
    control_words_come(&world, &peers[1]);
    turn();
    control_words_bye(&peers[2], 1, 4);
    turn();
    assert_int_equal(polled, GF_AGAIN);
    heard(0, "all gone");
    heard(1, "waiting 0 awaits 2 and 1 in all, step 0, between operations");
    heard(2, "all gone");
    turn();
    heard(1, "all gone");
    turn();
    assert_int_equal(polled, GF_OK);
    control_world_close(&world);
}

static bool never_flushed(struct gf_channel *channel)
{
    (void)channel;
    return false;
}

TEST(a_job_that_is_not_elastic_ends_with_a_death)
{
    all_begun(3, 3, false);
    struct gf_channel_driver slow = *world.channel.driver;
    const struct gf_channel_driver *driver = world.channel.driver;
    slow.flushed = never_flushed;
    breaks(2);
    dies(1);
    heard(0, "error -7 peer 1 step 0: rank 1 died: ended");
    assert_int_equal(polled, GF_AGAIN); /* one is away */
    come(2);
    heard(2, "error -7 peer 1 step 0: rank 1 died: ended");
    assert_int_equal(polled, GF_ERR_PEER);
    world.channel.driver = &slow;
    turn();
    assert_int_equal(polled, GF_AGAIN);
    world.channel.driver = driver;
    peers[3].offer.id = 1;
    peers[3].offer.id_count = 3;
    come(3);
    heard(3, "refused -2 peer -1: the job has ended: rank 1 died: ended; ended");
    assert_int_equal(polled, GF_ERR_PEER);
    control_world_close(&world);
}

TEST(who_is_away_as_the_job_ends_is_awaited_for_a_moment)
{
    all_begun(3, 3, false);
    breaks(2);
    dies(1);
    spend(1990 * CONTROL_MS);
    assert_int_equal(polled, GF_AGAIN);
    spend(20 * CONTROL_MS);
    assert_int_equal(polled, GF_ERR_PEER);
    control_world_close(&world);
}

static void take_over_begin_of(uint32_t id_count)
{
    open_for(3, id_count, true);
    control_world_coordinator_end(&world);
    control_world_coordinator_begin(&world);
    uint64_t list = CONTROL_LIST_START;
    for (uint32_t id = 0; id < 3; id++)
        list = gf_control_list_hash(list, id, peers[id].offer.process);
    for (uint32_t id = 0; id < 3; id++)
        peers[id].offer.standing = (struct control_standing){
            .generation = 4, .rank = id, .world = 3, .list_hash = list, .listed = 4};
}

static void take_over_begin(void)
{
    take_over_begin_of(3);
}

TEST(a_generation_is_taken_over)
{
    take_over_begin();
    peers[2].offer.standing.listed = 6;
    come(0);
    heard(0, "waiting 0");
    come(1);
    say_status(0, 4, 5, 0);
    turn();
    heard(1, "waiting 0");
    come(2);
    heard(0, "");
    heard(1, "");
    heard(2, "waiting 0");
    say_fault(1, 4);
    turn();
    heard(0, "ask 1");
    heard(1, "ask 1");
    heard(2, "ask 1");
    for (uint32_t id = 0; id < 3; id++) say_position(id, 4, 1);
    spend(2 * SECOND);
    unheard();
    for (uint32_t id = 0; id < 3; id++) say_ready(id, 4, 5, false, false);
    turn();
    heard(0, "list 7 rank 0 of 3");
    heard(1, "list 7 rank 1 of 3");
    heard(2, "list 7 rank 2 of 3");
    control_world_close(&world);
}

static const struct said_row {
    control_said said;
    const char *heard[3];
} said_rows[] = {
    {CONTROL_SAID_FAULT, {"ask 1", "ask 1", "waiting 0; ask 1"}},
    {CONTROL_SAID_READY,
     {"error -7 peer -1 step 0 goes on: rank 1 begins a regroup after a failure", "",
      "waiting 0; error -7 peer -1 step 0 goes on: rank 1 begins a regroup after a failure"}},
    {CONTROL_SAID_BYE, {"closed 1 step 5", "closed 1 step 5", "waiting 0; closed 1 step 5"}},
};

TEST(what_was_said_before_a_takeover_counts)
{
    for (uint32_t i = 0; i < LENGTH(said_rows); i++) {
        const struct said_row *row = &said_rows[i];
        take_over_begin();
        peers[1].offer.standing.said = row->said;
        come(0);
        come(1);
        if (row->said == CONTROL_SAID_FAULT) say_fault(1, 4);
        if (row->said == CONTROL_SAID_READY) say_ready(1, 4, 5, false, false);
        if (row->said == CONTROL_SAID_BYE) control_words_bye(&peers[1], 4, 5);
        turn();
        unheard();
        come(2);
        for (uint32_t id = 0; id < 3; id++) heard(id, row->heard[id]);
        control_world_close(&world);
    }
}

TEST(who_leaves_hears_that_it_may)
{
    all_begun(3, 3, true);
    say_ready(1, 1, 5, true, true);
    turn();
    unheard();
    say_ready(0, 1, 5, true, false);
    say_ready(2, 1, 5, true, false);
    turn();
    heard(0, "list 2 rank 0 of 2");
    heard(1, "all gone");
    heard(2, "list 2 rank 1 of 2");
    control_words_endpoint(&peers[0], 2, 0);
    control_words_endpoint(&peers[2], 2, 1);
    turn();
    heard(0, "go 2 lead 0 steps 5 pieces 2; waiting 0");
    heard(1, "all gone");
    heard(2, "go 2 lead 0 steps 5 pieces 2; waiting 0");
    turn();
    heard(1, "");
    control_world_close(&world);
}

TEST(who_leaves_with_the_last_whole_weights_stays_for_a_generation)
{
    struct control_ready partial = {.planned = true, .progress = {.steps = 5, .partial = 1}};
    all_begun(2, 2, true);
    control_words_ready(&peers[0], 1, &partial);
    say_ready(1, 1, 5, true, true);
    turn();
    heard(0, "");
    heard(1, "");
    control_words_endpoint(&peers[0], 2, 0);
    control_words_endpoint(&peers[1], 2, 1);
    turn();
    heard(0, "list 2 rank 0 of 2");
    heard(1, "list 2 rank 1 of 2");
    control_world_close(&world);
}

TEST(nobody_goes_on_without_whole_weights)
{
    struct control_ready partial = {.progress = {.steps = 5, .partial = 1}};
    all_begun(2, 2, true);
    dies(1);
    control_words_ready(&peers[0], 1, &partial);
    turn();
    heard(
        0,
        "error -7 peer 1 step 0 goes on: rank 1 died: ended; error -14 in join peer -1 step 0: all "
        "ranks that held whole weights have ended: start the job ");
    turn();
    assert_int_equal(polled, GF_ERR_DATA);
    control_world_close(&world);
}

TEST(patience_is_told_to_the_others)
{
    all_begun(3, 3, true);
    say_status(0, 1, 5, 1000 * CONTROL_MS);
    turn();
    heard(0, "patience 1000 from 42");
    heard(1, "patience 1000 from 42");
    heard(2, "patience 1000 from 42");
    say_status(0, 1, 5, 1000 * CONTROL_MS); /* no more than before that is worth a word */
    turn();
    heard(0, "");
    heard(1, "");
    heard(2, "");
    say_status(1, 1, 5, 1235 * CONTROL_MS); /* .. nor is less than an eighth of the timeout */
    turn();
    heard(0, "");
    say_status(1, 1, 5, 9 * SECOND); /* exchange.timeout at most */
    turn();
    heard(0, "patience 2000 from 42");
    heard(1, "patience 2000 from 42");
    heard(2, "patience 2000 from 42");
    control_world_close(&world);
}

TEST(an_id_is_of_one_process)
{
    all_begun(3, 3, true);
    peers[3].offer = peers[1].offer;
    peers[3].offer.process = 700;
    come(3);
    heard(3, "refused -2 peer -1 may retry: rank 1 is in use by another process of t; ended");
    heard(1, "");
    peers[3].offer.rejoins = true;
    come(3);
    heard(1, "ended");
    heard(3, "waiting 1");
    heard(0, "waiting 1; error -7 peer 1 step 0 goes on: rank 1 died: another process has come in "
             "its place");
    say_ready(0, 1, 5, false, false);
    say_ready(2, 1, 5, false, false);
    turn();
    heard(0, "list 2 rank 0 of 3");
    heard(3, "list 2 rank 1 of 3 comes in");
    /* it is replaced itself, while it is on a list */
    peers[4].offer = peers[3].offer;
    peers[4].offer.process = 701;
    come(4);
    heard(3, "ended");
    heard(4, "list 3 rank 1 of 3 comes in; waiting 1");
    heard(0, "list 3 rank 0 of 3");
    turn();
    heard(0, "");
    heard(4, "");
    control_world_close(&world);
}

TEST(words_that_nobody_may_say_close_the_connection)
{
    for (uint32_t how = 0; how < 4; how++) {
        all_begun(2, 2, true);
        const struct gf_channel_driver *driver = peers[1].channel->driver;
        if (how == 0) say_status(1, 2, 5, 0); /* of a generation to come */
        if (how == 1) (void)driver->send(peers[1].channel, 0, CONTROL_GO, "\1\0\0\0", 4);
        if (how == 2) control_words_endpoint(&peers[1], 7, 1); /* of no list: not looked at */
        if (how == 3) (void)driver->send(peers[1].channel, 0, CONTROL_OFFER, "abc", 3);
        turn();
        heard(1, (how < 2) ? "ended" : "");
        heard(0, "");
        control_world_close(&world);
    }
}

TEST(whoever_does_not_fit_hears_why)
{
    open_for(3, 4, true);
    peers[3].offer.id = 9;
    come(3);
    heard(3, "refused -8 peer -1: rank 9 of job.world_max 4: this job has ; ended");
    peers[3].offer.id = 3;
    peers[3].offer.id_count = 5;
    come(3);
    heard(3, "refused -8 peer -1: rank 3 of job.world_max 5: this job has ; ended");
    peers[3].offer.id_count = 4;
    peers[3].offer.first_world = 2;
    come(3);
    heard(3, "refused -8 peer -1: rank 3 has job.world 2, the coordinator ; ended");
    peers[3].offer.first_world = 3;
    come(3); /* it is not of the first list */
    heard(3, "waiting 0 refused: rank 3 has job.world 2, the coordinator of this job has 3");
    all_listed(3);
    heard(3, "");
    for (uint32_t id = 0; id < 3; id++) control_words_endpoint(&peers[id], 1, id);
    turn();
    heard(0, "go 1 lead 0 steps 0 pieces 3; waiting 1");
    heard(1, "go 1 lead 0 steps 0 pieces 3; waiting 1");
    heard(2, "go 1 lead 0 steps 0 pieces 3; waiting 1");
    heard(3, "waiting 1");
    spend(1010 * CONTROL_MS);
    heard(0, "");
    heard(1, "");
    heard(2, "");
    heard(3, "waiting 1");
    peers[4].offer.id = 3;
    peers[4].offer.values.tensors_hash = 5;
    dies(3);
    heard(0, "waiting 0");
    come(4);
    heard(4, "refused -8 peer -1: tensor tables differ in names, sizes, fl; ended");
    control_world_close(&world);
}

TEST(who_was_cut_hears_so_and_stays_out)
{
    struct control_report report = {.inquiry = 1, .waits_for = 0, .tensor = GF_TENSOR_NONE};
    all_begun(3, 3, true);
    say_fault(0, 1);
    turn();
    unheard();
    report.edges.count = 2;
    report.edges.peers[1] = 1;
    say_position(0, 1, 1);
    say_position(1, 1, 1);
    control_words_status(&peers[2], 1, &report);
    turn();
    heard(0, "error -5 peer 2 step 0 goes on: the connection between ranks 1 and 2 is broken: no "
             "step ends");
    heard(1, "error -5 peer 2 step 0 goes on: the connection between ranks 1 and 2 is broken: no "
             "step ends");
    heard(2,
          "error -5 peer 2 step 0: the connection between ranks 1 and 2 is broken: no step ends");
    say_ready(2, 1, 5, false, false);
    say_ready(0, 1, 5, false, false);
    say_ready(1, 1, 5, false, false);
    turn();
    heard(0, "list 2 rank 0 of 2");
    heard(1, "list 2 rank 1 of 2");
    heard(2, "");
    control_words_endpoint(&peers[0], 2, 0);
    control_words_endpoint(&peers[1], 2, 1);
    turn();
    heard(0, "go 2 lead 0 steps 5 pieces 2; waiting 0");
    heard(1, "go 2 lead 0 steps 5 pieces 2; waiting 0");
    heard(2,
          "error -7 peer -1 step 0: the other ranks went on without this one: a connection to it");
    breaks(2);
    peers[2].offer.standing = (struct control_standing){.generation = 1, .rank = 2, .world = 3};
    come(2);
    heard(2,
          "error -7 peer -1 step 0: the other ranks went on without this one: a connection to it");
    heard(0, "");
    control_world_close(&world);
}

/* What was said as an answer is not changed by what is said later. */
TEST(an_answer_is_of_one_moment)
{
    struct control_report report = {
        .inquiry = 1, .step = 5, .waits_for = 1, .tensor = GF_TENSOR_NONE};
    all_begun(3, 3, true);
    say_fault(0, 1);
    turn();
    unheard();
    report.edges.count = 1;
    report.edges.peers[0] = 1;
    control_words_status(&peers[0], 1, &report);
    turn();
    say_status(0, 1, 6, 0);
    turn();
    assert_int_equal(world.coordinator->rows[0].report.edges.count, 1);
    assert_int_equal(world.coordinator->rows[0].report.step, 5);
    control_world_close(&world);
}

TEST(who_gives_up_ends_alone)
{
    struct control_fault fault = {.ends = true,
                                  .error = {.code = GF_ERR_DATA,
                                            .peer = GF_RANK_NONE,
                                            .tensor = GF_TENSOR_NONE,
                                            .text = "its file is broken"}};
    struct gf_coordinator_status status;
    all_begun(3, 3, true);
    say_status(1, 1, 0, 0);
    control_words_fault(&peers[1], 1, &fault);
    turn();
    gf_coordinator_status(world.coordinator, &status);
    assert_string_equal(status.error.text, "rank 1 gave up: its file is broken"); /* no death */
    heard(0, "error -7 peer 1 step 0 goes on: rank 1 gave up: its file is broken");
    heard(1, "error -7 peer 1 step 0: rank 1 gave up: its file is broken");
    heard(2, "error -7 peer 1 step 0 goes on: rank 1 gave up: its file is broken");
    turn(); /* it is told once */
    heard(0, "");
    say_ready(0, 1, 5, false, false);
    say_ready(2, 1, 5, false, false);
    turn();
    heard(0, "list 2 rank 0 of 2");
    heard(1, "");
    heard(2, "list 2 rank 1 of 2");
    control_world_close(&world);
}

/* Four ranks of which one has died: the generation of the other three has begun. */
static void three_of_four_begun(void)
{
    static const uint32_t ids[3] = {0, 2, 3};
    all_begun(4, 4, true);
    dies(1);
    for (uint32_t i = 0; i < 3; i++) say_ready(ids[i], 1, 5, false, false);
    turn();
    unheard();
    all_endpoints(2, ids, 3);
}

TEST(a_generation_of_fewer_ranks_counts_each_once)
{
    three_of_four_begun();
    control_words_bye(&peers[0], 2, 6);
    spend(1010 * CONTROL_MS);
    heard(0, "closed 0 step 6; waiting 0 awaits 1 and 2 in all, step 0, between operations");
    control_world_close(&world);
    three_of_four_begun();
    spend(3 * SECOND);
    say_status(3, 2, 5, 0);
    turn();
    say_fault(0, 2);
    turn();
    say_position(0, 2, 1);
    say_position(2, 2, 1);
    spend(800 * CONTROL_MS);
    found("rank 2 (started as rank 3) does not answer (asked 0.8 s ago): it is stopped or does not "
          "poll; last heard of "
          "0.8 s ago in step 5, between operations");
    struct gf_coordinator_status status;
    gf_coordinator_status(world.coordinator, &status);
    assert_null(strstr(status.error.text, "silent ranks"));
    control_world_close(&world);
}

/* All answer until there is a finding. */
static void all_answer(const uint32_t *ids, uint32_t count, uint32_t number)
{
    struct gf_coordinator_status status = {.state = GF_COORDINATOR_INQUIRE};
    for (uint32_t i = 0; (i < 1000) && (status.state == GF_COORDINATOR_INQUIRE); i++) {
        for (uint32_t rank = 0; rank < count; rank++) {
            struct control_report report = {.inquiry = world.coordinator->inquiry,
                                            .sequence = 9,
                                            .waits_for = (rank + 1) % count,
                                            .tensor = GF_TENSOR_NONE};
            control_words_status(&peers[ids[rank]], number, &report);
        }
        turn();
        unheard();
        gf_coordinator_status(world.coordinator, &status);
    }
}

TEST(nobody_is_at_fault_twice_in_a_step)
{
    static const uint32_t ids[3] = {0, 2, 3};
    three_of_four_begun();
    say_fault(0, 2);
    turn();
    all_answer(ids, 3, 2);
    assert_int_equal(world.coordinator->inquiry, 25); /* they were asked again and again */
    found("ranks wait for each other, and no way is known to be cut (rank 0 asked; 0 for 1, 1 for "
          "2, 2 for 0)");
    for (uint32_t i = 0; i < 3; i++) say_ready(ids[i], 2, 5, false, false);
    turn();
    unheard();
    all_endpoints(3, ids, 3);
    say_fault(2, 3);
    turn();
    all_answer(ids, 3, 3);
    found("ranks wait for each other, in this step for the second time");
    turn();
    assert_int_equal(polled, GF_ERR_TIMEOUT);
    control_world_close(&world);
}

TEST(an_edge_that_both_ends_say_is_one_edge)
{
    all_begun(4, 4, true);
    say_fault(0, 1);
    turn();
    unheard();
    say_edges(0, 1, 1, 9, 1); /* there is no rank 9 */
    say_edges(1, 1, 1, 1, 0); /* nor an edge to itself */
    say_edges(2, 1, 1, 3, 9);
    say_edges(3, 1, 1, 9, 9);
    spend(1600 * CONTROL_MS);
    found(
        "the connection between ranks 2 and 3 is broken: no step ends; rank 3 and 1 more is to go");
    control_world_close(&world);
}

/* Ranks 0 and 1 came in with the generation, and lose the one that was there before. */
TEST(the_last_one_that_has_the_weights_stays)
{
    static const uint32_t ids[3] = {0, 1, 2};
    all_begun(3, 3, true);
    dies(0);
    dies(1);
    say_ready(2, 1, 5, false, false);
    for (uint32_t id = 0; id < 2; id++) {
        peers[id].channel = NULL;
        peers[id].offer.process = 800 + id;
        control_words_come(&world, &peers[id]);
    }
    turn();
    unheard();
    all_endpoints(2, ids, 3);
    say_fault(2, 2);
    turn();
    unheard();
    say_edges(0, 2, 1, 2, 9);
    say_edges(1, 2, 1, 2, 9);
    say_edges(2, 2, 1, 0, 1);
    spend(1600 * CONTROL_MS);
    found("; rank 1 and 1 more is to go");
    control_world_close(&world);
}

/* Who comes back while it is asked has a quarter of exchange.timeout to answer. */
TEST(who_comes_back_in_an_inquiry_is_asked_anew)
{
    struct gf_coordinator_status status;
    all_begun(3, 3, true);
    peers[1].offer.standing = (struct control_standing){.generation = 1, .rank = 1, .world = 3};
    say_fault(0, 1);
    turn();
    say_position(0, 1, 1);
    say_position(2, 1, 1);
    spend(600 * CONTROL_MS);
    breaks_and_comes(1);
    spend(400 * CONTROL_MS);
    gf_coordinator_status(world.coordinator, &status);
    assert_int_equal(status.state, GF_COORDINATOR_INQUIRE);
    spend(150 * CONTROL_MS);
    gf_coordinator_status(world.coordinator, &status);
    assert_int_equal(status.state, GF_COORDINATOR_REGROUP);
    assert_int_equal(status.error.peer, 1);
    control_world_close(&world);
}

TEST(what_a_rank_lacks_is_its_own_fault)
{
    for (uint32_t host = 0; host < 2; host++) {
        struct control_report report = {
            .inquiry = 1,
            .tensor = GF_TENSOR_NONE,
            .edges = {.code = GF_ERR_SYSTEM, .peer = GF_RANK_NONE, .text = "no descriptors"}};
        struct gf_coordinator_status status;
        all_begun(3, 3, true);
        if (host) world.coordinator->setup.host_id = 1;
        say_fault(0, 1);
        turn();
        say_position(0, 1, 1);
        say_position(2, 1, 1);
        control_words_status(&peers[1], 1, &report);
        turn();
        found("rank 1: no descriptors");
        gf_coordinator_status(world.coordinator, &status);
        assert_int_equal(status.state, host ? GF_COORDINATOR_OVER : GF_COORDINATOR_REGROUP);
        assert_int_equal(world.coordinator->rows[1].cut, !host);
        control_world_close(&world);
    }
}

TEST(a_report_with_a_code_of_no_link_is_malformed)
{
    struct control_report report = {.inquiry = 1, .edges = {.code = GF_ERR_DATA}};
    all_begun(2, 2, true);
    control_words_status(&peers[1], 1, &report);
    turn();
    heard(1, "ended");
    control_world_close(&world);
}

TEST(a_word_of_one_that_was_left_out_is_whole)
{
    one_is_left_out();
    (void)peers[2].channel->driver->send(peers[2].channel, 0, CONTROL_READY, "\1\0\0\0\1", 5);
    turn();
    heard(2, "ended");
    control_world_close(&world);
}

TEST(an_endpoint_may_be_said_again)
{
    open_for(2, 2, true);
    all_listed(2);
    control_words_endpoint(&peers[0], 1, 0);
    turn();
    control_words_endpoint(&peers[0], 1, 0);
    control_words_endpoint(&peers[1], 1, 1);
    turn();
    heard(0, "go 1 lead 0 steps 0 pieces 2; waiting 0");
    control_world_close(&world);
}

/* It has a part of GO, or none of it, as the generation after that begins without it. */
TEST(who_has_not_read_go_and_is_left_out_begins_anew)
{
    open_for(3, 3, true);
    all_listed(3);
    spend(1010 * CONTROL_MS);
    (void)control_words_heard(peers[0].channel);
    (void)control_words_heard(peers[1].channel);
    world.room = 1;
    for (uint32_t id = 0; id < 3; id++) control_words_endpoint(&peers[id], 1, id);
    turn();
    heard(0, "go 1 lead 0 steps 0 pieces 3");
    heard(1, "go 1 lead 0 steps 0 pieces 3");
    turn();
    heard(0, "waiting 0");
    heard(1, "waiting 0");
    say_fault(0, 1);
    turn();
    heard(0, "ask 1");
    heard(1, "ask 1");
    say_position(0, 1, 1);
    say_position(1, 1, 1);
    spend(800 * CONTROL_MS);
    (void)control_words_heard(peers[0].channel);
    (void)control_words_heard(peers[1].channel);
    say_ready(0, 1, 5, false, false);
    say_ready(1, 1, 5, false, false);
    turn();
    heard(0, "list 2 rank 0 of 2");
    heard(1, "list 2 rank 1 of 2");
    control_words_endpoint(&peers[0], 2, 0);
    control_words_endpoint(&peers[1], 2, 1);
    turn();
    heard(2, "waiting 0; ended");
    control_world_close(&world);
}

/* Half of them are ready, or fewer, and the connections of the others have broken. */
TEST(the_smaller_part_waits_longer_for_those_that_are_away)
{
    for (uint32_t ready = 1; ready < 3; ready++) {
        struct gf_coordinator_status status;
        all_begun(4, 4, true);
        world.coordinator->terms.join_timeout_ns = 40 * SECOND;
        say_fault(0, 1);
        turn();
        for (uint32_t id = 0; id < ready; id++) say_position(id, 1, 1);
        for (uint32_t id = ready; id < 4; id++) breaks(id);
        for (uint32_t i = 0; i < 1000; i++) {
            turn();
            gf_coordinator_status(world.coordinator, &status);
            if (status.state == GF_COORDINATOR_REGROUP) break;
        }
        for (uint32_t id = 0; id < ready; id++) say_ready(id, 1, 5, false, false);
        spend(3500 * CONTROL_MS);
        gf_coordinator_status(world.coordinator, &status);
        assert_int_equal(status.state,
                         (ready == 2) ? GF_COORDINATOR_GATHER : GF_COORDINATOR_REGROUP);
        spend(7 * SECOND);
        gf_coordinator_status(world.coordinator, &status);
        assert_int_equal(status.state, GF_COORDINATOR_GATHER);
        control_world_close(&world);
    }
}

TEST(a_takeover_that_fails_names_the_older_of_two_generations)
{
    take_over_begin();
    peers[0].offer.standing.generation = 5;
    come(0);
    come(1);
    spend(8100 * CONTROL_MS);
    found("2 of the 3 ranks of generation 4, rank 0 first, did not dial it within 8.0 s");
    unheard();
    control_world_close(&world);
}

TEST(where_a_rank_was_has_a_name_only_where_its_tensor_has_one)
{
    struct control_report report = {
        .step = 5, .operation = GF_OPERATION_ALLREDUCE, .tensor = 3, .waits_for = GF_RANK_NONE};
    all_begun(2, 2, true);
    control_words_status(&peers[1], 1, &report);
    dies(1);
    found("rank 1 died: ended in step 5, operation allreduce, buffer 0, tensor 3 (as of");
    control_world_close(&world);
}

TEST(times_that_no_clock_counts_are_refused)
{
    for (uint32_t i = 0; i < 6; i++) {
        open_for(2, 2, true);
        uint64_t most_ns = CONTROL_TIME_NS_MAX + (i % 2);
        struct control_terms *terms = &peers[0].offer.terms;
        if (i / 2 == 0) terms->join_timeout_ns = most_ns;
        if (i / 2 == 1) terms->keepalive_ns = most_ns;
        if (i / 2 == 2) terms->exchange_timeout_ns = most_ns;
        come(0);
        heard(0, (i % 2 == 0)
                     ? "waiting 0"
                     : "refused -8 peer -1: a process offered itself with values tha; ended");
        control_world_close(&world);
    }
}

TEST(a_second_process_is_logged_once)
{
    static char said[4096];
    all_begun(2, 2, true);
    said[0] = '\0';
    world.said = said;
    world.said_bytes = sizeof said;
    peers[2].offer = peers[1].offer;
    peers[2].offer.process = 700;
    come(2);
    come(2);
    const char *first = strstr(said, "a second process of member 1 is refused");
    assert_non_null(first);
    assert_null(strstr(first + 1, "a second process"));
    control_world_close(&world);
}

/* Two ranks say the same number now and then, however fast they post. */
TEST(marks_are_told_of_every_64th_request_and_of_fewer)
{
    static struct control_calls calls;
    static const struct {
        uint64_t count, last, marks[CONTROL_CALLS_MARKS];
    } rows[] = {{5, 0, {0, 0, 0}},
                {8, 1, {0, 0, 0}},
                {64, 57, {64, 0, 0}},
                {1100, 1093, {1088, 1024, 0}},
                {16400, 16393, {16384 + 0, 16384, 16384}}};
    calls = (struct control_calls){0};
    for (uint32_t i = 0; i < LENGTH(rows); i++) {
        while (calls.count < rows[i].count)
            gf_calls_add(&calls, GF_OPERATION_ALLREDUCE, GF_TYPE_F32, 0, calls.count);
        assert_int_equal(gf_calls_number(&calls, 0), rows[i].last);
        for (uint32_t mark = 0; mark < CONTROL_CALLS_MARKS; mark++) {
            uint64_t number = rows[i].marks[mark];
            assert_int_equal(gf_calls_number(&calls, CONTROL_CALLS_LAST + mark), number);
            if (number != 0) assert_int_equal(calls.marks[mark].elem_count, number - 1);
        }
    }
}

/* Two answer at once, and one of the questions in `every`, of the first `questions`. */
static gf_status rank_1_answers(uint32_t questions, uint32_t every)
{
    struct gf_coordinator_status status = {.state = GF_COORDINATOR_INQUIRE};
    all_begun(3, 3, true);
    say_fault(0, 1);
    turn();
    say_position(1, 1, 1);
    for (uint32_t i = 0; (i < 1000) && (status.state == GF_COORDINATOR_INQUIRE); i++) {
        const uint32_t inquiry = world.coordinator->inquiry;
        say_position(0, 1, inquiry);
        say_position(2, 1, inquiry);
        if ((inquiry % every == 0) && (inquiry <= questions)) say_position(1, 1, inquiry);
        turn();
        unheard();
        gf_coordinator_status(world.coordinator, &status);
    }
    return (status.error.peer == 1) ? GF_OK : GF_AGAIN;
}

TEST(who_is_late_in_nearly_all_answers_does_not_poll)
{
    assert_int_equal(rank_1_answers(0, 1), GF_OK);
    found("rank 1 is behind in step 5, between operations: computing");
    assert_true(world.coordinator->rows[1].cut);
    control_world_close(&world);
    assert_int_equal(rank_1_answers(100, 2), GF_AGAIN);
    control_world_close(&world);
    assert_int_equal(rank_1_answers(9, 1), GF_AGAIN); /* of 24, of which 18 are nearly all */
    control_world_close(&world);
    assert_int_equal(rank_1_answers(5, 1), GF_OK);
    control_world_close(&world);
}

/* Whoever waits for a word hears each second that the coordinator is there. */
TEST(who_waits_hears_that_the_coordinator_is_there)
{
    all_begun(4, 5, true);
    spend(1010 * CONTROL_MS);
    heard(0, "");
    say_ready(0, 1, 5, true, false);
    turn();
    spend(1010 * CONTROL_MS);
    heard(0, "waiting 0");
    heard(1, "");
    say_fault(1, 1);
    turn();
    unheard();
    spend(1010 * CONTROL_MS);
    heard(1, "error -6 peer 2 step 0 goes on: rank 2 does not answer (asked 0.8 s ago): it is "
             "stopped or d; waiting 0");
    control_world_close(&world);
}

/* A process that is of no generation gives up beside one whose generation is to be taken over. */
TEST(a_newcomer_that_gives_up_does_not_wait)
{
    struct control_fault fault = {.ends = true,
                                  .error = {.code = GF_ERR_DATA,
                                            .peer = GF_RANK_NONE,
                                            .tensor = GF_TENSOR_NONE,
                                            .text = "its file is broken"}};
    take_over_begin_of(4);
    come(0);
    come(3);
    heard(3, "waiting 0");
    control_words_fault(&peers[3], 0, &fault);
    turn();
    come(1);
    come(2);
    heard(0, "waiting 0");
    heard(3,
          "error -7 peer -1 step 0: the other ranks went on without this one, as nothing was hea");
    assert_int_equal(gf_control_joiner_count(world.coordinator), 0);
    control_world_close(&world);
}
