/* See coordinator_serve.h. */
#include "tools/coordinator/coordinator_serve.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "drivers/channel.h"
#include "lib/control/coordinator.h"
#include "tools/common/tool_clock.h"
#include "tools/coordinator/coordinator_channel.h"

/* What a link tells of itself, of whatever driver: drivers/link.h. */
#define ENDPOINT_BYTES_MAX 2048u
/* Beside connections: streams, the listener and what it sleeps on. */
#define DESCRIPTORS_OTHER 16u
/* Connections that are of no rank yet. */
#define STRANGERS 8u
/* How long it sleeps where nothing comes: deadlines are looked at then. Its clock counts at most a
 * quarter of a second between two polls. */
#define REST_MS 100
#define BUSY_MS 10
/* Each takes many events. */
#define MEMBERS_POLLS 8u
/* Who does not take its last word delays the end by no more than its keepalive and this. */
#define LAST_WORD_NS UINT64_C(2000000000)

struct coordinator_server {
    struct gf_channel *channel;
    struct gf_coordinator *coordinator;
    uint64_t keepalive_ns;
    uint64_t join_timeout_ns;
    uint64_t over_ns;   /* since when the end is held up; 0: it is not */
    bool job_has_ended; /* it is there to say so */
    void *memory;
};

struct gf_channel_setup coordinator_channel(const struct coordinator_job *job)
{
    return (struct gf_channel_setup){.job_id = job->id,
                                     .address = job->config.rendezvous.address,
                                     .bind = job->config.rendezvous.bind,
                                     .key_file = job->config.rendezvous.key_file,
                                     .insecure = job->config.rendezvous.insecure,
                                     .keepalive_ns = job->config.rendezvous.keepalive_ns,
                                     .connections_max = 1,
                                     .log = job->log};
}

/* A descriptor each. Where fewer are allowed: as many as there may be, if all ranks find one; 0:
 * they do not. */
static uint32_t connections_take(uint32_t world, uint32_t wanted, struct gf_fault *fault_out)
{
    struct rlimit limit;
    rlim_t need = (rlim_t)wanted + DESCRIPTORS_OTHER;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
    if (limit.rlim_cur < need) {
        limit.rlim_cur = (limit.rlim_max < need) ? limit.rlim_max : need;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur >= need) return wanted;
    if (limit.rlim_cur >= (rlim_t)world + STRANGERS + DESCRIPTORS_OTHER)
        return (uint32_t)(limit.rlim_cur - DESCRIPTORS_OTHER);
    (void)gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "setrlimit", EMFILE,
                       "%llu descriptors are allowed (ulimit -Hn), too few for the connections of "
                       "%u ranks",
                       (unsigned long long)limit.rlim_max, world);
    return 0;
}

static size_t aligned(size_t bytes)
{
    return (bytes + 63u) / 64u * 64u;
}

struct coordinator_server *coordinator_open(const struct coordinator_job *job,
                                            struct gf_fault *fault_out)
{
    static struct coordinator_server server;
    struct gf_channel_setup channel = coordinator_channel(job);
    const struct gf_coordinator_setup setup = {.world = job->world,
                                               .id_count = job->world_max,
                                               .host_id = GF_RANK_NONE,
                                               .is_first = job->is_first,
                                               .join_timeout_ns = job->first_ns,
                                               .endpoint_bytes_max = ENDPOINT_BYTES_MAX,
                                               .address = job->config.rendezvous.address,
                                               .log = job->log};
    channel.listens = true;
    channel.connections_max =
        connections_take(job->world, GF_COORDINATOR_CONNECTIONS(job->world_max), fault_out);
    if (channel.connections_max == 0) return NULL;
    size_t channel_bytes = aligned(gf_channel_tcp.state_bytes(&channel));
    size_t bytes = channel_bytes + aligned(gf_coordinator_state_bytes(&setup));
    server = (struct coordinator_server){.keepalive_ns = channel.keepalive_ns,
                                         .join_timeout_ns = job->config.rendezvous.join_timeout_ns,
                                         .memory = aligned_alloc(64, bytes)};
    if (server.memory == NULL) {
        (void)gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "aligned_alloc", ENOMEM,
                           "no memory: %zu bytes", bytes);
        return NULL;
    }
    memset(server.memory, 0, bytes); /* the kernel gives it now, or says that it has none */
    uint64_t now_ns = tool_clock_ns();
    if (gf_channel_tcp.open(&channel, server.memory, now_ns, &server.channel, fault_out) < 0) {
        free(server.memory);
        return NULL;
    }
    server.coordinator =
        gf_coordinator_open(&setup, (char *)server.memory + channel_bytes, server.channel, now_ns);
    return &server;
}

static void sleep_until_woken(struct gf_channel *channel, int timeout_ms)
{
    struct pollfd wake = {.fd = channel->driver->wake_fd(channel), .events = POLLIN};
    (void)poll(&wake, (wake.fd >= 0) ? 1 : 0, timeout_ms);
}

/* The job is over, and its last words were not taken for long enough. The state machine itself
 * limits how long it awaits ranks that come late to a join that has failed, by their own
 * join_timeout: only those that are connected can hold it up. */
static bool has_stayed(struct coordinator_server *server, const struct gf_coordinator_status *now,
                       uint64_t now_ns)
{
    const bool joins = (now->generation == 0);
    uint64_t limit_ns = server->keepalive_ns + LAST_WORD_NS;
    if (now->state != GF_COORDINATOR_OVER) return false;
    if ((server->over_ns == 0) || (joins && (now->connected == 0))) server->over_ns = now_ns;
    if (joins) limit_ns += server->join_timeout_ns / 2;
    return now_ns - server->over_ns >= limit_ns;
}

gf_status coordinator_run(struct coordinator_server *server, const volatile sig_atomic_t *stop,
                          char *text_out, size_t text_bytes)
{
    struct gf_coordinator_status now = {0};
    gf_status status = GF_AGAIN;
    while ((status == GF_AGAIN) && (*stop == 0)) {
        uint64_t now_ns = tool_clock_ns();
        status = gf_coordinator_poll(server->coordinator, now_ns);
        if (server->job_has_ended && (server->channel->fault.code >= 0)) {
            sleep_until_woken(server->channel, BUSY_MS);
            return GF_AGAIN;
        }
        if (status != GF_AGAIN) break;
        gf_coordinator_status(server->coordinator, &now);
        if (has_stayed(server, &now, now_ns))
            status = now.error.code;
        else
            sleep_until_woken(server->channel,
                              (now.state == GF_COORDINATOR_RUN) ? REST_MS : BUSY_MS);
    }
    gf_coordinator_status(server->coordinator, &now);
    if (status < 0)
        (void)snprintf(text_out, text_bytes, "%s",
                       (server->channel->fault.code < 0) ? server->channel->fault.text
                                                         : now.error.text);
    return status;
}

bool coordinator_has_begun(const struct coordinator_server *server)
{
    struct gf_coordinator_status now;
    gf_coordinator_status(server->coordinator, &now);
    return now.generation != 0;
}

bool coordinator_join_has_failed(const struct coordinator_server *server)
{
    struct gf_coordinator_status now;
    gf_coordinator_status(server->coordinator, &now);
    return (now.generation == 0) && (now.state == GF_COORDINATOR_OVER) && !server->job_has_ended;
}

uint32_t coordinator_members(struct coordinator_server *server)
{
    struct gf_coordinator_status now;
    for (uint32_t i = 0; i < MEMBERS_POLLS; i++)
        (void)gf_coordinator_poll(server->coordinator, tool_clock_ns());
    gf_coordinator_status(server->coordinator, &now);
    return server->job_has_ended ? now.connected : now.present;
}

uint32_t coordinator_closed(const struct coordinator_server *server, uint32_t first, uint32_t count)
{
    return gf_coordinator_closed(server->coordinator, first, count);
}

void coordinator_job_has_ended(struct coordinator_server *server)
{
    if (server->job_has_ended || coordinator_has_begun(server)) return;
    server->job_has_ended = true;
    gf_coordinator_end(server->coordinator);
}

void coordinator_close(struct coordinator_server *server)
{
    server->channel->driver->close(server->channel);
    free(server->memory);
}
