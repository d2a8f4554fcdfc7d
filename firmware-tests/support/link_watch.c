/* See link_watch.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/link_watch.h"

static struct held {
    struct gf_link *link;
    const struct gf_req *req;
    gf_mem data;
    size_t size_bytes;
    bool is_write;
} held[4096];
static uint32_t held_count;

static struct gf_link_driver wrapped;
static const struct gf_link_driver *real;
static const struct link_watch *watch;
static uint64_t messages;

/* Those of this request; NULL: all of the link. */
static void let_go(const struct gf_link *link, const struct gf_req *req)
{
    for (uint32_t i = held_count; i-- > 0;) {
        struct held one = held[i];
        if ((one.link != link) || ((req != NULL) && (one.req != req))) continue;
        held[i] = held[--held_count];
        if (watch->end != NULL) watch->end(one.data, one.size_bytes, one.is_write);
    }
}

/* Before the post, which may end it at once. */
static void hold(struct gf_link *link, const struct gf_req *req, gf_mem data, size_t size_bytes,
                 bool is_write)
{
    if ((watch->begin != NULL) && !watch->begin(data, size_bytes, is_write)) return;
    assert_in_range(held_count, 0, LENGTH(held) - 1);
    held[held_count++] = (struct held){link, req, data, size_bytes, is_write};
}

static gf_status posted(struct gf_link *link, const struct gf_req *req, gf_status status)
{
    if (status != GF_OK)
        let_go(link, req);
    else
        messages += (held_count > 0) && (held[held_count - 1].req == req);
    return status;
}

static gf_status watched_send(struct gf_link *link, uint32_t to, uint64_t tag, gf_mem data,
                              size_t size_bytes, struct gf_req *req)
{
    hold(link, req, data, size_bytes, false);
    return posted(link, req, real->send_post(link, to, tag, data, size_bytes, req));
}

static gf_status watched_recv(struct gf_link *link, uint32_t from, uint64_t tag, gf_mem data,
                              size_t size_bytes, struct gf_req *req)
{
    hold(link, req, data, size_bytes, true);
    return posted(link, req, real->recv_post(link, from, tag, data, size_bytes, req));
}

static gf_status watched_test(struct gf_link *link, struct gf_req *req)
{
    gf_status status = real->test(link, req);
    if (status != GF_AGAIN) let_go(link, req);
    return status;
}

static gf_status watched_reset(struct gf_link *link, uint32_t generation, uint32_t rank,
                               uint32_t world)
{
    gf_status status = real->reset(link, generation, rank, world);
    let_go(link, NULL);
    return status;
}

static void watched_drop(struct gf_link *link)
{
    real->drop(link);
    let_go(link, NULL);
}

static void watched_close(struct gf_link *link)
{
    real->close(link);
    let_go(link, NULL);
}

static gf_status watched_open(const struct gf_link_setup *setup, void *state,
                              struct gf_link **link_out, struct gf_fault *fault_out)
{
    gf_status status = real->open(setup, state, link_out, fault_out);
    if (status == GF_OK) (*link_out)->driver = &wrapped;
    return status;
}

const struct gf_link_driver *link_watch(const struct gf_link_driver *driver,
                                        const struct link_watch *how)
{
    if (driver != &wrapped) real = driver;
    watch = how;
    messages = 0;
    wrapped = *real;
    wrapped.open = watched_open;
    wrapped.send_post = watched_send;
    wrapped.recv_post = watched_recv;
    wrapped.test = watched_test;
    wrapped.reset = watched_reset;
    wrapped.drop = watched_drop;
    wrapped.close = watched_close;
    return &wrapped;
}

uint64_t link_watch_messages(void)
{
    return messages;
}
uint32_t link_watch_under_way(void)
{
    return held_count;
}

bool link_watch_is_free(gf_mem data, size_t size_bytes, bool is_write)
{
    for (uint32_t i = 0; i < held_count; i++) {
        const struct held *other = &held[i];
        bool is_apart =
            (data + size_bytes <= other->data) || (other->data + other->size_bytes <= data);
        if (!is_apart && (is_write || other->is_write)) return false;
    }
    return true;
}
