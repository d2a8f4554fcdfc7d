/* The fake CUDA driver: kernels of the SIMT emulator (the library's, gf-train's, the benchmark's),
 * and what a test adds. */
#include <stdlib.h>
#include <string.h>

#include "firmware-tests/cuda/fake_cuda_state.h"
#include "firmware-tests/cuda/simt.h"
#include "tools/train/train_kernels.h"

#define KERNELS_MAX 128u
#define BETWEEN_BLOCKS 20u

#define KERNEL_EXTERN(name) extern const struct gf_simt_kernel gf_simt_kernel_##name;
TRAIN_KERNELS(KERNEL_EXTERN)
KERNEL_EXTERN(sweep)

static struct fake_kernel kernels[KERNELS_MAX];
static uint32_t kernel_count;
static const struct work *current;

void fake_kernel_add(const char *name, size_t args_bytes, fake_cuda_kernel run)
{
    for (uint32_t i = 0; i < kernel_count; i++)
        if (strcmp(kernels[i].name, name) == 0) return;
    if ((kernel_count == KERNELS_MAX) || (args_bytes > ARGS_MAX)) abort();
    kernels[kernel_count++] = (struct fake_kernel){name, args_bytes, run};
}

const struct fake_kernel *fake_kernel_find(const char *name)
{
    for (uint32_t i = 0; i < kernel_count; i++)
        if (strcmp(kernels[i].name, name) == 0) return &kernels[i];
    const struct gf_simt_kernel *found = gf_simt_find(name);
    if (found == NULL) return NULL;
    fake_kernel_add(found->name, found->args_bytes, NULL);
    return &kernels[kernel_count - 1u];
}

__attribute__((constructor)) static void tools_kernels_add(void)
{
#define KERNEL_ADD(name) gf_simt_add(&gf_simt_kernel_##name);
    TRAIN_KERNELS(KERNEL_ADD)
    KERNEL_ADD(sweep)
}

void fake_kernel_touch(uint64_t address, size_t size_bytes, bool is_write)
{
    if ((current == NULL) || !fake_memory_touch(current, address, size_bytes, is_write))
        fake_trouble("a kernel touches 0x%llx, which is nobody's", (unsigned long long)address);
}

/* Of the kernel that runs: a device's memory that it touched first, and whether it touched
 * another's. */
static const struct region *its_memory;
static bool is_between;

static bool allowed(void *user, const void *address, size_t size_bytes, bool is_write)
{
    struct region *region = fake_region_at((uint64_t)(uintptr_t)address, size_bytes);
    if ((region != NULL) && (region->kind != REGION_HOST)) {
        is_between = is_between || ((its_memory != NULL) && (its_memory != region));
        its_memory = region;
    }
    return fake_region_touch(user, region, (uint64_t)(uintptr_t)address, size_bytes, is_write);
}

/* Tools have memory of their own beside the library's. */
bool fake_is_tools(const char *name)
{
#define KERNEL_NAME(name) "gf_kernel_" #name,
    static const char *const names[] = {TRAIN_KERNELS(KERNEL_NAME) "gf_kernel_sweep"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* While it runs it leaves the other multiprocessors to the appliance. */
static void grid_check(const struct work *work)
{
    const char *text = getenv("GF_FAKE_CUDA_BETWEEN");
    unsigned long most = (text != NULL) ? strtoul(text, NULL, 10) : BETWEEN_BLOCKS;
    if (is_between && (work->blocks > most) && !fake_is_tools(work->kernel->name))
        fake_trouble("%s, between devices, has %u blocks; allowed are %lu", work->kernel->name,
                     work->blocks, most);
}

bool fake_kernel_run(const struct work *work)
{
    current = work;
    if (work->kernel->run != NULL) {
        work->kernel->run(work->args, work->blocks, work->threads);
        current = NULL;
        return true;
    }
    union {
        const void *from;
        void *arg;
    } args = {.from = work->args};
    its_memory = NULL;
    is_between = false;
    bool watched = getenv("GF_FAKE_CUDA_UNWATCHED") == NULL;
    gf_simt_allow(allowed, (void *)(uintptr_t)work);
    gf_simt_watch(watched);
    if (!watched) fake_memory_open_all();
    int result = gf_simt_launch(work->kernel->name, work->blocks, work->threads, 0, &args.arg);
    gf_simt_allow(NULL, NULL);
    grid_check(work);
    current = NULL;
    if (result != 0) fake_trouble("%s", gf_simt_error());
    return result == 0;
}
