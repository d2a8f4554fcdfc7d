/* Messages that arrived before their receive was posted. A peer's credit is a buffer of blocks. A
 * message takes as many blocks as its first frame needs, wherever they lie, so receives may be
 * posted in any order and leave no useless gaps. The peer takes blocks, within the credit that it
 * has; this rank gives them back.
 *
 *     chain[]       leads from a block to the next one of its message, or of the free blocks
 *     unexpected[]  an entry for each message: as many as blocks, for messages with credit, and as
 *                   many as requests, for messages without */
#include "drivers/tcp/link_tcp_state.h"

#include <string.h>

void gf_tcp_unexpected_init(struct gf_tcp_peer *peer)
{
    uint32_t block_count = peer->link->block_count;
    uint32_t unexpected_count = block_count + peer->link->setup.requests_max;
    for (uint32_t i = 0; i < block_count; i++)
        peer->chain[i] = (i + 1 < block_count) ? i + 1 : TCP_NONE;
    for (uint32_t i = 0; i < unexpected_count; i++)
        peer->unexpected[i].next = (i + 1 < unexpected_count) ? i + 1 : TCP_NONE;
    peer->block_free = 0;
    peer->unexpected_free = 0;
    peer->unexpected_first = TCP_NONE;
    peer->unexpected_last = TCP_NONE;
}

uint32_t gf_tcp_unexpected_find(const struct gf_tcp_peer *peer, uint64_t tag)
{
    uint32_t at = peer->unexpected_first;
    while ((at != TCP_NONE) &&
           ((peer->unexpected[at].tag != tag) || (peer->unexpected[at].req != NULL)))
        at = peer->unexpected[at].next;
    return at;
}

static uint32_t blocks_take(struct gf_tcp_peer *peer, uint32_t count)
{
    uint32_t first = peer->block_free;
    uint32_t last = first;
    GF_ASSERT(first != TCP_NONE);
    for (uint32_t i = 1; i < count; i++) {
        last = peer->chain[last];
        GF_ASSERT(last != TCP_NONE); /* begin_take() has counted */
    }
    peer->block_free = peer->chain[last];
    peer->chain[last] = TCP_NONE;
    return first;
}

/* Returns how many there were. */
static uint32_t blocks_give(struct gf_tcp_peer *peer, uint32_t first)
{
    uint32_t count = 1;
    uint32_t last = first;
    for (; peer->chain[last] != TCP_NONE; last = peer->chain[last]) count++;
    peer->chain[last] = peer->block_free;
    peer->block_free = first;
    return count;
}

uint32_t gf_tcp_unexpected_add(struct gf_tcp_peer *peer, const struct gf_tcp_head *head)
{
    uint32_t at = peer->unexpected_free;
    bool wants = (head->kind == TCP_FRAME_WANT);
    if (at == TCP_NONE) return TCP_NONE;
    peer->unexpected_free = peer->unexpected[at].next;
    peer->unexpected[at] = (struct gf_tcp_unexpected){
        .tag = head->tag,
        .size = head->size,
        .bytes = head->bytes,
        .block = wants ? TCP_NONE : blocks_take(peer, gf_tcp_blocks(head->bytes)),
        .next = TCP_NONE,
        .here = wants};
    if (peer->unexpected_last != TCP_NONE)
        peer->unexpected[peer->unexpected_last].next = at;
    else
        peer->unexpected_first = at;
    peer->unexpected_last = at;
    return at;
}

/* Once half of the credit is to be given back, a NOTE is due if no other frame leaves. */
void gf_tcp_credit_give(struct gf_tcp_peer *peer, uint32_t blocks)
{
    peer->given += blocks;
    if (peer->given - peer->given_sent >= peer->link->block_count / 2)
        gf_tcp_stream_list(&peer->streams[0]);
}

void gf_tcp_unexpected_drop(struct gf_tcp_peer *peer, uint32_t index)
{
    uint32_t before = TCP_NONE;
    for (uint32_t at = peer->unexpected_first; at != index; at = peer->unexpected[at].next)
        before = at;
    if (before != TCP_NONE)
        peer->unexpected[before].next = peer->unexpected[index].next;
    else
        peer->unexpected_first = peer->unexpected[index].next;
    if (peer->unexpected_last == index) peer->unexpected_last = before;
    if (peer->unexpected[index].block != TCP_NONE)
        gf_tcp_credit_give(peer, blocks_give(peer, peer->unexpected[index].block));
    peer->unexpected[index].next = peer->unexpected_free;
    peer->unexpected_free = index;
}

void gf_tcp_unexpected_keep_whole(struct gf_tcp_peer *peer)
{
    uint32_t at = peer->unexpected_first;
    while (at != TCP_NONE) {
        const struct gf_tcp_unexpected *entry = &peer->unexpected[at];
        uint32_t next = entry->next;
        bool whole = entry->here && (entry->block != TCP_NONE) && (entry->bytes == entry->size);
        if (!whole || (entry->req != NULL)) gf_tcp_unexpected_drop(peer, at);
        at = next;
    }
}

void gf_tcp_unexpected_deliver(struct gf_tcp_peer *peer, uint32_t index, struct gf_req *req)
{
    const struct gf_tcp_unexpected entry = peer->unexpected[index];
    uint32_t block = entry.block;
    GF_ASSERT(entry.here);
    for (uint32_t at = 0; (entry.size == req->size) && (at < entry.bytes); at += TCP_BLOCK_BYTES) {
        uint32_t bytes = entry.bytes - at;
        if (bytes > TCP_BLOCK_BYTES) bytes = TCP_BLOCK_BYTES;
        memcpy(req->data + at, peer->blocks + (size_t)block * TCP_BLOCK_BYTES, bytes);
        block = peer->chain[block];
    }
    gf_tcp_unexpected_drop(peer, index);
    req->began = true;
    req->given = entry.bytes;
    req->done = entry.bytes;
    if (entry.size != req->size) {
        gf_tcp_mismatch(req, entry.size);
        gf_tcp_req_end(req, GF_ERR_MISMATCH);
    } else if ((entry.bytes == entry.size) && (entry.block != TCP_NONE)) {
        gf_tcp_req_end(req, GF_OK);
    } else {
        req->phase = (entry.bytes > 0) ? TCP_RECV_BEGUN : TCP_RECV_POSTED;
        gf_tcp_list_add(&peer->receives, req);
        gf_tcp_recv_notice(peer, req);
    }
}
