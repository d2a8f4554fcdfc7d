/* Networks that lose packets, as TCP shows them: what is lost is sent again 0.2 s later, and then
 * after twice as long each time. What arrived after it is kept until it has arrived. A receiver's
 * kernel acknowledges, whatever its process does; acknowledgements are lost as messages are.
 *
 *     a message arrives ----> lost? ------------------------> kept at the head of its stream
 *                       \---> another one is kept? ---------> kept behind it
 *                        \--> it lands;  acknowledged? no --> the stream waits for that alone
 *
 * A connection is dialled each 0.2 s until a packet passes in both directions.
 *
 *     0.2, 0.6, 1.4 s .. since anything was acknowledged: the head is sent again, or the last one
 *
 * A rank knows only what its kernel counts: the retransmissions since anything was acknowledged.
 * Messages that a fault drops (gf_sim_fault) are not lost by a network, and no kernel counts
 * them. */
#include "drivers/sim/sim_state.h"

#include <stdlib.h>
#include <string.h>

#define RTO_NS UINT64_C(200000000)
#define RESENT_MIN 2u
#define RESENT_MAX 15u /* then a kernel gives the connection up; here nothing more is tried */
#define SILENT_MIN_NS UINT64_C(1000000000) /* and of exchange.timeout: tcp/link_tcp_evidence.c */

/* What one process sends to another. */
struct sim_stream {
    struct sim_message *first, *last; /* kept: by entry.next */
    bool waits;          /* for an acknowledgement; so it does while something is kept */
    uint64_t since_ns;   /* of waiting, or of the last acknowledgement while it waits */
    uint64_t due_ns;     /* of the next retransmission; 0: none is */
    uint32_t resent;     /* since then */
    uint64_t dialled_ns; /* + 1: dialled since then; 0: not dialled, or connected */
    uint64_t dial_ns;    /* the next try */
    uint32_t from, to;
};

void sim_streams_make(struct gf_sim *sim)
{
    uint32_t count = sim->proc_count;
    if (sim->streams != NULL) return;
    sim->streams = calloc((size_t)count * count, sizeof *sim->streams);
    GF_ASSERT(sim->streams != NULL);
    for (uint32_t from = 0; from < count; from++) {
        for (uint32_t to = 0; to < count; to++) {
            sim->streams[(size_t)from * count + to].from = from;
            sim->streams[(size_t)from * count + to].to = to;
        }
    }
}

static struct sim_stream *stream_of(const struct gf_sim *sim, uint32_t from, uint32_t to)
{
    return (sim->streams == NULL) ? NULL : &sim->streams[(size_t)from * sim->proc_count + to];
}

static double loss_of(const struct gf_sim *sim, uint32_t from, uint32_t to)
{
    return sim_are_cut(sim, from, to) ? 1 : sim_loss_rate(sim, from, to);
}

static void resend_at(struct gf_sim *sim, struct sim_stream *stream)
{
    if (stream->resent == RESENT_MAX) return;
    stream->due_ns = stream->since_ns + (RTO_NS << stream->resent) * 2 - RTO_NS;
    sim_event_push(sim, stream->due_ns, SIM_RESEND, stream);
}

static void waits_begin(struct gf_sim *sim, struct sim_stream *stream)
{
    stream->waits = true;
    stream->resent = 0;
    stream->since_ns = sim->now_ns;
    resend_at(sim, stream);
}

static void waits_end(struct sim_stream *stream)
{
    stream->waits = false;
    stream->due_ns = 0;
    stream->resent = 0;
}

static void keep(struct gf_sim *sim, struct sim_stream *stream, struct sim_message *message)
{
    message->entry.next = NULL;
    if (stream->last != NULL)
        stream->last->entry.next = &message->entry;
    else
        stream->first = message;
    stream->last = message;
    if (!stream->waits) waits_begin(sim, stream);
}

static struct sim_message *kept_take(struct sim_stream *stream)
{
    struct sim_message *message = stream->first;
    stream->first = (struct sim_message *)message->entry.next;
    if (stream->first == NULL) stream->last = NULL;
    message->entry.next = NULL;
    return message;
}

bool sim_stream_keeps(struct gf_sim *sim, struct sim_message *message)
{
    struct sim_stream *stream = stream_of(sim, message->sender, message->to);
    if ((stream == NULL) || message->is_node) return false;
    if (sim_chance(sim, loss_of(sim, stream->from, stream->to)) || (stream->first != NULL)) {
        keep(sim, stream, message);
        return true;
    }
    if (!sim_chance(sim, loss_of(sim, stream->to, stream->from)))
        waits_end(stream);
    else if (!stream->waits)
        waits_begin(sim, stream);
    return false;
}

/* What is kept lands, up to the next one that is lost. */
void sim_stream_happen(struct gf_sim *sim, struct sim_stream *stream)
{
    double loss = loss_of(sim, stream->from, stream->to);
    if (!stream->waits || (stream->due_ns != sim->now_ns)) return; /* an earlier wait's */
    stream->resent++;
    bool arrives = !sim_chance(sim, loss);
    bool acknowledged = arrives && !sim_chance(sim, loss_of(sim, stream->to, stream->from));
    for (bool lands = arrives; lands && (stream->first != NULL); lands = !sim_chance(sim, loss))
        sim_message_arrive(sim, kept_take(stream));
    if (!acknowledged) {
        resend_at(sim, stream);
        return;
    }
    waits_end(stream);
    if (stream->first != NULL) waits_begin(sim, stream);
}

bool sim_stream_connects(struct sim_rank *self, uint32_t proc)
{
    struct gf_sim *sim = self->sim;
    struct sim_stream *stream = stream_of(sim, self->rank, proc);
    if ((stream == NULL) || sim_same_node(sim, self->rank, proc)) return true;
    if ((stream->dialled_ns != 0) && (sim->now_ns < stream->dial_ns)) return false;
    if (!sim_chance(sim, loss_of(sim, self->rank, proc)) &&
        !sim_chance(sim, loss_of(sim, proc, self->rank))) {
        stream->dialled_ns = 0;
        return true;
    }
    if (stream->dialled_ns == 0) stream->dialled_ns = sim->now_ns + 1;
    stream->dial_ns = sim->now_ns + RTO_NS;
    sim_event_push(sim, stream->dial_ns, SIM_WAKE, self);
    return false;
}

static void stream_forget(struct sim_stream *stream)
{
    stream->dialled_ns = 0;
    while (stream->first != NULL) sim_message_release(kept_take(stream));
    waits_end(stream);
}

void sim_streams_forget(const struct sim_rank *self)
{
    const struct gf_sim *sim = self->sim;
    for (uint32_t other = 0; (sim->streams != NULL) && (other < sim->proc_count); other++) {
        stream_forget(stream_of(sim, self->rank, other));
        stream_forget(stream_of(sim, other, self->rank));
    }
}

/* A partition has ended: what was kept arrives now, in its order. What was sent since has not
 * arrived yet, so the order stays. */
void sim_streams_mend(struct gf_sim *sim, uint32_t a, uint32_t b)
{
    struct sim_stream *both[] = {stream_of(sim, a, b), stream_of(sim, b, a)};
    for (uint32_t i = 0; (sim->streams != NULL) && (i < 2); i++) {
        while (both[i]->first != NULL)
            sim_event_push(sim, sim->now_ns, SIM_ARRIVE, kept_take(both[i]));
        if (both[i]->dialled_ns != 0)
            sim_event_push(sim, sim->now_ns, SIM_WAKE, &sim->ranks[both[i]->from]);
        both[i]->dial_ns = sim->now_ns;
        waits_end(both[i]);
    }
}

void sim_streams_free(struct gf_sim *sim)
{
    for (uint32_t from = 0; (sim->streams != NULL) && (from < sim->proc_count); from++)
        sim_streams_forget(&sim->ranks[from]);
    free(sim->streams);
    sim->streams = NULL;
}

/* ---- what the kernel of a rank shows ---- */

static bool is_unreached(const struct sim_link *link, const struct sim_stream *stream,
                         uint32_t peer, struct gf_fault *fault_out)
{
    uint64_t since_ns = link->self->sim->now_ns + 1 - stream->dialled_ns;
    if ((stream->dialled_ns == 0) || (since_ns < SILENT_MIN_NS)) return false;
    (void)gf_fault_set(fault_out, GF_ERR_LINK, peer, "connect", 0,
                       "rank %u cannot connect to rank %u: no answer for %.1f s", link->setup.rank,
                       peer, (double)since_ns / 1e9);
    return true;
}

bool sim_edge_is_broken(struct gf_link *base, uint32_t peer, struct gf_fault *fault_out)
{
    const struct sim_link *link = sim_link(base);
    fault_out->code = GF_OK;
    if ((peer >= link->setup.world) || !link->peers[peer].is_dialled) return false;
    const struct sim_stream *stream =
        stream_of(link->self->sim, link->self->rank, link->peers[peer].proc);
    if (stream == NULL) return false;
    if (link->peers[peer].life == 0) return is_unreached(link, stream, peer, fault_out);
    if (!stream->waits || (stream->resent < RESENT_MIN)) return false;
    uint64_t still_ns = (RTO_NS << stream->resent) - RTO_NS;
    if ((still_ns < SILENT_MIN_NS) || (still_ns < link->setup.timeout_ns / 8 * 3)) return false;
    (void)gf_fault_set(
        fault_out, GF_ERR_LINK, peer, "", 0,
        "what rank %u sends to rank %u is not acknowledged for %.1f s, %u retransmits",
        link->setup.rank, peer, (double)still_ns / 1e9, stream->resent);
    return true;
}
