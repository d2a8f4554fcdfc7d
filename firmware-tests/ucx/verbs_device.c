/* The calls of libibverbs that are of the device, its port and memory. */
#include "firmware-tests/ucx/verbs_fabric.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_get_device_list
/* ---- the device ---- */

/* libmlx5 looks behind what is public, for its own mark. */
static union {
    struct ibv_device device;
    char room[1024];
} card = {.device = {.node_type = IBV_NODE_CA,
                     .transport_type = IBV_TRANSPORT_IB,
                     .name = "fake0",
                     .dev_name = "fake0"}};

struct ibv_device **CALL(get_device_list)(int *count_out)
{
    struct ibv_device **list = fabric_object(2 * sizeof *list);
    if (fabric_take()) list[0] = &card.device;
    if (count_out != NULL) *count_out = list[0] != NULL;
    return list;
}

void CALL(free_device_list)(struct ibv_device **list)
{
    free(list);
}

/* UCX asks /dev/infiniband whether the device may be used. */
#define NODE "/dev/infiniband/fake0"
int __real_stat(const char *path, struct stat *out);
int __wrap_stat(const char *path, struct stat *out)
{
    return __real_stat((strcmp(path, NODE) == 0) ? "/dev/null" : path, out);
}

int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode)
{
    return __real_access((strcmp(path, NODE) == 0) ? "/dev/null" : path, mode);
}

int CALL(fork_init)(void)
{
    return 0;
}

struct ibv_context *CALL(open_device)(struct ibv_device *device)
{
    struct verbs_open *open = fabric_object(sizeof *open);
    open->base = (struct ibv_context){.device = device, .cmd_fd = -1, .num_comp_vectors = 1};
    open->base.ops.poll_cq = verbs_poll_cq;
    open->base.ops.req_notify_cq = verbs_notify;
    open->base.ops.post_send = verbs_post_send;
    open->base.ops.post_recv = verbs_post_recv;
    open->base.ops.post_srq_recv = verbs_post_srq_recv;
    open->channel = fabric_channel();
    open->base.async_fd = fabric_listen(open->channel);
    if (open->base.async_fd >= 0) return &open->base;
    free(open);
    return NULL;
}

int CALL(close_device)(struct ibv_context *context)
{
    (void)close(context->async_fd);
    free(context);
    return 0;
}

int CALL(query_device)(struct ibv_context *context, struct ibv_device_attr *out)
{
    *out = (struct ibv_device_attr){.fw_ver = "1",
                                    .max_mr_size = UINT64_MAX,
                                    .page_size_cap = 4096,
                                    .max_qp = FABRIC_QPS,
                                    .max_qp_wr = FABRIC_RING,
                                    .max_sge = FABRIC_SGES,
                                    .max_cq = FABRIC_CQS,
                                    .max_cqe = FABRIC_RING,
                                    .max_mr = FABRIC_KEYS,
                                    .max_pd = 64,
                                    .max_qp_rd_atom = 16,
                                    .max_qp_init_rd_atom = 16,
                                    .atomic_cap = IBV_ATOMIC_NONE,
                                    .max_srq = FABRIC_RQS,
                                    .max_srq_wr = FABRIC_RING,
                                    .max_srq_sge = 1,
                                    .max_pkeys = 1,
                                    .phys_port_cnt = 1};
    return 0;
}

int CALL(query_port)(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *out)
{
    struct ibv_port_attr *attr = (struct ibv_port_attr *)out; /* the caller's is whole */
    if (port != 1) return EINVAL;
    *attr = (struct ibv_port_attr){
        .state = fabric->port_down[fabric_host] ? IBV_PORT_DOWN : IBV_PORT_ACTIVE,
        .max_mtu = IBV_MTU_4096,
        .active_mtu = fabric_ethernet ? IBV_MTU_1024 : IBV_MTU_4096,
        .gid_tbl_len = 1,
        .max_msg_sz = 1u << 30,
        .pkey_tbl_len = 1,
        .lid = (uint16_t)(fabric_ethernet ? 0 : fabric_host),
        .sm_lid = 1,
        .max_vl_num = 1,
        .active_width = 2,
        .active_speed = 32,
        .phys_state = 5,
        .link_layer = fabric_ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND};
    return 0;
}

/* fe80::host, or the address 10.0.0.host of an Ethernet. */
int CALL(query_gid)(struct ibv_context *context, uint8_t port, int index, union ibv_gid *out)
{
    if ((port != 1) || (index != 0)) return EINVAL;
    memset(out, 0, sizeof *out);
    out->raw[15] = (uint8_t)fabric_host;
    if (fabric_ethernet)
        memcpy(out->raw + 10, "\xff\xff\x0a", 3);
    else
        memcpy(out->raw, "\xfe\x80", 2);
    return 0;
}

int CALL(query_pkey)(struct ibv_context *context, uint8_t port, int index, __be16 *out)
{
    *out = htons(0xffff);
    return ((port == 1) && (index == 0)) ? 0 : EINVAL;
}

/* ---- events of the device ---- */

void verbs_event(struct ibv_context *context, struct ibv_async_event event)
{
    fabric_ring(((struct verbs_open *)context)->channel, &event, sizeof event);
}

int CALL(get_async_event)(struct ibv_context *context, struct ibv_async_event *out)
{
    return (recv(context->async_fd, out, sizeof *out, 0) == sizeof *out) ? 0 : -1;
}

void CALL(ack_async_event)(struct ibv_async_event *event)
{
    (void)event;
}

/* ---- memory ---- */

struct ibv_pd *CALL(alloc_pd)(struct ibv_context *context)
{
    struct ibv_pd *pd = fabric_object(sizeof *pd);
    pd->context = context;
    return pd;
}

int CALL(dealloc_pd)(struct ibv_pd *pd)
{
    free(pd);
    return 0;
}

struct ibv_mr *CALL(reg_mr_iova2)(struct ibv_pd *pd, void *start, size_t bytes, uint64_t iova,
                                  unsigned access)
{
    struct ibv_mr *mr = NULL;
    int number;
    fabric_enter();
    number = FABRIC_ENTRY(fabric->keys, FABRIC_KEYS);
    if (number > 0) {
        struct fabric_key *key = &fabric->keys[number];
        mr = fabric_object(sizeof *mr);
        /* an old key opens nothing */
        key->key = ++fabric->next_key * FABRIC_KEYS + (uint32_t)number;
        key->access = access;
        key->start = (uintptr_t)start;
        key->bytes = bytes;
        *mr = (struct ibv_mr){.context = pd->context,
                              .pd = pd,
                              .addr = start,
                              .length = bytes,
                              .lkey = key->key,
                              .rkey = key->key};
        fabric_counts.registrations++;
        fabric_counts.registered_bytes += bytes;
    }
    fabric_leave();
    return mr;
}

int CALL(dereg_mr)(struct ibv_mr *mr)
{
    fabric_enter();
    memset(&fabric->keys[mr->lkey % FABRIC_KEYS], 0, sizeof fabric->keys[0]);
    fabric_leave();
    free(mr);
    return 0;
}

struct ibv_ah *CALL(create_ah)(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    struct verbs_ah *ah = fabric_object(sizeof *ah);
    ah->base.context = pd->context;
    ah->base.pd = pd;
    ah->attr = *attr;
    return &ah->base;
}

int CALL(destroy_ah)(struct ibv_ah *ah)
{
    free(ah);
    return 0;
}
