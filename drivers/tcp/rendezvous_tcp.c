/* The control channel over TCP: each rank is connected to the coordinator, rank 0 (later another);
 * driven by poll(). */
#include "drivers/tcp/rendezvous_tcp_state.h"
#include "drivers/descriptors.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* system events looked at in one poll that finds nothing for the caller */
#define TCP_ROUNDS_MAX 64
#define TCP_LAST_WORDS_MS 1000u

gf_status gf_tcp_epoll_set(struct tcp *tcp, int operation, int fd, uint32_t about, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u32 = about};
    int epoll_fd = ((about & TCP_ABOUT_PENDING) != 0) ? tcp->strangers_fd : tcp->epoll_fd;
    if (epoll_ctl(epoll_fd, operation, fd, &event) == 0) return GF_OK;
    return gf_fault_set(&tcp->base.fault, GF_ERR_SYSTEM, GF_RANK_NONE, "epoll_ctl", errno,
                        "control channel: epoll_ctl failed: %s (errno %d)", strerror(errno), errno);
}

static size_t tcp_state_bytes(const struct gf_rendezvous_setup *setup)
{
    /* any rank may have to coordinate */
    size_t conn_count = (setup->world <= 1) ? 0 : setup->world;
    size_t slots = (conn_count == 0) ? 0 : conn_count + TCP_PENDING_SPARE;
    return sizeof(struct tcp) + conn_count * sizeof(struct conn) +
           slots * (sizeof(struct pending) + sizeof(struct source));
}

/* ---- forked children ---- */

/* A child that kept sockets would keep the job's address, too. */
static void forked(struct gf_forked *of)
{
    const struct tcp *tcp =
        (const struct tcp *)(const void *)((const char *)of - offsetof(struct tcp, forked));
    const int fds[] = {tcp->strangers_fd, tcp->listen_fd, tcp->job_fd, tcp->data_fd, tcp->epoll_fd};
    for (uint32_t i = 0; i < tcp->conn_count; i++) (void)close(tcp->conns[i].fd);
    for (uint32_t i = 0; i < tcp->pending_count; i++) (void)close(tcp->pending[i].fd);
    for (uint32_t i = 0; i < GF_DATA_PLACES_MAX; i++) (void)close(tcp->device_fds[i]);
    for (uint32_t i = 0; i < TCP_TRIES_MAX; i++) {
        (void)close(tcp->way.tries[i].fd);
        (void)close(tcp->aside.tries[i].fd);
        for (uint32_t k = 0; k < TCP_DIALS_MAX; k++) (void)close(tcp->data.dials[k].tries[i].fd);
    }
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) (void)close(fds[i]);
}

/* ---- opening ---- */

/* An error: *fault_out has why, or tcp->text. */
static gf_status addresses_set(struct tcp *tcp, const struct gf_rendezvous_setup *setup,
                               struct gf_fault *fault_out)
{
    if (!gf_socket_address_parse(setup->address, &tcp->job_address, fault_out))
        return GF_ERR_CONFIG;
    if ((setup->ports != NULL) && !gf_ports_parse(setup->ports, &tcp->port_first, &tcp->port_last))
        return gf_tcp_because(tcp, GF_ERR_CONFIG,
                              "rendezvous.ports '%.60s': expected first-last within 1-65535",
                              setup->ports);
    if ((setup->bind != NULL) && (setup->bind[0] != 0)) {
        if (!gf_socket_bind_parse(setup->bind, &tcp->bind_to, fault_out)) return GF_ERR_CONFIG;
        if (tcp->bind_to.family != tcp->job_address.family)
            return gf_tcp_because(tcp, GF_ERR_CONFIG,
                                  "rendezvous.bind '%.40s' and rendezvous.address '%.60s': "
                                  "expected both to be IPv4 or both IPv6",
                                  setup->bind, setup->address);
    }
    if ((setup->key_file != NULL) && (setup->key_file[0] != 0))
        return gf_auth_open(&tcp->auth, setup->key_file, fault_out);
    const struct gf_place *open = (tcp->bind_to.family != 0) ? &tcp->bind_to : &tcp->job_address;
    tcp->by_name = !setup->insecure;
    if (setup->insecure || (gf_place_is_loopback(open) && gf_place_is_loopback(&tcp->job_address)))
        return gf_auth_begin(fault_out);
    return gf_tcp_because(
        tcp, GF_ERR_CONFIG,
        "rendezvous.address '%.60s' can be reached from outside this machine: "
        "expected a loopback address, rendezvous.key_file, or rendezvous.insecure = true",
        setup->address);
}

/* Where few are left, strangers get none of them: the rest of the process needs some. */
static gf_status descriptors_check(struct tcp *tcp, struct gf_fault *fault_out)
{
    struct rlimit files;
    /* and a few for everything else */
    uint32_t needed = tcp_is_coordinator(tcp) ? tcp->setup.world + 32 : TCP_FILES_LEAST;
    tcp->base.descriptors = needed;
    tcp->fd_most = UINT32_MAX;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return GF_OK;
    rlim_t spare = (files.rlim_cur / 4 < TCP_FILES_SPARE) ? files.rlim_cur / 4 : TCP_FILES_SPARE;
    if (files.rlim_cur < UINT32_MAX) {
        tcp->base.descriptors_max = (uint32_t)files.rlim_cur;
        tcp->fd_most = (uint32_t)(files.rlim_cur - spare);
    }
    if (files.rlim_cur >= needed) return GF_OK;
    return gf_fault_set(
        fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "getrlimit", EMFILE,
        "rank %u needs %u file descriptors for a world of %u, the limit is %llu: raise it "
        "(ulimit -n)",
        tcp->setup.rank, needed, tcp->setup.world, (unsigned long long)files.rlim_cur);
}

/* A core that a crash leaves shall hold no key: it, and all that is made of it, lies in this state.
 * Whole pages, so what the caller has beside it is not dumped either until close(). */
static void dump_set(struct tcp *tcp, bool dumped)
{
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)tcp / page_bytes * page_bytes;
    uintptr_t end = (uintptr_t)tcp + tcp_state_bytes(&tcp->setup);
    (void)madvise((void *)at, end - at, dumped ? MADV_DODUMP : MADV_DONTDUMP);
}

/* -1: none */
static void descriptors_clear(struct tcp *tcp)
{
    tcp->epoll_fd = tcp->strangers_fd = -1;
    tcp->listen_fd = tcp->job_fd = tcp->data_fd = -1;
    for (uint32_t i = 0; i < GF_DATA_PLACES_MAX; i++) tcp->device_fds[i] = -1;
    for (uint32_t i = 0; i < TCP_TRIES_MAX; i++) {
        tcp->way.tries[i].fd = tcp->aside.tries[i].fd = -1;
        for (uint32_t k = 0; k < TCP_DIALS_MAX; k++) tcp->data.dials[k].tries[i].fd = -1;
    }
}

/* Slots lie after the connections. */
static void slots_set(struct tcp *tcp)
{
    tcp->conn_count = tcp->setup.world;
    tcp->pending = (struct pending *)(void *)&tcp->conns[tcp->conn_count];
    tcp->pending_count = tcp->conn_count + TCP_PENDING_SPARE;
    tcp->sources = (struct source *)(void *)&tcp->pending[tcp->pending_count];
    for (uint32_t i = 0; i < tcp->conn_count; i++) gf_tcp_conn_init(&tcp->conns[i], TCP_CONN_NONE);
    for (uint32_t i = 0; i < tcp->pending_count; i++) {
        tcp->pending[i] = (struct pending){.fd = -1};
        tcp->sources[i] = (struct source){0};
    }
}

/* Has this host's kernel sent what the other one does not have yet? */
static bool is_unacknowledged(const struct conn *conn)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    return (conn->fd >= 0) && (getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0) &&
           (info.tcpi_unacked > 0);
}

/* What comes to a closed connection resets it, and with it the last word, where that was lost on the
 * way the first time. */
static void last_words_await(const struct tcp *tcp)
{
    bool waits = true;
    for (uint32_t ms = 0; waits && (ms < TCP_LAST_WORDS_MS); ms++) {
        waits = false;
        for (uint32_t i = 0; i < tcp->conn_count; i++)
            waits = waits || is_unacknowledged(&tcp->conns[i]);
        if (waits) (void)poll(NULL, 0, 1);
    }
}

static void tcp_close(struct gf_rendezvous *rendezvous)
{
    struct tcp *tcp = (struct tcp *)rendezvous;
    last_words_await(tcp);
    for (uint32_t i = 0; i < tcp->conn_count; i++) gf_tcp_conn_close(&tcp->conns[i]);
    for (uint32_t i = 0; i < tcp->pending_count; i++) gf_tcp_pending_drop(tcp, &tcp->pending[i]);
    gf_way_close(tcp, &tcp->way);
    gf_way_close(tcp, &tcp->aside);
    gf_tcp_data_end(rendezvous);
    int *const fds[] = {&tcp->strangers_fd, &tcp->listen_fd, &tcp->job_fd, &tcp->data_fd,
                        &tcp->epoll_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (*fds[i] >= 0) gf_socket_close(fds[i]);
    }
    for (uint32_t i = 0; i < GF_DATA_PLACES_MAX; i++) {
        if (tcp->device_fds[i] >= 0) gf_socket_close(&tcp->device_fds[i]);
    }
    gf_forked_remove(&tcp->forked); /* last: another thread may fork meanwhile */
    if (tcp->auth.on) dump_set(tcp, true);
    gf_auth_forget(&tcp->auth, sizeof tcp->auth);
    gf_auth_forget(&tcp->source, sizeof tcp->source);
}

static gf_status tcp_open(const struct gf_rendezvous_setup *setup, void *state, uint64_t now_ns,
                          struct gf_rendezvous **rendezvous_out, struct gf_fault *fault_out)
{
    struct tcp *tcp = state;
    char text[GF_TEXT_MAX];
    GF_ASSERT((setup->world > 0) && (setup->rank < setup->world) && (setup->world <= GF_WORLD_MAX));
    memset(tcp, 0, sizeof *tcp);
    tcp->base.driver = &gf_rendezvous_tcp;
    tcp->setup = *setup;
    tcp->opened_ns = now_ns;
    descriptors_clear(tcp);
    if (setup->world == 1) { /* nobody to meet */
        *rendezvous_out = &tcp->base;
        return GF_OK;
    }
    (void)snprintf(tcp->address_text, sizeof tcp->address_text, "%s", setup->address);
    gf_status status = gf_auth_source_begin(&tcp->source, fault_out);
    if (status != GF_OK) return status;
    status = addresses_set(tcp, setup, fault_out);
    if (status != GF_OK)
        return gf_fault_set(fault_out, status, GF_RANK_NONE, "", 0, "%s", tcp->text);
    slots_set(tcp);
    status = descriptors_check(tcp, fault_out);
    if (status != GF_OK) return status;
    if (tcp->auth.on) dump_set(tcp, false);
    tcp->forked.close = forked;
    gf_forked_add(&tcp->forked);
    tcp->epoll_fd = gf_descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
    if (tcp->epoll_fd >= 0) tcp->strangers_fd = gf_descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
    if (tcp->strangers_fd < 0)
        status = gf_fault_set(&tcp->base.fault, GF_ERR_SYSTEM, GF_RANK_NONE, "epoll_create1", errno,
                              "control channel: epoll_create1 failed: %s (errno %d)",
                              strerror(errno), errno);
    else
        status =
            gf_tcp_epoll_set(tcp, EPOLL_CTL_ADD, tcp->strangers_fd, TCP_ABOUT_STRANGERS, EPOLLIN);
    if (setup->rejoin) {
        gf_tcp_rejoin_begin(tcp, now_ns);
    } else if (!tcp_is_coordinator(tcp)) {
        gf_tcp_job_text(tcp, text);
        gf_tcp_connect_to(tcp, 0, text, now_ns);
    } else if (status == GF_OK) {
        status = gf_tcp_listen_job(tcp, fault_out);
    }
    if (status != GF_OK) {
        if (tcp->base.fault.code != GF_OK) *fault_out = tcp->base.fault;
        tcp_close(&tcp->base);
        return status;
    }
    *rendezvous_out = &tcp->base;
    return GF_OK;
}

/* ---- running ---- */

tcp_told gf_tcp_ended(struct tcp *tcp, struct conn *conn, gf_rendezvous_end end,
                      struct gf_rendezvous_event *event_out)
{
    gf_tcp_conn_close(conn);
    conn->state = TCP_CONN_DOWN;
    *event_out = (struct gf_rendezvous_event){
        .kind = GF_RENDEZVOUS_ENDED, .rank = tcp_rank_of(tcp, conn), .text = tcp->text, .end = end};
    return TCP_TOLD_EVENT;
}

static tcp_told conn_event(struct tcp *tcp, struct conn *conn, uint64_t now_ns,
                           struct gf_rendezvous_event *event_out)
{
    struct gf_frame_header header;
    if (conn->state != TCP_CONN_UP) return TCP_TOLD_NOTHING;
    if (conn->waits_to_send) gf_tcp_conn_flush(tcp, conn);
    gf_status status = gf_tcp_conn_read(tcp, conn, &header);
    if (status == GF_AGAIN) return TCP_TOLD_NOTHING;
    if (status < 0) return gf_tcp_ended(tcp, conn, conn->end, event_out);
    conn->heard = true;
    if (header.kind == GF_FRAME_LEFT) conn->end = GF_END_LEFT;
    if (!tcp_is_coordinator(tcp) && (header.kind == GF_FRAME_REFUSAL) &&
        (header.payload_bytes == GF_FRAME_REFUSAL_BYTES))
        gf_tcp_connect_taken_back(tcp, conn, now_ns);
    /* one of a later protocol: not for us */
    if (header.kind >= GF_FRAME_DRIVER) return TCP_TOLD_NOTHING;
    *event_out = (struct gf_rendezvous_event){.kind = GF_RENDEZVOUS_FRAME,
                                              .rank = tcp_rank_of(tcp, conn),
                                              .frame_kind = header.kind,
                                              .size_bytes = header.payload_bytes,
                                              .payload = conn->in + GF_FRAME_HEADER_BYTES};
    return TCP_TOLD_EVENT;
}

static tcp_told event_take(struct tcp *tcp, uint32_t about, uint64_t now_ns,
                           struct gf_rendezvous_event *event_out)
{
    if ((about & TCP_ABOUT_LISTENER) == TCP_ABOUT_LISTENER)
        return gf_tcp_accept(tcp, (int)(about & ~TCP_ABOUT_LISTENER), now_ns, event_out);
    if ((about & TCP_ABOUT_PENDING) != 0)
        return gf_tcp_pending_read(tcp, about & ~TCP_ABOUT_PENDING, event_out);
    if ((about & TCP_ABOUT_TRY) == 0) return conn_event(tcp, &tcp->conns[about], now_ns, event_out);
    uint32_t way = (about & ~TCP_ABOUT_TRY) / TCP_TRIES_MAX;
    uint32_t slot = about % TCP_TRIES_MAX;
    if (way == 0) return gf_tcp_connect_event(tcp, slot, now_ns, event_out);
    if (way == TCP_WAY_ASIDE) return gf_tcp_aside_event(tcp, slot, now_ns, event_out);
    gf_tcp_data_event(tcp, way - 1, slot, now_ns);
    return TCP_TOLD_NOTHING;
}

#define REST_NS UINT64_C(100000000)

/* Who asks to be let in stays in the listener, which would wake a sleeper at once, again and again. */
void gf_tcp_strangers_rest(struct tcp *tcp, uint64_t now_ns)
{
    tcp->rest_until_ns = now_ns + REST_NS;
    (void)epoll_ctl(tcp->epoll_fd, EPOLL_CTL_DEL, tcp->strangers_fd, NULL);
}

static void strangers_resume(struct tcp *tcp, uint64_t now_ns)
{
    if ((tcp->rest_until_ns == 0) || (now_ns < tcp->rest_until_ns)) return;
    tcp->rest_until_ns = 0;
    (void)gf_tcp_epoll_set(tcp, EPOLL_CTL_ADD, tcp->strangers_fd, TCP_ABOUT_STRANGERS, EPOLLIN);
}

static tcp_told strangers_take(struct tcp *tcp, uint64_t now_ns,
                               struct gf_rendezvous_event *event_out)
{
    for (int i = 0; (i < TCP_STRANGERS_A_POLL) && (tcp->rest_until_ns == 0); i++) {
        struct epoll_event event;
        if (epoll_wait(tcp->strangers_fd, &event, 1, 0) <= 0) break;
        tcp_told told = event_take(tcp, event.data.u32, now_ns, event_out);
        if ((told != TCP_TOLD_NOTHING) || (tcp->base.fault.code != GF_OK)) return told;
    }
    return TCP_TOLD_NOTHING;
}

/* One event of the ranks a call to the kernel: its list of ready descriptors goes round, so nobody
 * starves. Strangers are served when no rank has anything, once a poll. */
static tcp_told events_take(struct tcp *tcp, uint64_t now_ns, struct gf_rendezvous_event *event_out)
{
    bool strangers_served = false;
    for (int round = 0; round < TCP_ROUNDS_MAX; round++) {
        struct epoll_event events[2];
        int count = epoll_wait(tcp->epoll_fd, events, 2, 0);
        if (count <= 0) break;
        uint32_t about =
            events[(count == 2) && (events[0].data.u32 == TCP_ABOUT_STRANGERS)].data.u32;
        bool strangers = (about == TCP_ABOUT_STRANGERS);
        if (strangers && strangers_served) break;
        strangers_served = strangers_served || strangers;
        tcp_told told = strangers ? strangers_take(tcp, now_ns, event_out)
                                  : event_take(tcp, about, now_ns, event_out);
        if ((told != TCP_TOLD_NOTHING) || (tcp->base.fault.code != GF_OK)) return told;
    }
    return TCP_TOLD_NOTHING;
}

static gf_status tcp_poll(struct gf_rendezvous *rendezvous, uint64_t now_ns,
                          struct gf_rendezvous_event *event_out)
{
    struct tcp *tcp = (struct tcp *)rendezvous;
    if (tcp->base.fault.code != GF_OK) return tcp->base.fault.code;
    if (tcp->epoll_fd < 0) return GF_AGAIN;
    gf_tcp_data_poll(tcp, now_ns);
    strangers_resume(tcp, now_ns);
    tcp_told told = gf_tcp_held_poll(tcp, now_ns, event_out);
    if (told == TCP_TOLD_NOTHING) told = gf_tcp_connect_poll(tcp, now_ns, event_out);
    if (told == TCP_TOLD_NOTHING) told = events_take(tcp, now_ns, event_out);
    if (told == TCP_TOLD_EVENT) return GF_OK;
    gf_tcp_connect_deadline(tcp, now_ns);
    return (tcp->base.fault.code != GF_OK) ? tcp->base.fault.code : GF_AGAIN;
}

static gf_status tcp_send(struct gf_rendezvous *rendezvous, uint32_t to, uint32_t frame_kind,
                          const void *payload, uint32_t size_bytes)
{
    struct tcp *tcp = (struct tcp *)rendezvous;
    GF_ASSERT((size_bytes <= GF_FRAME_PAYLOAD_MAX) && (frame_kind < GF_FRAME_DRIVER) &&
              (to != tcp->setup.rank));
    if ((tcp->conn_count == 0) || (to >= tcp->setup.world)) return GF_ERR_PEER;
    if (!tcp_is_coordinator(tcp) && (to != tcp->coordinator)) return GF_ERR_PEER;
    struct conn *conn = &tcp->conns[to];
    if ((conn->state != TCP_CONN_UP) || conn->broken) return GF_ERR_PEER;
    return gf_tcp_conn_frame_put(tcp, conn, frame_kind, payload, size_bytes) ? GF_OK : GF_AGAIN;
}

static int tcp_wake_fd(struct gf_rendezvous *rendezvous)
{
    return ((struct tcp *)rendezvous)->epoll_fd;
}

static bool tcp_flushed(struct gf_rendezvous *rendezvous)
{
    const struct tcp *tcp = (const struct tcp *)rendezvous;
    for (uint32_t i = 0; i < tcp->conn_count; i++) {
        if (tcp->conns[i].out_bytes > 0) return false;
    }
    return true;
}

static void tcp_address(struct gf_rendezvous *rendezvous, char *text_out)
{
    memcpy(text_out, ((const struct tcp *)rendezvous)->own_text, GF_CONTROL_ADDRESS_BYTES);
}

static gf_status tcp_reform(struct gf_rendezvous *rendezvous, uint64_t now_ns, uint32_t coordinator,
                            const char *address)
{
    struct tcp *tcp = (struct tcp *)rendezvous;
    if (tcp->conn_count == 0) return (coordinator == tcp->setup.rank) ? GF_OK : GF_ERR_STATE;
    return gf_tcp_reform(tcp, now_ns, coordinator, address);
}

const struct gf_rendezvous_driver gf_rendezvous_tcp = {
    .name = "tcp",
    .state_bytes = tcp_state_bytes,
    .open = tcp_open,
    .send = tcp_send,
    .poll = tcp_poll,
    .wake_fd = tcp_wake_fd,
    .flushed = tcp_flushed,
    .reject = gf_tcp_reject,
    .joined = gf_tcp_joined,
    .address = tcp_address,
    .reform = tcp_reform,
    .data_begin = gf_tcp_data_begin,
    .data_dial = gf_tcp_data_dial,
    .data_text = gf_tcp_data_text,
    .data_error = gf_tcp_data_error,
    .data_end = gf_tcp_data_end,
    .close = tcp_close,
};
