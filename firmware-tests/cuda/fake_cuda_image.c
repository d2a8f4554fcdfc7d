/* The fake CUDA driver: images of kernels. A fat binary is a header, then entries, each machine
 * code of one architecture, or PTX; layout as `cuobjdump --list-elf` and a look at what nvcc makes
 * show it. */
#include <stdlib.h>
#include <string.h>

#include "firmware-tests/cuda/fake_cuda_state.h"

#define KIND_PTX 1u
#define KIND_ELF 2u

struct entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t more[3], arch;
};

uint32_t fake_arch(void)
{
    const char *arch = getenv("GF_FAKE_CUDA_SM");
    return (arch != NULL) ? (uint32_t)strtoul(arch, NULL, 10) : 90u;
}

static bool usable(const struct entry *entry)
{
    const uint32_t own = fake_arch();
    if (entry->kind == KIND_PTX) return entry->arch <= own;
    return (entry->kind == KIND_ELF) && (entry->arch / 10 == own / 10) && (entry->arch <= own);
}

CUresult fake_image_check(const void *image)
{
    struct fake_cuda_image header;
    struct entry entry;
    const char *at = image;
    bool any = false;
    memcpy(&header.magic, at, sizeof header.magic);
    if (header.magic != FAKE_CUDA_FATBIN) return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&header, at, sizeof header);
    if ((header.version != 1) || (header.header_bytes != sizeof header))
        return CUDA_ERROR_INVALID_IMAGE;
    if (header.bytes == 0) return CUDA_SUCCESS; /* a test's own */
    for (uint64_t used = 0; used < header.bytes; used += entry.header_bytes + entry.bytes) {
        if (header.bytes - used < sizeof entry) return CUDA_ERROR_INVALID_IMAGE;
        memcpy(&entry, at + sizeof header + used, sizeof entry);
        if ((entry.header_bytes < sizeof entry) || (entry.bytes > header.bytes - used))
            return CUDA_ERROR_INVALID_IMAGE;
        any = any || usable(&entry);
    }
    return any ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}
