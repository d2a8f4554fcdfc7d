/* The fake CUDA driver: trouble, planned failures and the seed. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "firmware-tests/cuda/fake_cuda_state.h"
#include "firmware-tests/cuda/simt.h"

#define CALL_NAMES_MAX 64u

static char trouble[400];
static CUresult staying;
struct fake_settings fake_settings;
static uint64_t random_state;
static char fail_call[64], without[256];
static uint64_t fail_at;
static bool fail_met;
static int fail_result;
static struct {
    const char *name;
    uint64_t count;
} counts[CALL_NAMES_MAX];

void fake_trouble(const char *format, ...)
{
    va_list arguments;
    if (trouble[0] != '\0') return;
    va_start(arguments, format);
    (void)vsnprintf(trouble, sizeof trouble, format, arguments);
    va_end(arguments);
}

const char *fake_trouble_text(void)
{
    return (trouble[0] != '\0') ? trouble : NULL;
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return ((text != NULL) && (text[0] != '\0')) ? strtoull(text, NULL, 0) : otherwise;
}

__attribute__((constructor)) void fake_settings_read(void)
{
    const char *fail = getenv("GF_FAKE_CUDA_FAIL");
    const char *absent = getenv("GF_FAKE_CUDA_WITHOUT");
    trouble[0] = '\0';
    staying = CUDA_SUCCESS;
    memset(counts, 0, sizeof counts);
    uint64_t seed = number_of("GF_FAKE_CUDA_SEED", 0);
    random_state = seed * 2u + 1u;
    fake_settings =
        (struct fake_settings){.version = (int)number_of("GF_FAKE_CUDA_VERSION", 13000),
                               .memory_bytes = number_of("GF_FAKE_CUDA_MEMORY", 4ull << 30),
                               .refused = number_of("GF_FAKE_CUDA_NO_REGISTER", 0),
                               .is_eager = seed % 2u != 0,
                               .is_blocking = number_of("CUDA_LAUNCH_BLOCKING", 0) != 0,
                               .connections = (uint32_t)number_of("GF_FAKE_CONNECTIONS", 0)};
    fake_connections_draw();
    (void)snprintf(without, sizeof without, "%s", absent ? absent : "");
    fail_call[0] = '\0';
    fail_at = 0;
    fail_met = false;
    gf_simt_seed(random_state);
    if ((fail == NULL) || (fail[0] == '\0')) return;
    unsigned long long at = 0;
    if (sscanf(fail, "%63[^:]:%llu:%d", fail_call, &at, &fail_result) != 3)
        fake_trouble("GF_FAKE_CUDA_FAIL=%s: allowed is CALL:NUMBER:RESULT", fail);
    fail_at = at;
}

bool fake_is_without(const char *call)
{
    return strcmp(without, call) == 0;
}

bool fake_is_lost(void)
{
    return staying != CUDA_SUCCESS;
}

bool fake_failure_met(void)
{
    return fail_met;
}

/* xorshift64* */
uint32_t fake_random(uint32_t below)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * 0x2545f4914f6cdd1dull) >> 33) % below;
}

void fake_stay(CUresult result)
{
    if (staying == CUDA_SUCCESS) staying = result;
}

/* A context that met one of these is lost: memory that could not be corrected, a link to a peer
 * that failed, and what a kernel may end with; and what nobody knows. */
static bool stays(int result)
{
    static const int list[] = {CUDA_ERROR_ECC_UNCORRECTABLE,
                               CUDA_ERROR_NVLINK_UNCORRECTABLE,
                               CUDA_ERROR_ILLEGAL_ADDRESS,
                               CUDA_ERROR_LAUNCH_TIMEOUT,
                               CUDA_ERROR_ASSERT,
                               CUDA_ERROR_HARDWARE_STACK_ERROR,
                               CUDA_ERROR_ILLEGAL_INSTRUCTION,
                               CUDA_ERROR_MISALIGNED_ADDRESS,
                               CUDA_ERROR_INVALID_ADDRESS_SPACE,
                               CUDA_ERROR_INVALID_PC,
                               CUDA_ERROR_LAUNCH_FAILED,
                               721,
                               CUDA_ERROR_UNKNOWN};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i] == result) return true;
    return false;
}

static uint64_t count_up(const char *call)
{
    for (uint32_t i = 0; i < CALL_NAMES_MAX; i++) {
        if (counts[i].name == NULL) counts[i].name = call;
        if (strcmp(counts[i].name, call) == 0) return ++counts[i].count;
    }
    abort();
}

static void met(void)
{
    const char *path = getenv("GF_FAKE_CUDA_MET");
    FILE *file = (path != NULL) ? fopen(path, "w") : NULL;
    fail_met = true;
    if (file != NULL) (void)fclose(file);
}

void (*fake_watcher)(const char *what, int device);

void fake_tell(const char *what)
{
    CUcontext current = fake_current();
    for (int device = 0; (fake_watcher != NULL) && (device < FAKE_CUDA_DEVICES); device++)
        if (current == CONTEXT(device)) fake_watcher(what, device);
}

CUresult fake_enter(const char *call)
{
    fake_tell(call);
    uint64_t count = count_up(call);
    fake_settings.calls++;
    fake_run_some();
    if ((fail_at != 0) && (count == fail_at) && (strcmp(call, fail_call) == 0)) {
        met();
        if (stays(fail_result)) fake_stay((CUresult)fail_result);
        return (CUresult)fail_result;
    }
    return staying;
}
