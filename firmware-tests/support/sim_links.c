/* See sim_links.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/sim_links.h"

#define REGION_BYTES 4096u

static void *take(size_t size_bytes)
{
    void *memory = aligned_alloc(64, (size_bytes + 63) & ~(size_t)63);
    assert_non_null(memory);
    memset(memory, 0xa5, size_bytes);
    return memory;
}

void sim_links_open(struct sim_links *w, const struct gf_sim_setup *setup)
{
    w->world = setup->world;
    w->sim = gf_sim_create(setup);
    assert_non_null(w->sim);
    w->driver = gf_sim_drivers(w->sim, 0)->link;
    w->links = take(w->world * sizeof *w->links);
    w->states = take(w->world * sizeof *w->states);
    w->reqs = take((size_t)w->world * SIM_LINKS_REQS * sizeof *w->reqs);
    assert_int_equal(w->driver->req_size_bytes, sizeof *w->reqs);
    for (uint32_t rank = 0; rank < w->world; rank++) {
        struct gf_fault fault = {.code = GF_OK};
        struct gf_link_setup link = {.rank = rank,
                                     .world = w->world,
                                     .ranks_max = w->world,
                                     .generation = 1,
                                     .requests_max = SIM_LINKS_REQS,
                                     .message_bytes_max = 1u << 20,
                                     .region_bytes = REGION_BYTES,
                                     .arg = gf_sim_drivers(w->sim, rank)->link_arg};
        w->states[rank] = take(w->driver->state_bytes(&link));
        assert_int_equal(w->driver->open(&link, w->states[rank], &w->links[rank], &fault), GF_OK);
    }
    sim_links_connect(w);
}

void sim_links_connect(struct sim_links *w)
{
    unsigned char endpoint[64];
    size_t endpoint_bytes = 0;
    assert_true(w->driver->endpoint_bytes_max <= sizeof endpoint);
    for (uint32_t peer = 0; peer < w->world; peer++) {
        assert_int_equal(w->driver->endpoint(w->links[peer], endpoint, &endpoint_bytes), GF_OK);
        for (uint32_t rank = 0; rank < w->world; rank++) {
            assert_int_equal(w->driver->connect(w->links[rank], peer, endpoint, endpoint_bytes),
                             GF_OK);
        }
    }
}

void sim_links_close(struct sim_links *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++) {
        w->driver->close(w->links[rank]);
        free(w->states[rank]);
    }
    assert_int_equal(gf_sim_counts(w->sim)->requests_posted, gf_sim_counts(w->sim)->requests_ended);
    gf_sim_destroy(w->sim);
    free(w->links);
    free(w->states);
    free(w->reqs);
}

struct gf_req *sim_links_req(struct sim_links *w, uint32_t rank, uint32_t slot)
{
    assert_true((rank < w->world) && (slot < SIM_LINKS_REQS));
    return (struct gf_req *)&w->reqs[rank * SIM_LINKS_REQS + slot];
}

gf_status sim_links_send(struct sim_links *w, uint32_t from, uint32_t to, uint64_t tag,
                         const void *data, size_t bytes, uint32_t slot)
{
    return w->driver->send_post(w->links[from], to, tag, (gf_mem)(uintptr_t)data, bytes,
                                sim_links_req(w, from, slot));
}

gf_status sim_links_recv(struct sim_links *w, uint32_t to, uint32_t from, uint64_t tag, void *data,
                         size_t bytes, uint32_t slot)
{
    return w->driver->recv_post(w->links[to], from, tag, (gf_mem)(uintptr_t)data, bytes,
                                sim_links_req(w, to, slot));
}

gf_status sim_links_test(struct sim_links *w, uint32_t rank, uint32_t slot)
{
    return w->driver->test(w->links[rank], sim_links_req(w, rank, slot));
}

void sim_links_run(struct sim_links *w)
{
    while (gf_sim_advance(w->sim)) continue;
}
