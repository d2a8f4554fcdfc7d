/* link.integrity: after each message its checksum. */
#include "ops/coll.h"

#include "drivers/checksum.h"

/* the checksum's tag; messages have the moves below */
#define SUM_MOVE (UINT64_C(1) << (GF_TAG_MOVE_BITS - 1))

static uint64_t sum_of(const struct gf_coll_sum *sum)
{
    return gf_crc32c(0, (const void *)(uintptr_t)sum->data, sum->size_bytes);
}

uint64_t gf_integrity_begin(struct gf_coll_msg *msg, uint64_t tag, gf_mem data, size_t bytes,
                            bool is_send)
{
    struct gf_coll_sum *sum = msg->sum;
    *sum = (struct gf_coll_sum){.req = sum->req,
                                .data = data,
                                .size_bytes = bytes,
                                .tag = tag | SUM_MOVE,
                                .is_send = is_send};
    if (is_send) sum->crc = sum_of(sum); /* now: after its end the memory is the owner's */
    return tag & ~SUM_MOVE;
}

gf_status gf_integrity_test(struct gf_coll *coll, struct gf_coll_msg *msg)
{
    const struct gf_link_driver *driver = coll->link->driver;
    struct gf_coll_sum *sum = msg->sum;
    gf_mem crc = (gf_mem)(uintptr_t)&sum->crc;
    gf_status status;
    if (!sum->posted) {
        status = (sum->is_send ? driver->send_post : driver->recv_post)(
            coll->link, msg->peer, sum->tag, crc, sizeof sum->crc, sum->req);
        if (status != GF_OK) return status;
        sum->posted = sum->active = true;
    }
    if (sum->active && ((status = driver->test(coll->link, sum->req)) != GF_OK)) return status;
    sum->active = false;
    if (sum->is_send || (sum->crc == sum_of(sum))) return GF_OK;
    return gf_fault_set(&coll->link->fault, GF_ERR_DATA, msg->peer, "crc32c", 0,
                        "%zu bytes from rank %u, move %llu, arrived damaged: their checksum is "
                        "%08llx, sent was %08llx",
                        sum->size_bytes, msg->peer, (unsigned long long)(sum->tag & (SUM_MOVE - 1)),
                        (unsigned long long)sum_of(sum), (unsigned long long)sum->crc);
}
