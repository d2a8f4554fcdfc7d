/* Device memory exported to another process, through the real CUDA driver file on the CUDA library
 * without a GPU: what one writes the other reads, by descriptors also once the exporter was killed;
 * each call fails once and is named, and nothing is left. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/cuda_fixture.h"
#include "drivers/cuda/descriptors.h"

#include <dirent.h>
#include <signal.h>
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

/* ---- exporters: processes that say their handle, send to whoever says one, and live until nobody
 * does ---- */

enum { BY_DESCRIPTOR, BY_IPC, KINDS };
static const char *const kinds[KINDS] = {NULL, "GF_FAKE_CUDA_NO_DESCRIPTORS=1"};

static struct exporter {
    pid_t process;
    int to, from; /* to closed: it may go */
    unsigned char handle[GF_GPU_HANDLE_BYTES];
} exporters[KINDS];

static int export(int out, int in, const char *kind)
{
    unsigned char handle[GF_GPU_HANDLE_BYTES];
    cuda_fixture_init(&f, "GF_FAKE_CUDA_SEED=1", kind);
    if ((cuda_fixture_open(&f) != GF_OK) ||
        (gf_gpu_cuda.host_register(f.gpu, pinned, BYTES) != GF_OK))
        return 1;
    for (uint32_t i = 0; i < WORDS; i++) pinned[i] = 7000 + i;
    if ((gf_gpu_cuda.copy(&f.queue, f.gpu->arena, host(), BYTES) != GF_OK) ||
        !cuda_fixture_drains(&f.queue))
        return 2;
    if (gf_gpu_cuda.export(f.gpu, handle) != GF_OK) return 3;
    if (write(out, handle, sizeof handle) != (ssize_t)sizeof handle) return 4;
    while (read(in, handle, sizeof handle) == (ssize_t)sizeof handle) {
        gf_status sent = gf_gpu_cuda.export_to(f.gpu, handle);
        if (write(out, &sent, sizeof sent) != (ssize_t)sizeof sent) return 5;
        f.gpu->fault = (struct gf_fault){.peer = GF_RANK_NONE};
    }
    gf_gpu_cuda.host_unregister(f.gpu, pinned);
    cuda_fixture_close(&f);
    return (f.fake->trouble() == NULL) ? 0 : 6;
}

static int exporter_begin(struct exporter *exporter, const char *kind)
{
    int from[2];
    int to[2];
    if ((pipe(from) != 0) || (pipe(to) != 0) || ((exporter->process = fork()) < 0)) return -1;
    if (exporter->process == 0) {
        (void)close(to[1]);
        for (size_t k = 0; k < KINDS; k++)
            if (exporters[k].to > 0) (void)close(exporters[k].to);
        _exit(export(from[1], to[0], kind));
    }
    (void)close(from[1]);
    (void)close(to[0]);
    exporter->to = to[1];
    exporter->from = from[0];
    return (read(from[0], exporter->handle, sizeof exporter->handle) ==
            (ssize_t)sizeof exporter->handle)
               ? 0
               : -1;
}

static int exporters_begin(void **state)
{
    int result = 0;
    for (size_t k = 0; (k < KINDS) && (result == 0); k++)
        result = exporter_begin(&exporters[k], kinds[k]);
    return result;
}

static int exporters_end(void **state)
{
    int status = 0;
    for (size_t k = 0; k < KINDS; k++) {
        (void)close(exporters[k].to);
        if (waitpid(exporters[k].process, &status, 0) != exporters[k].process) return -1;
        if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0)) return -1;
    }
    return 0;
}

/* ---- the importer ---- */

/* It sends to this process. */
static gf_status asked(const struct exporter *exporter)
{
    unsigned char handle[GF_GPU_HANDLE_BYTES];
    gf_status sent;
    gf_status status = gf_gpu_cuda.export(f.gpu, handle);
    if (status < 0) return status;
    assert_int_equal(write(exporter->to, handle, sizeof handle), sizeof handle);
    assert_int_equal(read(exporter->from, &sent, sizeof sent), sizeof sent);
    return sent;
}

static gf_status import_and_read(const struct exporter *exporter, uint32_t *first_out)
{
    gf_mem base = 0;
    gf_status status = asked(exporter);
    if (status >= 0) status = gf_gpu_cuda.import(f.gpu, exporter->handle, &base);
    if (status < 0) return status;
    assert_true((base != 0) && (base != f.gpu->arena));
    status = gf_gpu_cuda.copy(&f.queue, host(), base, BYTES);
    if (status == GF_OK) assert_true(cuda_fixture_drains(&f.queue));
    *first_out = pinned[0];
    gf_gpu_cuda.give_back(f.gpu, exporter->handle, base);
    return status;
}

static uint32_t descriptors_count(void)
{
    DIR *all = opendir("/proc/self/fd");
    uint32_t count = 0;
    while (readdir(all) != NULL) count++;
    (void)closedir(all);
    return count;
}

static void open_fixture(const char *first, const char *second)
{
    cuda_fixture_init(&f, first, second);
    cuda_fixture_begin(&f, pinned, BYTES);
}

TEST(what_one_process_writes_another_reads)
{
    for (uint32_t time = 0; time < 2 * KINDS; time++) { /* given back, it can be imported anew */
        const struct exporter *exporter = &exporters[time % KINDS];
        uint32_t first = 0;
        uint32_t open = descriptors_count();
        open_fixture(NULL, kinds[time % KINDS]);
        assert_int_equal(f.gpu->outlives, time % KINDS == BY_DESCRIPTOR);
        assert_int_equal(import_and_read(exporter, &first), GF_OK);
        assert_int_equal(first, 7000);
        assert_int_equal(import_and_read(exporter, &first), GF_OK);
        for (uint32_t i = 0; i < WORDS; i++) assert_int_equal(pinned[i], 7000 + i);
        cuda_fixture_end(&f, pinned);
        assert_string_equal(f.log, "");
        assert_int_equal(descriptors_count(), open);
    }
}

/* The importer holds what it has mapped; before that its descriptor waits. */
TEST(what_a_killed_process_has_sent_can_be_read)
{
    for (uint32_t mapped_before = 0; mapped_before < 2; mapped_before++) {
        struct exporter killed = {0};
        gf_mem base = 0;
        assert_int_equal(exporter_begin(&killed, NULL), 0);
        open_fixture(NULL, NULL);
        assert_int_equal(asked(&killed), GF_OK);
        if (mapped_before) assert_int_equal(gf_gpu_cuda.import(f.gpu, killed.handle, &base), GF_OK);
        assert_int_equal(kill(killed.process, SIGKILL), 0);
        assert_int_equal(waitpid(killed.process, NULL, 0), killed.process);
        if (!mapped_before)
            assert_int_equal(gf_gpu_cuda.import(f.gpu, killed.handle, &base), GF_OK);
        memset(pinned, 0, sizeof pinned);
        assert_int_equal(gf_gpu_cuda.copy(&f.queue, host(), base, BYTES), GF_OK);
        assert_true(cuda_fixture_drains(&f.queue));
        for (uint32_t word = 0; word < WORDS; word++) assert_int_equal(pinned[word], 7000 + word);
        gf_gpu_cuda.give_back(f.gpu, killed.handle, base);
        cuda_fixture_end(&f, pinned);
        assert_string_equal(f.log, "");
        (void)close(killed.to);
        (void)close(killed.from);
    }
}

/* A name says nothing: the process at its end has to be the one of the handle. */
TEST(another_process_is_sent_nothing)
{
    unsigned char own[GF_GPU_HANDLE_BYTES];
    unsigned char theirs[GF_GPU_HANDLE_BYTES];
    size_t name_at = 4 * sizeof(uint64_t) + 2 * sizeof(uint32_t);
    gf_mem base = 0;
    open_fixture(NULL, NULL);
    assert_int_equal(gf_gpu_cuda.export(f.gpu, own), GF_OK);
    memcpy(theirs, exporters[BY_DESCRIPTOR].handle, sizeof theirs);
    /* that process's, with this one's name */
    memcpy(theirs + name_at, own + name_at, GF_DESCRIPTORS_NAME_BYTES);
    assert_int_equal(gf_gpu_cuda.export_to(f.gpu, theirs), GF_ERR_SYSTEM);
    assert_non_null(strstr(f.gpu->fault.text,
                           "a descriptor of device memory cannot be passed to another process"));
    f.gpu->fault = (struct gf_fault){.peer = GF_RANK_NONE};
    /* nor has it sent any */
    assert_int_equal(gf_gpu_cuda.import(f.gpu, theirs, &base), GF_ERR_DEVICE);
    assert_non_null(strstr(f.gpu->fault.text, "has sent no descriptor"));
    f.gpu->fault = (struct gf_fault){.peer = GF_RANK_NONE};
    assert_int_equal(gf_gpu_cuda.export(f.gpu, NULL), GF_OK); /* from here on nothing listens */
    memcpy(theirs, own, sizeof theirs);
    theirs[4 * sizeof(uint64_t)] ^= 1; /* of another process */
    assert_int_equal(gf_gpu_cuda.export_to(f.gpu, theirs), GF_ERR_SYSTEM);
    assert_non_null(strstr(f.gpu->fault.text, "connect: Connection refused"));
    cuda_fixture_end(&f, pinned);
}

TEST(each_call_fails_once_and_is_named)
{
    static const struct {
        int kind;
        const char *failure, *text; /* NULL: said while closing, with the call's name */
    } rows[] = {{BY_IPC, "cuIpcOpenMemHandle:1:400",
                 "cuIpcOpenMemHandle failed: CUDA_ERROR_INVALID_HANDLE (400)"},
                {BY_IPC, "cuIpcOpenMemHandle:1:217",
                 "cuIpcOpenMemHandle failed: unknown to this CUDA driver (217)"},
                {BY_IPC, "cuIpcGetMemHandle:1:801", "cuIpcGetMemHandle failed"},
                {BY_IPC, "cuIpcCloseMemHandle:1:400", NULL},
                {BY_DESCRIPTOR, "cuMemImportFromShareableHandle:1:400",
                 "cuMemImportFromShareableHandle failed"},
                {BY_DESCRIPTOR, "cuMemAddressReserve:2:400", "cuMemAddressReserve failed"},
                {BY_DESCRIPTOR, "cuMemMap:2:400", "cuMemMap failed"},
                {BY_DESCRIPTOR, "cuMemSetAccess:2:400", "cuMemSetAccess failed"},
                {BY_DESCRIPTOR, "cuMemRelease:1:400", NULL},
                {BY_DESCRIPTOR, "cuMemUnmap:1:400", NULL},
                {BY_DESCRIPTOR, "cuMemAddressFree:1:400", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t first;
        uint32_t open = descriptors_count();
        char failure[96];
        char closing[128];
        (void)snprintf(failure, sizeof failure, "GF_FAKE_CUDA_FAIL=%s", rows[i].failure);
        (void)snprintf(closing, sizeof closing,
                       "closing: device 0: %.*s failed: CUDA_ERROR_INVALID_HANDLE (400)",
                       (int)strcspn(rows[i].failure, ":"), rows[i].failure);
        open_fixture(failure, kinds[rows[i].kind]);
        gf_status status = import_and_read(&exporters[rows[i].kind], &first);
        assert_int_equal(status, (rows[i].text != NULL) ? GF_ERR_DEVICE : GF_OK);
        assert_true(f.fake->failure_met());
        if (rows[i].text != NULL)
            assert_non_null(strstr(f.gpu->fault.text, rows[i].text));
        else
            assert_non_null(strstr(f.log, closing));
        assert_int_equal(f.fake->live().imported, 0);
        cuda_fixture_end(&f, pinned);
        assert_int_equal(descriptors_count(), open);
    }
}

/* And may try again. */
TEST(an_exporter_that_is_refused_says_so)
{
    unsigned char theirs[GF_GPU_HANDLE_BYTES];
    open_fixture("GF_FAKE_CUDA_FAIL=cuIpcGetMemHandle:1:801", kinds[BY_IPC]);
    assert_int_equal(gf_gpu_cuda.export(f.gpu, theirs), GF_ERR_DEVICE);
    assert_int_equal(gf_gpu_cuda.export(f.gpu, theirs), GF_OK);
    cuda_fixture_end(&f, pinned);
    open_fixture("GF_FAKE_CUDA_FAIL=cuMemExportToShareableHandle:1:801", NULL);
    memcpy(theirs, exporters[BY_DESCRIPTOR].handle, sizeof theirs);
    assert_int_equal(gf_gpu_cuda.export_to(f.gpu, theirs), GF_ERR_DEVICE);
    assert_non_null(strstr(f.gpu->fault.text, "cuMemExportToShareableHandle failed"));
    assert_int_equal(gf_gpu_cuda.export_to(f.gpu, theirs), GF_OK);
    cuda_fixture_end(&f, pinned);
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
            if (status == GF_OK) (void)import_and_read(&exporters[BY_DESCRIPTOR], &first);
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
    /* is not called */
    open_fixture("GF_FAKE_CUDA_FAIL=cuMemImportFromShareableHandle:1:400", NULL);
    assert_int_equal(gf_gpu_cuda.export(f.gpu, handle), GF_OK);
    assert_int_equal(gf_gpu_cuda.export_to(f.gpu, handle), GF_OK);
    assert_int_equal(gf_gpu_cuda.import(f.gpu, handle, &base), GF_OK);
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
    assert_int_equal(gf_gpu_cuda.import(f.gpu, exporters[BY_DESCRIPTOR].handle, &base),
                     GF_ERR_DEVICE);
    assert_non_null(strstr(f.gpu->fault.text,
                           "a peer exports 1048576 bytes of device memory, expected are 65536"));
    cuda_fixture_close(&f);
    cuda_fixture_clean(&f);
}

TEST_AROUND(exporters_begin, exporters_end)
