/* See channel_hub.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/channel_hub.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

struct channel_hub hub;
struct hub_heard heard[HUB_ENDS_MAX];
uint64_t hub_now_ns;
void (*hub_turn_too)(void);
char hub_logged[8192];

static void log_keep(void *user, gf_log_level level, const char *line)
{
    size_t used = strlen(hub_logged);
    (void)snprintf(hub_logged + used, sizeof hub_logged - used, "%s\n", line);
}

void hub_address_free(char *address_out, bool v6)
{
    struct sockaddr_in6 at6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in at4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *at = v6 ? (struct sockaddr *)&at6 : (struct sockaddr *)&at4;
    socklen_t bytes = v6 ? sizeof at6 : sizeof at4;
    int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if ((fd < 0) || (bind(fd, at, bytes) != 0) || (getsockname(fd, at, &bytes) != 0)) {
        address_out[0] = 0; /* no such family here: opening will say so */
    } else {
        (void)snprintf(address_out, GF_TEXT_MAX, v6 ? "[::1]:%u" : "127.0.0.1:%u",
                       (unsigned)ntohs(v6 ? at6.sin6_port : at4.sin_port));
    }
    if (fd >= 0) (void)close(fd);
}

void hub_clear(void)
{
    memset(&hub, 0, sizeof hub);
    memset(heard, 0, sizeof heard);
    hub.key_file = "";
    hub.connections_max = HUB_CONNECTIONS_MAX;
    hub_now_ns = 7 * HUB_SECOND;
    hub_logged[0] = 0;
    hub_turn_too = NULL;
    hub_address_free(hub.address, false);
}

void hub_clear_open(void)
{
    hub_clear();
    hub.insecure = true;
}

struct gf_channel_setup hub_setup(bool listens)
{
    return (struct gf_channel_setup){.listens = listens,
                                     .connections_max = listens ? hub.connections_max : 1,
                                     .job_id = 4711,
                                     .address = hub.address,
                                     .bind = "",
                                     .key_file = hub.key_file,
                                     .insecure = hub.insecure,
                                     .keepalive_ns = 5 * HUB_SECOND,
                                     .log = {.fn = log_keep}};
}

gf_status hub_open_try(uint32_t slot, const struct gf_channel_setup *setup,
                       struct gf_fault *fault_out)
{
    size_t bytes = (gf_channel_tcp.state_bytes(setup) + 63) & ~(size_t)63;
    hub.states[slot] = aligned_alloc(64, bytes);
    assert_non_null(hub.states[slot]);
    memset(hub.states[slot], 0xa5, bytes);
    gf_status status =
        gf_channel_tcp.open(setup, hub.states[slot], hub_now_ns, &hub.ends[slot], fault_out);
    if (status == GF_OK) {
        hub.dial_ns[slot] = setup->listens ? 0 : hub_now_ns;
        return GF_OK;
    }
    free(hub.states[slot]);
    hub.states[slot] = NULL;
    hub.ends[slot] = NULL;
    return status;
}

void hub_open(uint32_t slot, const struct gf_channel_setup *setup)
{
    struct gf_fault fault = {0};
    gf_status status = hub_open_try(slot, setup, &fault);
    if (status != GF_OK) print_error("slot %u: %s\n", slot, fault.text);
    assert_int_equal(status, GF_OK);
}

void hub_member(uint32_t slot)
{
    struct gf_channel_setup setup = hub_setup(false);
    hub_open(slot, &setup);
}

void hub_close(uint32_t slot)
{
    if (hub.ends[slot] != NULL) gf_channel_tcp.close(hub.ends[slot]);
    free(hub.states[slot]);
    hub.ends[slot] = NULL;
    hub.states[slot] = NULL;
    hub.dial_ns[slot] = 0;
}

void hub_end(void)
{
    /* The coordinator last: it would wait for the others' kernels to acknowledge its last frames,
     * which they do 40 ms later, or with their own end. */
    for (uint32_t slot = HUB_ENDS_MAX; slot-- > 0;) hub_close(slot);
}

static void event_note(struct hub_heard *h, uint32_t slot, const struct gf_channel_event *event)
{
    h->connection = event->connection;
    switch (event->kind) {
    case GF_CHANNEL_CONNECTED:
        h->connected++;
        h->up |= 1u << event->connection % 32;
        break;
    case GF_CHANNEL_ENDED:
        h->ended++;
        h->up &= ~(1u << event->connection % 32);
        h->end = event->end;
        (void)snprintf(h->text, sizeof h->text, "%s", event->text);
        if (slot != 0) hub.dial_ns[slot] = hub_now_ns + 50 * HUB_MS;
        break;
    case GF_CHANNEL_FRAME:
        h->frames++;
        h->last_kind = event->frame_kind;
        h->last_bytes = event->size_bytes;
        assert_true(event->size_bytes <= sizeof h->last);
        if (event->size_bytes > 0) memcpy(h->last, event->payload, event->size_bytes);
        break;
    }
}

static void end_poll(uint32_t slot)
{
    struct gf_channel *end = hub.ends[slot];
    struct hub_heard *h = &heard[slot];
    if ((hub.dial_ns[slot] != 0) && (hub_now_ns >= hub.dial_ns[slot])) {
        hub.dial_ns[slot] = 0;
        gf_channel_tcp.dial(end, hub_now_ns);
    }
    for (int i = 0; i < 100; i++) {
        struct gf_channel_event event = {0};
        bool has_come = gf_channel_tcp.poll(end, hub_now_ns, &event);
        h->status = end->fault.code;
        if (!has_come) return;
        assert_true(event.connection < end->connections_max);
        event_note(h, slot, &event);
    }
}

void hub_turn(void)
{
    hub_now_ns += HUB_MS / 10;
    for (uint32_t slot = 0; slot < HUB_ENDS_MAX; slot++)
        if (hub.ends[slot] != NULL) end_poll(slot);
    if (hub_turn_too != NULL) hub_turn_too();
}

uint32_t hub_new(uint32_t before)
{
    uint32_t bits = heard[0].up & ~before;
    uint32_t connection = 0;
    assert_true((bits != 0) && ((bits & (bits - 1)) == 0));
    while ((bits >> connection) != 1) connection++;
    return connection;
}

void hub_join(uint32_t members)
{
    struct gf_channel_setup setup = hub_setup(true);
    hub_open(0, &setup);
    for (uint32_t slot = 1; slot <= members; slot++) hub_member(slot);
    HUB_UNTIL(heard[0].connected == members);
    for (uint32_t slot = 1; slot <= members; slot++) HUB_UNTIL(heard[slot].up == 1);
}
