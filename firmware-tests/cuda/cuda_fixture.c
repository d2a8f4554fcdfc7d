/* See cuda_fixture.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/cuda_fixture.h"

#include <dlfcn.h>
#include <unistd.h>

#define LOOKS_MAX 10000u

static void log_keep(void *user, gf_log_level level, const char *text)
{
    struct cuda_fixture *f = user;
    size_t used = strlen(f->log);
    if (level > GF_LOG_WARN) return;
    (void)snprintf(f->log + used, sizeof f->log - used, "%s\n", text);
}

/* Beside the test itself. */
static void library_find(struct cuda_fixture *f)
{
    char self[200];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1u);
    assert_true(length > 0);
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    (void)snprintf(f->library, sizeof f->library, "%s/fake/libcuda.so.1", self);
}

static void environment_set(const char *first, const char *second)
{
    static const char *const names[] = {
        "GF_FAKE_CUDA_SEED",           "GF_FAKE_CUDA_FAIL",        "GF_FAKE_CUDA_WITHOUT",
        "GF_FAKE_CUDA_VERSION",        "GF_FAKE_CUDA_MEMORY",      "GF_FAKE_CUDA_NO_HOST_POINTER",
        "GF_FAKE_CUDA_NO_DESCRIPTORS", "GF_FAKE_CUDA_NO_REGISTER", "GF_FAKE_CUDA_BETWEEN",
        "GF_FAKE_CUDA_UNWATCHED"};
    const char *const given[] = {first, second};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) (void)unsetenv(names[i]);
    for (size_t i = 0; i < 2; i++) {
        char name[64];
        if (given[i] == NULL) continue;
        const char *value = strchr(given[i], '=') + 1;
        (void)snprintf(name, sizeof name, "%.*s", (int)(value - 1 - given[i]), given[i]);
        assert_int_equal(setenv(name, value, 1), 0);
    }
}

void cuda_fixture_init(struct cuda_fixture *f, const char *first, const char *second)
{
    memset(f, 0, sizeof *f);
    library_find(f);
    void *handle = dlopen(f->library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) fail_msg("%s", dlerror());
    f->fake = dlsym(handle, FAKE_CUDA_API_SYMBOL);
    assert_non_null(f->fake);
    environment_set(first, second);
    f->fake->reset();
    f->fault.peer = GF_RANK_NONE;
    f->setup = (struct gf_gpu_setup){
        .library = f->library, .device_bytes = 1u << 20, .events_max = 4, .log = {log_keep, f}};
}

void cuda_fixture_kernels(struct cuda_fixture *f, const char *const *names, uint32_t count)
{
    static const struct fake_cuda_image image = FAKE_CUDA_IMAGE;
    f->setup.kernels.image = &image;
    f->setup.kernels.names = names;
    f->setup.kernels.count = count;
}

gf_status cuda_fixture_open(struct cuda_fixture *f)
{
    assert_true(gf_gpu_cuda.state_bytes(&f->setup) <= sizeof f->state);
    gf_status status = gf_gpu_cuda.open(&f->setup, f->state, &f->gpu, &f->fault);
    if (status < 0) return status;
    f->queue = (struct gf_queue){.gpu = f->gpu, .stream = f->gpu->streams[GF_STREAM_MAIN]};
    return status;
}

void cuda_fixture_close(struct cuda_fixture *f)
{
    gf_gpu_cuda.close(f->gpu);
    f->gpu = NULL;
}

void cuda_fixture_clean(struct cuda_fixture *f)
{
    const struct fake_cuda_live live = f->fake->live();
    if (f->fake->trouble() != NULL) fail_msg("%s", f->fake->trouble());
    assert_int_equal(live.contexts, 0);
    assert_int_equal(live.streams, 0);
    assert_int_equal(live.events, 0);
    assert_int_equal(live.modules, 0);
    assert_int_equal(live.registrations, 0);
    assert_int_equal(live.allocations, 0);
    assert_int_equal(live.imported, 0);
    assert_int_equal(live.pushed, 0);
}

void cuda_fixture_begin(struct cuda_fixture *f, void *host, size_t size_bytes)
{
    assert_int_equal(cuda_fixture_open(f), GF_OK);
    assert_int_equal(gf_gpu_cuda.host_register(f->gpu, host, size_bytes), GF_OK);
}

void cuda_fixture_end(struct cuda_fixture *f, void *host)
{
    assert_int_equal(gf_gpu_cuda.host_unregister(f->gpu, host), GF_OK);
    cuda_fixture_close(f);
    cuda_fixture_clean(f);
}

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return (text != NULL) && (text[0] != '\0');
}

bool cuda_fixture_shares_queues(void)
{
    return is_set("GF_FAKE_CONNECTIONS") || is_set("CUDA_LAUNCH_BLOCKING");
}

bool cuda_fixture_drains(struct gf_queue *queue)
{
    for (uint32_t look = 0; look < LOOKS_MAX; look++)
        if (gf_gpu_cuda.finished(queue) == GF_OK) return true;
    return false;
}
