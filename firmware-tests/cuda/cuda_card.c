/* See cuda_card.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/cuda_card.h"

#define HELD_MAX 4096u

static struct held {
    struct gf_link *link; /* NULL: free */
    const struct gf_req *req;
    gf_mem data;
    size_t size_bytes;
    bool is_write;
} held[HELD_MAX];

static struct gf_link_driver wrapped;
static const struct gf_link_driver *real;
static const struct fake_cuda_api *library;
static uint64_t messages;

static void hold(struct gf_link *link, const struct gf_req *req, gf_mem data, size_t size_bytes, bool is_write)
{
    uint32_t i = 0;
    if (!library->card_begin(data, size_bytes, is_write)) return;
    while ((i < HELD_MAX) && (held[i].link != NULL)) i++;
    assert_true(i < HELD_MAX);
    held[i] = (struct held){link, req, data, size_bytes, is_write};
    messages++;
}

static void let_go(struct held *one)
{
    library->card_end(one->data, one->size_bytes, one->is_write);
    one->link = NULL;
}

static void all_let_go(const struct gf_link *link)
{
    for (uint32_t i = 0; i < HELD_MAX; i++)
        if (held[i].link == link) let_go(&held[i]);
}

/* A receive is told of before its post, which may end it at once. */
static gf_status card_send(struct gf_link *link, uint32_t to, uint64_t tag, gf_mem data, size_t size_bytes,
                           struct gf_req *req)
{
    gf_status status = real->send_post(link, to, tag, data, size_bytes, req);
    if (status == GF_OK) hold(link, req, data, size_bytes, false);
    return status;
}

static gf_status card_recv(struct gf_link *link, uint32_t from, uint64_t tag, gf_mem data, size_t size_bytes,
                           struct gf_req *req)
{
    gf_status status;
    hold(link, req, data, size_bytes, true);
    status = real->recv_post(link, from, tag, data, size_bytes, req);
    for (uint32_t i = 0; (status != GF_OK) && (i < HELD_MAX); i++)
        if ((held[i].link == link) && (held[i].req == req)) let_go(&held[i]);
    return status;
}

static gf_status card_test(struct gf_link *link, struct gf_req *req)
{
    gf_status status = real->test(link, req);
    for (uint32_t i = 0; (status != GF_AGAIN) && (i < HELD_MAX); i++)
        if ((held[i].link == link) && (held[i].req == req)) let_go(&held[i]);
    return status;
}

static gf_status card_reset(struct gf_link *link, uint32_t epoch)
{
    gf_status status = real->reset(link, epoch);
    all_let_go(link);
    return status;
}

static void card_drop(struct gf_link *link)
{
    real->drop(link);
    all_let_go(link);
}

static void card_close(struct gf_link *link)
{
    real->close(link);
    all_let_go(link);
}

static gf_status card_open(const struct gf_link_setup *setup, void *state, struct gf_link **link_out, struct gf_fault *fault_out)
{
    gf_status status = real->open(setup, state, link_out, fault_out);
    if (status == GF_OK) (*link_out)->driver = &wrapped;
    return status;
}

const struct gf_link_driver *cuda_card_wrap(const struct gf_link_driver *driver, const struct fake_cuda_api *fake)
{
    if (driver != &wrapped) real = driver;
    library = fake;
    messages = 0;
    memset(held, 0, sizeof held);
    wrapped = *real;
    wrapped.open = card_open;
    wrapped.send_post = card_send;
    wrapped.recv_post = card_recv;
    wrapped.test = card_test;
    wrapped.reset = card_reset;
    wrapped.drop = card_drop;
    wrapped.close = card_close;
    return &wrapped;
}

uint64_t cuda_card_messages(void) { return messages; }
