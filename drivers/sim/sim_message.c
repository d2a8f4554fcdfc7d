/* A message from its post to its landing, and how it finds its receive.
 *
 *     post -> out port free -> SEND_END                     the sender's port: message_ns + bytes /
 *                                                           rate
 *                    \-- latency + jitter -> ARRIVE -> LAND  the receiver's port: bytes / rate
 *
 *                    \-- CLIMB -- latency + jitter -> ARRIVE  likewise by way of the upper tier:
 *                                                             both leaves' ports
 *
 * The ports are cut-through: both are busy with the same bytes, one latency apart, so a lone
 * message takes latency + bytes / rate. The receiver's port is taken at ARRIVE and not at the post:
 * otherwise a message that waits for its sender's port would delay those that arrive before it. */
#include "drivers/base/fnv.h"
#include "drivers/sim/sim_state.h"

#include <stdlib.h>
#include <string.h>

/* A duplicate that met no receive is dropped after this many more landings: before tags come round
 * again. */
#define COPY_LANDINGS_MAX 1024u

static bool tag_has_data(const struct gf_sim *sim, uint64_t tag)
{
    return !sim->setup.no_data || (((tag >> GF_TAG_MESSAGE_BITS) & GF_TAG_BUFFER_OTHER) != 0);
}

static struct sim_message *message_new(size_t payload_bytes)
{
    struct sim_message *message = malloc(sizeof *message + payload_bytes);
    GF_ASSERT(message != NULL);
    return message;
}

void sim_message_release(struct sim_message *message)
{
    GF_ASSERT(message->holders > 0);
    if (--message->holders > 0) return;
    if (message->bound != NULL) message->bound->message = NULL;
    free(message);
}

/* Between a message and a rank's memory. */
static void bytes_move(const struct sim_rank *self, bool to_rank, gf_mem data, void *payload,
                       size_t size_bytes)
{
    const struct sim_link *link = self->link;
    bool is_device = (link != NULL) && (data - link->setup.device < link->setup.device_bytes);
    void *memory = (void *)(uintptr_t)data;
    void *dst = to_rank ? memory : payload;
    void *src = to_rank ? payload : memory;
    void (*copy)(bool, void *, const void *, size_t) =
        is_device ? self->sim->setup.device_copy : NULL;
    if (copy != NULL)
        copy(to_rank, dst, src, size_bytes);
    else
        memcpy(dst, src, size_bytes);
}

/* The bytes are read from the sender's memory as late as possible, so that a sender which writes
 * to it too early is found. */
static void message_load(struct gf_sim *sim, struct sim_message *message)
{
    if (message->is_loaded || !message->has_data || (message->send == NULL)) return;
    bytes_move(&sim->ranks[message->sender], false, message->send->data, message->payload,
               message->size_bytes);
    message->is_loaded = true;
}

static uint64_t latency_ns(struct gf_sim *sim, bool is_node)
{
    return (is_node ? sim->setup.node_latency_ns : sim->setup.latency_ns) +
           sim_random_to(sim, sim->setup.jitter_ns);
}

static void message_climb(struct gf_sim *sim, struct sim_message *message)
{
    struct sim_port *leaf = sim->ranks[message->sender].leaf;
    uint64_t start_ns = sim_port_take(&leaf->out_free_ns, sim->now_ns, sim_climb_ns(sim, message));
    sim_event_push(sim, start_ns + latency_ns(sim, false), SIM_ARRIVE, message);
}

static double times(double slow)
{
    return (slow > 1) ? slow : 1;
}

/* The time that a message takes in the receiver's port, from that which it took in the sender's. */
static uint64_t in_span_ns(const struct gf_sim *sim, const struct sim_message *message,
                           uint64_t span_ns)
{
    double more = times(sim->ranks[message->to].slow) / times(sim->ranks[message->sender].slow);
    return (message->is_node || (more <= 1)) ? span_ns : (uint64_t)((double)span_ns * more);
}

void sim_message_send(struct sim_rank *self, struct sim_request *request,
                      const struct sim_peer *peer, const struct gf_sim_fault *fault)
{
    struct gf_sim *sim = self->sim;
    const uint32_t to = peer->proc;
    bool has_data = (request->size_bytes > 0) && tag_has_data(sim, request->entry.tag);
    struct sim_message *message = message_new(has_data ? request->size_bytes : 0);
    *message =
        (struct sim_message){.entry = {.tag = request->entry.tag, .from = self->link->setup.rank},
                             .sender = self->rank,
                             .send = request,
                             .size_bytes = request->size_bytes,
                             .has_data = has_data,
                             .to = to,
                             .to_life = peer->life,
                             .fault = fault->kind,
                             .delay_ns = fault->delay_ns,
                             .is_node = sim_same_node(sim, self->rank, to),
                             .holders = 2};
    double rate = message->is_node ? sim->setup.node_bytes_per_ns : sim->setup.bytes_per_ns;
    struct sim_port *port = message->is_node ? &self->ports[1] : self->port;
    if (message->fault == GF_SIM_FAULT_NONE) {
        if (sim_chance(sim, sim->setup.drop_rate))
            message->fault = GF_SIM_FAULT_DROP;
        else if (sim_chance(sim, sim->setup.duplicate_rate))
            message->fault = GF_SIM_FAULT_DUPLICATE;
    }
    if (rate > 0.0) message->transfer_ns = (uint64_t)((double)message->size_bytes / rate + 0.5);
    if (!message->is_node && (self->slow > 1))
        message->transfer_ns = (uint64_t)((double)message->transfer_ns * self->slow);
    uint64_t start_ns = sim_port_take(&port->out_free_ns, gf_sim_free_ns(sim, self->rank),
                                      sim->setup.message_ns + message->transfer_ns);
    request->message = message;
    sim_event_push(sim, port->out_free_ns, SIM_SEND_END, message);
    if (sim_climb_ns(sim, message) > 0)
        sim_event_push(sim, start_ns, SIM_CLIMB, message);
    else
        sim_event_push(sim, start_ns + latency_ns(sim, message->is_node), SIM_ARRIVE, message);
}

/* ---- buckets ---- */

static struct sim_bucket *bucket_of(struct sim_rank *self, const struct sim_entry *entry)
{
    uint64_t hash = gf_fnv_word(gf_fnv_word(GF_FNV_START, entry->tag), entry->from);
    return &self->buckets[(hash >> 40) % SIM_BUCKETS]; /* the low bits of a word reach these */
}

static void entry_add(struct sim_entry **at, struct sim_entry *entry)
{
    while (*at != NULL) at = &(*at)->next;
    entry->next = NULL;
    *at = entry;
}

/* Takes the first one out that meets `entry`; NULL: none does. */
static void *entry_take(struct sim_entry **at, const struct sim_entry *entry)
{
    while ((*at != NULL) && (((*at)->tag != entry->tag) || ((*at)->from != entry->from)))
        at = &(*at)->next;
    struct sim_entry *found = *at;
    if (found != NULL) *at = found->next;
    return found;
}

static void posted_add(struct sim_rank *self, struct sim_request *request)
{
    entry_add(&bucket_of(self, &request->entry)->posted, &request->entry);
}

static struct sim_request *posted_take(struct sim_rank *self, const struct sim_message *message)
{
    return entry_take(&bucket_of(self, &message->entry)->posted, &message->entry);
}

void sim_receive_withdraw(struct sim_rank *self, struct sim_request *request)
{
    struct sim_entry **at = &bucket_of(self, &request->entry)->posted;
    while (*at != &request->entry) {
        GF_ASSERT(*at != NULL);
        at = &(*at)->next;
    }
    *at = request->entry.next;
}

static void unexpected_drop(struct sim_rank *self, bool only_old_copies)
{
    for (uint32_t i = 0; i < SIM_BUCKETS; i++) {
        struct sim_entry **at = &self->buckets[i].unexpected;
        while (*at != NULL) {
            struct sim_message *message = (struct sim_message *)*at;
            if (only_old_copies &&
                (!message->is_copy || (self->landed - message->landed < COPY_LANDINGS_MAX))) {
                at = &message->entry.next;
                continue;
            }
            *at = message->entry.next;
            sim_message_release(message);
        }
    }
}

void sim_unexpected_clear(struct sim_rank *self)
{
    unexpected_drop(self, false);
}

/* ---- landing ---- */

static void message_copy(struct gf_sim *sim, struct sim_message *message)
{
    size_t payload_bytes = message->has_data ? message->size_bytes : 0;
    struct sim_message *copy = message_new(payload_bytes);
    message_load(sim, message);
    memcpy(copy, message, sizeof *message + payload_bytes);
    copy->send = NULL;
    copy->bound = NULL;
    copy->fault = GF_SIM_FAULT_NONE;
    copy->is_copy = true;
    copy->holders = 1;
    sim_event_push(sim, sim->now_ns + latency_ns(sim, message->is_node), SIM_LAND, copy);
}

/* False: the fault has dropped or delayed the message. A delayed one arrives again as an event of
 * `kind`. */
static bool message_survives(struct gf_sim *sim, struct sim_message *message,
                             gf_sim_fault_kind fault, uint64_t delay_ns, enum sim_event_kind kind)
{
    switch (fault) {
    case GF_SIM_FAULT_DROP: sim_message_release(message); return false;
    case GF_SIM_FAULT_DELAY:
        sim_event_push(sim, sim->now_ns + delay_ns, kind, message);
        return false;
    case GF_SIM_FAULT_DUPLICATE: message_copy(sim, message); return true;
    case GF_SIM_FAULT_SHORT:
        message_load(sim, message);
        message->size_bytes = (message->size_bytes > 0) ? message->size_bytes - 1 : 1;
        return true;
    default: return true;
    }
}

/* The message has met its receive, which is in no bucket. */
static void message_deliver(struct sim_rank *self, struct sim_message *message,
                            struct sim_request *request)
{
    gf_sim_fault_kind fault = request->fault;
    gf_status status = GF_OK;
    request->fault = GF_SIM_FAULT_NONE;
    request->message = NULL;
    request->is_bound = false;
    message->bound = NULL;
    message_load(self->sim, message);
    if (!message_survives(self->sim, message, fault, request->delay_ns, SIM_LAND)) {
        posted_add(self, request);
        return;
    }
    if (message->size_bytes != request->size_bytes) {
        status = gf_fault_set(&self->link->base.fault, GF_ERR_MISMATCH, message->entry.from, "recv",
                              0, "rank %u sent %zu bytes with tag 0x%llx where rank %u wants %zu",
                              message->entry.from, message->size_bytes,
                              (unsigned long long)message->entry.tag, self->link->setup.rank,
                              request->size_bytes);
    } else if (message->has_data) {
        bytes_move(self, true, request->data, message->payload, message->size_bytes);
    }
    sim_request_end(self, request, status);
    sim_message_release(message);
}

static void message_land(struct sim_rank *self, struct sim_message *message)
{
    struct sim_request *request = message->bound;
    message_load(self->sim, message);
    if (message->fault == GF_SIM_FAULT_DUPLICATE) {
        message->fault = GF_SIM_FAULT_NONE;
        message_copy(self->sim, message);
    }
    if (++self->landed % COPY_LANDINGS_MAX == 0) unexpected_drop(self, true);
    if (request == NULL) request = posted_take(self, message);
    if (request != NULL) {
        message_deliver(self, message, request);
        return;
    }
    message->landed = self->landed;
    entry_add(&bucket_of(self, &message->entry)->unexpected, &message->entry);
}

static void message_arrive(struct sim_rank *self, struct sim_message *message)
{
    struct gf_sim *sim = self->sim;
    struct sim_port *port = message->is_node ? &self->ports[1] : self->port;
    gf_sim_fault_kind fault = message->fault;
    /* a copy is made at the landing, so that it never comes first */
    if (fault != GF_SIM_FAULT_DUPLICATE) {
        message->fault = GF_SIM_FAULT_NONE;
        if (!message_survives(sim, message, fault, message->delay_ns, SIM_ARRIVE)) return;
    }
    uint64_t climb = sim_climb_ns(sim, message);
    uint64_t span_ns = (message->transfer_ns > climb) ? message->transfer_ns : climb;
    uint64_t from_ns =
        (climb > 0) ? sim_port_take(&self->leaf->in_free_ns, sim->now_ns, climb) : sim->now_ns;
    span_ns = in_span_ns(sim, message, span_ns);
    (void)sim_port_take(&port->in_free_ns, from_ns, span_ns);
    if (sim->setup.bind_receives) {
        struct sim_request *request = posted_take(self, message);
        if (request != NULL) {
            request->is_bound = true;
            request->message = message;
            message->bound = request;
        }
    }
    if (port->in_free_ns > sim->now_ns)
        sim_event_push(sim, port->in_free_ns, SIM_LAND, message);
    else
        message_land(self, message);
}

static void message_leave(struct gf_sim *sim, struct sim_message *message)
{
    struct sim_request *request = message->send;
    message_load(sim, message);
    message->send = NULL;
    if (request != NULL) {
        request->message = NULL;
        if (!sim->ranks[message->sender].is_dead)
            sim_request_end(&sim->ranks[message->sender], request, GF_OK);
    }
    sim_message_release(message);
}

/* Its sender has died, or the life of the link that it was sent to has ended. */
static bool is_lost(const struct gf_sim *sim, const struct sim_message *message)
{
    const struct sim_rank *to = &sim->ranks[message->to];
    return message->is_lost || sim->ranks[message->sender].is_dead || to->is_dead ||
           (to->link == NULL) || (to->life != message->to_life);
}

void sim_message_happen(struct gf_sim *sim, enum sim_event_kind kind, struct sim_message *message)
{
    struct sim_rank *to = &sim->ranks[message->to];
    if (kind == SIM_SEND_END)
        message_leave(sim, message);
    else if (is_lost(sim, message))
        sim_message_release(message);
    else if (kind == SIM_CLIMB)
        message_climb(sim, message);
    else if (kind == SIM_LAND)
        message_land(to, message);
    else if (!sim_stream_keeps(sim, message))
        message_arrive(to, message);
}

void sim_message_arrive(struct gf_sim *sim, struct sim_message *message)
{
    if (is_lost(sim, message))
        sim_message_release(message);
    else
        message_arrive(&sim->ranks[message->to], message);
}

void sim_receive(struct sim_rank *self, struct sim_request *request)
{
    struct sim_message *message =
        entry_take(&bucket_of(self, &request->entry)->unexpected, &request->entry);
    if (message != NULL)
        message_deliver(self, message, request);
    else
        posted_add(self, request);
}
