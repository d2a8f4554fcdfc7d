/* What a training loop can do without: waits that return after a time, closing by polls, events and
 * queues of a GPU, counters, traces, and the sizes that bindings of other languages look at.
 * gradientflow.h includes it, says what the words of *Valid* mean, and has the rules. */
#ifndef GF_ADVANCED_H
#define GF_ADVANCED_H

#include "gradientflow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ======== 1. Waits with a bound ======== */

/* gf_open_wait() for bound_ns at most.
 * Blocks: up to bound_ns. Valid: OPENING.
 * Returns GF_AGAIN: bound_ns have passed and not all are there, call it again; else what
 * gf_open_wait() returns. */
gf_status gf_open_wait_for(gf_context *gf, uint64_t bound_ns);

/* gf_step_wait() for bound_ns at most. In the statistics and in the trace the calls of one step are
 * one wait, as long as all of them together.
 * Blocks: up to bound_ns. Valid: step.
 * Returns GF_AGAIN: bound_ns have passed and the step is not whole, call it again; else what
 * gf_step_wait() returns. */
gf_status gf_step_wait_for(gf_context *gf, uint64_t bound_ns);

/* gf_request_wait() for bound_ns at most.
 *     request     one that was posted, the library's to know until this gives anything but GF_AGAIN
 * Blocks: up to bound_ns. Valid: ready.
 * Returns GF_AGAIN: bound_ns have passed and it has not ended, call it again; else what
 * gf_request_wait() returns. */
gf_status gf_request_wait_for(gf_context *gf, struct gf_request *request, uint64_t bound_ns);

/* gf_regroup_wait() for bound_ns at most.
 * Blocks: up to bound_ns, but for the poll that makes the link anew. Valid: as gf_regroup_poll().
 * Returns GF_AGAIN: bound_ns have passed and the generation has not begun, call it again; else what
 * gf_regroup_wait() returns. */
gf_status gf_regroup_wait_for(gf_context *gf, uint64_t bound_ns);

/* ======== 2. Closing by polls ======== */

/* The part of gf_close() that waits for the other ranks, a poll at a time, for a caller that drives
 * several contexts from one thread. The first call ends the use of the context for everything but
 * this and gf_close().
 * Valid: always.
 * Returns GF_AGAIN until all have left; after anything else gf_close() waits for nobody. */
gf_status gf_close_poll(gf_context *gf);

/* The same for longer: gf_close_poll() until the others have left, for bound_ns at most.
 * Blocks: up to bound_ns. Valid: always; it ends the use of the context as gf_close_poll().
 * Returns GF_AGAIN: bound_ns have passed and some have not left, call it again; else what
 * gf_close_poll() returns. */
gf_status gf_close_wait_for(gf_context *gf, uint64_t bound_ns);

/* ======== 3. On a GPU ======== */

/* What a step does there.
 *   - A write to gf_gradient() between steps comes after gf_queue_follow() on its queue, and has
 *     ended before gf_update() or gf_gradient_norm() is called where these are to see it. The norm
 *     of sparse exchange with clip_norm was made in the step, and sees none.
 *   - Writes to it that were queued before gf_regroup_begin() have ended when that is called: the
 *     memory is made zero, which does not wait for the program's streams.
 *   - The exchange moves in gf_tensor_ready() and in polls alone, as on the host: a trainer whose
 *     CPU is blocked until backward has ended, and then declares, hides nothing of it.
 *   - gf_step_wait() keeps the CPU until the step is whole: a trainer that launches kernel by
 *     kernel queues nothing ahead meanwhile, and the device idles for as long as the first launches
 *     after it take. What helps: launches of the next forward pass as one graph, or gf_step_poll()
 *     between launches that need no average, in place of waiting at once. */

/* gf_tensor_ready() where an event of the appliance's tells that the tensor is computed.
 *     event       one that it has recorded, or that a graph which it has launched records, when
 *                 this is called. It is looked at and never waited for, and is not recorded again
 *                 before gf_step_wait() has given GF_OK. On the host 0, and computed when this is
 *                 called
 * Valid, and returns: as gf_tensor_ready(). */
gf_status gf_tensor_ready_event(gf_context *gf, uint32_t tensor, gf_event_handle event);

/* What is put on `queue` from here on works on gradients and weights as the last whole step and
 * update leave them: on a GPU both may be under way when gf_step_wait() and gf_update() return. On
 * the host queue is 0.
 * Valid: ready. */
gf_status gf_queue_follow(gf_context *gf, gf_queue_handle queue);

/* ======== 4. Counters and traces ======== */

/* How the gradients of a step travel. */
typedef enum gf_path {
    GF_PATH_HOST = 0, /* they lie in host memory */
    GF_PATH_STAGED,   /* from a device, through host memory that is registered with it */
    /* from device to device in this rank's node; what leaves it (hierarchy) goes one of the two
     * other ways */
    GF_PATH_PEERS,
    GF_PATH_WIRE, /* from device memory straight to the wire, and back; the device adds */
    GF_PATH_COUNT
} gf_path;

/* A path in words, for a person.
 * Valid: always, without a context. Returns a text of the library's, never NULL. */
const char *gf_path_name(gf_path path);

/* Counters of a context since it was opened, where they do not say otherwise. */
struct gf_stats {
    uint32_t size_bytes; /* in: sizeof(struct gf_stats) of the caller */
    uint32_t path;       /* gf_path, since this generation began */
    uint64_t steps;      /* whole, skipped ones included */
    uint64_t steps_skipped;
    uint64_t wire_bytes;     /* payload bytes this rank sent through the link */
    uint64_t mapped_bytes;   /* read from and written to peers' mapped buffers */
    uint64_t control_bytes;  /* sent on the control channel */
    uint64_t messages;       /* sends posted to the link */
    uint64_t produced_bytes; /* gradient bytes declared ready, as fp32 */
    /* of fused buffers that were packed elsewhere than gradients lie, there and back, and by
     * gf_tensor_copy(): 0 where the appliance writes what travels */
    uint64_t copied_bytes;
    uint64_t operations; /* collectives ended */
    uint64_t wait_ns;    /* blocked in gf_step_wait() */
    /* sum over steps: from the first buffer's post to the step's end, the vote and what is written
     * after it included */
    uint64_t exchange_ns;
    uint64_t last_wait_ns; /* of the last step */
    uint64_t last_exchange_ns;
    uint64_t last_wire_bytes;
    /* by how much this process grew while the context opened, without the library's own: what
     * foreign libraries took, if no other thread took any */
    uint64_t foreign_bytes;
    uint32_t buffer_count; /* fused buffers of a dense step */
    float loss_scale;
    /* The rank that cost the others most in this generation, by the vote of each step, the same on
     * all ranks: it declared its last tensor last, counted from the vote before; or, where that was
     * longer, it did not poll after it (for 25 ms or more). Where ranks meet in a request between
     * two steps, what they wait for there is left out. GF_RANK_NONE before the first step */
    uint32_t slowest_peer;
    uint32_t slowest_share_percent; /* of the steps */
    uint64_t slowest_late_ns;       /* how much later than the first it was, in all */
};

/* Fills the counters, as far as stats_out->size_bytes has room: an older caller gets what it knows.
 *     stats_out    the caller's; its size_bytes is set by the caller
 * Valid: always.
 * Returns GF_OK; GF_ERR_PARAM: size_bytes. */
gf_status gf_stats_read(const gf_context *gf, struct gf_stats *stats_out);

/* One operation, as it was; or one gf_step_wait() that blocked. */
struct gf_trace_record {
    uint64_t begin_ns; /* posted; the context's clock */
    uint64_t end_ns;
    uint64_t step;
    uint64_t bytes;
    uint32_t operation;    /* gf_operation */
    uint32_t algorithm;    /* gf_algorithm */
    uint32_t buffer;       /* fused buffer, or request number */
    uint32_t first_tensor; /* of a vote: the bits of the step's loss scale, as fp32 */
    uint32_t tensor_count;
    int32_t status;      /* gf_status */
    uint32_t waited_for; /* the rank waited for longest; GF_RANK_NONE */
    /* of a fused buffer, before begin_ns: from its last tensor, and a free slot, to the post */
    uint32_t pack_ns;
};

/* Reads the newest records that were not read yet, oldest first; older ones than trace_records are
 * lost.
 *     records     [record_max], the caller's
 * Valid: always. Returns how many. */
uint32_t gf_trace_read(gf_context *gf, struct gf_trace_record *records, uint32_t record_max);

/* Puts what the program did itself into the trace beside the operations: a checkpoint, from
 * begin_ns to end_ns by CLOCK_MONOTONIC. Its operation is GF_OPERATION_NONE.
 * Valid: always. Returns GF_OK; GF_ERR_PARAM: it ends before it begins. */
gf_status gf_trace_checkpoint(gf_context *gf, uint64_t begin_ns, uint64_t end_ns);

typedef int (*gf_trace_put)(void *user, const void *data, uint64_t size_bytes);
/* Writes the whole trace of this rank, read or not, as a file: gf-trace says where the time of the
 * ranks' files went, and makes of them one that Perfetto opens. The file is little-endian: the
 * head; tensor_count names of GF_TRACE_NAME_BYTES; record_count records, oldest first.
 *     put         takes it piece by piece and returns 0; another value ends it
 *     user        put()'s; may be NULL
 * Valid: always.
 * Returns GF_OK; GF_ERR_SYSTEM: put() ended it. GF_ERR_PARAM: gf or put is NULL. */
gf_status gf_trace_write(const gf_context *gf, gf_trace_put put, void *user);
#define GF_TRACE_MAGIC "GFTRACE\n"
#define GF_TRACE_VERSION 1u
#define GF_TRACE_NAME_BYTES 48u
struct gf_trace_head {
    char magic[8];
    uint32_t version;
    uint32_t record_bytes; /* sizeof(struct gf_trace_record) */
    uint32_t rank, world;  /* of the generation in which it was written */
    uint32_t tensor_count;
    uint32_t reserved;
    uint64_t record_count;
    uint64_t lost_count; /* older ones, for which trace_records had no room */
    uint64_t begin_ns;   /* of the first step; 0: none has begun */
    uint64_t reserved_too;
    char clock[40]; /* the system's boot id: ranks with the same one share a clock */
    char node[24];  /* the host's name, for people */
};

/* ======== 5. For bindings ======== */

/* How large a structure of these headers is here, for a binding that writes layouts by hand and
 * looks at them when it is loaded.
 *     name        "gf_tensor", "gf_state_extra", "gf_footprint", "gf_request", "gf_error",
 *                 "gf_stats", "gf_trace_record", "gf_trace_head", "gf_config" or "gf_schedule"
 * Valid: always, in any thread, without a context.
 * Returns bytes; 0: name is NULL, or no such structure. */
uint32_t gf_struct_bytes(const char *name);

#ifdef __cplusplus
}
#endif
#endif
