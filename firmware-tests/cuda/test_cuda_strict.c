/* That the CUDA driver without a GPU is as strict as a real one: what a real one refuses, or would not survive, is
 * refused or told. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/cuda_fixture.h"

#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define TURNS_MAX 10000u

extern const struct gf_gpu_driver gf_gpu_cuda;
static struct cuda_fixture f;

static void find(const char *name, void *call_out)
{
    __typeof__(&cuGetProcAddress_v2) get;
    CUdriverProcAddressQueryResult why;
    void *symbol = dlsym(dlopen(f.library, RTLD_NOW | RTLD_LOCAL), "cuGetProcAddress_v2"), *found = NULL;
    memcpy(&get, &symbol, sizeof get);
    if (get(name, &found, 12000, 0, &why) != CUDA_SUCCESS) fail_msg("there is no %s", name);
    memcpy(call_out, &found, sizeof found);
}
#define CALL(name, symbol) __typeof__(&symbol) name; find(#name, &name)

static void trouble_expect(const char *text)
{
    const char *trouble = f.fake->trouble();
    if ((trouble == NULL) || (strstr(trouble, text) == NULL))
        fail_msg("\"%s\" is told, expected \"%s\"", trouble, text);
    f.fake->forget();
    f.fake->reset();
}

TEST(streams_and_events_are_of_a_context)
{
    for (int which = 0; which < 2; which++) {
        CUcontext contexts[2], popped;
        CUstream stream;
        CUevent event;
        cuda_fixture_init(&f, NULL, NULL);
        CALL(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain);
        CALL(cuCtxPushCurrent, cuCtxPushCurrent_v2);
        CALL(cuCtxPopCurrent, cuCtxPopCurrent_v2);
        CALL(cuStreamCreateWithPriority, cuStreamCreateWithPriority);
        CALL(cuEventCreate, cuEventCreate);
        CALL(cuEventRecord, cuEventRecord);
        for (int d = 0; d < 2; d++) assert_int_equal(cuDevicePrimaryCtxRetain(&contexts[d], d), CUDA_SUCCESS);
        assert_int_equal(cuCtxPushCurrent(contexts[which]), CUDA_SUCCESS);
        assert_int_equal(cuEventCreate(&event, 0), CUDA_SUCCESS);
        assert_int_equal(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
        assert_int_equal(cuCtxPushCurrent(contexts[0]), CUDA_SUCCESS);
        assert_int_equal(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -5), CUDA_SUCCESS);
        if (which == 0) { /* both of the first: good there, and not where the second is current */
            assert_int_equal(cuEventRecord(event, stream), CUDA_SUCCESS);
            assert_int_equal(cuCtxPushCurrent(contexts[1]), CUDA_SUCCESS);
            assert_int_equal(cuEventRecord(event, stream), CUDA_ERROR_INVALID_CONTEXT);
            trouble_expect("cuEventRecord on a stream of another context");
        } else {
            assert_int_equal(cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
            trouble_expect("cuEventRecord of an event of another context than the stream's");
        }
    }
}

/* Errors that ruin a context: every later call has them, of work and of memory. Others are gone. */
TEST(an_error_that_ruins_a_context_stays)
{
    static const int results[] = {214, 719, 721, 999, 400};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        int stays = (results[i] != 400) ? results[i] : 0;
        char text[64];
        CUdeviceptr at = 0;
        CUevent event = NULL;
        (void)snprintf(text, sizeof text, "GF_FAKE_CUDA_FAIL=cuMemsetD8Async:2:%d", results[i]);
        cuda_fixture_init(&f, text, NULL);
        assert_int_equal(cuda_fixture_open(&f), GF_OK);
        assert_int_equal(gf_gpu_cuda.zero(&f.queue, gf_gpu_cuda.arena(f.gpu), 64), GF_ERR_DEVICE);
        CALL(cuMemAlloc, cuMemAlloc_v2);
        CALL(cuMemcpyAsync, cuMemcpyAsync);
        CALL(cuEventCreate, cuEventCreate);
        CALL(cuStreamQuery, cuStreamQuery);
        CALL(cuCtxPushCurrent, cuCtxPushCurrent_v2);
        if (stays == 0) {
            cuda_fixture_close(&f);
            cuda_fixture_clean(&f);
            continue;
        }
        assert_int_equal(cuCtxPushCurrent(NULL), stays);
        assert_int_equal(cuMemAlloc(&at, 64), stays);
        assert_int_equal(cuEventCreate(&event, 0), stays);
        assert_int_equal(cuStreamQuery(NULL), stays);
        assert_int_equal(cuMemcpyAsync(gf_gpu_cuda.arena(f.gpu), gf_gpu_cuda.arena(f.gpu) + 64, 64, NULL), stays);
        assert_int_equal(gf_gpu_cuda.finished(&f.queue), GF_ERR_DEVICE);
        cuda_fixture_close(&f);
        f.fake->forget();
        f.fake->reset();
    }
}

/* What frees memory waits for all work of the context, on any stream. */
TEST(what_frees_memory_waits_for_all_work)
{
    static const char *const calls[] = {"cuMemFree", "cuMemHostUnregister", "cuModuleUnload"};
    static _Alignas(4096) char page[4096];
    for (uint32_t i = 0; i < 3; i++) {
        CUdeviceptr at;
        cuda_fixture_init(&f, NULL, NULL);
        assert_int_equal(cuda_fixture_open(&f), GF_OK);
        assert_int_equal(gf_gpu_cuda.enter(f.gpu), GF_OK);
        CALL(cuMemAlloc, cuMemAlloc_v2);
        CALL(cuMemFree, cuMemFree_v2);
        CALL(cuMemHostRegister, cuMemHostRegister_v2);
        CALL(cuMemHostUnregister, cuMemHostUnregister);
        CALL(cuModuleUnload, cuModuleUnload);
        assert_int_equal(cuMemAlloc(&at, 4096), CUDA_SUCCESS);
        assert_int_equal(cuMemHostRegister(page, 4096, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_SUCCESS);
        f.fake->stream_hold(f.fake->stream_create());
        if (i == 0) (void)cuMemFree(at);
        else if (i == 1) (void)cuMemHostUnregister(page);
        else (void)cuModuleUnload(NULL);
        char text[64];
        (void)snprintf(text, sizeof text, "%s waits for work that never ends", calls[i]);
        trouble_expect(text);
    }
}

/* ---- two processes and memory of one of them ---- */

static int told[2], handles[2];
static bool sleeps;

/* Writes the arena's first word, tells it, and is at work for a while. */
static void slow_run(const void *args, uint32_t blocks, uint32_t threads)
{
    uint64_t at;
    memcpy(&at, args, sizeof at);
    f.fake->touch(at, sizeof(uint32_t), true);
    if (write(told[1], "w", 1) != 1) _exit(1);
    (void)usleep(sleeps ? 1000000 : 0);
}

static gf_status drain(void)
{
    gf_status status = GF_AGAIN;
    for (uint32_t turn = 0; (turn < TURNS_MAX) && (status == GF_AGAIN); turn++) status = gf_gpu_cuda.finished(&f.queue);
    return status;
}

/* In a child: exports, and works on it. */
static _Noreturn void exporter(void)
{
    static const struct fake_cuda_image image = FAKE_CUDA_IMAGE;
    static const char *const names[] = {"test_slow"};
    unsigned char handle[GF_GPU_HANDLE_BYTES];
    cuda_fixture_init(&f, "GF_FAKE_CUDA_NO_DESCRIPTORS=1", NULL);
    f.fake->kernel_add("test_slow", sizeof(uint64_t), slow_run);
    f.setup.image = &image;
    f.setup.kernels = names;
    f.setup.kernel_count = 1;
    if ((cuda_fixture_open(&f) != GF_OK) || (gf_gpu_cuda.export(f.gpu, handle) != GF_OK)) _exit(1);
    if (write(handles[1], handle, sizeof handle) != (ssize_t)sizeof handle) _exit(1);
    uint64_t at = gf_gpu_cuda.arena(f.gpu);
    void *args[] = {&at};
    if ((gf_gpu_cuda.launch(&f.queue, 0, 1, 32, args) != GF_OK) || (drain() != GF_OK)) _exit(1);
    for (;;) (void)pause();
}

/* From there to this process's arena. */
static void read_while(bool at_work, bool killed)
{
    unsigned char handle[GF_GPU_HANDLE_BYTES];
    gf_mem base = 0;
    char byte;
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(handles), 0);
    sleeps = at_work;
    pid_t child = fork();
    if (child == 0) exporter();
    cuda_fixture_init(&f, "GF_FAKE_CUDA_NO_DESCRIPTORS=1", NULL);
    assert_int_equal(cuda_fixture_open(&f), GF_OK);
    assert_int_equal(read(handles[0], handle, sizeof handle), sizeof handle);
    assert_int_equal(gf_gpu_cuda.import(f.gpu, handle, &base), GF_OK);
    assert_int_equal(read(told[0], &byte, 1), 1);
    if (!at_work) (void)usleep(50000);
    if (killed) assert_int_equal(kill(child, SIGKILL), 0);
    if (killed) assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(gf_gpu_cuda.copy(&f.queue, gf_gpu_cuda.arena(f.gpu), base, 64), GF_OK);
    assert_int_equal(drain(), killed ? GF_ERR_DEVICE : GF_OK);
    if (!killed) gf_gpu_cuda.give_back(f.gpu, handle, base);
    cuda_fixture_close(&f);
    if (!killed) (void)kill(child, SIGKILL);
    if (!killed) (void)waitpid(child, NULL, 0);
    for (int end = 0; end < 2; end++) (void)close(told[end]), (void)close(handles[end]);
}

TEST(two_processes_at_work_on_the_same_bytes_are_found)
{
    read_while(false, false);
    cuda_fixture_clean(&f);
    read_while(true, false);
    trouble_expect("reads 0x");
}

TEST(memory_dies_with_its_process)
{
    read_while(false, true);
    trouble_expect("touches an address that is neither device nor registered host memory");
}

/* Memory by cuMemCreate(): sizes, the order of calls, and no access before it was given. */
static void map_wrongly(int what)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle memory;
    CUdeviceptr at = 0;
    size_t grain = 0;
    int descriptor = -1;
    cuda_fixture_init(&f, NULL, NULL);
    assert_int_equal(cuda_fixture_open(&f), GF_OK);
    assert_int_equal(gf_gpu_cuda.enter(f.gpu), GF_OK);
    CALL(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity);
    CALL(cuMemCreate, cuMemCreate);
    CALL(cuMemRelease, cuMemRelease);
    CALL(cuMemAddressReserve, cuMemAddressReserve);
    CALL(cuMemAddressFree, cuMemAddressFree);
    CALL(cuMemMap, cuMemMap);
    CALL(cuMemUnmap, cuMemUnmap);
    CALL(cuMemExportToShareableHandle, cuMemExportToShareableHandle);
    (void)cuMemGetAllocationGranularity(&grain, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (what == 0) (void)cuMemCreate(&memory, grain + 1, &properties, 0);
    if (what == 0) return;
    assert_int_equal(cuMemCreate(&memory, grain, &properties, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressReserve(&at, grain, 0, 0, 0), CUDA_SUCCESS);
    if (what == 1) assert_int_equal(cuMemRelease(memory), CUDA_SUCCESS); /* nothing holds it then */
    if (what == 1) (void)cuMemMap(at, grain, 0, memory, 0);
    if (what == 1) return;
    if (what == 2) (void)cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (what == 2) return;
    assert_int_equal(cuMemMap(at, grain, 0, memory, 0), CUDA_SUCCESS);
    if (what == 3) assert_int_equal(gf_gpu_cuda.zero(&f.queue, at, 64), GF_OK);
    if (what == 3) assert_int_equal(drain(), GF_ERR_DEVICE);
    if (what == 4) (void)cuMemAddressFree(at, grain);
    if (what == 5) f.fake->stream_hold(f.fake->stream_create());
    if (what == 5) (void)cuMemUnmap(at, grain);
    if (what == 6) assert_int_equal(cuMemUnmap(at, grain), CUDA_SUCCESS);
    if (what == 6) assert_int_equal(cuMemAddressFree(at, grain), CUDA_SUCCESS);
    if (what == 6) assert_int_equal(gf_gpu_cuda.leave(f.gpu), GF_OK);
    if (what == 6) cuda_fixture_close(&f); /* the handle is left */
}

TEST(memory_is_mapped_as_a_real_driver_wants_it)
{
    static const char *const texts[] = {"cuMemCreate: a size that is no multiple", "cuMemMap: of what is no handle",
                                        "cuMemExportToShareableHandle: of what was not made for it",
                                        "touches an address that is neither",
                                        "cuMemAddressFree: of what is still mapped",
                                        "cuMemUnmap waits for work that never ends", "1 allocations"};
    for (int what = 0; what < (int)(sizeof texts / sizeof *texts); what++) {
        map_wrongly(what);
        trouble_expect(texts[what]);
    }
}
