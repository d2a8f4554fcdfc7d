/* UCX itself: its settings, its log and faults, opening and closing.
 *
 * The library opens it when the join has shown ranks of several nodes, and all of them have a
 * fabric. What the configuration names (TLS, NET_DEVICES) is set by ucp_config_modify() and wins
 * over the environment. Every other UCX_* variable applies as in any UCX program.
 *
 * A transport that does not exist, or a key that fits none, costs only a warning of UCX's; both
 * warnings are caught here and fail the open. */
#include "drivers/ucx/link_ucx.h"

#include "drivers/base/clock.h"
#include "drivers/devices.h"
#include "drivers/base/fnv.h"
#include "drivers/base/forked.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long close() lets what UCX has taken leave this host. A dead peer may use all of it. */
#define FLUSH_NS 200000000u

/* ---- state of the process: UCX's log, its level, and how many links are open ---- */

#define LINES_MAX 16u

/* Under gf_forked_lock(). UCX's log handler has no user pointer and may run on UCX's own thread:
 * such a line waits here until a link is polled, so a callback is called by its own thread, and
 * never after its link was closed. */
static struct {
    uint32_t links; /* that this process has open; of a forked child, its parent's */
    pid_t owner;
    uint32_t line_first, line_count, lost;
    struct {
        gf_log_level level;
        char text[GF_UCX_LINE_BYTES];
    } lines[LINES_MAX];
} shared;
/* UCX's log level, and what UCX itself has that threads share while it opens and ends. */
static pthread_mutex_t opens = PTHREAD_MUTEX_INITIALIZER;
/* the link whose network this thread opens or closes now: its log gets the line at once */
static _Thread_local struct gf_ucx *calling;

static void line_keep(gf_log_level level, const char *text)
{
    gf_forked_lock();
    if (shared.line_count == LINES_MAX) {
        shared.lost++;
    } else if (shared.links > 0) {
        uint32_t at = (shared.line_first + shared.line_count) % LINES_MAX;
        shared.lines[at].level = level;
        (void)snprintf(shared.lines[at].text, GF_UCX_LINE_BYTES, "%s", text);
        __atomic_store_n(&shared.line_count, shared.line_count + 1, __ATOMIC_RELAXED);
    }
    gf_forked_unlock();
}

static bool line_take(gf_log_level *level_out, char text_out[GF_UCX_LINE_BYTES])
{
    bool takes;
    gf_forked_lock();
    takes = shared.line_count > 0;
    if (takes) {
        *level_out = shared.lines[shared.line_first].level;
        memcpy(text_out, shared.lines[shared.line_first].text, GF_UCX_LINE_BYTES);
        shared.line_first = (shared.line_first + 1) % LINES_MAX;
        __atomic_store_n(&shared.line_count, shared.line_count - 1, __ATOMIC_RELAXED);
    } else if (shared.lost > 0) {
        *level_out = GF_LOG_WARN;
        (void)snprintf(text_out, GF_UCX_LINE_BYTES, "UCX: %u more lines", shared.lost);
        shared.lost = 0;
        takes = true;
    }
    gf_forked_unlock();
    return takes;
}

void gf_ucx_lines_log(const struct gf_ucx *ucx)
{
    gf_log_level level;
    char text[GF_UCX_LINE_BYTES];
    if (__atomic_load_n(&shared.line_count, __ATOMIC_RELAXED) == 0) return;
    while (line_take(&level, text)) gf_log_line(&ucx->setup.log, level, "%s", text);
}

void gf_ucx_line_heard(gf_log_level level, const char *text, const char *message)
{
    struct gf_ucx *ucx = calling;
    if (ucx == NULL) {
        line_keep(level, text);
        return;
    }
    if ((ucx->complaint[0] == '\0') && (level == GF_LOG_WARN) &&
        ((strstr(message, "not available, please") != NULL) ||
         (strstr(message, "invalid configuration") != NULL)))
        (void)snprintf(ucx->complaint, sizeof ucx->complaint, "%.127s", message);
    /* of what peers left open */
    if (ucx->ending && (level == GF_LOG_WARN)) level = GF_LOG_DEBUG;
    gf_log_line(&ucx->setup.log, level, "%s", text);
}

/* A child that was forked while its parent had a link open has no thread of UCX, and perhaps locks
 * that no thread will release. */
static gf_status process_join(struct gf_ucx *ucx)
{
    gf_forked_lock();
    gf_ucx_start_locked();
    ucx->joined = (shared.links == 0) || (shared.owner == getpid());
    if (ucx->joined && (shared.links++ == 0)) gf_ucx_log_take();
    if (ucx->joined) shared.owner = getpid();
    gf_forked_unlock();
    if (ucx->joined) return GF_OK;
    return gf_ucx_refuse(ucx, GF_ERR_SYSTEM,
                         "this process was forked while its parent had a context open: UCX's "
                         "thread, which takes connections, is not in it; fork before, or exec()");
}

static void process_leave(struct gf_ucx *ucx)
{
    if (!ucx->joined) return;
    gf_ucx_lines_log(ucx);
    gf_forked_lock();
    if (--shared.links == 0) gf_ucx_log_give();
    gf_forked_unlock();
    ucx->joined = false;
}

gf_status gf_ucx_fault(struct gf_ucx *ucx, gf_status code, uint32_t peer, const char *call,
                       ucs_status_t status, const char *format, ...)
{
    char text[sizeof ucx->link.fault.text];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const char *colon = (status == UCS_OK) ? "" : ": ";
    const char *why = (status == UCS_OK) ? "" : ucs_status_string(status);
    return gf_fault_set(&ucx->link.fault, code, peer, call, status, "%s%s%s", text, colon, why);
}

/* ---- while UCX opens a context or a worker ---- */

/* One thread at a time. UCX reports what it lacks as warnings, which UCX_LOG_LEVEL may have turned
 * off; *was_out is the level before. */
static void opening_begin(struct gf_ucx *ucx, char was_out[32])
{
    (void)pthread_mutex_lock(&opens);
    calling = ucx;
    ucx->complaint[0] = '\0';
    gf_ucx_warnings_begin(was_out);
}

static void opening_end(const char *was)
{
    gf_ucx_warnings_end(was);
    calling = NULL;
    (void)pthread_mutex_unlock(&opens);
}

/* ---- settings ---- */

/* Ranks of a node share memory without UCX, and cma would make it abort the whole process when a
 * peer dies. */
static gf_status transports_check(struct gf_ucx *ucx)
{
    const char *asked = ucx->setup.transports;
    size_t name_bytes;
    const char *refused = gf_ucx_find(asked, GF_UCX_LOCAL, &name_bytes);
    if ((asked[0] == '\0') || (asked[0] == '^') || (strlen(asked) >= GF_TEXT_MAX))
        return gf_ucx_refuse(ucx, GF_ERR_CONFIG, "transports \"%s\": name each one, e.g. rc",
                             asked);
    if (refused != NULL)
        return gf_ucx_refuse(
            ucx, GF_ERR_CONFIG,
            "transports \"%s\": \"%.*s\" is for no network; name those between nodes, "
            "e.g. rc (ranks of a node share memory by themselves: link.private_memory)",
            asked, (int)name_bytes, refused);
    if (!gf_ucx_any(asked, GF_UCX_NETWORK))
        return gf_ucx_refuse(ucx, GF_ERR_CONFIG,
                             "transports \"%s\": none is for a network, as rc and ud are", asked);
    return GF_OK;
}

/* UCX authenticates nobody: whoever reaches one of its ports may write into this process. */
static gf_status strangers_check(struct gf_ucx *ucx)
{
    const struct gf_link_setup *setup = &ucx->setup;
    bool keyed = (setup->key_file != NULL) && (setup->key_file[0] != '\0');
    if (keyed && !setup->trusted_fabric)
        return gf_ucx_refuse(ucx, GF_ERR_CONFIG,
                             "transports \"%s\": nobody proves a key_file over UCX; if the fabric "
                             "keeps strangers out "
                             "(P_Key), link.trusted_fabric = true; else link.driver = tcp",
                             setup->transports);
    if (!keyed && !setup->insecure && gf_ucx_any(setup->transports, GF_UCX_TCP))
        return gf_ucx_refuse(ucx, GF_ERR_CONFIG,
                             "transports \"%s\": a UCX port takes raw writes into this process; if "
                             "nobody else reaches "
                             "it, rendezvous.insecure = true; else link.driver = tcp",
                             setup->transports);
    return GF_OK;
}

/* ---- context and worker ---- */

/* Of this rank, before a context with a network is opened. */
static void devices_choose(struct gf_ucx *ucx)
{
    gf_devices_group(ucx->setup.devices, ucx->setup.local, ucx->devices);
    ucx->link.device = gf_fnv_bytes(GF_FNV_START, ucx->devices, strlen(ucx->devices));
}

static gf_status context_take(struct gf_ucx *ucx)
{
    const ucp_params_t params = {
        .field_mask =
            UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
        .estimated_num_eps = ucx->setup.ranks_max,
        .name = "gradientflow",
    };
    ucp_context_attr_t attributes = {.field_mask =
                                         UCP_ATTR_FIELD_REQUEST_SIZE | UCP_ATTR_FIELD_MEMORY_TYPES};
    ucp_config_t *config = NULL;
    gf_status status;
    ucs_status_t ucs = ucp_config_read(NULL, NULL, &config);
    if (ucs != UCS_OK)
        return gf_ucx_fault(ucx, GF_ERR_LINK, GF_RANK_NONE, "ucp_config_read", ucs,
                            "UCX refuses its own settings (a UCX_* variable?)");
    devices_choose(ucx);
    status = gf_ucx_settings_apply(ucx, config);
    if (status == GF_OK) {
        ucs = ucp_init(&params, config, &ucx->context);
        if (ucs != UCS_OK) ucx->context = NULL;
        if ((ucx->complaint[0] != '\0') || (ucs != UCS_OK)) /* a better text, if there is one */
            (void)gf_ucx_missing_text(ucx->setup.transports, ucx->complaint, sizeof ucx->complaint);
        if (ucx->complaint[0] != '\0')
            status = gf_ucx_fault(ucx, GF_ERR_CONFIG, GF_RANK_NONE, "ucp_init", ucs,
                                  "transports \"%s\", devices \"%s\": %s", ucx->setup.transports,
                                  ucx->devices, ucx->complaint);
        else if (ucs != UCS_OK)
            status = gf_ucx_fault(ucx, GF_ERR_LINK, GF_RANK_NONE, "ucp_init", ucs,
                                  "nothing usable among transports \"%s\" on devices \"%s\"",
                                  ucx->setup.transports, ucx->devices);
    }
    ucp_config_release(config);
    if (status != GF_OK) return status;
    ucs = ucp_context_query(ucx->context, &attributes);
    if ((ucs != UCS_OK) || (attributes.request_size > GF_UCX_FRONT_BYTES))
        return gf_ucx_fault(ucx, GF_ERR_LINK, GF_RANK_NONE, "ucp_context_query", ucs,
                            "UCX %s wants %zu bytes in front of a request, this build keeps %u",
                            ucp_get_version_string(), attributes.request_size, GF_UCX_FRONT_BYTES);
    if (ucx->gpu != NULL) gf_ucx_device_types(ucx, attributes.memory_types);
    return GF_OK;
}

/* One thread at a time, not always the one that opened: a card's doorbell is fenced for that. */
static gf_status worker_take(struct gf_ucx *ucx)
{
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucs_status_t status = ucp_worker_create(ucx->context, &params, &ucx->worker);
    if (status != UCS_OK) ucx->worker = NULL;
    if (ucx->complaint[0] != '\0')
        return gf_ucx_fault(ucx, GF_ERR_CONFIG, GF_RANK_NONE, "ucp_worker_create", status,
                            "UCX %s: %s", ucp_get_version_string(), ucx->complaint);
    if (status != UCS_OK)
        return gf_ucx_fault(ucx, GF_ERR_LINK, GF_RANK_NONE, "ucp_worker_create", status,
                            "transports \"%s\", devices \"%s\"", ucx->setup.transports,
                            ucx->devices);
    return GF_OK;
}

/* Sends that have ended for their caller may still lie in UCX's buffers. */
static void worker_flush(struct gf_ucx *ucx)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    uint64_t start_ns = gf_clock_monotonic.now_ns(NULL);
    ucs_status_ptr_t flush = ucp_worker_flush_nbx(ucx->worker, &param);
    if (!UCS_PTR_IS_PTR(flush)) return;
    while (ucp_request_check_status(flush) == UCS_INPROGRESS) {
        (void)ucp_worker_progress(ucx->worker);
        if (gf_clock_monotonic.now_ns(NULL) - start_ns > FLUSH_NS) return; /* the worker ends it */
    }
    ucp_request_free(flush);
}

/* Only destroying the worker ends every request without the help of peers. */
static void worker_give(struct gf_ucx *ucx, bool flushes)
{
    ucx->ending = true;
    if (flushes && (ucx->worker != NULL)) worker_flush(ucx);
    gf_ucx_peers_forget(ucx);
    if (ucx->worker != NULL) {
        (void)pthread_mutex_lock(&opens);
        ucp_worker_destroy(ucx->worker);
        (void)pthread_mutex_unlock(&opens);
    }
    ucx->worker = NULL;
    ucx->link.failed = GF_OK;
    ucx->lost_count = 0;
    while (ucx->under_way != NULL) gf_ucx_req_end(ucx->under_way, GF_ERR_ABORTED);
    ucx->ending = false;
}

/* ---- what it is asked for ---- */

size_t gf_ucx_state_bytes(const struct gf_link_setup *setup)
{
    return sizeof(struct gf_ucx) + setup->ranks_max * sizeof(ucp_ep_h);
}

static gf_status setup_take(struct gf_ucx *ucx, const struct gf_link_setup *setup)
{
    ucx->setup = *setup;
    if ((setup->transports == NULL) || (setup->transports[0] == '\0'))
        ucx->setup.transports = "ib"; /* rc, ud and dc */
    if (setup->devices == NULL) ucx->setup.devices = "";
    if ((setup->device_bytes == 0) || !gf_ucx_may_reach_device(setup)) ucx->setup.gpu = NULL;
    if (transports_check(ucx) != GF_OK) return GF_ERR_CONFIG;
    return strangers_check(ucx);
}

/* ---- what wakes a sleeper ---- */

static gf_status wake_take(struct gf_ucx *ucx)
{
    ucs_status_t status = ucp_worker_get_efd(ucx->worker, &ucx->link.wake_fd);
    if (status == UCS_OK) return GF_OK;
    ucx->link.wake_fd = -1;
    return gf_ucx_fault(ucx, GF_ERR_LINK, GF_RANK_NONE, "ucp_worker_get_efd", status,
                        "transports \"%s\" cannot wake a sleeper", ucx->setup.transports);
}

/* ---- the network ---- */

ucs_status_t gf_ucx_register(struct gf_ucx *ucx, void *address, size_t bytes,
                             ucs_memory_type_t type, ucp_mem_h *memory_out)
{
    const ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
        .address = address,
        .length = bytes,
        .memory_type = type,
    };
    ucs_status_t status = ucp_mem_map(ucx->context, &params, memory_out);
    if (status != UCS_OK) *memory_out = NULL;
    return status;
}

static void unregister(struct gf_ucx *ucx, ucp_mem_h *memory)
{
    if (*memory != NULL) (void)ucp_mem_unmap(ucx->context, *memory);
    *memory = NULL;
}

/* Registers the exchange region at once: an adapter that cannot pin it fails the open and not a
 * step, and no message waits for a registration. */
static gf_status region_register(struct gf_ucx *ucx)
{
    ucs_status_t status;
    if ((ucx->link.region == NULL) || (ucx->region != NULL)) return GF_OK;
    status = gf_ucx_register(ucx, ucx->link.region, ucx->link.region_bytes, UCS_MEMORY_TYPE_HOST,
                             &ucx->region);
    if (status == UCS_OK) return GF_OK;
    return gf_ucx_fault(ucx, GF_ERR_SYSTEM, GF_RANK_NONE, "ucp_mem_map", status,
                        "devices \"%s\" cannot register the exchange region of %zu bytes (is "
                        "`ulimit -l` too low?)",
                        ucx->devices, ucx->link.region_bytes);
}

/* Makes the context, unless there is one, and the worker. */
static gf_status network_take(struct gf_ucx *ucx)
{
    char log_level[32];
    gf_status status;
    if (ucx->context == NULL) ucx->gpu = ucx->setup.gpu;
    if ((status = gf_ucx_enter(ucx)) != GF_OK) return status;
    opening_begin(ucx, log_level);
    if (ucx->context == NULL) status = context_take(ucx);
    if (status == GF_OK) status = region_register(ucx);
    if (status == GF_OK) status = worker_take(ucx);
    opening_end(log_level);
    gf_ucx_leave(ucx);
    if (!ucx->link.reaches_device) ucx->gpu = NULL; /* outside of enter and leave */
    return status;
}

static void network_give(struct gf_ucx *ucx, bool flushes, bool context)
{
    bool entered = gf_ucx_enter(ucx) == GF_OK;
    calling = ucx;
    ucx->link.wake_fd = -1;
    worker_give(ucx, flushes);
    ucx->ending = context;
    unregister(ucx, &ucx->region);
    if (context && (ucx->context != NULL)) {
        (void)pthread_mutex_lock(&opens);
        unregister(ucx, &ucx->arena);
        ucp_cleanup(ucx->context);
        (void)pthread_mutex_unlock(&opens);
    }
    ucx->ending = false;
    calling = NULL;
    if (context) ucx->context = NULL;
    if (entered) gf_ucx_leave(ucx);
    if (!context) return;
    ucx->link.reaches_device = false;
    ucx->link.device = 0;
    ucx->gpu = NULL;
}

static const char *devices_text(const struct gf_ucx *ucx)
{
    return (ucx->devices[0] != '\0') ? ucx->devices : "any";
}

static void network_log(const struct gf_ucx *ucx)
{
    gf_log_line(&ucx->setup.log, GF_LOG_INFO, "link: UCX %s, transports %s, devices %s",
                ucp_get_version_string(), ucx->setup.transports, devices_text(ucx));
}

/* ---- open, close, reset ---- */

static void give_back(struct gf_ucx *ucx)
{
    network_give(ucx, true, true);
    process_leave(ucx);
}

gf_status gf_ucx_open(const struct gf_link_setup *setup, void *state, struct gf_link **link_out,
                      struct gf_fault *fault_out)
{
    struct gf_ucx *ucx = state;
    gf_status status;
    GF_ASSERT((uintptr_t)state % 64 == 0);
    GF_ASSERT((setup->ranks_max <= GF_WORLD_MAX) && (setup->world <= setup->ranks_max) &&
              (setup->rank < setup->world));
    gf_link_begin(&ucx->link, setup, &gf_link_ucx);
    memset((char *)state + sizeof ucx->link, 0, gf_ucx_state_bytes(setup) - sizeof ucx->link);
    status = setup_take(ucx, setup);
    if (status == GF_OK) status = process_join(ucx);
    if (status == GF_OK) status = network_take(ucx);
    if (status == GF_OK) status = wake_take(ucx);
    if (status != GF_OK) {
        give_back(ucx);
        if (fault_out != NULL) *fault_out = ucx->link.fault;
        return status;
    }
    ucx->is_open = true;
    network_log(ucx);
    *link_out = &ucx->link;
    return GF_OK;
}

void gf_ucx_close(struct gf_link *link)
{
    give_back(gf_ucx_of(link));
}

/* No flush: a link is dropped after progress was made in vain for a while, and a dead peer would
 * take up all of the flush's time. */
void gf_ucx_drop(struct gf_link *link)
{
    struct gf_ucx *ucx = gf_ucx_of(link);
    ucx->is_open = false;
    network_give(ucx, false, false);
}

/* The worker anew. */
gf_status gf_ucx_reset(struct gf_link *link, uint32_t generation, uint32_t rank, uint32_t world)
{
    struct gf_ucx *ucx = gf_ucx_of(link);
    gf_status status;
    GF_ASSERT((world <= ucx->setup.ranks_max) && (rank < world));
    ucx->is_open = false;
    network_give(ucx, false, false);
    ucx->setup.generation = generation;
    ucx->setup.rank = rank;
    ucx->setup.world = world;
    memset(&link->fault, 0, sizeof link->fault);
    status = network_take(ucx);
    if (status == GF_OK) status = wake_take(ucx);
    ucx->is_open = status == GF_OK;
    return status;
}
