/* A CUDA driver without a GPU: a shared object, libcuda.so.1, with exactly the calls that the
 * library's driver uses.
 *   - Device addresses are memory that the CPU may not touch but while the fake itself works, nor,
 *     to save time, for up to 15 works behind that.
 *   - Work is done late: at later calls, in the order of its stream, streams against each other in
 *     an order that the seed decides. Host memory that a copy will fill holds 0xee bytes until it
 *     does.
 *   - Every access of a copy, a zero and a kernel is looked at: two works that touch the same
 *     bytes, one of them writing, with nothing that orders them (stream, event, or a query that the
 *     host saw succeed) are trouble, whatever order they ran in.
 *   - A network card's accesses are looked at likewise (card_begin); what it will receive holds
 *     0xee bytes until then.
 *   - Streams and events are of a context, and only of use in it. An error that ruins a context
 *     stays.
 *   - Calls that wait for the device are trouble where its work never ends; those that would break
 *     another thread's capture break it.
 *   - Memory of a process that has ended is gone, unless cuMemCreate() made it and another process
 *     holds it: what touches it is an illegal address. What is mapped may be touched once access to
 *     it was given.
 *   - Images are looked at: header, sizes, machine code or PTX that the device (sm_90) can use.
 *   - What is not given back by the last release of the context, or by the end of the program, is
 *     trouble.
 *   - Streams share a few hardware work queues, where the environment says so, served first in,
 *     first out: work starts only after all that came into its queue before has started, and a wait
 *     starts once it is over. What has started ends in any order. Which stream is in which queue
 *     the seed decides.
 *   - A kernel that touches the memory of two devices has few blocks, or it is trouble.
 *   - Any call can be made to fail.
 * Trouble is kept for fake_cuda_trouble(); a program that ends with some prints it and exits with
 * FAKE_CUDA_EXIT. Not modelled: several devices' memory, that the default stream waits for blocking
 * ones and they for it (missing order is trouble here)
 * and, unless a test gives it a clock, timing.
 *
 * Environment, read when it is loaded and by reset():
 *   GF_FAKE_CUDA_SEED=7                       orders; 0 is the default
 *   GF_FAKE_CUDA_FAIL=cuMemcpyAsync:3:700     the third such call gives 700, which stays, as on a
 *                                             GPU
 *   GF_FAKE_CUDA_MET=FILE                     made by the call that fails
 *   GF_FAKE_CUDA_WITHOUT=cuLaunchKernel       cuGetProcAddress() does not know it
 *   GF_FAKE_CUDA_VERSION=11040                what cuDriverGetVersion() says
 *   GF_FAKE_CUDA_MEMORY=1048576               bytes of device memory; default 4 GiB
 *   GF_FAKE_CUDA_NO_DESCRIPTORS=1             memory by cuMemCreate() has none, so it is
 *                                             cuMemAlloc()'s, and nobody's else
 *   GF_FAKE_CUDA_NO_REGISTER=1000             so often cuMemHostRegister() says "not supported",
 *                                             as in a sandbox
 *   GF_FAKE_CUDA_NAME="NVIDIA H200"           what the devices are called
 *   GF_FAKE_CUDA_SM=100                       their architecture; default 90
 *   GF_FAKE_CUDA_US=30                        what a work takes between events that have times;
 *                                             default 1
 *   GF_FAKE_CUDA_BETWEEN=2                    blocks of a kernel that touches the memory of two
 *                                             devices, at most; default 20
 *   GF_FAKE_CUDA_UNWATCHED=1                  what kernels access is not looked at: several times
 *                                             as fast, for what they compute alone
 *   GF_FAKE_CONNECTIONS=8                     hardware work queues a context, as CUDA's
 *                                             CUDA_DEVICE_MAX_CONNECTIONS; default: one a stream
 *   GF_FAKE_CUDA_OTHERS=3:FILE                a library of collectives more in each of 3 processes,
 *                                             which meet by way of FILE, at first empty
 *   CUDA_LAUNCH_BLOCKING=1                    a launch returns when its kernel has ended; nothing
 *                                             is ordered by that here */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_CUDA_EXIT 97
#define FAKE_CUDA_FATBIN 0xba55ed50u /* an image starts with this word, or it is refused */
#define FAKE_CUDA_DEVICES 2
#define FAKE_CUDA_BLOCKS 2 /* of any kernel, that a multiprocessor has room for */
/* An image as nvcc makes it begins so; a test's own has no more. */
struct fake_cuda_image {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes; /* after this header */
};
#define FAKE_CUDA_IMAGE                                        \
    {                                                          \
        FAKE_CUDA_FATBIN, 1, sizeof(struct fake_cuda_image), 0 \
    }
#define FAKE_CUDA_POISON 0xee

struct fake_cuda_live {
    uint32_t contexts, streams, events, modules, registrations, allocations, imported, pushed;
    uint64_t calls; /* since the last reset */
};

/* A test's own kernel beside those of the SIMT emulator: runs once for the whole grid, and says
 * what it touches. */
typedef void (*fake_cuda_kernel)(const void *args, uint32_t blocks, uint32_t threads);

/* What work takes, by a clock of the test's: work_ns each, and its bytes, read and written. */
struct fake_cuda_clock {
    uint64_t (*now_ns)(void *arg);
    void (*advance)(void *arg, uint64_t now_ns); /* while a launch blocks */
    void *arg;
    uint64_t work_ns;
    double kernel_bytes_per_ns, copy_bytes_per_ns;
};

/* What tests find in the shared object with dlsym(). */
struct fake_cuda_api {
    /* Forgets counts, trouble and failures and reads the environment again; nothing may be live. */
    void (*reset)(void);
    /* of all calls, as cuGetProcAddress() wants it; NULL: no more */
    const char *(*call_name)(uint32_t index);
    const char *(*trouble)(void); /* the first since reset; NULL: none */
    bool (*failure_met)(void);    /* GF_FAKE_CUDA_FAIL has happened */
    struct fake_cuda_live (*live)(void);
    uint64_t (*launches)(void); /* since the program began */
    uint64_t (*copies)(void);
    /* name stays the caller's; once */
    void (*kernel_add)(const char *name, size_t args_bytes, fake_cuda_kernel run);
    void (*touch)(uint64_t address, size_t size_bytes, bool is_write); /* by the kernel that runs */
    uint64_t (*stream_create)(void); /* a stream of the appliance; destroy it */
    void (*stream_destroy)(uint64_t stream);
    void (*stream_run)(uint64_t stream); /* to its end, and whatever it waits for */
    /* The stream's next work never ends, until it is released; then all of them go on. What would
     * wait for it is trouble. */
    void (*stream_hold)(uint64_t stream);
    void (*release)(void);
    /* The stream's next work takes so long, with a clock. */
    void (*stream_busy)(uint64_t stream, uint64_t busy_ns);
    /* Device memory of the appliance's; give it back. And an event; destroy it. */
    uint64_t (*memory_take)(size_t size_bytes);
    void (*memory_give)(uint64_t address);
    uint64_t (*event_create)(void);
    void (*event_destroy)(uint64_t event);
    void (*event_record)(uint64_t event, uint64_t stream);
    /* A graph: works in a row, as they are told here, launched at once; forget: it has none. */
    void (*graph_busy)(uint64_t busy_ns);
    void (*graph_copy)(uint64_t dst, uint64_t src, size_t size_bytes);
    void (*graph_record)(uint64_t event);
    void (*graph_launch)(uint64_t stream);
    void (*graph_forget)(void);
    /* From here on work takes time, streams each by themselves, in no drawn order; NULL: as before.
     * What was queued is done first. */
    void (*clock)(const struct fake_cuda_clock *clock);
    /* Each call, and each kernel that is launched, by name, with the device that is current; NULL:
     * nobody. */
    void (*watch)(void (*seen)(const char *what, int device));
    /* what it holds is gone, as its process is; nothing waits for that */
    void (*stream_drop)(uint64_t stream);
    /* The process has ended: all that it held is gone. Before reset() where a stream was held to
     * the end. */
    void (*forget)(void);
    /* Another thread captures a stream, in the strictest mode; end: true, nothing has broken the
     * capture. */
    void (*capture_begin)(uint64_t stream);
    bool (*capture_end)(uint64_t stream);
    /* A network card that reaches device memory, from a message's post to the moment that its end
     * was seen: as a stream that nothing waits for. False: this is no device memory. */
    bool (*card_begin)(uint64_t address, size_t size_bytes, bool is_write);
    void (*card_end)(uint64_t address, size_t size_bytes, bool is_write);
    /* the bytes, meanwhile */
    void (*card_copy)(bool to_device, void *dst, const void *src, size_t size_bytes);
};
#define FAKE_CUDA_API_SYMBOL "fake_cuda_api"

#endif
