/* GradientFlow, an allreduce library for data-parallel training. This is the header that a program
 * includes; it brings types.h (each gf_status), configuration.h (struct gf_config), schedule.h, and
 * advanced.h with it. advanced.h has what a training loop can do without: waits with a bound, GPU
 * events, counters, traces, layouts for bindings. config.h reads a configuration file; drivers.h is
 * for who chooses the drivers that a program links, or writes one. All are C11, and C++11.
 *
 * A gf_status is negative for an error, 0 (GF_OK) when a call is done, and positive for "not yet".
 *
 * A context is in one of these states:
 *
 *     gf_open()             gf_open_wait()            gf_step_begin()
 *     -------->  OPENING  ---------------->  READY  ------------------>  STEP
 *                                            |  ^  <------------------    |
 *                gf_close() from any state   |  |      gf_step_wait()     |
 *                -------->  CLOSED           |  |                         | a rank died, a deadline
 *                                            |  | gf_regroup_wait()       | passed: from any state
 *                                            v  |                         v
 *                                         REGROUP  <----------------   FAILED
 *                                                  gf_regroup_begin()
 *
 * Blocks of this header say where a call is *Valid*:
 *     always          on any context that gf_open() gave, a failed one too, until gf_close()
 *     open            READY or STEP
 *     ready           READY: between steps; requests may be under way
 *     idle            READY, and no request under way
 *     step            STEP: from gf_step_begin() until the step is whole
 *     after a step    READY, from the end of a step until the next one begins
 * A step is *applied* once gf_update() or gf_updated() was called for it, or where it was skipped.
 *
 * Words of these pages:
 *     appliance       the training program that calls the library
 *     step            one training step, whole once all ranks have its averages
 *     generation      one membership of the job: which processes are its ranks 0 to world - 1
 *     regroup         the way from one generation to the next
 *     coordinator     the one state machine that decides who is in the job; all ranks connect to it
 *     region          an entry of config.state_extra: memory of the program's that is part of the
 *                     run's state. The exchange region is the memory that the link maps
 *
 * In short, with all of it under "Rules" at the end of this header: the memory is the caller's; one
 * thread at a time uses a context; a call returns at once where its block does not say *Blocks*; a
 * call that is refused (GF_ERR_PARAM, GF_ERR_STATE) changes nothing; any other error fails the
 * context. */
#ifndef GRADIENTFLOW_H
#define GRADIENTFLOW_H

#include "configuration.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GF_VERSION_MAJOR 0
#define GF_VERSION_MINOR 10
#define GF_VERSION ((GF_VERSION_MAJOR << 16) | GF_VERSION_MINOR)

/* ======== 1. Tensors and memory ======== */

#define GF_TENSOR_DENSE 0x1u    /* never sparsified */
#define GF_TENSOR_NO_DECAY 0x2u /* bias or normalisation: no weight decay, no LARS */

struct gf_tensor {
    const char *name;    /* for errors and traces; its first 47 bytes are copied; or NULL */
    uint64_t elem_count; /* 0 is valid */
    uint32_t flags;
    gf_type type; /* what the appliance writes into gf_gradient(); weights are always fp32 */
};

/* Worst case of this configuration, page-rounded. gf_open() takes no more. */
struct gf_footprint {
    uint64_t control_bytes; /* host memory that the caller hands to gf_open() */
    /* host memory that the link maps at open and shares with ranks of the node */
    uint64_t exchange_bytes;
    /* GPU memory taken at open; 0 on the host. With what GF_PATH_WIRE may turn out to need */
    uint64_t device_bytes;
};

/* of stack that a caller needs; less in a main thread: gf_open() is GF_ERR_SYSTEM */
#define GF_STACK_BYTES 65536u

/* Says how much memory a configuration needs. Reads the environment for rank and world, unless
 * config->job.ignore_environment.
 *     config      read during the call only
 *     tensors     [tensor_count], in the order in which backward ends them; likewise
 * Returns GF_OK; GF_ERR_CONFIG: a setting is out of its range, why is logged. */
gf_status gf_measure(const struct gf_config *config, const struct gf_tensor *tensors,
                     uint32_t tensor_count, struct gf_footprint *footprint_out);

/* ======== 2. Opening and closing ======== */

/* Lays the context out in the caller's memory, opens drivers and posts the join. It warns where
 * this process seems to be one of several and was not told so.
 *     config      as for gf_measure(); what it points at (texts, pool_order, state_extra) too. But
 *                 what state_extra[].data points at stays in place until gf_close(): which calls
 *                 read and write it is said at struct gf_state_extra (configuration.h), and there
 *                 is pool_order, too. Names, sizes and order are the same on all ranks
 *     tensors     [tensor_count], as for gf_measure(), the same on all ranks
 *     memory      [memory_bytes], control_bytes at least; aligned to 64, not MADV_DONTFORK; the
 *                 library's until gf_close()
 *     gf_out      where it fails NULL, or a failed context for gf_error_last() and gf_close()
 * Two contexts of one process are two jobs: each wants a job.id of its own, the same on all ranks,
 * and where ranks meet at ports (a key_file, insecure, several hosts) a rendezvous.address; as
 * GF_ADDRESS would go before both, the second then sets job.ignore_environment. Descriptors: the
 * process that has the coordinator has one for each rank. Over sockets each rank has link.streams,
 * or as many as link.devices where these are more, for each rank of another node. All lie above 2:
 * where the program has 0, 1 or 2 closed they become /dev/null, and stay it, closed on exec.
 * Blocks: for what opening drivers takes; where rendezvous.address is a name that is not known yet
 * up to rendezvous.join_timeout, then GF_ERR_TIMEOUT.
 * Returns GF_OK; GF_ERR_CONFIG: as gf_measure(); GF_ERR_PARAM: memory is not aligned; GF_ERR_ARENA:
 * it is too small; GF_ERR_SYSTEM: stack, descriptors (ulimit -n), memory to share, a port that is
 * taken; GF_ERR_DEVICE, GF_ERR_LINK. */
gf_status gf_open(const struct gf_config *config, const struct gf_tensor *tensors,
                  uint32_t tensor_count, void *memory, uint64_t memory_bytes, gf_context **gf_out);

/* Moves the join. Of these polls the one that makes the link takes what the pages of the exchange
 * region take.
 * Valid: OPENING.
 * Returns GF_AGAIN: not all ranks are there; GF_OK: the context is READY; GF_ERR_TIMEOUT: ranks are
 * missing, which are named; GF_ERR_MISMATCH: they were given different things; GF_ERR_PEER: one has
 * failed; and what gf_open() returns. Each error is final, in an elastic job too: gf_close() is
 * next. A process that comes in: gf_rejoined(). */
gf_status gf_open_poll(gf_context *gf);

/* Polls the join until it ends.
 * Blocks: at most rendezvous.join_timeout until the coordinator is there, as long again and 2 s for
 * the other ranks, then exchange.timeout for connections and for the first messages.
 * Valid: OPENING.
 * Returns what gf_open_poll() returns, but GF_AGAIN. */
gf_status gf_open_wait(gf_context *gf);

/* Lets the other ranks finish, then gives everything back to the system; the memory is the caller's
 * again. A failed context waits for nobody and closes with GF_OK; so it does inside a step or with
 * a request under way, which is an abort to the others.
 * Blocks: until the other ranks have closed or died, up to exchange.timeout, and as much longer as
 * they ask for by gf_heartbeat(). Where the coordinator of the job runs in this process (rank 0,
 * unless rendezvous.coordinator says otherwise) there is no such bound: it waits, and warns after
 * exchange.timeout, until each of the others has closed or died, or until none of those that are
 * left has been heard of for exchange.timeout (4 s at least). Closing itself takes, failed or not:
 * 0.2 s until the last words have been sent, a second until the other hosts have acknowledged them,
 * 0.2 s of the link's, and on a GPU 2 s for the work that is queued.
 * Valid: always; NULL is.
 * Returns GF_OK; GF_ERR_TIMEOUT: some did not leave in time; this rank has. Not where the
 * coordinator runs in this process. */
gf_status gf_close(gf_context *gf);

/* ======== 3. Who this is ======== */

/* This rank, now. A new generation changes it: draw samples by what it is now
 * (RECIPE.md, section 4).
 * Valid: always. Returns 0 to world - 1. */
uint32_t gf_rank(const gf_context *gf);

/* How many ranks there are, now. A new generation changes it.
 * Valid: always. */
uint32_t gf_world(const gf_context *gf);

/* The rank at open (its member id): no generation changes it, a restarted rank has it again.
 * Valid: always. */
uint32_t gf_first_rank(const gf_context *gf);

/* The world at open: no generation changes it.
 * Valid: always. */
uint32_t gf_first_world(const gf_context *gf);

/* How many ranks the job may grow to.
 * Valid: always. */
uint32_t gf_world_max(const gf_context *gf);

/* Whole steps since open (or since the state that was loaded), skipped ones included. Equal on all
 * ranks where the context is ready and no step has ended on some of them only.
 * Valid: always. */
uint64_t gf_steps(const gf_context *gf);

/* ======== 4. Gradients and weights ======== */

/* The address of a tensor's gradient, [tensors[i].elem_count] of tensors[i].type: layers write
 * here.
 *     tensor      its index in the tensors that gf_open() was given
 * It is the library's from gf_tensor_ready(gf, i) until gf_step_wait() gives GF_OK, and then holds
 * the sum over all ranks, which is the default, or the average, as exchange.average says (with an
 * optimizer of the library's: what becomes it once it is multiplied with gf_gradient_scale()). Both
 * are called the average in these pages. From there to the next gf_tensor_ready(gf, i) it is the
 * appliance's, before gf_step_begin() too: it may be clipped or set to zero in place, and backward
 * may add to it before the step is begun. What gf_update() applies, and the first
 * gf_gradient_norm() of a step measures, is what is there then; later nothing of the step depends
 * on it. With sparse exchange and optimizer.clip_norm each step, dense ones too, has measured
 * before gf_step_wait() gave GF_OK, and what changes afterwards does not count. On a GPU:
 * advanced.h.
 * Valid: always. The address does not change while the context is open, but for a generation's
 * begin: then the memory is zero, and on the host another one.
 * Returns a host address, or on a GPU a device address; 0: no such tensor, no context is open, or
 * its generation failed without a link. */
gf_mem gf_gradient(gf_context *gf, uint32_t tensor);

/* gf_gradient() as a pointer, for tensors of fp32 on the host.
 * Valid: as gf_gradient(). Returns NULL where that is 0, the tensor has another type, or gradients
 * lie on a GPU. */
float *gf_gradient_f32(gf_context *gf, uint32_t tensor);

/* gf_gradient() as a pointer to bits, for tensors of fp16 or bf16 on the host.
 * Valid: as gf_gradient(). Returns NULL where that is 0, the tensor is of fp32, or gradients lie on
 * a GPU. */
uint16_t *gf_gradient_bits16(gf_context *gf, uint32_t tensor);

/* The address of a tensor's fp32 master weights, [elem_count], with an optimizer of the library's.
 * Valid: always. To be asked again after a regroup.
 * Returns a host address, or on a GPU a device address; 0: no such tensor, or no optimizer. */
gf_mem gf_weight(gf_context *gf, uint32_t tensor);

/* gf_weight() as a pointer, on the host.
 * Valid: as gf_weight(). Returns NULL where that is 0, or weights lie on a GPU. */
float *gf_weight_f32(gf_context *gf, uint32_t tensor);

/* The address of the copy of a tensor's weights in optimizer.half_weights, [elem_count]. Where an
 * interface has no bf16 (__cuda_array_interface__), hand it on as 16-bit integers ("<i2") and view
 * these as bf16.
 * Valid: as gf_weight(). Returns as gf_weight(); 0: there is no such copy, too. */
gf_mem gf_weight_half(gf_context *gf, uint32_t tensor);

/* gf_weight_half() as a pointer to bits, on the host.
 * Valid: as gf_weight(). Returns NULL where that is 0, or weights lie on a GPU. */
uint16_t *gf_weight_bits16(gf_context *gf, uint32_t tensor);

/* The appliance has written gf_weight() (first values, a broadcast): brings gf_weight_half() up to
 * date. gf_update() and gf_state_load() do so themselves.
 * Valid: ready. */
gf_status gf_weights_written(gf_context *gf);

/* First weights: rank `root`'s gf_weight() of all tensors, and its config.state_extra, reach every
 * rank; then the half weights are made. All ranks call it.
 * A death in it is regrouped as one in a step, and so is one that an earlier call has told and the
 * program has ignored. The regroup ends the broadcast: all ranks then have root's values, or where
 * nobody lives who had them all those from before this call. A root that another's broadcast has
 * left with a part of its values does not have them all. Before the first step there were none:
 * gf_weights_common() tells, and a program that asks it needs nothing else:
 *     while (!gf_weights_common(gf)) { root writes its first values; gf_broadcast_weights() }
 * Until then gf_step_begin() and gf_state_save() are GF_ERR_STATE on ranks that called this.
 * Blocks: up to exchange.timeout for the weights and for each message of regions; who serves
 * signals meanwhile waits for a gf_barrier() with gf_request_wait_for() first.
 * Valid: idle.
 * Returns GF_OK; GF_ERR_STATE: there are neither, or there are regions and the last step was not
 * applied, too. */
gf_status gf_broadcast_weights(gf_context *gf, uint32_t root);

/* True: weights and config.state_extra are what all ranks have in common, by a broadcast, a saved
 * state, a regroup or a step. False: nothing of that was here yet, as on a program's first way
 * through, or the context is not open, is failing or is on its way to a generation. It is the same
 * on all ranks after a regroup, and true in one that comes into a job where it was.
 * Valid: always. */
bool gf_weights_common(const gf_context *gf);

/* ======== 5. The step ======== */

/* Begins a step; no byte of gf_gradient() is written. Several micro-batches make one step: the
 * first writes, the others add, and only the last declares its tensors ready.
 * Valid: idle; in an elastic job (job.elastic) once the step before was applied, where there is an
 * optimizer or state_extra. */
gf_status gf_step_begin(gf_context *gf);

/* Asks what the loss is to be multiplied with before backward: a power of two, 1 unless
 * loss_scale.enabled. It grows up to 2^24 and changes from step to step: a gradient that is
 * declared before the scale of its step was asked for is refused with GF_ERR_STATE, unless that is
 * 1.
 * Valid: always. */
float gf_loss_scale(gf_context *gf);

/* Says how many samples this rank's gradients stand for in this step. A warning tells where
 * exchange.average is samples and some ranks say it and others do not, and where it is ranks and
 * they differ.
 *     sample_count    0 to 2^51 - 1; 1 where it is not said
 * Valid: step, before the last tensor is declared: with that the vote may be on its way. */
gf_status gf_step_samples(gf_context *gf, uint64_t sample_count);

#define GF_METRICS 4u
/* Says a number of this rank, as its loss, that the vote adds up without a message or wait of its
 * own. Who says none adds 0. It is a sum: where ranks have unequally many samples, a mean takes two
 * metrics (the loss times the samples; the samples). A NaN or an infinity skips nothing; the sum is
 * then NaN or infinite on all ranks.
 *     index       below GF_METRICS
 * Valid: step, before the last tensor is declared. */
gf_status gf_step_metric(gf_context *gf, uint32_t index, double value);

/* The sum of that number over all ranks, the same bits on each, after a whole step, skipped or not.
 * Valid: after a step. Returns 0 elsewhere, after a regroup too: some ranks may lack that step. */
double gf_metric(const gf_context *gf, uint32_t index);

/* Declares that backward has ended this tensor, in any order. Queues work and moves all that is
 * under way once, as gf_step_poll() does.
 *     queue       where the gradient is being computed, so that what follows waits for it; 0 with
 *                 the host device
 * Valid: step, once for a tensor.
 * Returns GF_OK, also while the ranks ask each other whose fault a failure is: the first error that
 * a call returns is the one that names the culprit. */
gf_status gf_tensor_ready(gf_context *gf, uint32_t tensor, gf_queue_handle queue);

/* gf_tensor_ready() for tensors first .. first + count - 1, at least one: what a trainer says whose
 * backward fills one flat buffer. Where one of them is refused none is declared.
 * Valid, and returns: as gf_tensor_ready(). */
gf_status gf_tensors_ready(gf_context *gf, uint32_t first, uint32_t count, gf_queue_handle queue);

/* For a trainer that keeps its gradients elsewhere: copies one to gf_gradient() and declares it
 * ready; the average is in gf_gradient(). From gf_gradient() itself nothing is copied.
 *     gradient    [elem_count] of the tensor's type. On the host it may be written again at once.
 *                 On a GPU it is device memory, or host memory that the device was told of
 *     queue       where the copy goes on a GPU; what comes there later may write it again
 * Valid, and returns: as gf_tensor_ready(). */
gf_status gf_tensor_copy(gf_context *gf, uint32_t tensor, const void *gradient,
                         gf_queue_handle queue);

/* This rank adds nothing to the tensor in this step: the same as writing zeroes and declaring it
 * ready.
 * Valid, and returns: as gf_tensor_ready(). */
gf_status gf_tensor_skip(gf_context *gf, uint32_t tensor);

/* Moves what is under way; call it between layers. Of each buffer that is under way a poll packs at
 * most about a slice (exchange.slice_bytes), adds one and unpacks one; after the vote about one in
 * all. With sparse exchange and optimizer.clip_norm one poll after the vote adds up the norm of all
 * that was sent, and blocks on a GPU until it has.
 * Valid: step.
 * Returns GF_AGAIN until the step is whole, and while a tensor was not declared; GF_OK then. */
gf_status gf_step_poll(gf_context *gf);

/* Polls until the step is whole.
 * Blocks: up to exchange.timeout without progress.
 * Valid: step.
 * Returns GF_OK; GF_ERR_STATE: a tensor was not declared, which is named; GF_ERR_TIMEOUT,
 * GF_ERR_PEER, GF_ERR_LINK, GF_ERR_DEVICE: the context has failed. */
gf_status gf_step_wait(gf_context *gf);

/* True if a value anywhere that was not finite made all ranks drop the step. gf_gradient() is then
 * undefined and gf_update() changes nothing; the loss scale counts a bad step. With
 * optimizer.clip_norm a norm that is not finite does the same once it is known, in
 * gf_gradient_norm(), gf_gradient_clip() or gf_update(): who updates by itself asks after it. With
 * sparse exchange it is known when the step is whole, before a history is written; and the step is
 * dropped as well if what would wait after it is too large to be clipped later.
 * Valid: after a step. */
bool gf_step_skipped(const gf_context *gf);

/* ======== 6. The update ======== */

/* What gf_gradient() must be multiplied with to be the average. 1 where optimizer.kind is none:
 * there it is the average in every type, made in fp32 with loss scale and pre-scale taken out, and
 * rounded once. So an fp16 tensor loses bits below 2^-14 (6e-5) and is 0 below 2^-25 (3e-8), which
 * fp32 tensors on an fp16 wire and bf16 (0 below 2^-134) do not. With an optimizer of the library's
 * 16-bit tensors keep the scale, and gf_update() takes it out; fp32 tensors do too, which spares a
 * pass, unless average, loss scale and pre-scale make the factor of a sum larger than 1: then they
 * hold the average.
 * Valid: after a step. */
float gf_gradient_scale(const gf_context *gf);

/* The norm of all averaged gradients together, and what clipping multiplies them with: min(1,
 * optimizer.clip_norm / (norm + 1e-6)), 1 without clip_norm. One pass over the gradients at the
 * first call of a step; the same bits on all ranks, without a message. Right for all finite
 * gradients; where the norm is beyond fp32 it is infinite, and with clip_norm the factor is 0 and
 * the step becomes a skipped one (gf_step_skipped()), on all ranks alike. gf_update() asks and
 * applies the factor itself; an optimizer of the appliance's own multiplies with it, or has the
 * gradients scaled in place by gf_gradient_clip(). Outputs may be NULL. With clip_norm and sparse
 * exchange the step, dense ones too, has made the norm already, of sums before they are rounded to
 * the gradient's type; this call reads nothing, and gradients that were changed since do not count.
 * Blocks: on a GPU until it has added.
 * Valid: after a step that was not skipped. */
gf_status gf_gradient_norm(gf_context *gf, float *norm_out, float *factor_out);

/* Multiplies all gradients with that factor in place, one more pass, after which the factor is 1.
 * norm_out is the norm before it, and may be NULL.
 * Blocks, and valid: as gf_gradient_norm(). */
gf_status gf_gradient_clip(gf_context *gf, float *norm_out);

/* The library's optimizer applies the averaged gradients to gf_weight(), momentum or moments.
 *     learning_rate    finite and not negative
 * Valid: after a step, once; with an optimizer. */
gf_status gf_update(gf_context *gf, float learning_rate);

/* The same said by an appliance whose own optimizer (optimizer.kind none) has applied them to
 * config.state_extra. It looks at no message, so it is GF_OK also where a peer has died since
 * gf_step_wait(): it may as well be said late, as the first call of the library after the update.
 * Where a call before the update told of a death, and that was ignored, it returns the same error;
 * the step counts as applied by this rank all the same, and a regroup gives it to the others.
 * From the first byte of state_extra that the update writes until this call make no other call of
 * the library, gf_heartbeat() neither: a failure in between would be regrouped with an update that
 * is half written. Only those that answer without a status (gf_rank(), gf_steps(), gf_rate() ..)
 * may be called.
 * Valid: after a step, once, not after one that was skipped (a warning). */
gf_status gf_updated(gf_context *gf);

/* The learning rate of a step by config.rate (schedule.h).
 *     step        counted from 0, as gf_steps() counts
 * Valid: always. Returns 0 where there is none. */
float gf_rate(const gf_context *gf, uint64_t step);

/* ======== 7. Collectives as posted requests ======== */

/* One posted operation. The caller's memory, which the library knows by its address until its end
 * was asked for. */
struct gf_request {
    uint64_t reserved[8];
};
#define GF_REQUESTS_MAX 8u

/* Adds data over all ranks, in place. What holds for it holds for the five calls after it:
 *     data        [elem_count] of type, in host memory or in device memory: the library's
 *                 (gf_gradient(), gf_weight()), or the appliance's, whose work on it has then
 *                 ended. The library's until gf_request_poll() or gf_request_wait() gives
 *                 anything but GF_AGAIN
 *     request     the caller's, until its end was asked for
 * All ranks post the same requests in the same order with the same arguments; a difference is found
 * and named. Buffers from gf_exchange_take() travel without a copy, other host memory is staged
 * slice by slice; device memory is copied to the host and back, at most as many elements as the
 * pool has, one such request after the other. With a 16-bit type values are added in fp32 and
 * rounded once a hop. Posting moves all that is under way once, as gf_request_poll() does.
 * Valid: ready.
 * Returns GF_OK; GF_FULL, with nothing posted, while there are GF_REQUESTS_MAX whose end was not
 * asked for. */
gf_status gf_allreduce(gf_context *gf, gf_mem data, uint64_t elem_count, gf_type type,
                       struct gf_request *request);

enum { GF_REDUCTION_SUM, GF_REDUCTION_MIN, GF_REDUCTION_MAX, GF_REDUCTION_COUNT };
typedef uint32_t gf_reduction;
/* Adds, or takes the least or the greatest, of data in host memory. For min and max any NaN makes
 * NaN, and -0 is below 0.
 * Valid, and returns: as gf_allreduce(). */
gf_status gf_allreduce_by(gf_context *gf, gf_reduction reduction, gf_mem data, uint64_t elem_count,
                          gf_type type, struct gf_request *request);

/* Sends data of rank `root` to all.
 * Valid, and returns: as gf_allreduce(). */
gf_status gf_broadcast(gf_context *gf, gf_mem data, uint64_t elem_count, gf_type type,
                       uint32_t root, struct gf_request *request);

/* Leaves the sum in block gf_rank() of data (gf_block()); the other blocks are undefined.
 * Valid, and returns: as gf_allreduce(). */
gf_status gf_reduce_scatter(gf_context *gf, gf_mem data, uint64_t elem_count, gf_type type,
                            struct gf_request *request);

/* Sends block gf_rank() of data to everybody.
 * Valid, and returns: as gf_allreduce(). */
gf_status gf_allgather(gf_context *gf, gf_mem data, uint64_t elem_count, gf_type type,
                       struct gf_request *request);

/* Ends when every rank has posted it; carries no data.
 * Valid, and returns: as gf_allreduce(). */
gf_status gf_barrier(gf_context *gf, struct gf_request *request);

/* Moves all requests, and says whether this one has ended.
 *     request     one that was posted; the caller's again once this gives anything but GF_AGAIN
 * Valid: ready.
 * Returns GF_AGAIN, or GF_OK; GF_ERR_PARAM: not posted, or ended. */
gf_status gf_request_poll(gf_context *gf, struct gf_request *request);

/* Polls until the request has ended.
 * Blocks: up to exchange.timeout without progress.
 * Valid: ready.
 * Returns what gf_request_poll() returns, but GF_AGAIN; GF_ERR_TIMEOUT, GF_ERR_PEER, GF_ERR_LINK:
 * the context has failed. */
gf_status gf_request_wait(gf_context *gf, struct gf_request *request);

/* Block `rank` of a vector: its first element and how many, 0 from world on; a block has
 * ceil(elem_count / world). Outputs may be NULL.
 * Valid: always, without a context. */
void gf_block(uint64_t elem_count, uint32_t world, uint32_t rank, uint64_t *first_out,
              uint64_t *count_out);

/* Takes memory of the exchange region, which travels without a copy: the appliance's until
 * gf_close() or the next generation.
 * Valid: always.
 * Returns an address, 64-byte aligned; 0: exchange.user_bytes is used up, the context is not open
 * yet or has failed, or a regroup is under way, from gf_regroup_begin() on. */
gf_mem gf_exchange_take(gf_context *gf, uint64_t size_bytes);

/* ======== 8. Life signs and abort ======== */

/* Says "computing, not stuck" to the others, and moves messages a little. Ranks that wait for this
 * one wait exchange.timeout more from each call on, in gf_close() too, so a call each quarter of
 * that is enough for a checkpoint or an evaluation of minutes. It counts for exchange.patience
 * since this rank last began an operation or a step, and no longer: a program that hangs in a loop
 * with this call is then named. The coordinator, which tells the others, must be polled, too: rank
 * 0, where it lies there. Not beside another call on this context, so not from a thread or signal
 * handler of its own.
 * Valid: OPENING, open and REGROUP, until this rank has left.
 * Returns GF_OK; GF_ERR_PEER, GF_ERR_LINK, GF_ERR_TIMEOUT: a peer has failed meanwhile, and
 * gf_regroup_begin() is next in an elastic job: every other call with a status returns the same,
 * gf_state_save() too. */
gf_status gf_heartbeat(gf_context *gf);

/* Marks the context aborted and returns. The next call on the context answers GF_ERR_ABORTED, and
 * the other ranks are told.
 * Valid: always, in any thread and in signal handlers, until gf_close(). */
void gf_abort(gf_context *gf);

/* ======== 9. Saved states ======== */

/* What a checkpoint must hold: weights, momentum, history, selection, loss scale, step,
 * state_extra; not statistics. A history is what sparse steps of this rank have not sent yet, the
 * selection is the chunks that the next one sends. Without sparse steps the state is the same on
 * all ranks: one rank may save it for all, and any number of ranks load it. With sparse steps each
 * rank saves its own: history and, with sparse.momentum local, momentum differ from rank to rank.
 * Saving a value that is not finite is a warning: the run has diverged.
 *
 * At the same world size rank r loads what rank r saved, and the run goes on bitwise as if it had
 * not been interrupted. From m ranks to n the run resumes with what is common: rank r below m loads
 * what rank r saved; a rank from m on loads any one of them and begins with an empty history. What
 * waited in the histories of ranks from n on is dropped, and rank 0 logs how many values that are.
 * All ranks must load one save. With average ranks histories and local momentum are multiplied by
 * n/m, as their sum will be divided by n; with sum and samples they stay: right where the global
 * batch stays. */

/* The size of a saved state; it does not change while the context is open.
 * Valid: always. Returns 0 where there is no open context. */
uint64_t gf_state_bytes(const gf_context *gf);

/* Saves the state of this rank.
 *     data        [bytes], gf_state_bytes() of it, aligned to 8; the caller's
 * Blocks: for no other rank; for what copying all bytes and their checksum take.
 * Valid: idle, the last step applied. */
gf_status gf_state_save(gf_context *gf, void *data, uint64_t bytes);

/* Loads a state that was saved, on all ranks in place of gf_broadcast_weights().
 *     data        [bytes] of who saved, aligned to 8; read during the call only
 * Blocks: as gf_state_save().
 * Valid: idle.
 * Returns GF_OK; GF_ERR_DATA: it is corrupt, short, newer, or of other tensors, optimizer or sparse
 * settings, or holds a value that no save writes or that is not finite; why is logged, and the
 * context is as it was before. Saves of different steps on ranks that then take a step are
 * GF_ERR_MISMATCH there. */
gf_status gf_state_load(gf_context *gf, const void *data, uint64_t bytes);

/* ======== 10. The next generation ======== */

/* A regroup is one way for a failure, for processes that come in and for ranks that leave, in a job
 * that is elastic (job.elastic). The coordinator of the job makes the list of the ranks
 * (rendezvous.coordinator). Each rank calls gf_regroup_begin()
 *   - after GF_ERR_PEER, GF_ERR_LINK or GF_ERR_TIMEOUT of any call but gf_open_wait(),
 *     gf_regroup_wait() and gf_close() with their polls, whose errors are final. One survivor is
 *     enough. Or
 *   - between steps, the last one applied, if gf_regroup_due() is not 0. A regroup after a failure
 *     admits those that wait, too.
 * On GF_OK of the wait, but for a rank that has left,
 *   - the context is ready, between steps; gf_rank() and gf_world() are new, in the order of what
 *     the ranks were at first (gf_first_rank()). Addresses (gf_gradient() .., gf_exchange_take())
 *     are to be asked again: the exchange region is zero, and may be another one. Requests that
 *     were posted are gone, the step that was under way is dropped on all;
 *   - weights, momentum, state_extra, selection, loss scale and gf_steps() are one rank's: the
 *     lowest of those that have the most steps and, if any of them has, have applied the last one.
 *     Where no rank lags or came in, each keeps its own. Histories are each rank's own, empty on
 *     those that came in; with average ranks they and local momentum are multiplied by the new
 *     number of ranks over the old one, as gf_state_load() does. A step that nobody had updated is
 *     void.
 * More deaths on the way end nothing: the regroup begins anew by itself.
 * Of ranks that the others go on without, two kinds are told apart. One that was silent (stopped,
 * or its host without a network) waits to come in again, inside the same poll or wait, and then has
 * gf_left_out(). One that was cut, because a connection between it and another rank was broken or
 * because it lagged, ends. */

/* How many processes wait to come in or want to leave, as of the last whole step, the same on all
 * ranks.
 * Valid: always. Returns 0 wherever the context is not READY. */
uint32_t gf_regroup_due(const gf_context *gf);

/* How many of them wait to come in.
 * Valid: always. Returns 0 wherever the context is not READY. */
uint32_t gf_joiners(const gf_context *gf);

/* Begins a regroup: says that this rank's operations have ended, and that it may go on.
 * Valid: idle, the last step applied, where gf_regroup_due() is not 0; on a context that failed
 * with GF_ERR_PEER, GF_ERR_LINK or GF_ERR_TIMEOUT, but not in gf_open_wait() or gf_regroup_wait().
 * Returns GF_OK; GF_ERR_STATE: nothing is due, this rank failed by itself, in one step all waited
 * for each other twice, or the job has ended. */
gf_status gf_regroup_begin(gf_context *gf);

/* Moves the regroup. The poll that makes the link anew takes what the pages of the exchange region
 * take, and with average ranks the one that ends it what a pass over the history takes.
 * Valid: after gf_regroup_begin().
 * Returns GF_AGAIN until the generation has begun, GF_OK then. Each error is final: another
 * gf_regroup_begin() is GF_ERR_STATE, and gf_close() is next. GF_ERR_PEER: the others went on
 * without this rank and do not let it in (it was cut); or the coordinator, or the rank in whose
 * process it runs, is lost, and the job ends. GF_ERR_TIMEOUT: no generation began in time.
 * GF_ERR_DATA: all that held whole weights died while others had a part of them. GF_ERR_SYSTEM,
 * GF_ERR_DEVICE: no new link on this host. */
gf_status gf_regroup_poll(gf_context *gf);

/* Polls until the generation has begun.
 * Blocks: up to rendezvous.join_timeout and 2 s after the last generation that it reached.
 * Valid, and returns: as gf_regroup_poll(), but GF_AGAIN. */
gf_status gf_regroup_wait(gf_context *gf);

/* This rank leaves with the next generation: it goes on until gf_regroup_due() tells all and begins
 * that like the others, to whom it is no failure. On GF_OK of that gf_left() is true, and
 * gf_close() is next. Where this rank alone has whole weights and others come in, it is a rank of
 * that generation, too, and hands them on: gf_left() is false, and it leaves with the next one.
 * Valid: open.
 * Returns GF_OK; GF_ERR_STATE: this rank is alone, or the coordinator runs in its process. */
gf_status gf_leave(gf_context *gf);

/* True once this rank has left.
 * Valid: always. */
bool gf_left(const gf_context *gf);

/* True if the generation under way has taken this rank in again: the others had gone on without it,
 * as it was silent for them, and it came back by itself on the way through gf_regroup_poll().
 * Weights, momentum, state_extra, selection, loss scale and gf_steps() are theirs, its steps since
 * it was cut off are void, its history is what it had, without what it sent last if it was cut off
 * in the vote: that may have been applied. What the appliance keeps beside them it takes from the
 * others, as one that has come in.
 * Valid: always. */
bool gf_left_out(const gf_context *gf);

/* True if this context came into a job that had begun, and was given weights and steps: a rank of
 * an elastic job that has ended and was started again, with its old rank and world; or a new one,
 * whose rank is from world to world_max - 1. rendezvous.address (or GF_ADDRESS) is the job's. Start
 * again only what has ended; whoever knows that it has says rendezvous.rejoin (or GF_REJOIN=1), and
 * the new process need not wait until the old one's connection is given up. Its gf_open_wait() ends
 * when they have let it in, or with GF_ERR_MISMATCH: it was given something else; GF_ERR_STATE:
 * another process has its rank, or the job has ended ("the job has ended" in gf_error_text()); a
 * restarted rank that finds that all others have closed has nothing left to do. GF_ERR_TIMEOUT:
 * nobody answers at rendezvous.address (as when the coordinator has ended with the job), or nobody
 * let it in; GF_ERR_PEER: all ranks that it waited for died.
 * Valid: always. */
bool gf_rejoined(const gf_context *gf);

/* ======== 11. What has failed ======== */

/* The record of the error that failed the context; its code is GF_OK if there is none. The
 * library's, until gf_close().
 * Valid: always. */
const struct gf_error *gf_error_last(const gf_context *gf);

/* The text of that record alone, for a binding without the layout of struct gf_error.
 * Valid: always.
 * Returns one line for a person, without a line end: "" where nothing has failed or a call was
 * refused (GF_ERR_CONFIG of gf_open_file(), GF_ERR_DATA of gf_state_load() ..: config.log alone has
 * why); never NULL, for a context that is NULL neither. The library's; valid until gf_close(). */
const char *gf_error_text(const gf_context *gf);

/* ======== Rules ======== */

/* Rules that hold for every call unless its block says otherwise:
 *   - Nothing is allocated, no thread is started, nothing is printed. Memory is the caller's. (What
 *     UCX does by itself where a job uses it between nodes: drivers/ucx/README.md.)
 *   - One thread at a time per context, which need not be the one that opened it; contexts are
 *     independent of each other, and threads may open and close them at once.
 *   - *Blocks* says how long a call may poll before it returns. Where a block does not say it, the
 *     call returns at once.
 *   - "exchange.timeout" as a bound means so long without any progress: an operation that moves may
 *     take longer, and so may one of a rank that asks for patience by gf_heartbeat(). Once it has
 *     passed, the ranks find out whose fault it is before the call returns the error. This takes up
 *     to 3/8 of exchange.timeout more where a rank does not answer; up to about exchange.timeout
 *     more (3 s at least) where no rank is found at once; and exchange.timeout more (4 s at least)
 *     where the coordinator itself says nothing.
 *   - "gf_.._wait_for(.., bound_ns)" is "gf_.._wait(..)" that returns GF_AGAIN once it has blocked
 *     for bound_ns (0: after one poll). Nothing is lost, and it is called again, as by a binding
 *     that looks for signals in between. The deadlines are those of the wait. Between two calls
 *     nothing moves. The last poll may end later than bound_ns, a sleep never does.
 *   - *Returns* lists what is special to a call. Each gf_status may also be GF_ERR_PARAM (NULL for
 *     a context, a configuration or an output; an argument out of its range) or GF_ERR_STATE (not
 *     valid now). Such a call is refused, logged, and leaves the context as it was. Calls without a
 *     status answer 0, false, NULL or 1 to a context that is NULL.
 *   - Any other error fails the context. First the ranks find out whose fault it is. Meanwhile
 *     polls return GF_AGAIN; gf_tensor_ready(), gf_tensors_ready(), gf_tensor_ready_event(),
 *     gf_tensor_copy() and gf_tensor_skip() return GF_OK; any other call returns what this rank met
 *     itself. From the first poll or wait on that returns the error, each call returns the same
 *     status, and gf_error_last() has all of it.
 *   - In a forked child calls on the parent's context are GF_ERR_STATE, and answers are as at the
 *     fork. gf_gradient() is shared memory: the child must not write there. It may open a context
 *     of its own, but not over UCX where one over UCX was open at the fork: UCX's thread is not in
 *     the child (GF_ERR_SYSTEM).
 *   - Every call computes to nearest, with subnormals, and traps no floating-point exception,
 *     whatever the thread has set (-ffast-math, fesetround(), feenableexcept()); what is called
 *     back in it, as config.log, does too. Afterwards the thread's mode and flags are as before.
 *   - Outputs come last, set only on success. Units: bytes (`_bytes`), elements (`_count`,
 *     `_elems`), ns (`_ns`).
 *
 * What a peer's failure (GF_ERR_PEER, GF_ERR_LINK or GF_ERR_TIMEOUT) does to a call:
 *     moves messages, so that a failure is met there: gf_.._poll(), gf_.._wait(), gf_.._wait_for(),
 *         gf_tensor_ready() and its kind, posting a request, gf_broadcast_weights(),
 *         gf_heartbeat(), gf_close()
 *     returns what a call of the first line met before, and meets none itself: every other call
 *         with a status. So once gf_step_wait() has given GF_OK, gf_gradient_norm(),
 *         gf_gradient_clip(), gf_update(), gf_updated(), gf_state_save(), gf_state_load(),
 *         gf_step_begin(), gf_step_samples() and gf_step_metric() return no peer's failure until
 *         the next call of the first line
 *     of a failure in gf_open_wait(), gf_regroup_wait() or gf_close() this rank ends; after any
 *         other gf_regroup_begin() is valid at once in an elastic job, also while the ranks still
 *         find out whose fault it is
 * What a death does to the others, by its moment, is a table in RECIPE.md, section 5. */

#ifdef __cplusplus
}
#endif

#include "advanced.h"
#endif
