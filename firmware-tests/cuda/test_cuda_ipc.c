/* Device memory exported to another process, through the real CUDA driver file on the CUDA library
 * without a GPU: what one writes the other reads, also once the exporter was killed; each call
 * fails once and is named, and nothing is left. How the descriptor gets there: test_node_offers.
 * suite: slow */
#include "firmware-tests/support/open_files.h"
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/cuda_fixture.h"
#include "drivers/base/carried.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS 1024u
#define BYTES (WORDS * sizeof(uint32_t))

static struct cuda_fixture f;
static _Alignas(4096) uint32_t pinned[WORDS];

static gf_mem host(void)
{
    return (gf_mem)(uintptr_t)pinned;
}

/* ---- the exporter: a process that gives its handle and lives until nobody asks ---- */

static struct exporter {
    pid_t process;
    int socket; /* closed: it may go */
    unsigned char handle[GF_GPU_HANDLE_BYTES];
} exporter;

static int export(int out)
{
    unsigned char handle[GF_GPU_HANDLE_BYTES];
    struct gf_carried carried = {.bytes = handle, .size_bytes = sizeof handle};
    char asked;
    cuda_fixture_init(&f, "GF_FAKE_CUDA_SEED=1", NULL);
    if ((cuda_fixture_open(&f) != GF_OK) ||
        (gf_gpu_cuda.host_register(f.gpu, pinned, BYTES) != GF_OK))
        return 1;
    for (uint32_t i = 0; i < WORDS; i++) pinned[i] = 7000 + i;
    if ((gf_gpu_cuda.copy(&f.queue, f.gpu->arena, host(), BYTES) != GF_OK) ||
        !cuda_fixture_drains(&f.queue))
        return 2;
    while (read(out, &asked, 1) == 1) {
        if (gf_gpu_cuda.export_arena(f.gpu, handle, &carried.descriptor) != GF_OK) return 3;
        if (gf_carried_send(out, &carried) != 0) return 4;
        (void)close(carried.descriptor);
    }
    gf_gpu_cuda.host_unregister(f.gpu, pinned);
    cuda_fixture_close(&f);
    return (f.fake->trouble() == NULL) ? 0 : 6;
}

static int exporter_begin(struct exporter *of)
{
    int ends[2];
    if ((socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) || ((of->process = fork()) < 0))
        return -1;
    if (of->process == 0) {
        (void)close(ends[1]);
        if (of != &exporter) (void)close(exporter.socket);
        _exit(export(ends[0]));
    }
    (void)close(ends[0]);
    of->socket = ends[1];
    return 0;
}

static int exporters_begin(void **state)
{
    return exporter_begin(&exporter);
}

static int exporters_end(void **state)
{
    int status = 0;
    (void)close(exporter.socket);
    if (waitpid(exporter.process, &status, 0) != exporter.process) return -1;
    return (WIFEXITED(status) && (WEXITSTATUS(status) == 0)) ? 0 : -1;
}

/* ---- the importer ---- */

static int descriptor_of(struct exporter *of)
{
    struct gf_carried carried = {.bytes = of->handle, .size_bytes = sizeof of->handle};
    struct pollfd come = {.fd = of->socket, .events = POLLIN};
    assert_int_equal(write(of->socket, "", 1), 1);
    assert_int_equal(poll(&come, 1, 60000), 1);
    assert_true(gf_carried_receive(of->socket, &carried));
    assert_int_equal(carried.size_bytes, sizeof of->handle);
    assert_true(carried.descriptor >= 0);
    return carried.descriptor;
}

static gf_status import_of(struct exporter *of, gf_mem *base_out)
{
    int descriptor = descriptor_of(of);
    gf_status status = gf_gpu_cuda.import_arena(f.gpu, of->handle, descriptor, base_out);
    (void)close(descriptor);
    return status;
}

static gf_status import_and_read(uint32_t *first_out)
{
    gf_mem base = 0;
    gf_status status = import_of(&exporter, &base);
    if (status < 0) return status;
    assert_true((base != 0) && (base != f.gpu->arena));
    status = gf_gpu_cuda.copy(&f.queue, host(), base, BYTES);
    if (status == GF_OK) assert_true(cuda_fixture_drains(&f.queue));
    *first_out = pinned[0];
    gf_gpu_cuda.give_back(f.gpu, exporter.handle, base);
    return status;
}

static void open_fixture(const char *first)
{
    cuda_fixture_init(&f, first, NULL);
    cuda_fixture_begin(&f, pinned, BYTES);
}

TEST(what_one_process_writes_another_reads)
{
    for (uint32_t time = 0; time < 2; time++) { /* given back, it can be imported anew */
        uint32_t first = 0;
        uint32_t open = open_files();
        open_fixture(NULL);
        assert_true(f.gpu->exports);
        assert_int_equal(import_and_read(&first), GF_OK);
        assert_int_equal(first, 7000);
        assert_int_equal(import_and_read(&first), GF_OK);
        for (uint32_t i = 0; i < WORDS; i++) assert_int_equal(pinned[i], 7000 + i);
        cuda_fixture_end(&f, pinned);
        assert_string_equal(f.log, "");
        assert_int_equal(open_files(), open);
    }
}

/* The importer holds what it has mapped; before that the descriptor does. */
TEST(what_a_killed_process_has_given_can_be_read)
{
    for (uint32_t mapped_before = 0; mapped_before < 2; mapped_before++) {
        struct exporter killed = {0};
        gf_mem base = 0;
        int descriptor;
        assert_int_equal(exporter_begin(&killed), 0);
        open_fixture(NULL);
        descriptor = descriptor_of(&killed);
        if (mapped_before)
            assert_int_equal(gf_gpu_cuda.import_arena(f.gpu, killed.handle, descriptor, &base),
                             GF_OK);
        assert_int_equal(kill(killed.process, SIGKILL), 0);
        assert_int_equal(waitpid(killed.process, NULL, 0), killed.process);
        if (!mapped_before)
            assert_int_equal(gf_gpu_cuda.import_arena(f.gpu, killed.handle, descriptor, &base),
                             GF_OK);
        (void)close(descriptor);
        memset(pinned, 0, sizeof pinned);
        assert_int_equal(gf_gpu_cuda.copy(&f.queue, host(), base, BYTES), GF_OK);
        assert_true(cuda_fixture_drains(&f.queue));
        for (uint32_t word = 0; word < WORDS; word++) assert_int_equal(pinned[word], 7000 + word);
        gf_gpu_cuda.give_back(f.gpu, killed.handle, base);
        cuda_fixture_end(&f, pinned);
        assert_string_equal(f.log, "");
        (void)close(killed.socket);
    }
}

/* What comes of another process may be anything, or nothing. */
TEST(a_descriptor_that_is_none_of_device_memory_is_refused)
{
    int ends[2];
    gf_mem base = 0;
    assert_int_equal(pipe(ends), 0);
    open_fixture(NULL);
    (void)close(descriptor_of(&exporter));
    for (int i = 0; i < 2; i++) {
        int descriptor = (i == 0) ? ends[0] : -1;
        assert_int_equal(gf_gpu_cuda.import_arena(f.gpu, exporter.handle, descriptor, &base),
                         GF_ERR_DEVICE);
        assert_non_null(strstr(f.gpu->fault.text, "cuMemImportFromShareableHandle failed"));
        f.gpu->fault = (struct gf_fault){.peer = GF_RANK_NONE};
    }
    cuda_fixture_end(&f, pinned);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

TEST(each_call_fails_once_and_is_named)
{
    static const struct {
        const char *failure, *text; /* NULL: said while closing, with the call's name */
    } rows[] = {{"cuMemImportFromShareableHandle:1:400",
                 "cuMemImportFromShareableHandle failed: CUDA_ERROR_INVALID_HANDLE (400)"},
                {"cuMemImportFromShareableHandle:1:217",
                 "cuMemImportFromShareableHandle failed: unknown to this CUDA driver (217)"},
                {"cuMemAddressReserve:2:400", "cuMemAddressReserve failed"},
                {"cuMemMap:2:400", "cuMemMap failed"},
                {"cuMemSetAccess:2:400", "cuMemSetAccess failed"},
                {"cuMemRelease:1:400", NULL},
                {"cuMemUnmap:1:400", NULL},
                {"cuMemAddressFree:1:400", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t first;
        uint32_t open = open_files();
        char failure[96];
        char closing[128];
        (void)snprintf(failure, sizeof failure, "GF_FAKE_CUDA_FAIL=%s", rows[i].failure);
        (void)snprintf(closing, sizeof closing,
                       "closing: device 0: %.*s failed: CUDA_ERROR_INVALID_HANDLE (400)",
                       (int)strcspn(rows[i].failure, ":"), rows[i].failure);
        open_fixture(failure);
        gf_status status = import_and_read(&first);
        assert_int_equal(status, (rows[i].text != NULL) ? GF_ERR_DEVICE : GF_OK);
        assert_true(f.fake->failure_met());
        if (rows[i].text != NULL)
            assert_non_null(strstr(f.gpu->fault.text, rows[i].text));
        else
            assert_non_null(strstr(f.log, closing));
        assert_int_equal(f.fake->live().imported, 0);
        cuda_fixture_end(&f, pinned);
        assert_int_equal(open_files(), open);
    }
}

/* And may try again. */
TEST(an_exporter_that_is_refused_says_so)
{
    unsigned char handle[GF_GPU_HANDLE_BYTES];
    int descriptor = -1;
    uint32_t open = open_files();
    open_fixture("GF_FAKE_CUDA_FAIL=cuMemExportToShareableHandle:1:801");
    assert_int_equal(gf_gpu_cuda.export_arena(f.gpu, handle, &descriptor), GF_ERR_DEVICE);
    assert_non_null(strstr(f.gpu->fault.text, "cuMemExportToShareableHandle failed"));
    assert_int_equal(gf_gpu_cuda.export_arena(f.gpu, handle, &descriptor), GF_OK);
    assert_true(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
    (void)close(descriptor);
    cuda_fixture_end(&f, pinned);
    cuda_fixture_init(&f, "GF_FAKE_CUDA_NO_DESCRIPTORS=1", NULL);
    cuda_fixture_begin(&f, pinned, BYTES);
    assert_false(f.gpu->exports);
    assert_int_equal(gf_gpu_cuda.export_arena(f.gpu, handle, &descriptor), GF_ERR_DEVICE);
    assert_non_null(strstr(f.gpu->fault.text, "its memory has no descriptor"));
    cuda_fixture_end(&f, pinned);
    assert_int_equal(open_files(), open);
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
    int descriptor = -1;
    gf_mem base = 0;
    /* is not called */
    open_fixture("GF_FAKE_CUDA_FAIL=cuMemImportFromShareableHandle:1:400");
    assert_int_equal(gf_gpu_cuda.export_arena(f.gpu, handle, &descriptor), GF_OK);
    (void)close(descriptor);
    assert_int_equal(gf_gpu_cuda.import_arena(f.gpu, handle, -1, &base), GF_OK);
    assert_true(base == f.gpu->arena);
    gf_gpu_cuda.give_back(f.gpu, handle, base);
    assert_false(f.fake->failure_met());
    cuda_fixture_end(&f, pinned);
    assert_string_equal(f.log, "");
}

TEST(another_size_is_refused)
{
    gf_mem base = 0;
    cuda_fixture_init(&f, NULL, NULL);
    f.setup.device_bytes = 1u << 16;
    assert_int_equal(cuda_fixture_open(&f), GF_OK);
    assert_int_equal(import_of(&exporter, &base), GF_ERR_DEVICE);
    assert_non_null(strstr(f.gpu->fault.text,
                           "a peer exports 1048576 bytes of device memory, expected are 65536"));
    cuda_fixture_close(&f);
    cuda_fixture_clean(&f);
}

TEST_AROUND(exporters_begin, exporters_end)
