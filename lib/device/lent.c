/* Whether ranks of one node sum their gradients from device to device (ops/node/direct_device.c), agreed on by all at the
 * end of the warm-up: each tells the others how its arena is reached, each tries to reach all, and where one is refused
 * all go on through host memory and say why. What was borrowed is given back before the lenders hear that this rank
 * leaves. */
#include <stdio.h>
#include <string.h>

#include "lib/context.h"

/* Why a rank's memory cannot be shared. */
enum { LENT_FINE, LENT_NOT_BUILT, LENT_KEPT, LENT_OUT_OF_REACH };

size_t gf_lent_bytes(uint32_t world)
{
    return world * (GF_LENT_WORDS * sizeof(float) + 2 * sizeof(float) + sizeof(gf_mem));
}

void gf_lent_lay(struct gf_lent *lent, char *memory, uint32_t world)
{
    *lent = (struct gf_lent){0};
    if (memory == NULL) return;
    lent->bases = (gf_mem *)(void *)memory;
    lent->cards = (float *)(void *)(lent->bases + world);
    lent->refusals = lent->cards + world * GF_LENT_WORDS;
}

static float *card_of(const gf_context *gf, uint32_t rank) { return gf->lent.cards + rank * GF_LENT_WORDS; }

static void post(gf_context *gf, gf_operation operation, gf_coll_op op, float *words, uint64_t count)
{
    gf_status status = gf_request_post(gf, operation, op, (gf_mem)(uintptr_t)words, count, GF_TYPE_F32, 0,
                                       &gf->warm_requests[0]);
    GF_ASSERT(status == GF_OK);
}

/* The driver's own words, of the rank that it happened to. */
static void refused(gf_context *gf, const char *what)
{
    gf_log_line(&gf->log, GF_LOG_WARN, "rank %u: %s: %s", gf->rank, what, gf->gpu->fault.text);
}

bool gf_lent_begin(gf_context *gf)
{
    const struct gf_gpu_driver *driver = gf->gpu->driver;
    float *card;
    uint32_t devices = (uint32_t)gf->met[GF_MET_DEVICE];
    gf->lent.agreed = false;
    if ((devices == 0) || (gf->algorithm != GF_ALGORITHM_DIRECT)) return false;
    if (devices < gf->world) {
        if (gf->on_device)
            gf_log_line(&gf->log, GF_LOG_WARN, "rank %u: gradients go through host memory: only %u of %u ranks have "
                        "theirs on a device", gf->rank, devices, gf->world);
        return false;
    }
    card = card_of(gf, gf->rank);
    memset(gf->lent.cards, 0, gf->world * GF_LENT_WORDS * sizeof(float));
    if (driver->lend == NULL) {
        card[0] = LENT_NOT_BUILT;
    } else if (driver->lend(gf->gpu, card + 2) < 0) {
        card[0] = LENT_KEPT;
        card[1] = (float)gf->gpu->fault.foreign_code;
        refused(gf, "device memory cannot be lent to the other ranks");
    }
    post(gf, GF_OPERATION_JOIN, GF_COLL_ALLGATHER, gf->lent.cards, gf->world * GF_LENT_WORDS);
    return true;
}

void gf_lent_borrow(gf_context *gf)
{
    struct gf_lent *lent = &gf->lent;
    float *own = lent->refusals + 2 * gf->rank;
    memset(lent->refusals, 0, 2 * gf->world * sizeof(float));
    own[0] = card_of(gf, gf->rank)[0];
    own[1] = card_of(gf, gf->rank)[1];
    for (uint32_t rank = 0; (rank < gf->world) && (own[0] == LENT_FINE); rank++) {
        if (rank == gf->rank) lent->bases[rank] = gf->device;
        if ((rank == gf->rank) || (card_of(gf, rank)[0] != LENT_FINE)) continue; /* who lends nothing says so itself */
        if (gf->gpu->driver->borrow(gf->gpu, card_of(gf, rank) + 2, &lent->bases[rank]) >= 0) continue;
        lent->bases[rank] = 0;
        own[0] = LENT_OUT_OF_REACH;
        own[1] = (float)gf->gpu->fault.foreign_code;
        refused(gf, "device memory of another rank is out of reach");
    }
    post(gf, GF_OPERATION_JOIN, GF_COLL_ALLREDUCE, lent->refusals, 2 * (uint64_t)gf->world);
}

static const char *reason(float number)
{
    static const char *const reasons[] = {"", "its device's driver lends no memory",
                                          "it may not lend its device memory",
                                          "it cannot reach the device memory of another rank"};
    return reasons[(number <= LENT_OUT_OF_REACH) ? (uint32_t)number : LENT_OUT_OF_REACH];
}

void gf_lent_settle(gf_context *gf)
{
    for (uint32_t rank = 0; rank < gf->world; rank++) {
        const float *refusal = gf->lent.refusals + 2 * rank;
        if (refusal[0] == LENT_FINE) continue;
        gf_lent_close(gf);
        gf_log_line(&gf->log, GF_LOG_WARN, "rank %u: gradients go through host memory, not from device to device: "
                    "rank %u: %s (code %d)", gf->rank, rank, reason(refusal[0]), (int)refusal[1]);
        return;
    }
    gf->lent.agreed = true;
}

void gf_lent_close(gf_context *gf)
{
    struct gf_lent *lent = &gf->lent;
    for (uint32_t rank = 0; (lent->bases != NULL) && (rank < gf->world); rank++) {
        if ((lent->bases[rank] != 0) && (rank != gf->rank))
            gf->gpu->driver->give_back(gf->gpu, card_of(gf, rank) + 2, lent->bases[rank]);
        lent->bases[rank] = 0;
    }
    lent->agreed = false;
}
