/* Membership over a control channel in memory with a clock of its own, and over TCP on loopback. */
#include "fake_rendezvous.h"
#include "members.h"
#include "sim.h"
#include "tcp_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define BLOB_MAX 6000u /* more than one frame */

struct rank {
    struct gf_members *members;
    void *state;
    bool stopped; /* does not poll */
};

static struct fake_world fake;
static struct tcp_world tcp;
static struct world {
    uint32_t size;
    bool over_tcp;
    uint64_t now_ns;
    struct rank ranks[FAKE_RANKS_MAX];
    struct gf_sim *sim; /* or NULL */
    struct gf_rendezvous *simulated[FAKE_RANKS_MAX];
} world;

static struct gf_offer offer_of(uint32_t size)
{
    struct gf_offer offer = {.version = GF_VERSION, .world = size, .config_hash = 11, .tensors_hash = 22,
                             .tensor_count = 3, .elem_count = 44};
    (void)snprintf(offer.summary, sizeof offer.summary, "wire=fp32 algorithm=ring slice=262144");
    return offer;
}

static uint32_t blob_make(uint32_t rank, unsigned char *blob)
{
    uint32_t bytes = (rank == 1) ? 0 : BLOB_MAX - 100 * rank; /* an empty one is lawful */
    for (uint32_t i = 0; i < bytes; i++) blob[i] = (unsigned char)(i * 7 + rank);
    return bytes;
}

static struct gf_rendezvous *rendezvous_of(uint32_t rank)
{
    if (world.simulated[rank] != NULL) return world.simulated[rank];
    return world.over_tcp ? tcp.ends[rank] : &fake.ends[rank].base;
}

static void rank_open(uint32_t rank, const struct gf_offer *offer)
{
    static unsigned char blob[BLOB_MAX];
    struct gf_members_setup setup = {.rank = rank, .world = world.size, .join_timeout_ns = 60 * SECOND,
                                     .answer_timeout_ns = 2 * SECOND, .address = "127.0.0.1:7117", .offer = *offer,
                                     .blob_bytes_max = BLOB_MAX};
    size_t bytes = gf_members_state_bytes(world.size, BLOB_MAX);
    struct rank *r = &world.ranks[rank];
    r->state = malloc(bytes); /* of exactly this size, so that the sanitizer sees a byte too many */
    assert_non_null(r->state);
    memset(r->state, 0xa5, bytes);
    r->members = gf_members_open(&setup, r->state, rendezvous_of(rank), blob, blob_make(rank, blob), world.now_ns);
    assert_ptr_equal(r->members, r->state);
}

static void world_begin(uint32_t size, bool over_tcp, uint32_t room_every)
{
    memset(&world, 0, sizeof world);
    world.size = size;
    world.over_tcp = over_tcp;
    world.now_ns = 5 * SECOND;
    if (over_tcp) tcp_world_open(&tcp, size, world.now_ns);
    else fake_world_init(&fake, size, room_every);
}

static void world_end(void)
{
    for (uint32_t rank = 0; rank < world.size; rank++) free(world.ranks[rank].state);
    if (world.over_tcp) tcp_world_close(&tcp);
}

static void world_open(uint32_t size, bool over_tcp, uint32_t room_every)
{
    struct gf_offer offer = offer_of(size);
    world_begin(size, over_tcp, room_every);
    for (uint32_t rank = 0; rank < size; rank++) rank_open(rank, &offer);
    for (uint32_t rank = 1; (rank < size) && !over_tcp; rank++) fake_connect(&fake, rank);
}

/* Everybody who runs polls once; 1 ms passes. True once all of them gave `expect` in the same turn. */
static bool world_turn(gf_status expect)
{
    bool all = true;
    world.now_ns += MS;
    if (world.sim != NULL) gf_sim_advance_to(world.sim, world.now_ns);
    for (uint32_t rank = 0; rank < world.size; rank++) {
        if ((world.ranks[rank].members == NULL) || world.ranks[rank].stopped) continue;
        if (gf_members_poll(world.ranks[rank].members, world.now_ns) != expect) all = false;
    }
    return all;
}

static void world_until(gf_status expect)
{
    for (uint32_t turn = 0; turn < 100000; turn++) {
        if (world_turn(expect)) return;
    }
    for (uint32_t rank = 0; rank < world.size; rank++) {
        if (world.ranks[rank].members == NULL) continue;
        print_error("rank %u: %s\n", rank, gf_members_error(world.ranks[rank].members)->text);
    }
    fail_msg("not all ranks reached %s", gf_status_name(expect));
}

static const struct gf_error *error_of(uint32_t rank)
{
    return gf_members_error(world.ranks[rank].members);
}

/* All ranks that are open and run failed alike. */
static void assert_all_failed(gf_status code, uint32_t peer, const char *text)
{
    const struct gf_error *first = NULL;
    for (uint32_t rank = 0; rank < world.size; rank++) {
        if ((world.ranks[rank].members == NULL) || world.ranks[rank].stopped) continue;
        const struct gf_error *error = error_of(rank);
        if (first == NULL) first = error;
        if ((error->code != code) || (error->peer != peer) || (strstr(error->text, text) == NULL)) {
            print_error("rank %u: %s peer %u '%s', expected '%s'\n", rank, gf_status_name(error->code), error->peer,
                        error->text, text);
        }
        assert_int_equal(error->code, code);
        assert_int_equal(error->peer, peer);
        assert_int_equal(error->rank, rank);
        assert_non_null(strstr(error->text, text));
        assert_string_equal(error->text, first->text);
    }
    assert_non_null(first);
}

/* ---- joining ---- */

static void assert_blobs_are_everywhere(void)
{
    static unsigned char expect[BLOB_MAX];
    for (uint32_t rank = 0; rank < world.size; rank++) {
        for (uint32_t of = 0; of < world.size; of++) {
            size_t bytes = 0, expect_bytes = blob_make(of, expect);
            const void *blob = gf_members_blob(world.ranks[rank].members, of, &bytes);
            assert_int_equal(bytes, expect_bytes);
            assert_memory_equal(blob, expect, expect_bytes);
        }
    }
}

static void world_leaves(void)
{
    for (uint32_t turn = 0; turn < 100000; turn++) {
        bool all = true;
        world.now_ns += MS;
        for (uint32_t i = 0; i < world.size; i++) {
            uint32_t rank = (i * 5 + turn) % world.size; /* any order; with 5 | size some come late */
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

static void all_join_see_all_addresses_and_leave(void **state)
{
    (void)state;
    const uint32_t sizes[] = {1, 2, 3, 16};
    for (int kind = 0; kind < 3; kind++) { /* in memory, in memory with little room, over TCP */
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            world_open(sizes[i], kind == 2, (kind == 1) ? 3 : 0);
            if (sizes[i] == 1) assert_int_equal(gf_members_poll(world.ranks[0].members, world.now_ns), GF_OK);
            world_until(GF_OK);
            assert_blobs_are_everywhere();
            world_leaves();
            for (uint32_t rank = 1; (rank < sizes[i]) && (kind < 2); rank++) fake_cut(&fake, rank, "closed by peer");
            assert_true(world_turn(GF_OK)); /* connections that end now are no failure */
            world_end();
        }
    }
}

static void nobody_is_through_before_all_are_there(void **state)
{
    (void)state;
    struct gf_offer offer = offer_of(3);
    world_begin(3, false, 0);
    rank_open(0, &offer);
    rank_open(2, &offer);
    fake_connect(&fake, 2);
    for (int turn = 0; turn < 1000; turn++) assert_true(world_turn(GF_AGAIN));
    rank_open(1, &offer);
    fake_connect(&fake, 1);
    world_until(GF_OK);
    assert_blobs_are_everywhere();
    world_end();
}

static const struct difference_case {
    const char *name;
    struct gf_offer change; /* what is not 0 replaces the field at rank 2 */
    const char *text;
} differences[] = {
    {"version", {.version = GF_VERSION + 1}, "library versions differ: 0.1 at rank 0, 0.2 at rank 2"},
    {"world", {.world = 5}, "world sizes differ: 4 at rank 0, 5 at rank 2"},
    {"summary", {.config_hash = 12, .summary = "wire=fp16 algorithm=ring slice=4096"},
     "configurations differ: wire=fp32 slice=262144 at rank 0, wire=fp16 slice=4096 at rank 2"},
    {"a_field_beyond_the_summary", {.config_hash = 12},
     "configurations differ: hash 000000000000000b at rank 0, 000000000000000c at rank 2"},
    {"a_summary_of_other_words", {.config_hash = 12, .summary = "x"},
     "wire=fp32 algorithm=ring slice=262144 at rank 0, x"},
    {"tensor_count", {.tensor_count = 4}, "tensor tables differ: 3 tensors at rank 0, 4 at rank 2"},
    {"elem_count", {.elem_count = 45}, "tensor tables differ: 44 elements at rank 0, 45 at rank 2"},
    {"tensors_hash", {.tensors_hash = 23}, "tensor tables differ in names, sizes, flags, types or order"},
};

static void a_difference_is_named_on_all_ranks(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * sizeof differences / sizeof differences[0]; i++) {
        const struct difference_case *c = &differences[i / 2];
        struct gf_offer offer = offer_of(4), other = offer_of(4);
        if (c->change.version != 0) other.version = c->change.version;
        if (c->change.world != 0) other.world = c->change.world;
        if (c->change.config_hash != 0) other.config_hash = c->change.config_hash;
        if (c->change.tensor_count != 0) other.tensor_count = c->change.tensor_count;
        if (c->change.elem_count != 0) other.elem_count = c->change.elem_count;
        if (c->change.tensors_hash != 0) other.tensors_hash = c->change.tensors_hash;
        if (c->change.summary[0] != 0) memcpy(other.summary, c->change.summary, sizeof other.summary);
        world_begin(4, (i % 2) != 0, 0);
        for (uint32_t rank = 0; rank < 4; rank++) rank_open(rank, (rank == 2) ? &other : &offer);
        for (uint32_t rank = 3; (rank > 0) && !world.over_tcp; rank--) fake_connect(&fake, rank);
        world_until(GF_ERR_MISMATCH);
        assert_all_failed(GF_ERR_MISMATCH, 2, c->text);
        world_end();
    }
}

static void late_ranks_hear_why_the_join_failed(void **state)
{
    (void)state;
    struct gf_offer offer = offer_of(4), other = offer_of(4);
    other.tensor_count = 9;
    world_begin(4, false, 0);
    for (uint32_t rank = 0; rank < 4; rank++) rank_open(rank, (rank == 1) ? &other : &offer);
    fake_connect(&fake, 1);
    fake_connect(&fake, 2);
    for (int turn = 0; turn < 500; turn++) assert_true(world_turn(GF_AGAIN)); /* rank 3 gets its moment */
    fake_connect(&fake, 3);
    world_until(GF_ERR_MISMATCH);
    assert_all_failed(GF_ERR_MISMATCH, 1, "3 tensors at rank 0, 9 at rank 1");
    world_end();
}

static void a_refused_rank_fails_the_join(void **state)
{
    (void)state;
    struct gf_rendezvous_event refused = {.kind = GF_RENDEZVOUS_REFUSED, .rank = 7,
                                          .text = "world 3 at rank 0, 8 at rank 7"};
    struct gf_offer offer = offer_of(3);
    world_begin(3, false, 0);
    for (uint32_t rank = 0; rank < 2; rank++) rank_open(rank, &offer);
    fake_connect(&fake, 1);
    fake.ends[0].queue[fake.ends[0].count++].event = refused;
    world_until(GF_ERR_MISMATCH);
    assert_all_failed(GF_ERR_MISMATCH, 7, "ranks differ: world 3 at rank 0, 8 at rank 7");
    world_end();
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

static void missing_ranks_are_named_at_the_deadline(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++) {
        struct gf_offer offer = offer_of(missing[i].size);
        world_begin(missing[i].size, false, 0);
        for (uint32_t rank = 0; rank < missing[i].size; rank++) {
            if ((missing[i].here >> rank & 1) == 0) continue;
            rank_open(rank, &offer);
            if (rank > 0) fake_connect(&fake, rank);
        }
        for (int turn = 0; turn < 100; turn++) assert_true(world_turn(GF_AGAIN));
        world.now_ns = 65 * SECOND - 2 * MS;
        assert_true(world_turn(GF_AGAIN));
        (void)world_turn(GF_ERR_TIMEOUT);
        assert_true(world_turn(GF_ERR_TIMEOUT));
        assert_all_failed(GF_ERR_TIMEOUT, missing[i].peer, missing[i].text);
        world_end();
    }
}

static void a_silent_coordinator_ends_the_join(void **state)
{
    (void)state;
    world_open(2, false, 0);
    world.ranks[0].stopped = true;
    for (int turn = 0; turn < 10; turn++) assert_true(world_turn(GF_AGAIN));
    world.now_ns += 62 * SECOND;
    assert_true(world_turn(GF_ERR_TIMEOUT));
    assert_all_failed(GF_ERR_TIMEOUT, 0, "joined rank 0 at 127.0.0.1:7117, which then said nothing");
    world_end();
}

static void a_death_while_joining_is_told(void **state)
{
    (void)state;
    struct gf_offer offer = offer_of(4);
    world_begin(4, false, 0);
    for (uint32_t rank = 0; rank < 3; rank++) rank_open(rank, &offer);
    fake_connect(&fake, 1);
    fake_connect(&fake, 2);
    assert_true(world_turn(GF_AGAIN));
    world.ranks[1].stopped = true;
    fake_cut(&fake, 1, "connection closed by peer");
    world_until(GF_ERR_PEER);
    assert_all_failed(GF_ERR_PEER, 1, "rank 1 died while ranks were joining: connection closed by peer");
    world_end();
}

static void leaving_a_join_tells_the_others(void **state)
{
    (void)state;
    struct gf_offer offer = offer_of(3);
    world_begin(3, false, 0);
    for (uint32_t rank = 0; rank < 2; rank++) rank_open(rank, &offer);
    fake_connect(&fake, 1);
    assert_true(world_turn(GF_AGAIN));
    assert_int_equal(gf_members_leave(world.ranks[1].members, world.now_ns), GF_OK);
    assert_int_equal(gf_members_poll(world.ranks[0].members, world.now_ns), GF_ERR_PEER);
    assert_non_null(strstr(error_of(0)->text, "rank 1 gave up: closed before all ranks had joined"));
    world_end();
}

/* ---- failing ---- */

static void place(uint32_t rank, uint64_t step, uint64_t sequence, gf_operation operation, uint32_t waits_for)
{
    struct gf_position *position = gf_members_position(world.ranks[rank].members);
    position->step = step;
    position->sequence = sequence;
    position->operation = operation;
    position->buffer = 2;
    position->tensor = (operation == GF_OPERATION_NONE) ? GF_TENSOR_NONE : 5;
    position->waits_for = waits_for;
}

static void a_dead_rank_is_named_with_where_it_was(void **state)
{
    (void)state;
    for (int over_tcp = 0; over_tcp < 2; over_tcp++) {
        world_open(4, over_tcp != 0, 0);
        world_until(GF_OK);
        place(2, 7, 30, GF_OPERATION_STEP, 1);
        for (int turn = 0; turn < 300; turn++) assert_true(world_turn(GF_OK));
        world.ranks[2].stopped = true;
        if (over_tcp) tcp_world_end_close(&tcp, 2);
        else fake_cut(&fake, 2, "connection closed by peer");
        world_until(GF_ERR_PEER);
        assert_all_failed(GF_ERR_PEER, 2,
                          "rank 2 died: connection closed by peer in step 7, operation step, buffer 2, tensor 5");
        assert_int_equal(error_of(3)->step, 7);
        assert_int_equal(error_of(3)->operation, GF_OPERATION_STEP);
        assert_int_equal(error_of(3)->tensor, 5);
        world_end();
    }
}

static void the_coordinators_death_is_seen_by_all(void **state)
{
    (void)state;
    for (int over_tcp = 0; over_tcp < 2; over_tcp++) {
        world_open(3, over_tcp != 0, 0);
        world_until(GF_OK);
        world.ranks[0].stopped = true;
        if (over_tcp) tcp_world_end_close(&tcp, 0);
        for (uint32_t rank = 1; (rank < 3) && !over_tcp; rank++) fake_cut(&fake, rank, "connection closed by peer");
        world_until(GF_ERR_PEER);
        for (uint32_t rank = 1; rank < 3; rank++) {
            assert_int_equal(error_of(rank)->peer, 0);
            assert_non_null(strstr(error_of(rank)->text, "rank 0 died: connection closed by peer"));
        }
        world_end();
    }
}

static void who_gives_up_is_heard_by_all(void **state)
{
    (void)state;
    for (uint32_t teller = 0; teller < 3; teller++) {
        const struct gf_error error = {.code = GF_ERR_DEVICE, .peer = GF_RANK_NONE, .operation = GF_OPERATION_UPDATE,
                                       .step = 9, .tensor = GF_TENSOR_NONE, .foreign_code = -700,
                                       .foreign_call = "cuLaunchKernel", .text = "the GPU fell off the bus"};
        char text[64];
        world_open(3, false, 2);
        world_until(GF_OK);
        gf_members_tell(world.ranks[teller].members, &error);
        assert_int_equal(gf_members_poll(world.ranks[teller].members, world.now_ns), GF_ERR_DEVICE);
        assert_string_equal(error_of(teller)->text, error.text);
        for (int turn = 0; turn < 20; turn++) (void)world_turn(GF_ERR_PEER);
        world.ranks[teller].stopped = true;
        (void)snprintf(text, sizeof text, "rank %u gave up: the GPU fell off the bus", teller);
        assert_all_failed(GF_ERR_PEER, teller, text);
        assert_int_equal(error_of((teller + 1) % 3)->foreign_code, -700);
        assert_string_equal(error_of((teller + 1) % 3)->foreign_call, "cuLaunchKernel");
        world_end();
    }
}

static void a_coordinator_that_closes_at_once_is_still_heard(void **state)
{
    (void)state;
    const struct gf_error error = {.code = GF_ERR_DEVICE, .peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE,
                                   .text = "out of memory"};
    world_open(3, true, 0);
    world_until(GF_OK);
    world.ranks[1].stopped = true;
    place(1, 4, 9, GF_OPERATION_NONE, GF_RANK_NONE);
    gf_members_tell(world.ranks[2].members, &error);
    for (int turn = 0; (turn < 100000) && (error_of(0)->code == GF_OK); turn++) (void)world_turn(GF_ERR_PEER);
    assert_int_equal(error_of(0)->code, GF_ERR_PEER);
    tcp_world_end_close(&tcp, 0);
    world.ranks[0].stopped = true;
    world.ranks[2].stopped = true;
    world.now_ns += SECOND;
    for (int i = 0; i < 3; i++) { /* what it sends now meets a reset */
        world.now_ns += SECOND;
        gf_members_heartbeat(world.ranks[1].members, world.now_ns);
        place(1, 4, 10 + (uint64_t)i, GF_OPERATION_STEP, GF_RANK_NONE);
    }
    world.ranks[1].stopped = false;
    world_until(GF_ERR_PEER);
    assert_all_failed(GF_ERR_PEER, 2, "rank 2 gave up: out of memory");
    world_end();
}

static const struct gf_error late = {.code = GF_ERR_TIMEOUT, .peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE,
                                     .text = "nothing moved for 30 s"};

/* Rank `asker` asks until it is answered; the others poll. Gives how long it took. */
static uint64_t blame(uint32_t asker, const struct gf_error *seen, struct gf_error *error_out)
{
    uint64_t begin_ns = world.now_ns;
    for (int turn = 0; turn < 100000; turn++) {
        gf_status status = gf_members_blame(world.ranks[asker].members, world.now_ns, seen, error_out);
        if (status != GF_AGAIN) {
            assert_int_equal(status, GF_OK);
            return world.now_ns - begin_ns;
        }
        world.now_ns += MS;
        for (uint32_t rank = 0; rank < world.size; rank++) {
            if ((rank != asker) && !world.ranks[rank].stopped) {
                (void)gf_members_poll(world.ranks[rank].members, world.now_ns);
            }
        }
    }
    fail_msg("no verdict");
    return 0;
}

struct where {
    uint64_t step, sequence;
    gf_operation operation;
    uint32_t waits_for;
};

static const struct blame_case {
    const char *name;
    uint32_t asker;
    uint32_t stopped; /* bits */
    struct where at[4];
    uint32_t peer;
    const char *text;
} blames[] = {
    {"who_does_not_poll_is_guilty", 1, 0x8,
     {{8, 40, GF_OPERATION_STEP, 3}, {8, 40, GF_OPERATION_STEP, 0}, {8, 40, GF_OPERATION_STEP, 1},
      {8, 39, GF_OPERATION_NONE, GF_RANK_NONE}}, 3, "rank 3 does not answer"},
    {"the_coordinator_asks_too", 0, 0x4,
     {{8, 40, GF_OPERATION_STEP, 2}, {8, 40, GF_OPERATION_STEP, 0}, {8, 39, GF_OPERATION_NONE, GF_RANK_NONE},
      {8, 40, GF_OPERATION_STEP, 2}}, 2, "rank 2 does not answer"},
    {"of_two_silent_ranks_the_one_behind", 1, 0xc,
     {{8, 40, GF_OPERATION_STEP, 3}, {8, 40, GF_OPERATION_STEP, 3}, {8, 40, GF_OPERATION_STEP, 3},
      {7, 33, GF_OPERATION_NONE, GF_RANK_NONE}}, 3, "in step 7, between operations; silent ranks: 2"},
    {"of_two_equal_silent_ranks_the_lower", 1, 0xc,
     {{8, 40, GF_OPERATION_STEP, 3}, {8, 40, GF_OPERATION_STEP, 3}, {8, 39, GF_OPERATION_NONE, GF_RANK_NONE},
      {8, 39, GF_OPERATION_NONE, GF_RANK_NONE}}, 2, "rank 2 does not answer"},
    {"the_laggard_that_computes", 3, 0,
     {{8, 40, GF_OPERATION_STEP, 3}, {8, 40, GF_OPERATION_STEP, 2}, {7, 39, GF_OPERATION_NONE, GF_RANK_NONE},
      {8, 40, GF_OPERATION_STEP, 2}}, 2, "rank 2 is behind in step 7, between operations: computing; last moved"},
    {"the_laggard_may_be_the_coordinator", 3, 0,
     {{8, 39, GF_OPERATION_NONE, GF_RANK_NONE}, {8, 40, GF_OPERATION_STEP, 0}, {8, 40, GF_OPERATION_STEP, 1},
      {8, 40, GF_OPERATION_STEP, 2}}, 0, "rank 0 is behind in step 8"},
    {"the_laggard_may_be_who_asks", 2, 0,
     {{8, 40, GF_OPERATION_STEP, 3}, {8, 40, GF_OPERATION_STEP, 0}, {8, 39, GF_OPERATION_NONE, GF_RANK_NONE},
      {8, 40, GF_OPERATION_STEP, 2}}, 2, "rank 2 is behind"},
    {"of_equals_the_one_that_waits_for_nobody", 1, 0,
     {{8, 40, GF_OPERATION_STEP, 3}, {8, 40, GF_OPERATION_STEP, 0}, {8, 40, GF_OPERATION_STEP, GF_RANK_NONE},
      {8, 40, GF_OPERATION_STEP, 2}}, 2, "rank 2 is behind in step 8, operation step, buffer 2, tensor 5: computing"},
    {"a_circle_of_waits_goes_to_the_lowest", 1, 0,
     {{8, 40, GF_OPERATION_STEP, 3}, {8, 40, GF_OPERATION_STEP, 0}, {8, 40, GF_OPERATION_STEP, 1},
      {8, 40, GF_OPERATION_STEP, 2}}, 0, "it waits for rank 3, so a message was lost or calls differ"},
};

static void the_guilty_rank_is_the_same_for_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * sizeof blames / sizeof blames[0]; i++) {
        const struct blame_case *c = &blames[i / 2];
        struct gf_error verdict = {0};
        world_open(4, (i % 2) != 0, (i % 2 == 0) ? 2 : 0);
        world_until(GF_OK);
        for (uint32_t rank = 0; rank < 4; rank++) {
            place(rank, c->at[rank].step, c->at[rank].sequence, c->at[rank].operation, c->at[rank].waits_for);
        }
        for (int turn = 0; turn < 3000; turn++) assert_true(world_turn(GF_OK));
        for (uint32_t rank = 0; rank < 4; rank++) world.ranks[rank].stopped = ((c->stopped >> rank & 1) != 0);
        assert_true(blame(c->asker, &late, &verdict) <= 2 * SECOND);
        if (verdict.peer != c->peer) print_error("%s: %s\n", c->name, verdict.text);
        assert_int_equal(verdict.code, GF_ERR_TIMEOUT);
        assert_int_equal(verdict.peer, c->peer);
        assert_int_equal(verdict.step, c->at[c->peer].step);
        for (int turn = 0; turn < 20; turn++) (void)world_turn(GF_ERR_TIMEOUT);
        assert_all_failed(GF_ERR_TIMEOUT, c->peer, c->text);
        /* The stopped rank runs on: it hears the same. */
        for (uint32_t rank = 0; rank < 4; rank++) world.ranks[rank].stopped = false;
        for (int turn = 0; turn < 20; turn++) (void)world_turn(GF_ERR_TIMEOUT);
        assert_all_failed(GF_ERR_TIMEOUT, c->peer, c->text);
        world_end();
    }
}

static void a_stopped_coordinator_is_found_by_each_rank(void **state)
{
    (void)state;
    struct gf_error verdict = {0};
    world_open(3, false, 0);
    world_until(GF_OK);
    world.ranks[0].stopped = true;
    assert_true(blame(1, &late, &verdict) == 2 * SECOND);
    assert_int_equal(verdict.code, GF_ERR_TIMEOUT);
    assert_int_equal(verdict.peer, 0);
    assert_non_null(strstr(verdict.text, "did not answer for 2.0 s"));
    world.ranks[0].stopped = false; /* runs on and is told */
    for (int turn = 0; turn < 20; turn++) (void)world_turn(GF_ERR_PEER);
    assert_int_equal(error_of(0)->code, GF_ERR_PEER);
    assert_int_equal(error_of(0)->peer, 1);
    assert_int_equal(error_of(2)->code, GF_ERR_PEER);
    world_end();
}

static void a_rank_that_dies_during_the_inquiry_is_guilty(void **state)
{
    (void)state;
    struct gf_error verdict = {0};
    world_open(3, false, 0);
    world_until(GF_OK);
    world.ranks[2].stopped = true;
    assert_int_equal(gf_members_blame(world.ranks[1].members, world.now_ns, &late, &verdict), GF_AGAIN);
    assert_false(world_turn(GF_ERR_PEER));
    fake_cut(&fake, 2, "timed out");
    (void)blame(1, &late, &verdict);
    assert_int_equal(verdict.code, GF_ERR_PEER);
    assert_int_equal(verdict.peer, 2);
    world_end();
}

static void a_failed_link_between_live_ranks_is_told_as_seen(void **state)
{
    (void)state;
    const struct gf_error seen = {.code = GF_ERR_LINK, .peer = 2, .operation = GF_OPERATION_ALLREDUCE, .step = 3,
                                  .tensor = GF_TENSOR_NONE, .text = "send to rank 2: Input/output error"};
    struct gf_error verdict = {0};
    world_open(3, false, 0);
    world_until(GF_OK);
    (void)blame(1, &seen, &verdict);
    for (int turn = 0; turn < 20; turn++) (void)world_turn(GF_ERR_LINK);
    assert_all_failed(GF_ERR_LINK, 2, "rank 1: send to rank 2: Input/output error");
    assert_int_equal(verdict.operation, GF_OPERATION_ALLREDUCE);
    world_end();
}

static void a_world_of_one_blames_what_it_saw(void **state)
{
    (void)state;
    struct gf_error verdict = {0};
    world_open(1, false, 0);
    assert_int_equal(gf_members_blame(world.ranks[0].members, world.now_ns, &late, &verdict), GF_OK);
    assert_int_equal(verdict.code, GF_ERR_TIMEOUT);
    assert_string_equal(verdict.text, late.text);
    world_end();
}

static void malformed_frames_name_their_sender(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 20; kind++) {
        for (uint32_t to = 0; to < 2; to++) {
            unsigned char junk[7] = {0};
            uint32_t from = 1 - to;
            bool lawful = ((to == 0) && (kind == 10)) || ((to == 1) && ((kind == 3) || (kind == 5)));
            world_open(2, false, 0);
            world_until(GF_OK);
            struct gf_rendezvous *end = &fake.ends[from].base;
            assert_int_equal(end->driver->send(end, to, kind, junk, sizeof junk), GF_OK);
            gf_status status = gf_members_poll(world.ranks[to].members, world.now_ns);
            assert_int_equal(status, lawful ? GF_OK : GF_ERR_PEER);
            if (!lawful) assert_int_equal(error_of(to)->peer, from);
            world_end();
        }
    }
}

static const struct piece_case {
    const char *name;
    uint32_t to;
    uint32_t rank, size, at, piece;
    uint32_t bytes; /* that follow in the frame */
} pieces[] = {
    {"rank_beyond_the_world", 1, 3, 8, 0, 8, 8},
    {"larger_than_a_blob_may_be", 1, 2, BLOB_MAX + 1, 0, 8, 8},
    {"a_piece_is_missing", 1, 2, 16, 8, 8, 8},
    {"longer_than_the_blob", 1, 2, 8, 0, 9, 9},
    {"cut_short", 1, 2, 8, 0, 8, 7},
    {"a_size_that_wraps", 1, 2, 8, 0, UINT32_MAX, 8},
    {"for_another_rank", 0, 2, 8, 0, 8, 8},
    {"before_the_offer", 0, 1, 8, 0, 8, 8},
};

static void malformed_addresses_fail_the_join(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        const struct piece_case *c = &pieces[i];
        unsigned char frame[64] = {0};
        const uint32_t fields[] = {c->rank, c->size, c->at, c->piece};
        struct gf_offer offer = offer_of(3);
        struct gf_rendezvous *end = &fake.ends[1 - c->to].base;
        world_begin(3, false, 0);
        rank_open(c->to, &offer);
        fake_connect(&fake, 1);
        assert_int_equal(gf_members_poll(world.ranks[c->to].members, world.now_ns), GF_AGAIN);
        for (uint32_t byte = 0; byte < 16; byte++) frame[byte] = (unsigned char)(fields[byte / 4] >> (8 * (byte % 4)));
        assert_int_equal(end->driver->send(end, c->to, 2, frame, 16 + c->bytes), GF_OK);
        (void)gf_members_poll(world.ranks[c->to].members, world.now_ns);
        gf_status status = gf_members_poll(world.ranks[c->to].members, world.now_ns + 2 * SECOND);
        if (status != GF_ERR_PEER) print_error("%s: %s\n", c->name, gf_status_name(status));
        assert_int_equal(status, GF_ERR_PEER);
        assert_int_equal(error_of(c->to)->peer, 1 - c->to);
        assert_non_null(strstr(error_of(c->to)->text, "malformed address"));
        world_end();
    }
}

/* The simulator's control channel is driven by the same logic. */
static void a_simulated_world_joins_dies_and_says_so(void **state)
{
    (void)state;
    struct gf_sim_setup setup = {.world = 8, .seed = 3, .detect_ns = 50 * MS};
    struct gf_offer offer = offer_of(8);
    struct gf_rendezvous *ends[8];
    _Alignas(64) static unsigned char states[8][512];
    world_begin(8, false, 0);
    struct gf_sim *sim = gf_sim_create(&setup);
    assert_non_null(sim);
    for (uint32_t rank = 0; rank < 8; rank++) {
        const struct gf_drivers *drivers = gf_sim_drivers(sim, rank);
        struct gf_rendezvous_setup at = {.rank = rank, .world = 8, .join_timeout_ns = 60 * SECOND,
                                         .arg = drivers->rendezvous_arg};
        struct gf_fault fault = {0};
        assert_true(drivers->rendezvous->state_bytes(&at) <= sizeof states[rank]);
        assert_int_equal(drivers->rendezvous->open(&at, states[rank], gf_sim_now_ns(sim), &ends[rank], &fault), GF_OK);
        world.simulated[rank] = ends[rank];
        rank_open(rank, &offer);
    }
    world.sim = sim;
    world_until(GF_OK);
    assert_blobs_are_everywhere();
    place(6, 3, 12, GF_OPERATION_ALLREDUCE, 1);
    for (int turn = 0; turn < 300; turn++) assert_true(world_turn(GF_OK));
    gf_sim_kill(sim, 6);
    world.ranks[6].stopped = true;
    world_until(GF_ERR_PEER);
    assert_all_failed(GF_ERR_PEER, 6, "rank 6 died");
    assert_int_equal(error_of(2)->step, 3);
    for (uint32_t rank = 0; rank < 8; rank++) ends[rank]->driver->close(ends[rank]);
    gf_sim_destroy(sim);
    world_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_join_see_all_addresses_and_leave),
        cmocka_unit_test(nobody_is_through_before_all_are_there),
        cmocka_unit_test(a_difference_is_named_on_all_ranks),
        cmocka_unit_test(late_ranks_hear_why_the_join_failed),
        cmocka_unit_test(a_refused_rank_fails_the_join),
        cmocka_unit_test(missing_ranks_are_named_at_the_deadline),
        cmocka_unit_test(a_silent_coordinator_ends_the_join),
        cmocka_unit_test(a_death_while_joining_is_told),
        cmocka_unit_test(leaving_a_join_tells_the_others),
        cmocka_unit_test(a_dead_rank_is_named_with_where_it_was),
        cmocka_unit_test(the_coordinators_death_is_seen_by_all),
        cmocka_unit_test(who_gives_up_is_heard_by_all),
        cmocka_unit_test(a_coordinator_that_closes_at_once_is_still_heard),
        cmocka_unit_test(the_guilty_rank_is_the_same_for_all),
        cmocka_unit_test(a_stopped_coordinator_is_found_by_each_rank),
        cmocka_unit_test(a_rank_that_dies_during_the_inquiry_is_guilty),
        cmocka_unit_test(a_failed_link_between_live_ranks_is_told_as_seen),
        cmocka_unit_test(a_world_of_one_blames_what_it_saw),
        cmocka_unit_test(malformed_frames_name_their_sender),
        cmocka_unit_test(malformed_addresses_fail_the_join),
        cmocka_unit_test(a_simulated_world_joins_dies_and_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
