/* Device memory straight to the wire, on a device that works late: the bits are the host's whatever the algorithm, the
 * world and what the other ranks do, and each wait is needed. Survivors of a death: test_cuda_wire, and the soak. */
#include "firmware-tests/support/suite.h"
#include "lib/context.h"
#include "lib/core/device_work.h"
#include "firmware-tests/cuda/late_gpu.h"
#include "firmware-tests/support/state_world.h"

#define STEPS 8u /* sparse runs begin dense; 4, 7 and 8 meet a value that is not finite */
#define ALL_RANKS UINT64_MAX
#define SLICE_BYTES 256u /* several to a block, and more of them than the window: slots are used again */
#define WINDOW 2u

static const gf_algorithm algorithms[] = {GF_ALGORITHM_AUTO,     GF_ALGORITHM_RING, GF_ALGORITHM_HALVING,
                                          GF_ALGORITHM_DOUBLING, GF_ALGORITHM_TREE, GF_ALGORITHM_SERVER};
#define ALGORITHMS (LENGTH(algorithms))

/* ---- the device, which may be said to have done what it has not ---- */

/* The wait for what was packed, added or unpacked. */
typedef enum lie { LIE_NONE, LIE_PACK, LIE_FOLD, LIE_UNPACK } lie;
static struct gf_gpu_driver late;
static struct world host, device;
static lie told;

static gf_op_state op_state(const struct gf_gpu *gpu, uint32_t event)
{
    for (uint32_t rank = 0; rank < device.world; rank++) {
        const gf_context *gf = device.ranks[rank].gf;
        if ((gf != NULL) && (gf->gpu == gpu) && (event < gf->under_way.count)) return gf->under_way.ops[event].state;
    }
    return GF_OP_FREE;
}

static gf_status reached(struct gf_gpu *gpu, uint32_t event)
{
    static const gf_op_state states[] = {GF_OP_FREE, GF_OP_PACKED, GF_OP_RUN, GF_OP_UNPACKED};
    if ((told != LIE_NONE) && (op_state(gpu, event) == states[told])) return GF_OK;
    return late_gpu.reached(gpu, event);
}

static gf_status late_open(const struct gf_gpu_setup *setup, void *state, struct gf_gpu **gpu_out,
                           struct gf_fault *fault_out)
{
    gf_status status = late_gpu.open(setup, state, gpu_out, fault_out);
    if (status == GF_OK) (*gpu_out)->driver = &late;
    return status;
}

static void slices_shorten(struct world *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++) {
        w->ranks[rank].gf->config.exchange.slice_bytes = SLICE_BYTES;
        w->ranks[rank].gf->config.link.window = WINDOW;
    }
}

static struct world_setup setup_of(const struct state_run *run, uint32_t world, gf_algorithm algorithm)
{
    struct world_setup setup = state_setup_of(run);
    setup.world = world;
    setup.config.exchange.algorithm = algorithm;
    setup.config.exchange.fuse_bytes = 3000;
    setup.config.exchange.slice_bytes = 4096;
    setup.config.exchange.timeout_ns = UINT64_C(200000000);
    return setup;
}

static void device_open(const struct world_setup *on_host, uint64_t device_ranks)
{
    struct world_setup setup = *on_host;
    late = late_gpu;
    late.open = late_open;
    late.reached = reached;
    told = LIE_NONE;
    setup.gpu = &late;
    setup.sim.device_ranks = device_ranks;
    strcpy(setup.config.device.driver, late.name);
    world_open(&device, &setup);
    slices_shorten(&device);
    for (uint32_t rank = 0; rank < setup.world; rank++)
        assert_int_equal(world_stats(&device, rank).path,
                         ((device_ranks >> rank) & 1u) ? GF_PATH_WIRE : GF_PATH_STAGED);
}

static void both_open(const struct world_setup *setup, uint64_t device_ranks)
{
    world_open(&host, setup);
    slices_shorten(&host);
    device_open(setup, device_ranks);
    state_weights_begin(&host);
    state_weights_begin(&device);
}

static void both_close(void)
{
    world_close(&host);
    world_close(&device);
}

static bool both_step(uint32_t step)
{
    state_step_run(&host, step, state_fill);
    state_step_run(&device, step, state_fill);
    return state_worlds_same(&host, &device);
}

/* What each op's last collective worked on: a buffer, or something of the host's. */
static void works_expect_in_device_memory(const gf_context *gf, bool on_wire)
{
    bool some = false;
    for (uint32_t s = 0; s < gf->under_way.count; s++) {
        const struct gf_coll *coll = &gf->under_way.ops[s].coll;
        some = some || coll->is_late;
        assert_int_equal(gf_device_holds(gf, coll->data), coll->is_late);
        if (coll->size > 1) assert_int_equal(gf_device_holds(gf, coll->staging), coll->is_late);
    }
    assert_true(on_wire || !some);
}

static void ends_where_the_host_ends(const struct state_run *run, uint32_t world, gf_algorithm algorithm,
                                     uint64_t ranks)
{
    const struct world_setup setup = setup_of(run, world, algorithm);
    both_open(&setup, ranks);
    for (uint32_t step = 1; step <= STEPS; step++)
        if (!both_step(step))
            fail_msg("%s, %u ranks, %s, step %u differs", run->name, world, gf_algorithm_name(algorithm), step);
    assert_int_equal(world_stats(&host, 0).steps_skipped, world_stats(&device, 0).steps_skipped);
    for (uint32_t rank = 0; rank < world; rank++)
        works_expect_in_device_memory(device.ranks[rank].gf, ((ranks >> rank) & 1u) != 0);
    both_close();
}

/* Each run and algorithm, in worlds of any size. Each rank chooses its path by itself: messages are the same and so are
 * sums. */
TEST(every_run_ends_where_it_ends_on_the_host)
{
    static const uint64_t mixes[] = {ALL_RANKS, ALL_RANKS, 0x15, 0x1a, 0, 1};
    for (uint32_t row = 0; row < 2 * STATE_PLAIN_RUNS * ALGORITHMS; row++)
        ends_where_the_host_ends(&state_runs[row / ALGORITHMS % STATE_PLAIN_RUNS],
                                 2 + row / 3 % (STATE_RANKS_MAX - 1), algorithms[row % ALGORITHMS],
                                 mixes[row / 7 % LENGTH(mixes)]);
}

/* ---- what the link is given ---- */

TEST(what_no_link_could_take_stays_in_host_memory)
{
    static const struct {
        const char *name;
        gf_algorithm algorithm;
        bool integrity;
        uint32_t ranks_per_node;
        uint64_t device_ranks;
        bool takes;
    } rows[] = {{"checksums are the host's", GF_ALGORITHM_AUTO, true, 0, ALL_RANKS, false},
                {"in one node's memory", GF_ALGORITHM_DIRECT, false, 4, ALL_RANKS, false},
                {"in nodes' memory", GF_ALGORITHM_HIERARCHY, false, 2, ALL_RANKS, true},
                {"auto, on one node", GF_ALGORITHM_AUTO, false, 4, ALL_RANKS, true},
                {"no link reaches it", GF_ALGORITHM_RING, false, 0, 0, false}};
    struct gf_footprint without;
    for (size_t i = LENGTH(rows); i-- > 0;) { /* the last one says what is taken without */
        struct world_setup setup = setup_of(&state_runs[0], 4, rows[i].algorithm);
        struct gf_footprint need;
        setup.config.exchange.slice_bytes = 1u << 18;
        setup.config.link.integrity = rows[i].integrity;
        setup.sim.ranks_per_node = rows[i].ranks_per_node;
        setup.sim.device_ranks = rows[i].device_ranks;
        setup.gpu = &late_gpu;
        strcpy(setup.config.device.driver, late_gpu.name);
        world_open(&device, &setup);
        need = device.ranks[0].footprint;
        if (rows[i].device_ranks == 0) without = need;
        print_message("  %s: %u KiB of the device\n", rows[i].name, (unsigned)(need.device_bytes >> 10));
        assert_int_equal(world_stats(&device, 0).path, GF_PATH_STAGED);
        assert_int_equal(device.ranks[0].gf->link->reaches_device, rows[i].takes);
        assert_int_equal(need.device_bytes > without.device_bytes, rows[i].takes);
        world_close(&device);
    }
}

/* There auto takes hierarchy, in the nodes' memory where devices export nothing, unless all ranks do without. */
TEST(on_two_nodes_all_go_to_the_wire_or_none)
{
    static const uint64_t reaching[] = {ALL_RANKS, 0x7, 0};
    for (size_t i = 0; i < LENGTH(reaching); i++) {
        struct world_setup setup = setup_of(&state_runs[0], 4, GF_ALGORITHM_AUTO);
        struct world_step step = {.fill = world_fill};
        setup.config.optimizer.kind = GF_OPTIMIZER_NONE;
        setup.config.exchange.fuse_bytes = 65536;
        setup.config.exchange.doubling_max_bytes = 1;
        setup.sim.ranks_per_node = 2;
        setup.sim.device_ranks = reaching[i];
        setup.gpu = &late_gpu;
        strcpy(setup.config.device.driver, late_gpu.name);
        world_open(&device, &setup);
        for (uint32_t rank = 0; rank < setup.world; rank++) {
            assert_int_equal(world_stats(&device, rank).path, (i == 0) ? GF_PATH_WIRE : GF_PATH_STAGED);
            assert_int_equal(device.ranks[rank].gf->nodes.used, i != 0);
        }
        world_step_run(&device, &step);
        world_expect(&device, GF_OK);
        for (uint32_t rank = 0; rank < setup.world; rank++) world_drain(&device, rank);
        world_expect_sums(&device, 1.0f);
        world_close(&device);
    }
}

TEST(the_footprint_holds_staging_for_every_op)
{
    struct world_setup setup = setup_of(&state_runs[0], 3, GF_ALGORITHM_AUTO);
    const gf_context *gf;
    gf_mem before = 0;
    device_open(&setup, ALL_RANKS);
    gf = device.ranks[0].gf;
    for (uint32_t s = 0; s < gf->under_way.count; s++) {
        gf_mem begin = gf->under_way.ops[s].device_staging, end = begin + gf->under_way.ops[s].coll.staging_bytes;
        assert_true(gf_device_holds(gf, begin) && (end <= gf->device.base + gf->device.bytes));
        assert_true(begin >= before);
        before = end;
    }
    assert_true(device.ranks[0].footprint.device_bytes >= gf->under_way.count * gf->under_way.ops[0].coll.staging_bytes);
    world_close(&device);
}

/* ---- each wait is needed ---- */

/* Every value is finite, and in fp16 some sums are not. */
static void fill_large(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct state_moment *moment = arg;
    const struct gf_tensor *from = &w->ranks[rank].tensors[tensor];
    for (uint64_t i = 0; i < from->elem_count; i++)
        world_put(from->type, gradient, i, (moment->step % 2 == 0) ? 30000.0f : 1.0f);
}

/* Of another type than the wire's, whose sums are looked at once more on the way back, or of its own, in place. */
static bool skips_alike(gf_type type, lie left_out)
{
    struct world_setup setup = setup_of(&state_runs[1], 3, GF_ALGORITHM_RING);
    struct gf_tensor typed[STATE_TENSORS];
    bool alike = true;
    memcpy(typed, state_tensors, sizeof typed);
    for (size_t i = 0; i < STATE_TENSORS; i++) typed[i].type = type;
    setup.tensors = typed;
    setup.config.exchange.wire = GF_TYPE_F16;
    setup.config.loss_scale.enabled = false;
    both_open(&setup, ALL_RANKS);
    told = left_out;
    for (uint32_t step = 1; step <= 4; step++) {
        state_step_run(&host, step, fill_large);
        state_step_run(&device, step, fill_large);
        assert_int_equal(gf_step_skipped(host.ranks[0].gf), step % 2 == 0);
        alike = alike && (gf_step_skipped(host.ranks[0].gf) == gf_step_skipped(device.ranks[0].gf));
    }
    both_close();
    return alike;
}

TEST(sums_that_overflow_are_found_by_the_device)
{
    for (gf_type type = GF_TYPE_F32; type <= GF_TYPE_F16; type++) {
        assert_true(skips_alike(type, LIE_NONE));
        assert_false(skips_alike(type, LIE_UNPACK)); /* its counters are looked at before they have come */
    }
}

TEST(a_wait_that_is_left_out_is_found)
{
    static const char *const names[] = {"nothing", "the wait for packing", "the wait for folds"};
    for (lie left_out = LIE_NONE; left_out <= LIE_FOLD; left_out++) {
        for (size_t a = 0; a < ALGORITHMS; a++) {
            const struct world_setup setup = setup_of(&state_runs[1], 5, algorithms[a]); /* another type on the wire */
            const char *name = gf_algorithm_name(algorithms[a]);
            bool same = true;
            both_open(&setup, ALL_RANKS);
            told = left_out;
            for (uint32_t step = 1; step <= 3; step++) same = both_step(step) && same;
            if (same != (left_out == LIE_NONE))
                fail_msg("%s, without %s: %s", name, names[left_out], same ? "the same" : "other values");
            both_close();
        }
    }
}
