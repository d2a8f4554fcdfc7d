/* A link driver whose messages are told of while they are under way: from before the post to the
 * end that test() says, or a reset, a drop or the close of their link. While a message is under way
 * its memory is the driver's: nobody may write what a send reads, nor touch what a receive
 * writes. */
#ifndef LINK_WATCH_H
#define LINK_WATCH_H

#include "drivers/link.h"

/* Of memory that a message reads or writes; NULL: nobody wants to know. */
struct link_watch {
    bool (*begin)(gf_mem data, size_t size_bytes, bool is_write); /* false: it is not watched */
    void (*end)(gf_mem data, size_t size_bytes, bool is_write);
};
/* The driver that does so, for links that are opened by it; or for one that is open. One watch at a
 * time; the drivers of all links are the same. */
const struct gf_link_driver *link_watch(const struct gf_link_driver *driver,
                                        const struct link_watch *watch);
uint64_t link_watch_messages(void);  /* that were watched, since that */
uint32_t link_watch_under_way(void); /* now */
/* May this range be read or written now? */
bool link_watch_is_free(gf_mem data, size_t size_bytes, bool is_write);

#endif
