/* Work on the CUDA driver's queue: done late, in order, and behind or before that of a stream of
 * the appliance. Each row runs under many seeds.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/cuda_fixture.h"

#define SEEDS 40u
#define TURNS_MAX 100000u
#define WORDS 256u
#define BYTES (WORDS * sizeof(uint32_t))

static struct cuda_fixture f;
static const char *const kernel_names[] = {"test_fill", "test_double"};
enum { FILL, DOUBLE };
static _Alignas(4096) uint32_t pinned[4 * WORDS];

struct words {
    uint64_t at;
    uint32_t count, value;
};

static void fill_run(const void *args, uint32_t blocks, uint32_t threads)
{
    const struct words *words = args;
    uint32_t *at = (uint32_t *)(uintptr_t)words->at;
    assert_int_equal(blocks * threads, words->count);
    f.fake->touch(words->at, words->count * sizeof *at, true);
    for (uint32_t i = 0; i < words->count; i++) at[i] = words->value + i;
}

static void double_run(const void *args, uint32_t blocks, uint32_t threads)
{
    const struct words *words = args;
    uint32_t *at = (uint32_t *)(uintptr_t)words->at;
    f.fake->touch(words->at, words->count * sizeof *at, false);
    f.fake->touch(words->at, words->count * sizeof *at, true);
    for (uint32_t i = 0; i < words->count; i++) at[i] *= 2;
}

static void begin(uint32_t seed)
{
    char text[64];
    (void)snprintf(text, sizeof text, "GF_FAKE_CUDA_SEED=%u", seed);
    cuda_fixture_init(&f, text, NULL);
    f.fake->kernel_add(kernel_names[FILL], sizeof(struct words), fill_run);
    f.fake->kernel_add(kernel_names[DOUBLE], sizeof(struct words), double_run);
    cuda_fixture_kernels(&f, kernel_names, 2);
    cuda_fixture_begin(&f, pinned, sizeof pinned);
    for (uint32_t k = 0; k < 2; k++)
        assert_int_equal(f.gpu->blocks[k], FAKE_CUDA_BLOCKS * f.gpu->multiprocessors);
}

/* With trouble that was looked for. */
static void end_in(const char *trouble)
{
    assert_non_null(f.fake->trouble());
    assert_non_null(strstr(f.fake->trouble(), trouble));
    gf_gpu_cuda.host_unregister(f.gpu, pinned);
    cuda_fixture_close(&f);
}

static gf_mem word(uint32_t index)
{
    return (gf_mem)(uintptr_t)&pinned[index];
}

static gf_mem device(uint32_t index)
{
    return f.gpu->arena + index * sizeof(uint32_t);
}

static void launch(struct gf_queue *queue, uint32_t kernel, gf_mem at, uint32_t value)
{
    struct words words = {at, WORDS, value};
    void *args[] = {&words};
    assert_int_equal(gf_gpu_cuda.launch(queue, kernel, 1, WORDS, args), GF_OK);
    memset(&words, 0xcc, sizeof words); /* was read during the call */
}

static void drain(struct gf_queue *queue)
{
    assert_true(cuda_fixture_drains(queue));
}

static void counts_from(const uint32_t *words, uint32_t value)
{
    for (uint32_t i = 0; i < WORDS; i++) assert_int_equal(words[i], value + i);
}

TEST(copies_arrive_late_and_whole)
{
    uint32_t late = 0;
    uint32_t was_poisoned = 0;
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        begin(seed);
        for (uint32_t i = 0; i < WORDS; i++) pinned[i] = 7 + i;
        memset(&pinned[WORDS], 0, BYTES);
        assert_int_equal(gf_gpu_cuda.zero(&f.queue, device(0), BYTES), GF_OK);
        assert_int_equal(gf_gpu_cuda.copy(&f.queue, device(0), word(0), BYTES), GF_OK);
        assert_int_equal(gf_gpu_cuda.copy(&f.queue, device(WORDS), device(0), BYTES), GF_OK);
        launch(&f.queue, DOUBLE, device(WORDS), 0);
        assert_int_equal(gf_gpu_cuda.copy(&f.queue, word(WORDS), device(WORDS), BYTES), GF_OK);
        was_poisoned += pinned[WORDS] == FAKE_CUDA_POISON * 0x01010101u;
        late += gf_gpu_cuda.finished(&f.queue) == GF_AGAIN;
        drain(&f.queue);
        for (uint32_t i = 0; i < WORDS; i++) assert_int_equal(pinned[WORDS + i], 2 * (7 + i));
        cuda_fixture_end(&f, pinned);
    }
    assert_true(late >= SEEDS / 2);
    assert_true(was_poisoned > 0);
}

TEST(empty_copies_are_valid)
{
    begin(1);
    assert_int_equal(gf_gpu_cuda.copy(&f.queue, device(0), word(0), 0), GF_OK);
    assert_int_equal(gf_gpu_cuda.zero(&f.queue, device(0), 0), GF_OK);
    assert_int_equal(gf_gpu_cuda.copy(&f.queue, device(0), device(0), BYTES), GF_OK);
    assert_int_equal(gf_gpu_cuda.finished(&f.queue), GF_OK);
    cuda_fixture_end(&f, pinned);
}

TEST(a_copy_of_memory_that_is_nobodys_is_refused)
{
    static uint32_t stranger[WORDS];
    begin(1);
    assert_int_equal(gf_gpu_cuda.copy(&f.queue, device(0), (gf_mem)(uintptr_t)stranger, BYTES),
                     GF_ERR_DEVICE);
    assert_string_equal(f.gpu->fault.foreign_call, "cuMemcpyAsync");
    assert_non_null(strstr(f.gpu->fault.text, "CUDA_ERROR_INVALID_VALUE (1)"));
    end_in("not all of it is device or registered memory");
}

/* The appliance's backward pass fills a gradient on its stream; the library copies it out on its
 * own. */
static void produce(struct gf_queue *theirs)
{
    launch(theirs, FILL, device(0), 100);
    assert_int_equal(gf_gpu_cuda.stream_wait(theirs, f.queue.stream), GF_OK);
    assert_int_equal(gf_gpu_cuda.copy(&f.queue, word(0), device(0), BYTES), GF_OK);
    drain(&f.queue);
}

/* And the other way: the library copies weights in, and the appliance's forward pass reads them. */
static void consume(struct gf_queue *theirs)
{
    for (uint32_t i = 0; i < WORDS; i++) pinned[i] = 50 + i;
    assert_int_equal(gf_gpu_cuda.copy(&f.queue, device(0), word(0), BYTES), GF_OK);
    assert_int_equal(gf_gpu_cuda.stream_wait(&f.queue, theirs->stream), GF_OK);
    launch(theirs, DOUBLE, device(0), 0);
    f.fake->stream_run(theirs->stream);
    drain(&f.queue);
}

static void with_their_stream(uint32_t seed, void (*run)(struct gf_queue *theirs))
{
    bool is_default = seed % 4 == 0;
    begin(seed);
    uint64_t stream = is_default ? 0 : f.fake->stream_create();
    struct gf_queue theirs = {.gpu = f.gpu, .stream = stream};
    run(&theirs);
    f.fake->stream_run(stream);
    if (!is_default) f.fake->stream_destroy(stream);
}

TEST(the_queue_waits_for_their_stream)
{
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        with_their_stream(seed, produce);
        counts_from(pinned, 100);
        cuda_fixture_end(&f, pinned);
    }
}

TEST(their_stream_waits_for_the_queue)
{
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        with_their_stream(seed, consume);
        assert_int_equal(gf_gpu_cuda.copy(&f.queue, word(WORDS), device(0), BYTES), GF_OK);
        drain(&f.queue);
        for (uint32_t i = 0; i < WORDS; i++) assert_int_equal(pinned[WORDS + i], 2 * (50 + i));
        cuda_fixture_end(&f, pinned);
    }
}

/* Else the two above could not fail where nothing goes wrong by chance. */
TEST(a_wait_that_is_left_out_is_found)
{
    for (uint32_t seed = 0; seed < 8; seed++) {
        begin(seed);
        struct gf_queue theirs = {.gpu = f.gpu, .stream = f.fake->stream_create()};
        launch(&theirs, FILL, device(0), 100);
        assert_int_equal(gf_gpu_cuda.copy(&f.queue, word(0), device(0), BYTES), GF_OK);
        drain(&f.queue);
        f.fake->stream_run(theirs.stream);
        f.fake->stream_destroy(theirs.stream);
        end_in("nothing orders them");
    }
}

TEST(a_mark_is_reached_when_all_before_it_is_done)
{
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        begin(seed);
        for (uint32_t event = 0; event < 4; event++) {
            assert_int_equal(gf_gpu_cuda.event_query(f.gpu, event), GF_OK); /* nothing was marked */
            launch(&f.queue, FILL, device(event * WORDS), event * 1000);
            assert_int_equal(
                gf_gpu_cuda.copy(&f.queue, word(event * WORDS), device(event * WORDS), BYTES),
                GF_OK);
            assert_int_equal(gf_gpu_cuda.event_record(&f.queue, event), GF_OK);
        }
        uint32_t done = 0;
        for (uint32_t turn = 0; done < 4; turn++) {
            assert_true(turn < TURNS_MAX);
            gf_status status = gf_gpu_cuda.event_query(f.gpu, done);
            if (status == GF_AGAIN) continue;
            assert_int_equal(status, GF_OK);
            counts_from(&pinned[done * WORDS], done * 1000);
            done++;
        }
        /* Marked again it stands for what is queued now. */
        assert_int_equal(gf_gpu_cuda.copy(&f.queue, word(0), device(WORDS), BYTES), GF_OK);
        assert_int_equal(gf_gpu_cuda.event_record(&f.queue, 0), GF_OK);
        while (gf_gpu_cuda.event_query(f.gpu, 0) == GF_AGAIN) assert_true(done++ < TURNS_MAX);
        counts_from(pinned, 1000);
        cuda_fixture_end(&f, pinned);
    }
}

/* Closing and unregistering wait for work that is still queued: its memory may be gone a moment
 * later. */
TEST(nothing_is_left_behind_by_a_close_in_the_middle)
{
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        begin(seed);
        launch(&f.queue, FILL, device(0), 3);
        assert_int_equal(gf_gpu_cuda.copy(&f.queue, word(0), device(0), BYTES), GF_OK);
        cuda_fixture_end(&f, pinned);
        counts_from(pinned, 3);
        assert_string_equal(f.log, "");
    }
}

/* ---- hardware work queues ---- */

/* With this of the environment, whatever the suite was started with; then that again. */
static void with(const char *name, const char *value, void (*run)(void))
{
    char kept[16];
    const char *before = getenv(name);
    (void)snprintf(kept, sizeof kept, "%s", (before != NULL) ? before : "");
    assert_int_equal(setenv(name, value, 1), 0);
    run();
    assert_int_equal(setenv(name, kept, 1), 0);
}

static bool other_passes; /* what comes into the same queue behind a wait that stands */

/* A stream waits for one whose kernel runs on; another stream has nothing to do with them. */
static void wait_stands(void)
{
    for (uint32_t seed = 0; seed < 8; seed++) {
        begin(seed);
        struct gf_queue theirs = {.gpu = f.gpu, .stream = f.fake->stream_create()};
        struct gf_queue other = {.gpu = f.gpu, .stream = f.gpu->streams[GF_STREAM_IN]};
        f.fake->stream_hold(theirs.stream);
        assert_int_equal(gf_gpu_cuda.zero(&other, device(0), BYTES), GF_OK);
        assert_true(cuda_fixture_drains(&other)); /* beside a kernel that runs */
        assert_int_equal(gf_gpu_cuda.stream_wait(&theirs, f.queue.stream), GF_OK);
        assert_int_equal(gf_gpu_cuda.zero(&other, device(0), BYTES), GF_OK);
        assert_int_equal(cuda_fixture_drains(&other), other_passes);
        f.fake->release();
        drain(&other);
        drain(&f.queue);
        f.fake->stream_destroy(theirs.stream);
        cuda_fixture_end(&f, pinned);
    }
}

TEST(streams_in_one_work_queue_wait_with_what_came_before)
{
    other_passes = false;
    with("GF_FAKE_CONNECTIONS", "1", wait_stands);
    other_passes = true;
    with("GF_FAKE_CONNECTIONS", "", wait_stands);
}

static void launch_blocks(void)
{
    begin(1);
    f.fake->stream_hold(f.queue.stream);
    launch(&f.queue, FILL, device(0), 3);
    f.fake->release();
    drain(&f.queue);
    end_in("a blocking launch stands behind work that never ends");
    for (uint32_t seed = 0; seed < 8; seed++) {
        begin(seed);
        launch(&f.queue, FILL, device(0), 3);
        assert_int_equal(gf_gpu_cuda.event_record(&f.queue, 0), GF_OK);
        assert_int_equal(gf_gpu_cuda.event_query(f.gpu, 0), GF_OK); /* at the first look */
        cuda_fixture_end(&f, pinned);
    }
}

TEST(a_launch_that_blocks_has_ended)
{
    with("CUDA_LAUNCH_BLOCKING", "1", launch_blocks);
}
