/* How a member connects to the coordinator. A dial ends when it has a connection, when the port
 * refuses, when an attempt ends and no other is open, or after CHANNEL_DIAL_NS. The caller decides
 * whether to dial again. */
#include "drivers/tcp/channel_state.h"
#include "gradientflow.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { DIAL_JOB, DIAL_PROBE };

static void hello_set(const struct channel *channel, struct dial *dial, uint32_t flags)
{
    dial->kind = GF_FRAME_HELLO;
    dial->to_rank = GF_RANK_NONE;
    dial->to = channel->address;
    dial->from = channel->bind_to;
    dial->auth = channel->auth;
    dial->words[0] = GF_VERSION;
    dial->words[1] = GF_RANK_NONE;
    dial->words[2] = 0;
    dial->words[3] = (channel->auth.on ? GF_HELLO_KEYED : 0) | flags;
}

/* The other address, where the coordinator of a job with another key or another `insecure` would
 * be: the unix socket instead of the port, or the port instead of the unix socket. */
static void probe_begin(struct channel *channel)
{
    struct dial *dial = &channel->probe;
    if (channel->met || dial->on || !gf_addr_is_loopback(&channel->address) ||
        ((channel->bind_to.family != 0) && !gf_addr_is_loopback(&channel->bind_to)))
        return;
    hello_set(channel, dial, GF_HELLO_PROBE);
    dial->name[0] = '\0';
    if (!channel->by_name) gf_channel_name(channel, dial->name);
    gf_dial_start(&channel->handshake, dial, channel->now_ns);
    dial->next_ns = channel->now_ns + CHANNEL_PROBE_NS;
}

void gf_channel_dial(struct gf_channel *base, uint64_t now_ns)
{
    struct channel *channel = (struct channel *)base;
    struct dial *dial = &channel->dial;
    GF_ASSERT(!channel->setup.listens);
    channel->now_ns = now_ns;
    if ((base->fault.code != GF_OK) || dial->on || (channel->conns[0].state == CONN_UP)) return;
    hello_set(channel, dial, 0);
    dial->name[0] = '\0';
    if (channel->by_name) gf_channel_name(channel, dial->name);
    gf_dial_start(&channel->handshake, dial, now_ns);
    if (channel->unmet_ns != 0) return;
    channel->unmet_ns = now_ns;
    probe_begin(channel);
}

void gf_channel_dial_close(struct channel *channel)
{
    gf_dial_end(&channel->handshake, &channel->dial);
    gf_dial_end(&channel->handshake, &channel->probe);
}

/* ---- outcomes ---- */

static outcome dial_connected(struct channel *channel, struct gf_channel_event *event_out)
{
    struct dial *dial = &channel->dial;
    if (channel->conns[0].state == CONN_LEAVING) gf_conn_close(channel, &channel->conns[0]);
    struct conn *conn = gf_conn_up(channel, dial->fd, &dial->mac_in, &dial->mac_out);
    gf_channel_dial_close(channel);
    if (conn == NULL) return OUTCOME_NOTHING; /* epoll has failed, and the channel with it */
    channel->met = true;
    channel->unmet_ns = 0;
    channel->probe_text[0] = channel->other_job[0] = '\0';
    *event_out = (struct gf_channel_event){.kind = GF_CHANNEL_CONNECTED};
    return OUTCOME_EVENT;
}

/* The default address, or 0.0.0.0, on a host where the coordinator is not. */
static bool is_this_host(const struct gf_addr *addr)
{
    static const struct gf_addr any;
    return gf_addr_is_loopback(addr) || (memcmp(addr->ip, any.ip, sizeof any.ip) == 0);
}

/* Adds to the text what else may explain why no coordinator was met. */
static void hint_put(const struct channel *channel, char *text_out, size_t bytes)
{
    text_out[0] = '\0';
    if (channel->probe_text[0] != '\0')
        (void)snprintf(text_out, bytes, "; and a process there says: %.120s", channel->probe_text);
    else if (channel->other_job[0] != '\0')
        (void)snprintf(text_out, bytes, "; job %.20s is there: do GF_JOB or MASTER_ADDR differ?",
                       channel->other_job);
    else if (!channel->met && is_this_host(&channel->address))
        (void)snprintf(text_out, bytes,
                       "; that address is this host: does the coordinator run here?");
}

static outcome dial_ended(struct channel *channel, gf_channel_end end,
                          struct gf_channel_event *event_out)
{
    char bind[INET6_ADDRSTRLEN] = "";
    char hint[160];
    const char *text = channel->dial.text;
    if (channel->bind_to.family != 0)
        (void)inet_ntop(channel->bind_to.family, channel->bind_to.ip, bind, sizeof bind);
    hint_put(channel, hint, sizeof hint);
    if (text[0] == '\0') text = "no answer";
    if (channel->by_name) /* it names where that was */
        (void)snprintf(channel->text, sizeof channel->text, "%.150s%s", text, hint);
    else
        (void)snprintf(channel->text, sizeof channel->text, "%.60s%s%s: %.100s%s",
                       channel->handshake.address_text,
                       (bind[0] != '\0') ? " from rendezvous.bind " : "", bind, text, hint);
    gf_dial_end(&channel->handshake, &channel->dial);
    *event_out =
        (struct gf_channel_event){.kind = GF_CHANNEL_ENDED, .end = end, .text = channel->text};
    return OUTCOME_EVENT;
}

static void refused_by(struct channel *channel, const struct dial *dial)
{
    (void)gf_fault_set(&channel->base.fault, GF_ERR_MISMATCH, GF_RANK_NONE, "", 0,
                       "the coordinator at %.60s refused this process: %s",
                       channel->handshake.address_text, dial->text);
    gf_channel_dial_close(channel);
}

/* A member that had met its coordinator before was refused by another job's at the same address;
 * its own may come back. */
static outcome refused(struct channel *channel, struct gf_channel_event *event_out)
{
    if (channel->met) return dial_ended(channel, GF_CHANNEL_BROKE, event_out);
    refused_by(channel, &channel->dial);
    return OUTCOME_NOTHING;
}

/* A port that refuses before a coordinator was met: the coordinator has not begun yet. */
static outcome dial_take(struct channel *channel, dial_event news,
                         struct gf_channel_event *event_out)
{
    struct dial *dial = &channel->dial;
    if (news == DIAL_CONNECTED) return dial_connected(channel, event_out);
    if (news == DIAL_REFUSED) return refused(channel, event_out);
    if ((news == DIAL_ENDED) && (dial->error == ECONNREFUSED))
        return dial_ended(channel, channel->met ? GF_CHANNEL_DIED : GF_CHANNEL_BROKE, event_out);
    if ((news != DIAL_NOTHING) && !gf_dial_has_attempts(dial))
        return dial_ended(channel, GF_CHANNEL_BROKE, event_out);
    return OUTCOME_NOTHING;
}

/* Was the probe refused by this job's coordinator? Any user may listen at a port, and another job
 * of this user at either address; a process of this user with this job's id is believed. */
static bool probe_is_believed(const struct channel *channel)
{
    const struct dial *dial = &channel->probe;
    if (!dial->refused_by_own) return false;
    return (dial->name[0] != '\0') || gf_socket_port_is_own(ntohs(channel->address.port));
}

static void probe_take(struct channel *channel, dial_event news)
{
    struct dial *dial = &channel->probe;
    if (news == DIAL_CONNECTED) gf_socket_close(&dial->fd);
    if (news != DIAL_REFUSED) return;
    if (!channel->met && probe_is_believed(channel)) {
        refused_by(channel, dial);
        return;
    }
    if (channel->probe_text[0] != '\0') return;
    memcpy(channel->probe_text, dial->text, sizeof channel->probe_text);
    gf_log_line(&channel->setup.log, GF_LOG_WARN, "control channel: a process at %.60s says: %s",
                (dial->name[0] != '\0') ? dial->name : channel->handshake.address_text,
                channel->probe_text);
}

/* Members with another job id (GF_JOB, or none) go to another name, and the coordinator among them
 * gives up as this process does. */
static void other_job_find(struct channel *channel)
{
    if (!channel->by_name || channel->met || channel->others_looked_for) return;
    if (channel->now_ns - channel->unmet_ns < CHANNEL_OTHERS_NS) return;
    channel->others_looked_for = true;
    gf_channel_other_job(channel, channel->other_job);
}

outcome gf_channel_dial_progress(struct channel *channel, struct gf_channel_event *event_out)
{
    struct dial *dial = &channel->dial;
    if (channel->unmet_ns == 0) return OUTCOME_NOTHING;
    other_job_find(channel);
    probe_take(channel, gf_dial_poll(&channel->handshake, &channel->probe, channel->now_ns));
    if (!dial->on) return OUTCOME_NOTHING;
    if (gf_dial_has_attempts(dial) && (channel->now_ns - dial->began_ns >= CHANNEL_DIAL_NS)) {
        (void)snprintf(dial->text, sizeof dial->text, "no answer for %u ms",
                       (unsigned)((channel->now_ns - dial->began_ns) / 1000000u));
        return dial_ended(channel, GF_CHANNEL_BROKE, event_out);
    }
    return dial_take(channel, gf_dial_poll(&channel->handshake, dial, channel->now_ns), event_out);
}

outcome gf_channel_attempt_take(struct channel *channel, uint32_t about,
                                struct gf_channel_event *event_out)
{
    uint32_t number = (about & ~HANDSHAKE_ABOUT_ATTEMPT) / HANDSHAKE_ATTEMPTS_MAX;
    uint32_t slot = about % HANDSHAKE_ATTEMPTS_MAX;
    struct dial *dial = (number == DIAL_JOB) ? &channel->dial : &channel->probe;
    dial_event news = gf_dial_take(&channel->handshake, dial, slot, channel->now_ns);
    if (number == DIAL_JOB) return dial_take(channel, news, event_out);
    probe_take(channel, news);
    return OUTCOME_NOTHING;
}
