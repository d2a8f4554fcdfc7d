/* Device memory and the UCX link: UCX is given none unless its memory types list CUDA, each message
 * says what its memory is, and the device is current in every call that may move something. This
 * machine's UCX knows no CUDA: its answers and what it is given are changed on the way (--wrap),
 * and "device memory" is the host's.
 * suite: slow
 * link: wrap ucp_config_modify ucp_context_query ucp_tag_send_nbx ucp_tag_recv_nbx
 * link: wrap ucp_worker_create ucp_worker_progress ucp_worker_destroy ucp_worker_flush_nbx
 * link: wrap ucp_request_cancel ucp_init_version ucp_cleanup ucp_mem_map ucp_mem_unmap */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/late_gpu.h"
#include "firmware-tests/ucx/ucx_faults.h"
#include "firmware-tests/support/state_runs.h"

#include <ucp/api/ucp.h>
#include <ucs/config/parser.h>

#define ARENA_BYTES 8192u
#define MESSAGE_BYTES 1024u
#define LAST_MESSAGE (ARENA_BYTES - MESSAGE_BYTES) /* up to the last byte */
#define LINKS 2u
#define ARENAS_MAX 3u /* links that are open at once */
#define REQS 8u

/* ---- the device, and UCX as it is seen ---- */

static struct {
    bool has_cuda;       /* what ucp_context_query() says */
    bool refuses;        /* to register device memory */
    uint32_t regions;    /* the host's that are registered */
    uint32_t registered; /* .. and the device's: */
    ucp_mem_h arenas[ARENAS_MAX];
    uint32_t inside; /* entered and not left */
    uint32_t entered;
    bool enter_fails;
    uint32_t outside;    /* calls of UCX that may move data, made without the device */
    uint32_t cuda, host; /* messages of each type */
    uint64_t calls;
    char complaint[160];
} seen;

static gf_status enter(struct gf_gpu *gpu)
{
    if (seen.enter_fails)
        return gf_fault_set(&gpu->fault, GF_ERR_DEVICE, GF_RANK_NONE, "cuCtxPushCurrent", 700,
                            "no context");
    seen.inside++;
    seen.entered++;
    return GF_OK;
}

static gf_status leave(struct gf_gpu *gpu)
{
    assert_true(seen.inside > 0);
    seen.inside--;
    return GF_OK;
}

static void called(void)
{
    seen.calls++;
    if (seen.inside == 0) seen.outside++;
}

static ucp_request_param_t counted(const ucp_request_param_t *param)
{
    ucp_request_param_t host = *param;
    called();
    assert_true((param->op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE) != 0);
    if (param->memory_type == UCS_MEMORY_TYPE_CUDA)
        seen.cuda++;
    else
        seen.host++;
    assert_true((param->memory_type == UCS_MEMORY_TYPE_HOST) || seen.has_cuda);
    host.memory_type = UCS_MEMORY_TYPE_HOST;
    return host;
}

/* UCX refuses a transport that it does not have. */
WRAPPED(ucs_status_t, ucp_config_modify, ucp_config_t *config, const char *name, const char *value)
{
    char without[128];
    char *at;
    (void)snprintf(without, sizeof without, "%s", value);
    if ((strcmp(name, "TLS") == 0) && ((at = strstr(without, ",cuda_copy")) != NULL))
        memmove(at, at + strlen(",cuda_copy"), strlen(at + strlen(",cuda_copy")) + 1);
    return __real_ucp_config_modify(config, name, without);
}

WRAPPED(ucs_status_t, ucp_context_query, ucp_context_h context, ucp_context_attr_t *attributes)
{
    ucs_status_t status = __real_ucp_context_query(context, attributes);
    assert_true((attributes->field_mask & UCP_ATTR_FIELD_MEMORY_TYPES) != 0);
    if (seen.has_cuda) attributes->memory_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
    return status;
}

WRAPPED(ucs_status_ptr_t, ucp_tag_send_nbx, ucp_ep_h ep, const void *buffer, size_t count,
        ucp_tag_t tag, const ucp_request_param_t *param)
{
    const ucp_request_param_t host = counted(param);
    return __real_ucp_tag_send_nbx(ep, buffer, count, tag, &host);
}

WRAPPED(ucs_status_ptr_t, ucp_tag_recv_nbx, ucp_worker_h worker, void *buffer, size_t count,
        ucp_tag_t tag, ucp_tag_t tag_mask, const ucp_request_param_t *param)
{
    const ucp_request_param_t host = counted(param);
    return __real_ucp_tag_recv_nbx(worker, buffer, count, tag, tag_mask, &host);
}

WRAPPED(ucs_status_t, ucp_mem_map, ucp_context_h context, const ucp_mem_map_params_t *params,
        ucp_mem_h *memory_out)
{
    ucp_mem_map_params_t host = *params;
    called();
    assert_true(params->length > 0);
    if (params->memory_type != UCS_MEMORY_TYPE_CUDA) {
        seen.regions++;
        return __real_ucp_mem_map(context, params, memory_out);
    }
    if (seen.refuses) return UCS_ERR_UNSUPPORTED;
    seen.registered++;
    host.memory_type = UCS_MEMORY_TYPE_HOST;
    ucs_status_t status = __real_ucp_mem_map(context, &host, memory_out);
    for (uint32_t i = 0; i < ARENAS_MAX; i++)
        if (seen.arenas[i] == NULL) {
            seen.arenas[i] = *memory_out;
            break;
        }
    return status;
}

WRAPPED(ucs_status_t, ucp_mem_unmap, ucp_context_h context, ucp_mem_h memory)
{
    called();
    for (uint32_t i = 0; i < ARENAS_MAX; i++)
        if (seen.arenas[i] == memory) {
            seen.arenas[i] = NULL;
            seen.registered--;
            return __real_ucp_mem_unmap(context, memory);
        }
    assert_true(seen.regions > 0);
    seen.regions--;
    return __real_ucp_mem_unmap(context, memory);
}

#define SEEN(result, name, parameters, arguments) \
    result __real_##name parameters;              \
    result __wrap_##name parameters               \
    {                                             \
        called();                                 \
        return __real_##name arguments;           \
    }
SEEN(ucs_status_t, ucp_init_version,
     (unsigned major, unsigned minor, const ucp_params_t *params, const ucp_config_t *config,
      ucp_context_h *out),
     (major, minor, params, config, out))
SEEN(ucs_status_t, ucp_worker_create,
     (ucp_context_h context, const ucp_worker_params_t *params, ucp_worker_h *out),
     (context, params, out))
SEEN(unsigned, ucp_worker_progress, (ucp_worker_h worker), (worker))
SEEN(void, ucp_worker_destroy, (ucp_worker_h worker), (worker))
SEEN(ucs_status_ptr_t, ucp_worker_flush_nbx,
     (ucp_worker_h worker, const ucp_request_param_t *param), (worker, param))
SEEN(void, ucp_request_cancel, (ucp_worker_h worker, void *request), (worker, request))
SEEN(void, ucp_cleanup, (ucp_context_h context), (context))

/* ---- two links ---- */

static const struct gf_gpu_driver gpu_driver = {.name = "cuda", .enter = enter, .leave = leave};
static struct gf_gpu gpu = {.driver = &gpu_driver};
static _Alignas(4096) unsigned char arena[LINKS][ARENA_BYTES], beside[LINKS][ARENA_BYTES];
static struct gf_link *links[LINKS];
static void *states[LINKS];
static struct gf_req *reqs[LINKS][REQS];

static void log_keep(void *user, gf_log_level level, const char *text)
{
    if (level == GF_LOG_WARN) (void)snprintf(seen.complaint, sizeof seen.complaint, "%s", text);
}

static void links_connect(void)
{
    unsigned char endpoints[LINKS][2048];
    size_t bytes[LINKS] = {0};
    for (uint32_t rank = 0; rank < LINKS; rank++)
        assert_int_equal(gf_link_front.endpoint(links[rank], endpoints[rank], &bytes[rank]), GF_OK);
    for (uint32_t up = 0, from = 0; up < LINKS;
         from = 1 - from) { /* in turns: each waits for the other */
        gf_status status =
            gf_link_front.connect(links[1 - from], from, endpoints[from], bytes[from]);
        assert_true(status >= 0);
        up = (status == GF_OK) ? up + 1 : 0;
    }
}

static void links_open_of(const char *transports, struct gf_gpu *device, bool has_cuda,
                          bool refuses)
{
    memset(&seen, 0, sizeof seen);
    seen.has_cuda = has_cuda;
    seen.refuses = refuses;
    for (uint32_t rank = 0; rank < LINKS; rank++) {
        struct gf_fault fault = {0};
        const struct gf_link_setup setup = {.rank = rank,
                                            .world = LINKS,
                                            .ranks_max = LINKS,
                                            .generation = 1,
                                            .requests_max = REQS,
                                            .message_bytes_max = MESSAGE_BYTES,
                                            .region_bytes = 4096,
                                            .transports = transports,
                                            .devices = "lo",
                                            .insecure = true,
                                            .network = GF_NETWORK_FABRIC,
                                            .networks[GF_NETWORK_FABRIC] = &gf_link_ucx,
                                            .log = {log_keep, NULL},
                                            .gpu = device,
                                            .device = (gf_mem)(uintptr_t)arena[rank],
                                            .device_bytes = ARENA_BYTES};
        states[rank] = aligned_alloc(64, (gf_link_front.state_bytes(&setup) + 63) / 64 * 64);
        assert_int_equal(gf_link_front.open(&setup, states[rank], &links[rank], &fault), GF_OK);
        for (uint32_t i = 0; i < REQS; i++)
            reqs[rank][i] = aligned_alloc(64, gf_link_ucx.req_size_bytes);
    }
    links_connect();
}

static void links_open(const char *transports, struct gf_gpu *device, bool has_cuda)
{
    links_open_of(transports, device, has_cuda, false);
}

static void links_close(void)
{
    for (uint32_t rank = 0; rank < LINKS; rank++) {
        gf_link_front.close(links[rank]);
        free(states[rank]);
        for (uint32_t i = 0; i < REQS; i++) free(reqs[rank][i]);
    }
    assert_int_equal(seen.inside, 0);
    assert_int_equal(seen.registered, 0);
    assert_int_equal(seen.regions, 0);
}

/* One message from rank 0's `from` to rank 1's `into`. */
static void message(uint64_t move, const unsigned char *from, unsigned char *into)
{
    const uint64_t tag = gf_tag_message(gf_tag(1, 1, 1), move);
    gf_mem dst = (gf_mem)(uintptr_t)into;
    gf_mem src = (gf_mem)(uintptr_t)from;
    memset(into, 0, MESSAGE_BYTES);
    assert_int_equal(gf_link_front.recv_post(links[1], 0, tag, dst, MESSAGE_BYTES, reqs[1][0]),
                     GF_OK);
    assert_int_equal(gf_link_front.send_post(links[0], 1, tag, src, MESSAGE_BYTES, reqs[0][0]),
                     GF_OK);
    while ((gf_link_front.test(links[1], reqs[1][0]) == GF_AGAIN) ||
           (gf_link_front.test(links[0], reqs[0][0]) == GF_AGAIN))
        for (uint32_t rank = 0; rank < LINKS; rank++) {
            (void)gf_link_front.progress(links[rank]);
            assert_int_equal(links[rank]->failed, GF_OK);
        }
    assert_memory_equal(from, into, MESSAGE_BYTES);
}

TEST(device_memory_is_given_only_where_ucx_lists_cuda)
{
    static const struct {
        const char *transports;
        bool has_cuda, has_gpu, reaches, warns;
    } rows[] = {{"tcp", true, true, false, false}, /* not named: UCX leaves it out */
                {"tcp,cuda_copy", false, true, false, true},
                {"tcp,cuda_copy", true, false, false, false},
                {"tcp,cuda_copy", true, true, true, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct gf_link_setup setup = {.transports = rows[i].transports};
        uint32_t cuda = rows[i].reaches ? 2 : 0;
        assert_int_equal(gf_link_ucx.may_reach_device(&setup),
                         strstr(rows[i].transports, "cuda") != NULL);
        links_open(rows[i].transports, rows[i].has_gpu ? &gpu : NULL, rows[i].has_cuda);
        assert_int_equal(seen.registered, rows[i].reaches ? LINKS : 0);
        assert_int_equal(seen.regions, LINKS);
        assert_int_equal(strstr(seen.complaint, "knows no CUDA") != NULL, rows[i].warns);
        for (uint32_t rank = 0; rank < LINKS; rank++)
            assert_int_equal(links[rank]->reaches_device, rows[i].reaches);
        for (uint32_t b = 0; b < MESSAGE_BYTES; b++)
            arena[0][b] = beside[0][b] = (unsigned char)(b * 7 + i);
        message(1, arena[0], arena[1]);
        assert_int_equal(seen.cuda, cuda);
        message(2, arena[0] + LAST_MESSAGE, arena[1] + LAST_MESSAGE);
        assert_int_equal(seen.cuda, 2 * cuda);
        message(3, beside[0], beside[1]);
        /* each a rank's own: the other's is none of this one's */
        message(4, arena[1] + 64, arena[0] + 64);
        assert_int_equal(seen.cuda, 2 * cuda);
        links_close();
    }
}

TEST(device_memory_that_ucx_cannot_register_goes_through_the_hosts)
{
    links_open_of("tcp,cuda_copy", &gpu, true, true);
    assert_non_null(strstr(seen.complaint, "cannot register 8192 bytes of device memory"));
    for (uint32_t rank = 0; rank < LINKS; rank++) assert_false(links[rank]->reaches_device);
    seen.entered = 0;
    message(1, beside[0], beside[1]);
    assert_int_equal(seen.cuda, 0);
    assert_int_equal(seen.entered, 0);
    links_close();
}

/* While UCX opens too, as it asks for the device then. */
TEST(the_device_is_current_wherever_ucx_may_move_data)
{
    const uint64_t tag = gf_tag_message(gf_tag(1, 1, 1), 9);
    gf_mem into = (gf_mem)(uintptr_t)arena[1];
    links_open("tcp,cuda_copy", &gpu, true);
    message(1, arena[0], arena[1]);
    assert_int_equal(gf_link_front.recv_post(links[1], 0, tag, into, MESSAGE_BYTES, reqs[1][1]),
                     GF_OK);
    gf_link_front.cancel(links[1], reqs[1][1]);
    gf_link_front.drop(links[0]);
    for (uint32_t rank = 0; rank < LINKS; rank++)
        assert_int_equal(gf_link_front.reset(links[rank], 2, rank, LINKS), GF_OK);
    assert_int_equal(gf_link_front.test(links[1], reqs[1][1]), GF_ERR_ABORTED);
    links_connect();
    assert_true(links[0]->reaches_device && links[1]->reaches_device);
    message(2, arena[0], arena[1]);
    links_close();
    assert_true((seen.calls > 20) && (seen.entered > 10));
    assert_int_equal(seen.outside, 0);
    links_open("tcp,cuda_copy", &gpu, false); /* what is not reached is not entered either */
    seen.entered = 0;
    message(1, beside[0], beside[1]);
    links_close();
    assert_int_equal(seen.entered, 0);
}

TEST(a_device_that_cannot_be_made_current_fails_the_call)
{
    uint64_t calls;
    links_open("tcp,cuda_copy", &gpu, true);
    calls = seen.calls;
    seen.enter_fails = true;
    assert_int_equal(
        gf_link_front.send_post(links[0], 1, 1, (gf_mem)(uintptr_t)arena[0], 8, reqs[0][0]),
        GF_ERR_DEVICE);
    assert_int_equal(
        gf_link_front.recv_post(links[0], 1, 1, (gf_mem)(uintptr_t)arena[0], 8, reqs[0][0]),
        GF_ERR_DEVICE);
    assert_false(gf_link_front.progress(links[0]));
    assert_int_equal(links[0]->failed, GF_ERR_DEVICE);
    assert_non_null(strstr(links[0]->fault.text, "no context"));
    assert_int_equal(seen.calls, calls);
    seen.enter_fails = false;
    links_close();
}

/* ---- whole contexts ---- */

static uint64_t no_clock(const struct gf_clock *clock)
{
    return 1; /* UCX takes real time, of which the simulated world knows nothing: nobody is late */
}

static void over_ucx(uint32_t rank, struct gf_config *config, const struct gf_tensor **tensors,
                     uint32_t *tensor_count)
{
    static struct gf_clock clock = {.now_ns = no_clock};
    struct gf_drivers *drivers = (struct gf_drivers *)(uintptr_t)config->drivers;
    drivers->link = &gf_link_tcp; /* opens no network: all go over the fabric */
    drivers->fabric = &gf_link_ucx;
    drivers->clock = &clock;
}

/* Steps and their sums, with each buffer in what stands for device memory. */
static void contexts_run(bool private_memory, bool has_cuda)
{
    struct world_setup setup = state_setup_of(&state_runs[0]);
    struct world_step step = {.fill = world_fill};
    uint32_t cuda;
    memset(&seen, 0, sizeof seen);
    seen.has_cuda = has_cuda;
    setup.world = 3;
    setup.vary = over_ucx;
    setup.gpu = &late_gpu;
    strcpy(setup.config.device.driver, late_gpu.name);
    setup.config.link.driver = GF_LINK_UCX;
    strcpy(setup.config.link.transports, "tcp,cuda_copy");
    setup.config.link.private_memory = private_memory;
    setup.config.rendezvous.insecure = true;
    setup.config.optimizer.kind = GF_OPTIMIZER_NONE;
    setup.config.exchange.algorithm = GF_ALGORITHM_RING;
    setup.config.exchange.fuse_bytes = 65536;
    WORLD_CREATE(w, &setup);
    w.limit_ns = UINT64_MAX;
    world_join(&w);
    world_expect(&w, GF_OK);
    cuda = seen.cuda;
    for (uint32_t rank = 0; rank < setup.world; rank++) {
        assert_int_equal(world_stats(&w, rank).path, has_cuda ? GF_PATH_WIRE : GF_PATH_STAGED);
    }
    for (uint32_t i = 0; i < 3; i++) {
        world_step_run(&w, &step);
        world_expect(&w, GF_OK);
        for (uint32_t rank = 0; rank < setup.world; rank++) world_drain(&w, rank);
        world_expect_sums(&w, 1.0f);
    }
    assert_int_equal(seen.cuda > cuda, has_cuda);
}

TEST(contexts_send_what_lies_in_device_memory)
{
    contexts_run(true, true);
    contexts_run(true, false);
    contexts_run(false, false); /* ranks of one node, which need no fabric */
}
