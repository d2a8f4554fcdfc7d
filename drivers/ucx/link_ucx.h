/* What the files of the UCX link share; no other file includes this.
 *     link_ucx.c           messages: the driver table, posting, testing, progress, sleeping
 *     link_ucx_open.c      UCX itself: its settings, its log, open, close, reset
 *     link_ucx_settings.c  the configuration that UCX is given
 *     link_ucx_inside.c    what UCX's public header has no call for
 *     link_ucx_probe.c     whether link.driver = auto would use it here
 *     link_ucx_resources.c why UCX does not open a transport
 *     link_ucx_names.c     lists of names, and what transports are for
 *     link_ucx_peers.c     endpoint addresses and connecting
 *     link_ucx_device.c    device memory: whether UCX reaches it, and what UCX needs for that
 */
#ifndef GF_LINK_UCX_H
#define GF_LINK_UCX_H

#include "drivers/link.h"

#include <ucp/api/ucp.h>

/* UCX keeps its part of a request in front of the address it is given; 1.13 wants 272 bytes. open()
 * compares. */
#define GF_UCX_FRONT_BYTES 320u
#define GF_UCX_ENDPOINT_BYTES_MAX 1952u
#define GF_UCX_LOST_MAX 32u /* peers that are reported as lost, at most */

struct gf_ucx;

struct gf_req {
    struct gf_req_head head;
    struct gf_ucx *ucx;
    struct gf_req *next, *previous; /* in gf_ucx.under_way until it has ended */
    size_t size_bytes;
    uint64_t tag;
    uint32_t peer;
    bool is_send;
    unsigned char front[GF_UCX_FRONT_BYTES];
} __attribute__((aligned(64)));

/* UCX's parameters for it. */
static inline void *gf_ucx_handle(struct gf_req *req)
{
    return req + 1;
}

struct gf_ucx {
    struct gf_link link;
    struct gf_link_setup setup; /* with generation, rank and world of now; no text is NULL */
    bool is_open;               /* false: it was dropped, or a reset failed */
    struct gf_gpu *gpu;         /* NULL: no device memory is reached */
    uint32_t requests_under_way;
    char devices[GF_TEXT_MAX]; /* what of setup.devices is this rank's */
    bool ending;               /* requests that end now were ended by us: no fault */
    uint32_t lost_count;       /* peers that it lost, and UCX's status */
    struct {
        uint32_t peer;
        ucs_status_t status;
    } lost[GF_UCX_LOST_MAX];
    bool joined; /* of those that use UCX in this process */
    /* of its opening: a transport or device that UCX lacks, a setting that it has not */
    char complaint[GF_TEXT_MAX];
    ucp_context_h context; /* NULL, as the worker: no network is open */
    ucp_mem_h region;      /* the exchange region, registered; NULL: it is not */
    ucp_mem_h arena;       /* the device's, likewise */
    ucp_worker_h worker;
    struct gf_req *under_way, *oldest; /* a list, and its end */
    /* [ranks_max], NULL: not connected */
    ucp_ep_h endpoints[];
};

static inline struct gf_ucx *gf_ucx_of(struct gf_link *link)
{
    return (struct gf_ucx *)link;
}

/* The one place where a ucs_status_t becomes a fault; logs it too. */
__attribute__((format(printf, 6, 7))) gf_status gf_ucx_fault(struct gf_ucx *ucx, gf_status code,
                                                             uint32_t peer, const char *call,
                                                             ucs_status_t status,
                                                             const char *format, ...);
/* .. of a set-up that cannot work, which no peer and no call of UCX has to do with. */
#define gf_ucx_refuse(ucx, code, ...) gf_ucx_fault(ucx, code, GF_RANK_NONE, "", UCS_OK, __VA_ARGS__)
/* Takes the request off the list and gives it its answer. */
void gf_ucx_req_end(struct gf_req *req, gf_status answer);

/* *memory_out: NULL where UCX cannot. */
ucs_status_t gf_ucx_register(struct gf_ucx *ucx, void *address, size_t bytes,
                             ucs_memory_type_t type, ucp_mem_h *memory_out);

bool gf_ucx_may_reach_device(const struct gf_link_setup *setup);
void gf_ucx_device_types(struct gf_ucx *ucx, uint64_t memory_types); /* of its context */
gf_status gf_ucx_device_enter(struct gf_ucx *ucx);
void gf_ucx_device_leave(struct gf_ucx *ucx);
ucs_memory_type_t gf_ucx_memory_type(const struct gf_ucx *ucx, gf_mem data);

/* Around calls of UCX that may move data. After GF_ERR_DEVICE, whose fault is set, neither UCX nor
 * the second of the two is called. */
static inline gf_status gf_ucx_enter(struct gf_ucx *ucx)
{
    return (ucx->gpu == NULL) ? GF_OK : gf_ucx_device_enter(ucx);
}
static inline void gf_ucx_leave(struct gf_ucx *ucx)
{
    if (ucx->gpu != NULL) gf_ucx_device_leave(ucx);
}

/* link_ucx_start.c. Before anything is asked of UCX: runs its constructors, once a process. */
void gf_ucx_start(void);
void gf_ucx_start_locked(void); /* under gf_forked_lock() */

/* link_ucx_inside.c */
#define GF_UCX_SIGNALS_KEY "UCX_HANDLE_ERRORS"
#define GF_UCX_LINE_BYTES 320u
void gf_ucx_log_take(void); /* UCX's log goes to gf_ucx_line_heard(), from any thread */
void gf_ucx_log_give(void);
/* Between the two UCX logs its warnings, whatever UCX_LOG_LEVEL is; was: the user's level. */
void gf_ucx_warnings_begin(char was_out[32]);
void gf_ucx_warnings_end(const char *was);
/* link_ucx_open.c; message: the end of text, without UCX's function */
void gf_ucx_line_heard(gf_log_level level, const char *text, const char *message);

/* link_ucx_names.c. The next name of a comma-separated list, which then begins after it; NULL:
 * there is none. */
const char *gf_ucx_name_next(const char **list, size_t *bytes_out);
uint32_t gf_ucx_list_count(const char *list, char separator); /* an empty one counts as one */
/* What a transport is for. */
#define GF_UCX_LOCAL 1u /* it stays on the node */
#define GF_UCX_CUDA 4u
#define GF_UCX_TCP 16u
#define GF_UCX_FABRIC 32u     /* neither local nor tcp */
#define GF_UCX_INFINIBAND 64u /* one that is known */
#define GF_UCX_UD 128u        /* ud, or what brings it along to connect */
#define GF_UCX_NETWORK (GF_UCX_TCP | GF_UCX_FABRIC)
/* The first of the list that is of one of these kinds; NULL: none. */
const char *gf_ucx_find(const char *list, unsigned kinds, size_t *name_bytes_out);
bool gf_ucx_any(const char *list, unsigned kinds);

/* link_ucx_resources.c. Names the first of the transports that is for hardware which this binary or
 * this host does not have, and which link has it. false: there is none. */
bool gf_ucx_missing_text(const char *transports, char *text_out, size_t text_bytes);
/* In this binary, whether or not there is a device; a static link knows without a call of UCX,
 * which would start it in a job that goes over sockets. false: text_out says which link has it. */
bool gf_ucx_has_infiniband(char *text_out, size_t text_bytes);
/* link_ucx_probe.c */
gf_fabric gf_ucx_probe(const struct gf_link_setup *setup, char *text_out, size_t text_bytes);

/* link_ucx_open.c. To the link's log: what UCX has said in no call that opens or ends a network. */
void gf_ucx_lines_log(const struct gf_ucx *ucx);

/* Sets in config what the link was asked for. */
gf_status gf_ucx_settings_apply(struct gf_ucx *ucx, ucp_config_t *config);
size_t gf_ucx_state_bytes(const struct gf_link_setup *setup);
gf_status gf_ucx_open(const struct gf_link_setup *setup, void *state, struct gf_link **link_out,
                      struct gf_fault *fault_out);
void gf_ucx_close(struct gf_link *link);
gf_status gf_ucx_reset(struct gf_link *link, uint32_t generation, uint32_t rank, uint32_t world);
void gf_ucx_drop(struct gf_link *link);

/* Forgets all peers. Their endpoints end with the worker. */
void gf_ucx_peers_forget(struct gf_ucx *ucx);

gf_status gf_ucx_endpoint(struct gf_link *link, void *endpoint_out, size_t *size_bytes_out);
/* gf_link_driver.edge_is_broken: by UCX's error handler alone */
bool gf_ucx_edge_is_broken(struct gf_link *link, uint32_t peer, struct gf_fault *fault_out);
gf_status gf_ucx_connect(struct gf_link *link, uint32_t peer, const void *endpoint,
                         size_t size_bytes);

#endif
