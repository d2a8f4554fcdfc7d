#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/coll_watch.h"

struct watched {
    const struct gf_req *req;
    gf_mem data;
    size_t size_bytes;
    bool is_send;
};

static const struct gf_link_driver *driver;
static struct gf_link_driver watching;
static struct watched watched[4096];
static uint32_t watched_count;

/* Nothing under way may conflict with reading or writing this range. */
static void look(gf_mem data, size_t size_bytes, bool is_write)
{
    for (uint32_t i = 0; i < watched_count; i++) {
        const struct watched *other = &watched[i];
        bool is_apart = (data + size_bytes <= other->data) || (other->data + other->size_bytes <= data);
        assert_true(is_apart || (!is_write && other->is_send));
    }
}

static void keep(const struct gf_req *req, gf_mem data, size_t size_bytes, bool is_send)
{
    assert_in_range(watched_count, 0, LENGTH(watched) - 1);
    watched[watched_count++] = (struct watched){req, data, size_bytes, is_send};
}

static gf_status watch_send_post(struct gf_link *link, uint32_t to, uint64_t tag, gf_mem data, size_t size_bytes,
                                 struct gf_req *req)
{
    gf_status status;
    look(data, size_bytes, false);
    status = driver->send_post(link, to, tag, data, size_bytes, req);
    if (status == GF_OK) keep(req, data, size_bytes, true);
    return status;
}

static gf_status watch_recv_post(struct gf_link *link, uint32_t from, uint64_t tag, gf_mem data, size_t size_bytes,
                                 struct gf_req *req)
{
    gf_status status;
    look(data, size_bytes, true);
    status = driver->recv_post(link, from, tag, data, size_bytes, req);
    if (status == GF_OK) keep(req, data, size_bytes, false);
    return status;
}

static gf_status watch_test(struct gf_link *link, struct gf_req *req)
{
    gf_status status = driver->test(link, req);
    for (uint32_t i = 0; (status != GF_AGAIN) && (i < watched_count); i++) {
        if (watched[i].req == req) watched[i] = watched[--watched_count];
    }
    return status;
}

void coll_watch_link(struct gf_link *link)
{
    driver = link->driver;
    watching = *driver;
    watching.send_post = watch_send_post;
    watching.recv_post = watch_recv_post;
    watching.test = watch_test;
    link->driver = &watching;
}

void coll_watch_fold(gf_mem dst, gf_mem src, size_t size_bytes)
{
    look(dst, size_bytes, true);
    look(src, size_bytes, false);
}

static gf_status watch_sum(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type, uint64_t elem_count,
                           uint64_t base, struct gf_check *check)
{
    coll_watch_fold(dst, src, elem_count * ((type == GF_TYPE_F32) ? 4 : 2));
    return gf_element_ops_best()->sum(queue, dst, src, type, elem_count, base, check);
}

const struct gf_element_ops *coll_watch_ops(void)
{
    static struct gf_element_ops ops;
    ops = *gf_element_ops_best();
    ops.sum = watch_sum;
    return &ops;
}

uint32_t coll_watch_under_way(void) { return watched_count; }
