/* Floods of first frames: what they cost, and that ranks get past them. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/tcp_keys.h"
#include "firmware-tests/support/tcp_middle.h"

#include <unistd.h>

/* Who has no key gets one refusal, and no place among those who are waited for. */
TEST(a_hello_without_its_proof_is_rejected_at_once)
{
    unsigned char said[SAID];
    unsigned char reply[REFUSAL_FRAME];
    unsigned char more;
    keyed_open(0, 0, 2, key_a);
    for (uint32_t i = 0; i <= HELLO_FRAME; i++) { /* one bit of each byte, at last none */
        int fd = stranger_meets(star.address, 1, 2, key_a, said);
        if (i < HELLO_FRAME) said[NONCE_FRAME + i] ^= 0x10;
        say(fd, said + NONCE_FRAME, HELLO_FRAME);
        size_t bytes = hear(fd, reply, (i < HELLO_FRAME) ? sizeof reply : ANSWER_FRAME);
        if (i == HELLO_FRAME) {
            assert_int_equal(bytes, ANSWER_FRAME);
            assert_int_equal(gf_frame_header_get(reply).kind, GF_FRAME_ANSWER);
        } else {
            assert_true((bytes == 0) || ((bytes == sizeof reply) &&
                                         (gf_frame_header_get(reply).kind == GF_FRAME_REFUSAL)));
            assert_int_equal(hear(fd, &more, 1), 0);
            assert_int_equal(seen[0].connected | seen[0].refused, 0);
        }
        (void)close(fd);
    }
}

/* One hello that was heard on the wire, said again on 2,500 connections. */
TEST(a_replayed_hello_is_noise)
{
    static int fds[250];
    unsigned char said[SAID];
    keyed_open(0, 0, 3, key_a);
    (void)close(stranger_meets(star.address, 1, 3, key_a, said));
    memset(fds, -1, sizeof fds);
    for (uint32_t i = 0; i < 2500; i++) {
        int *fd = &fds[i % LENGTH(fds)];
        if (*fd >= 0) (void)close(*fd);
        *fd = stranger_at(star.address);
        say(*fd, said + NONCE_FRAME, HELLO_FRAME);
        if (i % 4 == 0) turn();
        if (i == 1000) keyed_open(1, 1, 3, key_a);
        if (i == 2000) keyed_open(2, 2, 3, key_a);
    }
    uint64_t since_ns = now_ns;
    UNTIL((seen[0].connected == 6) && (seen[1].connected == 1) && (seen[2].connected == 1));
    assert_true(now_ns - since_ns < SECOND);
    assert_int_equal(seen[0].refused | seen[0].ended, 0);
    for (size_t i = 0; i < LENGTH(fds); i++) (void)close(fds[i]);
}

/* 500 of them lie in front of two ranks. */
TEST(a_flood_of_hellos_costs_a_bounded_share_of_each_poll)
{
    static int fds[500];
    keyed_open(0, 0, 3, key_a);
    for (int i = 0; i < 500; i++) fds[i] = stranger_greets(star.address, 1, 3);
    for (uint32_t rank = 1; rank < 3; rank++) keyed_open(rank, rank, 3, key_a);
    uint32_t turns = 0;
    while (seen[0].connected != 6) {
        turn();
        assert_true(++turns < 200);
    }
    assert_true(turns > 500 / 16); /* 16 a poll, no more */
    for (int i = 0; i < 500; i++) (void)close(fds[i]);
}

/* Reasons are for ranks that were started wrongly: 16 in 100 ms. The others hear the connection's
 * end. */
TEST(in_a_flood_most_hear_no_reason)
{
    char text[GF_FRAME_REASON_BYTES];
    keyed_open(0, 0, 2, key_a);
    for (uint32_t round = 0; round < 2; round++) {
        uint32_t told = 0;
        for (uint32_t i = 0; i < 40; i++) {
            int fd = stranger_greets(star.address, 1, 2);
            hear_refusal(fd, true, text);
            told += (text[0] != 0);
            (void)close(fd);
        }
        assert_int_equal(told, 16);
        now_ns += 100 * MS;
    }
}

/* Each rank listens for the day when it coordinates. More strangers than the kernel keeps waiting
 * come there before. */
TEST(strangers_do_not_lie_in_front_of_a_new_star)
{
    char at[GF_CONTROL_ADDRESS_BYTES];
    keyed_world(3);
    gf_rendezvous_tcp.address(star.ends[1], at);
    for (int i = 0; i < 1500; i++) {
        (void)close(stranger_greets(at, 2, 3));
        if (i % 8 == 0) turn();
    }
    tcp_world_end_close(&star, 0);
    UNTIL((seen[1].ended == 1) && (seen[2].ended == 1));
    memset(&seen[1], 0, sizeof seen[1]);
    memset(&seen[2], 0, sizeof seen[2]);
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[2], now_ns, 1, at), GF_AGAIN);
    for (int i = 0; i < 20; i++) turn();
    assert_int_equal(seen[1].connected | seen[2].connected, 0); /* not the centre yet: held */
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[1], now_ns, 1, at), GF_OK);
    uint64_t since_ns = now_ns;
    UNTIL((seen[1].connected == 4) && (seen[2].connected == 2));
    assert_true(now_ns - since_ns < 5 * MS);
}

/* Polls from the coordinator's end until both survivors are connected anew; before each, so many
 * strangers come to both. */
static uint32_t view_change_polls(uint32_t strangers_a_poll)
{
    char at[2][GF_CONTROL_ADDRESS_BYTES];
    uint32_t polls = 0;
    unsigned char said[SAID];
    begin();
    keyed_world(3);
    for (uint32_t i = 0; i < 2; i++) gf_rendezvous_tcp.address(star.ends[1 + i], at[i]);
    (void)close(stranger_meets(at[0], 2, 3, key_a, said)); /* a hello that was right once */
    tcp_world_end_close(&star, 0);
    UNTIL((seen[1].ended == 1) && (seen[2].ended == 1));
    memset(&seen[1], 0, 2 * sizeof seen[1]);
    for (; (seen[1].connected != 4) || (seen[2].connected != 2); polls++) {
        for (uint32_t i = 0; i < 2 * strangers_a_poll; i++) {
            int fd = stranger_at(at[i % 2]);
            say(fd, said + NONCE_FRAME, HELLO_FRAME);
            (void)close(fd);
        }
        if (polls == 1)
            assert_int_equal(gf_rendezvous_tcp.reform(star.ends[2], now_ns, 1, at[0]), GF_AGAIN);
        if (polls == 2)
            assert_int_equal(gf_rendezvous_tcp.reform(star.ends[1], now_ns, 1, at[0]), GF_OK);
        turn();
        assert_true(polls < 1000);
    }
    tcp_world_close(&star);
    return polls;
}

/* Twice as many come as a poll looks at: far more than 5,000 a second. */
TEST(in_a_flood_a_view_change_takes_at_most_twice_the_polls)
{
    uint32_t quiet = view_change_polls(0);
    uint32_t flooded = view_change_polls(32);
    print_message("# %u polls, %u in a flood\n", quiet, flooded);
    assert_true(flooded <= 2 * quiet);
}

TEST_EACH(begin, world_end)
TEST_AROUND(keys_setup, keys_teardown)
