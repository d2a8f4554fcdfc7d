/* The control channel over sockets (channel_state.h), driven by poll(). */
#include "drivers/tcp/channel_state.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Half of the connections are for processes that connect while old connections still leave. */
static uint32_t slots_of(const struct gf_channel_setup *setup)
{
    return setup->listens ? setup->connections_max / 2 + HANDSHAKE_PENDING_SPARE : 0;
}

static uint32_t conns_of(const struct gf_channel_setup *setup)
{
    return setup->listens ? setup->connections_max : 1;
}

static size_t state_bytes(const struct gf_channel_setup *setup)
{
    return sizeof(struct channel) + conns_of(setup) * (sizeof(struct conn) + CONN_BUFFER_BYTES) +
           slots_of(setup) * (sizeof(struct pending) + sizeof(struct source));
}

static void lay(struct channel *channel)
{
    const struct gf_channel_setup *setup = &channel->setup;
    uint32_t slots = slots_of(setup);
    channel->conn_count = channel->base.connections_max = conns_of(setup);
    struct pending *pending = (struct pending *)(void *)&channel->conns[channel->conn_count];
    struct source *sources = (struct source *)(void *)&pending[slots];
    channel->buffers = (unsigned char *)&sources[slots];
    gf_conns_init(channel);
    gf_accept_init(&channel->handshake, pending, sources, slots);
    gf_dial_init(&channel->dial, 0);
    gf_dial_init(&channel->probe, 1);
}

/* ---- forked children ---- */

/* A forked child that kept the sockets would keep the job's address, too. */
static void forked(struct gf_forked *of)
{
    const struct channel *channel =
        (const struct channel *)(const void *)((const char *)of - offsetof(struct channel, forked));
    for (uint32_t i = 0; i < channel->conn_count; i++) (void)close(channel->conns[i].fd);
    gf_accept_forked(&channel->handshake);
    gf_dial_forked(&channel->dial);
    gf_dial_forked(&channel->probe);
    (void)close(channel->listen_fd);
    (void)close(channel->handshake.strangers_fd);
    (void)close(channel->handshake.epoll_fd);
}

/* ---- opening and closing ---- */

/* The state holds the key and what is derived from it, so it is left out of core dumps. This works
 * on whole pages, so what the caller has on the same pages is left out too, until close(). */
static void dump_set(struct channel *channel, bool dumped)
{
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)channel / page_bytes * page_bytes;
    uintptr_t end = (uintptr_t)channel + state_bytes(&channel->setup);
    (void)madvise((void *)at, end - at, dumped ? MADV_DODUMP : MADV_DONTDUMP);
}

static void close_channel(struct gf_channel *base)
{
    struct channel *channel = (struct channel *)base;
    gf_conns_last_words(channel);
    for (uint32_t i = 0; i < channel->conn_count; i++) gf_conn_close(channel, &channel->conns[i]);
    gf_accept_close(&channel->handshake);
    gf_channel_dial_close(channel);
    if (channel->listen_fd >= 0) gf_socket_close(&channel->listen_fd);
    gf_handshake_close(&channel->handshake);
    gf_forked_remove(&channel->forked); /* last: another thread may fork meanwhile */
    if (channel->auth.on) dump_set(channel, true);
    gf_auth_forget(&channel->auth, sizeof channel->auth);
}

/* In the tables of the kernel: the program's streams, what this end opens itself, and a few for
 * everything else. */
#define FILES_LEAST 13u
#define FILES_COORDINATOR 32u

static gf_status descriptors_check(const struct channel *channel, struct gf_fault *fault_out)
{
    const struct gf_channel_setup *setup = &channel->setup;
    struct rlimit files;
    uint32_t needed =
        setup->listens ? setup->connections_expected + FILES_COORDINATOR : FILES_LEAST;
    if ((getrlimit(RLIMIT_NOFILE, &files) != 0) || (files.rlim_cur >= needed)) return GF_OK;
    return gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "getrlimit", EMFILE,
                        "this process needs %u file descriptors%s, the limit is %llu: raise it "
                        "(ulimit -n)",
                        needed, setup->listens ? " to coordinate so many ranks" : "",
                        (unsigned long long)files.rlim_cur);
}

static gf_status open_sockets(struct channel *channel, struct gf_fault *fault_out)
{
    gf_status status = gf_handshake_open(&channel->handshake);
    if ((status == GF_OK) && channel->setup.listens) status = gf_channel_listen(channel, fault_out);
    if (channel->handshake.fault.code != GF_OK) *fault_out = channel->handshake.fault;
    return status;
}

static gf_status open_channel(const struct gf_channel_setup *setup, void *state, uint64_t now_ns,
                              struct gf_channel **channel_out, struct gf_fault *fault_out)
{
    struct channel *channel = state;
    GF_ASSERT((((uintptr_t)state & 63) == 0) && (!setup->listens || (setup->connections_max > 0)));
    memset(channel, 0, sizeof *channel);
    channel->base.driver = &gf_channel_tcp;
    channel->setup = *setup;
    channel->now_ns = now_ns;
    channel->listen_fd = -1;
    channel->handshake = (struct handshake){.what = "control channel",
                                            .job_id = setup->job_id,
                                            .from = GF_RANK_NONE,
                                            .keepalive_ns = setup->keepalive_ns,
                                            .log = setup->log,
                                            .epoll_fd = -1,
                                            .strangers_fd = -1,
                                            .hello_kind = GF_FRAME_HELLO};
    (void)snprintf(channel->handshake.address_text, sizeof channel->handshake.address_text, "%s",
                   setup->address);
    lay(channel);
    gf_handshake_fd_limit_set(&channel->handshake);
    gf_status status = gf_auth_source_begin(&channel->handshake.source, fault_out);
    if (status == GF_OK) status = gf_channel_address_set(channel, fault_out);
    if (status == GF_OK) status = descriptors_check(channel, fault_out);
    if (status != GF_OK) return status;
    if (channel->auth.on) dump_set(channel, false);
    channel->forked.close = forked;
    gf_forked_add(&channel->forked);
    status = open_sockets(channel, fault_out);
    if (status != GF_OK) {
        close_channel(&channel->base);
        return status;
    }
    *channel_out = &channel->base;
    return GF_OK;
}

/* ---- running ---- */

static outcome event_take(struct channel *channel, uint32_t about,
                          struct gf_channel_event *event_out)
{
    if ((about & HANDSHAKE_ABOUT_PENDING) != 0) {
        outcome what = OUTCOME_NOTHING;
        struct pending *pending = gf_accept_take(&channel->handshake, about, channel->now_ns);
        if (pending != NULL) what = gf_channel_hello_take(channel, pending, event_out);
        gf_channel_refused_count(channel);
        return what;
    }
    if ((about & HANDSHAKE_ABOUT_ATTEMPT) != 0)
        return gf_channel_attempt_take(channel, about, event_out);
    return gf_conn_take(channel, &channel->conns[about], event_out);
}

static gf_status fault_of(struct channel *channel)
{
    if ((channel->base.fault.code == GF_OK) && (channel->handshake.fault.code != GF_OK))
        channel->base.fault = channel->handshake.fault;
    return channel->base.fault.code;
}

static bool poll_channel(struct gf_channel *base, uint64_t now_ns,
                         struct gf_channel_event *event_out)
{
    struct channel *channel = (struct channel *)base;
    struct handshake_poll spent = {.events = 0};
    uint32_t about;
    if (fault_of(channel) != GF_OK) return false;
    channel->now_ns = now_ns;
    gf_conns_leaving_progress(channel);
    gf_accept_poll(&channel->handshake, now_ns);
    outcome what = gf_channel_dial_progress(channel, event_out);
    while ((what == OUTCOME_NOTHING) && (fault_of(channel) == GF_OK) &&
           gf_handshake_next(&channel->handshake, &spent, &about))
        what = event_take(channel, about, event_out);
    if (what == OUTCOME_EVENT) return true;
    (void)fault_of(channel); /* the last look may have failed */
    return false;
}

static struct conn *conn_of(struct channel *channel, uint32_t connection)
{
    if (connection >= channel->conn_count) return NULL;
    struct conn *conn = &channel->conns[connection];
    return (conn->state == CONN_UP) ? conn : NULL;
}

static gf_status send_frame(struct gf_channel *base, uint32_t connection, uint32_t frame_kind,
                            const void *payload, uint32_t size_bytes)
{
    struct channel *channel = (struct channel *)base;
    struct conn *conn = conn_of(channel, connection);
    GF_ASSERT((size_bytes <= GF_CHANNEL_PAYLOAD_MAX) && (frame_kind < GF_FRAME_DRIVER));
    if ((conn == NULL) || (conn->broken != 0)) return GF_ERR_PEER;
    return gf_conn_put(channel, conn, frame_kind, payload, size_bytes) ? GF_OK : GF_FULL;
}

static void drop(struct gf_channel *base, uint32_t connection)
{
    struct channel *channel = (struct channel *)base;
    struct conn *conn = conn_of(channel, connection);
    if (conn != NULL) gf_conn_leave(channel, conn, GF_FRAME_LEFT);
}

static bool flushed(struct gf_channel *base)
{
    return ((const struct channel *)base)->unsent == 0;
}

static int wake_fd(struct gf_channel *base)
{
    return ((const struct channel *)base)->handshake.epoll_fd;
}

const struct gf_channel_driver gf_channel_tcp = {.name = "tcp",
                                                 .state_bytes = state_bytes,
                                                 .open = open_channel,
                                                 .poll = poll_channel,
                                                 .send = send_frame,
                                                 .drop = drop,
                                                 .dial = gf_channel_dial,
                                                 .flushed = flushed,
                                                 .wake_fd = wake_fd,
                                                 .close = close_channel};
