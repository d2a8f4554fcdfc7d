/* Opening the CUDA driver: what is held and given back, and what is said where it cannot open.
 * suite: slow
 * link: wrap dlclose */
#include "firmware-tests/support/suite.h"
#include "gradientflow.h"
#include "firmware-tests/cuda/cuda_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

static struct cuda_fixture f;

static void refused(gf_status expected, const char *first, const char *second)
{
    gf_status status = cuda_fixture_open(&f);
    assert_int_equal(status, expected);
    assert_int_equal(f.fault.code, expected);
    if ((strstr(f.fault.text, first) == NULL) || (strstr(f.fault.text, second) == NULL))
        fail_msg("\"%s\" says neither of \"%s\", \"%s\"", f.fault.text, first, second);
    cuda_fixture_clean(&f);
}

TEST(what_is_taken_is_given_back)
{
    cuda_fixture_init(&f, NULL, NULL);
    assert_int_equal(cuda_fixture_open(&f), GF_OK);
    const struct fake_cuda_live live = f.fake->live();
    assert_int_equal(live.contexts, 1);
    assert_int_equal(live.allocations, 1);
    assert_int_equal(live.streams, GF_STREAM_COUNT);
    assert_int_equal(live.events, 4 + 1);
    assert_int_equal(live.pushed, 0);
    assert_int_equal(f.gpu->multiprocessors, 2);
    assert_true(f.gpu->arena != 0);
    assert_true(f.gpu->streams[GF_STREAM_MAIN] != 0);
    assert_false(gf_gpu_cuda.is_host);
    cuda_fixture_close(&f);
    cuda_fixture_clean(&f);
    assert_string_equal(f.log, "");
}

TEST(memory_that_is_registered_already_is_said_to_be)
{
    static _Alignas(4096) uint64_t words[512];
    cuda_fixture_init(&f, NULL, NULL);
    cuda_fixture_begin(&f, words, sizeof words);
    assert_int_equal(gf_gpu_cuda.host_register(f.gpu, &words[8], 64), GF_ERR_STATE);
    assert_int_equal(gf_gpu_cuda.host_unregister(f.gpu, words), GF_OK);
    assert_int_equal(gf_gpu_cuda.host_register(f.gpu, &words[8], 64), GF_OK);
    /* or a part of it */
    assert_int_equal(gf_gpu_cuda.host_register(f.gpu, words, sizeof words), GF_ERR_STATE);
    cuda_fixture_end(&f, &words[8]);
}

/* In a sandbox: what is copied passes through memory that the CUDA driver allocates, which is said
 * once. More copies at once than there are places for; two streams; the same range again. */
TEST(memory_that_cannot_be_registered_is_staged)
{
    enum { WORDS = 4096, PARTS = 128, PART = WORDS / PARTS };
    static _Alignas(4096) uint64_t words[WORDS];
    for (uint32_t seed = 0; seed < 8; seed++) {
        struct gf_queue queues[2];
        char text[32];
        (void)snprintf(text, sizeof text, "GF_FAKE_CUDA_SEED=%u", seed);
        cuda_fixture_init(&f, "GF_FAKE_CUDA_NO_REGISTER=1000", text);
        assert_int_equal(cuda_fixture_open(&f), GF_OK);
        const uint32_t registered = f.fake->live().registrations;
        assert_int_equal(gf_gpu_cuda.host_register(f.gpu, words, sizeof words), GF_OK);
        assert_non_null(strstr(f.log, "cuMemHostRegister failed: "));
        assert_non_null(strstr(f.log, "pass through 32768 bytes that the CUDA driver allocates"));
        for (uint32_t q = 0; q < 2; q++)
            queues[q] = (struct gf_queue){.gpu = f.gpu, .stream = f.gpu->streams[q]};
        for (uint32_t i = 0; i < WORDS; i++) words[i] = i * UINT64_C(0x9e3779b97f4a7c15) + seed;
        for (uint32_t p = 0; p < PARTS; p++)
            assert_int_equal(gf_gpu_cuda.copy(&queues[p % 2], f.gpu->arena + p * PART * 8,
                                              (gf_mem)(uintptr_t)&words[p * PART], PART * 8),
                             GF_OK);
        for (uint32_t q = 0; q < 2; q++)
            while (gf_gpu_cuda.finished(&queues[q]) == GF_AGAIN) {
            }
        memset(words, 0, sizeof words);
        for (uint32_t p = 0; p < PARTS; p++)
            assert_int_equal(gf_gpu_cuda.copy(&queues[p % 2], (gf_mem)(uintptr_t)&words[p * PART],
                                              f.gpu->arena + p * PART * 8, PART * 8),
                             GF_OK);
        assert_int_equal(gf_gpu_cuda.event_record(&queues[1], 0), GF_OK);
        while (gf_gpu_cuda.event_query(f.gpu, 0) == GF_AGAIN) {
        }
        for (uint32_t i = 0; i < WORDS; i++)
            if (i / PART % 2 == 1)
                assert_int_equal(words[i], i * UINT64_C(0x9e3779b97f4a7c15) + seed);
        while (gf_gpu_cuda.finished(&queues[0]) == GF_AGAIN) {
        }
        for (uint32_t i = 0; i < WORDS; i++)
            assert_int_equal(words[i], i * UINT64_C(0x9e3779b97f4a7c15) + seed);
        assert_int_equal(gf_gpu_cuda.host_unregister(f.gpu, words), GF_OK);
        assert_int_equal(f.fake->live().registrations, registered);
        /* said once */
        const size_t said = strlen(f.log);
        assert_int_equal(gf_gpu_cuda.host_register(f.gpu, words, sizeof words), GF_OK);
        assert_int_equal(strlen(f.log), said);
        assert_int_equal(gf_gpu_cuda.host_unregister(f.gpu, words), GF_OK);
        cuda_fixture_close(&f);
        cuda_fixture_clean(&f);
    }
}

/* Part of what a copy reads is still on its way from the device, and the rest is the program's. */
TEST(a_staged_copy_takes_what_is_on_its_way_and_what_is_not)
{
    enum { WORDS = 4096, PART = WORDS / 4 };
    static _Alignas(4096) uint64_t words[WORDS];
    const gf_mem host = (gf_mem)(uintptr_t)words;
    for (uint32_t seed = 0; seed < 8; seed++) {
        char text[32];
        (void)snprintf(text, sizeof text, "GF_FAKE_CUDA_SEED=%u", seed);
        cuda_fixture_init(&f, "GF_FAKE_CUDA_NO_REGISTER=1000", text);
        assert_int_equal(cuda_fixture_open(&f), GF_OK);
        assert_int_equal(gf_gpu_cuda.host_register(f.gpu, words, sizeof words), GF_OK);
        const gf_mem device = f.gpu->arena;
        for (uint32_t i = 0; i < WORDS; i++) words[i] = i;
        assert_int_equal(gf_gpu_cuda.copy(&f.queue, device, host, sizeof words), GF_OK);
        while (gf_gpu_cuda.finished(&f.queue) == GF_AGAIN) {
        }
        for (uint32_t i = 0; i < WORDS; i++) words[i] = i + WORDS;
        assert_int_equal(gf_gpu_cuda.copy(&f.queue, host + PART * 8, device + PART * 8, PART * 8),
                         GF_OK);
        assert_int_equal(gf_gpu_cuda.copy(&f.queue, device + sizeof words, host, sizeof words),
                         GF_OK);
        while (gf_gpu_cuda.finished(&f.queue) == GF_AGAIN) {
        }
        memset(words, 0, sizeof words);
        assert_int_equal(gf_gpu_cuda.copy(&f.queue, host, device + sizeof words, sizeof words),
                         GF_OK);
        while (gf_gpu_cuda.finished(&f.queue) == GF_AGAIN) {
        }
        for (uint32_t i = 0; i < WORDS; i++)
            assert_int_equal(words[i], i + ((i / PART == 1) ? 0 : WORDS));
        assert_int_equal(gf_gpu_cuda.host_unregister(f.gpu, words), GF_OK);
        cuda_fixture_close(&f);
        cuda_fixture_clean(&f);
    }
}

TEST(nothing_is_taken_without_device_bytes)
{
    cuda_fixture_init(&f, NULL, NULL);
    f.setup.device_bytes = 0;
    assert_int_equal(cuda_fixture_open(&f), GF_OK);
    assert_int_equal(f.fake->live().allocations, 0);
    assert_true(f.gpu->arena == 0);
    cuda_fixture_close(&f);
    cuda_fixture_clean(&f);
}

TEST(a_missing_call_is_named)
{
    cuda_fixture_init(&f, NULL, NULL);
    for (uint32_t i = 0; f.fake->call_name(i) != NULL; i++) {
        char without[96];
        char text[96];
        (void)snprintf(without, sizeof without, "GF_FAKE_CUDA_WITHOUT=%s", f.fake->call_name(i));
        (void)snprintf(text, sizeof text, "has no %s:", f.fake->call_name(i));
        cuda_fixture_init(&f, without, NULL);
        /* not of all drivers: test_cuda_appliance */
        if (strcmp(f.fake->call_name(i), "cuCtxRecordEvent") == 0) continue;
        char from[100]; /* of a long path its beginning must be enough */
        (void)snprintf(from, sizeof from, "%.80s", f.library);
        refused(GF_ERR_DEVICE, from, text);
    }
}

TEST(a_rank_takes_the_device_of_its_place_unless_one_is_named)
{
    for (uint32_t local = 0; local < 2 * FAKE_CUDA_DEVICES + 1; local++) {
        for (uint32_t ordinal = 0; ordinal <= FAKE_CUDA_DEVICES; ordinal++) {
            uint32_t expected = (ordinal > 0) ? ordinal - 1 : local % FAKE_CUDA_DEVICES;
            char name[16];
            cuda_fixture_init(&f, NULL, NULL);
            f.setup.local = local;
            f.setup.ordinal = ordinal;
            assert_int_equal(cuda_fixture_open(&f), GF_OK);
            (void)snprintf(name, sizeof name, "Fake %u", expected);
            assert_string_equal(f.gpu->name, name);
            assert_int_equal(f.gpu->uuid[0], 0xfa);
            assert_int_equal(f.gpu->uuid[15], expected);
            cuda_fixture_close(&f);
            cuda_fixture_clean(&f);
        }
    }
}

static char fifo_path[64];
/* What is wrong with the machine, the driver or what the driver is given: what is said, in two
 * parts. */
static void absent(void)
{
    f.setup.library = "/nowhere/libcuda.so.1";
}
static void another(void)
{
    f.setup.library = "libm.so.6";
}
/* Without another end it would be waited for. */
static void fifo(void)
{
    (void)snprintf(fifo_path, sizeof fifo_path, "/tmp/test_cuda_open.%d", (int)getpid());
    assert_int_equal(mkfifo(fifo_path, 0600), 0);
    f.setup.library = fifo_path;
}
static void folder(void)
{
    f.setup.library = "/tmp/";
}
static void ordinal_behind(void)
{
    f.setup.ordinal = GF_ORDINAL(FAKE_CUDA_DEVICES);
}
static void ordinal_largest(void)
{
    f.setup.ordinal = UINT32_MAX;
}
static void no_image(void)
{
    static const uint32_t wrong = 0x464c457f;
    f.setup.kernels.image = &wrong;
}
static void no_kernel(void)
{
    static const char *const kernels[] = {"no_such_kernel"};
    cuda_fixture_kernels(&f, kernels, 1);
}

TEST(what_cannot_open_says_why)
{
    static const struct {
        const char *environment;
        void (*change)(void);
        gf_status status;
        const char *first, *second;
    } rows[] = {
        {NULL, absent, GF_ERR_DEVICE, "there is no CUDA driver", "/nowhere/libcuda.so.1"},
        {NULL, fifo, GF_ERR_DEVICE, "device.library /tmp/test_cuda_open", "is not a regular file"},
        {NULL, folder, GF_ERR_DEVICE, "device.library /tmp/", "is not a regular file"},
        {NULL, another, GF_ERR_DEVICE, "\"libm.so.6\"", "cuGetProcAddress_v2"},
        {"GF_FAKE_CUDA_VERSION=11040", NULL, GF_ERR_DEVICE, "has no cuInit",
         "older than CUDA 12.0"},
        {NULL, ordinal_behind, GF_ERR_CONFIG, "device.ordinal 2", "2 GPUs"},
        {NULL, ordinal_largest, GF_ERR_CONFIG, "device.ordinal 4294967294", "2 GPUs"},
        {"GF_FAKE_CUDA_NO_HOST_POINTER=1", NULL, GF_ERR_DEVICE, "registered host memory",
         "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM"},
        {"GF_FAKE_CUDA_FAIL=cuInit:1:100", NULL, GF_ERR_DEVICE, "failed", "CUDA_VISIBLE_DEVICES"},
        {"GF_FAKE_CUDA_FAIL=cuInit:1:802", NULL, GF_ERR_DEVICE, "failed",
         "start nvidia-fabricmanager"},
        {"GF_FAKE_CUDA_FAIL=cuInit:1:803", NULL, GF_ERR_DEVICE, "failed", "reboot"},
        {"GF_FAKE_CUDA_FAIL=cuDevicePrimaryCtxRetain:1:46", NULL, GF_ERR_DEVICE, "failed",
         "exclusive-process mode"},
        {"GF_FAKE_CUDA_MEMORY=524288", NULL, GF_ERR_DEVICE,
         "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (2): asked for 1048576 bytes",
         "524288 of its 524288 bytes are free"},
        {NULL, no_image, GF_ERR_DEVICE, "cuModuleLoadData", "CUDA_ERROR_INVALID_IMAGE (200)"},
        {NULL, no_kernel, GF_ERR_DEVICE, "no kernel \"no_such_kernel\"",
         "CUDA_ERROR_NOT_FOUND (500)"},
    };
    for (size_t r = 0; r < LENGTH(rows); r++) {
        cuda_fixture_init(&f, rows[r].environment, NULL);
        if (rows[r].change != NULL) rows[r].change();
        refused(rows[r].status, rows[r].first, rows[r].second);
        if (rows[r].change == fifo) (void)unlink(fifo_path);
        if (rows[r].change == absent) assert_string_equal(f.fault.foreign_call, "dlopen");
        if (strstr(rows[r].first, "OUT_OF_MEMORY") != NULL)
            assert_int_equal(f.fault.foreign_code, 2);
    }
}

int __real_dlclose(void *handle);
static uint32_t closed;
int __wrap_dlclose(void *handle)
{
    closed++;
    return __real_dlclose(handle);
}

TEST(a_driver_library_that_has_begun_is_not_closed)
{
    cuda_fixture_init(&f, NULL, NULL);
    closed = 0;
    assert_int_equal(cuda_fixture_open(&f), GF_OK);
    cuda_fixture_close(&f);
    assert_int_equal(closed, 0);
    cuda_fixture_clean(&f);
}

/* Each GPU's own kernels are named, and the driver that they want. */
TEST(an_image_that_the_driver_is_too_old_for)
{
    static const struct {
        const char *sm, *driver;
        uint32_t image_cuda[2];
        const char *has, *take;
    } cases[] = {
        {"90",
         "12040",
         {13010, 0},
         "driver of CUDA 12.4; sm_90 has kernels of nvcc 13.1, sm_80 and 90 of 13.1",
         "CUDA 13.0, or"},
        {"89",
         "12000",
         {11080, 13010},
         "sm_89 has kernels of nvcc 11.8, sm_80 and 90 of 11.8",
         "of CUDA 11.0, or"},
        {"100",
         "12080",
         {11080, 13010},
         "sm_100 has kernels of nvcc 13.1, sm_80 and 90 of 11.8",
         "CUDA 13.0, or"},
        {"120",
         "12080",
         {12090, 13010},
         "sm_120 has kernels of nvcc 12.9, sm_80 and 90 of 12.9",
         "take a driver of CUDA 12.9, or an older nvcc"},
        {"75", "12080", {11080, 13010}, "the GPU is sm_75", "for sm_80 and newer"},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char version[32];
        (void)snprintf(version, sizeof version, "GF_FAKE_CUDA_VERSION=%s", cases[i].driver);
        cuda_fixture_init(&f, "GF_FAKE_CUDA_FAIL=cuModuleLoadData:1:222", version);
        assert_int_equal(setenv("GF_FAKE_CUDA_SM", cases[i].sm, 1), 0);
        cuda_fixture_kernels(&f, NULL, 0);
        f.setup.kernels.image_cuda = cases[i].image_cuda;
        refused(GF_ERR_DEVICE, cases[i].has, cases[i].take);
        assert_int_equal(unsetenv("GF_FAKE_CUDA_SM"), 0);
    }
}
