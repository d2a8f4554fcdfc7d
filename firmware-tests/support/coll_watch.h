/* Watches what the contract of a link forbids, whether or not it does harm today: while a message is under way its
 * memory is the driver's, so nobody may write what a send reads, nor touch what a receive writes. */
#ifndef COLL_WATCH_H
#define COLL_WATCH_H

#include "drivers/link.h"
#include "ops/ops.h"

/* The link's table is replaced by one that looks at each post. All watched links are of the same driver. */
void coll_watch_link(struct gf_link *link);
/* gf_element_ops_best() with a sum() that looks at its ranges. */
const struct gf_element_ops *coll_watch_ops(void);
/* Any fold: dst is written, src is read. */
void coll_watch_fold(gf_mem dst, gf_mem src, size_t size_bytes);
uint32_t coll_watch_under_way(void);

#endif
