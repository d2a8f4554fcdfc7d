/* Messages between the ranks of a node.
 *
 * A send takes an entry of this rank's table and announces it to the receiver, which copies the
 * bytes and then marks the entry as taken. Where the bytes lie until then is the entry's kind:
 *
 *     ENTRY_INLINE  in the entry itself, up to NODE_INLINE_BYTES: the send has ended
 *     ENTRY_CELL    in one cell, if there are enough free ones: the send has ended
 *     ENTRY_REGION  in the exchange region, where the caller has them: the send ends once the
 *                   receiver has copied them
 *     ENTRY_STREAM  in other memory: the sender fills a few cells at a time and the receiver
 *                   empties them
 *
 * No message waits for another: a receiver takes announcements in the order in which they were
 * made, and keeps a list of those without a posted receive. A message without a receive gets a
 * cell only while at least half of the cells are free.
 *
 * Memory order. The sender fills its entry, then stores the word of the ring, then the bell, both
 * with release. The receiver takes the bell by an exchange, reads the word with acquire, and then
 * the entry. The exchange takes the last value in the bell's order of changes: a bell that is rung
 * after it stays set, and one that was rung before it makes the word visible. The receiver stores
 * TAKEN with release after its last read; once the sender has read that with acquire, it may use
 * the entry, its cells and the message's memory again. A sender that cancels a message stores
 * `revoked`, then a fence, and then perhaps something else into the message's memory. The receiver
 * reads `revoked` after its copy and a fence: if its copy holds any of these later stores it sees
 * `revoked` too, and drops the copy. */
#include "drivers/host/node_state.h"

#include <string.h>

enum req_state {
    REQ_ENDED = 1,
    REQ_SEND, /* in node.sends, or in node.streams */
    REQ_STREAM,
    REQ_POSTED,  /* in pair.posted */
    REQ_PULLING, /* in node.pulling */
    REQ_LOOSE    /* a receive that is in no list, on its way from one to the next */
};

/* What progress() or a part of it has done. */
enum progress {
    PROGRESS_DAMAGED, /* the link has failed */
    PROGRESS_NONE,
    PROGRESS_MADE
};

enum entry_kind { ENTRY_INLINE, ENTRY_CELL, ENTRY_REGION, ENTRY_STREAM };

#define ENTRY_NONE UINT32_MAX

/* ---- lists ---- */

static void list_add(struct node_list *list, struct gf_node_req *req)
{
    req->next = NULL;
    req->previous = list->last;
    if (list->last != NULL)
        list->last->next = req;
    else
        list->first = req;
    list->last = req;
}

static void list_remove(struct node_list *list, struct gf_node_req *req)
{
    if (req->next != NULL)
        req->next->previous = req->previous;
    else
        list->last = req->previous;
    if (req->previous != NULL)
        req->previous->next = req->next;
    else
        list->first = req->next;
}

static void req_begin(struct gf_node *node, struct gf_node_req *req, struct node_list *list,
                      enum req_state state)
{
    req->answer = GF_AGAIN;
    req->state = state;
    req->done_bytes = 0;
    list_add(list, req);
    node->requests_under_way++;
}

static void req_end(struct gf_node *node, struct node_list *list, struct gf_node_req *req,
                    gf_status answer)
{
    GF_ASSERT((req->answer == GF_AGAIN) && (node->requests_under_way > 0));
    list_remove(list, req);
    node->requests_under_way--;
    req->answer = answer;
    req->state = REQ_ENDED;
}

/* A peer's memory holds an impossible value. The link fails with the first such finding. */
static enum progress damaged(struct gf_node *node, const struct node_pair *pair, const char *what)
{
    if (node->link->failed == GF_OK)
        node->link->failed =
            gf_node_fault(node, GF_ERR_LINK, pair->peer, "progress",
                          "the memory that rank %u shares with rank %u is damaged: %s", pair->peer,
                          node->rank, what);
    return PROGRESS_DAMAGED;
}

/* Wakes the peer if it sleeps. The fence stands between a store for the peer and the read of its
 * `sleeps`, as one in gf_node_arm() stands between its store and its last look: at least one of
 * the two ranks sees the other's store. */
static void peer_wake(struct gf_node *node, const struct node_pair *pair)
{
    gf_full_fence();
    gf_node_wake(node, pair);
}

/* ---- this rank's table ---- */

static struct node_entry *own_entry(const struct gf_node *node, uint32_t entry)
{
    return node_entry_of(node->memory, &node->plan, entry);
}

static void entry_give(struct gf_node *node, uint32_t entry)
{
    struct node_own *own = &node->own[entry];
    while (own->cell_count > 0)
        node->cell_stack[node->free_cells++] = own->cells[--own->cell_count];
    node->entry_stack[node->free_entries++] = (uint16_t)entry;
}

static bool is_taken(const struct gf_node *node, uint32_t entry)
{
    return __atomic_load_n(&own_entry(node, entry)->state, __ATOMIC_ACQUIRE) == NODE_ENTRY_TAKEN;
}

/* Frees those of the next `count` detached entries that the receiver has taken. */
static void detached_check(struct gf_node *node, uint32_t count)
{
    while ((count-- > 0) && (node->detached_count > 0)) {
        uint32_t entry;
        if (node->detached_next >= node->detached_count) node->detached_next = 0;
        entry = node->detached[node->detached_next];
        if (is_taken(node, entry)) {
            node->detached[node->detached_next] = node->detached[--node->detached_count];
            entry_give(node, entry);
        } else {
            node->detached_next++;
        }
    }
}

static void detach(struct gf_node *node, uint32_t entry)
{
    node->detached[node->detached_count++] = (uint16_t)entry;
}

/* Two checks for each entry that is used keep most of them free, and seldom meet one that has only
 * just been announced. */
static uint32_t entry_take(struct gf_node *node)
{
    if (node->detached_count > NODE_DETACHED_MAX / 4) detached_check(node, 2);
    if ((node->free_entries == 0) || (node->free_cells < NODE_CELLS / 2))
        detached_check(node, node->detached_count);
    return (node->free_entries == 0) ? ENTRY_NONE : node->entry_stack[--node->free_entries];
}

static uint32_t cell_take(struct gf_node *node, uint32_t entry)
{
    struct node_own *own = &node->own[entry];
    uint16_t cell = node->cell_stack[--node->free_cells];
    own->cells[own->cell_count++] = cell;
    return cell;
}

/* Ends the request if the receiver has taken its entry. True: it has ended. */
static bool send_check(struct gf_node *node, struct gf_node_req *req)
{
    if (!is_taken(node, req->entry)) return false;
    entry_give(node, req->entry);
    req_end(node, (req->state == REQ_STREAM) ? &node->streams : &node->sends, req, GF_OK);
    return true;
}

static void sends_check(struct gf_node *node)
{
    for (struct gf_node_req *req = node->sends.first, *next; req != NULL; req = next) {
        next = req->next;
        (void)send_check(node, req);
    }
}

/* Is there no room for another request? */
static bool requests_are_full(struct gf_node *node)
{
    if (node->requests_under_way >= node->requests_max) sends_check(node);
    return node->requests_under_way >= node->requests_max;
}

/* ---- sending ---- */

/* For data below the region this offset wraps around, so it is larger than any region. */
static bool in_region(const struct gf_node *node, const void *data, size_t size_bytes)
{
    uintptr_t offset = (uintptr_t)data - (uintptr_t)node->memory;
    return (offset < node->region_bytes) && (size_bytes <= node->region_bytes - offset);
}

static bool may_detach(const struct gf_node *node)
{
    return node->detached_count < NODE_DETACHED_MAX;
}

static enum entry_kind kind_of(const struct gf_node *node, const void *data, size_t size_bytes)
{
    if (size_bytes <= NODE_INLINE_BYTES) return ENTRY_INLINE;
    if ((size_bytes <= NODE_CELL_BYTES) && may_detach(node) && (node->free_cells > NODE_CELLS / 2))
        return ENTRY_CELL;
    return in_region(node, data, size_bytes) ? ENTRY_REGION : ENTRY_STREAM;
}

static void announce(struct gf_node *node, struct node_pair *pair, uint32_t entry)
{
    uint32_t *ring = node_ring_of(pair->memory, &pair->plan, pair->slot);
    uint32_t lap = ((pair->pushed / pair->plan.ring_words) & 1) ^ 1;
    __atomic_store_n(&ring[pair->pushed % pair->plan.ring_words], (entry << 1) | lap,
                     __ATOMIC_RELEASE);
    pair->pushed++;
    __atomic_store_n(node_bell_of(pair->memory, &pair->plan, pair->slot), 1, __ATOMIC_RELEASE);
    peer_wake(node, pair);
}

/* Fills cells that the receiver has emptied. PROGRESS_MADE: at least one. A message that has no
 * receive yet leaves half of the cells to others. */
static enum progress stream_fill(struct gf_node *node, struct gf_node_req *req)
{
    struct node_entry *entry = own_entry(node, req->entry);
    struct node_own *own = &node->own[req->entry];
    const struct node_pair *pair = node_pair_of(node, req->peer);
    uint64_t taken = __atomic_load_n(&entry->taken_bytes, __ATOMIC_ACQUIRE);
    bool wanted = __atomic_load_n(&entry->state, __ATOMIC_RELAXED) != NODE_ENTRY_ANNOUNCED;
    enum progress status = PROGRESS_NONE;
    if (taken > req->done_bytes) return damaged(node, pair, "more was taken than was there");
    while (req->done_bytes < req->size_bytes) {
        size_t left = req->size_bytes - req->done_bytes;
        size_t bytes = (left < NODE_CELL_BYTES) ? left : NODE_CELL_BYTES;
        uint32_t slot = (uint32_t)(req->done_bytes / NODE_CELL_BYTES % NODE_STREAM_CELLS);
        if (req->done_bytes - taken > (NODE_STREAM_CELLS - 1) * NODE_CELL_BYTES) break;
        if (slot >= own->cell_count) {
            detached_check(node, 4);
            if (node->free_cells <= (wanted ? 0 : NODE_CELLS / 2)) break;
            entry->stream.cells[slot] = cell_take(node, req->entry);
        }
        memcpy(node->memory + node_cell_at(&node->plan, own->cells[slot]),
               req->data + req->done_bytes, bytes);
        req->done_bytes += bytes;
        __atomic_store_n(&entry->stream.filled_bytes, req->done_bytes, __ATOMIC_RELEASE);
        status = PROGRESS_MADE;
    }
    return status;
}

/* The bytes of an ENTRY_INLINE or ENTRY_CELL are copied to `offset` in this rank's memory, and the
 * send has ended. While too many such entries wait for their receivers, it ends once its entry is
 * taken. */
static void send_copy(struct gf_node *node, struct gf_node_req *req, uint64_t offset)
{
    struct node_entry *entry = own_entry(node, req->entry);
    bool detached = may_detach(node);
    if (req->size_bytes > 0) memcpy(node->memory + offset, req->data, req->size_bytes);
    entry->where = offset;
    entry->awaited = !detached;
    if (detached)
        detach(node, req->entry);
    else
        req_begin(node, req, &node->sends, REQ_SEND);
}

static void send_region(struct gf_node *node, struct gf_node_req *req)
{
    struct node_entry *entry = own_entry(node, req->entry);
    entry->where = (uint64_t)(req->data - node->memory);
    entry->awaited = 1;
    req_begin(node, req, &node->sends, REQ_SEND);
}

static void send_stream(struct gf_node *node, struct gf_node_req *req)
{
    struct node_entry *entry = own_entry(node, req->entry);
    entry->where = NODE_WHERE_CELLS;
    entry->awaited = 1;
    entry->stream.filled_bytes = 0;
    req_begin(node, req, &node->streams, REQ_STREAM);
    (void)stream_fill(node, req);
}

gf_status gf_node_send_post(struct gf_node *node, uint32_t to, uint64_t tag, const void *data,
                            size_t size_bytes, struct gf_node_req *req)
{
    struct node_pair *pair = node_pair_of(node, to);
    struct node_entry *entry;
    uint32_t index;
    GF_ASSERT((pair != NULL) && (pair->memory != NULL) && !node->quiesced);
    if (requests_are_full(node)) return GF_FULL;
    if ((index = entry_take(node)) == ENTRY_NONE)
        return GF_FULL; /* many were cancelled, and their receivers have not come to them yet */
    entry = own_entry(node, index);
    entry->tag = tag;
    entry->size_bytes = size_bytes;
    entry->revoked = 0;
    entry->state = NODE_ENTRY_ANNOUNCED;
    entry->taken_bytes = 0;
    *req = (struct gf_node_req){.tag = tag,
                                .data = (unsigned char *)(uintptr_t)data,
                                .size_bytes = size_bytes,
                                .peer = to,
                                .entry = index,
                                .answer = GF_OK,
                                .state = REQ_ENDED};
    switch (kind_of(node, data, size_bytes)) {
    case ENTRY_INLINE: send_copy(node, req, (uint64_t)(entry->bytes - node->memory)); break;
    case ENTRY_CELL: send_copy(node, req, node_cell_at(&node->plan, cell_take(node, index))); break;
    case ENTRY_REGION: send_region(node, req); break;
    case ENTRY_STREAM: send_stream(node, req); break;
    }
    announce(node, pair, index);
    node->link->sent_bytes += size_bytes;
    node->link->sent_messages++;
    return GF_OK;
}

/* ---- receiving ---- */

/* A sender whose request has ended already is not woken. */
static void entry_taken(struct gf_node *node, const struct node_pair *pair,
                        struct node_entry *entry)
{
    bool awaited = __atomic_load_n(&entry->awaited, __ATOMIC_RELAXED) != 0;
    __atomic_store_n(&entry->state, NODE_ENTRY_TAKEN, __ATOMIC_RELEASE);
    if (awaited) peer_wake(node, pair);
}

/* Copies some of a message that lies in one piece in its sender's memory. */
static void whole_copy(struct gf_node *node, const struct node_pair *pair, struct gf_node_req *req)
{
    size_t left = req->size_bytes - req->done_bytes;
    size_t bytes = (left < NODE_COPY_BYTES) ? left : NODE_COPY_BYTES;
    if (bytes > 0)
        memcpy(req->data + req->done_bytes, pair->memory + req->where + req->done_bytes, bytes);
    req->done_bytes += bytes;
    node->copied_bytes += bytes;
}

/* Copies what the sender has filled of a message in cells. PROGRESS_NONE: nothing new. */
static enum progress stream_copy(struct gf_node *node, const struct node_pair *pair,
                                 struct gf_node_req *req)
{
    struct node_entry *entry = node_entry_of(pair->memory, &pair->plan, req->entry);
    uint64_t filled = __atomic_load_n(&entry->stream.filled_bytes, __ATOMIC_ACQUIRE);
    if ((filled < req->done_bytes) || (filled > req->size_bytes) ||
        (filled - req->done_bytes > NODE_STREAM_CELLS * NODE_CELL_BYTES))
        return damaged(node, pair, "cells of a message do not follow each other");
    if (filled == req->done_bytes) {
        if (__atomic_load_n(&entry->revoked, __ATOMIC_RELAXED) == 0) return PROGRESS_NONE;
        req->done_bytes = req->size_bytes; /* pull() drops it */
        return PROGRESS_MADE;
    }
    while (req->done_bytes < filled) {
        size_t left = filled - req->done_bytes;
        size_t bytes = (left < NODE_CELL_BYTES) ? left : NODE_CELL_BYTES;
        uint32_t slot = (uint32_t)(req->done_bytes / NODE_CELL_BYTES % NODE_STREAM_CELLS);
        uint32_t cell = __atomic_load_n(&entry->stream.cells[slot], __ATOMIC_RELAXED);
        if (cell >= NODE_CELLS) return damaged(node, pair, "there is no such cell");
        memcpy(req->data + req->done_bytes, pair->memory + node_cell_at(&pair->plan, cell), bytes);
        req->done_bytes += bytes;
        node->copied_bytes += bytes;
        __atomic_store_n(&entry->taken_bytes, req->done_bytes, __ATOMIC_RELEASE);
    }
    if (req->done_bytes < req->size_bytes) peer_wake(node, pair);
    return PROGRESS_MADE;
}

/* The message was cancelled: its receive leaves the list, as if nothing had come for it. */
static void pull_revoked(struct gf_node *node, struct gf_node_req *req)
{
    list_remove(&node->pulling, req);
    req->done_bytes = 0;
    req->state = REQ_LOOSE;
}

/* Copies some of a message that is matched. PROGRESS_MADE: the receive may have ended, or be
 * REQ_LOOSE because the message was cancelled; PROGRESS_NONE: there is nothing to copy yet. */
static enum progress pull(struct gf_node *node, struct gf_node_req *req)
{
    struct node_pair *pair = node_pair_of(node, req->peer);
    struct node_entry *entry = node_entry_of(pair->memory, &pair->plan, req->entry);
    enum progress status = PROGRESS_MADE;
    if (req->where != NODE_WHERE_CELLS)
        whole_copy(node, pair, req);
    else
        status = stream_copy(node, pair, req);
    if ((status != PROGRESS_MADE) || (req->done_bytes < req->size_bytes)) return status;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (__atomic_load_n(&entry->revoked, __ATOMIC_RELAXED) != 0)
        pull_revoked(node, req);
    else
        req_end(node, &node->pulling, req, GF_OK);
    entry_taken(node, pair, entry);
    return PROGRESS_MADE;
}

/* Gives the message of this entry to a receive that is in no list. */
static enum progress match(struct gf_node *node, struct node_pair *pair, struct gf_node_req *req,
                           uint32_t index)
{
    struct node_entry *entry = node_entry_of(pair->memory, &pair->plan, index);
    uint64_t size_bytes = __atomic_load_n(&entry->size_bytes, __ATOMIC_RELAXED);
    uint64_t where = __atomic_load_n(&entry->where, __ATOMIC_RELAXED);
    list_add(&node->pulling, req);
    req->state = REQ_PULLING;
    req->entry = index;
    req->where = where;
    if (__atomic_load_n(&entry->revoked, __ATOMIC_RELAXED) != 0) {
        pull_revoked(node, req);
        entry_taken(node, pair, entry);
        return PROGRESS_MADE;
    }
    if (size_bytes != req->size_bytes) {
        req_end(node, &node->pulling, req,
                gf_node_fault(node, GF_ERR_MISMATCH, pair->peer, "recv_post",
                              "rank %u sent %llu bytes where rank %u expects %zu (tag %#llx)",
                              pair->peer, (unsigned long long)size_bytes, node->rank,
                              req->size_bytes, (unsigned long long)req->tag));
        entry_taken(node, pair, entry);
        return PROGRESS_MADE;
    }
    if (where == NODE_WHERE_CELLS) {
        __atomic_store_n(&entry->state, NODE_ENTRY_MATCHED, __ATOMIC_RELAXED);
        peer_wake(node, pair);
    } else if ((where > pair->memory_bytes) || (size_bytes > pair->memory_bytes - where)) {
        return damaged(node, pair, "a message lies outside");
    }
    return (size_bytes <= NODE_CELL_BYTES) ? pull(node, req) : PROGRESS_MADE;
}

static void unexpected_add(struct node_pair *pair, uint32_t entry)
{
    pair->next[entry] = NODE_NEXT_END;
    if (pair->first == 0)
        pair->first = (uint16_t)(entry + 1);
    else
        pair->next[pair->last - 1] = (uint16_t)(entry + 1);
    pair->last = (uint16_t)(entry + 1);
}

/* Takes the oldest message with this tag out of the list; ENTRY_NONE: there is none. */
static uint32_t unexpected_take(struct node_pair *pair, uint64_t tag)
{
    uint16_t before = 0;
    uint16_t at = pair->first;
    while (at != 0) {
        uint32_t entry = at - 1u;
        uint16_t next = pair->next[entry];
        if (__atomic_load_n(&node_entry_of(pair->memory, &pair->plan, entry)->tag,
                            __ATOMIC_RELAXED) == tag) {
            if (before != 0)
                pair->next[before - 1] = next;
            else
                pair->first = (next == NODE_NEXT_END) ? 0 : next;
            if (pair->last == at) pair->last = before;
            pair->next[entry] = 0;
            return entry;
        }
        before = at;
        at = (next == NODE_NEXT_END) ? 0 : next;
    }
    return ENTRY_NONE;
}

/* Gives a receive that is in no list the oldest message with its tag, or posts it. */
static enum progress receive(struct gf_node *node, struct node_pair *pair, struct gf_node_req *req)
{
    enum progress status = PROGRESS_MADE;
    while ((status != PROGRESS_DAMAGED) && (req->state == REQ_LOOSE)) {
        uint32_t entry = unexpected_take(pair, req->tag);
        if (entry != ENTRY_NONE) {
            status = match(node, pair, req, entry);
        } else {
            req->state = REQ_POSTED;
            list_add(&pair->posted, req);
        }
    }
    return status;
}

gf_status gf_node_recv_post(struct gf_node *node, uint32_t from, uint64_t tag, void *data,
                            size_t size_bytes, struct gf_node_req *req)
{
    struct node_pair *pair = node_pair_of(node, from);
    GF_ASSERT((pair != NULL) && (pair->memory != NULL) && !node->quiesced);
    if (requests_are_full(node)) return GF_FULL;
    *req = (struct gf_node_req){.tag = tag,
                                .data = data,
                                .size_bytes = size_bytes,
                                .peer = from,
                                .answer = GF_AGAIN,
                                .state = REQ_LOOSE};
    node->requests_under_way++;
    (void)receive(node, pair, req); /* the next progress() reports damage */
    return GF_OK;
}

static enum progress arrived(struct gf_node *node, struct node_pair *pair, uint32_t index)
{
    uint64_t tag =
        __atomic_load_n(&node_entry_of(pair->memory, &pair->plan, index)->tag, __ATOMIC_RELAXED);
    struct gf_node_req *req = pair->posted.first;
    enum progress status;
    while ((req != NULL) && (req->tag != tag)) req = req->next;
    if (req == NULL) {
        unexpected_add(pair, index);
        return PROGRESS_MADE;
    }
    list_remove(&pair->posted, req);
    req->state = REQ_LOOSE;
    status = match(node, pair, req, index);
    return (status == PROGRESS_DAMAGED) ? status : receive(node, pair, req);
}

/* Takes what a peer has announced until this call has copied enough. Then the bell stays set,
 * because there may be more. */
static enum progress ring_take(struct gf_node *node, struct node_pair *pair, uint32_t slot)
{
    const uint32_t *ring = node_ring_of(node->memory, &node->plan, slot);
    while (node->copied_bytes < NODE_COPY_BYTES) {
        uint32_t word =
            __atomic_load_n(&ring[pair->popped % node->plan.ring_words], __ATOMIC_ACQUIRE);
        uint32_t lap = ((pair->popped / node->plan.ring_words) & 1) ^ 1;
        enum progress status;
        if ((word & 1) != lap) return PROGRESS_MADE;
        word >>= 1;
        if ((word >= node->plan.entries) || (pair->next[word] != 0))
            return damaged(node, pair, "it announces what cannot be");
        pair->popped++;
        if ((status = arrived(node, pair, word)) == PROGRESS_DAMAGED) return status;
    }
    __atomic_store_n(node_bell_of(node->memory, &node->plan, slot), 1, __ATOMIC_RELAXED);
    return PROGRESS_MADE;
}

/* Reads eight bells at once. PROGRESS_MADE: at least one rang. */
static enum progress bells_check(struct gf_node *node)
{
    enum progress answer = PROGRESS_NONE;
    for (uint32_t first = 0; first < node->pair_count; first += 8) {
        unsigned char *bells = node_bell_of(node->memory, &node->plan, first);
        if (__atomic_load_n((uint64_t *)(void *)bells, __ATOMIC_RELAXED) == 0) continue;
        for (uint32_t slot = first; (slot < first + 8) && (slot < node->pair_count); slot++) {
            enum progress status;
            if (__atomic_load_n(&bells[slot - first], __ATOMIC_RELAXED) == 0) continue;
            (void)__atomic_exchange_n(&bells[slot - first], 0, __ATOMIC_ACQ_REL);
            if (node->pairs[slot].memory == NULL) continue; /* refused */
            if ((status = ring_take(node, &node->pairs[slot], slot)) == PROGRESS_DAMAGED)
                return status;
            answer = PROGRESS_MADE;
        }
    }
    return answer;
}

/* ---- moving ---- */

static enum progress streams_move(struct gf_node *node)
{
    enum progress answer = PROGRESS_NONE;
    for (struct gf_node_req *req = node->streams.first, *next; req != NULL; req = next) {
        enum progress status;
        next = req->next;
        if (send_check(node, req)) {
            answer = PROGRESS_MADE;
            continue;
        }
        if ((status = stream_fill(node, req)) == PROGRESS_DAMAGED) return status;
        if (status == PROGRESS_NONE) continue;
        peer_wake(node, node_pair_of(node, req->peer));
        answer = PROGRESS_MADE;
    }
    return answer;
}

static enum progress pulls_move(struct gf_node *node)
{
    enum progress answer = PROGRESS_NONE;
    for (struct gf_node_req *req = node->pulling.first, *next; req != NULL; req = next) {
        enum progress status;
        next = req->next;
        if (node->copied_bytes >= NODE_COPY_BYTES) return PROGRESS_MADE;
        status = pull(node, req);
        if ((status != PROGRESS_DAMAGED) && (req->state == REQ_LOOSE))
            status = receive(node, node_pair_of(node, req->peer), req);
        if (status == PROGRESS_DAMAGED) return status;
        if (status == PROGRESS_MADE) answer = PROGRESS_MADE;
    }
    return answer;
}

static enum progress progress(struct gf_node *node)
{
    enum progress answer = PROGRESS_NONE;
    enum progress status;
    node->copied_bytes = 0;
    if ((node->streams.first != NULL) && ((status = streams_move(node)) != PROGRESS_NONE))
        answer = status;
    if ((answer != PROGRESS_DAMAGED) && (node->pulling.first != NULL) &&
        ((status = pulls_move(node)) != PROGRESS_NONE))
        answer = status;
    if ((answer != PROGRESS_DAMAGED) && ((status = bells_check(node)) != PROGRESS_NONE))
        answer = status;
    return answer;
}

bool gf_node_progress(struct gf_node *node)
{
    if (!node->shared || (node->link->failed != GF_OK)) return false;
    if (node->armed) gf_node_woken(node);
    node->armed = false;
    if ((node->unanswered > 0) || (node->device.given >= 0)) gf_node_serve(node);
    return !node->quiesced && (progress(node) == PROGRESS_MADE);
}

gf_status gf_node_test(struct gf_node *node, struct gf_node_req *req)
{
    if ((req->state == REQ_SEND) || (req->state == REQ_STREAM)) (void)send_check(node, req);
    return req->answer;
}

/* ---- ending ---- */

/* Cancels a send. Its entry is free again once the receiver has come to it. */
static void revoke(struct gf_node *node, struct gf_node_req *req)
{
    struct node_list *list = (req->state == REQ_STREAM) ? &node->streams : &node->sends;
    __atomic_store_n(&own_entry(node, req->entry)->revoked, 1, __ATOMIC_RELEASE);
    detach(node, req->entry);
    req_end(node, list, req, GF_ERR_ABORTED);
}

void gf_node_cancel(struct gf_node *node, struct gf_node_req *req)
{
    struct node_pair *pair = node_pair_of(node, req->peer);
    switch ((enum req_state)req->state) {
    case REQ_SEND:
    case REQ_STREAM:
        if (send_check(node, req)) return;
        revoke(node, req);
        peer_wake(node, pair); /* after its fence the caller may write to the memory */
        return;
    case REQ_POSTED: req_end(node, &pair->posted, req, GF_ERR_ABORTED); return;
    case REQ_PULLING:
        req_end(node, &node->pulling, req, GF_ERR_ABORTED);
        entry_taken(node, pair, node_entry_of(pair->memory, &pair->plan, req->entry));
        return;
    case REQ_LOOSE:
    case REQ_ENDED: return;
    }
}

static void list_abort(struct gf_node *node, struct node_list *list)
{
    while (list->first != NULL) req_end(node, list, list->first, GF_ERR_ABORTED);
}

void gf_node_messages_end(struct gf_node *node)
{
    while (node->sends.first != NULL) revoke(node, node->sends.first);
    while (node->streams.first != NULL) revoke(node, node->streams.first);
    list_abort(node, &node->pulling);
    for (uint32_t slot = 0; slot < node->pair_count; slot++)
        list_abort(node, &node->pairs[slot].posted);
    gf_full_fence();
}

void gf_node_messages_begin(struct gf_node *node)
{
    node->free_entries = node->free_cells = node->detached_count = node->detached_next = 0;
    for (uint32_t entry = node->plan.entries; entry > 0; entry--) {
        node->own[entry - 1].cell_count = 0;
        node->entry_stack[node->free_entries++] = (uint16_t)(entry - 1);
    }
    while (node->free_cells < NODE_CELLS) {
        node->cell_stack[node->free_cells] = (uint16_t)(NODE_CELLS - 1 - node->free_cells);
        node->free_cells++;
    }
    __atomic_store_n(&node_head_of(node->memory, &node->plan)->canary, node->canary,
                     __ATOMIC_RELEASE);
}

/* ---- sleeping ---- */

int gf_node_wake_fd(const struct gf_node *node)
{
    return node->shared ? node->socket_fd : -1;
}

/* Has something moved or failed, or has an awaited send ended? */
static bool check_all(struct gf_node *node)
{
    uint32_t under_way = node->requests_under_way;
    if (node->quiesced) return false;
    sends_check(node);
    return (progress(node) != PROGRESS_NONE) || (node->requests_under_way != under_way);
}

/* Announces the sleep, and after a fence checks once more for what a peer stored before it could
 * read the announcement: peer_wake(). */
bool gf_node_arm(struct gf_node *node)
{
    if (!node->shared) return true;
    if (node->link->failed != GF_OK) return false;
    node->armed = true;
    __atomic_store_n(&node_head_of(node->memory, &node->plan)->sleeps, 1, __ATOMIC_RELAXED);
    gf_full_fence();
    return !check_all(node);
}
