/* The coordinator's end: which connections are accepted. Anybody may connect. A process whose
 * hello is valid and proven gets a connection, which is a number; its first frame says which
 * process it is. */
#include "drivers/tcp/channel_state.h"
#include "gradientflow.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>

/* NONCE tells job and protocol to everybody, so a process that differs in them may be told that.
 * False: handshake->text has the reason. */
static bool header_fits(struct channel *channel, const struct gf_frame_header *header)
{
    struct handshake *handshake = &channel->handshake;
    if (header->job_id != channel->setup.job_id)
        (void)gf_handshake_because(handshake, GF_ERR_MISMATCH,
                                   "job id %" PRIu64 " at the coordinator, %" PRIu64
                                   " at this process: another job's address, or GF_JOB or "
                                   "MASTER_ADDR differ",
                                   channel->setup.job_id, header->job_id);
    else if (header->protocol != GF_FRAME_PROTOCOL)
        (void)gf_handshake_because(handshake, GF_ERR_MISMATCH,
                                   "protocol version %u at the coordinator, %u at this process",
                                   GF_FRAME_PROTOCOL, header->protocol);
    else
        return true;
    return false;
}

/* Is it another attempt of a dial that has a connection? One that its process has closed by now is
 * not. */
static bool is_here(const struct channel *channel, const struct pending *pending)
{
    for (uint32_t i = 0; i < channel->conn_count; i++) {
        const struct conn *conn = &channel->conns[i];
        struct pollfd end = {.fd = conn->fd, .events = POLLRDHUP};
        if ((conn->state == CONN_UP) &&
            (memcmp(conn->nonce, gf_transcript_nonce_of(pending->transcript), sizeof conn->nonce) ==
             0) &&
            (poll(&end, 1, 0) == 0))
            return true;
    }
    return false;
}

/* Makes a connection of an accepted hello. */
static outcome promote(struct channel *channel, struct pending *pending,
                       struct gf_channel_event *event_out)
{
    struct gf_auth_mac out = {0};
    struct gf_auth_mac in = {0};
    gf_transcript_macs_of(&channel->auth, pending->transcript, &out, &in);
    struct conn *conn =
        gf_conn_up(channel, gf_accept_keep(&channel->handshake, pending), &in, &out);
    gf_auth_forget(&in, sizeof in);
    gf_auth_forget(&out, sizeof out);
    if (conn == NULL) return OUTCOME_NOTHING;
    memcpy(conn->nonce, gf_transcript_nonce_of(pending->transcript), sizeof conn->nonce);
    GF_ASSERT(gf_conn_put(channel, conn, GF_FRAME_ANSWER, NULL, 0));
    *event_out = (struct gf_channel_event){.kind = GF_CHANNEL_CONNECTED,
                                           .connection = conn_index(channel, conn)};
    return OUTCOME_EVENT;
}

/* What a process of this job and protocol lacks; NULL: nothing. A process that has not proven the
 * key learns no more than that there is one. */
static const char *lack_of(const struct channel *channel, uint32_t flags, bool proven)
{
    bool keyed = (flags & GF_HELLO_KEYED) != 0;
    if (keyed != channel->auth.on)
        return channel->auth.on ? "this process has no key_file, and this job wants one"
                                : "this process has a key_file, and the coordinator has none: "
                                  "gf-run and gf-coordinator want --key-file, or the ranks' "
                                  "--config";
    if ((flags & GF_HELLO_PROBE) != 0)
        return channel->by_name
                   ? "this process has rendezvous.insecure, and the coordinator has not: gf-run "
                     "and gf-coordinator want --insecure, or the ranks' --config"
                   : "the coordinator has rendezvous.insecure, and this process has not: all ranks "
                     "want what gf-run or gf-coordinator was given";
    if (!proven)
        return "this process did not prove that it has this job's key: its key_file has other "
               "bytes";
    return NULL;
}

static bool version_fits(struct channel *channel, const struct gf_frame_hello *hello)
{
    if (hello->version == GF_VERSION) return true;
    (void)gf_handshake_because(&channel->handshake, GF_ERR_MISMATCH,
                               "library version %u.%u at the coordinator, %u.%u at this process",
                               GF_VERSION_MAJOR, GF_VERSION_MINOR, hello->version >> 16,
                               hello->version & 0xffffu);
    return false;
}

/* Is it accepted? False: handshake->text has the reason. */
static bool hello_fits(struct channel *channel, const struct pending *pending, bool proven)
{
    const struct gf_frame_header header = gf_transcript_header_of(pending->transcript);
    const struct gf_frame_hello hello = gf_transcript_hello_of(pending->transcript);
    if (!header_fits(channel, &header)) return false;
    const char *lack = lack_of(channel, hello.flags, proven);
    if (lack == NULL) return version_fits(channel, &hello);
    (void)gf_handshake_because(&channel->handshake, GF_ERR_MISMATCH, "%s", lack);
    return false;
}

/* Each refusal, also that of another user (handshake_accept.c), is counted for --status. */
void gf_channel_refused_count(struct channel *channel)
{
    struct gf_channel *base = &channel->base;
    if (channel->handshake.refused == channel->refused) return;
    base->refused_count += channel->handshake.refused - channel->refused;
    channel->refused = channel->handshake.refused;
    (void)snprintf(base->refused_text, sizeof base->refused_text, "%.159s",
                   channel->handshake.text);
}

outcome gf_channel_hello_take(struct channel *channel, struct pending *pending,
                              struct gf_channel_event *event_out)
{
    struct handshake *handshake = &channel->handshake;
    bool proven = channel->auth.on && gf_transcript_is_proven(&channel->auth, pending->transcript);
    if (!hello_fits(channel, pending, proven || !channel->auth.on)) {
        gf_accept_refuse(handshake, pending, proven || pending->by_name, GF_ERR_MISMATCH);
        return OUTCOME_NOTHING;
    }
    if (is_here(channel, pending)) {
        gf_accept_discard(handshake, pending);
        return OUTCOME_NOTHING;
    }
    return promote(channel, pending, event_out);
}
