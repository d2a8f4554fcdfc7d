/* Whether the streams of the devices of a node can tell each other what they have done
 * (ops/node/direct_stream.c), by words in the exchange regions. Proven by each rank at the end of
 * the warm-up: its stream stands at a wait until the CPU stores the word and goes on then, and what
 * its stream stores in the other ranks' regions they find there. */
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/arena.h"
#include "lib/core/choose.h"
#include "lib/core/device_work.h"
#include "lib/device/device.h"
#include "ops/node/direct.h"

enum { FLAGS_FINE, FLAGS_NONE, FLAGS_KEPT, FLAGS_PASSED, FLAGS_UNSEEN };
enum { WORD_SEEN, WORD_HELD, WORD_PASSED }; /* of a rank's proof */

#define LOOKS 256u /* at a stream that should stand */

static size_t proof_at(const gf_context *gf, uint32_t rank, uint32_t word)
{
    const struct gf_direct shared = {.lane_ranks = gf->lane_ranks};
    return gf_direct_proof_at(&shared, rank) + word * sizeof(uint64_t);
}

static uint64_t proof_of(const gf_context *gf, uint32_t rank)
{
    return ((uint64_t)(gf->epoch + 1) << 16) + rank + 1;
}

static uint64_t *own_word(const gf_context *gf, uint32_t word)
{
    return (uint64_t *)(void *)((char *)gf->region.base + proof_at(gf, gf->rank, word));
}

static uint64_t own_load(const gf_context *gf, uint32_t word)
{
    return __atomic_load_n(own_word(gf, word), __ATOMIC_ACQUIRE);
}

static gf_mem region_of(const gf_context *gf, uint32_t rank)
{
    return (gf_mem)(uintptr_t)gf->link->driver->map(gf->link, gf_member_id_of(gf, rank));
}

static void refused(gf_context *gf, uint32_t reason)
{
    gf->ipc.no_flags = (float)reason;
    if (gf->gpu->fault.code != GF_OK)
        gf_log_line(&gf->log, GF_LOG_WARN, "rank %u: %s", gf->rank, gf->gpu->fault.text);
    gf->gpu->fault = (struct gf_fault){.peer = GF_RANK_NONE}; /* nothing has failed */
}

/* Pages of the others' regions that hold flags. */
static bool regions_register(gf_context *gf)
{
    size_t bytes =
        (gf_direct_flags_bytes(gf->lane_ranks) + GF_PAGE_BYTES - 1) / GF_PAGE_BYTES * GF_PAGE_BYTES;
    if (bytes > gf->region.bytes) bytes = gf->region.bytes;
    for (uint32_t rank = 0; rank < gf->world; rank++) {
        gf_mem at = region_of(gf, rank);
        gf_status status = GF_OK;
        if (rank == gf->rank) continue;
        if (at != 0) status = gf->gpu->driver->host_register(gf->gpu, (void *)(uintptr_t)at, bytes);
        if ((at == 0) || ((status < 0) && (status != GF_ERR_STATE))) return false;
        if (status == GF_OK) gf->ipc.areas[rank] = at;
    }
    gf->gpu->fault = (struct gf_fault){.peer = GF_RANK_NONE};
    return true;
}

/* Until the queue has ended, and a word of the own region says so. */
static gf_status ended_wait(gf_context *gf, struct gf_queue *queue, uint32_t word)
{
    uint64_t end_ns;
    gf_status status;
    (void)gf_poll_begin(gf);
    end_ns = gf_awake(gf) + gf->config.exchange.timeout_ns;
    while (((status = gf->gpu->driver->finished(queue)) == GF_AGAIN) ||
           (own_load(gf, word) != proof_of(gf, gf->rank))) {
        if (status < 0) return gf_device_failed(gf, GF_OPERATION_JOIN);
        if ((gf_poll_begin(gf) > 0) && (gf_awake(gf) > end_ns))
            return gf_fail(gf, GF_ERR_TIMEOUT, GF_OPERATION_JOIN, gf->rank, GF_TENSOR_NONE,
                           "the device of rank %u and its CPU do not see each other's stores to "
                           "the exchange region",
                           gf->rank);
    }
    return GF_OK;
}

gf_status gf_flags_begin(gf_context *gf)
{
    const struct gf_gpu_driver *driver = gf->gpu->driver;
    gf_mem own = (gf_mem)(uintptr_t)gf->region.base;
    uint64_t proof = proof_of(gf, gf->rank);
    const struct gf_gpu_flag held[] = {
        {.at = own + proof_at(gf, gf->rank, WORD_HELD), .value = proof, .is_wait = true},
        {.at = own + proof_at(gf, gf->rank, WORD_PASSED), .value = proof}};
    gf_status status;
    gf->ipc.no_flags = FLAGS_FINE;
    if (!gf->gpu->has_flags)
        gf->ipc.no_flags = FLAGS_NONE;
    else if (!regions_register(gf))
        refused(gf, FLAGS_KEPT);
    if (gf->ipc.no_flags != FLAGS_FINE) return GF_OK;
    if (driver->flags(&gf->in_queue, held, 2) < 0) {
        refused(gf, FLAGS_KEPT);
        return GF_OK;
    }
    for (uint32_t rank = 0; rank < gf->world; rank++) {
        const struct gf_gpu_flag seen = {
            .at = region_of(gf, rank) + proof_at(gf, gf->rank, WORD_SEEN), .value = proof};
        if (driver->flags(&gf->out_queue, &seen, 1) < 0)
            return gf_device_failed(gf, GF_OPERATION_JOIN);
    }
    if ((status = ended_wait(gf, &gf->out_queue, WORD_SEEN)) < 0) return status;
    for (uint32_t look = 0; look < LOOKS; look++) (void)driver->finished(&gf->in_queue);
    if (own_load(gf, WORD_PASSED) != 0) gf->ipc.no_flags = FLAGS_PASSED;
    __atomic_store_n(own_word(gf, WORD_HELD), proof, __ATOMIC_RELEASE);
    return ended_wait(gf, &gf->in_queue, WORD_PASSED);
}

void gf_flags_look(gf_context *gf)
{
    for (uint32_t rank = 0; (rank < gf->world) && (gf->ipc.no_flags == FLAGS_FINE); rank++)
        if (gf_flag_load(gf->link, proof_at(gf, rank, WORD_SEEN)) != proof_of(gf, rank))
            gf->ipc.no_flags = FLAGS_UNSEEN;
}

const char *gf_flags_reason(float number)
{
    static const char *const reasons[] = {
        "", "its device or driver has no stream memory operations of 64 bits",
        "its device may not store to the others' exchange regions",
        "its streams do not wait for a word of memory",
        "what another rank's stream stored in its region is not there"};
    return reasons[(number <= FLAGS_UNSEEN) ? (uint32_t)number : FLAGS_UNSEEN];
}

void gf_flags_close(gf_context *gf)
{
    for (uint32_t rank = 0; (gf->ipc.areas != NULL) && (rank < gf->world); rank++) {
        void *area = (void *)(uintptr_t)gf->ipc.areas[rank];
        if (area != NULL) (void)gf->gpu->driver->host_unregister(gf->gpu, area);
        gf->ipc.areas[rank] = 0;
    }
}
