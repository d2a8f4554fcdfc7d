/* The fake CUDA driver: how its calls are found, and what tests find beside them. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "firmware-tests/cuda/fake_cuda_calls.h"

static struct fake_cuda_live fake_live(void)
{
    struct fake_cuda_live live = {.calls = fake_settings.calls};
    fake_contexts_count(&live);
    fake_modules_count(&live);
    fake_memory_count(&live);
    fake_queue_count(&live);
    return live;
}

/* With work that never ends, what waits for it is left to the end of the process. */
void fake_leaks_check(const char *when)
{
    const struct fake_cuda_live live = fake_live();
    if (fake_holds()) return;
    if (live.streams + live.events + live.modules + live.registrations + live.allocations +
            live.imported + live.pushed ==
        0)
        return;
    fake_trouble("%s: %u streams, %u events, %u modules, %u registrations, %u allocations and %u "
                 "of other processes are left, "
                 "%u contexts pushed",
                 when, live.streams, live.events, live.modules, live.registrations,
                 live.allocations, live.imported, live.pushed);
}

__attribute__((destructor)) static void at_exit(void)
{
    fake_leaks_check("end of the program");
    if (fake_trouble_text() == NULL) return;
    (void)fprintf(stderr, "fake cuda: %s\n", fake_trouble_text());
    (void)fflush(NULL);
    _exit(FAKE_CUDA_EXIT);
}

/* ---- what can be found ---- */

CUresult cuGetProcAddress_v2(const char *symbol, void **found_out, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *why_out)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } calls[] = {
#define CALL(name) {#name, (void (*)(void))name},
        FAKE_CALLS(CALL) FAKE_CALLS_OTHER(CALL)
#undef CALL
    };
    CUdriverProcAddressQueryResult nobody;
    if (why_out == NULL) why_out = &nobody;
    *found_out = NULL;
    *why_out = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    for (size_t i = 0; (i < sizeof calls / sizeof *calls) && (version <= fake_settings.version);
         i++) {
        if ((strcmp(calls[i].name, symbol) != 0) || fake_is_without(symbol)) continue;
        memcpy(found_out, &calls[i].function, sizeof *found_out);
        *why_out = CU_GET_PROC_ADDRESS_SUCCESS;
    }
    return CUDA_SUCCESS; /* also where there is none, as NVIDIA says it */
}

static const char *api_call_name(uint32_t index)
{
    static const char *const names[] = {
#define CALL_NAME(name) #name,
        FAKE_CALLS(CALL_NAME)
#undef CALL_NAME
    };
    return (index < sizeof names / sizeof *names) ? names[index] : NULL;
}

static void api_reset(void)
{
    fake_leaks_check("reset");
    fake_settings_read();
}

static uint64_t api_stream_create(void)
{
    CUstream stream = NULL;
    return (fake_stream_create(&stream, CONTEXT(0)) == CUDA_SUCCESS) ? (uint64_t)(uintptr_t)stream
                                                                     : 0;
}

static void api_stream_destroy(uint64_t stream)
{
    (void)fake_stream_destroy((CUstream)(uintptr_t)stream);
}

static void api_stream_run(uint64_t handle)
{
    uint32_t stream;
    if (fake_stream_find((CUstream)(uintptr_t)handle, &stream)) fake_run_stream(stream);
}

static void api_stream_hold(uint64_t handle)
{
    uint32_t stream;
    if (!fake_stream_find((CUstream)(uintptr_t)handle, &stream)) return;
    fake_hold(true);
    fake_queue_add(stream, &(struct work){.kind = WORK_HOLD});
}

static void api_stream_busy(uint64_t handle, uint64_t busy_ns)
{
    uint32_t stream;
    if (fake_stream_find((CUstream)(uintptr_t)handle, &stream)) {
        fake_queue_add(stream, &(struct work){.kind = WORK_BUSY, .busy_ns = busy_ns});
        fake_launched(stream);
    }
}

static uint64_t api_memory_take(size_t size_bytes)
{
    uint64_t address = 0;
    (void)fake_memory_take(&address, size_bytes);
    return address;
}

static void api_memory_give(uint64_t address)
{
    (void)fake_memory_give(address);
}

static uint64_t api_event_create(void)
{
    CUevent event = NULL;
    (void)fake_event_create(&event, CONTEXT(0), false);
    return (uint64_t)(uintptr_t)event;
}

static void api_event_destroy(uint64_t event)
{
    (void)fake_event_destroy((CUevent)(uintptr_t)event);
}

static void api_event_record(uint64_t event, uint64_t handle)
{
    uint32_t stream;
    if (fake_stream_find((CUstream)(uintptr_t)handle, &stream))
        (void)fake_event_record((CUevent)(uintptr_t)event, stream);
}

static void api_watch(void (*seen)(const char *what, int device))
{
    fake_watcher = seen;
}

static void api_stream_drop(uint64_t handle)
{
    uint32_t stream;
    if (fake_stream_find((CUstream)(uintptr_t)handle, &stream)) fake_stream_drop(stream);
}

static void api_release(void)
{
    fake_hold(false);
}

static void api_forget(void)
{
    fake_queue_forget();
    fake_memory_forget();
    fake_contexts_forget();
    fake_modules_forget();
    fake_capture_forget();
}

static void api_capture_begin(uint64_t stream)
{
    fake_capture_begin((CUstream)(uintptr_t)stream);
}

extern const struct fake_cuda_api fake_cuda_api;
const struct fake_cuda_api fake_cuda_api = {
    .reset = api_reset,
    .call_name = api_call_name,
    .trouble = fake_trouble_text,
    .failure_met = fake_failure_met,
    .live = fake_live,
    .launches = fake_launches,
    .copies = fake_copies,
    .kernel_add = fake_kernel_add,
    .touch = fake_kernel_touch,
    .stream_create = api_stream_create,
    .stream_destroy = api_stream_destroy,
    .stream_run = api_stream_run,
    .stream_hold = api_stream_hold,
    .release = api_release,
    .stream_busy = api_stream_busy,
    .memory_take = api_memory_take,
    .memory_give = api_memory_give,
    .event_create = api_event_create,
    .event_destroy = api_event_destroy,
    .event_record = api_event_record,
    .graph_busy = fake_graph_busy,
    .graph_copy = fake_graph_copy,
    .graph_record = fake_graph_record,
    .graph_launch = fake_graph_launch,
    .graph_forget = fake_graph_forget,
    .clock = fake_clock_set,
    .watch = api_watch,
    .stream_drop = api_stream_drop,
    .forget = api_forget,
    .capture_begin = api_capture_begin,
    .capture_end = fake_capture_end,
    .card_begin = fake_card_begin,
    .card_end = fake_card_end,
    .card_copy = fake_card_copy,
};
