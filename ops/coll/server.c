/* Parameter server (FireCaffe's baseline): all ranks send their vector to rank 0, which adds them
 * in rank order and sends each the result. Rank 0 moves (n-1) times the data each way: here to be
 * compared with, not to be used. */
#include "ops/coll/flow.h"

static void server_round(const struct gf_coll *coll, uint32_t number, struct gf_round *round_out)
{
    uint32_t others = coll->size - 1;
    bool is_up = number < others;
    uint32_t client = (is_up ? number : number - others) + 1;
    bool is_server = coll->index == 0;
    bool is_client = coll->index == client;

    round_out->send.peer = is_server ? client : 0;
    round_out->send.count = (is_up ? is_client : is_server) ? coll->plan.elem_count : 0;
    round_out->recv.peer = round_out->send.peer;
    round_out->recv.count = (is_up ? is_server : is_client) ? coll->plan.elem_count : 0;
    round_out->reduce = is_up;
    if (is_up) return;
    round_out->send.after = others - 1; /* the last one added */
    round_out->recv.after = client - 1; /* when this client's went up */
}

static uint32_t server_shape(gf_collective collective, uint32_t size, uint64_t elem_count,
                             uint64_t *longest_out)
{
    (void)collective;
    *longest_out = elem_count;
    return 2 * (size - 1);
}

const struct gf_coll_kind gf_coll_server = {
    .name = "server",
    .collectives = 1u << GF_COLL_ALLREDUCE,
    .shape = server_shape,
    .round = server_round,
    .need = gf_flow_need,
    .start = gf_flow_start,
    .progress = gf_flow_progress,
};
