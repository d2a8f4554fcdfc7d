/* The control channel of states.h: connections of two pipes, whose frames and ends come when they are
 * chosen. As over TCP a coordinator has one connection of an id at a time, and a process that contacts
 * another closes what it had on purpose; all else that a network may do is left to the choice. */
#include "firmware-tests/states/states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct gf_rendezvous_event event; /* for the process whose turn it is; none between steps */
static bool has_event;
static unsigned char event_payload[STATES_FRAME_BYTES];

bool states_has_event(void)
{
    return has_event;
}

static uint32_t proc_of(const struct gf_rendezvous *rendezvous)
{
    return (uint32_t)((const struct states_proc *)rendezvous - states->procs);
}

/* ---- pipes ---- */

static void frames_drop(struct states_pipe *pipe)
{
    for (uint32_t i = 0; i < pipe->count; i++) states->frames[pipe->frames[i]].used = false;
    pipe->count = 0;
}

static void conn_free(struct states_conn *conn)
{
    if (!conn->pipe[0].closed || !conn->pipe[1].closed) return;
    frames_drop(&conn->pipe[0]);
    frames_drop(&conn->pipe[1]);
    memset(conn, 0, sizeof *conn);
}

/* The end at which this direction is read is closed; the other one will see why. */
static void end_close(struct states_conn *conn, uint32_t direction, states_end how)
{
    struct states_pipe *own = &conn->pipe[direction];
    struct states_pipe *other = &conn->pipe[1 - direction];
    if (own->closed) return;
    own->closed = true;
    frames_drop(own);
    if (other->end == STATES_OPEN) other->end = (uint8_t)how;
    conn_free(conn);
}

static void all_close(uint32_t proc, states_end how)
{
    for (uint32_t i = 0; i < STATES_CONNS; i++) {
        struct states_conn *conn = &states->conns[i];
        if (conn->used && (conn->acceptor == proc)) end_close(conn, STATES_TO_ACCEPTOR, how);
        if (conn->used && (conn->dialler == proc)) end_close(conn, STATES_TO_DIALLER, how);
    }
}

/* The connection of this process to that id which it has not closed, and the direction that it
 * writes; NULL: none. */
static struct states_conn *conn_find(uint32_t proc, uint32_t id, uint32_t *direction_out)
{
    for (uint32_t i = 0; i < STATES_CONNS; i++) {
        struct states_conn *conn = &states->conns[i];
        bool dials = conn->used && (conn->dialler == proc) && (states_id(conn->acceptor) == id);
        bool accepts = conn->used && (conn->acceptor == proc) && (states_id(conn->dialler) == id);
        *direction_out = dials ? STATES_TO_ACCEPTOR : STATES_TO_DIALLER;
        if ((dials || accepts) && !conn->pipe[1 - *direction_out].closed) return conn;
    }
    return NULL;
}

/* ---- what members call ---- */

static gf_status channel_send(struct gf_rendezvous *rendezvous, uint32_t to, uint32_t frame_kind,
                              const void *payload, uint32_t size_bytes)
{
    uint32_t direction;
    struct states_conn *conn = conn_find(proc_of(rendezvous), to, &direction);
    if ((conn == NULL) || !conn->pipe[1 - direction].opened) return GF_ERR_PEER;
    struct states_pipe *pipe = &conn->pipe[direction];
    uint32_t kind = frame_kind & ((1u << MEMBERS_KIND_BITS) - 1u);
    GF_ASSERT(size_bytes <= STATES_FRAME_BYTES);
    if (kind == MEMBERS_STATUS) return GF_OK; /* where a rank is in its step: nothing asks for it */
    if (pipe->closed || (pipe->end != STATES_OPEN)) return GF_OK; /* nobody will read it */
    if (pipe->count == STATES_PIPE) return GF_AGAIN;
    uint32_t at = 0;
    while ((at < STATES_FRAMES) && states->frames[at].used) at++;
    GF_ASSERT(at < STATES_FRAMES);
    states->frames[at] =
        (struct states_frame){.used = true, .size_bytes = (uint16_t)size_bytes, .kind = frame_kind};
    memcpy(states->frames[at].payload, payload, size_bytes);
    pipe->frames[pipe->count++] = (uint8_t)at;
    return GF_OK;
}

static gf_status channel_poll(struct gf_rendezvous *rendezvous, uint64_t now_ns,
                              struct gf_rendezvous_event *event_out)
{
    (void)rendezvous;
    (void)now_ns;
    if (!has_event) return GF_AGAIN;
    has_event = false;
    *event_out = event;
    return GF_OK;
}

static bool channel_flushed(struct gf_rendezvous *rendezvous)
{
    (void)rendezvous;
    return true;
}

static void channel_address(struct gf_rendezvous *rendezvous, char *text_out)
{
    (void)snprintf(text_out, GF_CONTROL_ADDRESS_BYTES, "10.0.0.%u:1", proc_of(rendezvous));
}

static gf_status channel_reform(struct gf_rendezvous *rendezvous, uint64_t now_ns,
                                uint32_t coordinator, const char *address)
{
    uint32_t proc = proc_of(rendezvous);
    struct states_proc *self = &states->procs[proc];
    uint32_t direction;
    (void)now_ns;
    if (self->rejoins && (coordinator == GF_RANK_NONE) && (self->dials == STATES_ANYBODY))
        return GF_AGAIN;
    const struct states_conn *conn = conn_find(proc, coordinator, &direction);
    bool stands = (conn != NULL) && conn->pipe[1 - direction].opened;
    if ((coordinator == self->coordinator) && ((coordinator == states_id(proc)) || stands))
        return GF_OK;
    all_close(proc, STATES_ENDS_ALIVE);
    self->rejoins = (coordinator == GF_RANK_NONE);
    self->coordinator = self->rejoins ? STATES_NOBODY : (uint8_t)coordinator;
    self->dials = self->rejoins ? STATES_ANYBODY : STATES_NOBODY;
    if (coordinator == states_id(proc)) return GF_OK;
    if (!self->rejoins) self->dials = (uint8_t)strtoul(address + strlen("10.0.0."), NULL, 10);
    return GF_AGAIN;
}

static const struct gf_rendezvous_driver driver = {.name = "states",
                                                   .send = channel_send,
                                                   .poll = channel_poll,
                                                   .flushed = channel_flushed,
                                                   .address = channel_address,
                                                   .reform = channel_reform};

void states_driver_open(uint32_t proc, bool rejoins)
{
    struct states_proc *self = &states->procs[proc];
    uint32_t id = states_id(proc);
    self->base.driver = &driver;
    self->rejoins = rejoins;
    self->coordinator = rejoins ? STATES_NOBODY : 0;
    self->dials = STATES_NOBODY;
    if (rejoins)
        self->dials = STATES_ANYBODY;
    else if (id != 0)
        self->dials = 0;
}

void states_driver_died(uint32_t proc)
{
    all_close(proc, STATES_ENDS_DEAD);
}

/* ---- what may happen ---- */

bool states_may_connect(uint32_t from, uint32_t to)
{
    const struct states_proc *self = &states->procs[from];
    uint32_t direction;
    if (!states_lives(from) || !states_lives(to) || (states_id(from) == states_id(to)))
        return false;
    if ((self->dials != to) && (self->dials != STATES_ANYBODY)) return false;
    return (states->procs[to].coordinator == states_id(to)) &&
           (conn_find(to, states_id(from), &direction) == NULL);
}

void states_connect(uint32_t from, uint32_t to)
{
    struct states_proc *self = &states->procs[from];
    uint32_t at = 0;
    while ((at < STATES_CONNS) && states->conns[at].used) at++;
    GF_ASSERT(at < STATES_CONNS);
    states->conns[at] = (struct states_conn){
        .used = true, .rejoins = self->rejoins, .dialler = (uint8_t)from, .acceptor = (uint8_t)to};
    self->dials = STATES_NOBODY;
    self->coordinator = (uint8_t)states_id(to);
}

bool states_may_refuse(uint32_t from)
{
    const struct states_proc *self = &states->procs[from];
    return states_lives(from) && (self->dials < STATES_PROCS) && !states_lives(self->dials);
}

void states_refuse(uint32_t from)
{
    struct states_proc *self = &states->procs[from];
    event = (struct gf_rendezvous_event){
        .kind = GF_RENDEZVOUS_ENDED, .rank = states_id(self->dials), .text = "connection refused"};
    has_event = true;
    self->dials = STATES_NOBODY;
}

bool states_may_deliver(const struct states_conn *conn, uint32_t direction, bool lost)
{
    const struct states_pipe *pipe = &conn->pipe[direction];
    if (!conn->used || pipe->closed) return false;
    bool has_frames = pipe->opened && (pipe->count > 0);
    if (lost) return (pipe->end != STATES_OPEN) && has_frames;
    return !pipe->opened || (pipe->count > 0) || (pipe->end != STATES_OPEN);
}

void states_deliver(struct states_conn *conn, uint32_t direction, bool lost)
{
    struct states_pipe *pipe = &conn->pipe[direction];
    uint32_t from = (direction == STATES_TO_ACCEPTOR) ? conn->dialler : conn->acceptor;
    event = (struct gf_rendezvous_event){.rank = states_id(from), .text = "", .payload = ""};
    has_event = true;
    if (!pipe->opened) {
        event.kind = GF_RENDEZVOUS_CONNECTED;
        event.rejoins = conn->rejoins && (direction == STATES_TO_ACCEPTOR);
        pipe->opened = true;
        if (direction == STATES_TO_DIALLER) states->procs[conn->dialler].rejoins = false;
    } else if ((pipe->count > 0) && !lost) {
        struct states_frame *frame = &states->frames[pipe->frames[0]];
        memcpy(event_payload, frame->payload, frame->size_bytes);
        event.kind = GF_RENDEZVOUS_FRAME;
        event.frame_kind = frame->kind;
        event.size_bytes = frame->size_bytes;
        event.payload = event_payload;
        frame->used = false;
        pipe->count--;
        memmove(pipe->frames, pipe->frames + 1, pipe->count);
    } else {
        event.kind = GF_RENDEZVOUS_ENDED;
        bool lives = (pipe->end == STATES_ENDS_ALIVE);
        event.end = lives ? GF_END_CUT : GF_END_GONE;
        event.text = lives ? "it was silent" : "closed by peer";
        end_close(conn, direction, STATES_ENDS_ALIVE);
    }
}

uint32_t states_connected(uint32_t proc)
{
    uint32_t ids = 0;
    for (uint32_t i = 0; i < STATES_CONNS; i++) {
        const struct states_conn *conn = &states->conns[i];
        const struct states_pipe *reads = &conn->pipe[(conn->dialler == proc) ? 1 : 0];
        bool is_its = conn->used && ((conn->dialler == proc) || (conn->acceptor == proc));
        if (!is_its || reads->closed || !reads->opened) continue;
        ids |= 1u << states_id((conn->dialler == proc) ? conn->acceptor : conn->dialler);
    }
    return ids;
}

bool states_may_cut(const struct states_conn *conn)
{
    return conn->used && (conn->pipe[0].end == STATES_OPEN) && (conn->pipe[1].end == STATES_OPEN);
}

void states_cut(struct states_conn *conn)
{
    conn->pipe[0].end = conn->pipe[1].end = STATES_ENDS_ALIVE;
}
