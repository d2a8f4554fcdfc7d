/* The fake CUDA driver: gf-train's kernels and the benchmark's, beside those of the library. */
#include "tools/train/train_kernels.h"
#include "firmware-tests/cuda/simt.h"

#define KERNEL_EXTERN(name) extern const struct gf_simt_kernel gf_simt_kernel_##name;
TRAIN_KERNELS(KERNEL_EXTERN)
KERNEL_EXTERN(sweep)

__attribute__((constructor)) static void kernels_add(void)
{
#define KERNEL_ADD(name) gf_simt_add(&gf_simt_kernel_##name);
    TRAIN_KERNELS(KERNEL_ADD)
    KERNEL_ADD(sweep)
}
