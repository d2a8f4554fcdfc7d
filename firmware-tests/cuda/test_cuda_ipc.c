/* Device memory exported to another process, through the real CUDA driver file on the CUDA library without a GPU: what one
 * writes the other reads, each call fails once and is named, and nothing is left. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/cuda_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#define WORDS 1024u
#define BYTES (WORDS * sizeof(uint32_t))
#define TURNS_MAX 10000u

extern const struct gf_gpu_driver gf_gpu_cuda;
static struct cuda_fixture f;
static _Alignas(4096) uint32_t pinned[WORDS];

static gf_mem host(void) { return (gf_mem)(uintptr_t)pinned; }

static bool drains(void)
{
    for (uint32_t turn = 0; turn < TURNS_MAX; turn++)
        if (gf_gpu_cuda.finished(&f.queue) == GF_OK) return true;
    return false;
}

/* ---- the exporter: a process of its own, which says its handle and lives until nobody listens ---- */

static struct exporter {
    pid_t process;
    int end;  /* closed: it may go */
    unsigned char handle[GF_GPU_HANDLE_BYTES];
} exporter;

static int export(int out, int in)
{
    unsigned char handle[GF_GPU_HANDLE_BYTES];
    char byte;
    cuda_fixture_init(&f, "GF_FAKE_CUDA_SEED=1", NULL);
    if ((cuda_fixture_open(&f) != GF_OK) || (gf_gpu_cuda.host_register(f.gpu, pinned, BYTES) != GF_OK)) return 1;
    for (uint32_t i = 0; i < WORDS; i++) pinned[i] = 7000 + i;
    if ((gf_gpu_cuda.copy(&f.queue, gf_gpu_cuda.arena(f.gpu), host(), BYTES) != GF_OK) || !drains()) return 2;
    if (gf_gpu_cuda.export(f.gpu, handle) != GF_OK) return 3;
    if (write(out, handle, sizeof handle) != (ssize_t)sizeof handle) return 4;
    if (read(in, &byte, 1) != 0) return 5;
    gf_gpu_cuda.host_unregister(f.gpu, pinned);
    cuda_fixture_close(&f);
    return (f.fake->trouble() == NULL) ? 0 : 6;
}

static int exporter_begin(void **state)
{
    int handles[2], end[2];
    if ((pipe(handles) != 0) || (pipe(end) != 0) || ((exporter.process = fork()) < 0)) return -1;
    if (exporter.process == 0) {
        (void)close(end[1]);
        _exit(export(handles[1], end[0]));
    }
    (void)close(handles[1]);
    (void)close(end[0]);
    exporter.end = end[1];
    return (read(handles[0], exporter.handle, sizeof exporter.handle) == (ssize_t)sizeof exporter.handle) ? 0 : -1;
}

static int exporter_end(void **state)
{
    int status = 0;
    (void)close(exporter.end);
    if (waitpid(exporter.process, &status, 0) != exporter.process) return -1;
    return (WIFEXITED(status) && (WEXITSTATUS(status) == 0)) ? 0 : -1;
}

/* ---- the importer ---- */

static gf_status import_and_read(uint32_t *first_out)
{
    gf_mem base = 0;
    gf_status status = gf_gpu_cuda.import(f.gpu, exporter.handle, &base);
    if (status < 0) return status;
    assert_true((base != 0) && (base != gf_gpu_cuda.arena(f.gpu)));
    status = gf_gpu_cuda.copy(&f.queue, host(), base, BYTES);
    if (status == GF_OK) assert_true(drains());
    *first_out = pinned[0];
    gf_gpu_cuda.give_back(f.gpu, exporter.handle, base);
    return status;
}

static void open_fixture(const char *failure)
{
    cuda_fixture_init(&f, "GF_FAKE_CUDA_SEED=1", failure);
    assert_int_equal(cuda_fixture_open(&f), GF_OK);
    assert_int_equal(gf_gpu_cuda.host_register(f.gpu, pinned, BYTES), GF_OK);
}

static void close_fixture(void)
{
    gf_gpu_cuda.host_unregister(f.gpu, pinned);
    cuda_fixture_close(&f);
    cuda_fixture_clean(&f);
}

TEST(what_one_process_writes_another_reads)
{
    for (uint32_t time = 0; time < 2; time++) { /* given back, it can be imported anew */
        uint32_t first = 0;
        open_fixture(NULL);
        assert_int_equal(import_and_read(&first), GF_OK);
        assert_int_equal(first, 7000);
        assert_int_equal(import_and_read(&first), GF_OK);
        for (uint32_t i = 0; i < WORDS; i++) assert_int_equal(pinned[i], 7000 + i);
        close_fixture();
        assert_string_equal(f.log, "");
    }
}

TEST(each_call_fails_once_and_is_named)
{
    static const struct {
        const char *failure, *text;
    } rows[] = {{"GF_FAKE_CUDA_FAIL=cuIpcOpenMemHandle:1:400", "cuIpcOpenMemHandle failed: CUDA_ERROR_INVALID_HANDLE (400)"},
                {"GF_FAKE_CUDA_FAIL=cuIpcOpenMemHandle:1:217", "cuIpcOpenMemHandle failed: unknown to this CUDA driver (217)"},
                {"GF_FAKE_CUDA_FAIL=cuIpcCloseMemHandle:1:400", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t first;
        open_fixture(rows[i].failure);
        assert_int_equal(import_and_read(&first), (rows[i].text != NULL) ? GF_ERR_DEVICE : GF_OK);
        assert_true(f.fake->failure_met());
        if (rows[i].text != NULL) assert_non_null(strstr(f.gpu->fault.text, rows[i].text));
        else assert_non_null(strstr(f.log, "closing: device 0: cuIpcCloseMemHandle failed: CUDA_ERROR_INVALID_HANDLE (400)"));
        assert_int_equal(f.fake->live().imported, 0);
        close_fixture();
    }
    unsigned char handle[GF_GPU_HANDLE_BYTES];
    open_fixture("GF_FAKE_CUDA_FAIL=cuIpcGetMemHandle:1:801");
    assert_int_equal(gf_gpu_cuda.export(f.gpu, handle), GF_ERR_DEVICE);
    assert_non_null(strstr(f.gpu->fault.text, "cuIpcGetMemHandle failed"));
    assert_int_equal(gf_gpu_cuda.export(f.gpu, handle), GF_OK);
    close_fixture();
}

/* Entering and leaving the context may fail too: then nothing stays open. */
TEST(the_context_around_them_fails_as_well)
{
    static const char *const calls[] = {"cuCtxPushCurrent", "cuCtxPopCurrent"};
    for (size_t c = 0; c < 2; c++) {
        for (uint32_t time = 1; time <= 12; time++) {
            char text[64];
            uint32_t first;
            gf_status status;
            (void)snprintf(text, sizeof text, "GF_FAKE_CUDA_FAIL=%s:%u:400", calls[c], time);
            cuda_fixture_init(&f, "GF_FAKE_CUDA_SEED=1", text);
            if (cuda_fixture_open(&f) != GF_OK) continue; /* of test_cuda_failures */
            status = gf_gpu_cuda.host_register(f.gpu, pinned, BYTES);
            if (status == GF_OK) (void)import_and_read(&first);
            if (status == GF_OK) gf_gpu_cuda.host_unregister(f.gpu, pinned);
            cuda_fixture_close(&f);
            cuda_fixture_clean(&f);
        }
    }
}

TEST(a_process_imports_of_itself_by_address)
{
    unsigned char handle[GF_GPU_HANDLE_BYTES];
    gf_mem base = 0;
    open_fixture("GF_FAKE_CUDA_FAIL=cuIpcOpenMemHandle:1:400"); /* is not called */
    assert_int_equal(gf_gpu_cuda.export(f.gpu, handle), GF_OK);
    assert_int_equal(gf_gpu_cuda.import(f.gpu, handle, &base), GF_OK);
    assert_true(base == gf_gpu_cuda.arena(f.gpu));
    gf_gpu_cuda.give_back(f.gpu, handle, base);
    assert_false(f.fake->failure_met());
    close_fixture();
    assert_string_equal(f.log, "");
}

TEST(another_size_is_refused)
{
    gf_mem base = 0;
    cuda_fixture_init(&f, NULL, NULL);
    f.setup.device_bytes = 1u << 16;
    assert_int_equal(cuda_fixture_open(&f), GF_OK);
    assert_int_equal(gf_gpu_cuda.import(f.gpu, exporter.handle, &base), GF_ERR_DEVICE);
    assert_non_null(strstr(f.gpu->fault.text, "a peer exports 1048576 bytes of device memory, expected are 65536"));
    cuda_fixture_close(&f);
    cuda_fixture_clean(&f);
}

TEST_AROUND(exporter_begin, exporter_end)
