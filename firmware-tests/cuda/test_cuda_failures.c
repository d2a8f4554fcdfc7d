/* Every call of the CUDA driver library fails once, at each time it is made: the error names it,
 * nothing is left, and what closing meets is said and does not stop it.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/cuda_fixture.h"

#define TIMES_MAX 2000u
#define TURNS_MAX 10000u
#define BYTES 4096u

static struct cuda_fixture f;
static const char *const kernel_names[] = {"test_nothing"};
static _Alignas(4096) char pinned[BYTES];

static void nothing_run(const void *args, uint32_t blocks, uint32_t threads)
{
}

static gf_status until(gf_status (*ask)(void))
{
    gf_status status;
    uint32_t turns = 0;
    while ((status = ask()) == GF_AGAIN) assert_true(++turns < TURNS_MAX);
    return status;
}

static gf_status ask_finished(void)
{
    return gf_gpu_cuda.finished(&f.queue);
}

static gf_status ask_reached(void)
{
    return gf_gpu_cuda.event_query(f.gpu, 1);
}

/* A little of everything. */
static gf_status work(uint64_t theirs)
{
    uint64_t argument = 0;
    void *args[] = {&argument};
    gf_mem device = f.gpu->arena;
    gf_mem host = (gf_mem)(uintptr_t)pinned;
    struct gf_queue appliance = {.gpu = f.gpu, .stream = theirs};
    gf_status status = gf_gpu_cuda.event_record(&appliance, 2);
    if (status >= 0) status = gf_gpu_cuda.stream_wait(&appliance, f.queue.stream);
    (void)gf_gpu_cuda.is_device(f.gpu, device);
    if (status >= 0) status = gf_gpu_cuda.copy(&f.queue, device, host, BYTES);
    if (status >= 0) status = gf_gpu_cuda.zero(&f.queue, device, BYTES / 2);
    if (status >= 0) status = gf_gpu_cuda.launch(&f.queue, 0, 1, 32, args);
    if (status >= 0) status = gf_gpu_cuda.event_record(&f.queue, 1);
    if (status >= 0) status = gf_gpu_cuda.stream_wait(&f.queue, theirs);
    if (status >= 0) status = until(ask_reached);
    if (status >= 0) status = gf_gpu_cuda.copy(&f.queue, host, device, BYTES);
    if (status >= 0) status = until(ask_finished);
    return status;
}

/* Opens, works, closes. The error, or GF_OK; *fault_out is where it is told. */
static gf_status all(const struct gf_fault **fault_out)
{
    static struct gf_fault kept;
    *fault_out = &f.fault;
    gf_status status = cuda_fixture_open(&f);
    if (status < 0) return status;
    uint64_t theirs = f.fake->stream_create();
    status = gf_gpu_cuda.host_register(f.gpu, pinned, BYTES);
    bool registered = status >= 0;
    if (status >= 0) status = work(theirs);
    kept = f.gpu->fault;
    *fault_out = &kept;
    if (!registered) assert_int_equal(f.fake->live().registrations, 0);
    if (registered) gf_gpu_cuda.host_unregister(f.gpu, pinned);
    f.fake->stream_destroy(theirs);
    cuda_fixture_close(&f);
    return status;
}

static void begin(const char *call, uint32_t times, int result)
{
    char text[128];
    (void)snprintf(text, sizeof text, "GF_FAKE_CUDA_FAIL=%s:%u:%d", call, times, result);
    /* where nothing is mapped */
    bool old = (strcmp(call, "cuMemAlloc") == 0) || (strcmp(call, "cuMemFree") == 0);
    /* where nothing can be registered */
    bool staged = (strcmp(call, "cuMemHostAlloc") == 0) || (strcmp(call, "cuMemFreeHost") == 0);
    cuda_fixture_init(&f, text,
                      old      ? "GF_FAKE_CUDA_NO_DESCRIPTORS=1"
                      : staged ? "GF_FAKE_CUDA_NO_REGISTER=1000"
                               : NULL);
    f.fake->kernel_add(kernel_names[0], sizeof(uint64_t), nothing_run);
    cuda_fixture_kernels(&f, kernel_names, 1);
}

/* Each result once where nothing follows of it, and once where it stays until the context is given
 * up. */
static void fails_each_time(const char *call, int result, const char *name, bool may_be_silent)
{
    /* the first times each, later ones ever fewer */
    for (uint32_t times = 1; times < TIMES_MAX; times += 1 + times / 6) {
        char words[160];
        const struct gf_fault *fault;
        begin(call, times, result);
        gf_status status = all(&fault);
        if (!f.fake->failure_met()) {
            assert_true(times > 1);
            assert_int_equal(status, GF_OK);
            return;
        }
        (void)snprintf(words, sizeof words, "%s failed: %s (%d)", call, name, result);
        if (status < 0) {
            assert_int_equal(status, GF_ERR_DEVICE);
            assert_int_equal(fault->code, GF_ERR_DEVICE);
            /* that of a call that stays may be told by another; a long name is cut */
            if (result < 700)
                assert_memory_equal(fault->foreign_call, call,
                                    strnlen(call, sizeof fault->foreign_call - 1));
            assert_int_equal(fault->foreign_code, result);
            if ((result < 700) && (strstr(fault->text, words) == NULL))
                fail_msg("\"%s\" lacks \"%s\"", fault->text, words);
            assert_non_null(strstr(fault->text, name));
        } else if (!may_be_silent && (strstr(f.log, words) == NULL)) {
            fail_msg("%s fails at time %u while closing, and the log is \"%s\"", call, times,
                     f.log);
        }
        cuda_fixture_clean(&f);
    }
    fail_msg("%s is made without end", call);
}

static bool is_one_of(const char *call, const char *const *list)
{
    while ((*list != NULL) && (strcmp(*list, call) != 0)) list++;
    return *list != NULL;
}

/* Every call that the driver asks for, but for those that have a test of their own. */
TEST(each_call_has_failed_once)
{
    /* below; test_cuda_ipc: */
    static const char *const elsewhere[] = {"cuGetErrorName", "cuMemGetInfo",
                                            "cuMemExportToShareableHandle",
                                            "cuMemImportFromShareableHandle", NULL};
    /* The device's names are for a log line; while the end is waited for, failed is ended; an
     * address of which nothing is told is the host's. */
    static const char *const silent[] = {"cuDeviceGetName",       "cuDeviceGetUuid",
                                         "cuCtxRecordEvent",      "cuStreamIsCapturing",
                                         "cuCtxPushCurrent",      "cuCtxPopCurrent",
                                         "cuStreamQuery",         "cuEventQuery",
                                         "cuPointerGetAttribute", NULL};
    const char *call;
    cuda_fixture_init(&f, NULL, NULL);
    for (uint32_t i = 0; (call = f.fake->call_name(i)) != NULL; i++) {
        if (is_one_of(call, elsewhere)) continue;
        fails_each_time(call, 400, "CUDA_ERROR_INVALID_HANDLE", is_one_of(call, silent));
        fails_each_time(call, 719, "CUDA_ERROR_LAUNCH_FAILED", true);
    }
}

/* Memory by cuMemCreate() is refused: then by cuMemAlloc(), with all that else works, and the
 * device says so. */
TEST(where_no_memory_can_be_mapped_it_is_taken_as_before)
{
    static const char *const refusals[] = {"cuMemGetAllocationGranularity", "cuMemCreate",
                                           "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        begin(refusals[i], 1, 801);
        assert_int_equal(cuda_fixture_open(&f), GF_OK);
        assert_false(f.gpu->exports);
        assert_non_null(strstr(f.log, "its memory is taken by cuMemAlloc instead"));
        assert_int_equal(f.fake->live().allocations, 1);
        cuda_fixture_close(&f);
        cuda_fixture_clean(&f);
    }
}

/* Asked for only where something failed: what is free, and names. */
TEST(what_describes_a_failure_may_fail_too)
{
    const struct gf_fault *fault;
    begin("cuMemGetInfo", 1, 201);
    f.setup.device_bytes = 1ull << 40;
    assert_int_equal(all(&fault), GF_ERR_DEVICE);
    assert_true(f.fake->failure_met());
    assert_non_null(
        strstr(fault->text,
               "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (2): asked for 1099511627776 bytes"));
    cuda_fixture_clean(&f);
    begin("cuMemcpyAsync", 1, 12345);
    assert_int_equal(all(&fault), GF_ERR_DEVICE);
    assert_non_null(
        strstr(fault->text, "cuMemcpyAsync failed: unknown to this CUDA driver (12345)"));
    cuda_fixture_clean(&f);
}
