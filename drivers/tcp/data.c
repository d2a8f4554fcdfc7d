/* See data.h. */
#include "drivers/tcp/data_state.h"
#include "gradientflow.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define ABOUT(generation, stream) (((generation) << 8) | (stream))

static bool has_network(const struct gf_link_setup *setup)
{
    return (setup->address != NULL) && (setup->address[0] != '\0');
}

static uint32_t slots_of(const struct gf_link_setup *setup)
{
    return setup->ranks_max + HANDSHAKE_PENDING_SPARE;
}

size_t gf_data_state_bytes(const struct gf_link_setup *setup)
{
    if (!has_network(setup)) return sizeof(struct gf_data);
    return sizeof(struct gf_data) +
           slots_of(setup) * (sizeof(struct pending) + sizeof(struct source));
}

void gf_data_init(struct gf_data *data, const struct gf_link_setup *setup)
{
    *data = (struct gf_data){.handshake = {.what = "data connections",
                                           .job_id = setup->job_id,
                                           .keepalive_ns = setup->keepalive_ns,
                                           .log = setup->log,
                                           .epoll_fd = -1,
                                           .strangers_fd = -1,
                                           .hello_kind = GF_FRAME_DATA_HELLO},
                             .setup = setup,
                             .listen_fd = -1};
    for (uint32_t i = 0; i < GF_DATA_ADDRS_MAX; i++) data->device_fds[i] = -1;
    for (uint32_t i = 0; i < DATA_DIALS_MAX; i++) gf_dial_init(&data->dials[i], i);
    if (!has_network(setup)) return;
    struct pending *pending = (struct pending *)(void *)(data + 1);
    gf_accept_init(&data->handshake, pending, (struct source *)(void *)(pending + slots_of(setup)),
                   slots_of(setup));
}

void gf_data_forked(const struct gf_data *data)
{
    for (uint32_t i = 0; i < DATA_DIALS_MAX; i++) gf_dial_forked(&data->dials[i]);
    for (uint32_t i = 0; i < GF_DATA_ADDRS_MAX; i++) (void)close(data->device_fds[i]);
    gf_accept_forked(&data->handshake);
    (void)close(data->listen_fd);
    (void)close(data->handshake.strangers_fd);
    (void)close(data->handshake.epoll_fd);
}

const struct gf_fault *gf_data_fault(const struct gf_data *data)
{
    return &data->handshake.fault;
}

int gf_data_wake_fd(const struct gf_data *data)
{
    return data->handshake.epoll_fd;
}

int gf_data_lacks(const struct gf_data *data)
{
    return data->handshake.lacks;
}

uint32_t gf_data_files_max(void)
{
    struct rlimit files;
    if ((getrlimit(RLIMIT_NOFILE, &files) != 0) || (files.rlim_cur >= UINT32_MAX)) return 0;
    return (uint32_t)files.rlim_cur;
}

/* ---- the end that dials ---- */

static uint32_t stream_of(const struct dial *dial)
{
    return dial->words[3] & 0xffu;
}

static struct dial *dial_of(struct gf_data *data, uint32_t peer, uint32_t stream)
{
    for (uint32_t i = 0; i < DATA_DIALS_MAX; i++) {
        struct dial *dial = &data->dials[i];
        if (dial->on && (dial->to_rank == peer) && (stream_of(dial) == stream)) return dial;
    }
    return NULL;
}

static void dial_take(struct gf_data *data, struct dial *dial, dial_event news, uint64_t now_ns)
{
    const struct gf_data_taker *taker = data->taker;
    if (news != DIAL_CONNECTED) return; /* what went wrong is in the dial, which goes on */
    gf_dial_end(&data->handshake, dial);
    gf_accept_served(&data->handshake, now_ns);
    gf_socket_carries_messages(dial->fd, data->setup->keepalive_ns);
    gf_data_device_dialled(data, dial);
    taker->connected(taker->user, dial->to_rank, stream_of(dial), dial->fd);
}

static void attempt_take(struct gf_data *data, uint32_t about, uint64_t now_ns)
{
    uint32_t number = about & ~HANDSHAKE_ABOUT_ATTEMPT;
    struct dial *dial = &data->dials[number / HANDSHAKE_ATTEMPTS_MAX];
    dial_event news = gf_dial_take(&data->handshake, dial, number % HANDSHAKE_ATTEMPTS_MAX, now_ns);
    dial_take(data, dial, news, now_ns);
}

gf_status gf_data_dial(struct gf_data *data, uint64_t now_ns, uint32_t peer, uint32_t stream,
                       const unsigned char *secret, const struct gf_addr *to,
                       const struct gf_addr *from)
{
    GF_ASSERT(data->on && (peer < data->world) && (peer != data->rank));
    GF_ASSERT(stream < GF_DATA_STREAMS_MAX);
    if (dial_of(data, peer, stream) != NULL) return GF_OK;
    for (uint32_t i = 0; i < DATA_DIALS_MAX; i++) {
        struct dial *dial = &data->dials[i];
        if (dial->on) continue;
        gf_status status = gf_auth_derive(&data->job, secret, &dial->auth, &data->handshake.fault);
        if (status != GF_OK) return status;
        dial->kind = GF_FRAME_DATA_HELLO;
        dial->to_rank = peer;
        dial->to = *to;
        dial->from = *from;
        dial->from.port = 0;
        dial->device = gf_data_device_dials(dial);
        dial->words[0] = GF_VERSION;
        dial->words[1] = data->rank;
        dial->words[2] = peer;
        dial->words[3] = ABOUT(data->generation, stream);
        gf_dial_start(&data->handshake, dial, now_ns);
        (void)gf_dial_poll(&data->handshake, dial, now_ns);
        return data->handshake.fault.code;
    }
    return GF_FULL;
}

const char *gf_data_text(const struct gf_data *data, uint32_t peer)
{
    for (uint32_t i = 0; i < DATA_DIALS_MAX; i++) {
        const struct dial *dial = &data->dials[i];
        if (dial->on && (dial->to_rank == peer)) return dial->text;
    }
    return "";
}

bool gf_data_reaches(const struct gf_data *data, uint32_t peer)
{
    for (uint32_t i = 0; i < DATA_DIALS_MAX; i++) {
        const struct dial *dial = &data->dials[i];
        if (!dial->on || (dial->to_rank != peer)) continue;
        for (uint32_t t = 0; t < HANDSHAKE_ATTEMPTS_MAX; t++)
            if (dial->attempts[t].state >= HANDSHAKE_ATTEMPT_NONCE) return true;
    }
    return false;
}

int gf_data_error(const struct gf_data *data, uint32_t peer)
{
    for (uint32_t i = 0; i < DATA_DIALS_MAX; i++) {
        const struct dial *dial = &data->dials[i];
        if (dial->on && (dial->to_rank == peer) && (dial->kernel_error != 0))
            return dial->kernel_error;
    }
    return 0;
}

/* ---- the end that accepts ---- */

/* NULL: the connection is wanted. */
static const char *refusal(struct gf_data *data, const struct gf_frame_data_hello *hello)
{
    uint32_t stream = hello->about & 0xffu;
    const struct gf_data_taker *taker = data->taker;
    if (hello->version != GF_VERSION) return "another version of the library";
    if ((hello->to != data->rank) || (hello->from == hello->to)) return "another rank was dialled";
    if ((hello->from >= data->world) || (stream >= GF_DATA_STREAMS_MAX))
        return "no such rank or stream";
    if (taker->has(taker->user, hello->from, stream)) return "this stream is here already";
    const struct dial *own = dial_of(data, hello->from, stream);
    if ((own != NULL) && (data->rank < hello->from) && gf_dial_has_said_hello(own))
        return "this rank dials that one itself";
    return NULL;
}

/* True: its other end knows that it was accepted. */
static bool answer(struct gf_data *data, struct pending *pending)
{
    unsigned char words[HANDSHAKE_ANSWER_BYTES_MAX];
    struct gf_auth_mac in;
    struct gf_auth_mac out;
    gf_transcript_macs_of(&data->auth, pending->transcript, &out, &in);
    size_t bytes = gf_handshake_put_frame(&data->handshake, GF_FRAME_ANSWER, true, &out, words);
    gf_auth_forget(&in, sizeof in);
    gf_auth_forget(&out, sizeof out);
    return send(pending->fd, words, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

static void hello_take(struct gf_data *data, struct pending *pending)
{
    const struct gf_frame_header header = gf_transcript_header_of(pending->transcript);
    const struct gf_frame_hello words = gf_transcript_hello_of(pending->transcript);
    const struct gf_frame_data_hello hello = {words.version, words.rank, words.world, words.flags};
    const struct gf_data_taker *taker = data->taker;
    uint32_t stream = hello.about & 0xffu;
    /* A member that is further on dials before this rank is there: it tries again. */
    if (!data->on || (header.protocol != GF_FRAME_PROTOCOL) ||
        ((hello.about >> 8) != (data->generation & 0xffffffu))) {
        gf_accept_drop(&data->handshake, pending, GF_LOG_INFO,
                       "a data connection of another generation");
        return;
    }
    if (!gf_transcript_is_proven(&data->auth, pending->transcript)) {
        gf_accept_drop(&data->handshake, pending, GF_LOG_WARN,
                       "a data connection did not prove that it is of this job");
        return;
    }
    const char *why = refusal(data, &hello);
    if (why != NULL) {
        gf_accept_reject(&data->handshake, pending, GF_ERR_STATE, why);
        return;
    }
    if (!answer(data, pending)) {
        gf_accept_discard(&data->handshake, pending);
        return;
    }
    struct dial *own = dial_of(data, hello.from, stream);
    if (own != NULL) gf_dial_end(&data->handshake, own);
    gf_socket_options_set(pending->fd, data->setup->keepalive_ns);
    gf_socket_carries_messages(pending->fd, data->setup->keepalive_ns);
    gf_data_device_accepted(data, pending->fd, hello.from);
    gf_accept_served(&data->handshake, pending->since_ns);
    taker->connected(taker->user, hello.from, stream, gf_accept_keep(&data->handshake, pending));
}

gf_status gf_data_poll(struct gf_data *data, uint64_t now_ns)
{
    struct handshake_poll spent = {.events = 0};
    uint32_t about;
    if (!data->on) return GF_OK;
    gf_accept_poll(&data->handshake, now_ns);
    for (uint32_t i = 0; i < DATA_DIALS_MAX; i++)
        dial_take(data, &data->dials[i], gf_dial_poll(&data->handshake, &data->dials[i], now_ns),
                  now_ns);
    while ((data->handshake.fault.code == GF_OK) &&
           gf_handshake_next(&data->handshake, &spent, &about)) {
        if ((about & HANDSHAKE_ABOUT_PENDING) == 0) {
            attempt_take(data, about, now_ns);
            continue;
        }
        struct pending *pending = gf_accept_take(&data->handshake, about, now_ns);
        if (pending != NULL) hello_take(data, pending);
    }
    return data->handshake.fault.code;
}

/* ---- opening and closing ---- */

/* The state holds the key, so it is left out of core dumps. */
static void dump_set(struct gf_data *data, bool dumped)
{
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)data / page_bytes * page_bytes;
    uintptr_t end = (uintptr_t)data + sizeof *data;
    (void)madvise((void *)at, end - at, dumped ? MADV_DODUMP : MADV_DONTDUMP);
}

static gf_status open_once(struct gf_data *data)
{
    const struct gf_link_setup *setup = data->setup;
    struct gf_fault *fault = &data->handshake.fault;
    gf_status status = gf_auth_source_begin(&data->handshake.source, fault);
    if (status != GF_OK) return status;
    if (!gf_socket_address_parse(setup->address, &data->address, fault)) return GF_ERR_CONFIG;
    if ((setup->bind != NULL) && (setup->bind[0] != '\0') &&
        !gf_socket_bind_parse(setup->bind, &data->bind_to, fault))
        return GF_ERR_CONFIG;
    if ((setup->ports != NULL) &&
        !gf_ports_parse(setup->ports, &data->port_first, &data->port_last))
        return gf_fault_set(fault, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
                            "rendezvous.ports '%.60s': expected first-last within 1-65535",
                            setup->ports);
    if ((setup->key_file != NULL) && (setup->key_file[0] != '\0')) {
        status = gf_auth_open(&data->job, setup->key_file, fault);
        if (status != GF_OK) return status;
        dump_set(data, false);
    }
    gf_handshake_fd_limit_set(&data->handshake);
    return gf_handshake_open(&data->handshake);
}

gf_status gf_data_begin(struct gf_data *data, uint32_t generation, uint32_t rank, uint32_t world,
                        const struct gf_data_taker *taker, unsigned char *secret_out,
                        struct gf_addr *addr_out)
{
    gf_data_end(data);
    data->handshake.fault = (struct gf_fault){0};
    data->rank = data->handshake.from = rank;
    data->world = world;
    memset(addr_out, 0, sizeof *addr_out);
    memset(secret_out, 0, GF_DATA_SECRET_BYTES);
    if (!has_network(data->setup))
        return gf_fault_set(&data->handshake.fault, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
                            "this link has no address at which to take data connections");
    gf_status status = data->is_open ? GF_OK : open_once(data);
    if (status == GF_OK) status = gf_data_listen(data, addr_out);
    if (status == GF_OK) {
        data->is_open = true;
        gf_auth_nonce(&data->handshake.source, secret_out);
        status = gf_auth_derive(&data->job, secret_out, &data->auth, &data->handshake.fault);
    }
    if (status != GF_OK) {
        if (!data->is_open) gf_data_close(data);
        return status;
    }
    data->on = true;
    /* what was lacking before need not be lacking now */
    data->handshake.lacks = 0;
    data->device_warned = 0;
    data->generation = generation;
    data->taker = taker;
    return GF_OK;
}

void gf_data_end(struct gf_data *data)
{
    for (uint32_t i = 0; i < DATA_DIALS_MAX; i++)
        if (data->dials[i].on) gf_dial_end(&data->handshake, &data->dials[i]);
    data->on = false;
    gf_auth_forget(&data->auth, sizeof data->auth);
}

void gf_data_close(struct gf_data *data)
{
    gf_data_end(data);
    gf_accept_close(&data->handshake);
    for (uint32_t i = 0; i < GF_DATA_ADDRS_MAX; i++)
        if (data->device_fds[i] >= 0) gf_socket_close(&data->device_fds[i]);
    if (data->listen_fd >= 0) gf_socket_close(&data->listen_fd);
    gf_handshake_close(&data->handshake);
    if (data->job.on) dump_set(data, true);
    gf_auth_forget(&data->job, sizeof data->job);
    data->is_open = false;
}
