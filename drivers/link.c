/* The link of a process. What goes to a rank of its own node goes through memory (node.h), all else
 * by one network driver, where one is open. How a peer is reached is decided once a generation,
 * when it is connected. Network drivers know nothing of nodes.
 *
 *     state       of the network driver, which begins with struct gf_link | struct gf_front |
 *                 a byte a rank: is it reached through memory? | the node's
 *     endpoint    a checksum | what the node offers |
 *                 the network driver's, where a network is open
 *     a request   the driver's or the node's: its head says which */
#include "drivers/link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "drivers/base/clock.h"
#include "drivers/base/descriptors.h"
#include "drivers/base/fnv.h"
#include "drivers/node.h"

struct gf_front {
    struct gf_link_setup setup; /* with generation, rank and world of now */
    struct gf_node *node;
    const struct gf_link_driver *driver; /* of the network that is open; NULL: none is */
    bool is_open;  /* false: it was dropped, or a reset failed and has said why */
    int both_fd;   /* where node and network wake by a descriptor each: of both; -1 */
    bool *in_node; /* [ranks_max] */
};

struct node_req {
    struct gf_req_head head;
    struct gf_node_req node;
};

struct endpoint_head {
    uint64_t check; /* of the rest of this head; a driver's part has its own */
    unsigned char node[GF_NODE_OFFER_BYTES];
};

void gf_link_begin(struct gf_link *link, const struct gf_link_setup *setup,
                   const struct gf_link_driver *driver)
{
    if (setup->front == NULL) *link = (struct gf_link){.driver = driver};
    link->wake_fd = -1;
}

/* ---- memory ---- */

static size_t round_up(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static size_t network_bytes(const struct gf_link_setup *setup)
{
    size_t most = sizeof(struct gf_link);
    for (uint32_t n = GF_NETWORK_LINK; n <= GF_NETWORK_FABRIC; n++) {
        const struct gf_link_driver *driver = setup->networks[n];
        size_t bytes = (driver == NULL) ? 0 : driver->state_bytes(setup);
        if (bytes > most) most = bytes;
    }
    return round_up(most);
}

static size_t node_at(const struct gf_link_setup *setup)
{
    return network_bytes(setup) +
           round_up(sizeof(struct gf_front) + setup->ranks_max * sizeof(bool));
}

static size_t front_state_bytes(const struct gf_link_setup *setup)
{
    return node_at(setup) + gf_node_state_bytes(setup);
}

static bool front_may_reach_device(const struct gf_link_setup *setup)
{
    for (uint32_t n = GF_NETWORK_LINK; n <= GF_NETWORK_FABRIC; n++) {
        const struct gf_link_driver *driver = setup->networks[n];
        if ((driver != NULL) && (driver->may_reach_device != NULL) &&
            driver->may_reach_device(setup))
            return true;
    }
    return false;
}

/* ---- what wakes a sleeper: messages of the node, of the network, or both ---- */

static void wakes_give(struct gf_link *link)
{
    int fd = link->front->both_fd;
    link->front->both_fd = link->wake_fd = -1;
    if (fd >= 0) (void)close(fd);
}

/* The network driver has put its own there, or -1. */
static gf_status wakes_take(struct gf_link *link)
{
    struct gf_front *front = link->front;
    const int fds[2] = {gf_node_wake_fd(front->node), link->wake_fd};
    struct epoll_event event = {.events = EPOLLIN};
    if ((fds[0] < 0) || (fds[1] < 0)) {
        link->wake_fd = (fds[0] < 0) ? fds[1] : fds[0];
        return GF_OK;
    }
    front->both_fd = gf_descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
    if ((front->both_fd >= 0) && (epoll_ctl(front->both_fd, EPOLL_CTL_ADD, fds[0], &event) == 0) &&
        (epoll_ctl(front->both_fd, EPOLL_CTL_ADD, fds[1], &event) == 0)) {
        link->wake_fd = front->both_fd;
        return GF_OK;
    }
    const int error = errno;
    wakes_give(link);
    return gf_fault_set(&link->fault, GF_ERR_SYSTEM, GF_RANK_NONE, "epoll", error,
                        "link: no epoll descriptor, or it takes no other: %s", strerror(error));
}

/* ---- the network ---- */

static void network_close(struct gf_link *link)
{
    struct gf_front *front = link->front;
    wakes_give(link);
    if (front->driver != NULL) front->driver->close(link);
    front->driver = NULL;
    link->network = GF_NETWORK_NONE;
    link->wake_fd = -1;
    link->device = 0;
    link->reaches_device = false;
}

static gf_status network_open(struct gf_link *link, gf_network which)
{
    struct gf_front *front = link->front;
    const struct gf_link_driver *driver = front->setup.networks[which];
    struct gf_fault fault = {.code = GF_OK, .peer = GF_RANK_NONE};
    struct gf_link *opened;
    gf_status status;
    if (which == GF_NETWORK_NONE) {
        gf_log_line(&front->setup.log, GF_LOG_INFO, "link: no network is open");
        return GF_OK;
    }
    if (driver == NULL)
        return gf_fault_set(&link->fault, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
                            "link: this program links no driver of the network that is asked for");
    status = driver->open(&front->setup, link, &opened, &fault);
    if (status < 0) {
        link->fault = fault;
        return status;
    }
    GF_ASSERT(opened == link);
    front->driver = driver;
    link->network = which;
    return GF_OK;
}

/* ---- opening, closing, another generation ---- */

static void front_close(struct gf_link *link)
{
    network_close(link);
    gf_node_close(link->front->node);
    link->front->node = link->shares = NULL;
}

static gf_status front_open(const struct gf_link_setup *setup, void *state,
                            struct gf_link **link_out, struct gf_fault *fault_out)
{
    struct gf_link *link = state;
    struct gf_front *front = (struct gf_front *)(void *)((char *)state + network_bytes(setup));
    gf_status status;
    GF_ASSERT((uintptr_t)state % 64 == 0);
    GF_ASSERT((setup->world <= setup->ranks_max) && (setup->rank < setup->world));
    *link = (struct gf_link){.driver = &gf_link_front, .front = front, .wake_fd = -1};
    *front = (struct gf_front){.setup = *setup, .both_fd = -1, .in_node = (bool *)(front + 1)};
    front->setup.front = front;
    memset(front->in_node, 0, setup->ranks_max * sizeof *front->in_node);
    status = gf_node_open(&front->setup, (char *)state + node_at(setup), link, &front->node);
    if (status == GF_OK) status = network_open(link, setup->network);
    if (status == GF_OK) status = wakes_take(link);
    if (status != GF_OK) {
        *fault_out = link->fault;
        front_close(link);
        return status;
    }
    front->is_open = true;
    *link_out = link;
    return GF_OK;
}

static void peers_forget(struct gf_front *front)
{
    front->is_open = false;
    memset(front->in_node, 0, front->setup.ranks_max * sizeof *front->in_node);
}

static void front_drop(struct gf_link *link)
{
    struct gf_front *front = link->front;
    peers_forget(front);
    if (front->driver != NULL) front->driver->drop(link);
    gf_node_drop(front->node);
}

static void front_quiesce(struct gf_link *link)
{
    gf_node_quiesce(link->front->node);
}

/* A fabric's card and a device write where they were told to, and may keep what they had
 * registered. */
static bool may_keep(const struct gf_link *link)
{
    return (link->network != GF_NETWORK_FABRIC) && !link->front->setup.on_device;
}

/* The network lets go of the region before there is another one. */
static gf_status front_reset(struct gf_link *link, uint32_t generation, uint32_t rank,
                             uint32_t world)
{
    struct gf_front *front = link->front;
    gf_status status;
    peers_forget(front);
    front->setup.generation = generation;
    front->setup.rank = rank;
    front->setup.world = world;
    wakes_give(link);
    if (front->driver != NULL) front->driver->drop(link);
    link->fault = (struct gf_fault){.code = GF_OK};
    link->failed = GF_OK;
    status = gf_node_reset(front->node, generation, rank, world, may_keep(link));
    if ((status == GF_OK) && (front->driver != NULL))
        status = front->driver->reset(link, generation, rank, world);
    if (status == GF_OK) status = wakes_take(link);
    front->is_open = status == GF_OK;
    return status;
}

/* Where it does not open, the node is there without one. */
static gf_status front_network(struct gf_link *link, gf_network which)
{
    struct gf_front *front = link->front;
    gf_status status;
    const bool keeps = may_keep(link);
    peers_forget(front);
    network_close(link);
    link->fault = (struct gf_fault){.code = GF_OK};
    link->failed = GF_OK;
    status = gf_node_reset(front->node, front->setup.generation, front->setup.rank,
                           front->setup.world, keeps);
    if (status != GF_OK) return status;
    status = network_open(link, which);
    if (status == GF_OK)
        status = wakes_take(link);
    else
        (void)wakes_take(link);
    front->is_open = true;
    return status;
}

/* ---- the way to peers ---- */

static uint64_t head_check(const struct endpoint_head *head)
{
    return gf_fnv_bytes(GF_FNV_START, head->node, sizeof head->node);
}

static gf_status front_endpoint(struct gf_link *link, void *endpoint_out, size_t *size_bytes_out)
{
    struct gf_front *front = link->front;
    struct endpoint_head head;
    gf_status status = GF_OK;
    size_t bytes = 0;
    if (!front->is_open) return GF_ERR_STATE;
    gf_node_offer_put(front->node, head.node);
    head.check = head_check(&head);
    memcpy(endpoint_out, &head, sizeof head);
    if (front->driver != NULL)
        status = front->driver->endpoint(link, (char *)endpoint_out + sizeof head, &bytes);
    *size_bytes_out = sizeof head + bytes;
    return status;
}

static gf_status head_read(struct gf_link *link, uint32_t peer, const void *endpoint,
                           size_t size_bytes, struct endpoint_head *head_out)
{
    if (size_bytes >= sizeof *head_out) {
        memcpy(head_out, endpoint, sizeof *head_out);
        if (head_out->check == head_check(head_out)) return GF_OK;
    }
    return gf_fault_set(&link->fault, GF_ERR_DATA, peer, "connect", 0,
                        "the endpoint of rank %u is damaged, or none of this link", peer);
}

static gf_status network_connect(struct gf_link *link, uint32_t peer, const void *endpoint,
                                 size_t size_bytes)
{
    const struct gf_front *front = link->front;
    if ((front->driver != NULL) && (size_bytes > sizeof(struct endpoint_head)))
        return front->driver->connect(link, peer,
                                      (const char *)endpoint + sizeof(struct endpoint_head),
                                      size_bytes - sizeof(struct endpoint_head));
    return gf_fault_set(&link->fault, GF_ERR_LINK, peer, "connect", 0,
                        "rank %u and rank %u share no memory, and rank %u has no network open",
                        front->setup.rank, peer,
                        (front->driver == NULL) ? front->setup.rank : peer);
}

/* A peer of the node is of the network, too, where a device's memory is reached. */
static gf_status front_connect(struct gf_link *link, uint32_t peer, const void *endpoint,
                               size_t size_bytes)
{
    struct gf_front *front = link->front;
    const uint64_t now_ns = gf_clock_monotonic.now_ns(&gf_clock_monotonic);
    struct endpoint_head head;
    gf_status status;
    if (peer >= front->setup.world)
        return gf_fault_set(&link->fault, GF_ERR_PARAM, GF_RANK_NONE, "connect", 0,
                            "rank %u in a world of %u", peer, front->setup.world);
    if (peer == front->setup.rank) return GF_OK;
    if (!front->is_open)
        return gf_fault_set(&link->fault, GF_ERR_STATE, peer, "connect", 0,
                            "rank %u: a reset failed", peer);
    if (front->in_node[peer] && !link->reaches_device) return GF_OK;
    status = head_read(link, peer, endpoint, size_bytes, &head);
    if (status != GF_OK) return status;
    status = gf_node_connect(front->node, peer, head.node, sizeof head.node, now_ns);
    front->in_node[peer] = status == GF_OK;
    if ((status == GF_OK) && !link->reaches_device) return GF_OK;
    if ((status != GF_OK) && (status != GF_ERR_PEER)) return status;
    return network_connect(link, peer, endpoint, size_bytes);
}

static bool front_edge_is_broken(struct gf_link *link, uint32_t peer, struct gf_fault *fault_out)
{
    const struct gf_front *front = link->front;
    if ((front->driver == NULL) || (front->driver->edge_is_broken == NULL) || front->in_node[peer])
        return false;
    return front->driver->edge_is_broken(link, peer, fault_out);
}

/* ---- messages ---- */

/* What no caller may ask for, looked at again to say what it was. */
__attribute__((cold)) static gf_status post_refuse(struct gf_link *link, uint32_t peer,
                                                   uint64_t tag, size_t size_bytes)
{
    const struct gf_link_setup *setup = &link->front->setup;
    const char *why = "not connected in this generation";
    gf_status code = GF_ERR_PARAM;
    if ((peer >= setup->world) || (peer == setup->rank))
        why = "that is no peer";
    else if (size_bytes > setup->message_bytes_max)
        why = "larger than setup.message_bytes_max";
    else if (tag >> GF_TAG_BITS != 0)
        why = "a tag has 51 bits";
    else
        code = GF_ERR_STATE;
    return gf_fault_set(&link->fault, code, peer, "post", 0,
                        "rank %u, %zu bytes with rank %u under tag %#llx: %s", setup->rank,
                        size_bytes, peer, (unsigned long long)tag, why);
}

static bool may_post(const struct gf_front *front, uint32_t peer, uint64_t tag, size_t size_bytes)
{
    return (peer < front->setup.world) && (peer != front->setup.rank) &&
           (size_bytes <= front->setup.message_bytes_max) && (tag >> GF_TAG_BITS == 0) &&
           ((front->driver != NULL) || front->in_node[peer]);
}

static bool goes_in_node(const struct gf_link *link, uint32_t peer, gf_mem data)
{
    const struct gf_front *front = link->front;
    return front->in_node[peer] &&
           !(link->reaches_device && (data - front->setup.device < front->setup.device_bytes));
}

static inline gf_status post(struct gf_link *link, uint32_t peer, uint64_t tag, gf_mem data,
                             size_t size_bytes, struct gf_req *req, bool is_send)
{
    const struct gf_front *front = link->front;
    struct node_req *in_node = (struct node_req *)req;
    void *memory = (void *)(uintptr_t)data;
    if (!may_post(front, peer, tag, size_bytes)) return post_refuse(link, peer, tag, size_bytes);
    in_node->head.in_node = goes_in_node(link, peer, data);
    if (!in_node->head.in_node)
        return (is_send ? front->driver->send_post
                        : front->driver->recv_post)(link, peer, tag, data, size_bytes, req);
    return is_send ? gf_node_send_post(front->node, peer, tag, memory, size_bytes, &in_node->node)
                   : gf_node_recv_post(front->node, peer, tag, memory, size_bytes, &in_node->node);
}

static gf_status front_send(struct gf_link *link, uint32_t to, uint64_t tag, gf_mem data,
                            size_t size_bytes, struct gf_req *req)
{
    return post(link, to, tag, data, size_bytes, req, true);
}

static gf_status front_recv(struct gf_link *link, uint32_t from, uint64_t tag, gf_mem data,
                            size_t size_bytes, struct gf_req *req)
{
    return post(link, from, tag, data, size_bytes, req, false);
}

static gf_status front_test(struct gf_link *link, struct gf_req *req)
{
    struct node_req *in_node = (struct node_req *)req;
    if (in_node->head.in_node) return gf_node_test(link->front->node, &in_node->node);
    return in_node->head.answer;
}

static void front_cancel(struct gf_link *link, struct gf_req *req)
{
    struct node_req *in_node = (struct node_req *)req;
    if (in_node->head.in_node)
        gf_node_cancel(link->front->node, &in_node->node);
    else if (link->front->driver != NULL)
        link->front->driver->cancel(link, req);
}

/* ---- moving and sleeping ---- */

static bool front_progress(struct gf_link *link)
{
    const struct gf_front *front = link->front;
    bool moved;
    if (!front->is_open || (link->failed != GF_OK)) return false;
    moved = gf_node_progress(front->node);
    if (front->driver != NULL) moved = front->driver->progress(link) || moved;
    return moved;
}

static bool front_arm(struct gf_link *link)
{
    const struct gf_front *front = link->front;
    if (!front->is_open || (link->failed != GF_OK) || !gf_node_arm(front->node)) return false;
    return (front->driver == NULL) || front->driver->arm(link);
}

static void *front_map(struct gf_link *link, uint32_t peer)
{
    return gf_node_map(link->front->node, peer);
}

static void front_flag_store(struct gf_link *link, uint32_t peer, size_t offset_bytes,
                             uint64_t value)
{
    gf_node_flag_store(link->front->node, peer, offset_bytes, value);
}

const char *gf_link_name(const struct gf_link *link)
{
    if (link->front == NULL) return link->driver->name;
    return (link->front->driver != NULL) ? link->front->driver->name : link->driver->name;
}

const struct gf_link_driver gf_link_front = {
    .name = "memory",
    .req_size_bytes = (sizeof(struct node_req) + 63) / 64 * 64,
    .endpoint_bytes_max = sizeof(struct endpoint_head),
    .state_bytes = front_state_bytes,
    .memory_bytes = gf_node_bytes,
    .may_reach_device = front_may_reach_device,
    .open = front_open,
    .close = front_close,
    .endpoint = front_endpoint,
    .connect = front_connect,
    .send_post = front_send,
    .recv_post = front_recv,
    .test = front_test,
    .cancel = front_cancel,
    .progress = front_progress,
    .edge_is_broken = front_edge_is_broken,
    .arm = front_arm,
    .map = front_map,
    .flag_store = front_flag_store,
    .flag_arm = gf_flag_arm,
    .flag_sleep = gf_flag_sleep,
    .quiesce = front_quiesce,
    .reset = front_reset,
    .network = front_network,
    .drop = front_drop,
};
