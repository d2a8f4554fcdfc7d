/* Ranks of several nodes on the CUDA library without a GPU: summed from device to device inside a
 * node, then by owners of a block over the network, from host memory or from the device's. The bits
 * are those of `hierarchy` on the host, who is refused says so at open, and who dies leaves no
 * trace.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "lib/context.h"
#include "firmware-tests/cuda/cuda_world.h"
#include "firmware-tests/support/link_watch.h"

#define STEPS 2u
#define RANKS 4u

static struct cuda_world *const both = &cuda_world;

static struct world_setup setup_of(const struct state_run *run, uint32_t per_node)
{
    struct world_setup setup = state_setup_of(run);
    setup.sim.ranks_per_node = per_node;
    setup.config.exchange.algorithm = GF_ALGORITHM_HIERARCHY;
    /* little staging: the library locks all device memory at each turn */
    setup.config.exchange.slice_bytes = 4096;
    /* also what closing waits, on the machine's own clock */
    setup.config.exchange.timeout_ns = UINT64_C(2000000000);
    return setup;
}

/* All ranks have the same weights after each step. */
static void steps_alike(uint32_t steps)
{
    static struct cuda_kept first;
    static struct cuda_kept other;
    struct world *w = &both->cuda;
    for (uint32_t step = 1; step <= steps; step++) {
        state_step_run(w, step, state_fill_whole);
        for (uint32_t rank = 0; rank < w->world; rank++) {
            cuda_kept_read(w->ranks[rank].gf, (rank == 0) ? &first : &other);
            if (rank > 0) assert_memory_equal(other.weights, first.weights, sizeof first.weights);
        }
    }
}

/* Nodes of one size and of two; ring and halving between them; a wire of the gradients' own type,
 * and of 16 bits. */
TEST(nodes_of_devices_end_where_nodes_of_hosts_do)
{
    /* run, world, node */
    static const uint32_t rows[][3] = {{0, 4, 2}, {1, 5, 2}, {6, 4, 2}, {8, 5, 3}};
    uint64_t by_card = 0;
    for (uint32_t i = 0; i < LENGTH(rows); i++) {
        struct state_run run = state_runs[rows[i][0]];
        struct world_setup setup;
        run.world = rows[i][1];
        setup = setup_of(&run, rows[i][2]);
        setup.config.exchange.fuse_bytes = (i % 3 == 0) ? 512 : (i % 3 == 1) ? 1 : 65536;
        setup.config.exchange.halving_max_bytes = (i % 2 == 0) ? 8 : 65536;
        cuda_world_begin(i, NULL);
        /* some links read device memory */
        both->wire_ranks = (i % 3 == 1) ? UINT64_MAX : (i % 3 == 2) ? 0x5 : 0;
        cuda_world_open(&setup);
        cuda_world_expect_path(GF_PATH_PEERS);
        cuda_world_steps(STEPS, run.name);
        assert_true(world_stats(&both->cuda, 0).mapped_bytes > 0);
        by_card += (both->wire_ranks != 0) ? link_watch_messages() : 0;
        cuda_world_close();
    }
    assert_true(by_card > 100); /* messages out of device memory */
}

/* One node of two; whoever polls first. */
static void one_is_refused(void)
{
    bool first = world_stats(&both->cuda, 0).path == GF_PATH_STAGED;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        bool refused = first == (rank < 2);
        assert_int_equal(world_stats(&both->cuda, rank).path,
                         refused ? GF_PATH_STAGED : GF_PATH_PEERS);
        world_expect_log(
            &both->cuda, rank,
            refused ? "gradients go through host memory, not from device to device: rank "
            : first ? "gradients of rank 0's node go through host memory, not from device"
                    : "gradients of rank 2's node go through host memory, not from device");
    }
}

/* Two nodes: auto takes what all ranks can. Where one node is refused, that one goes through host
 * memory; where both are, the wire is left, if all links read device memory. */
TEST(auto_takes_it_where_devices_of_a_node_reach_each_other)
{
    static const struct row {
        uint64_t wire_ranks;         /* whose links read device memory */
        uint64_t doubling_max_bytes; /* which takes small buffers to the link in any case */
        uint32_t refused;            /* nodes */
    } rows[] = {{0, 8, 0},          {0, 8192, 0},          {0x5, 8, 0},
                {0x5, 8192, 0},     {UINT64_MAX, 8, 0},    {UINT64_MAX, 8192, 0},
                {UINT64_MAX, 8, 1}, {UINT64_MAX, 8192, 1}, {UINT64_MAX, 8, 2},
                {0x5, 8, 2}};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct world_setup setup = setup_of(&state_runs[6], 2);
        bool by_wire = (rows[i].refused == 2) && (rows[i].wire_ranks == UINT64_MAX);
        cuda_world_begin((uint32_t)i,
                         (rows[i].refused == 2) ? "GF_FAKE_CUDA_NO_DESCRIPTORS=1" : NULL);
        both->wire_ranks = rows[i].wire_ranks;
        setup.config.exchange.algorithm = GF_ALGORITHM_AUTO;
        setup.config.exchange.doubling_max_bytes = rows[i].doubling_max_bytes;
        both->import_refused = (rows[i].refused == 1) ? 1 : 0;
        cuda_world_open(&setup);
        if (rows[i].refused == 1)
            one_is_refused();
        else
            cuda_world_expect_path(by_wire                ? GF_PATH_WIRE
                                   : rows[i].refused == 2 ? GF_PATH_STAGED
                                                          : GF_PATH_PEERS);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            assert_int_equal(both->cuda.ranks[rank].gf->nodes.used, !by_wire);
        for (uint32_t rank = 0; by_wire && (rank < RANKS); rank++)
            world_expect_log(
                &both->cuda, rank,
                "gradients go from device memory straight to the wire, not from device");
        cuda_world_steps(1, "auto");
        cuda_world_close();
    }
}

/* One of two nodes is refused; the other's ranks sum from device to device. With fp32 on the
 * wire all end where hosts do; with 16 bits what is added in the refused node is rounded before,
 * and all ranks end in the same. */
TEST(where_a_rank_is_refused_its_node_goes_through_host_memory_and_the_other_does_not)
{
    for (uint32_t time = 1; time <= 6; time++) {
        struct world_setup setup = setup_of(&state_runs[6], 2);
        bool narrow = time >= 4;
        if (time == 4) continue; /* nobody is refused: above */
        cuda_world_begin(time, NULL);
        both->export_refused = (time % 4 == 3) ? 1 : 0;
        both->import_refused = (time % 4 == 1) ? 1 : 0;
        both->import_wrong = (time % 4 == 2) ? 1 : 0;
        both->wire_ranks = (time == 3) ? UINT64_MAX : 0;
        setup.config.exchange.wire = narrow ? GF_TYPE_F16 : GF_TYPE_F32;
        setup.config.exchange.halving_max_bytes = (time % 2 == 0) ? 8 : 65536;
        setup.config.exchange.algorithm = (time == 5) ? GF_ALGORITHM_AUTO : GF_ALGORITHM_HIERARCHY;
        setup.config.exchange.doubling_max_bytes = 8;
        cuda_world_open(&setup);
        one_is_refused();
        if (narrow)
            steps_alike(3);
        else
            cuda_world_steps(STEPS, "refused");
        cuda_world_close();
    }
}

/* A node that goes through host memory overlaps its stages, one of devices does not: the messages
 * between them are of one size. Large enough that slices would else be made smaller. */
TEST(a_node_that_is_refused_sends_messages_as_large_as_one_of_devices)
{
    static const struct gf_tensor large = {.name = "large", .elem_count = 65536};
    for (uint32_t refused = 1; refused <= 3; refused += 2) { /* of a node of two, and of one */
        struct world_setup setup = setup_of(&state_runs[2], 2);
        cuda_world_begin(refused, "GF_FAKE_CUDA_UNWATCHED=1");
        both->export_refused = refused;
        setup.world = 3;
        setup.tensors = &large;
        setup.tensor_count = 1;
        setup.config.exchange.slice_bytes = 262144;
        cuda_world_open(&setup);
        for (uint32_t rank = 0; rank < 3; rank++) assert_true(both->cuda.ranks[rank].gf->ipc.mixed);
        cuda_world_steps(1, "large");
        cuda_world_close();
    }
}

/* And where none is left that sums so. */
TEST(where_both_nodes_are_refused_all_go_through_host_memory)
{
    struct world_setup setup = setup_of(&state_runs[6], 2);
    cuda_world_begin(1, "GF_FAKE_CUDA_NO_DESCRIPTORS=1");
    cuda_world_open(&setup);
    cuda_world_expect_path(GF_PATH_STAGED);
    cuda_world_steps(1, "refused");
    cuda_world_close();
}

/* ---- a rank that dies in the middle ---- */

/* at: a stage: gf_hierarchy_stage. */
static bool due_in_stage(struct world *w, struct cuda_death *death)
{
    const gf_context *gf = w->ranks[death->victim].gf;
    for (uint32_t i = 0; i < gf->under_way.count; i++) {
        const struct gf_op *op = &gf->under_way.ops[i];
        if ((op->state == GF_OP_RUN) && (op->plan.operation == GF_OPERATION_STEP) &&
            (op->own.hierarchy.stage >= death->at))
            return true;
    }
    return false;
}

static void death_run(uint32_t victim, uint32_t stage, bool sparse)
{
    struct state_moment moment = {.step = 2};
    struct cuda_death death = {.step = {.fill = state_fill_whole, .arg = &moment},
                               .victim = victim,
                               .at = stage,
                               .due = due_in_stage};
    struct world_setup setup = setup_of(&state_runs[6], 2);
    struct world_setup cuda;
    cuda_world_begin(victim, NULL);
    both->wire_ranks = (victim % 2 == 1) ? UINT64_MAX : 0;
    cuda_world_elastic(&setup);
    setup.config.sparse.enabled = sparse;
    setup.config.exchange.wire = GF_TYPE_F16; /* all stages */
    setup.config.job.elastic = setup.separate = true;
    cuda = cuda_world_setup(&setup);
    cuda_world_open_alone(&cuda);
    state_step_run(&both->cuda, 1, state_fill_whole);
    cuda_world_dies(&death);
    if (!death.done) fail_msg("stage %u of rank %u never came", stage, victim);
    cuda_world_goes_on(&death, GF_PATH_PEERS); /* a node of two and a node of one */
    cuda_world_close_alone();
}

TEST(a_rank_that_dies_in_any_stage_leaves_no_trace_and_the_others_go_on)
{
    static const uint32_t rows[][2] = {{0, 0}, {2, 1}, {1, 2}, {2, 3}, {3, 4}}; /* rank, stage */
    for (size_t i = 0; i < LENGTH(rows); i++) death_run(rows[i][0], rows[i][1], i == 2);
}
