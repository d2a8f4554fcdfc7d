/* Public collectives between two steps: drawn, posted by all ranks in one order, held against what
 * they must give. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/soak/soak.h"
#include "lib/core/accessors.h"

#define GUARD_BYTES 64u
#define GUARD_VALUE 0x5a

static uint64_t bytes_of(const struct soak_request *request)
{
    return request->elem_count * gf_type_size_bytes(request->type);
}

static float value_of(const struct soak_plan *plan, uint64_t gap, uint32_t index, uint32_t rank,
                      uint64_t elem)
{
    return (float)soak_below(soak_draw(plan, SOAK_DRAW_REQUEST, gap * 8 + index, rank, elem + 8),
                             9) -
           4.0f;
}

void soak_requests_draw(const struct soak_plan *plan, uint64_t gap, struct soak_requests *requests)
{
    static const gf_operation operations[] = {GF_OPERATION_ALLREDUCE, GF_OPERATION_BROADCAST,
                                              GF_OPERATION_REDUCE_SCATTER, GF_OPERATION_ALLGATHER,
                                              GF_OPERATION_BARRIER};
    *requests = (struct soak_requests){0};
    if (soak_below(soak_draw(plan, SOAK_DRAW_REQUEST, gap, 0, 0), 100) >= plan->request_percent)
        return;
    uint32_t most = plan->small ? 300 : 3000;
    requests->count =
        1 + soak_below(soak_draw(plan, SOAK_DRAW_REQUEST, gap, 0, 1), SOAK_REQUESTS_MAX);
    for (uint32_t i = 0; i < requests->count; i++) {
        struct soak_request *request = &requests->all[i];
        request->operation =
            operations[soak_below(soak_draw(plan, SOAK_DRAW_REQUEST, gap, i, 2), 5)];
        request->type =
            (gf_type)soak_below(soak_draw(plan, SOAK_DRAW_REQUEST, gap, i, 3), GF_TYPE_COUNT);
        request->root =
            soak_below(soak_draw(plan, SOAK_DRAW_REQUEST, gap, i, 4), plan->setup.world);
        request->elem_count =
            soak_below(soak_draw(plan, SOAK_DRAW_REQUEST, gap, i, 5), (i == 0) ? most : 60);
        if (request->operation == GF_OPERATION_BARRIER) request->elem_count = 0;
    }
}

static void data_take(struct soak_request *request, void *region, uint64_t region_bytes)
{
    uint64_t bytes = bytes_of(request);
    if ((region != NULL) && (bytes <= region_bytes)) {
        request->data = region;
        return;
    }
    request->memory = malloc(bytes + 2 * GUARD_BYTES);
    assert_non_null(request->memory);
    memset(request->memory, GUARD_VALUE, bytes + 2 * GUARD_BYTES);
    request->data = request->memory + GUARD_BYTES;
}

static gf_status post(gf_context *gf, struct soak_request *request)
{
    gf_mem data = (gf_mem)(uintptr_t)request->data;
    switch (request->operation) {
    case GF_OPERATION_ALLREDUCE:
        return gf_allreduce(gf, data, request->elem_count, request->type, &request->request);
    case GF_OPERATION_BROADCAST:
        return gf_broadcast(gf, data, request->elem_count, request->type,
                            request->root % gf_world(gf), &request->request);
    case GF_OPERATION_REDUCE_SCATTER:
        return gf_reduce_scatter(gf, data, request->elem_count, request->type, &request->request);
    case GF_OPERATION_ALLGATHER:
        return gf_allgather(gf, data, request->elem_count, request->type, &request->request);
    default: return gf_barrier(gf, &request->request);
    }
}

gf_status soak_requests_post(const struct soak_plan *plan, gf_context *gf, uint64_t gap,
                             void *region, struct soak_requests *requests)
{
    soak_requests_draw(plan, gap, requests);
    for (uint32_t i = 0; i < requests->count; i++) {
        struct soak_request *request = &requests->all[i];
        gf_status status;
        data_take(request, (i == 0) ? region : NULL,
                  plan->setup.config.exchange.user_bytes); /* one lies there at most */
        for (uint64_t e = 0; e < request->elem_count; e++)
            world_put(request->type, request->data, e,
                      value_of(plan, gap, i, gf_first_rank(gf), e));
        if ((status = post(gf, request)) != GF_OK) return status;
    }
    return GF_OK;
}

static float expected_of(const struct soak_plan *plan, const gf_context *gf, uint64_t gap,
                         uint32_t index, const struct soak_request *request, uint64_t elem)
{
    uint32_t world = gf_world(gf);
    uint64_t block = (request->elem_count + world - 1) / world;
    float sum = 0;
    if (request->operation == GF_OPERATION_BROADCAST)
        return value_of(plan, gap, index, world_member(gf, request->root % world), elem);
    if (request->operation == GF_OPERATION_ALLGATHER)
        return value_of(plan, gap, index, world_member(gf, (uint32_t)(elem / block)), elem);
    for (uint32_t rank = 0; rank < world; rank++)
        sum += value_of(plan, gap, index, world_member(gf, rank), elem);
    return sum;
}

static void check(const struct soak_plan *plan, const gf_context *gf, uint64_t gap, uint32_t index,
                  const struct soak_request *request)
{
    uint64_t first = 0;
    uint64_t count = request->elem_count;
    if (request->operation == GF_OPERATION_REDUCE_SCATTER)
        gf_block(request->elem_count, gf_world(gf), gf_rank(gf), &first, &count);
    for (uint64_t e = first; e < first + count; e++) {
        float got = world_get(request->type, request->data, e);
        float expected = expected_of(plan, gf, gap, index, request, e);
        if (got != expected)
            fail_msg(
                "rank %u, request %u before step %llu, %s of %llu: element %llu is %g, expected %g",
                gf_rank(gf), index, (unsigned long long)gap, gf_operation_name(request->operation),
                (unsigned long long)request->elem_count, (unsigned long long)e, (double)got,
                (double)expected);
    }
}

gf_status soak_requests_poll(const struct soak_plan *plan, gf_context *gf, uint64_t gap,
                             struct soak_requests *requests)
{
    uint32_t first =
        soak_below(soak_draw(plan, SOAK_DRAW_POLL, gap, gf_first_rank(gf), requests->ended),
                   SOAK_REQUESTS_MAX);
    for (uint32_t i = 0; i < requests->count; i++) {
        uint32_t index = (first + i) % requests->count;
        struct soak_request *request = &requests->all[index];
        gf_status status;
        if (request->done) continue;
        status = gf_request_poll(gf, &request->request);
        if (status == GF_AGAIN) continue;
        if (status < 0) return status;
        request->done = true;
        requests->ended++;
        check(plan, gf, gap, index, request);
    }
    return (requests->ended == requests->count) ? GF_OK : GF_AGAIN;
}

void soak_requests_free(struct soak_requests *requests)
{
    unsigned char guard[GUARD_BYTES];
    for (uint32_t i = 0; i < requests->count; i++) {
        struct soak_request *request = &requests->all[i];
        if (request->memory == NULL) continue;
        memset(guard, GUARD_VALUE, GUARD_BYTES);
        assert_memory_equal(request->memory, guard, GUARD_BYTES);
        assert_memory_equal(request->memory + GUARD_BYTES + bytes_of(request), guard, GUARD_BYTES);
        free(request->memory);
    }
    *requests = (struct soak_requests){0};
}
