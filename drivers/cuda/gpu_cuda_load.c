/* The CUDA driver: libcuda is loaded at run time, so that one binary runs with and without a
 * GPU. */
#include <dlfcn.h>
#include <string.h>
#include <sys/stat.h>

#include "drivers/cuda/gpu_cuda.h"

typedef __typeof__(&cuGetProcAddress_v2) cuda_finder;

/* What to do about results that a set-up causes; empty where nothing is known. */
static const char *remedy(CUresult result)
{
    switch ((int)result) {
    case 46: return ": in exclusive-process mode one process has a GPU: nvidia-smi -c DEFAULT";
    case 100: return ": no /dev/nvidia* for this process, or CUDA_VISIBLE_DEVICES hides it";
    case 217: return ": no peer access: MIG, PCIe ACS or an IOMMU stands between the GPUs";
    case 801: return ": MIG, and some virtual GPUs, do not have this";
    case 802: return ": start nvidia-fabricmanager, of the driver's own version";
    case 803: return ": libcuda and the kernel's module are of two versions: reboot";
    case 804: return ": this GPU takes no compatibility libcuda: use the driver's own";
    default: return "";
    }
}

gf_status gf_cuda_result(struct cuda_gpu *cuda, CUresult result, const char *call,
                         struct gf_fault *fault_out)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS) return GF_OK;
    if (result == CUDA_ERROR_NOT_READY) return GF_AGAIN;
    if (cuda->calls.error_name != NULL) (void)cuda->calls.error_name(result, &name);
    return gf_fault_set(fault_out, GF_ERR_DEVICE, GF_RANK_NONE, call, result,
                        "device %d: %s failed: %s (%d)%s", (int)cuda->device, call,
                        name ? name : "unknown to this CUDA driver", (int)result, remedy(result));
}

static gf_status symbol_missing(struct cuda_gpu *cuda, const char *library, const char *symbol,
                                CUresult result)
{
    return gf_fault_set(
        &cuda->gpu.fault, GF_ERR_DEVICE, GF_RANK_NONE, "cuGetProcAddress", result,
        "device.library \"%.80s\" has no %s: it is no CUDA driver, or older than CUDA %d.%d",
        library, symbol, CUDA_VERSION_MIN / 1000, CUDA_VERSION_MIN % 1000 / 10);
}

/* A call as of this version of CUDA; NULL: this driver has none. */
static void *symbol_find(const struct cuda_gpu *cuda, const char *name, int version,
                         CUresult *result_out)
{
    CUdriverProcAddressQueryResult why = CU_GET_PROC_ADDRESS_SUCCESS;
    cuda_finder find;
    void *found = dlsym(cuda->handle, "cuGetProcAddress_v2");
    /* a void * that is a function, without a cast that ISO C forbids */
    memcpy(&find, &found, sizeof find);
    found = NULL;
    *result_out = find(name, &found, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &why);
    return (*result_out == CUDA_SUCCESS) ? found : NULL;
}

#define CUDA_CALL_NAMED(member, name, symbol) .member = name,
const struct cuda_names gf_cuda_names = {CUDA_CALLS(CUDA_CALL_NAMED)};
_Static_assert(sizeof gf_cuda_names == sizeof(struct cuda_calls), "a name a call");

static gf_status symbols_find(struct cuda_gpu *cuda, const char *library)
{
    const char *const *names = (const void *)&gf_cuda_names;
    void **calls = (void *)&cuda->calls;
    CUresult result = CUDA_SUCCESS;
    if (dlsym(cuda->handle, "cuGetProcAddress_v2") == NULL)
        return symbol_missing(cuda, library, "cuGetProcAddress_v2", result);
    for (size_t i = 0; i < sizeof gf_cuda_names / sizeof *names; i++)
        if ((calls[i] = symbol_find(cuda, names[i], CUDA_VERSION_MIN, &result)) == NULL)
            return symbol_missing(cuda, library, names[i], result);
    return GF_OK;
}

/* Of a call that not every driver has; NULL in *member_out: this one has it not, or is older than
 * `since`. */
static void symbol_find_newer(struct cuda_gpu *cuda, int version, const char *name, int since,
                              void *member_out)
{
    CUresult result;
    void *found = (version >= since) ? symbol_find(cuda, name, since, &result) : NULL;
    memcpy(member_out, &found, sizeof found);
}

/* dlopen() opens what a path names, and would wait for the other end of a FIFO. */
static bool is_irregular(const char *library)
{
    struct stat about;
    return (strchr(library, '/') != NULL) && (stat(library, &about) == 0) &&
           !S_ISREG(about.st_mode);
}

gf_status gf_cuda_load(struct cuda_gpu *cuda, const char *library)
{
    int version = 0;
    if ((library == NULL) || (library[0] == '\0')) library = CUDA_DEFAULT_LIBRARY;
    if (is_irregular(library))
        return gf_fault_set(&cuda->gpu.fault, GF_ERR_DEVICE, GF_RANK_NONE, "dlopen", 0,
                            "device.library %.140s: is not a regular file", library);
    cuda->handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (cuda->handle == NULL) {
        const char *why = dlerror();
        return gf_fault_set(&cuda->gpu.fault, GF_ERR_DEVICE, GF_RANK_NONE, "dlopen", 0,
                            "device.library: there is no CUDA driver: %.140s", why ? why : library);
    }
    gf_status status = symbols_find(cuda, library);
    if (status >= 0) status = CUDA_TOLD(cuda, driver_version, &version);
    if (status < 0) return status;
    cuda->gpu.version = (uint32_t)version;
    symbol_find_newer(cuda, version, "cuCtxRecordEvent", CUDA_VERSION_RECORD,
                      &cuda->context_record);
    return GF_OK;
}

/* After cuInit() its threads and handlers live on: nothing is closed under them. */
void gf_cuda_unload(struct cuda_gpu *cuda)
{
    if ((cuda->handle != NULL) && !cuda->begun) (void)dlclose(cuda->handle);
    cuda->handle = NULL;
}
