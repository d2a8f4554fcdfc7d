/* Inside of the fake CUDA driver. */
#ifndef FAKE_CUDA_STATE_H
#define FAKE_CUDA_STATE_H

#include <cuda.h>

#include "firmware-tests/cuda/fake_cuda.h"

#define STREAMS_MAX 32u /* [0] is the legacy default stream, [1] the per-thread one */
#define CARD_STREAM (STREAMS_MAX - 1u)   /* no stream: the accesses of a network card */
#define OTHERS_STREAM (STREAMS_MAX - 2u) /* of another library */
#define STREAM_BITS 5u                   /* of a stamp, below a stream's clock */
#define EVENTS_MAX 4096u
#define ARGS_MAX 4096u

/* How far each stream had come: an order of works that does not depend on when they really ran. */
struct clock {
    uint32_t at[STREAMS_MAX];
};

typedef enum work_kind {
    WORK_COPY,
    WORK_SET,
    WORK_KERNEL,
    WORK_WAIT,
    WORK_CARD,
    WORK_HOLD,
    WORK_BUSY,
    WORK_MEET
} work_kind;

struct work {
    struct work *next;
    work_kind kind;
    bool started, ran; /* ran: with a clock, as soon as it started */
    uint32_t stream;
    uint64_t ticket;    /* of the order in which all work was queued */
    struct clock clock; /* what is done before it, and itself */
    uint64_t dst, src;
    size_t size_bytes;
    uint8_t value;
    const struct fake_kernel *kernel;
    uint32_t blocks, threads;
    uint32_t wait_stream; /* WORK_WAIT: until this stream has done that many */
    uint64_t wait_done;
    /* with a clock: when it was queued, what it takes (WORK_BUSY), when it ends */
    uint64_t queued_ns, busy_ns, end_ns;
    uint8_t args[ARGS_MAX];
};

struct fake_kernel {
    const char *name;
    size_t args_bytes;
    fake_cuda_kernel run; /* NULL: of the SIMT emulator */
};

#define CONTEXT(device) ((CUcontext)(uintptr_t)(0xc0de0000u + (unsigned)(device)))

/* fake_cuda_device.c: contexts */
CUresult fake_enter_current(const char *call); /* fake_enter(), and a context must be current */
CUcontext fake_current(void);                  /* NULL: none */
void fake_contexts_count(struct fake_cuda_live *live);
void fake_contexts_forget(void);
void fake_leaks_check(const char *when);
/* A call that waits for all work of the device: where that does not end, trouble instead. */
void fake_synchronise(const char *call);

/* fake_cuda_others.c: another library of collectives in this process */
void fake_others_launch(uint32_t stream); /* the appliance launches a kernel there */
void fake_others_arrive(uint64_t meeting);
bool fake_others_met(uint64_t meeting);
void fake_others_open(CUcontext context); /* its stream is of that */

/* fake_cuda_time.c */
void fake_clock_advance(uint64_t now_ns);
void fake_clock_set(const struct fake_cuda_clock *clock);
bool fake_has_clock(void);
uint64_t fake_now_ns(void);
uint64_t fake_work_ns(const struct work *work, uint64_t touched_bytes); /* what it takes */

/* fake_cuda_graph.c: what is launched at once */
void fake_graph_busy(uint64_t busy_ns);
void fake_graph_copy(uint64_t dst, uint64_t src, size_t size_bytes);
void fake_graph_record(uint64_t event);
void fake_graph_launch(uint64_t stream);
void fake_graph_forget(void);

/* fake_cuda_capture.c: streams that capture */
void fake_capture_begin(CUstream handle);
bool fake_capture_end(uint64_t handle); /* true: nothing has broken it */
bool fake_captures(uint32_t stream);
/* A call that may not be made while another thread captures, unless this one says otherwise: breaks
 * the capture. */
CUresult fake_capture_unsafe(const char *call);
CUresult fake_capture_break(const char *call, CUresult entered); /* whatever the thread says */
void fake_capture_forget(void);

/* fake_cuda_trouble.c: what went wrong, and what shall go wrong */
__attribute__((format(printf, 1, 2))) void fake_trouble(const char *format, ...);
const char *fake_trouble_text(void);
/* counts it; the failure that is planned, or the one that stays */
CUresult fake_enter(const char *call);
void fake_stay(CUresult result); /* from here on every call gives it */
void fake_settings_read(void);
bool fake_is_without(const char *call);
/* Tells who watches: a call, or a kernel that is launched. */
void fake_tell(const char *what);
extern void (*fake_watcher)(const char *what, int device);
extern struct fake_settings {
    int version;
    bool is_eager, is_blocking;
    uint32_t connections;         /* hardware work queues a context; 0: a queue for each stream */
    uint64_t memory_bytes, calls; /* calls: since then */
    uint64_t refused;             /* registrations of host memory, still to come */
} fake_settings;
bool fake_is_lost(void); /* a failure stays */
bool fake_failure_met(void);
uint32_t fake_random(uint32_t below);

/* fake_cuda_memory.c: addresses, who touched them last */
#define REGIONS_MAX 64u

/* MAPPED: by cuMemMap(). */
typedef enum region_kind { REGION_HOST, REGION_DEVICE, REGION_MAPPED } region_kind;

struct cell;
struct region {
    uint64_t base;
    size_t size_bytes, shadow_bytes; /* 0: free */
    struct cell *shadow;
    region_kind kind;
    bool is_closed;  /* mapped: no device may touch it yet */
    bool is_foreign; /* mapped: another process's */
    bool open;       /* the CPU may touch it */
};
extern struct region fake_regions[REGIONS_MAX];

CUresult fake_region_add(uint64_t base, size_t size_bytes, region_kind kind,
                         struct region **region_out);
struct region *fake_region_at(uint64_t address, size_t size_bytes); /* NULL */
void fake_region_remove(struct region *region);
/* Addresses of `whole` bytes, beside which nothing lies: a late access to what was freed, whose
 * place is never used again, is nobody's address. 0: there is no room. Then what lies there; NULL:
 * back to what the reservation was. */
uint64_t fake_reserve(size_t whole);
bool fake_place(uint64_t at, int file, size_t whole);
void fake_unplace(uint64_t at, size_t whole);
bool fake_memory_charge(size_t whole); /* of the device's bytes; false: they are not there */
void fake_memory_credit(size_t whole);
void fake_memory_fill(uint64_t address, size_t whole);
int fake_memory_file(size_t whole); /* new memory, that other processes can open; -1 */
CUresult fake_memory_take(uint64_t *address_out, size_t size_bytes);
CUresult fake_memory_give(uint64_t address);
CUresult fake_host_add(void *base, size_t size_bytes);
CUresult fake_host_remove(void *base);
void fake_memory_forget(void);
void fake_memory_count(struct fake_cuda_live *live);
uint64_t fake_memory_used(void);
bool fake_is_host(uint64_t address, size_t size_bytes);
bool fake_is_known(uint64_t address, size_t size_bytes);
bool fake_is_device(uint64_t address, size_t size_bytes);
/* device memory may be touched between the two, once work or this has opened it */
void fake_memory_unlock(void);
void fake_memory_open(uint64_t address);
void fake_memory_lock(void);
/* The access of one work; false: the address is nobody's. */
bool fake_memory_touch(const struct work *work, uint64_t address, size_t size_bytes, bool is_write);
/* Likewise; region: fake_region_at() of it. */
bool fake_region_touch(const struct work *work, struct region *region, uint64_t address,
                       size_t size_bytes, bool is_write);
/* All of it, until it is locked: for kernels that are not watched. */
void fake_memory_open_all(void);
extern uint64_t fake_touched_bytes; /* so far */
/* The last access to these was at that time of the stream's. */
void fake_memory_stamp(uint64_t address, size_t size_bytes, bool is_write, uint32_t stream,
                       uint32_t at);

/* fake_cuda_map.c: memory by cuMemCreate() */
void fake_maps_count(struct fake_cuda_live *live);
void fake_maps_forget(void);

/* fake_cuda_queue.c: streams, events and when work is done */
void fake_clock_join(struct clock *clock, const struct clock *other); /* behind both */
void fake_queue_add(uint32_t stream, const struct work *like);
void fake_run_some(void);                              /* a few works, or none */
bool fake_run_one(void);                               /* one; false: none can */
void fake_queue_wait(uint32_t stream, uint32_t other); /* for all that the other has got */
bool fake_is_tools(const char *kernel);
void fake_run_clock(void); /* with a clock, what is over by now */
void fake_run_all(void);   /* and the host has seen it */
void fake_run_stream(uint32_t stream);
void fake_launched(uint32_t stream); /* where launches block, until the kernel has ended */
void fake_connections_draw(void);    /* of the streams that every context has */
bool fake_stream_find(CUstream handle, uint32_t *stream_out);
CUresult fake_stream_create(CUstream *handle_out, CUcontext context);
CUcontext fake_stream_context(uint32_t stream); /* NULL: any */
bool fake_holds(void);                          /* some stream never ends */
void fake_hold(bool held);
void fake_queue_forget(void);
void fake_stream_drop(uint32_t stream);
CUresult fake_stream_destroy(CUstream handle);
bool fake_stream_done(uint32_t stream); /* true: the host has seen it */
CUresult fake_event_create(CUevent *handle_out, CUcontext context, bool is_timed);
CUresult fake_event_elapsed(float *ms_out, CUevent begin, CUevent end); /* GF_FAKE_CUDA_US a work */
CUresult fake_event_destroy(CUevent handle);
CUresult fake_event_record(CUevent handle, uint32_t stream);
CUresult fake_event_record_all(CUevent handle, CUcontext context);
CUresult fake_event_wait(CUevent handle, uint32_t stream);
CUresult fake_event_query(CUevent handle);
void fake_queue_count(struct fake_cuda_live *live);
struct clock *fake_seen(void); /* what the host has */
/* fake_cuda_card.c */
bool fake_card_begin(uint64_t address, size_t size_bytes, bool is_write);
void fake_card_end(uint64_t address, size_t size_bytes, bool is_write);
void fake_card_copy(bool to_device, void *dst, const void *src, size_t size_bytes);

/* fake_cuda_image.c: whether this driver and device can use it */
CUresult fake_image_check(const void *image);
uint32_t fake_arch(void); /* 90, or GF_FAKE_CUDA_SM */

/* fake_cuda_work.c */
/* for work on it */
CUresult fake_enter_stream(const char *call, CUstream handle, uint32_t *stream_out);
uint64_t fake_launches(void);
uint64_t fake_copies(void);
void fake_modules_count(struct fake_cuda_live *live);
void fake_modules_forget(void);

/* fake_cuda_kernel.c */
const struct fake_kernel *fake_kernel_find(const char *name);
void fake_kernel_add(const char *name, size_t args_bytes, fake_cuda_kernel run);
bool fake_kernel_run(const struct work *work);
void fake_kernel_touch(uint64_t address, size_t size_bytes, bool is_write);

#endif
