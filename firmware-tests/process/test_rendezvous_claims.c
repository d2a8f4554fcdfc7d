/* A job without a key on several hosts: whoever claims a rank, the join waits for the right
 * process. */
#include "firmware-tests/support/suite.h"
#include "drivers/tcp/rendezvous_frame.h"
#include "firmware-tests/support/members_world.h"
#include "firmware-tests/support/stranger.h"
#include "firmware-tests/support/tcp_middle.h"
#include "lib/membership/members_state.h"

#include <sys/socket.h>
#include <unistd.h>

#define CLAIMED 2u
#define SIZE 3u

static int claim(void)
{
    unsigned char hello[STRANGER_HELLO_BYTES];
    int fd = stranger_at(tcp.address);
    stranger_hello(hello, 4711, CLAIMED, SIZE, 0);
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    return fd;
}

static void turns(int count)
{
    for (int i = 0; i < count; i++) {
        world.now_ns += MS;
        for (uint32_t rank = 0; rank < SIZE; rank++) {
            if ((world.ranks[rank].members == NULL) || world.ranks[rank].stopped) continue;
            (void)gf_members_poll(world.ranks[rank].members, world.now_ns);
        }
        usleep(20); /* the kernel's loopback */
    }
    assert_int_equal(error_of(0)->code, GF_OK);
    assert_int_equal(error_of(1)->code, GF_OK);
}

/* Ranks 0 and 1 are there. */
static void begin(void)
{
    const struct gf_offer offer = offer_of(SIZE);
    tcp = (struct tcp_world){.insecure = true};
    members_world_begin(SIZE, true, 0);
    rank_open(0, &offer);
    rank_open(1, &offer);
    turns(100);
}

static void claimed_open(const struct gf_offer *offer)
{
    struct gf_rendezvous_setup setup = tcp_setup(&tcp, CLAIMED, SIZE);
    struct gf_fault fault = {0};
    free(world.ranks[CLAIMED].state);
    world.ranks[CLAIMED] = (struct rank){0};
    tcp_world_end_close(&tcp, CLAIMED);
    assert_int_equal(tcp_world_end_open(&tcp, CLAIMED, &setup, world.now_ns, &fault), GF_OK);
    rank_open(CLAIMED, offer);
}

static void right_one_comes(void)
{
    const struct gf_offer offer = offer_of(SIZE);
    claimed_open(&offer);
    members_world_until(GF_OK);
    assert_endpoints_are_everywhere();
    members_world_end();
}

static void nobody_comes(gf_status code, const char *text)
{
    if (world.ranks[CLAIMED].members != NULL) world.ranks[CLAIMED].stopped = true;
    world.now_ns = 66 * SECOND;
    members_world_until(code);
    assert_all_failed(code, CLAIMED, "rank 2 of 3 did not join within");
    if (strstr(error_of(0)->text, text) == NULL) print_error("'%s'\n", error_of(0)->text);
    assert_non_null(strstr(error_of(0)->text, text));
    members_world_end();
}

TEST(one_whose_configuration_differs_hears_it_and_ends_no_join)
{
    for (int comes = 0; comes < 2; comes++) {
        struct gf_offer other = offer_of(SIZE);
        other.tensor_count = 9;
        begin();
        claimed_open(&other);
        turns(300);
        assert_int_equal(error_of(CLAIMED)->code, GF_ERR_MISMATCH);
        assert_non_null(
            strstr(error_of(CLAIMED)->text, "refused rank 2: tensor tables differ: 3 tensors"));
        if (comes)
            right_one_comes();
        else
            nobody_comes(GF_ERR_MISMATCH,
                         "a process that proved nothing: tensor tables differ: 3 tensors");
    }
}

TEST(one_that_gives_up_ends_no_join)
{
    static unsigned char frame[GF_FRAME_BYTES_MAX];
    const struct gf_error error = {.code = GF_ERR_ABORTED};
    const uint32_t bytes = 4 * 4 + 2 * 8 + sizeof error.foreign_call + sizeof error.text;
    struct gf_put put = {frame, sizeof frame};
    begin();
    int fd = claim();
    gf_frame_header_put(&put, MEMBERS_GIVES_UP, bytes, 4711, CLAIMED);
    gf_put_u32(&put, (uint32_t)GF_ERR_ABORTED);
    assert_int_equal(send(fd, frame, GF_FRAME_HEADER_BYTES + bytes, MSG_NOSIGNAL),
                     GF_FRAME_HEADER_BYTES + bytes);
    turns(50);
    assert_non_null(strstr(world.ranks[0].members->claim.text, "rank 2 gave up"));
    right_one_comes();
    (void)close(fd);
}

TEST(one_that_goes_away_ends_no_join)
{
    for (int comes = 0; comes < 2; comes++) {
        begin();
        for (int i = 0; i < 10; i++) {
            int fd = claim();
            turns(20);
            (void)close(fd);
            turns(20);
        }
        if (comes)
            right_one_comes();
        else
            nobody_comes(GF_ERR_PEER, "a process that proved nothing: rank 2 lost its");
    }
}

TEST(one_that_sends_what_cannot_come_ends_no_join)
{
    for (uint32_t kind = MEMBERS_OFFER; kind <= MEMBERS_FRAME_COUNT; kind++) {
        unsigned char frame[GF_FRAME_HEADER_BYTES + 8] = {0};
        struct gf_put put = {frame, sizeof frame};
        begin();
        int fd = claim();
        gf_frame_header_put(&put, kind, 8, 4711, CLAIMED);
        assert_int_equal(send(fd, frame, sizeof frame, MSG_NOSIGNAL), sizeof frame);
        turns(50);
        (void)close(fd);
        turns(50);
        right_one_comes();
    }
}

/* Of two nodes, so that all are asked for an endpoint with a network: who comes after that hears of
 * it too. */
TEST(one_that_goes_away_between_two_endpoints_ends_no_join)
{
    static unsigned char endpoint[ENDPOINT_MAX];
    uint32_t renewed = 0;
    uint32_t network = GF_NETWORK_NONE;
    struct gf_offer offer = offer_of(SIZE);
    tcp = (struct tcp_world){.insecure = true};
    members_world_begin(SIZE, true, 0);
    offer.node = 7;
    rank_open(0, &offer);
    rank_open(1, &offer);
    offer.node = 9;
    claimed_open(&offer);
    for (int i = 0; (i < 1000) && !gf_members_link_due(world.ranks[CLAIMED].members, &network); i++)
        turns(1);
    assert_int_equal(network, GF_NETWORK_LINK);
    claimed_open(&offer);
    for (int i = 0; (i < 20000) && !members_world_progress(GF_OK); i++) {
        for (uint32_t rank = 0; rank < SIZE; rank++) {
            if (!gf_members_link_due(world.ranks[rank].members, &network)) continue;
            renewed |= 1u << rank;
            memset(endpoint, (int)(100 + rank), sizeof endpoint);
            gf_members_link_renewed(world.ranks[rank].members, endpoint, ENDPOINT_MAX - rank);
        }
        usleep(20);
    }
    assert_int_equal(renewed, 0x7);
    for (uint32_t rank = 0; rank < SIZE; rank++) {
        size_t bytes = 0;
        const unsigned char *of = gf_members_endpoint(world.ranks[rank].members, CLAIMED, &bytes);
        assert_true((bytes == ENDPOINT_MAX - CLAIMED) && (of[0] == 100 + CLAIMED));
    }
}

/* The right one is told "not now" until the other has been silent for a second. */
TEST(a_silent_one_gives_way_to_who_comes)
{
    begin();
    int fd = claim();
    turns(50);
    right_one_comes();
    (void)close(fd);
}

TEST(a_rank_that_is_kept_is_named_at_the_deadline)
{
    const struct gf_offer offer = offer_of(SIZE);
    unsigned char frame[GF_FRAME_HEADER_BYTES] = {0};
    struct gf_put put = {frame, sizeof frame};
    begin();
    int fd = claim();
    gf_frame_header_put(&put, GF_FRAME_LEFT, 0, 4711, CLAIMED); /* a word, so it is not silent */
    assert_int_equal(send(fd, frame, sizeof frame, MSG_NOSIGNAL), sizeof frame);
    turns(50);
    claimed_open(&offer);
    turns(2000);
    world.ranks[0].stopped = world.ranks[1].stopped = true;
    world.now_ns = 66 * SECOND;
    members_world_until(GF_ERR_MISMATCH);
    assert_non_null(strstr(error_of(CLAIMED)->text, "refused rank 2 for"));
    assert_non_null(
        strstr(error_of(CLAIMED)->text, "rank 2 is here already: was it started twice?"));
    (void)close(fd);
}

/* A process that says hello and then does not poll for seconds finds its rank claimed, and claims
 * it again. */
TEST(a_slow_one_that_was_rejected_comes_in)
{
    const struct gf_offer offer = offer_of(SIZE);
    begin();
    claimed_open(&offer);
    for (int i = 0; i < 200; i++) { /* until its hello is out, but its answer is not read */
        turns(1);
        if (tcp.ends[CLAIMED]->sent_bytes > 0) break;
    }
    world.ranks[CLAIMED].stopped = true;
    turns(1500);
    assert_true(gf_members_of(world.ranks[0].members, CLAIMED)->connected);
    int fd = claim();
    turns(100);
    world.ranks[CLAIMED].stopped = false;
    members_world_until(GF_OK);
    assert_endpoints_are_everywhere();
    (void)close(fd);
}

TEST_EACH(NULL, members_world_end)
