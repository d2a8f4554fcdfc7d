/* A rank on its way to rank 0, or to whoever coordinates later: it tries until the deadline. */
#include "drivers/tcp/rendezvous_tcp_state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "drivers/address.h"

bool gf_tcp_address_fits(const struct tcp *tcp, const char *text)
{
    struct gf_place to;
    if (tcp->by_name) return (text[0] == '@') && (strlen(text) < sizeof tcp->way.name);
    return gf_place_parse_told(text, tcp->job_address.scope, &to);
}

static void hello_set(const struct tcp *tcp, struct way *way, uint32_t flags)
{
    way->kind = GF_FRAME_HELLO;
    way->from = tcp->bind_to;
    way->auth = tcp->auth;
    way->words[0] = GF_VERSION;
    way->words[1] = tcp->setup.rank;
    way->words[2] = tcp->setup.world;
    way->words[3] = (tcp->auth.on ? GF_HELLO_KEYED : 0) | flags;
}

/* rank GF_RANK_NONE: whoever listens there */
static void way_to(struct tcp *tcp, struct way *way, uint32_t rank, const char *text,
                   uint64_t now_ns)
{
    gf_way_close(tcp, way);
    (void)snprintf(way->name, sizeof way->name, "%.63s", tcp->by_name ? text : "");
    if (!tcp->by_name) (void)gf_place_parse_told(text, tcp->job_address.scope, &way->to);
    hello_set(tcp, way, tcp->rejoins ? GF_HELLO_REJOINS : tcp->reformed ? GF_HELLO_MEMBER : 0);
    way->to_rank = rank;
    gf_way_begin(tcp, way, now_ns);
}

/* Where rank 0 of a job with another key or `insecure` than this rank's would be: at the unix socket
 * in place of the port, or the other way round. */
static void aside_begin(struct tcp *tcp, uint64_t now_ns)
{
    struct way *way = &tcp->aside;
    gf_way_close(tcp, way);
    tcp->aside_text[0] = tcp->sent_on[0] = '\0';
    if (tcp->reformed || tcp->rejoins || !gf_place_is_loopback(&tcp->job_address) ||
        ((tcp->bind_to.family != 0) && !gf_place_is_loopback(&tcp->bind_to)))
        return;
    hello_set(tcp, way, GF_HELLO_ASIDE);
    way->to = tcp->job_address;
    way->to_rank = 0;
    way->name[0] = '\0';
    if (!tcp->by_name) gf_tcp_job_name(tcp, way->name);
    gf_way_begin(tcp, way, now_ns);
    way->next_ns = now_ns + TCP_ASIDE_NS;
}

void gf_tcp_connect_to(struct tcp *tcp, uint32_t rank, const char *text, uint64_t now_ns)
{
    way_to(tcp, &tcp->way, rank, text, now_ns);
    tcp->not_now[0] = '\0';
    aside_begin(tcp, now_ns);
}

/* What listens at a way's end is a member, and says where the coordinator is. That one may be busy,
 * stopped or dead, and its silence says nothing: so this rank asks there as well, and goes on to ask
 * at the job's address. Both ways may lead to the same process: one nonce. */
static void go_on(struct tcp *tcp, const char *text, uint64_t now_ns)
{
    char address[GF_CONTROL_ADDRESS_BYTES];
    (void)snprintf(address, sizeof address, "%.63s", text);
    if (!tcp->rejoins || !gf_tcp_address_fits(tcp, address)) return;
    if (strcmp(address, tcp->sent_on) == 0) return;
    memcpy(tcp->sent_on, address, sizeof address);
    tcp->not_now[0] = '\0';
    way_to(tcp, &tcp->aside, GF_RANK_NONE, address, now_ns);
    memcpy(tcp->aside.nonce, tcp->way.nonce, sizeof tcp->aside.nonce);
}

static tcp_told came_in(struct tcp *tcp, struct way *way, struct gf_rendezvous_event *event_out)
{
    bool up = gf_tcp_conn_up(tcp, way->from_rank, way->fd, &way->mac_in, &way->mac_out);
    gf_auth_forget(&way->mac_in, sizeof way->mac_in);
    gf_auth_forget(&way->mac_out, sizeof way->mac_out);
    if (!up) return TCP_TOLD_NOTHING;
    if (way == &tcp->aside) memcpy(tcp->address_text, tcp->sent_on, sizeof tcp->sent_on);
    if (way->name[0] != '\0')
        memcpy(tcp->coordinator_text, way->name, sizeof tcp->coordinator_text);
    else
        gf_socket_address_text(&way->to, tcp->coordinator_text, sizeof tcp->coordinator_text);
    gf_way_close(tcp, &tcp->way);
    gf_way_close(tcp, &tcp->aside);
    tcp->coordinator = way->from_rank;
    tcp->reformed = tcp->reformed || tcp->rejoins;
    tcp->rejoins = false;
    gf_tcp_listen(tcp);
    gf_tcp_held_send_on(tcp);
    *event_out =
        (struct gf_rendezvous_event){.kind = GF_RENDEZVOUS_CONNECTED, .rank = tcp->coordinator};
    return TCP_TOLD_EVENT;
}

/* In a view change others may be the way. */
static tcp_told given_up(struct tcp *tcp, gf_rendezvous_end end, const char *text,
                         struct gf_rendezvous_event *event_out)
{
    gf_way_close(tcp, &tcp->way);
    (void)gf_tcp_because(tcp, GF_ERR_PEER, "%s", text);
    return gf_tcp_ended(tcp, &tcp->conns[tcp->coordinator], end, event_out);
}

/* Who comes back does not know who coordinates. */
static const char *coordinator_text(const struct tcp *tcp)
{
    return tcp->rejoins ? "the coordinator" : "rank 0";
}

/* The default address, or 0.0.0.0, on a host where rank 0 is not. */
static bool is_this_host(const char *address)
{
    static const struct gf_place any;
    struct gf_place place;
    if (!gf_place_parse(address, true, &place)) return false;
    return gf_place_is_loopback(&place) || (memcmp(place.ip, any.ip, sizeof any.ip) == 0);
}

/* Where it was looked for last. */
static const char *asked_text(const struct tcp *tcp)
{
    return (tcp->sent_on[0] != '\0') ? tcp->sent_on : tcp->address_text;
}

static tcp_told refused(struct tcp *tcp, struct way *way, struct gf_rendezvous_event *event_out)
{
    if (way->code == GF_ERR_STATE) {
        memcpy(tcp->not_now, way->text, sizeof tcp->not_now);
        if ((way == &tcp->aside) || (tcp->sent_on[0] == '\0')) return TCP_TOLD_NOTHING;
        gf_way_close(tcp, &tcp->aside); /* what listens at the job's address coordinates */
        tcp->sent_on[0] = '\0';
        return TCP_TOLD_NOTHING;
    }
    if (tcp->reformed) return given_up(tcp, GF_END_LEFT, way->text, event_out);
    (void)gf_tcp_failed(tcp, gf_tcp_because(tcp, GF_ERR_MISMATCH, "%s at %.60s refused rank %u: %s",
                                            coordinator_text(tcp),
                                            (way == &tcp->way) ? tcp->address_text : tcp->sent_on,
                                            tcp->setup.rank, way->text));
    gf_way_close(tcp, way);
    return TCP_TOLD_NOTHING;
}

static tcp_told news_take(struct tcp *tcp, struct way *way, way_news news, uint64_t now_ns,
                          struct gf_rendezvous_event *event_out)
{
    bool asked = (way == &tcp->aside) || (tcp->sent_on[0] == '\0');
    if (asked && ((news == TCP_WAY_STRANGER) || (news == TCP_WAY_ENDED))) tcp->not_now[0] = '\0';
    switch (news) {
    case TCP_WAY_IN: return came_in(tcp, way, event_out);
    case TCP_WAY_REFUSED: return refused(tcp, way, event_out);
    case TCP_WAY_ELSEWHERE: go_on(tcp, way->text, now_ns); break;
    case TCP_WAY_STRANGER:
        return tcp->reformed ? given_up(tcp, GF_END_LEFT, way->text, event_out) : TCP_TOLD_NOTHING;
    case TCP_WAY_ENDED:
        if (!tcp->reformed) break;
        if (way->error == ECONNREFUSED)
            return given_up(tcp, GF_END_GONE, "connection refused", event_out);
        if ((way->error == ETIMEDOUT) || (way->error == EHOSTUNREACH))
            return given_up(tcp, GF_END_CUT, "its host does not answer", event_out);
        break;
    case TCP_WAY_NOTHING: break;
    }
    return TCP_TOLD_NOTHING;
}

/* Anybody may listen at a port, and at the name another job of this user: so it ends nothing. */
static tcp_told aside_take(struct tcp *tcp, way_news news, uint64_t now_ns,
                           struct gf_rendezvous_event *event_out)
{
    struct way *way = &tcp->aside;
    if (tcp->rejoins) return news_take(tcp, way, news, now_ns, event_out);
    if (news == TCP_WAY_IN) gf_socket_close(&way->fd);
    if ((news != TCP_WAY_REFUSED) || (tcp->aside_text[0] != '\0')) return TCP_TOLD_NOTHING;
    memcpy(tcp->aside_text, way->text, sizeof tcp->aside_text);
    gf_log_line(&tcp->setup.log, GF_LOG_WARN, "rank %u: a process at %.60s says: %s",
                tcp->setup.rank, (way->name[0] != '\0') ? way->name : tcp->address_text,
                tcp->aside_text);
    return TCP_TOLD_NOTHING;
}

tcp_told gf_tcp_aside_event(struct tcp *tcp, uint32_t slot, uint64_t now_ns,
                            struct gf_rendezvous_event *event_out)
{
    return aside_take(tcp, gf_way_event(tcp, &tcp->aside, slot, now_ns), now_ns, event_out);
}

tcp_told gf_tcp_connect_poll(struct tcp *tcp, uint64_t now_ns,
                             struct gf_rendezvous_event *event_out)
{
    struct way *way = &tcp->way;
    if (way->on && tcp->reformed && !way->reached && (now_ns - way->began_ns >= TCP_UNREACHED_NS))
        return given_up(tcp, GF_END_CUT, "its host does not answer", event_out);
    if (way->on && tcp->reformed && way->reached && !way->heard &&
        (now_ns - way->reached_ns >= TCP_UNHEARD_NS))
        return given_up(tcp, GF_END_SILENT, "what listens at its port says nothing", event_out);
    if (aside_take(tcp, gf_way_poll(tcp, &tcp->aside, now_ns), now_ns, event_out) == TCP_TOLD_EVENT)
        return TCP_TOLD_EVENT;
    return news_take(tcp, way, gf_way_poll(tcp, way, now_ns), now_ns, event_out);
}

/* Ranks with another job id (GF_JOB, or none) go to another name, and rank 0 among them gives up as
 * this rank does: it is looked for after half of the time. */
static void other_job_look(struct tcp *tcp, uint64_t passed_ns)
{
    if (!tcp->by_name || tcp->rejoins || tcp->others_looked_for ||
        (passed_ns < tcp->setup.join_timeout_ns / 2))
        return;
    tcp->others_looked_for = true;
    gf_tcp_other_job(tcp, tcp->other_job);
}

void gf_tcp_connect_deadline(struct tcp *tcp, uint64_t now_ns)
{
    const struct way *way = &tcp->way;
    char bind[INET6_ADDRSTRLEN] = "";
    uint64_t passed_ns = now_ns - tcp->opened_ns;
    double seconds = (double)passed_ns / 1e9;
    bool talks = false;
    if (!way->on || tcp->reformed) return;
    other_job_look(tcp, passed_ns);
    if (passed_ns < tcp->setup.join_timeout_ns) return;
    if (tcp->bind_to.family != 0)
        (void)inet_ntop(tcp->bind_to.family, tcp->bind_to.ip, bind, sizeof bind);
    for (uint32_t i = 0; i < TCP_TRIES_MAX; i++)
        talks = talks || (way->tries[i].state >= TCP_TRY_NONCE);
    if (tcp->not_now[0] != '\0')
        (void)gf_tcp_failed(tcp, gf_tcp_because(tcp, GF_ERR_MISMATCH,
                                                "%s at %.60s refused rank %u for %.1f s: %s",
                                                coordinator_text(tcp), asked_text(tcp),
                                                tcp->setup.rank, seconds, tcp->not_now));
    else if (tcp->aside_text[0] != '\0')
        (void)gf_tcp_failed(tcp, gf_tcp_because(tcp, GF_ERR_MISMATCH,
                                                "rank %u did not meet rank 0 at %.60s in %.1f s, "
                                                "and a process there says: %s",
                                                tcp->setup.rank, tcp->address_text, seconds,
                                                tcp->aside_text));
    else if (tcp->sent_on[0] != '\0')
        (void)gf_tcp_failed(
            tcp, gf_tcp_because(
                     tcp, GF_ERR_TIMEOUT,
                     "rank %u did not meet the coordinator in %.1f s: a member said that it is at "
                     "%.63s, and there: %.60s",
                     tcp->setup.rank, seconds, tcp->sent_on,
                     (tcp->aside.text[0] != '\0') ? tcp->aside.text : "no answer"));
    else if (talks)
        (void)gf_tcp_failed(tcp, gf_tcp_because(tcp, GF_ERR_TIMEOUT,
                                                "%s at %.60s took the connection and then said "
                                                "nothing for %.1f s",
                                                coordinator_text(tcp), tcp->address_text, seconds));
    else if (tcp->other_job[0] != '\0')
        (void)gf_fault_set(&tcp->base.fault, GF_ERR_TIMEOUT, 0, "connect", way->error,
                           "rank %u of job %" PRIu64 " did not meet rank 0 at %.60s in %.1f s, and "
                           "job %.20s is there: is GF_JOB the same on all ranks, and "
                           "MASTER_ADDR?",
                           tcp->setup.rank, tcp->setup.job_id, tcp->address_text, seconds,
                           tcp->other_job);
    else
        (void)gf_fault_set(
            &tcp->base.fault, GF_ERR_TIMEOUT, 0, "connect", way->error,
            "rank %u cannot reach %s at %s%s%s: tried %u times in %.1f s, last: %s%s",
            tcp->setup.rank, coordinator_text(tcp), tcp->address_text,
            (bind[0] != '\0') ? " from rendezvous.bind " : "", bind, way->tried, seconds,
            (way->text[0] != '\0') ? way->text : "no answer",
            is_this_host(tcp->address_text) ? "; that address is this host itself: is rank 0 here?"
                                            : "");
}

tcp_told gf_tcp_connect_event(struct tcp *tcp, uint32_t slot, uint64_t now_ns,
                              struct gf_rendezvous_event *event_out)
{
    struct way *way = &tcp->way;
    return news_take(tcp, way, gf_way_event(tcp, way, slot, now_ns), now_ns, event_out);
}

/* What was said when this rank came in holds no longer: it was slow to speak, and another process
 * claimed its rank, or what it offered does not fit. Only rank 0 of a job without a key says so, in
 * the first join. */
void gf_tcp_connect_taken_back(struct tcp *tcp, struct conn *conn, uint64_t now_ns)
{
    struct way *way = &tcp->way;
    char reason[GF_FRAME_REASON_BYTES];
    if (tcp->reformed || conn->authenticated) return;
    way->code = gf_talk_refusal_get(conn->in + GF_FRAME_HEADER_BYTES, reason);
    if (way->code == GF_OK) return;
    gf_tcp_conn_close(conn);
    gf_tcp_conn_init(conn, TCP_CONN_NONE);
    way->auth = tcp->auth;
    gf_way_begin(tcp, way, now_ns);
    way->next_ns += way->retry_ns;
    memcpy(way->text, reason, sizeof way->text);
    struct gf_rendezvous_event none;
    (void)refused(tcp, way, &none); /* this rank's epoch has not begun, so nothing is told */
}
