/* CUDA driver, host memory that cuMemHostRegister() refuses (a container without the right to lock
 * memory, a sandbox): copies pass through as many bytes that the CUDA driver allocates, the mirror,
 * and the CPU copies between the two:
 *
 *     to the device    when it is queued: host -> mirror; then the stream: mirror -> device
 *     from the device  the stream: device -> mirror, and an event after it; once the CPU has seen
 *                      the end of anything later, mirror -> host
 *
 * A caller that reads what came back has asked event_query() or finished() before, and finds it
 * there. A kernel that writes to host memory is given the mirror, and a copy from there to what it
 * mirrors is the event alone. */
#include <string.h>

#include "drivers/base/clock.h"
#include "drivers/cuda/gpu_cuda.h"

/* The mirror's address of a host address, whose bytes lie in one range; NULL: in none. */
static char *mirror_of(const struct cuda_gpu *cuda, gf_mem at, size_t size_bytes)
{
    for (uint32_t i = 0; i < CUDA_STAGED_MAX; i++) {
        const struct cuda_staged *range = &cuda->staged[i];
        const gf_mem base = (gf_mem)(uintptr_t)range->base;
        if ((range->mirror == NULL) || (at < base) || (at - base >= range->size_bytes)) continue;
        GF_ASSERT(at - base + size_bytes <= range->size_bytes);
        return range->mirror + (at - base);
    }
    return NULL;
}

gf_mem gf_cuda_stage_reach(struct gf_gpu *gpu, gf_mem host)
{
    const char *mirror = cuda_of(gpu)->stages ? mirror_of(cuda_of(gpu), host, 1) : NULL;
    return (mirror != NULL) ? (gf_mem)(uintptr_t)mirror : host;
}

/* All of them, once: nothing is made after gf_open(). */
static gf_status events_take(struct cuda_gpu *cuda)
{
    gf_status status = GF_OK;
    for (uint32_t i = 0; (i < CUDA_ARRIVALS_MAX) && (status >= 0); i++)
        if (cuda->arrivals[i].event == NULL)
            status =
                CUDA_TOLD(cuda, event_create, &cuda->arrivals[i].event, CU_EVENT_DISABLE_TIMING);
    return status;
}

static struct cuda_arrival *arrival_at(struct cuda_gpu *cuda, uint32_t number)
{
    return &cuda->arrivals[number % CUDA_ARRIVALS_MAX];
}

gf_status gf_cuda_stage_arrived(struct cuda_gpu *cuda)
{
    while (cuda->arrivals_first != cuda->arrivals_end) {
        struct cuda_arrival *arrival = arrival_at(cuda, cuda->arrivals_first);
        gf_status status = arrival->is_over ? GF_OK : CUDA_TOLD(cuda, event_query, arrival->event);
        if (status != GF_OK) break;
        memcpy(arrival->host, arrival->mirror, arrival->size_bytes);
        cuda->arrivals_first++;
    }
    /* Streams end as they like: of those after the first that is under way, too. */
    for (uint32_t n = cuda->arrivals_first; n != cuda->arrivals_end; n++) {
        struct cuda_arrival *arrival = arrival_at(cuda, n);
        if (arrival->is_over) continue;
        gf_status status = CUDA_TOLD(cuda, event_query, arrival->event);
        if (status < 0) return status;
        if (status != GF_OK) continue;
        memcpy(arrival->host, arrival->mirror, arrival->size_bytes);
        arrival->is_over = true;
        arrival->size_bytes = 0;
    }
    return GF_OK;
}

/* Room for one more copy; they are few, so that it waits for next to nothing. */
static gf_status slot_await(struct cuda_gpu *cuda)
{
    const uint64_t end_ns = gf_clock_monotonic.now_ns(NULL) + cuda->idle_ns;
    while (cuda->arrivals_end - cuda->arrivals_first == CUDA_ARRIVALS_MAX) {
        gf_status status = gf_cuda_stage_arrived(cuda);
        if (status < 0) return status;
        if (gf_clock_monotonic.now_ns(NULL) > end_ns)
            return gf_fault_set(&cuda->gpu.fault, GF_ERR_DEVICE, GF_RANK_NONE, "", 0,
                                "device %d: %u copies to host memory do not end", (int)cuda->device,
                                CUDA_ARRIVALS_MAX);
    }
    return GF_OK;
}

/* The copy under way that will fill the first of these bytes to be filled by any; NULL: none
 * will. */
static const struct cuda_arrival *first_arrival(struct cuda_gpu *cuda, const char *host,
                                                size_t size_bytes)
{
    const struct cuda_arrival *first = NULL;
    for (uint32_t n = cuda->arrivals_first; n != cuda->arrivals_end; n++) {
        const struct cuda_arrival *arrival = arrival_at(cuda, n);
        if (arrival->is_over || (arrival->host >= host + size_bytes) ||
            (host >= arrival->host + arrival->size_bytes))
            continue;
        if ((first == NULL) || (arrival->host < first->host)) first = arrival;
    }
    return first;
}

/* To the mirror, all but what copies that are under way will fill: the stream has that there before
 * it reads. */
static void mirror_bring(struct cuda_gpu *cuda, char *mirror, const char *host, size_t size_bytes)
{
    const struct cuda_arrival *arrival;
    while ((arrival = first_arrival(cuda, host, size_bytes)) != NULL) {
        const size_t before = (arrival->host > host) ? (size_t)(arrival->host - host) : 0;
        const size_t covered = (size_t)(arrival->host + arrival->size_bytes - host);
        memcpy(mirror, host, before);
        if (covered >= size_bytes) return;
        host += covered;
        mirror += covered;
        size_bytes -= covered;
    }
    memcpy(mirror, host, size_bytes);
}

gf_status gf_cuda_stage_copy(struct cuda_gpu *cuda, CUstream stream, gf_mem dst, gf_mem src,
                             size_t size_bytes)
{
    char *to = mirror_of(cuda, dst, size_bytes);
    char *from = mirror_of(cuda, src, size_bytes);
    gf_status status;
    if (from != NULL) {
        mirror_bring(cuda, from, (const char *)(uintptr_t)src, size_bytes);
        src = (gf_mem)(uintptr_t)from;
    }
    if (to == NULL) return CUDA_TOLD(cuda, copy, dst, src, size_bytes, stream);
    if ((status = slot_await(cuda)) < 0) return status;
    struct cuda_arrival *arrival = arrival_at(cuda, cuda->arrivals_end);
    if (src != (gf_mem)(uintptr_t)to)
        status = CUDA_TOLD(cuda, copy, (CUdeviceptr)(uintptr_t)to, src, size_bytes, stream);
    if (status >= 0) status = CUDA_TOLD(cuda, event_record, arrival->event, stream);
    if (status < 0) return status;
    arrival->host = (char *)(uintptr_t)dst;
    arrival->mirror = to;
    arrival->size_bytes = size_bytes;
    arrival->is_over = false;
    cuda->arrivals_end++;
    return GF_OK;
}

static bool is_staged(const struct cuda_gpu *cuda)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < CUDA_STAGED_MAX; i++) count += cuda->staged[i].mirror != NULL;
    return count > 0;
}

gf_status gf_cuda_stage_add(struct cuda_gpu *cuda, void *base, size_t size_bytes)
{
    struct cuda_staged *range = NULL;
    const struct gf_fault refused = cuda->gpu.fault;
    void *mirror = NULL;
    for (uint32_t i = 0; i < CUDA_STAGED_MAX; i++)
        if (cuda->staged[i].mirror == NULL) range = &cuda->staged[i];
    if (range == NULL) return GF_ERR_DEVICE;
    cuda->gpu.fault = (struct gf_fault){.peer = GF_RANK_NONE};
    gf_status status = events_take(cuda);
    if (status >= 0)
        status = CUDA_TOLD(cuda, host_take, &mirror, size_bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (status < 0) {
        gf_log_line(&cuda->log, GF_LOG_WARN, "%s", refused.text); /* why it was asked for */
        return status;
    }
    *range = (struct cuda_staged){.base = base, .mirror = mirror, .size_bytes = size_bytes};
    cuda->stages = true;
    if (!cuda->staging_logged)
        gf_log_line(&cuda->log, GF_LOG_WARN,
                    "%s: copies pass through %zu bytes that the CUDA driver allocates, which "
                    "costs a copy by the CPU each way; where memory may be locked (ulimit -l, "
                    "privileges of a container) none is needed",
                    refused.text, size_bytes);
    cuda->staging_logged = true;
    return GF_OK;
}

bool gf_cuda_stage_remove(struct cuda_gpu *cuda, void *base)
{
    for (uint32_t i = 0; i < CUDA_STAGED_MAX; i++) {
        struct cuda_staged *range = &cuda->staged[i];
        if ((range->mirror == NULL) || (range->base != base)) continue;
        (void)gf_cuda_stage_arrived(cuda);
        CUDA_GIVEN(cuda, host_give, range->mirror);
        *range = (struct cuda_staged){.mirror = NULL};
        cuda->stages = is_staged(cuda);
        return true;
    }
    return false;
}

void gf_cuda_stage_give(struct cuda_gpu *cuda)
{
    for (uint32_t i = 0; i < CUDA_STAGED_MAX; i++)
        if (cuda->staged[i].mirror != NULL) CUDA_GIVEN(cuda, host_give, cuda->staged[i].mirror);
    for (uint32_t i = 0; i < CUDA_ARRIVALS_MAX; i++)
        if (cuda->arrivals[i].event != NULL)
            CUDA_GIVEN(cuda, event_destroy, cuda->arrivals[i].event);
}
