/* Counts what the whole process allocates while steps run, UCX and its thread included, and names
 * who asked:
 *     gf-run -n 2 program_allocations [--steps N] [GROUP.KEY=VALUE ..]
 * over config/local.cfg and the demo's tensor table, after WARM_UP steps that do not count. The
 * allocator below stands in front of libc's for every object of the process. UCX is linked
 * dynamically here, so the object that a caller lies in says whose it is: what lies in the program
 * itself is the library, because this file allocates nothing between open and close. Prints "NAME
 * VALUE" lines, which test_allocations.sh judges. */
#include <dlfcn.h>
#include <execinfo.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "config/config.h"
#include "tools/common/tool_tensors.h"

#define WARM_UP 20u
#define FRAMES_MAX 24
#define STACKS_MAX 4096u
#define CALLERS_MAX 64u
#define CALLS_NAMED 5
#define GUARD_BYTES 65536u

/* ---- the allocator ---- */

extern const char __executable_start[], etext[];

struct stack {
    void *frames[FRAMES_MAX];
    int frame_count;
    void *caller; /* of the allocator */
};

/* All threads count, so all of it is atomic. */
static struct stack stacks[STACKS_MAX];
/* allocations while counting; those beyond STACKS_MAX have no stack */
static uint32_t stack_count;
static uint64_t program_count; /* asked for by this executable's own code while watching, */
static uint64_t mapping_count; /* .. and mapped by it: regions */
static bool counting, watching;
static _Thread_local bool inside; /* backtrace() may allocate */

static bool in_program(const void *code)
{
    return ((const char *)code >= __executable_start) && ((const char *)code < etext);
}

static void count_as(uint64_t *counter, void *caller)
{
    if (inside) return;
    if (__atomic_load_n(&watching, __ATOMIC_RELAXED) && in_program(caller))
        (void)__atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
    if (!__atomic_load_n(&counting, __ATOMIC_RELAXED)) return;
    uint32_t index = __atomic_fetch_add(&stack_count, 1, __ATOMIC_RELAXED);
    if (index >= STACKS_MAX) return;
    inside = true;
    stacks[index].frame_count = backtrace(stacks[index].frames, FRAMES_MAX);
    stacks[index].caller = caller;
    inside = false;
}

static __attribute__((noinline)) void count(void *caller)
{
    count_as(&program_count, caller);
}

#include "firmware-tests/support/counted_malloc.h"

/* Regions are mappings, and UCX's pools may grow by them. libc's own calls, as malloc's for large
 * blocks, do not come here. */
void *mmap(void *address, size_t size_bytes, int protection, int flags, int fd, off_t offset)
{
    count_as(&mapping_count, __builtin_return_address(0));
    return (void *)syscall(SYS_mmap, address, size_bytes, protection, flags, fd, offset);
}

/* ---- who asked ---- */

/* "libucs.so.0" of the object that holds address; info_out has its nearest exported symbol. */
static const char *object_of(const void *address, Dl_info *info_out)
{
    if ((dladdr(address, info_out) == 0) || (info_out->dli_fname == NULL)) return "unknown";
    const char *slash = strrchr(info_out->dli_fname, '/');
    return (slash != NULL) ? slash + 1 : info_out->dli_fname;
}

static bool is_libc(const char *object)
{
    return (strncmp(object, "libc.so", 7) == 0) || (strncmp(object, "ld-linux", 8) == 0);
}

typedef enum owner { OWNER_LIBRARY = 0, OWNER_UCX, OWNER_OTHER, OWNER_COUNT } owner;
static const char *const owner_names[OWNER_COUNT] = {"library", "ucx", "other"};

/* Whoever called libc, if it is libc that allocates; text_out names that caller and those above
 * it. */
static owner stack_read(const struct stack *stack, char *text_out, size_t text_bytes)
{
    owner found = OWNER_OTHER;
    size_t used = 0;
    int named = 0;
    int i = 0;
    while ((i < stack->frame_count) && (stack->frames[i] != stack->caller)) i++;
    text_out[0] = '\0';
    for (; (i < stack->frame_count) && (named < CALLS_NAMED); i++) {
        Dl_info info = {0};
        const char *object = object_of(stack->frames[i], &info);
        const char *symbol = (info.dli_sname != NULL) ? info.dli_sname : "?";
        const char *base = (info.dli_sname != NULL) ? info.dli_saddr : info.dli_fbase;
        if ((named == 0) && is_libc(object)) continue;
        if (named++ == 0) {
            bool ours = in_program(stack->frames[i]);
            found = ours                                 ? OWNER_LIBRARY
                    : (strncmp(object, "libuc", 5) == 0) ? OWNER_UCX
                                                         : OWNER_OTHER;
        }
        int length = snprintf(text_out + used, text_bytes - used, "%s%.*s:%s+%#tx",
                              used ? " < " : "", (int)strcspn(object, "."), object, symbol,
                              (const char *)stack->frames[i] - base);
        if ((length < 0) || (used + (size_t)length >= text_bytes)) break;
        used += (size_t)length;
    }
    return found;
}

static void callers_print(uint32_t first, uint32_t end)
{
    static struct {
        char text[400];
        owner owner;
        uint32_t calls;
    } callers[CALLERS_MAX];
    uint32_t caller_count = 0;
    uint32_t calls[OWNER_COUNT] = {0};
    uint32_t unnamed = 0;
    for (uint32_t i = first; i < end; i++) {
        char text[sizeof callers[0].text];
        uint32_t c = 0;
        if (i >= STACKS_MAX) {
            unnamed += end - i;
            break;
        }
        owner owner = stack_read(&stacks[i], text, sizeof text);
        calls[owner]++;
        while ((c < caller_count) && (strcmp(callers[c].text, text) != 0)) c++;
        if (c == CALLERS_MAX) {
            unnamed++;
            continue;
        }
        if (c == caller_count) {
            memcpy(callers[c].text, text, sizeof text);
            callers[c].owner = owner;
            caller_count++;
        }
        callers[c].calls++;
    }
    for (uint32_t o = 0; o < OWNER_COUNT; o++) printf("from_%s %u\n", owner_names[o], calls[o]);
    printf("from_unnamed %u\n", unnamed);
    for (uint32_t c = 0; c < caller_count; c++)
        printf("caller %s %u %s\n", owner_names[callers[c].owner], callers[c].calls,
               callers[c].text);
}

/* ---- steps ---- */

static int refuse(const char *what, const char *why)
{
    (void)fprintf(stderr, "program_allocations: %s: %s\n", what, why);
    return EXIT_FAILURE;
}

/* Which chunks weigh most changes from step to step. */
static gf_status step_run(gf_context *gf, uint32_t step)
{
    static const float weights[] = {0x1p-12f, 0x1p-11f, 0x1p-13f, 0x1p-10f,
                                    0x1p-14f, 0x1p-9f,  0x1p-15f, 0x1p-8f};
    gf_status status = gf_step_begin(gf);
    for (uint32_t t = 0; (t < TOOL_TENSOR_COUNT) && (status >= 0); t++) {
        float *gradient = (float *)(uintptr_t)gf_gradient(gf, t);
        for (uint64_t i = 0; i < tool_tensors[t].elem_count; i++)
            gradient[i] = weights[((i >> 12) + step) % 8];
        status = gf_tensor_ready(gf, t, 0);
        if (status >= 0) status = gf_step_poll(gf);
    }
    if (status >= 0) status = gf_step_wait(gf);
    return (status < 0) ? status : gf_update(gf, 0x1p-10f);
}

static gf_status steps_run(gf_context *gf, uint32_t step_count)
{
    uint32_t none = 0;
    uint32_t first_bad = 0;
    uint32_t last_bad = 0;
    uint32_t before;
    uint32_t worst = 0;
    gf_status status = GF_OK;
    for (uint32_t s = 0; (s < WARM_UP) && (status >= 0); s++) status = step_run(gf, s);
    __atomic_store_n(&counting, true, __ATOMIC_SEQ_CST);
    for (uint32_t s = 0; (s < step_count) && (status >= 0); s++) {
        before = __atomic_load_n(&stack_count, __ATOMIC_SEQ_CST);
        status = step_run(gf, WARM_UP + s);
        uint32_t made = __atomic_load_n(&stack_count, __ATOMIC_SEQ_CST) - before;
        if (made > worst) worst = made;
        if (made == 0) {
            none++;
            continue;
        }
        if (first_bad == 0) first_bad = s + 1;
        last_bad = s + 1;
    }
    __atomic_store_n(&counting, false, __ATOMIC_SEQ_CST);
    if (status < 0) return status;
    printf("steps %u\nsteps_with_none %u\nallocations %u\nmost_in_a_step %u\nfirst_step_with "
           "%u\nlast_step_with %u\n",
           step_count, none, stack_count, worst, first_bad, last_bad);
    callers_print(0, stack_count);
    return GF_OK;
}

/* That the counter would have seen them: an allocation of this file's, and those of UCX for reading
 * its settings. */
static void counter_prove(void)
{
    uint32_t before = stack_count;
    void *volatile taken;
    ucp_config_t *settings = NULL;
    counting = true;
    taken = malloc(8);
    ucs_status_t status = ucp_config_read(NULL, NULL, &settings);
    counting = false;
    free(taken);
    if (status == UCS_OK) ucp_config_release(settings);
    uint32_t seen[OWNER_COUNT] = {0};
    for (uint32_t i = before; (i < stack_count) && (i < STACKS_MAX); i++) {
        char text[400];
        seen[stack_read(&stacks[i], text, sizeof text)]++;
    }
    printf("seen_of_program %u\nseen_of_ucx %u\n", seen[OWNER_LIBRARY], seen[OWNER_UCX]);
}

/* ---- memory ---- */

/* The line of /proc/self/maps that holds address: how many bytes it spans. */
static uint64_t mapping_bytes(gf_mem address)
{
    char line[512];
    uint64_t first;
    uint64_t end;
    uint64_t found = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while ((maps != NULL) && (fgets(line, sizeof line, maps) != NULL))
        if ((sscanf(line, "%" SCNx64 "-%" SCNx64, &first, &end) == 2) && (first <= address) &&
            (address < end))
            found = end - first;
    if (maps != NULL) (void)fclose(maps);
    return found;
}

static uint64_t guard_changes(const unsigned char *guard)
{
    uint64_t changed = 0;
    for (uint32_t i = 0; i < GUARD_BYTES; i++) changed += (guard[i] != 0xa5);
    return changed;
}

static void log_print(void *user, gf_log_level level, const char *text)
{
    if (level <= GF_LOG_WARN) (void)fprintf(stderr, "%s\n", text);
}

static int arguments_read(int argc, char **argv, struct gf_config *config, uint32_t *steps_out)
{
    static char error[GF_CONFIG_ERROR_BYTES];
    if (gf_config_load("config/local.cfg", config, error) != GF_OK)
        return refuse("config/local.cfg", error);
    for (int i = 1; i < argc; i++) {
        const char *text = argv[i];
        if ((strcmp(argv[i], "--steps") == 0) && (i + 1 < argc)) {
            *steps_out = (uint32_t)strtoul(argv[++i], NULL, 10);
            continue;
        }
        if (gf_config_set_all(config, &text, 1, "program_allocations", error) != GF_OK)
            return refuse(text, error);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct gf_config config;
    struct gf_footprint need;
    struct gf_stats stats = {.size_bytes = sizeof stats};
    gf_context *gf = NULL;
    uint32_t step_count = 1000;
    void *prime[4];
    if (arguments_read(argc, argv, &config, &step_count) != 0) return EXIT_FAILURE;
    config.log = log_print;
    if (gf_measure(&config, tool_tensors, TOOL_TENSOR_COUNT, &need) != GF_OK)
        return refuse("gf_measure", "refused");
    unsigned char *memory = aligned_alloc(64, need.control_bytes + 2 * GUARD_BYTES);
    if (memory == NULL) return refuse("memory", "there is none");
    memset(memory, 0xa5, need.control_bytes + 2 * GUARD_BYTES);
    (void)backtrace(prime, 4); /* loads libgcc the first time */
    (void)setvbuf(stdout, NULL, _IOLBF, 0);

    watching = true;
    gf_status status = gf_open(&config, tool_tensors, TOOL_TENSOR_COUNT, memory + GUARD_BYTES,
                               need.control_bytes, &gf);
    if (status >= 0) status = gf_open_wait(gf);
    if (status >= 0) status = steps_run(gf, step_count);
    watching = false;
    if (status >= 0) status = gf_stats_read(gf, &stats);
    if (status < 0)
        return refuse(gf_status_name(status),
                      (gf != NULL) ? gf_error_last(gf)->text : "no context");
    printf("from_program_since_open %" PRIu64 "\n", program_count);
    printf("steps_skipped %" PRIu64 "\nwire_bytes %" PRIu64 "\nmapped_bytes %" PRIu64 "\n",
           stats.steps_skipped, stats.wire_bytes, stats.mapped_bytes);
    printf("foreign_bytes %" PRIu64 "\ncontrol_bytes %" PRIu64 "\nexchange_bytes %" PRIu64 "\n",
           stats.foreign_bytes, need.control_bytes, need.exchange_bytes);
    printf("exchange_mapped %" PRIu64 "\n", mapping_bytes(gf_gradient(gf, 0)));
    watching = true;
    status = gf_close(gf);
    watching = false;
    if (status < 0) return refuse("gf_close", gf_status_name(status));
    printf("from_program_until_closed %" PRIu64 "\n", program_count);
    printf("mapped_by_program %" PRIu64 "\n", mapping_count);
    printf("guard_changes %" PRIu64 "\n",
           guard_changes(memory) + guard_changes(memory + GUARD_BYTES + need.control_bytes));
    counter_prove();
    free(memory);
    return EXIT_SUCCESS;
}
