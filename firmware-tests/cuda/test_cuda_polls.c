/* When work of the library is queued, by a clock: on a device everything moves in the calls of a
 * step alone. ResNet-50's tensors, each with a share of its elements, rates in proportion, on the
 * CUDA library without a GPU. And how a trainer that keeps its gradients elsewhere, or launches a
 * graph, tells that they are computed.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "lib/context.h"
#include "firmware-tests/cuda/cuda_world.h"

#define TENSORS 161u
#define SCALE 128u
#define RANKS 2u
#define BACKWARD_NS UINT64_C(40000000)
#define AHEAD 4u                /* the CPU queues in a fourth of the time */
#define TICK_NS UINT64_C(20000) /* between two polls */
#define LIMIT_NS UINT64_C(1000000000)

static struct cuda_world *const both = &cuda_world;

/* ---- the model ---- */

static struct gf_tensor resnet[TENSORS];
static uint32_t resnet_count;

/* They are told in the order of the forward pass, and lie in that of backward. */
static void tensor_add(uint64_t elem_count)
{
    assert_true(resnet_count < TENSORS);
    resnet[TENSORS - 1 - resnet_count++] =
        (struct gf_tensor){.name = "t", .elem_count = (elem_count + SCALE - 1) / SCALE};
}

static void layer_add(uint64_t in, uint64_t out, uint64_t window)
{
    tensor_add(in * out * window);
    tensor_add(out);
    tensor_add(out);
}

static void resnet_make(void)
{
    static const uint32_t blocks[] = {3, 4, 6, 3};
    uint64_t in = 64;
    resnet_count = 0;
    layer_add(3, 64, 49);
    for (uint32_t stage = 0; stage < LENGTH(blocks); stage++) {
        uint64_t width = UINT64_C(64) << stage;
        for (uint32_t block = 0; block < blocks[stage]; block++, in = 4 * width) {
            layer_add(in, width, 1);
            layer_add(width, width, 9);
            layer_add(width, 4 * width, 1);
            if (block == 0) layer_add(in, 4 * width, 1);
        }
    }
    tensor_add(2048 * 1000);
    tensor_add(1000);
    assert_int_equal(resnet_count, TENSORS);
}

/* ---- a step, by the clock ---- */

typedef enum way { ALONE, AHEAD_READY, AHEAD_EVENT, BLOCKED, GRAPH } way;

struct run {
    way way;
    uint64_t begin_ns;
    uint64_t streams[RANKS];
    uint64_t events[RANKS][TENSORS];
    uint32_t next[RANKS];
    bool done[RANKS];
};

static uint64_t now_ns(void *arg)
{
    const struct world *w = arg;
    return gf_sim_now_ns(w->sim);
}

static void advance(void *arg, uint64_t now_ns)
{
    const struct world *w = arg;
    gf_sim_advance_to(w->sim, now_ns);
}

/* queues: GF_FAKE_CONNECTIONS; blocking: CUDA_LAUNCH_BLOCKING. Both empty: as they are by
 * themselves. */
static void open_nodes(uint32_t ranks_per_node, const char *queues, const char *blocking)
{
    assert_int_equal(setenv("GF_FAKE_CONNECTIONS", queues, 1), 0);
    assert_int_equal(setenv("CUDA_LAUNCH_BLOCKING", blocking, 1), 0);
    struct world_setup setup = {.world = RANKS, .tensors = resnet, .tensor_count = TENSORS};
    resnet_make();
    cuda_world_begin(2, NULL);
    setup.sim = (struct gf_sim_setup){.seed = 1,
                                      .latency_ns = 5000,
                                      .node_latency_ns = 500,
                                      .bytes_per_ns = 12.5 / SCALE,
                                      .ranks_per_node = ranks_per_node};
    setup.config.exchange.fuse_bytes = (UINT64_C(4) << 20) / SCALE;
    setup.config.device.engine_bytes = (UINT64_C(256) << 10) / SCALE;
    setup = cuda_world_setup(&setup);
    setup.device = NULL;
    cuda_world_open_alone(&setup);
    const struct fake_cuda_clock clock = {.now_ns = now_ns,
                                          .advance = advance,
                                          .arg = &both->cuda,
                                          .work_ns = 4000,
                                          .kernel_bytes_per_ns = 1000.0 / SCALE,
                                          .copy_bytes_per_ns = 25.0 / SCALE};
    both->fixture.fake->clock(&clock);
}

static uint64_t longest_ns; /* of the calls of the library */

static gf_status timed(struct run *run, uint32_t rank, uint32_t tensor)
{
    gf_context *gf = both->cuda.ranks[rank].gf;
    if (tensor == TENSORS) return gf_step_poll(gf);
    if (run->way == AHEAD_READY) return gf_tensor_ready(gf, tensor, run->streams[rank]);
    return gf_tensor_ready_event(gf, tensor, run->events[rank][tensor]);
}

/* TENSORS: a poll. */
static gf_status declare(struct run *run, uint32_t rank, uint32_t tensor)
{
    uint64_t begin_ns = gf_sim_now_ns(both->cuda.sim);
    gf_status status = timed(run, rank, tensor);
    uint64_t took_ns = gf_sim_now_ns(both->cuda.sim) - begin_ns;
    if (took_ns > longest_ns) longest_ns = took_ns;
    return status;
}

/* Backward of one tensor, or of all at once. */
static void compute(const struct run *run, uint32_t rank, uint32_t tensor)
{
    both->fixture.fake->stream_busy(run->streams[rank], BACKWARD_NS / TENSORS);
    both->fixture.fake->event_record(run->events[rank][tensor], run->streams[rank]);
}

static void graph_launch(const struct run *run, uint32_t rank)
{
    for (uint32_t tensor = 0; tensor < TENSORS; tensor++) {
        both->fixture.fake->graph_busy(BACKWARD_NS / TENSORS);
        both->fixture.fake->graph_record(run->events[rank][tensor]);
    }
    both->fixture.fake->graph_launch(run->streams[rank]);
    both->fixture.fake->graph_forget();
}

static void all_declare(struct run *run, uint32_t rank)
{
    for (uint32_t tensor = 0; tensor < TENSORS; tensor++)
        assert_int_equal(declare(run, rank, tensor), GF_OK);
    run->next[rank] = TENSORS;
}

/* What the trainer's thread does next. */
static void trainer_turn(struct run *run, uint32_t rank, uint64_t since_ns)
{
    uint32_t *next = &run->next[rank];
    switch (run->way) {
    case AHEAD_READY:
    case AHEAD_EVENT:
        for (; (*next < TENSORS) && (since_ns >= *next * (BACKWARD_NS / TENSORS) / AHEAD);
             ++*next) {
            compute(run, rank, *next);
            assert_int_equal(declare(run, rank, *next), GF_OK);
        }
        break;
    case BLOCKED:
        for (uint32_t i = 0; (i < TENSORS) && (since_ns == 0); i++) compute(run, rank, i);
        if (since_ns >= BACKWARD_NS) all_declare(run, rank);
        break;
    case GRAPH: graph_launch(run, rank); /* fall through */
    case ALONE: all_declare(run, rank); break;
    }
}

static bool step_turn(struct run *run, uint64_t since_ns)
{
    bool all = true;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (run->next[rank] < TENSORS)
            trainer_turn(run, rank, since_ns);
        else if (!run->done[rank]) {
            gf_status status = declare(run, rank, TENSORS);
            assert_true(status >= 0);
            run->done[rank] = status == GF_OK;
        }
        all = all && run->done[rank];
    }
    return all;
}

/* From its begin to its end on both ranks. */
static uint64_t step_ns(way way)
{
    struct run run = {.way = way};
    struct world *w = &both->cuda;
    const struct fake_cuda_api *fake = both->fixture.fake;
    uint64_t since_ns = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        run.streams[rank] = fake->stream_create();
        for (uint32_t i = 0; i < TENSORS; i++) run.events[rank][i] = fake->event_create();
        assert_int_equal(gf_step_begin(w->ranks[rank].gf), GF_OK);
    }
    uint64_t begin_ns = gf_sim_now_ns(w->sim);
    while (!step_turn(&run, since_ns)) {
        gf_sim_advance_to(w->sim, gf_sim_now_ns(w->sim) + TICK_NS);
        since_ns = gf_sim_now_ns(w->sim) - begin_ns;
        assert_true(since_ns < LIMIT_NS);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (uint32_t i = 0; i < TENSORS; i++) fake->event_destroy(run.events[rank][i]);
        fake->stream_destroy(run.streams[rank]);
    }
    return since_ns;
}

/* Of what the exchange takes alone, which part of it stands behind backward, in percent. */
static double exposed(way way, uint64_t alone_ns)
{
    uint64_t took_ns = step_ns(way);
    assert_true(took_ns >= BACKWARD_NS);
    return 100.0 * (double)(took_ns - BACKWARD_NS) / (double)alone_ns;
}

static void hides(uint32_t ranks_per_node, gf_path path)
{
    open_nodes(ranks_per_node, "", "");
    assert_int_equal(world_stats(&both->cuda, 0).path, path);
    uint64_t alone_ns = step_ns(ALONE);
    double ready = exposed(AHEAD_READY, alone_ns);
    double event = exposed(AHEAD_EVENT, alone_ns);
    double blocked = exposed(BLOCKED, alone_ns);
    double graph = exposed(GRAPH, alone_ns);
    print_message("  alone %.1f ms; exposed: CPU ahead %.1f %%, by events %.1f %%, CPU blocked "
                  "%.1f %%, one graph "
                  "launch %.1f %%\n",
                  (double)alone_ns * 1e-6, ready, event, blocked, graph);
    assert_true(alone_ns < BACKWARD_NS);
    assert_true(ready <= 10.0);
    assert_true(event <= 10.0);
    assert_true(graph <= 10.0);
    assert_true(blocked >= 95.0);
    both->fixture.fake->clock(NULL);
    cuda_world_close_alone();
}

TEST(an_exchange_between_devices_is_hidden_unless_the_cpu_is_blocked)
{
    hides(RANKS, GF_PATH_PEERS);
}

TEST(an_exchange_between_nodes_is_hidden_unless_the_cpu_is_blocked)
{
    hides(0, GF_PATH_STAGED);
}

/* With one hardware work queue the library's kernels start behind all that the trainer has queued:
 * the exchange ends all the same. */
TEST(in_one_work_queue_an_exchange_stands_behind_what_the_trainer_has_queued)
{
    open_nodes(RANKS, "1", "");
    uint64_t alone_ns = step_ns(ALONE);
    uint64_t took_ns = step_ns(AHEAD_EVENT);
    print_message("  alone %.1f ms, behind backward %.1f ms\n", (double)alone_ns * 1e-6,
                  (double)(took_ns - BACKWARD_NS) * 1e-6);
    assert_true(took_ns <= 2 * BACKWARD_NS + 2 * alone_ns);
    both->fixture.fake->clock(NULL);
    cuda_world_close_alone();
}

/* A call waits for work of its own device alone, and so the control channel hears of this rank. The
 * default of rendezvous.keepalive is 5 s. */
TEST(no_call_takes_as_long_as_a_keepalive_where_launches_block)
{
    static const char *const queues[] = {"", "1", "8"};
    for (size_t i = 0; i < LENGTH(queues); i++) {
        longest_ns = 0;
        open_nodes(RANKS, queues[i], "1");
        (void)step_ns(AHEAD_READY);
        print_message("  the longest call: %.3f ms\n", (double)longest_ns * 1e-6);
        assert_true(longest_ns > 0);
        assert_true(longest_ns < UINT64_C(5000000000) / 100);
        both->fixture.fake->clock(NULL);
        cuda_world_close_alone();
    }
}
