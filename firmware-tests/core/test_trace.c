/* What a context tells of itself: one record an operation, the newest of them kept, and counters
 * that agree with the formulas of the collectives and with virtual time. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"
#include "lib/context.h"
#include "lib/core/vote.h"

#define RECORDS 64u

static const struct gf_tensor tensors[] = {{.name = "a", .elem_count = 6000},
                                           {.name = "b", .elem_count = 12000},
                                           {.name = "c", .elem_count = 24000}};
#define ELEMS 42000u

static struct world_setup setup_of(uint32_t world)
{
    struct world_setup setup = {.world = world,
                                .tensors = tensors,
                                .tensor_count = LENGTH(tensors),
                                .sim = {.seed = 1, .latency_ns = 5000, .bytes_per_ns = 1.0}};
    setup.config.exchange.fuse_bytes = 1;
    setup.config.exchange.algorithm = GF_ALGORITHM_RING;
    setup.config.exchange.slice_bytes = 4096;
    return setup;
}

static gf_status idle_progress(struct world *w, uint32_t rank, void *arg)
{
    return gf_heartbeat(w->ranks[rank].gf);
}

TEST(each_operation_leaves_a_record)
{
    static struct gf_trace_record records[RECORDS];
    struct world_setup setup = setup_of(4);
    struct world_step step = {.order = WORLD_BACKWARD};
    uint64_t begin_ns;
    WORLD_CREATE(w, &setup);
    assert_int_equal(gf_trace_read(w.ranks[1].gf, records, RECORDS), 0);
    world_join(&w);
    world_expect(&w, GF_OK);
    assert_int_equal(gf_trace_read(w.ranks[1].gf, records, RECORDS), 0); /* opening leaves none */
    for (uint32_t n = 1; n <= 2; n++) {
        uint32_t seen = 0;
        begin_ns = gf_sim_now_ns(w.sim);
        world_step_ok(&w, &step);
        assert_int_equal(gf_trace_read(w.ranks[1].gf, records, RECORDS), LENGTH(tensors) + 1);
        for (uint32_t i = 0; i <= LENGTH(tensors); i++) {
            const struct gf_trace_record *record = &records[i];
            assert_int_equal(record->step, n);
            assert_int_equal(record->status, GF_OK);
            assert_true((record->begin_ns >= begin_ns) && (record->end_ns > record->begin_ns));
            assert_true(record->end_ns <= gf_sim_now_ns(w.sim));
            assert_true((i == 0) || (record->end_ns >= records[i - 1].end_ns));
            assert_true((record->waited_for < 4) && (record->waited_for != 1));
            assert_true(record->pack_ns <= record->begin_ns - begin_ns);
            if (i == LENGTH(tensors)) {
                assert_int_equal(record->operation, GF_OPERATION_VOTE);
                assert_int_equal(record->algorithm, GF_ALGORITHM_DOUBLING);
                float scale;
                memcpy(&scale, &record->first_tensor, sizeof scale);
                assert_true(scale == 1.0f);
                continue;
            }
            assert_int_equal(record->operation, GF_OPERATION_STEP);
            assert_int_equal(record->algorithm, GF_ALGORITHM_RING);
            assert_int_equal(record->tensor_count, 1);
            assert_int_equal(record->buffer, record->first_tensor);
            assert_int_equal(record->bytes, tensors[record->first_tensor].elem_count * 4);
            assert_int_equal(record->waited_for, 0); /* its left neighbour */
            seen |= 1u << record->first_tensor;
        }
        assert_int_equal(seen, 7);
    }
    assert_int_equal(gf_trace_read(w.ranks[1].gf, records, RECORDS), 0);
    assert_int_equal(gf_trace_read(NULL, records, RECORDS), 0);
    assert_int_equal(gf_trace_read(w.ranks[1].gf, NULL, RECORDS), 0);
}

TEST(the_newest_records_overwrite_the_oldest)
{
    static struct gf_trace_record records[RECORDS];
    struct world_setup setup = setup_of(2);
    struct world_step step = {.order = WORLD_FORWARD};
    setup.config.trace_records = 6; /* a step leaves four */
    WORLD_OPEN(w, &setup);
    for (uint32_t n = 0; n < 5; n++) world_step_run(&w, &step);
    world_expect(&w, GF_OK);
    /* oldest first, the rest later */
    assert_int_equal(gf_trace_read(w.ranks[0].gf, records, 2), 2);
    assert_int_equal(records[0].step, 4);
    assert_int_equal(gf_trace_read(w.ranks[0].gf, records, RECORDS), 4);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(records[i].step, 5);
    world_step_run(&w, &step);
    assert_int_equal(gf_trace_read(w.ranks[0].gf, records, RECORDS), 4);
    assert_int_equal(records[0].step, 6);
}

struct file {
    char bytes[4096];
    uint64_t used, most; /* it refuses what goes past */
};

static int file_put(void *user, const void *data, uint64_t size_bytes)
{
    struct file *file = user;
    if (file->used + size_bytes > file->most) return 1;
    memcpy(file->bytes + file->used, data, size_bytes);
    file->used += size_bytes;
    return 0;
}

TEST(a_trace_is_written_as_a_file_whatever_was_read)
{
    static struct gf_trace_record records[RECORDS];
    static struct file file;
    struct gf_trace_head head;
    struct world_setup setup = setup_of(2);
    struct world_step step = {.order = WORLD_FORWARD};
    const uint64_t names = sizeof head + LENGTH(tensors) * GF_TRACE_NAME_BYTES;
    setup.config.trace_records = 6; /* a step leaves four */
    WORLD_OPEN(w, &setup);
    for (uint32_t n = 0; n <= 3; n++) {
        gf_context *gf = w.ranks[1].gf;
        uint64_t kept = (n == 0) ? 0 : (n == 1) ? 4 : 6;
        file = (struct file){.most = sizeof file.bytes};
        assert_int_equal(gf_trace_write(gf, file_put, &file), GF_OK);
        assert_int_equal(file.used, names + kept * sizeof records[0]);
        memcpy(&head, file.bytes, sizeof head);
        assert_memory_equal(head.magic, GF_TRACE_MAGIC, sizeof head.magic);
        assert_int_equal(head.record_bytes, sizeof records[0]);
        assert_int_equal(head.rank, 1);
        assert_int_equal(head.world, 2);
        assert_int_equal(head.record_count, kept);
        assert_int_equal(head.lost_count, 4 * n - kept);
        assert_true((head.begin_ns == 0) == (n == 0));
        assert_true((head.clock[0] != 0) && (head.node[0] != 0));
        assert_string_equal(file.bytes + sizeof head, "a");
        assert_string_equal(file.bytes + sizeof head + 2 * GF_TRACE_NAME_BYTES, "c");
        for (uint64_t most = 0; most < file.used; most += 40) {
            static struct file small;
            small = (struct file){.most = most};
            assert_int_equal(gf_trace_write(gf, file_put, &small), GF_ERR_SYSTEM);
        }
        if (n < 3) world_step_run(&w, &step);
    }
    /* the oldest first, and the same as are read */
    assert_int_equal(gf_trace_read(w.ranks[1].gf, records, RECORDS), 6);
    assert_memory_equal(file.bytes + names, records, 6 * sizeof records[0]);
    assert_int_equal(gf_trace_checkpoint(w.ranks[1].gf, 7, 9), GF_OK);
    assert_int_equal(gf_trace_checkpoint(w.ranks[1].gf, 9, 7), GF_ERR_PARAM);
    assert_int_equal(gf_trace_read(w.ranks[1].gf, records, RECORDS), 1);
    assert_int_equal(records[0].operation, GF_OPERATION_NONE);
    assert_int_equal(records[0].step, 3);
    assert_int_equal(records[0].end_ns, 9);
}

TEST(wire_bytes_are_what_the_ring_promises)
{
    static const uint32_t worlds[] = {1, 2, 3, 4, 6};
    for (size_t row = 0; row < LENGTH(worlds) * GF_TYPE_COUNT; row++) {
        struct world_setup setup = setup_of(worlds[row / GF_TYPE_COUNT]);
        struct world_step step = {.order = WORLD_FORWARD};
        uint64_t elem_bytes;
        uint64_t total = 0;
        setup.config.exchange.wire = (gf_type)(row % GF_TYPE_COUNT);
        elem_bytes = gf_type_size_bytes(setup.config.exchange.wire);
        WORLD_OPEN(w, &setup);
        total = gf_sim_counts(w.sim)->bytes_sent;
        for (uint32_t n = 0; n < 3; n++) world_step_run(&w, &step);
        world_expect(&w, GF_OK);
        total = gf_sim_counts(w.sim)->bytes_sent - total;
        for (uint32_t rank = 0; rank < w.world; rank++) {
            struct gf_stats stats = world_stats(&w, rank);
            /* Sizes divide by every world here. */
            uint64_t expected = 2 * (uint64_t)(w.world - 1) * ELEMS / w.world * elem_bytes;
            uint64_t vote = stats.last_wire_bytes - expected;
            assert_true(stats.last_wire_bytes >= expected);
            /* words of the vote, at most log2(n) + 1 rounds */
            assert_true(vote <= 3 * GF_VOTE_WORDS * 8);
            assert_int_equal(stats.wire_bytes, 3 * stats.last_wire_bytes);
            assert_int_equal(stats.steps, 3);
            assert_int_equal(stats.steps_skipped, 0);
            assert_int_equal(stats.operations, 3 * (LENGTH(tensors) + 1));
            assert_int_equal(stats.buffer_count, LENGTH(tensors));
            assert_int_equal(stats.produced_bytes, 3u * ELEMS * 4);
            assert_true((w.world == 1) == (stats.messages == 0));
            assert_true((w.world == 1) == (stats.control_bytes == 0));
            total -= stats.wire_bytes;
        }
        assert_int_equal(total, 0); /* the network saw the same */
    }
}

/* One rank computes for longer; the others wait for it, and know for whom. */
struct late {
    struct world_step step;
    uint32_t rank;
    uint64_t until_ns;
};

static gf_status late_turn(struct world *w, uint32_t rank, void *arg)
{
    struct late *late = arg;
    if ((rank == late->rank) && (gf_sim_now_ns(w->sim) < late->until_ns)) return GF_AGAIN;
    return world_step_progress(w, rank, &late->step);
}

TEST(times_are_those_of_the_step_and_the_slowest_is_named)
{
    enum { LATE_NS = 50000000, STEPS = 4 };
    static struct world_setup setup;
    struct late late = {.rank = 1};
    setup = setup_of(2);
    WORLD_OPEN(w, &setup);
    assert_int_equal(world_stats(&w, 0).slowest_peer, GF_RANK_NONE);
    for (uint32_t n = 0; n < STEPS; n++) {
        struct gf_stats stats;
        late.until_ns = gf_sim_now_ns(w.sim) + LATE_NS;
        world_run(&w, late_turn, &late);
        world_expect(&w, GF_OK);
        stats = world_stats(&w, 0);
        assert_true((stats.last_exchange_ns >= LATE_NS - 1000000) &&
                    (stats.last_exchange_ns < LATE_NS + 10000000));
        assert_true(stats.exchange_ns >= (n + 1) * (uint64_t)(LATE_NS - 1000000));
        assert_int_equal(stats.last_wait_ns, 0); /* nobody blocked */
        assert_true(world_stats(&w, 1).last_exchange_ns < LATE_NS / 2);
    }
    assert_int_equal(world_stats(&w, 0).slowest_peer, 1);
    assert_int_equal(world_stats(&w, 0).slowest_share_percent, 100);
}

/* Runs until all its tensors are declared, and not again before until_ns. */
static gf_status still_progress(struct world *w, uint32_t rank, void *arg)
{
    struct late *late = arg;
    const struct gf_context *gf = w->ranks[rank].gf;
    bool declared = (gf->phase == GF_PHASE_STEP) && (gf->step.declared == gf->tensor_count);
    if ((rank == late->rank) && declared && (gf_sim_now_ns(w->sim) < late->until_ns))
        return GF_AGAIN;
    return world_step_progress(w, rank, &late->step);
}

/* All wait alike for such a rank, in every algorithm: it says itself that it was the one. */
TEST(who_stands_still_in_the_exchange_is_named)
{
    enum { STILL_NS = 200000000, STEPS = 6 };
    for (uint32_t still = 0; still < 4; still++) {
        struct world_setup setup = setup_of(4);
        struct late late = {.rank = still};
        WORLD_OPEN(w, &setup);
        for (uint32_t n = 0; n < STEPS; n++) { /* in one step */
            late.until_ns = (n == 2) ? gf_sim_now_ns(w.sim) + STILL_NS : 0;
            world_run(&w, still_progress, &late);
            world_expect(&w, GF_OK);
        }
        for (uint32_t rank = 0; rank < 4; rank++) {
            assert_int_equal(world_stats(&w, rank).slowest_peer, still);
            assert_in_range(world_stats(&w, rank).slowest_late_ns, STILL_NS / 2,
                            2 * (uint64_t)STILL_NS);
        }
    }
}

/* In worlds where a ring's ranks wait for neighbours that wait themselves: all ranks name the one
 * that is slow, and how often. Nothing fails. */
TEST(all_ranks_name_the_one_that_is_slow)
{
    enum { LATE_NS = 5000000, STEPS = 8 };
    static const gf_algorithm algorithms[] = {GF_ALGORITHM_RING, GF_ALGORITHM_HALVING,
                                              GF_ALGORITHM_TREE};
    for (uint32_t size = 2; size <= 5; size++) {
        for (uint32_t slow = 0; slow < size; slow++) {
            struct world_setup setup = setup_of(size);
            struct late late = {.rank = slow};
            setup.config.exchange.algorithm = algorithms[slow % 3];
            WORLD_OPEN(w, &setup);
            for (uint32_t n = 0; n < STEPS; n++) { /* in three steps of four */
                late.until_ns = gf_sim_now_ns(w.sim) + ((n % 4 != 0) ? LATE_NS : 0);
                world_run(&w, late_turn, &late);
                world_expect(&w, GF_OK);
            }
            for (uint32_t rank = 0; rank < size; rank++) {
                struct gf_stats stats = world_stats(&w, rank);
                const struct gf_late *late_of = w.ranks[rank].gf->observed.late;
                uint64_t steps = 0;
                assert_int_equal(stats.slowest_peer, slow);
                assert_in_range(stats.slowest_share_percent, 75, 100);
                assert_in_range(stats.slowest_late_ns, 6 * LATE_NS * UINT64_C(9) / 10,
                                12 * (uint64_t)LATE_NS);
                for (uint32_t of = 0; of < size; of++) {
                    if (of != slow) assert_true(late_of[of].ns < LATE_NS);
                    steps += late_of[of].steps;
                }
                assert_int_equal(steps, STEPS);
            }
        }
    }
}

/* The records of waits in step `step` that a rank has left, the last of them in *wait_out. */
static uint32_t waits_read(struct world *w, uint32_t rank, uint64_t step,
                           struct gf_trace_record *wait_out)
{
    struct gf_trace_record record;
    uint32_t count = 0;
    while (gf_trace_read(w->ranks[rank].gf, &record, 1) == 1) {
        assert_int_equal(record.step, step);
        if (record.operation != GF_OPERATION_WAIT) continue;
        *wait_out = record;
        count++;
    }
    return count;
}

/* In one call, or in some that give GF_AGAIN at their bound. */
static void wait_in_parts(gf_context *gf, uint64_t bound_ns)
{
    gf_status status = GF_AGAIN;
    uint32_t again = 0;
    if (bound_ns == 0) {
        assert_int_equal(gf_step_wait(gf), GF_OK);
        return;
    }
    while ((status = gf_step_wait_for(gf, bound_ns)) == GF_AGAIN) again++;
    assert_int_equal(status, GF_OK);
    assert_true((again >= 5) && (again <= 12));
    assert_int_equal(gf_step_wait_for(gf, bound_ns), GF_OK); /* it stays whole */
}

TEST(blocking_is_counted_as_waiting_and_traced)
{
    enum { LATE_NS = 30000000 };
    static struct world_setup setup;
    struct late late = {.rank = 1, .until_ns = 0};
    struct gf_trace_record wait = {.step = 0};
    struct gf_stats stats;
    setup = setup_of(2);
    setup.config.link.idle = GF_IDLE_SPIN;
    WORLD_OPEN(w, &setup);
    for (uint32_t n = 1; n <= 4; n++) {
        late.until_ns = gf_sim_now_ns(w.sim) + LATE_NS;
        assert_int_equal(gf_step_begin(w.ranks[0].gf), GF_OK);
        for (uint32_t t = 0; t < LENGTH(tensors); t++)
            assert_int_equal(gf_tensor_skip(w.ranks[0].gf, t), GF_OK);
        world_block(&w, 0, late_turn, &late);
        wait_in_parts(w.ranks[0].gf, (n % 2 == 0) ? LATE_NS / 8 : 0);
        /* the other one's last turns */
        for (uint32_t i = 0; i < 200; i++) (void)gf_heartbeat(w.ranks[0].gf);
        world_unblock(&w);
        assert_int_equal(w.ranks[1].status, GF_OK);
        stats = world_stats(&w, 0);
        assert_true((stats.last_wait_ns >= LATE_NS - 1000000) &&
                    (stats.last_wait_ns < LATE_NS + 20000000));
        assert_true(stats.wait_ns >= n * (uint64_t)(LATE_NS - 1000000));
        assert_int_equal(world_stats(&w, 1).wait_ns, 0);
        assert_int_equal(waits_read(&w, 1, n, &wait), 0); /* who polls never waits */
        assert_int_equal(waits_read(&w, 0, n, &wait), 1);
        assert_int_equal(wait.end_ns - wait.begin_ns, stats.last_wait_ns);
        assert_int_equal(wait.status, GF_OK);
        assert_int_equal(wait.first_tensor, GF_TENSOR_NONE);
    }
    world_run(&w, idle_progress, NULL);
}

TEST(an_older_caller_gets_what_it_knows)
{
    struct world_setup setup = setup_of(1);
    struct world_step step = {.order = WORLD_FORWARD};
    struct gf_stats stats;
    WORLD_OPEN(w, &setup);
    world_step_run(&w, &step);
    memset(&stats, 0xee, sizeof stats);
    stats.size_bytes = offsetof(struct gf_stats, wire_bytes);
    assert_int_equal(gf_stats_read(w.ranks[0].gf, &stats), GF_OK);
    assert_int_equal(stats.steps, 1);
    assert_int_equal(stats.size_bytes, offsetof(struct gf_stats, wire_bytes));
    assert_int_equal(stats.wire_bytes, UINT64_C(0xeeeeeeeeeeeeeeee));
}
