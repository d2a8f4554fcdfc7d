/* The step on a device that works late: whole contexts end bit by bit where those on the host end,
 * whatever is sent how. Random worlds, algorithms and paths on it, values that are not finite and
 * deaths among them: the soak's jobs.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "lib/context.h"
#include "firmware-tests/cuda/late_gpu.h"
#include "firmware-tests/support/state_runs.h"

#define FAULT_STEP 10u /* behind it values are not finite */
#define LISTED_STEPS 16u

static struct world_setup setup_on(const struct state_run *run, const struct gf_gpu_driver *gpu)
{
    struct world_setup setup = state_setup_of(run);
    setup.gpu = gpu;
    if (gpu != NULL) strcpy(setup.config.device.driver, gpu->name);
    return setup;
}

/* ---- ranks with a device beside ranks without one ---- */

static void every_other_on_the_host(uint32_t rank, struct gf_config *config,
                                    const struct gf_tensor **tensors, uint32_t *tensor_count)
{
    struct gf_drivers *drivers = (struct gf_drivers *)(uintptr_t)config->drivers;
    if (rank % 2 != 0) return;
    drivers->gpu = &gf_gpu_host;
    strcpy(config->device.driver, "host");
}

/* What each would have by default is not the same; both are named. */
TEST(ranks_that_differ_in_what_a_device_has_by_default_are_told)
{
    struct world_setup setup = setup_on(&state_runs[0], &late_gpu);
    setup.vary = every_other_on_the_host;
    setup.config.exchange.fuse_bytes = 0;
    setup.config.exchange.slice_bytes = 0;
    WORLD_CREATE(w, &setup);
    world_join(&w);
    world_expect(&w, GF_ERR_MISMATCH);
    world_expect_log(&w, 0, "configurations differ: fuse_bytes is 4MiB at rank 0, 32MiB at rank ");
    world_expect_log(&w, 0, "slice_bytes is 256KiB at rank 0, 512KiB at rank ");
}

/* They share memory, in one node and in two, and sum what all of them can: the wire's type. */
TEST(ranks_with_a_device_and_without_sum_the_same_type)
{
    for (uint32_t per_node = 2; per_node <= 4; per_node += 2) {
        struct state_run run = {
            .name = "mixed", .world = 4, .wire = GF_TYPE_F16, .optimizer = GF_OPTIMIZER_SGD};
        struct world_setup on_host = setup_on(&run, NULL);
        struct world_setup mixed = setup_on(&run, &late_gpu);
        on_host.sim.ranks_per_node = mixed.sim.ranks_per_node = per_node;
        on_host.config.exchange.slice_bytes = mixed.config.exchange.slice_bytes = 4096;
        if (per_node < run.world)
            on_host.config.exchange.algorithm = mixed.config.exchange.algorithm =
                GF_ALGORITHM_HIERARCHY;
        mixed.vary = every_other_on_the_host;
        WORLD_OPEN(a, &on_host);
        WORLD_OPEN(b, &mixed);
        state_weights_begin(&a);
        state_weights_begin(&b);
        state_steps_same(&a, &b, 1, 3, state_fill_whole, run.name);
    }
}

/* Norms too, of tensors that a host takes in pieces and a device whole: by 33 runs and more; the
 * last time of chunks that were received. */
TEST(ranks_with_a_device_and_without_have_the_same_weights)
{
    static const gf_optimizer kinds[] = {GF_OPTIMIZER_SGD, GF_OPTIMIZER_LARS, GF_OPTIMIZER_ADAMW,
                                         GF_OPTIMIZER_SGD};
    static struct gf_tensor tensors[5];
    for (uint32_t t = 0; t < LENGTH(tensors); t++)
        tensors[t] = (struct gf_tensor){.name = "of many runs",
                                        .elem_count = (33 + 19 * t) * GF_RUN_ELEMS - 7 * t};
    for (uint32_t i = 0; i < LENGTH(kinds); i++) {
        struct state_run run = {.name = "mixed", .world = 2, .optimizer = kinds[i]};
        struct world_setup mixed = setup_on(&run, &late_gpu);
        mixed.tensors = tensors;
        mixed.tensor_count = LENGTH(tensors);
        mixed.config.exchange.fuse_bytes = mixed.config.exchange.slice_bytes = 1u << 18;
        mixed.config.optimizer.clip_norm = 0.5f;
        mixed.config.sparse.enabled = i == LENGTH(kinds) - 1;
        mixed.config.sparse.chunk_elems = GF_RUN_ELEMS;
        mixed.vary = every_other_on_the_host;
        WORLD_OPEN(w, &mixed);
        assert_true(w.ranks[1].gf->on_device && !w.ranks[0].gf->on_device);
        state_weights_begin(&w);
        for (uint32_t step = 1; step <= 3; step++) state_step_run(&w, step, state_fill);
        world_drain(&w, 1);
        for (uint32_t t = 0; t < LENGTH(tensors); t++)
            assert_memory_equal((const void *)(uintptr_t)gf_weight(w.ranks[0].gf, t),
                                (const void *)(uintptr_t)gf_weight(w.ranks[1].gf, t),
                                tensors[t].elem_count * sizeof(float));
        assert_true(w.ranks[0].gf->step.sparse == mixed.config.sparse.enabled);
        assert_true((w.ranks[0].gf->step.clip_factor < 1.0f) &&
                    (w.ranks[0].gf->step.clip_factor == w.ranks[1].gf->step.clip_factor));
    }
}

/* Lists of chunks, on a part whose tensors decay alike: gradients of each type, scratch for all of
 * the part and for little. */
static void fill_typed(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct state_moment *moment = arg;
    const struct gf_tensor *from = &w->ranks[rank].tensors[tensor];
    for (uint64_t i = 0; i < from->elem_count; i++)
        world_put(from->type, gradient, i, /* so that sums are rounded */
                  world_value(rank + 16u * (uint32_t)moment->step, tensor, i) * 0.1f);
    /* in another chunk each time */
    if ((moment->step > FAULT_STEP) && (rank == 1) && (tensor == 1 + 2 * (moment->step % 2)))
        world_put(from->type, gradient, (moment->step * 53) % from->elem_count, __builtin_inff());
}

/* Both have named the same values, of however many. */
static void expect_same_fault(const struct world *a, const struct world *b)
{
    const char *left = a->ranks[0].log;
    const char *right = b->ranks[0].log;
    for (uint32_t met = 0;; met++) {
        left = strstr(left, "first on rank");
        right = strstr(right, "first on rank");
        if ((left == NULL) || (right == NULL)) {
            assert_true((left == NULL) && (right == NULL) && (met == LISTED_STEPS - FAULT_STEP));
            return;
        }
        assert_memory_equal(left, right, strcspn(left, "\n") + 1);
        left++;
        right++;
    }
}

/* Each step that is skipped is told, as the first of its kind. */
static void skips_forget(const struct world *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++)
        memset(w->ranks[rank].gf->observed.skips, 0, sizeof w->ranks[rank].gf->observed.skips);
}

static void expect_same_scores(const struct world *a, const struct world *b)
{
    const struct gf_sparse *left = &a->ranks[0].gf->sparse;
    const struct gf_sparse *right = &b->ranks[0].gf->sparse;
    assert_memory_equal(left->scores, right->scores, left->chunk_count * sizeof *left->scores);
}

/* slice_bytes 0: chunks are smaller than a slice; else they are cut, the last piece being shorter
 * than the others. */
static void listed_chunks_run(uint32_t slice_bytes, uint32_t chunk_elems, uint64_t scratch_elems)
{
    struct gf_tensor alike[STATE_TENSORS];
    memcpy(alike, state_tensors, sizeof alike);
    alike[2].flags = 0;
    if (slice_bytes != 0) alike[1].elem_count = 9001;
    if (slice_bytes != 0) alike[3].elem_count = 17000;
    for (size_t i = 0; i < STATE_RUNS; i++) {
        for (gf_type type = GF_TYPE_F32; state_runs[i].sparse && (type < GF_TYPE_COUNT); type++) {
            struct world_setup on_host = setup_on(&state_runs[i], NULL);
            struct world_setup on_device = setup_on(&state_runs[i], &late_gpu);
            for (size_t t = 1; t < STATE_TENSORS; t++) alike[t].type = type;
            on_host.tensors = on_device.tensors = alike;
            on_host.config.exchange.slice_bytes = on_device.config.exchange.slice_bytes =
                slice_bytes;
            on_host.config.sparse.chunk_elems = on_device.config.sparse.chunk_elems = chunk_elems;
            WORLD_OPEN(host, &on_host);
            WORLD_OPEN(device, &on_device);
            state_weights_begin(&host);
            state_weights_begin(&device);
            for (uint32_t rank = 0; rank < device.world; rank++) {
                struct gf_sparse *sparse = &device.ranks[rank].gf->sparse;
                assert_true(sparse->in_lists);
                if (i % 2 == 0) sparse->scratch_elems = scratch_elems;
            }
            for (uint32_t step = 1; step <= LISTED_STEPS; step++) {
                skips_forget(&host);
                skips_forget(&device);
                state_steps_same(&host, &device, step, step, fill_typed, state_runs[i].name);
                expect_same_scores(&host, &device);
            }
            expect_same_fault(&host, &device);
            for (uint32_t rank = 0; rank < device.world; rank++) world_drain(&device, rank);
            for (uint32_t t = 0; t < STATE_TENSORS; t++)
                assert_memory_equal(world_gradient(&host, 0, t), world_gradient(&device, 0, t),
                                    alike[t].elem_count * gf_type_size_bytes(alike[t].type));
        }
    }
}

TEST(listed_chunks_of_every_type_end_where_they_end_on_the_host)
{
    listed_chunks_run(0, 37, 80);
}

TEST(listed_chunks_larger_than_a_slice_do_too)
{
    listed_chunks_run(4096, 2600, 2700);
    listed_chunks_run(4096, 2048, 5000);
}

/* Squares of tensors are read through the pack buffer in host memory: where most tensors are empty
 * it holds fewer of them at a time. */
TEST(a_norm_of_more_tensors_than_the_pool_has_elements_is_that_of_the_host)
{
    static struct gf_tensor tensors[64];
    const struct world_step step = {.order = WORLD_FORWARD};
    float norms[2];
    for (size_t i = 0; i < LENGTH(tensors); i++)
        tensors[i] =
            (struct gf_tensor){.name = "few", .elem_count = (i == LENGTH(tensors) - 2) ? 1 : 0};
    for (uint32_t on_device = 0; on_device < 2; on_device++) {
        struct world_setup setup = setup_on(&state_runs[2], (on_device != 0) ? &late_gpu : NULL);
        setup.tensors = tensors;
        setup.tensor_count = LENGTH(tensors);
        WORLD_OPEN(w, &setup);
        assert_true(w.ranks[0].gf->pool.elem_count < LENGTH(tensors));
        world_step_ok(&w, &step);
        assert_int_equal(gf_gradient_norm(w.ranks[0].gf, &norms[on_device], NULL), GF_OK);
    }
    assert_true((norms[0] > 0) && (norms[0] == norms[1]));
}

/* A loss that travels while gradients are clipped passes through the pack buffer in host memory. */
struct loss {
    struct gf_request of[STATE_RANKS_MAX];
    float norm;       /* of the first step */
    uint32_t norm_at; /* before this poll of the loss, or after it has come */
};

static gf_status loss_progress(struct world *w, uint32_t rank, void *arg)
{
    struct loss *loss = arg;
    gf_context *gf = w->ranks[rank].gf;
    const uint32_t poll = w->ranks[rank].next++;
    if (poll == 0)
        assert_int_equal(gf_allreduce(gf, gf_weight(gf, 1), state_tensors[1].elem_count,
                                      GF_TYPE_F32, &loss->of[rank]),
                         GF_OK);
    if (poll == loss->norm_at) assert_int_equal(gf_gradient_norm(gf, NULL, NULL), GF_OK);
    return gf_request_poll(gf, &loss->of[rank]);
}

static void loss_begin(struct world *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++) {
        float *loss = (float *)(uintptr_t)gf_weight(w->ranks[rank].gf, 1);
        world_drain(w, rank);
        for (uint64_t i = 0; i < state_tensors[1].elem_count; i++)
            loss[i] = (float)(rank + 1) * (float)(i % 7 + 1);
    }
}

static void loss_expect(struct world *w, struct loss *loss)
{
    const float ranks = (float)(w->world * (w->world + 1) / 2);
    for (uint32_t rank = 0; rank < w->world; rank++) {
        const float *sum = (const float *)(uintptr_t)gf_weight(w->ranks[rank].gf, 1);
        float norm;
        world_drain(w, rank);
        for (uint64_t i = 0; i < state_tensors[1].elem_count; i++)
            if (sum[i] != ranks * (float)(i % 7 + 1))
                fail_msg("norm before poll %u: loss[%u] of rank %u is %g", loss->norm_at,
                         (unsigned)i, rank, (double)sum[i]);
        assert_int_equal(gf_gradient_norm(w->ranks[rank].gf, &norm, NULL), GF_OK);
        if (loss->norm == 0) loss->norm = norm;
        assert_true((norm > 0) && (norm == loss->norm));
    }
}

TEST(a_norm_while_a_loss_travels_changes_no_sum)
{
    const struct world_setup setup = setup_on(&state_runs[0], &late_gpu);
    const struct world_step step = {.order = WORLD_FORWARD};
    struct loss loss = {.norm = 0};
    WORLD_OPEN(w, &setup);
    state_weights_begin(&w);
    for (loss.norm_at = 0; loss.norm_at < 60; loss.norm_at++) {
        world_step_ok(&w, &step);
        loss_begin(&w);
        world_run(&w, loss_progress, &loss);
        world_expect(&w, GF_OK);
        loss_expect(&w, &loss);
        for (uint32_t rank = 0; rank < w.world; rank++)
            assert_int_equal(gf_update(w.ranks[rank].gf, 0.0625f), GF_OK);
    }
}

/* ---- what the link is given ---- */

#define ALL_RANKS UINT64_MAX

static struct world_setup wire_setup(gf_algorithm algorithm, uint64_t device_ranks,
                                     uint32_t ranks_per_node)
{
    struct world_setup setup = setup_on(&state_runs[0], &late_gpu);
    setup.world = 4;
    setup.config.exchange.algorithm = algorithm;
    setup.config.exchange.fuse_bytes = 3000;
    setup.config.exchange.slice_bytes = 1u << 18;
    setup.sim.device_ranks = device_ranks;
    setup.sim.ranks_per_node = ranks_per_node;
    return setup;
}

TEST(what_no_link_could_take_stays_in_host_memory)
{
    static const struct {
        const char *name;
        gf_algorithm algorithm;
        uint32_t ranks_per_node;
        uint64_t device_ranks;
        bool takes;
    } rows[] = {{"in one node's memory", GF_ALGORITHM_DIRECT, 4, ALL_RANKS, false},
                {"in nodes' memory", GF_ALGORITHM_HIERARCHY, 2, ALL_RANKS, true},
                {"auto, on one node", GF_ALGORITHM_AUTO, 4, ALL_RANKS, true},
                {"no link reaches it", GF_ALGORITHM_RING, 0, 0, false}};
    struct gf_footprint without;
    for (size_t i = LENGTH(rows); i-- > 0;) { /* the last one says what is taken without */
        struct world_setup setup =
            wire_setup(rows[i].algorithm, rows[i].device_ranks, rows[i].ranks_per_node);
        struct gf_footprint need;
        WORLD_OPEN(w, &setup);
        need = w.ranks[0].footprint;
        if (rows[i].device_ranks == 0) without = need;
        print_message("  %s: %u KiB of the device\n", rows[i].name,
                      (unsigned)(need.device_bytes >> 10));
        assert_int_equal(world_stats(&w, 0).path, GF_PATH_STAGED);
        assert_int_equal(w.ranks[0].gf->link->reaches_device, rows[i].takes);
        assert_int_equal(need.device_bytes > without.device_bytes, rows[i].takes);
    }
}

/* There auto takes hierarchy, in the nodes' memory where devices export nothing, unless all ranks
 * do without. */
TEST(on_two_nodes_all_go_to_the_wire_or_none)
{
    static const uint64_t reaching[] = {ALL_RANKS, 0x7, 0};
    for (size_t i = 0; i < LENGTH(reaching); i++) {
        struct world_setup setup = wire_setup(GF_ALGORITHM_AUTO, reaching[i], 2);
        struct world_step step = {.fill = world_fill};
        setup.config.optimizer.kind = GF_OPTIMIZER_NONE;
        setup.config.exchange.fuse_bytes = 65536;
        setup.config.exchange.doubling_max_bytes = 1;
        WORLD_OPEN(w, &setup);
        for (uint32_t rank = 0; rank < setup.world; rank++) {
            assert_int_equal(world_stats(&w, rank).path, (i == 0) ? GF_PATH_WIRE : GF_PATH_STAGED);
            assert_int_equal(w.ranks[rank].gf->nodes.used, i != 0);
        }
        world_step_ok(&w, &step);
        for (uint32_t rank = 0; rank < setup.world; rank++) world_drain(&w, rank);
        world_expect_sums(&w, 1.0f);
    }
}

TEST(more_device_memory_than_the_pool_is_refused)
{
    const struct world_setup setup = setup_on(&state_runs[0], &late_gpu);
    struct gf_request request;
    gf_context *gf;
    WORLD_OPEN(w, &setup);
    gf = w.ranks[0].gf;
    assert_int_equal(
        gf_allreduce(gf, gf_weight(gf, 0), gf->pool.elem_count + 1, GF_TYPE_F32, &request),
        GF_ERR_PARAM);
    world_expect_log(&w, 0, "elements of device memory");
}

TEST(the_footprint_names_the_devices_memory)
{
    struct world_setup on_host = setup_on(&state_runs[0], NULL);
    struct world_setup on_device = setup_on(&state_runs[0], &late_gpu);
    WORLD_OPEN(host, &on_host);
    WORLD_OPEN(device, &on_device);
    assert_int_equal(host.ranks[0].footprint.device_bytes, 0);
    /* gradient, weight, momentum */
    assert_true(device.ranks[0].footprint.device_bytes >= 3 * 1044 * sizeof(float));
    assert_true(device.ranks[0].footprint.control_bytes < host.ranks[0].footprint.control_bytes);
}

/* ---- a device that takes time of its own, as real ones do ---- */

#define SLOW_NS UINT64_C(200000000)
static uint64_t slow_since_ns;
static uint64_t slow_ns;

static gf_status slow_event_query(struct gf_gpu *gpu, uint32_t event)
{
    uint64_t now_ns = gf_clock_monotonic.now_ns(NULL);
    if (slow_since_ns == 0) slow_since_ns = now_ns;
    return (now_ns - slow_since_ns < slow_ns) ? GF_AGAIN : late_gpu.event_query(gpu, event);
}

/* One step with a deadline of so long, on the machine's clock; the status that it ends with. */
static gf_status slow_step(uint64_t timeout_ns)
{
    static const struct world_step step = {0};
    struct world_setup setup = setup_on(&state_runs[0], &late_gpu);
    struct gf_gpu_driver slow = late_gpu;
    struct world w;
    gf_status status;
    setup.real_time = true;
    setup.config.exchange.timeout_ns = timeout_ns;
    world_open(&w, &setup);
    slow.event_query = slow_event_query;
    slow_since_ns = 0;
    for (uint32_t rank = 0; rank < w.world; rank++) w.ranks[rank].gf->gpu->driver = &slow;
    world_step_run(&w, &step);
    status = w.ranks[0].status;
    for (uint32_t rank = 0; rank < w.world; rank++) w.ranks[rank].gf->gpu->driver = &late_gpu;
    world_close(&w);
    return status;
}

TEST(waits_for_a_real_device_are_not_ended_by_virtual_time)
{
    uint64_t begin_ns = gf_clock_monotonic.now_ns(NULL);
    slow_ns = SLOW_NS;
    assert_int_equal(slow_step(60 * UINT64_C(1000000000)), GF_OK);
    assert_true(gf_clock_monotonic.now_ns(NULL) - begin_ns >= SLOW_NS);
    slow_ns = UINT64_MAX; /* however long this process has no core */
    assert_int_equal(slow_step(SLOW_NS / 4), GF_ERR_TIMEOUT); /* the deadline is real, too */
}
