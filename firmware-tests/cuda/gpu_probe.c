/* gpu-probe: how a card and its driver behave in what the library's design leans on, which no fake
 * can tell: which of its streams share a hardware work queue, what it takes from the CPU to a
 * stream and back, and between two processes, from which size on a copy engine is faster than a
 * kernel, and whether an event that a graph records is not ready as soon as the graph is launched.
 * Only what cannot be done is a failure; the figures are for a person. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drivers/base/clock.h"
#include "firmware-tests/cuda/gpu_program.h"
#include "ops/element/cuda/ops_cuda.h"

extern const struct gf_gpu_driver gf_gpu_cuda;

#define CONTEXTS 3u /* of the library, on one device, each with its streams */
#define TURNS 1000u
#define WORK_BYTES (UINT64_C(64) << 20) /* in one pass over them */
#define SMALL_ELEMS UINT64_C(256)
#define TRIES 8u /* a queue is shared if a small kernel ends last in each of them */
#define ENGINE_BYTES_MAX (UINT64_C(16) << 20)
#define LOST_NS UINT64_C(10000000000) /* the other process is not heard of any more */

static uint64_t now_ns(void)
{
    return gf_clock_monotonic.now_ns(NULL);
}

static void pass(struct gf_queue *queue, gf_mem at, uint64_t elems)
{
    gpu_must(
        gf_element_ops_cuda.cast(queue, at, GF_TYPE_F32, at, GF_TYPE_F32, elems, 1.0f, 0, NULL));
}

static bool reached(struct gf_gpu *gpu, uint32_t event)
{
    gf_status status = gf_gpu_cuda.event_query(gpu, event);
    if (status != GF_AGAIN) gpu_must(status);
    return status == GF_OK;
}

/* ---- which streams share a queue ---- */

static uint32_t context_count(void)
{
    return gpu_program.is_fake ? 1 : CONTEXTS;
}

static struct gf_gpu *contexts[CONTEXTS];
static void *states[CONTEXTS];

static void contexts_open(void)
{
    struct gf_gpu_setup setup = {.library =
                                     (gpu_program.library != NULL) ? gpu_program.library : "",
                                 .events_max = 2,
                                 .kernels = gf_gpu_cuda_kernels,
                                 .log = {gpu_log, NULL}};
    struct gf_fault fault = {.peer = GF_RANK_NONE};
    contexts[0] = gpu_program.gpu;
    for (uint32_t i = 1; i < context_count(); i++) {
        states[i] = calloc(1, gf_gpu_cuda.state_bytes(&setup));
        if (states[i] == NULL) exit(1);
        if (gf_gpu_cuda.open(&setup, states[i], &contexts[i], &fault) == GF_OK) continue;
        fprintf(stderr, "gpu-probe: context %u of %u: %s\n", i, context_count(), fault.text);
        exit(1);
    }
}

static void contexts_close(void)
{
    for (uint32_t i = 1; i < context_count(); i++) {
        gf_gpu_cuda.close(contexts[i]);
        free(states[i]);
    }
}

static struct gf_queue stream_at(uint32_t number)
{
    struct gf_gpu *gpu = contexts[number / GF_STREAM_COUNT];
    return (struct gf_queue){.gpu = gpu, .stream = gpu->streams[number % GF_STREAM_COUNT]};
}

/* A small kernel behind work of milliseconds in another stream: it ends after all of that where a
 * kernel that waits for the one before it stands in front of it, in one queue, and by chance. */
static bool ends_after(uint32_t busy, uint32_t other)
{
    struct gf_queue long_queue = stream_at(busy);
    struct gf_queue small_queue = stream_at(other);
    const uint64_t elems = gpu_program.is_fake ? 512 : WORK_BYTES / sizeof(float);
    const uint32_t passes = gpu_program.is_fake ? 2 : 64;
    const gf_mem at = gpu_program.gpu->arena;
    for (uint32_t i = 0; i < passes; i++) pass(&long_queue, at, elems);
    gpu_must(gf_gpu_cuda.event_record(&long_queue, 0));
    pass(&small_queue, at + WORK_BYTES, SMALL_ELEMS);
    gpu_must(gf_gpu_cuda.event_record(&small_queue, 1));
    while (!reached(small_queue.gpu, 1)) {
    }
    bool after = reached(long_queue.gpu, 0);
    while (!reached(long_queue.gpu, 0)) {
    }
    return after;
}

static bool shared(uint32_t busy, uint32_t other)
{
    for (uint32_t try = 0; try < TRIES; try++)
        if (!ends_after(busy, other)) return false;
    return true;
}

static void queues_find(void)
{
    const uint32_t streams = context_count() * GF_STREAM_COUNT;
    uint32_t queue_of[CONTEXTS * GF_STREAM_COUNT];
    uint32_t queues = 0;
    contexts_open();
    for (uint32_t i = 0; i < streams; i++) {
        queue_of[i] = queues;
        for (uint32_t j = 0; (j < i) && (queue_of[i] == queues); j++)
            if (shared(j, i)) queue_of[i] = queue_of[j];
        queues += queue_of[i] == queues;
    }
    printf("  %u streams of %u contexts of the library are in %u hardware work queues:", streams,
           context_count(), queues);
    for (uint32_t i = 0; i < streams; i++)
        printf("%s%u", (i % GF_STREAM_COUNT == 0) ? "  " : " ", queue_of[i]);
    printf("%s\n", gpu_program.is_fake ? " (no card: its turns are drawn)" : "");
    gpu_json_row("\"op\":\"queues\",\"streams\":%u,\"queues\":%u", streams, queues);
    contexts_close();
}

/* ---- there and back ---- */

static uint32_t turns(void)
{
    return gpu_program.is_fake ? 2 : TURNS;
}

static void there_and_back(void)
{
    struct gf_queue *queue = &gpu_program.queue;
    pass(queue, gpu_program.gpu->arena, SMALL_ELEMS);
    gpu_must(gf_gpu_cuda.event_record(queue, 0));
    while (!reached(gpu_program.gpu, 0)) {
    }
}

static void times_print(const char *what, double *us, uint32_t count)
{
    qsort(us, count, sizeof *us, gpu_compare);
    printf("  %s: median %.2f us, one in ten from %.2f us on\n", what, us[count / 2],
           us[count * 9 / 10]);
    gpu_json_row("\"op\":\"%s\",\"us\":%.3f,\"us_90\":%.3f", what, us[count / 2],
                 us[count * 9 / 10]);
}

static void stream_time(void)
{
    static double us[TURNS];
    for (uint32_t i = 0; i < turns(); i++) {
        uint64_t begin_ns = now_ns();
        there_and_back();
        us[i] = (double)(now_ns() - begin_ns) * 1e-3;
    }
    times_print("CPU to a kernel and back", us, turns());
}

/* Odd: it is the second process's turn. */
static _Atomic uint32_t *turn;

static void turn_await(uint32_t number, const char *of)
{
    uint64_t begin_ns = now_ns();
    while (atomic_load_explicit(turn, memory_order_acquire) != number)
        if (now_ns() - begin_ns > LOST_NS) {
            fprintf(stderr, "gpu-probe: %s was not heard of in turn %u\n", of, number);
            exit(1);
        }
}

static void turn_give(uint32_t number)
{
    atomic_store_explicit(turn, number, memory_order_release);
}

static void second_process(void)
{
    gpu_open(WORK_BYTES, 4096);
    turn_give(1);
    for (uint32_t i = 0; i <= turns(); i++) {
        turn_await(2 * i + 2, "the first process");
        there_and_back();
        turn_give(2 * i + 3);
    }
    gpu_close();
}

static void process_time(void)
{
    static double us[TURNS];
    turn_await(1, "the second process");
    for (uint32_t i = 0; i <= turns(); i++) {
        uint64_t begin_ns = now_ns();
        there_and_back();
        turn_give(2 * i + 2);
        turn_await(2 * i + 3, "the second process");
        if (i > 0) us[i - 1] = (double)(now_ns() - begin_ns) * 1e-3; /* the first one warms up */
    }
    times_print("a kernel here, a flag, a kernel of another process, a flag", us, turns());
}

/* ---- copy engine and kernel ---- */

static double copy_us(uint64_t bytes, bool by_engine)
{
    const uint32_t repeats = gpu_program.is_fake ? 1 : 20;
    const gf_mem src = gpu_program.gpu->arena;
    const gf_mem dst = src + ENGINE_BYTES_MAX;
    struct gf_queue few = gpu_program.queue;
    few.blocks_max = 20; /* device.multiprocessors */
    few.block_threads = GF_GPU_CHANNEL_THREADS;
    gpu_drain();
    gpu_timer_begin();
    for (uint32_t i = 0; i < repeats; i++)
        gpu_must(by_engine ? gf_gpu_cuda.copy(&gpu_program.queue, dst, src, bytes)
                           : gf_element_ops_cuda.copy_n(&few, &dst, &src, &bytes, 1));
    return gpu_timer_end() / repeats;
}

static void engine_times(void)
{
    uint64_t from = 0;
    gpu_timer_open();
    const uint64_t most = gpu_program.is_fake ? UINT64_C(64) << 10 : ENGINE_BYTES_MAX;
    for (uint64_t bytes = UINT64_C(16) << 10; bytes <= most; bytes *= 4) {
        double engine = copy_us(bytes, true);
        double kernel = copy_us(bytes, false);
        printf("  %5llu KiB inside the device: copy engine %.2f us, kernel of 20 blocks %.2f us\n",
               (unsigned long long)(bytes >> 10), engine, kernel);
        gpu_json_row("\"op\":\"copy\",\"bytes\":%llu,\"engine_us\":%.2f,\"kernel_us\":%.2f",
                     (unsigned long long)bytes, engine, kernel);
        if ((from == 0) && (engine <= kernel)) from = bytes;
    }
    printf("  the engine is the faster one from %llu KiB on; device.engine_bytes is 256 KiB\n",
           (unsigned long long)(from >> 10));
    gpu_timer_close();
}

/* ---- a graph ---- */

/* As cuda.h of 12.0 has them. */
static struct {
    int (*begin)(void *stream, int mode);
    int (*record)(void *event, void *stream, unsigned flags);
    int (*end)(void *stream, void **graph_out);
    int (*instantiate)(void **exec_out, void *graph, unsigned long long flags);
    int (*launch)(void *exec, void *stream);
    int (*create)(void **event_out, unsigned flags);
    int (*query)(void *event);
} graph;

static bool graph_offered(void)
{
    return gpu_driver_call("cuStreamBeginCapture", &graph.begin) &&
           gpu_driver_call("cuEventRecordWithFlags", &graph.record) &&
           gpu_driver_call("cuStreamEndCapture", &graph.end) &&
           gpu_driver_call("cuGraphInstantiate", &graph.instantiate) &&
           gpu_driver_call("cuGraphLaunch", &graph.launch) &&
           gpu_driver_call("cuEventCreate", &graph.create) &&
           gpu_driver_call("cuEventQuery", &graph.query);
}

static void graph_must(int result, const char *call)
{
    if (result == 0) return;
    fprintf(stderr, "gpu-probe: %s fails with CUresult %d\n", call, result);
    exit(1);
}

/* Captured in the relaxed mode, in which other calls of this thread break nothing. */
#define CAPTURE_RELAXED 2
#define RECORD_EXTERNAL 1u
#define NOT_READY 600
static void graph_event(void)
{
    const uint64_t elems = WORK_BYTES / sizeof(float);
    void *stream = (void *)(uintptr_t)gpu_program.queue.stream;
    void *event;
    void *captured;
    void *exec;
    int found;
    if (!graph_offered()) {
        printf("  a graph's event: skipped, this driver does not offer graphs\n");
        return;
    }
    gpu_must(gf_gpu_cuda.enter(gpu_program.gpu));
    graph_must(graph.create(&event, 2), "cuEventCreate"); /* without times */
    graph_must(graph.begin(stream, CAPTURE_RELAXED), "cuStreamBeginCapture");
    for (uint32_t i = 0; i < 64; i++) pass(&gpu_program.queue, gpu_program.gpu->arena, elems);
    graph_must(graph.record(event, stream, RECORD_EXTERNAL), "cuEventRecordWithFlags");
    graph_must(graph.end(stream, &captured), "cuStreamEndCapture");
    graph_must(graph.instantiate(&exec, captured, 0), "cuGraphInstantiate");
    for (uint32_t launch = 0; launch < 2; launch++) {
        graph_must(graph.launch(exec, stream), "cuGraphLaunch");
        found = graph.query(event);
        gpu_drain();
    }
    graph_must(graph.query(event), "cuEventQuery behind a graph that has ended");
    gpu_must(gf_gpu_cuda.leave(gpu_program.gpu));
    printf("  an event that a graph records, right after the second launch: %s\n",
           (found == NOT_READY) ? "not ready"
           : (found == 0)       ? "READY, of the launch before"
                                : "an error");
    gpu_json_row("\"op\":\"graph\",\"query\":%d", found);
}

int gpu_probe(void)
{
    int status = 0;
    pid_t child;
    turn = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((turn == MAP_FAILED) || ((child = fork()) < 0)) {
        perror("gpu-probe");
        return 1;
    }
    if (child == 0) { /* before CUDA is begun, which no child may go on with */
        second_process();
        _exit(0);
    }
    gpu_stack_measure();
    gpu_open(WORK_BYTES + (UINT64_C(1) << 20), 4096);
    gpu_json_device();
    const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    printf("gpu-probe: %s, CUDA_DEVICE_MAX_CONNECTIONS %s%s\n", gpu_program.gpu->name,
           (connections != NULL) ? connections : "not set",
           gpu_program.is_fake ? "; NO GPU: these figures mean nothing" : "");
    process_time();
    if ((waitpid(child, &status, 0) != child) || (status != 0)) {
        fprintf(stderr, "gpu-probe: the second process ended with status %d\n", status);
        return 1;
    }
    stream_time();
    queues_find();
    engine_times();
    graph_event();
    gpu_close();
    gpu_json_status("passed");
    return 0;
}
