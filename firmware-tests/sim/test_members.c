/* Joining and leaving. */
#include "firmware-tests/support/suite.h"
#include "lib/membership/members_state.h"
#include "firmware-tests/support/members_world.h"

#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

static void world_leaves(void)
{
    for (uint32_t turn = 0; turn < 100000; turn++) {
        bool all = true;
        world.now_ns += MS;
        for (uint32_t i = 0; i < world.size; i++) {
            /* any order; with 5 | size some come late */
            uint32_t rank = (i * 5 + turn) % world.size;
            if (turn < rank) { /* those who leave later still poll */
                assert_int_equal(gf_members_poll(world.ranks[rank].members, world.now_ns), GF_OK);
                all = false;
                continue;
            }
            gf_status status = gf_members_leave(world.ranks[rank].members, world.now_ns);
            assert_true(status >= 0);
            if (status != GF_OK) all = false;
        }
        if (all) return;
    }
    fail_msg("the world did not get to leave");
}

TEST(all_join_see_all_addresses_and_leave)
{
    const uint32_t sizes[] = {1, 2, 3, 16};
    for (int kind = 0; kind < 3; kind++) { /* in memory, in memory with little room, over TCP */
        for (size_t i = 0; i < LENGTH(sizes); i++) {
            members_world_open(sizes[i], kind == 2, (kind == 1) ? 3 : 0);
            if (sizes[i] == 1)
                assert_int_equal(gf_members_poll(world.ranks[0].members, world.now_ns), GF_OK);
            members_world_until(GF_OK);
            assert_endpoints_are_everywhere();
            world_leaves();
            for (uint32_t rank = 1; (rank < sizes[i]) && (kind < 2); rank++)
                fake_cut(&fake, rank, "closed by peer");
            /* connections that end now are no failure */
            assert_true(members_world_progress(GF_OK));
            members_world_end();
        }
    }
}

TEST(nobody_is_through_before_all_are_there)
{
    struct gf_offer offer = offer_of(3);
    members_world_begin(3, false, 0);
    rank_open(0, &offer);
    rank_open(2, &offer);
    fake_connect(&fake, 2);
    for (int turn = 0; turn < 1000; turn++) assert_true(members_world_progress(GF_AGAIN));
    rank_open(1, &offer);
    fake_connect(&fake, 1);
    members_world_until(GF_OK);
    assert_endpoints_are_everywhere();
}

static const struct difference_case {
    const char *name;
    struct gf_offer change; /* what is not 0 replaces the field at rank 2 */
    const char *text;
} differences[] = {
    {"version",
     {.version = GF_VERSION + 1},
     "library versions differ: 0.10 at rank 0, 0.11 at rank 2"},
    {"world", {.world = 5}, "world sizes differ: 4 at rank 0, 5 at rank 2"},
    {"summary",
     {.config_hash = 12, .summary = "wire=fp16 algorithm=ring slice_bytes=128KiB"},
     "configurations differ: wire is fp32 at rank 0, fp16 at rank 2; slice_bytes is 64KiB at rank "
     "0, 128KiB at rank 2"},
    {"a_field_that_one_rank_leaves_at_its_default",
     {.config_hash = 12, .summary = "wire=fp32 algorithm=ring"},
     "configurations differ: slice_bytes is 64KiB at rank 0, 256KiB at rank 2"},
    {"a_field_that_rank_0_leaves_at_its_default",
     {.config_hash = 12, .summary = "wire=fp32 algorithm=ring fuse_bytes=1MiB slice_bytes=64KiB"},
     "configurations differ: fuse_bytes is 4MiB at rank 0, 1MiB at rank 2"},
    {"a_field_beyond_the_summary",
     {.config_hash = 12},
     "configurations differ: hash 000000000000000b at rank 0, 000000000000000c at rank 2"},
    {"a_summary_of_other_words",
     {.config_hash = 12, .summary = "x"},
     "configurations differ: algorithm is ring at rank 0, auto at rank 2; slice_bytes is 64KiB at "
     "rank 0, 256KiB"},
    {"tensor_count", {.tensor_count = 4}, "tensor tables differ: 3 tensors at rank 0, 4 at rank 2"},
    {"elem_count", {.elem_count = 45}, "tensor tables differ: 44 elements at rank 0, 45 at rank 2"},
    {"tensors_hash",
     {.tensors_hash = 23},
     "tensor tables differ in names, sizes, flags, types or order"},
};

/* qemu's user mode does not tell whose a connection is: over tcp a rank that differs may then be a
 * stranger's. */
static bool users_are_told(void)
{
    int diag = socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG);
    return (diag >= 0) && (close(diag) == 0);
}

TEST(a_difference_is_named_on_all_ranks)
{
    for (size_t i = 0; i < 2 * LENGTH(differences); i += users_are_told() ? 1 : 2) {
        const struct difference_case *c = &differences[i / 2];
        struct gf_offer offer = offer_of(4);
        struct gf_offer other = offer_of(4);
        if (c->change.version != 0) other.version = c->change.version;
        if (c->change.world != 0) other.world = c->change.world;
        if (c->change.config_hash != 0) other.config_hash = c->change.config_hash;
        if (c->change.tensor_count != 0) other.tensor_count = c->change.tensor_count;
        if (c->change.elem_count != 0) other.elem_count = c->change.elem_count;
        if (c->change.tensors_hash != 0) other.tensors_hash = c->change.tensors_hash;
        if (c->change.summary[0] != 0)
            memcpy(other.summary, c->change.summary, sizeof other.summary);
        members_world_begin(4, (i % 2) != 0, 0);
        for (uint32_t rank = 0; rank < 4; rank++) rank_open(rank, (rank == 2) ? &other : &offer);
        for (uint32_t rank = 3; (rank > 0) && !world.over_tcp; rank--) fake_connect(&fake, rank);
        members_world_until(GF_ERR_MISMATCH);
        assert_all_failed(GF_ERR_MISMATCH, 2, c->text);
        /* each once */
        assert_null(strstr(strstr(error_of(0)->text, c->text) + strlen(c->text), " is "));
        members_world_end();
    }
}

/* Their numbers are none of the first epoch's: the others go on without them, whether they come
 * before or after the join, or when another epoch has begun. */
TEST(who_was_told_a_larger_world_hears_it_and_ends_no_join)
{
    char text[64];
    for (int late = 0; late < 3; late++) {
        members_world_begin(4, false, 0);
        for (uint32_t rank = 0; rank < 4; rank++) {
            struct gf_offer offer = offer_of((rank >= 2) ? 4 : 2);
            world.first_world = offer.world;
            world.epoch = ((late == 2) && (rank < 2)) ? 2 : 1;
            rank_open(rank, &offer);
        }
        for (int half = 0; half < 2; half++) {
            for (uint32_t rank = 1; rank < 4; rank++)
                if ((rank < 2) == ((half == 0) == (late > 0))) fake_connect(&fake, rank);
            for (int i = 0; i < 20; i++) (void)members_world_progress(GF_OK);
        }
        for (uint32_t rank = 2; rank < 4; rank++) {
            (void)snprintf(text, sizeof text, "world sizes differ: 2 at rank 0, 4 at rank %u",
                           rank);
            assert_string_equal(error_of(rank)->text, text);
        }
        for (uint32_t rank = 0; rank < 4; rank++)
            assert_int_equal(gf_members_poll(world.ranks[rank].members, world.now_ns),
                             (rank >= 2) ? GF_ERR_MISMATCH : GF_OK);
        members_world_end();
    }
}

TEST(late_ranks_hear_why_the_join_failed)
{
    struct gf_offer offer = offer_of(4);
    struct gf_offer other = offer_of(4);
    other.tensor_count = 9;
    members_world_begin(4, false, 0);
    for (uint32_t rank = 0; rank < 4; rank++) rank_open(rank, (rank == 1) ? &other : &offer);
    fake_connect(&fake, 1);
    fake_connect(&fake, 2);
    /* rank 3 gets its moment */
    for (int turn = 0; turn < 500; turn++) assert_true(members_world_progress(GF_AGAIN));
    fake_connect(&fake, 3);
    members_world_until(GF_ERR_MISMATCH);
    assert_all_failed(GF_ERR_MISMATCH, 1, "3 tensors at rank 0, 9 at rank 1");
}

TEST(a_refused_rank_fails_the_join)
{
    struct gf_rendezvous_event refused = {
        .kind = GF_RENDEZVOUS_REFUSED, .rank = 7, .text = "world 3 at rank 0, 8 at rank 7"};
    struct gf_offer offer = offer_of(3);
    members_world_begin(3, false, 0);
    for (uint32_t rank = 0; rank < 2; rank++) rank_open(rank, &offer);
    fake_connect(&fake, 1);
    fake.ends[0].queue[fake.ends[0].count++].event = refused;
    members_world_until(GF_ERR_MISMATCH);
    assert_all_failed(GF_ERR_MISMATCH, 7, "ranks differ: world 3 at rank 0, 8 at rank 7");
}

/* The same said by a process that proved nothing: the right one may still come, and if not, it is
 * told. */
TEST(a_claim_of_a_stranger_ends_no_join)
{
    const struct gf_rendezvous_event claim = {.kind = GF_RENDEZVOUS_REFUSED,
                                              .rank = 2,
                                              .unproven = true,
                                              .text = "world 3 at rank 0, 8 at rank 2"};
    struct gf_offer offer = offer_of(3);
    for (int comes = 0; comes < 2; comes++) {
        members_world_begin(3, false, 0);
        for (uint32_t rank = 0; rank < (comes ? 3 : 2); rank++) rank_open(rank, &offer);
        fake_connect(&fake, 1);
        fake.ends[0].queue[fake.ends[0].count++].event = claim;
        for (int turn = 0; turn < 100; turn++) assert_true(members_world_progress(GF_AGAIN));
        if (comes) {
            fake_connect(&fake, 2);
            members_world_until(GF_OK);
        } else {
            world.now_ns = 65 * SECOND;
            members_world_until(GF_ERR_MISMATCH);
            assert_all_failed(GF_ERR_MISMATCH, 2, "rank 2 of 3 did not join within");
            assert_non_null(
                strstr(error_of(0)->text,
                       "a process that proved nothing: world 3 at rank 0, 8 at rank 2"));
        }
        members_world_end();
    }
}

TEST(nothing_comes_before_the_offer)
{
    for (uint32_t kind = MEMBERS_ENDPOINTS; kind <= MEMBERS_BYE; kind++) {
        struct gf_offer offer = offer_of(3);
        struct gf_rendezvous *end = &fake.ends[1].base;
        if (kind == MEMBERS_GIVES_UP) continue; /* with which a rank may begin */
        members_world_begin(3, false, 0);
        rank_open(0, &offer);
        fake_connect(&fake, 1);
        assert_int_equal(end->driver->send(end, 0, kind, "", 0), GF_OK);
        assert_int_equal(gf_members_poll(world.ranks[0].members, world.now_ns), GF_ERR_PEER);
        assert_non_null(strstr(error_of(0)->text, "rank 1 sent a frame that cannot come now"));
        members_world_end();
    }
}

static const struct missing_case {
    uint32_t size;
    uint32_t here; /* bits */
    uint32_t peer;
    const char *text;
} missing[] = {
    {2, 0x1, 1, "rank 1 of 2 did not join within 60.0 s at 127.0.0.1:7117"},
    {4, 0x5, 1, "rank 1, 3 of 4 did not join"},
    {16, 0xf0e1, 1, "rank 1-4, 8-11 of 16 did not join"},
    {16, 0x7fff, 15, "rank 15 of 16 did not join"},
};

TEST(missing_ranks_are_named_at_the_deadline)
{
    for (size_t i = 0; i < LENGTH(missing); i++) {
        struct gf_offer offer = offer_of(missing[i].size);
        members_world_begin(missing[i].size, false, 0);
        for (uint32_t rank = 0; rank < missing[i].size; rank++) {
            if ((missing[i].here >> rank & 1) == 0) continue;
            rank_open(rank, &offer);
            if (rank > 0) fake_connect(&fake, rank);
        }
        for (int turn = 0; turn < 100; turn++) assert_true(members_world_progress(GF_AGAIN));
        world.now_ns = 65 * SECOND - 2 * MS;
        assert_true(members_world_progress(GF_AGAIN));
        (void)members_world_progress(GF_ERR_TIMEOUT);
        assert_true(members_world_progress(GF_ERR_TIMEOUT));
        assert_all_failed(GF_ERR_TIMEOUT, missing[i].peer, missing[i].text);
        members_world_end();
    }
}

TEST(a_silent_coordinator_ends_the_join)
{
    members_world_open(2, false, 0);
    world.ranks[0].stopped = true;
    for (int turn = 0; turn < 10; turn++) assert_true(members_world_progress(GF_AGAIN));
    world.now_ns += 62 * SECOND;
    assert_true(members_world_progress(GF_ERR_TIMEOUT));
    assert_all_failed(GF_ERR_TIMEOUT, 0,
                      "joined rank 0 at 127.0.0.1:7117, which then said nothing");
}

TEST(a_death_while_joining_is_told)
{
    struct gf_offer offer = offer_of(4);
    members_world_begin(4, false, 0);
    for (uint32_t rank = 0; rank < 3; rank++) rank_open(rank, &offer);
    fake_connect(&fake, 1);
    fake_connect(&fake, 2);
    assert_true(members_world_progress(GF_AGAIN));
    world.ranks[1].stopped = true;
    fake_cut(&fake, 1, "connection closed by peer");
    members_world_until(GF_ERR_PEER);
    assert_all_failed(GF_ERR_PEER, 1,
                      "rank 1 died while ranks were joining: connection closed by peer");
}

TEST(leaving_a_join_tells_the_others)
{
    struct gf_offer offer = offer_of(3);
    members_world_begin(3, false, 0);
    for (uint32_t rank = 0; rank < 2; rank++) rank_open(rank, &offer);
    fake_connect(&fake, 1);
    assert_true(members_world_progress(GF_AGAIN));
    assert_int_equal(gf_members_leave(world.ranks[1].members, world.now_ns), GF_OK);
    assert_int_equal(gf_members_poll(world.ranks[0].members, world.now_ns), GF_ERR_PEER);
    assert_non_null(
        strstr(error_of(0)->text, "rank 1 gave up: closed before all ranks had joined"));
}

TEST(who_has_said_bye_may_go)
{
    members_world_open(3, false, 0);
    members_world_until(GF_OK);
    assert_int_equal(gf_members_leave(world.ranks[1].members, world.now_ns), GF_AGAIN);
    assert_true(members_world_progress(GF_OK));
    world.ranks[1].stopped = true;
    fake_cut(&fake, 1, "connection closed by peer");
    for (int turn = 0; turn < 10; turn++) assert_true(members_world_progress(GF_OK));
    assert_int_equal(gf_members_leave(world.ranks[2].members, world.now_ns), GF_AGAIN);
    assert_int_equal(gf_members_leave(world.ranks[0].members, world.now_ns), GF_OK);
    assert_int_equal(gf_members_leave(world.ranks[2].members, world.now_ns), GF_OK);
}

/* At the coordinator, and at another rank. All that may be wrong with one:
 * test_members_frames.c. */
TEST(a_malformed_address_fails_the_join)
{
    static const unsigned char of_nobody[16] = {3};
    static const char *const texts[] = {"rank 1 sent a malformed address",
                                        "rank 0 sent a malformed address"};
    for (uint32_t to = 0; to < 2; to++) {
        struct gf_offer offer = offer_of(3);
        struct gf_rendezvous *end = &fake.ends[1 - to].base;
        members_world_begin(3, false, 0);
        rank_open(to, &offer);
        fake_connect(&fake, 1);
        assert_int_equal(gf_members_poll(world.ranks[to].members, world.now_ns), GF_AGAIN);
        gf_members_at(world.ranks[to].members, 1 - to)->state = MEMBER_OFFERED;
        assert_int_equal(end->driver->send(end, to, MEMBERS_ENDPOINTS, of_nobody, sizeof of_nobody),
                         GF_OK);
        (void)gf_members_poll(world.ranks[to].members, world.now_ns);
        assert_int_equal(gf_members_poll(world.ranks[to].members, world.now_ns + 2 * SECOND),
                         GF_ERR_PEER);
        assert_all_failed(GF_ERR_PEER, 1 - to, texts[to]);
        members_world_end();
    }
}

/* One has posted as many as are kept, the other has just come in: in the next epoch they are the
 * same. */
TEST(requests_are_counted_from_none_in_each_epoch)
{
    uint64_t hashes[2];
    members_world_open(2, false, 0);
    members_world_until(GF_OK);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct gf_members *members = world.ranks[rank].members;
        for (uint32_t i = 0; i < rank * MEMBERS_CALLS; i++)
            gf_members_call(members, GF_OPERATION_BARRIER, GF_TYPE_F32, 0, 0);
        gf_members_epoch_begin(members, NULL, 0, world.now_ns);
        gf_members_call(members, GF_OPERATION_BARRIER, GF_TYPE_F32, 0, 0);
        hashes[rank] = gf_members_told_own(members)->call.hash;
    }
    assert_int_equal(hashes[0], hashes[1]);
}

TEST_EACH(NULL, members_world_end)
