/* Nobody on the way changes, repeats, leaves out or puts in a byte of a keyed control channel.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/channel_hub.h"
#include "firmware-tests/support/tcp_keys.h"
#include "firmware-tests/support/tcp_middle.h"

#include <sys/socket.h>
#include <unistd.h>

#define SMALL_FRAME (GF_FRAME_HEADER_BYTES + 8u + GF_AUTH_MAC_BYTES)

static struct middle middle;

static void middle_turn(void)
{
    middle_progress(&middle);
}

/* A member begins behind the middle, which changes a byte of each connection where its mask
 * is not 0. */
static void middle_world_begin(int flip_direction, uint32_t flip_at, unsigned char flip_mask)
{
    struct gf_channel_setup setup;
    hub_clear();
    hub_turn_too = middle_turn;
    hub.key_file = key_a;
    setup = hub_setup(true);
    hub_open(0, &setup);
    middle_open(&middle, hub.address);
    middle.flip_direction = flip_direction;
    middle.flip_at = flip_at;
    middle.flip_mask = flip_mask;
    setup = hub_setup(false);
    setup.address = middle.address;
    hub_open(1, &setup);
}

static void middle_world_open(void)
{
    middle_world_begin(0, 0, 0);
    /* who changes nothing is not noticed */
    HUB_UNTIL((heard[0].connected == 1) && (heard[1].connected == 1));
}

static void middle_world_close(void)
{
    hub_turn_too = NULL;
    middle_close(&middle);
}

TEST(a_recorded_handshake_is_no_use)
{
    unsigned char recorded[HELLO_FRAME];
    char text[GF_FRAME_REASON_BYTES];
    middle_world_open();
    assert_int_equal(middle.recorded[MIDDLE_UP], HELLO_FRAME);
    assert_int_equal(middle.recorded[MIDDLE_DOWN], NONCE_FRAME + ANSWER_FRAME + GF_AUTH_MAC_BYTES);
    memcpy(recorded, middle.record[MIDDLE_UP], HELLO_FRAME);
    middle_world_close();
    hub_end();
    hub_clear();
    hub.key_file = key_a;
    struct gf_channel_setup setup = hub_setup(true);
    hub_open(0, &setup);
    int fd = stranger_at(hub.address);
    say(fd, recorded, HELLO_FRAME);
    hear_refusal(fd, true, text);
    assert_non_null(strstr(text, "did not prove that it has this job's key"));
    assert_int_equal(heard[0].connected, 0);
    (void)close(fd);
    hub_member(1);
    HUB_UNTIL(heard[0].connected == 1);
    hub_end();
}

/* What rank 0 said once, said by who listens in its place. */
TEST(a_recorded_acceptor_is_no_use)
{
    unsigned char recorded[NONCE_FRAME + ANSWER_FRAME + GF_AUTH_MAC_BYTES];
    unsigned char hello[HELLO_FRAME];
    middle_world_open();
    memcpy(recorded, middle.record[MIDDLE_DOWN], sizeof recorded);
    hub_close(1);
    hub_close(0);
    hub_turn_too = NULL;
    struct gf_channel_setup setup = hub_setup(false);
    setup.address = middle.address;
    hub_open(1, &setup);
    int fd = -1;
    HUB_UNTIL((fd = accept4(middle.listen_fd, NULL, NULL, SOCK_NONBLOCK)) >= 0);
    say(fd, recorded, sizeof recorded);
    heard[1].connected = 0;
    assert_int_equal(hear(fd, hello, sizeof hello), sizeof hello);
    for (int i = 0; i < 100; i++) hub_turn();
    assert_int_equal(heard[1].connected, 0);
    assert_int_equal(heard[1].status, GF_OK);
    (void)close(fd);
    middle_world_close();
}

/* A rank that is reached over a middle that changes one byte of each connection. */
static void flip_check(int direction, uint32_t at, unsigned char mask)
{
    /* rank 0 has believed by then, rightly */
    bool late = (direction == MIDDLE_DOWN) && (at >= NONCE_FRAME);
    middle_world_begin(direction, at, mask);
    /* Refused, or hung up on and tried again. */
    HUB_UNTIL((heard[1].status < 0) || (middle.connections >= 2));
    assert_int_equal(heard[1].connected, 0);
    hub_close(1);
    middle_world_close();
    if (late)
        HUB_UNTIL(heard[0].up == 0);
    else
        assert_int_equal(heard[0].connected, 0);
    hub_member(2);
    HUB_UNTIL((heard[0].up != 0) && (heard[2].connected == 1));
    hub_end();
}

TEST(each_byte_of_the_handshake_is_covered)
{
    const uint32_t bytes[2] = {HELLO_FRAME, NONCE_FRAME + ANSWER_FRAME + GF_AUTH_MAC_BYTES};
    for (int direction = 0; direction < 2; direction++) {
        for (uint32_t at = 0; at < bytes[direction]; at++) {
            flip_check(direction, at, (at % 2 == 0) ? 0x01 : 0x80);
        }
    }
}

static void small_send(int direction, uint32_t kind)
{
    uint32_t from = (direction == MIDDLE_UP) ? 1 : 0;
    assert_int_equal(gf_channel_tcp.send(hub.ends[from], 0, kind, "8 bytes", 8), GF_OK);
}

/* What `direction` leads to has seen `frames` frames and then cut the connection. */
static void assert_cut_off(int direction, uint32_t frames, const char *text)
{
    uint32_t to = (direction == MIDDLE_UP) ? 0 : 1;
    HUB_UNTIL(heard[to].ended != 0);
    if (strstr(heard[to].text, text) == NULL) print_error("'%s'\n", heard[to].text);
    assert_non_null(strstr(heard[to].text, text));
    assert_int_equal(heard[to].frames, frames);
    assert_int_equal(heard[to].end, GF_CHANNEL_BROKE);
    middle_world_close();
    hub_end();
}

TEST(each_byte_of_a_frame_is_covered)
{
    const unsigned char masks[] = {0x01, 0x80};
    for (uint32_t i = 0; i < 2 * SMALL_FRAME; i++) {
        int direction = (int)(i % 2);
        middle_world_open();
        middle.flip_direction = direction;
        middle.flip_at = middle.recorded[direction] + i / 2;
        middle.flip_mask = masks[i / 2 % 2];
        /* More than one, for a size that was made larger. */
        for (uint32_t k = 1; k <= 8; k++) small_send(direction, k);
        assert_cut_off(direction, 0, "sent a ");
    }
}

enum trick { REPEAT, SWAP, DROP, NO_MAC, REFLECT };
static const struct trick_case {
    const char *name;
    enum trick trick;
    uint32_t frames;
} tricks[] = {
    {"a_frame_comes_twice", REPEAT, 2},
    {"two_frames_change_places", SWAP, 0},
    {"a_frame_is_left_out", DROP, 0},
    {"a_frame_is_put_in", NO_MAC, 0},
    {"a_frame_goes_back_to_its_sender", REFLECT, 0},
};

TEST(frames_come_once_in_order_from_the_peer)
{
    for (size_t i = 0; i < 2 * LENGTH(tricks); i++) {
        const struct trick_case *c = &tricks[i / 2];
        int direction = (int)(i % 2);
        int back = 1 - direction;
        unsigned char frame[SMALL_FRAME] = {0};
        struct gf_put put = {frame, sizeof frame};
        middle_world_open();
        uint32_t at = middle.recorded[direction];
        uint32_t back_at = middle.recorded[back];
        bool held = (c->trick != REPEAT);
        middle.hold[direction] = held;
        middle.hold[back] = held;
        small_send(direction, 1);
        small_send(direction, 2);
        small_send(back, 1);
        HUB_UNTIL((middle.recorded[direction] == at + 2 * SMALL_FRAME) &&
                  (middle.recorded[back] == back_at + SMALL_FRAME));
        const unsigned char *first = middle.record[direction] + at;
        const unsigned char *second = first + SMALL_FRAME;
        switch (c->trick) {
        case REPEAT:
            HUB_UNTIL(heard[(direction == MIDDLE_UP) ? 0 : 1].frames == 2);
            middle_inject(&middle, direction, second, SMALL_FRAME);
            break;
        case SWAP:
            middle_inject(&middle, direction, second, SMALL_FRAME);
            middle_inject(&middle, direction, first, SMALL_FRAME);
            break;
        case DROP: middle_inject(&middle, direction, second, SMALL_FRAME); break;
        case NO_MAC:
            gf_frame_header_put(&put, 1, 8, 4711, GF_RANK_NONE);
            middle_inject(&middle, direction, frame, SMALL_FRAME);
            break;
        case REFLECT:
            memcpy(frame, middle.record[back] + back_at, SMALL_FRAME);
            middle_inject(&middle, direction, frame, SMALL_FRAME);
            break;
        }
        assert_cut_off(direction, c->frames, "whose MAC does not fit");
    }
}

TEST_EACH(hub_clear, hub_end)
TEST_AROUND(keys_setup, keys_teardown)
