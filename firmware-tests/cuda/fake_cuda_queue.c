/* The fake CUDA driver: streams, events, and when work is really done. The seed decides whose turn
 * it is; one stream is preferred for a while, so that it may run far ahead of the others.
 *
 * Two orders are kept apart. In which work really runs is drawn: a queue a stream, and can_run().
 * What must come before what is told by clocks: clock.at[s] is how many works of stream s are
 * surely over before a work starts, as stream order, events and what the host saw say.
 * Memory (fake_cuda_memory.c) is judged by clocks alone, so an order that is missing is found even
 * where the works happened to run in it. */
#include <stdlib.h>
#include <string.h>

#include "firmware-tests/cuda/fake_cuda_state.h"

#define PREFERRED_TURNS 24u

struct CUstream_st {
    bool live;
    CUcontext context;   /* NULL: any */
    uint32_t connection; /* of the context's, below fake_settings.connections */
    uint64_t queued, done;
    struct clock clock;
    struct work *head, *tail;
};
struct CUevent_st {
    bool live, recorded, timed, of_all; /* of_all: of every stream */
    CUcontext context;
    uint32_t stream;
    uint64_t done; /* reached when the stream has done that many */
    uint64_t all[STREAMS_MAX];
    struct clock clock;
};

static struct CUstream_st streams[STREAMS_MAX] = {{.live = true}, {.live = true}};
static struct CUevent_st events[EVENTS_MAX];
static struct clock seen; /* what the host saw end: all that is queued from here on is behind it */
static uint64_t tickets;  /* given so far */
static bool held;         /* holds do not end */
static bool running;      /* the fake is at work: calls that a kernel made would be wrong */

void fake_clock_join(struct clock *clock, const struct clock *other)
{
    for (uint32_t i = 0; i < STREAMS_MAX; i++)
        if (other->at[i] > clock->at[i]) clock->at[i] = other->at[i];
}

static bool overlap(uint64_t a, size_t a_bytes, uint64_t b, size_t b_bytes)
{
    return (a < b + b_bytes) && (b < a + a_bytes);
}

/* Whether work that waits may still want these bytes as they are. A kernel might want any. */
static bool is_wanted(uint64_t address, size_t size_bytes)
{
    for (uint32_t s = 0; s < STREAMS_MAX; s++) {
        for (const struct work *work = streams[s].head; work != NULL; work = work->next) {
            if ((work->kind == WORK_KERNEL) ||
                overlap(work->dst, work->size_bytes, address, size_bytes) ||
                overlap(work->src, work->size_bytes, address, size_bytes))
                return true;
        }
    }
    return false;
}

static void poison(const struct work *work)
{
    if ((work->kind != WORK_COPY) || !fake_is_host(work->dst, work->size_bytes)) return;
    if (overlap(work->dst, work->size_bytes, work->src, work->size_bytes)) return;
    memset((void *)(uintptr_t)work->dst, FAKE_CUDA_POISON, work->size_bytes);
}

void fake_queue_add(uint32_t stream, const struct work *like)
{
    struct CUstream_st *to = &streams[stream];
    struct work *work = malloc(sizeof *work);
    if (work == NULL) abort();
    *work = *like;
    work->next = NULL;
    work->stream = stream;
    work->ticket = ++tickets;
    work->queued_ns = fake_now_ns();
    fake_clock_join(&to->clock, &seen);
    to->clock.at[stream]++;
    work->clock = to->clock;
    if (!is_wanted(work->dst, work->size_bytes)) poison(work);
    if (to->tail != NULL)
        to->tail->next = work;
    else
        to->head = work;
    to->tail = work;
    to->queued++;
}

static uint32_t connection_draw(void)
{
    return (fake_settings.connections > 0) ? fake_random(fake_settings.connections) : 0;
}

void fake_connections_draw(void)
{
    streams[0].connection = connection_draw();
    streams[1].connection = connection_draw();
}

static CUcontext context_of(const struct CUstream_st *stream)
{
    return (stream->context != NULL) ? stream->context : CONTEXT(0);
}

/* All that came into its hardware queue before has started. */
static bool is_its_turn(const struct CUstream_st *stream)
{
    if ((fake_settings.connections == 0) || stream->head->started) return true;
    for (uint32_t s = 0; s < STREAMS_MAX; s++) {
        const struct work *other = streams[s].head;
        if ((streams[s].connection != stream->connection) ||
            (context_of(&streams[s]) != context_of(stream)))
            continue;
        if ((other != NULL) && other->started) other = other->next;
        if ((other != NULL) && (other->ticket < stream->head->ticket)) return false;
    }
    return true;
}

static bool can_run(const struct CUstream_st *stream)
{
    const struct work *work = stream->head;
    if ((work == NULL) || !is_its_turn(stream)) return false;
    if (work->kind == WORK_HOLD) return !work->started || !held || fake_is_lost();
    if (work->kind == WORK_MEET) return !work->started || fake_others_met(work->wait_done);
    return (work->kind != WORK_WAIT) || (streams[work->wait_stream].done >= work->wait_done);
}

/* Nothing is ordered by it: what the library needs it has to ask for. */
void fake_queue_wait(uint32_t stream, uint32_t other)
{
    fake_queue_add(stream, &(struct work){.kind = WORK_WAIT,
                                          .wait_stream = other,
                                          .wait_done = streams[other].queued});
}

void fake_others_open(CUcontext context)
{
    streams[OTHERS_STREAM].context = context;
    streams[OTHERS_STREAM].connection = connection_draw();
}

void fake_hold(bool is_held)
{
    held = is_held;
}

bool fake_holds(void)
{
    for (uint32_t s = 0; s < STREAMS_MAX; s++)
        for (const struct work *work = streams[s].head; work != NULL; work = work->next)
            if (held && (work->kind == WORK_HOLD)) return true;
    return false;
}

/* The counts stay: what was done is over. */
void fake_stream_drop(uint32_t stream)
{
    struct CUstream_st *of = &streams[stream];
    while (of->head != NULL) {
        struct work *work = of->head;
        of->head = work->next;
        free(work);
    }
    of->tail = NULL;
    of->done = of->queued;
    fake_clock_join(&seen, &of->clock);
}

void fake_queue_forget(void)
{
    for (uint32_t s = 0; s < STREAMS_MAX; s++) {
        fake_stream_drop(s);
        streams[s].live = (s < 2);
    }
    for (uint32_t i = 0; i < EVENTS_MAX; i++) events[i].live = false;
    held = false;
}

static bool work_do(const struct work *work)
{
    switch (work->kind) {
    case WORK_COPY:
        if (!fake_memory_touch(work, work->src, work->size_bytes, false) ||
            !fake_memory_touch(work, work->dst, work->size_bytes, true))
            return false;
        memmove((void *)(uintptr_t)work->dst, (const void *)(uintptr_t)work->src, work->size_bytes);
        return true;
    case WORK_SET:
        if (!fake_memory_touch(work, work->dst, work->size_bytes, true)) return false;
        memset((void *)(uintptr_t)work->dst, work->value, work->size_bytes);
        return true;
    case WORK_KERNEL: return fake_kernel_run(work);
    case WORK_WAIT:
    case WORK_HOLD:
    case WORK_BUSY:
    case WORK_MEET:
    case WORK_CARD: return true;
    }
    return false;
}

static void work_end(struct CUstream_st *stream)
{
    struct work *work = stream->head;
    stream->head = work->next;
    if (stream->head == NULL) stream->tail = NULL;
    stream->done++;
    free(work);
}

static void work_run(const struct work *work)
{
    running = true;
    bool touches =
        (work->kind == WORK_COPY) || (work->kind == WORK_SET) || (work->kind == WORK_KERNEL);
    if (touches) fake_memory_unlock();
    bool good = fake_is_lost() || work_do(work); /* a lost context does nothing more */
    if (touches) fake_memory_lock();
    running = false;
    if (!good) {
        fake_trouble("work %u of stream %u touches an address that is neither device nor "
                     "registered host memory",
                     work->clock.at[work->stream], work->stream);
        fake_stay(CUDA_ERROR_ILLEGAL_ADDRESS);
    }
}

/* The head of a stream: first it starts, and at another turn it is done. */
static void turn(struct CUstream_st *stream)
{
    if (!stream->head->started) {
        stream->head->started = true;
        if (stream->head->kind == WORK_MEET) fake_others_arrive(stream->head->wait_done);
        poison(stream->head);
        return;
    }
    if (!stream->head->ran) work_run(stream->head);
    work_end(stream);
}

/* With a clock: what can start does, at `at_ns` or when it was queued. It is done at once, and ends
 * when its time is over. */
static bool work_start(struct CUstream_st *stream, uint64_t at_ns)
{
    struct work *work = stream->head;
    if ((work == NULL) || work->started || !can_run(stream)) return false;
    uint64_t before = fake_touched_bytes;
    work->started = work->ran = true;
    work_run(work);
    if (work->queued_ns > at_ns) at_ns = work->queued_ns;
    work->end_ns = at_ns + fake_work_ns(work, fake_touched_bytes - before);
    return true;
}

void fake_run_clock(void)
{
    static uint64_t last_ns; /* when the last work ended */
    const uint64_t now_ns = fake_now_ns();
    if (last_ns > now_ns) last_ns = 0; /* another test's */
    for (;;) {
        struct CUstream_st *first = NULL;
        for (uint32_t s = 0; s < STREAMS_MAX; s++)
            if (work_start(&streams[s], last_ns))
                s = UINT32_MAX; /* others may be let start by it */
        for (uint32_t s = 0; s < STREAMS_MAX; s++) {
            struct CUstream_st *stream = &streams[s];
            if ((stream->head == NULL) || !stream->head->started || !can_run(stream)) continue;
            if ((first == NULL) || (stream->head->end_ns < first->head->end_ns)) first = stream;
        }
        if ((first == NULL) || (first->head->end_ns > now_ns)) return;
        last_ns = first->head->end_ns;
        work_end(first);
    }
}

/* One of those that can run, each as likely; NULL: none can. */
static struct CUstream_st *draw(void)
{
    struct CUstream_st *ready[STREAMS_MAX];
    uint32_t count = 0;
    for (uint32_t s = 0; s < STREAMS_MAX; s++)
        if (can_run(&streams[s])) ready[count++] = &streams[s];
    return (count > 0) ? ready[fake_random(count)] : NULL;
}

bool fake_run_one(void)
{
    static struct CUstream_st *preferred = streams;
    static uint32_t turns;
    if (running) abort();
    bool stays = (turns++ % PREFERRED_TURNS != 0) && (fake_random(4) != 0) && can_run(preferred);
    struct CUstream_st *stream = stays ? preferred : draw();
    if (stream == NULL) return false;
    if (turns % PREFERRED_TURNS == 1) preferred = stream;
    turn(stream);
    return true;
}

/* At each call of the driver. Under even seeds (not eager) work waits until somebody asks for
 * it. */
void fake_run_some(void)
{
    if (fake_has_clock()) {
        fake_run_clock();
        return;
    }
    if (!fake_settings.is_eager) return;
    for (uint32_t left = fake_random(4); left > 1; left--) (void)fake_run_one();
}

void fake_run_stream(uint32_t stream)
{
    fake_memory_unlock(); /* once for all: the host gets no turn */
    while (streams[stream].head != NULL) (void)fake_run_one();
    fake_memory_lock();
    fake_clock_join(&seen, &streams[stream].clock);
}

/* The clock goes on to where some work ends; false: none does. */
static bool next_end(void)
{
    uint64_t end_ns = UINT64_MAX;
    fake_run_clock();
    for (uint32_t s = 0; s < STREAMS_MAX; s++) {
        const struct work *work = streams[s].head;
        if ((work != NULL) && work->started && can_run(&streams[s]) && (work->end_ns < end_ns))
            end_ns = work->end_ns;
    }
    if (end_ns == UINT64_MAX) return false;
    fake_clock_advance(end_ns);
    fake_run_clock();
    return true;
}

void fake_launched(uint32_t stream)
{
    uint64_t last = streams[stream].queued;
    while (fake_settings.is_blocking && (streams[stream].done < last)) {
        if (fake_has_clock() ? next_end() : fake_run_one()) continue;
        fake_trouble("a blocking launch stands behind work that never ends");
        return;
    }
}

void fake_run_all(void)
{
    for (uint32_t s = 0; s < STREAMS_MAX; s++) fake_run_stream(s);
}

bool fake_stream_find(CUstream handle, uint32_t *stream_out)
{
    *stream_out = (handle == CU_STREAM_PER_THREAD) ? 1 : 0;
    if ((handle == NULL) || (handle == CU_STREAM_LEGACY) || (handle == CU_STREAM_PER_THREAD))
        return true;
    for (uint32_t s = 2; s < STREAMS_MAX; s++) {
        if ((handle != &streams[s]) || !streams[s].live) continue;
        *stream_out = s;
        return true;
    }
    fake_trouble("stream %p is none", (void *)handle);
    return false;
}

/* A place is used again with its counts: what was done there stays ordered behind what the host has
 * seen. */
CUresult fake_stream_create(CUstream *handle_out, CUcontext context)
{
    for (uint32_t s = 2; s < OTHERS_STREAM; s++) {
        if (streams[s].live || (streams[s].head != NULL)) continue;
        streams[s].live = true;
        streams[s].context = context;
        streams[s].connection = connection_draw();
        *handle_out = &streams[s];
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fake_stream_destroy(CUstream handle)
{
    uint32_t stream;
    if (!fake_stream_find(handle, &stream) || (stream < 2)) return CUDA_ERROR_INVALID_HANDLE;
    streams[stream].live = false; /* what it holds is done all the same */
    return CUDA_SUCCESS;
}

CUcontext fake_stream_context(uint32_t stream)
{
    return streams[stream].context;
}

/* The host asks how far things are. */
static void look(void)
{
    if (fake_has_clock())
        fake_run_clock();
    else if (fake_random(2) != 0)
        (void)fake_run_one();
}

bool fake_stream_done(uint32_t stream)
{
    look();
    if (streams[stream].head != NULL) return false;
    fake_clock_join(&seen, &streams[stream].clock);
    return true;
}

static struct CUevent_st *event_find(CUevent handle)
{
    for (uint32_t i = 0; i < EVENTS_MAX; i++)
        if ((handle == &events[i]) && events[i].live) return &events[i];
    fake_trouble("event %p is none", (void *)handle);
    return NULL;
}

CUresult fake_event_create(CUevent *handle_out, CUcontext context, bool is_timed)
{
    for (uint32_t i = 0; i < EVENTS_MAX; i++) {
        if (events[i].live) continue;
        events[i] = (struct CUevent_st){.live = true, .timed = is_timed, .context = context};
        *handle_out = &events[i];
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fake_event_destroy(CUevent handle)
{
    struct CUevent_st *event = event_find(handle);
    if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    event->live = false;
    return CUDA_SUCCESS;
}

CUresult fake_event_record(CUevent handle, uint32_t stream)
{
    struct CUevent_st *event = event_find(handle);
    if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if ((streams[stream].context != NULL) && (streams[stream].context != event->context)) {
        fake_trouble("cuEventRecord of an event of another context than the stream's");
        return CUDA_ERROR_INVALID_HANDLE;
    }
    fake_clock_join(&streams[stream].clock, &seen);
    event->recorded = true;
    event->of_all = false;
    event->stream = stream;
    event->done = streams[stream].queued;
    event->clock = streams[stream].clock;
    return CUDA_SUCCESS;
}

CUresult fake_event_record_all(CUevent handle, CUcontext context)
{
    struct CUevent_st *event = event_find(handle);
    if ((event == NULL) || (event->context != context)) return CUDA_ERROR_INVALID_HANDLE;
    event->recorded = true;
    event->of_all = true;
    event->clock = seen;
    for (uint32_t s = 0; s < STREAMS_MAX; s++) {
        event->all[s] = streams[s].queued;
        fake_clock_join(&event->clock, &streams[s].clock);
    }
    return CUDA_SUCCESS;
}

CUresult fake_event_wait(CUevent handle, uint32_t stream)
{
    struct CUevent_st *event = event_find(handle);
    if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (!event->recorded) return CUDA_SUCCESS;
    fake_clock_join(&streams[stream].clock, &event->clock);
    fake_queue_add(
        stream,
        &(struct work){.kind = WORK_WAIT, .wait_stream = event->stream, .wait_done = event->done});
    return CUDA_SUCCESS;
}

CUresult fake_event_query(CUevent handle)
{
    struct CUevent_st *event = event_find(handle);
    if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    look();
    if (!event->recorded) return CUDA_SUCCESS;
    if (!event->of_all && (streams[event->stream].done < event->done)) return CUDA_ERROR_NOT_READY;
    for (uint32_t s = 0; event->of_all && (s < STREAMS_MAX); s++)
        if (streams[s].done < event->all[s]) return CUDA_ERROR_NOT_READY;
    fake_clock_join(&seen, &event->clock);
    return CUDA_SUCCESS;
}

CUresult fake_event_elapsed(float *ms_out, CUevent begin, CUevent end)
{
    const struct CUevent_st *from = event_find(begin);
    const struct CUevent_st *to = event_find(end);
    if ((from == NULL) || (to == NULL) || !from->timed || !to->timed || !from->recorded ||
        !to->recorded)
        return CUDA_ERROR_INVALID_HANDLE;
    if ((streams[from->stream].done < from->done) || (streams[to->stream].done < to->done))
        return CUDA_ERROR_NOT_READY;
    const char *us = getenv("GF_FAKE_CUDA_US");
    *ms_out = (float)(to->done - from->done) * ((us != NULL) ? strtof(us, NULL) : 1.0f) * 1e-3f;
    return CUDA_SUCCESS;
}

struct clock *fake_seen(void)
{
    return &seen;
}

void fake_queue_count(struct fake_cuda_live *live)
{
    for (uint32_t s = 2; s < STREAMS_MAX; s++) live->streams += streams[s].live;
    for (uint32_t i = 0; i < EVENTS_MAX; i++) live->events += events[i].live;
}
