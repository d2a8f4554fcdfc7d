/* A member on its way to the coordinator. A dial ends with a connection, with a port that refuses,
 * with a try that ended while no other was open, or after CHANNEL_DIAL_NS; whoever asked for it
 * decides whether to dial again. */
#include "drivers/tcp/channel_state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { WAY_JOB, WAY_ASIDE };

static void hello_set(const struct channel *channel, struct way *way, uint32_t flags)
{
    way->kind = GF_FRAME_HELLO;
    way->to_rank = GF_RANK_NONE;
    way->to = channel->address;
    way->from = channel->bind_to;
    way->auth = channel->auth;
    way->words[0] = GF_VERSION;
    way->words[1] = GF_RANK_NONE;
    way->words[2] = 0;
    way->words[3] = (channel->auth.on ? GF_HELLO_KEYED : 0) | flags;
}

/* Where the coordinator of a job with another key or `insecure` than this one's would be: at the
 * unix socket in place of the port, or the other way round. */
static void aside_begin(struct channel *channel)
{
    struct way *way = &channel->aside;
    if (channel->met || way->on || !gf_place_is_loopback(&channel->address) ||
        ((channel->bind_to.family != 0) && !gf_place_is_loopback(&channel->bind_to)))
        return;
    hello_set(channel, way, GF_HELLO_ASIDE);
    way->name[0] = '\0';
    if (!channel->by_name) gf_channel_name(channel, way->name);
    gf_way_start(&channel->meet, way, channel->now_ns);
    way->next_ns = channel->now_ns + CHANNEL_ASIDE_NS;
}

void gf_channel_dial(struct gf_channel *base, uint64_t now_ns)
{
    struct channel *channel = (struct channel *)base;
    struct way *way = &channel->way;
    GF_ASSERT(!channel->setup.listens);
    channel->now_ns = now_ns;
    if ((base->fault.code != GF_OK) || way->on || (channel->conns[0].state == CONN_UP)) return;
    hello_set(channel, way, 0);
    way->name[0] = '\0';
    if (channel->by_name) gf_channel_name(channel, way->name);
    gf_way_start(&channel->meet, way, now_ns);
    if (channel->unmet_ns != 0) return;
    channel->unmet_ns = now_ns;
    aside_begin(channel);
}

void gf_channel_dial_close(struct channel *channel)
{
    gf_way_end(&channel->meet, &channel->way);
    gf_way_end(&channel->meet, &channel->aside);
}

/* ---- what it comes to ---- */

static told came_in(struct channel *channel, struct gf_channel_event *event_out)
{
    struct way *way = &channel->way;
    if (channel->conns[0].state == CONN_LEAVING) gf_conn_close(channel, &channel->conns[0]);
    struct conn *conn = gf_conn_up(channel, way->fd, &way->mac_in, &way->mac_out);
    gf_channel_dial_close(channel);
    if (conn == NULL) return TOLD_NOTHING; /* epoll has failed, and the channel with it */
    channel->met = true;
    channel->unmet_ns = 0;
    channel->aside_text[0] = channel->other_job[0] = '\0';
    *event_out = (struct gf_channel_event){.kind = GF_CHANNEL_CONNECTED};
    return TOLD_EVENT;
}

/* The default address, or 0.0.0.0, on a host where the coordinator is not. */
static bool is_this_host(const struct gf_place *place)
{
    static const struct gf_place any;
    return gf_place_is_loopback(place) || (memcmp(place->ip, any.ip, sizeof any.ip) == 0);
}

/* What else is known of why nobody is there. */
static void hint_put(const struct channel *channel, char *text_out, size_t bytes)
{
    text_out[0] = '\0';
    if (channel->aside_text[0] != '\0')
        (void)snprintf(text_out, bytes, "; and a process there says: %.120s", channel->aside_text);
    else if (channel->other_job[0] != '\0')
        (void)snprintf(text_out, bytes, "; job %.20s is there: do GF_JOB or MASTER_ADDR differ?",
                       channel->other_job);
    else if (!channel->met && is_this_host(&channel->address))
        (void)snprintf(text_out, bytes,
                       "; that address is this host: does the coordinator run here?");
}

static told dial_ended(struct channel *channel, gf_channel_end end,
                       struct gf_channel_event *event_out)
{
    char bind[INET6_ADDRSTRLEN] = "";
    char hint[160];
    const char *text = channel->way.text;
    if (channel->bind_to.family != 0)
        (void)inet_ntop(channel->bind_to.family, channel->bind_to.ip, bind, sizeof bind);
    hint_put(channel, hint, sizeof hint);
    if (text[0] == '\0') text = "no answer";
    if (channel->by_name) /* it names where that was */
        (void)snprintf(channel->text, sizeof channel->text, "%.150s%s", text, hint);
    else
        (void)snprintf(channel->text, sizeof channel->text, "%.60s%s%s: %.100s%s",
                       channel->meet.address_text,
                       (bind[0] != '\0') ? " from rendezvous.bind " : "", bind, text, hint);
    gf_way_end(&channel->meet, &channel->way);
    *event_out =
        (struct gf_channel_event){.kind = GF_CHANNEL_ENDED, .end = end, .text = channel->text};
    return TOLD_EVENT;
}

/* One that has met its coordinator has met another job's at this address: its own may come back. */
static told refused(struct channel *channel, struct gf_channel_event *event_out)
{
    struct way *way = &channel->way;
    if (channel->met) return dial_ended(channel, GF_CHANNEL_BROKE, event_out);
    (void)gf_fault_set(&channel->base.fault, GF_ERR_MISMATCH, GF_RANK_NONE, "", 0,
                       "the coordinator at %.60s refused this process: %s",
                       channel->meet.address_text, way->text);
    gf_channel_dial_close(channel);
    return TOLD_NOTHING;
}

/* A port that refuses before anybody was met says that the coordinator has not begun. */
static told way_take(struct channel *channel, way_news news, struct gf_channel_event *event_out)
{
    struct way *way = &channel->way;
    if (news == MEET_WAY_IN) return came_in(channel, event_out);
    if (news == MEET_WAY_REFUSED) return refused(channel, event_out);
    if ((news == MEET_WAY_ENDED) && (way->error == ECONNREFUSED))
        return dial_ended(channel, channel->met ? GF_CHANNEL_DIED : GF_CHANNEL_BROKE, event_out);
    if ((news != MEET_WAY_NOTHING) && !gf_way_has_tries(way))
        return dial_ended(channel, GF_CHANNEL_BROKE, event_out);
    return TOLD_NOTHING;
}

/* Anybody may listen at a port, and at the name another job of this user: so it ends nothing. */
static void aside_take(struct channel *channel, way_news news)
{
    struct way *way = &channel->aside;
    if (news == MEET_WAY_IN) gf_socket_close(&way->fd);
    if ((news != MEET_WAY_REFUSED) || (channel->aside_text[0] != '\0')) return;
    memcpy(channel->aside_text, way->text, sizeof channel->aside_text);
    gf_log_line(&channel->setup.log, GF_LOG_WARN, "control channel: a process at %.60s says: %s",
                (way->name[0] != '\0') ? way->name : channel->meet.address_text,
                channel->aside_text);
}

/* Members with another job id (GF_JOB, or none) go to another name, and the coordinator among them
 * gives up as this process does. */
static void others_look(struct channel *channel)
{
    if (!channel->by_name || channel->met || channel->others_looked_for) return;
    if (channel->now_ns - channel->unmet_ns < CHANNEL_OTHERS_NS) return;
    channel->others_looked_for = true;
    gf_channel_other_job(channel, channel->other_job);
}

told gf_channel_dial_turn(struct channel *channel, struct gf_channel_event *event_out)
{
    struct way *way = &channel->way;
    if (channel->unmet_ns == 0) return TOLD_NOTHING;
    others_look(channel);
    aside_take(channel, gf_way_turn(&channel->meet, &channel->aside, channel->now_ns));
    if (!way->on) return TOLD_NOTHING;
    if (gf_way_has_tries(way) && (channel->now_ns - way->began_ns >= CHANNEL_DIAL_NS)) {
        (void)snprintf(way->text, sizeof way->text, "no answer for %u ms",
                       (unsigned)((channel->now_ns - way->began_ns) / 1000000u));
        return dial_ended(channel, GF_CHANNEL_BROKE, event_out);
    }
    return way_take(channel, gf_way_turn(&channel->meet, way, channel->now_ns), event_out);
}

told gf_channel_try_take(struct channel *channel, uint32_t about,
                         struct gf_channel_event *event_out)
{
    uint32_t number = (about & ~MEET_ABOUT_TRY) / MEET_TRIES_MAX;
    uint32_t slot = about % MEET_TRIES_MAX;
    struct way *way = (number == WAY_JOB) ? &channel->way : &channel->aside;
    way_news news = gf_way_take(&channel->meet, way, slot, channel->now_ns);
    if (number == WAY_JOB) return way_take(channel, news, event_out);
    aside_take(channel, news);
    return TOLD_NOTHING;
}
