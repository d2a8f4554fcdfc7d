/* The simulated control channel: who is connected to whom, in which order news arrives, and how an end is learnt. */
#include "firmware-tests/support/suite.h"
#include "drivers/sim/sim.h"

#define WORLD 4u
#define FRAME_NS 20000u
#define DETECT_NS 700000u
#define JOIN_NS 9000000u

struct star {
    struct gf_sim *sim;
    const struct gf_rendezvous_driver *driver;
    struct gf_rendezvous *ends[WORLD];
    _Alignas(64) unsigned char states[WORLD][512];
};

static void star_open(struct star *s, uint32_t rank)
{
    const struct gf_drivers *drivers = gf_sim_drivers(s->sim, rank);
    struct gf_rendezvous_setup setup = {.rank = rank, .world = WORLD, .join_timeout_ns = JOIN_NS,
                                        .arg = drivers->rendezvous_arg};
    struct gf_fault fault = {.code = GF_OK};
    assert_true(drivers->rendezvous->state_bytes(&setup) <= sizeof s->states[rank]);
    assert_int_equal(drivers->rendezvous->open(&setup, s->states[rank], gf_sim_now_ns(s->sim), &s->ends[rank], &fault),
                     GF_OK);
}

static void star_begin(struct star *s, uint32_t opened)
{
    struct gf_sim_setup setup = {.world = WORLD, .detect_ns = DETECT_NS};
    memset(s, 0, sizeof *s);
    s->sim = gf_sim_create(&setup);
    assert_non_null(s->sim);
    s->driver = gf_sim_drivers(s->sim, 0)->rendezvous;
    for (uint32_t rank = 0; rank < opened; rank++) star_open(s, rank);
    while (gf_sim_woken_next(s->sim) != GF_RANK_NONE) continue;
}

static void star_close(struct star *s, uint32_t rank)
{
    s->driver->close(s->ends[rank]);
    s->ends[rank] = NULL;
}

static void star_end(struct star *s)
{
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        if (s->ends[rank] != NULL) star_close(s, rank);
    }
    gf_sim_destroy(s->sim);
}

static gf_status star_poll(struct star *s, uint32_t rank, struct gf_rendezvous_event *event_out)
{
    return s->driver->poll(s->ends[rank], gf_sim_now_ns(s->sim), event_out);
}

static void expect(struct star *s, uint32_t rank, gf_rendezvous_event_kind kind, uint32_t from, const char *text)
{
    struct gf_rendezvous_event event;
    assert_int_equal(star_poll(s, rank, &event), GF_OK);
    assert_int_equal(event.kind, kind);
    assert_int_equal(event.rank, from);
    if (kind == GF_RENDEZVOUS_FRAME) {
        assert_int_equal(event.size_bytes, strlen(text));
        assert_memory_equal(event.payload, text, strlen(text));
    } else {
        assert_string_equal(event.text, text);
    }
}

static void expect_silence(struct star *s, uint32_t rank)
{
    struct gf_rendezvous_event event;
    assert_int_equal(star_poll(s, rank, &event), GF_AGAIN);
}

static gf_status frame(struct star *s, uint32_t from, uint32_t to, const char *text)
{
    return s->driver->send(s->ends[from], to, 3, text, (uint32_t)strlen(text));
}

static void run(struct star *s, uint64_t for_ns)
{
    gf_sim_advance_to(s->sim, gf_sim_now_ns(s->sim) + for_ns);
}

/* All open, all news of it taken. */
static void star_whole(struct star *s)
{
    star_begin(s, WORLD);
    run(s, FRAME_NS);
    for (uint32_t rank = 1; rank < WORLD; rank++) {
        expect(s, 0, GF_RENDEZVOUS_CONNECTED, rank, "");
        expect(s, rank, GF_RENDEZVOUS_CONNECTED, 0, "");
        expect_silence(s, rank);
    }
    expect_silence(s, 0);
}

TEST(frames_keep_their_order_and_wake)
{
    static struct star s;
    struct gf_rendezvous_event event;
    static const unsigned char large[GF_FRAME_PAYLOAD_MAX + 1];
    star_whole(&s);
    while (gf_sim_woken_next(s.sim) != GF_RANK_NONE) continue;
    assert_int_equal(frame(&s, 2, 0, "one"), GF_OK);
    assert_int_equal(frame(&s, 2, 0, ""), GF_OK);
    assert_int_equal(frame(&s, 3, 0, "three"), GF_OK);
    assert_int_equal(frame(&s, 0, 1, "down"), GF_OK);
    assert_true(s.driver->flushed(s.ends[2]));
    assert_int_equal(s.ends[3]->sent_bytes, 5);
    assert_int_equal(frame(&s, 2, 3, "across"), GF_ERR_PEER);
    assert_int_equal(frame(&s, 2, 2, "self"), GF_ERR_PEER);
    assert_int_equal(frame(&s, 0, 0, "self"), GF_ERR_PEER);
    assert_int_equal(frame(&s, 0, WORLD, "nobody"), GF_ERR_PEER);
    expect_silence(&s, 0);
    assert_true(gf_sim_advance(s.sim));
    assert_int_equal(gf_sim_woken_next(s.sim), 0);
    assert_int_equal(gf_sim_woken_next(s.sim), 1);
    assert_int_equal(gf_sim_woken_next(s.sim), GF_RANK_NONE);
    assert_int_equal(star_poll(&s, 0, &event), GF_OK);
    assert_int_equal(event.frame_kind, 3);
    assert_memory_equal(event.payload, "one", 3);
    expect(&s, 0, GF_RENDEZVOUS_FRAME, 2, "");
    expect(&s, 0, GF_RENDEZVOUS_FRAME, 3, "three");
    expect(&s, 1, GF_RENDEZVOUS_FRAME, 0, "down");
    expect_silence(&s, 0);
    assert_int_equal(s.driver->send(s.ends[0], 1, 1, large, GF_FRAME_PAYLOAD_MAX), GF_OK);
    assert_int_equal(s.driver->send(s.ends[0], 1, 1, large, sizeof large), GF_ERR_PARAM);
    assert_non_null(strstr(s.ends[0]->fault.text, "4097 bytes; at most 4096"));
    star_end(&s);
}

/* A close and a death, of the coordinator and of another: its last frame first, then the end after detect_ns. */
TEST(an_end_is_learnt_after_the_last_frame)
{
    for (uint32_t gone = 0; gone < 2; gone++) {
        for (uint32_t kills = 0; kills < 2; kills++) {
            const char *text = (kills == 1) ? "connection reset by peer" : "closed by peer";
            static struct star s;
            star_whole(&s);
            assert_int_equal(frame(&s, gone, 1 - gone, "last words"), GF_OK);
            if (kills == 1) {
                gf_sim_kill(s.sim, gone);
                assert_int_equal(frame(&s, gone, 1 - gone, "ghost"), GF_ERR_ABORTED);
                struct gf_rendezvous_event event;
                assert_int_equal(star_poll(&s, gone, &event), GF_ERR_ABORTED);
            } else {
                star_close(&s, gone);
            }
            run(&s, DETECT_NS - 1);
            expect(&s, 1 - gone, GF_RENDEZVOUS_FRAME, gone, "last words");
            expect_silence(&s, 1 - gone);
            assert_int_equal(frame(&s, 1 - gone, gone, "nobody listens"), GF_OK);
            run(&s, 1);
            expect(&s, 1 - gone, GF_RENDEZVOUS_ENDED, gone, text);
            assert_int_equal(frame(&s, 1 - gone, gone, "hello?"), GF_ERR_PEER);
            if (gone == 0) {
                expect(&s, 3, GF_RENDEZVOUS_ENDED, 0, text);
            } else {
                expect_silence(&s, 3);
            }
            run(&s, 10 * DETECT_NS);
            expect_silence(&s, 1 - gone);
            star_end(&s);
        }
    }
}

TEST(a_cut_holds_frames_in_their_order)
{
    static struct star s;
    star_whole(&s);
    gf_sim_partition(s.sim, 0, 2, true);
    assert_int_equal(frame(&s, 2, 0, "first"), GF_OK);
    run(&s, FRAME_NS + FRAME_NS / 2);
    assert_int_equal(frame(&s, 2, 0, "second"), GF_OK);
    assert_int_equal(frame(&s, 3, 0, "other"), GF_OK);
    gf_sim_partition(s.sim, 1, 3, false); /* another cut's end changes nothing */
    run(&s, FRAME_NS / 2);
    expect_silence(&s, 0);
    gf_sim_partition(s.sim, 0, 2, false);
    assert_int_equal(frame(&s, 2, 0, "third"), GF_OK);
    run(&s, FRAME_NS);
    expect(&s, 0, GF_RENDEZVOUS_FRAME, 2, "first");
    expect(&s, 0, GF_RENDEZVOUS_FRAME, 2, "second");
    expect(&s, 0, GF_RENDEZVOUS_FRAME, 3, "other");
    expect(&s, 0, GF_RENDEZVOUS_FRAME, 2, "third");
    star_end(&s);
}

TEST(who_finds_no_coordinator_ends_after_the_join_timeout)
{
    static struct star s;
    struct gf_rendezvous_event event;
    star_begin(&s, 0);
    star_open(&s, 1);
    while (gf_sim_woken_next(s.sim) != GF_RANK_NONE) continue;
    gf_sim_advance_to(s.sim, JOIN_NS);
    expect_silence(&s, 1);
    assert_true(gf_sim_advance(s.sim));
    assert_true(gf_sim_woken(s.sim, 1));
    assert_int_equal(star_poll(&s, 1, &event), GF_ERR_TIMEOUT);
    assert_int_equal(s.ends[1]->fault.peer, 0);
    assert_non_null(strstr(s.ends[1]->fault.text, "rank 1 cannot reach the coordinator"));
    star_end(&s);
}

TEST(a_stopped_rank_hears_nothing_until_it_goes_on)
{
    static struct star s;
    star_whole(&s);
    gf_sim_stop(s.sim, 1, true);
    assert_int_equal(frame(&s, 0, 1, "there?"), GF_OK);
    run(&s, 10 * DETECT_NS);
    expect_silence(&s, 1);
    expect_silence(&s, 0); /* a stopped process keeps its connections */
    gf_sim_stop(s.sim, 1, false);
    assert_true(gf_sim_woken(s.sim, 1));
    expect(&s, 1, GF_RENDEZVOUS_FRAME, 0, "there?");
    star_end(&s);
}
