/* The job of states.h: its channel, what may come next, and saving it. */
#include "firmware-tests/control/states.h"

#include <stdio.h>
#include <stdlib.h>

#define SECOND UINT64_C(1000000000)
#define POLL_NS (SECOND / 4) /* of a gap between polls no more than this counts */
#define JOIN_NS (8 * SECOND)
#define KEEPALIVE_NS (1 * SECOND)
#define EXCHANGE_NS (2 * SECOND)
#define ENDPOINT_BYTES 8u
enum { TO_COORDINATOR, TO_MEMBER };

static struct states_world the_world;
struct states_world *const states = &the_world;

static struct frame {
    uint16_t kind, bytes;
    unsigned char payload[STATES_FRAME_BYTES];
} frames[STATES_CONNS][2][STATES_PIPE];

#define MEMBER_BYTES 12288u
#define COORDINATOR_BYTES 32768u
static _Alignas(64) unsigned char member_memory[STATES_PROCS][MEMBER_BYTES];
static _Alignas(64) unsigned char coordinator_memory[COORDINATOR_BYTES];

static struct gf_member *member_at(uint32_t proc)
{
    return (struct gf_member *)member_memory[proc];
}

void *states_member(uint32_t proc)
{
    return member_memory[proc];
}

/* ---- the channel ---- */

/* support/control_world.c has another one: there all that was sent is read at the next poll, and a
 * pipe holds 64 frames of up to 4 KiB, which is too much for a job that is saved at each step. */

static bool is_coordinators(const struct gf_channel *channel)
{
    return channel == &states->channel;
}

static uint32_t proc_of(const struct gf_channel *channel)
{
    for (uint32_t i = 0; i < STATES_PROCS; i++)
        if (channel == &states->procs[i].channel) return i;
    return STATES_PROCS;
}

static bool has_next(const struct states_conn *conn, uint32_t way)
{
    const struct states_pipe *pipe = &conn->to[way];
    return conn->used && !conn->closed[way] && ((pipe->count > 0) || pipe->ended);
}

static void order_take(struct states_pipe *pipe)
{
    pipe->order = ++states->order;
}

static void conn_free(struct states_conn *conn)
{
    if (conn->closed[0] && conn->closed[1]) *conn = (struct states_conn){0};
}

static bool pipe_take(uint32_t at, uint32_t way, struct gf_channel_event *event_out)
{
    static struct frame frame; /* valid until the next poll */
    struct states_conn *conn = &states->conns[at];
    struct states_pipe *pipe = &conn->to[way];
    uint32_t connection = (way == TO_COORDINATOR) ? at : 0;
    if (!conn->used || conn->closed[way]) return false;
    *event_out = (struct gf_channel_event){.connection = connection};
    if (!conn->told[way] && ((way == TO_MEMBER) || (pipe->visible > 0) || pipe->end_visible)) {
        conn->told[way] = true;
        event_out->kind = GF_CHANNEL_CONNECTED;
        return true;
    }
    if ((pipe->count > 0) && (pipe->visible > 0)) {
        frame = frames[at][way][0];
        memmove(&frames[at][way][0], &frames[at][way][1], --pipe->count * sizeof frame);
        pipe->visible--;
        event_out->kind = GF_CHANNEL_FRAME;
        event_out->frame_kind = frame.kind;
        event_out->size_bytes = frame.bytes;
        event_out->payload = frame.payload;
        return true;
    }
    if (!pipe->ended || !pipe->end_visible || (pipe->count > 0)) return false;
    conn->closed[way] = true;
    event_out->kind = GF_CHANNEL_ENDED;
    event_out->end = (gf_channel_end)pipe->end;
    event_out->text = "ended";
    conn_free(conn);
    return true;
}

static bool channel_poll(struct gf_channel *channel, uint64_t now_ns,
                         struct gf_channel_event *event_out)
{
    bool coordinators = is_coordinators(channel);
    uint32_t proc = coordinators ? 0 : proc_of(channel);
    (void)now_ns;
    for (uint32_t i = 0; i < STATES_CONNS; i++)
        if ((coordinators || (states->conns[i].proc == proc)) &&
            pipe_take(i, coordinators ? TO_COORDINATOR : TO_MEMBER, event_out))
            return true;
    return false;
}

static uint32_t conn_of(const struct gf_channel *channel, uint32_t connection)
{
    if (is_coordinators(channel)) return connection;
    for (uint32_t i = 0; i < STATES_CONNS; i++) {
        const struct states_conn *conn = &states->conns[i];
        if (conn->used && !conn->closed[TO_MEMBER] && (conn->proc == proc_of(channel))) return i;
    }
    return STATES_CONNS;
}

static gf_status channel_send(struct gf_channel *channel, uint32_t connection, uint32_t frame_kind,
                              const void *payload, uint32_t size_bytes)
{
    uint32_t at = conn_of(channel, connection);
    uint32_t way = is_coordinators(channel) ? TO_MEMBER : TO_COORDINATOR;
    if ((at == STATES_CONNS) || !states->conns[at].used) return GF_ERR_PEER;
    struct states_pipe *pipe = &states->conns[at].to[way];
    if (pipe->ended || pipe->lost) return GF_OK; /* the kernel takes it, and nobody reads it */
    if (pipe->count == STATES_PIPE) return GF_FULL;
    states_rule(size_bytes <= STATES_FRAME_BYTES, "a frame fits");
    if (pipe->count == 0) order_take(pipe);
    struct frame *frame = &frames[at][way][pipe->count++];
    frame->kind = (uint16_t)frame_kind;
    frame->bytes = (uint16_t)size_bytes;
    memcpy(frame->payload, payload, size_bytes);
    return GF_OK;
}

static void pipe_end(struct states_pipe *pipe, gf_channel_end end)
{
    if (pipe->ended) return;
    pipe->ended = true;
    pipe->end = (uint8_t)end;
    if (pipe->count == 0) order_take(pipe);
}

static void channel_drop(struct gf_channel *channel, uint32_t connection)
{
    uint32_t at = conn_of(channel, connection);
    uint32_t own = is_coordinators(channel) ? TO_COORDINATOR : TO_MEMBER;
    if ((at == STATES_CONNS) || !states->conns[at].used) return;
    struct states_conn *conn = &states->conns[at];
    conn->closed[own] = true;
    pipe_end(&conn->to[1 - own], GF_CHANNEL_CLOSED);
    conn_free(conn);
}

static void channel_dial(struct gf_channel *channel, uint64_t now_ns)
{
    (void)now_ns;
    for (uint32_t i = 0; i < STATES_CONNS; i++) {
        struct states_conn *conn = &states->conns[i];
        if (conn->used) continue;
        *conn = (struct states_conn){.used = true, .proc = (uint8_t)proc_of(channel)};
        if (states->lives) return;
        conn->closed[TO_COORDINATOR] = conn->told[TO_MEMBER] = true;
        pipe_end(&conn->to[TO_MEMBER], GF_CHANNEL_DIED); /* refused */
        conn->to[TO_MEMBER].end_visible = true;
        return;
    }
    states_rule(false, "there is room for a connection");
}

static bool channel_flushed(struct gf_channel *channel)
{
    (void)channel;
    return true;
}

static const struct gf_channel_driver driver = {.name = "states",
                                                .poll = channel_poll,
                                                .send = channel_send,
                                                .drop = channel_drop,
                                                .dial = channel_dial,
                                                .flushed = channel_flushed};

/* ---- who is there ---- */

/* GF_TEST_LOG=1 shows what a replayed schedule makes of it. */
static void log_line(void *user, gf_log_level level, const char *text)
{
    (void)user;
    (void)level;
    printf("%6llu ms: %s\n", (unsigned long long)((states->now_ns - 1000 * SECOND) / 1000000),
           text);
}
bool states_logs;

static struct gf_coordinator_setup coordinator_setup(void)
{
    return (struct gf_coordinator_setup){.world = states->limits.ids,
                                         .id_count = states->limits.id_count,
                                         .host_id = states->limits.hosted ? 0 : GF_RANK_NONE,
                                         .is_first = !states->is_down,
                                         .join_timeout_ns = JOIN_NS,
                                         .endpoint_bytes_max = ENDPOINT_BYTES,
                                         .log = {.fn = states_logs ? log_line : NULL}};
}

static void coordinator_poll(void)
{
    if (states->lives && !states->halted)
        (void)gf_coordinator_poll(states->coordinator, states->now_ns);
}

static void coordinator_begin(void)
{
    const struct gf_coordinator_setup setup = coordinator_setup();
    uint32_t connections = GF_COORDINATOR_CONNECTIONS(setup.id_count);
    states->channel = (struct gf_channel){
        .driver = &driver,
        .connections_max = (connections < STATES_CONNS) ? connections : STATES_CONNS};
    if (gf_coordinator_state_bytes(&setup) > COORDINATOR_BYTES) abort();
    memset(coordinator_memory, 0, sizeof coordinator_memory);
    states->coordinator =
        gf_coordinator_open(&setup, coordinator_memory, &states->channel, states->now_ns);
    states->lives = true;
    states->halted = false;
}

static void coordinator_end(void)
{
    for (uint32_t i = 0; i < STATES_CONNS; i++) {
        struct states_conn *conn = &states->conns[i];
        if (!conn->used) continue;
        conn->closed[TO_COORDINATOR] = true;
        pipe_end(&conn->to[TO_MEMBER], GF_CHANNEL_DIED);
        conn_free(conn);
    }
    states->lives = false;
    states->dead_ns = states->now_ns;
}

static void edges_ask(void *edges_of, struct control_edges *edges_out)
{
    const struct states_proc *proc = edges_of;
    uint32_t at = (uint32_t)(proc - states->procs);
    const struct gf_generation *generation = gf_member_generation(member_at(at));
    for (uint32_t rank = 0; rank < generation->world; rank++) {
        size_t bytes;
        uint64_t process;
        memcpy(&process, gf_member_endpoint(member_at(at), rank, &bytes), sizeof process);
        if ((states->edges[proc->id] & (1u << states->procs[process - 100].id)) != 0)
            edges_out->peers[edges_out->count++] = (uint16_t)rank;
    }
}

static void proc_poll(uint32_t at)
{
    if (!states->procs[at].alive || states->procs[at].stopped) return;
    (void)gf_member_poll(member_at(at), states->now_ns);
    states_program(at);
    if ((states_state(at) < GF_MEMBER_GONE) || states->procs[at].closed) return;
    states->procs[at].closed = true; /* whose member has ended closes its channel */
    channel_drop(&states->procs[at].channel, 0);
}

static void proc_start(uint32_t id, bool rejoins)
{
    uint32_t at = states->proc_count++;
    struct states_proc *proc = &states->procs[at];
    struct gf_member_setup setup = {.id = id,
                                    .world = states->limits.ids,
                                    .id_count = states->limits.id_count,
                                    .host_id = states->limits.hosted ? 0 : GF_RANK_NONE,
                                    .edges = edges_ask,
                                    .edges_of = proc,
                                    .rejoins = rejoins,
                                    .process = 100 + at,
                                    .terms = {.elastic = !states->limits.fixed,
                                              .join_timeout_ns = JOIN_NS,
                                              .keepalive_ns = KEEPALIVE_NS,
                                              .exchange_timeout_ns = EXCHANGE_NS},
                                    .values = {.version = 1, .node = id + 1},
                                    .endpoint_bytes_max = ENDPOINT_BYTES,
                                    .address = "memory"};
    *proc = (struct states_proc){.alive = true,
                                 .excused = (states->edges[id] != 0),
                                 .rejoins = rejoins,
                                 .id = (uint8_t)id,
                                 .has_state = !rejoins && (id < states->limits.ids),
                                 .state = 7,
                                 .stuck_ns = states->now_ns,
                                 .channel = {.driver = &driver, .connections_max = 1}};
    if (gf_member_state_bytes(&setup) > MEMBER_BYTES) abort();
    memset(member_memory[at], 0, MEMBER_BYTES);
    (void)gf_member_open(&setup, member_memory[at], &proc->channel, states->now_ns);
    proc_poll(at);
}

void states_open(const struct states_limits *limits)
{
    the_world = (struct states_world){.limits = *limits, .now_ns = 1000 * SECOND};
    coordinator_begin();
    for (uint32_t id = 0; id < limits->ids; id++) proc_start(id, false);
}

/* ---- choices ---- */

struct list {
    struct states_choice *choices;
    uint32_t count;
};

static void add(struct list *list, states_act act, uint32_t of, uint32_t to)
{
    if (list->count < STATES_CHOICES)
        list->choices[list->count++] =
            (struct states_choice){(uint8_t)act, (uint8_t)of, (uint8_t)to};
}

static bool can_read(const struct states_conn *conn, uint32_t way)
{
    if (!has_next(conn, way)) return false;
    if (way == TO_COORDINATOR) return states->lives && !states->halted;
    return states->procs[conn->proc].alive && !states->procs[conn->proc].stopped;
}

/* The oldest first, then each of the others. */
static void deliveries(struct list *list)
{
    uint32_t first = list->count;
    for (uint32_t i = 0; i < STATES_CONNS; i++)
        for (uint32_t way = 0; way < 2; way++)
            if (can_read(&states->conns[i], way)) add(list, STATES_DELIVER, i, way);
    for (uint32_t i = first + 1; i < list->count; i++) {
        struct states_choice *a = &list->choices[first];
        struct states_choice *b = &list->choices[i];
        if (states->conns[b->of].to[b->to].order >= states->conns[a->of].to[a->to].order) continue;
        struct states_choice kept = *a;
        *a = *b;
        *b = kept;
    }
}

/* Nothing is left to do: those that live work in one generation, or have ended. */
static bool is_done(void)
{
    uint32_t works = 0;
    uint32_t lives = 0;
    uint32_t number = 0;
    for (uint32_t i = 0; i < states->proc_count; i++) {
        const struct states_proc *proc = &states->procs[i];
        if (!proc->alive) continue;
        if (proc->stopped) return false;
        if (states_state(i) >= GF_MEMBER_GONE) continue;
        bool host = states->limits.hosted && (proc->id == 0);
        if (host && (states_state(i) == GF_MEMBER_CLOSING)) continue; /* it waits for the others */
        lives++;
        if ((states_state(i) != GF_MEMBER_WORKS) || proc->leaves || !proc->has_state) continue;
        if ((works++ > 0) && (proc->number != number)) return false;
        number = proc->number;
    }
    if (lives == 0) return true;
    if ((works != lives) || !states->lives || states->halted) return false;
    return (states->coordinator->state == GF_COORDINATOR_RUN) &&
           (states->coordinator->world == lives) && (states->coordinator->number == number) &&
           !states_rules_want_steps();
}

static void acts_on(struct list *list, uint32_t i)
{
    const struct states_limits *left = &states->limits;
    const struct states_proc *proc = &states->procs[i];
    bool host = states->limits.hosted && (proc->id == 0);
    if (!proc->alive) return;
    if (proc->stopped) add(list, STATES_CONTINUE, i, 0);
    for (uint32_t unread = 0; (left->kills > 0) && (unread < 2); unread++)
        add(list, STATES_KILL, i, unread);
    bool over = (states_state(i) >= GF_MEMBER_GONE);
    if (over) return;
    for (uint32_t reset = 0; (left->cuts > 0) && (reset < 2); reset++)
        if (conn_of(&proc->channel, 0) < STATES_CONNS) add(list, STATES_CUT, i, reset);
    for (uint32_t end = 0; (left->halves > 0) && (end < 2); end++)
        if (conn_of(&proc->channel, 0) < STATES_CONNS) add(list, STATES_HALF, i, end);
    if (proc->stopped) return;
    if ((left->stops > 0) && !host) add(list, STATES_STOP, i, 0);
    if (proc->number == 0) return;
    bool works = (states_state(i) == GF_MEMBER_WORKS);
    if ((left->asks > 0) && works) add(list, STATES_ASK, i, 0);
    if ((left->leaves > 0) && works && !proc->leaves && !host) add(list, STATES_LEAVE, i, 0);
    if ((left->byes > 0) && (states_state(i) < GF_MEMBER_CLOSING)) add(list, STATES_BYE, i, 0);
    bool is_late = (states_state(i) == GF_MEMBER_READY) || (states_state(i) == GF_MEMBER_LISTED);
    if ((left->gives_up > 0) && (works || is_late)) add(list, STATES_GIVE_UP, i, 0);
}

static void starts(struct list *list, uint32_t id)
{
    if ((states->limits.starts == 0) || (states->proc_count == STATES_PROCS)) return;
    if (states->limits.hosted && (id == 0)) return;
    add(list, STATES_START, id, 0);
}

static void acts(struct list *list)
{
    const struct states_limits *left = &states->limits;
    for (uint32_t i = 0; i < states->proc_count; i++) acts_on(list, i);
    for (uint32_t id = 0; id < left->id_count; id++) starts(list, id);
    for (uint32_t a = 0; (left->edges > 0) && (a < left->id_count); a++)
        for (uint32_t b = a + 1; b < left->id_count; b++)
            if ((states->edges[a] & (1u << b)) == 0) add(list, STATES_EDGE, a, b);
    if ((left->crashes > 0) && states->lives && !left->hosted) add(list, STATES_CRASH, 0, 0);
    if ((left->halts > 0) && states->lives && !states->halted && !left->hosted)
        add(list, STATES_HALT, 0, 0);
    if (states->lives && states->halted) add(list, STATES_WAKE, 0, 0);
}

#define STOPPED_NS (7 * SECOND)

uint32_t states_choices(struct states_choice choices_out[STATES_CHOICES])
{
    struct list list = {choices_out, 0};
    bool begins = !states->lives && !states->limits.hosted;
    deliveries(&list);
    if (list.count == 0) {
        uint32_t awake = STATES_PROCS;
        for (uint32_t i = 0; i < states->proc_count; i++)
            if (states->procs[i].alive && states->procs[i].stopped &&
                (states->now_ns - states->procs[i].stopped_ns >= STOPPED_NS))
                awake = i;
        if (states->lives && states->halted && (states->now_ns - states->halted_ns >= 5 * SECOND))
            add(&list, STATES_WAKE, 0, 0);
        else if (begins && (states->now_ns - states->dead_ns >= SECOND))
            add(&list, STATES_BEGIN, 0, 0);
        else if (awake < STATES_PROCS)
            add(&list, STATES_CONTINUE, awake, 0);
        else if (!is_done())
            add(&list, STATES_PASS, 0, 0);
        else
            return 0;
    } else if (states->limits.lates > 0) {
        add(&list, STATES_PASS, 0, 0);
    }
    if (begins && (list.choices[0].act != STATES_BEGIN)) add(&list, STATES_BEGIN, 0, 0);
    acts(&list);
    return list.count;
}

/* ---- a step ---- */

static void deliver(uint32_t at, uint32_t way)
{
    struct states_conn *conn = &states->conns[at];
    struct states_pipe *pipe = &conn->to[way];
    uint32_t proc = conn->proc;
    /* What only says "alive" comes with what follows. */
    do {
        uint32_t kind = frames[at][way][pipe->visible].kind;
        if (pipe->visible == pipe->count) break;
        pipe->visible++;
        if ((kind != CONTROL_STATUS) && (kind != CONTROL_WAITING)) break;
    } while (pipe->visible < pipe->count);
    if (pipe->count == 0) pipe->end_visible = true;
    order_take(pipe);
    if (way == TO_COORDINATOR)
        coordinator_poll();
    else
        proc_poll(proc);
}

static void halves_end(void)
{
    for (uint32_t i = 0; i < STATES_CONNS; i++)
        for (uint32_t way = 0; way < 2; way++) {
            struct states_conn *conn = &states->conns[i];
            if (conn->used && conn->to[way].lost &&
                (states->now_ns - conn->half_ns >= KEEPALIVE_NS))
                pipe_end(&conn->to[way], GF_CHANNEL_BROKE);
        }
}

/* While the coordinator looks longer it asks everybody many times: who is there answers at once. */
static void looks_answer(void)
{
    const struct gf_coordinator *c = states->coordinator;
    bool looks = states->lives && !states->halted && (c->state == GF_COORDINATOR_INQUIRE) &&
                 (c->inquiry_phase != CONTROL_INQUIRY_ASKED);
    for (uint32_t way = 2; looks && (way-- > 0);)
        for (uint32_t i = 0; i < STATES_CONNS; i++)
            while (can_read(&states->conns[i], way)) deliver(i, way);
}

/* Everybody is polled four times, and what is under way stays there. */
static void pass(void)
{
    bool late = false;
    for (uint32_t i = 0; i < STATES_CONNS; i++)
        for (uint32_t way = 0; way < 2; way++) {
            if (!can_read(&states->conns[i], way)) continue;
            late = true;
            /* it may be taken for one that lags */
            states->procs[states->conns[i].proc].excused = true;
        }
    if (late) states->limits.lates--;
    states->passes++;
    for (uint32_t n = 0; n < 4; n++) {
        states->now_ns += POLL_NS;
        halves_end();
        coordinator_poll();
        for (uint32_t i = 0; i < states->proc_count; i++) proc_poll(i);
        if (!late) looks_answer();
    }
}

/* unread: it had words to read, so its kernel resets its connection */
static void proc_kill(uint32_t at, bool unread)
{
    for (uint32_t i = 0; i < STATES_CONNS; i++) {
        struct states_conn *conn = &states->conns[i];
        if (!conn->used || (conn->proc != at)) continue;
        conn->closed[TO_MEMBER] = true;
        pipe_end(&conn->to[TO_COORDINATOR], unread ? GF_CHANNEL_RESET : GF_CHANNEL_DIED);
        conn_free(conn);
    }
    states->procs[at].alive = false;
    if (!states->limits.hosted || (states->procs[at].id != 0) || !states->lives) return;
    coordinator_end();
    states->is_over = true;
}

static void cut(uint32_t at, gf_channel_end how, bool half, uint32_t told)
{
    uint32_t i = conn_of(&states->procs[at].channel, 0);
    if (i == STATES_CONNS) return;
    struct states_conn *conn = &states->conns[i];
    for (uint32_t way = 0; way < 2; way++) {
        conn->to[way].count = conn->to[way].visible = 0; /* what was under way is lost */
        conn->to[way].lost = half;
        if (!half || (way == told)) pipe_end(&conn->to[way], how);
    }
    conn->half_ns = states->now_ns;
}

static void id_start(uint32_t id)
{
    bool lives = false;
    for (uint32_t i = 0; i < states->proc_count; i++) {
        if (!states->procs[i].alive || (states->procs[i].id != id)) continue;
        lives = true; /* either of them may have to end */
        states->procs[i].excused = true;
    }
    proc_start(id, id < states->limits.ids);
    if (lives) states->procs[states->proc_count - 1].excused = true;
}

/* It may be begun anew while no member changes. */
static void crash(void)
{
    if (!states_steady()) states->is_over = true;
    states->is_down = true;
    coordinator_end();
}

/* Nobody is cut on its return, unless somebody waited for it meanwhile. */
static void halt(void)
{
    if (!states_steady()) states->is_over = true;
    states->halted = true;
    states->halted_ns = states->now_ns;
}

static const struct gf_error stands = {
    .code = GF_ERR_TIMEOUT, .peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE, .text = "it stands"};

static void fault_say(uint32_t at, bool ends)
{
    struct gf_error seen = stands;
    seen.step = states->procs[at].steps;
    gf_member_fault(member_at(at), &seen, ends);
    if (ends) states->procs[at].excused = true;
    if (ends && states->limits.hosted && (states->procs[at].id == 0)) states->is_over = true;
    if (!ends && (++states->asked > 1)) states->is_over = true; /* in one step it is the end */
    proc_poll(at);
}

static uint8_t *limit_of(states_act act)
{
    struct states_limits *left = &states->limits;
    switch (act) {
    case STATES_KILL: return &left->kills;
    case STATES_START: return &left->starts;
    case STATES_CUT: return &left->cuts;
    case STATES_HALF: return &left->halves;
    case STATES_STOP: return &left->stops;
    case STATES_CRASH: return &left->crashes;
    case STATES_HALT: return &left->halts;
    case STATES_ASK: return &left->asks;
    case STATES_LEAVE: return &left->leaves;
    case STATES_BYE: return &left->byes;
    case STATES_EDGE: return &left->edges;
    case STATES_GIVE_UP: return &left->gives_up;
    default: return NULL;
    }
}

static void edge_break(uint32_t a, uint32_t b)
{
    states->edges[a] |= (uint8_t)(1u << b);
    states->edges[b] |= (uint8_t)(1u << a);
    for (uint32_t i = 0; i < states->proc_count; i++)
        if ((states->procs[i].id == a) || (states->procs[i].id == b))
            states->procs[i].excused = true;
}

static void proc_stop(uint32_t at)
{
    states->procs[at].stopped = true;
    states->procs[at].stopped_ns = states->now_ns;
    states->procs[at].excused = true; /* it may be taken for one that lags */
}

void states_step(const struct states_choice *choice)
{
    uint32_t of = choice->of;
    uint8_t *left = limit_of((states_act)choice->act);
    if (left != NULL) {
        *left -= 1;
        states->passes = 0;
        if ((choice->act != STATES_CUT) && (choice->act != STATES_HALF)) states_may_end();
    }
    switch ((states_act)choice->act) {
    case STATES_DELIVER: deliver(of, choice->to); break;
    case STATES_PASS: pass(); break;
    case STATES_CONTINUE:
        states->procs[of].stopped = false;
        proc_poll(of);
        break;
    case STATES_BEGIN: coordinator_begin(); break;
    case STATES_KILL: proc_kill(of, choice->to == 1); break;
    case STATES_START: id_start(of); break;
    case STATES_CUT: cut(of, choice->to ? GF_CHANNEL_RESET : GF_CHANNEL_BROKE, false, 0); break;
    case STATES_HALF: cut(of, GF_CHANNEL_BROKE, true, choice->to); break;
    case STATES_STOP: proc_stop(of); break;
    case STATES_WAKE:
        states->halted = false;
        coordinator_poll();
        break;
    case STATES_HALT: halt(); break;
    case STATES_CRASH: crash(); break;
    case STATES_ASK: fault_say(of, false); break;
    case STATES_LEAVE: states->procs[of].leaves = true; break;
    case STATES_BYE:
        states->procs[of].excused = true;
        gf_member_bye(member_at(of));
        proc_poll(of);
        break;
    case STATES_EDGE: edge_break(of, choice->to); break;
    case STATES_GIVE_UP: fault_say(of, true); break;
    case STATES_ACTS: break;
    }
    states_rules_step();
}

void states_text(const struct states_choice *choice, char text_out[STATES_TEXT_BYTES])
{
    static const char *const names[STATES_ACTS] = {
        "deliver", "pass", "continue", "wake", "begin", "kill", "start", "cut",    "half",
        "stop",    "halt", "crash",    "ask",  "leave", "bye",  "edge",  "give up"};
    if (choice->act == STATES_DELIVER)
        (void)snprintf(text_out, STATES_TEXT_BYTES, "%s %u%s", names[0],
                       states->conns[choice->of].proc, (choice->to == TO_MEMBER) ? "<c" : ">c");
    else
        (void)snprintf(text_out, STATES_TEXT_BYTES, "%s %u %u", names[choice->act], choice->of,
                       choice->to);
}

bool states_is_far(void)
{
    return (states->proc_count == STATES_PROCS) && (states->limits.starts > 0)
               ? false
               : (states->lives && (states->coordinator->used + 2 >= STATES_NUMBERS));
}

/* ---- saving ---- */

struct segment {
    void *at;
    size_t bytes;
};
#define SEGMENTS (1u + 3u + 2u * STATES_PROCS + 2u * STATES_CONNS)

/* What is saved, by what the world itself says; it comes first. */
static uint32_t segments_of(struct segment segments[SEGMENTS])
{
    uint32_t count = 0;
    if (states->lives) {
        struct gf_coordinator *c = states->coordinator;
        const struct gf_coordinator_setup setup = coordinator_setup();
        size_t all = gf_coordinator_state_bytes(&setup);
        unsigned char *at = coordinator_memory;
        size_t calls = offsetof(struct gf_coordinator, calls);
        size_t scratch = offsetof(struct gf_coordinator, scratch);
        segments[count++] = (struct segment){at, calls};
        segments[count++] =
            (struct segment){at + calls + sizeof c->calls, scratch - calls - sizeof c->calls};
        segments[count++] = (struct segment){at + sizeof *c, all - sizeof *c};
    }
    for (uint32_t i = 0; i < states->proc_count; i++) {
        size_t skip_at, skip_bytes;
        if (!states->procs[i].alive) continue;
        size_t all = states_member_bytes(member_at(i), &skip_at, &skip_bytes);
        segments[count++] = (struct segment){member_memory[i], skip_at};
        segments[count++] =
            (struct segment){member_memory[i] + skip_at + skip_bytes, all - skip_at - skip_bytes};
    }
    for (uint32_t i = 0; i < STATES_CONNS; i++)
        for (uint32_t way = 0; way < 2; way++)
            if (states->conns[i].used && (states->conns[i].to[way].count > 0))
                segments[count++] = (struct segment){
                    frames[i][way], states->conns[i].to[way].count * sizeof frames[0][0][0]};
    return count;
}

size_t states_saved_max(void)
{
    return sizeof the_world + sizeof coordinator_memory + sizeof member_memory + sizeof frames;
}

size_t states_save(void *to)
{
    struct segment segments[SEGMENTS];
    unsigned char *at = to;
    uint32_t count = segments_of(segments);
    memcpy(at, &the_world, sizeof the_world);
    at += sizeof the_world;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(at, segments[i].at, segments[i].bytes);
        at += segments[i].bytes;
    }
    return (size_t)(at - (unsigned char *)to);
}

void states_restore(const void *from)
{
    struct segment segments[SEGMENTS];
    const unsigned char *at = from;
    memcpy(&the_world, at, sizeof the_world);
    at += sizeof the_world;
    /* a member's setup says how many bytes it has: it lies in the first part */
    for (uint32_t i = 0, count = segments_of(segments); i < count; i++) {
        memcpy(segments[i].at, at, segments[i].bytes);
        at += segments[i].bytes;
    }
}

/* ---- the hash ---- */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

static uint64_t span(uint64_t now_ns, uint64_t at_ns)
{
    const uint64_t most_ns = 40 * SECOND;
    if (at_ns == 0) return 1;
    if (at_ns > now_ns) return at_ns - now_ns + most_ns;
    return (now_ns - at_ns < most_ns) ? now_ns - at_ns : most_ns;
}

/* Nothing asks whether it is longer ago than `most_ns`. */
static uint64_t within(uint64_t now_ns, uint64_t at_ns, uint64_t most_ns)
{
    uint64_t since_ns = span(now_ns, at_ns);
    return (since_ns < most_ns) ? since_ns : most_ns;
}

/* By the clock of a kernel, which gives a connection up after so long. */
static uint64_t quiet_ns(const struct control_row *row)
{
    const uint64_t here_ns = states->coordinator->kernel_ns - row->came_ns;
    const uint64_t quiet_ns = (row->connection == CONTROL_NONE) ? row->quiet_ns : here_ns;
    return (quiet_ns < KEEPALIVE_NS) ? quiet_ns : KEEPALIVE_NS;
}

static uint64_t row_hash(uint64_t hash, const struct control_row *row, uint64_t now_ns)
{
    const uint64_t words[] = {row->connection,
                              row->process,
                              row->waits << 1 | row->member << 2 | row->leaves << 3 |
                                  row->planned << 4 | row->closes << 5 | row->gives_up << 6 |
                                  row->cut << 7 | row->out << 8 | row->has_heard << 9 |
                                  row->offer.rejoins << 10 | row->comes_in << 11 |
                                  row->replied << 12,
                              row->process_state,
                              row->slow_replies,
                              (row->connection == CONTROL_NONE) ? span(now_ns, row->broke_ns) : 0,
                              row->banned,
                              row->member_process,
                              row->stood.generation,
                              row->stood.list_hash,
                              row->failed,
                              row->rank,
                              row->said,
                              row->progress.steps,
                              row->progress.partial,
                              row->listed,
                              row->next_rank,
                              row->endpoint_for,
                              (row->listed != 0) ? span(now_ns, row->asked_ns) : 0,
                              row->endpoint_have,
                              row->total,
                              row->pending,
                              row->go_rank,
                              row->go_at,
                              within(now_ns, row->heard_ns, 5 * SECOND),
                              quiet_ns(row),
                              within(now_ns, row->back_ns, 5 * SECOND),
                              (row->patience_ns > now_ns) ? row->patience_ns - now_ns : 0,
                              row->answered,
                              row->report.step,
                              row->report.sequence,
                              row->report.waits_for,
                              row->report.edges.count,
                              row->report.edges.peers[0],
                              row->offer.standing.generation,
                              row->offer.standing.list_hash,
                              row->offer.standing.listed,
                              row->offer.standing.said,
                              row->offer.standing.closed_step};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) hash = mix(hash, words[i]);
    return hash;
}

static uint64_t coordinator_hash(void)
{
    const struct gf_coordinator *c = states->coordinator;
    const bool runs = (c->state == GF_COORDINATOR_RUN);
    const bool asks = (c->state == GF_COORDINATOR_INQUIRE);
    const bool begins_anew = (c->number == 0);
    /* its times: of a list each row has its own */
    const bool counts = (c->number == 0) || (c->state == GF_COORDINATOR_REGROUP) ||
                        (c->state == GF_COORDINATOR_OVER);
    const uint64_t words[] = {c->state,
                              states->now_ns - c->polled_ns,
                              counts ? span(c->now_ns, c->since_ns) : 0,
                              runs ? 0 : span(c->now_ns, c->left_ns),
                              (c->number == 0) ? span(c->now_ns, 1) << 1 | c->setup.is_first : 0,
                              within(c->kernel_ns, c->alive_ns, 2 * SECOND),
                              c->number,
                              c->world,
                              c->list_hash,
                              c->listing | c->has_listed << 1,
                              c->next,
                              c->next_world,
                              c->used,
                              c->waiting,
                              c->inquiry,
                              c->inquiry_first,
                              c->inquiry_phase,
                              c->rounds_left,
                              asks ? span(c->now_ns, c->inquiry_ns) : 0,
                              (asks || begins_anew) ? c->seen.step : 0,
                              (asks || begins_anew) ? c->seen_by : 0,
                              begins_anew ? c->seen_in : 0,
                              c->nobody_step,
                              c->error.code,
                              c->error.peer,
                              c->is_final,
                              c->is_well,
                              c->closed.rank,
                              c->closed.step,
                              c->side};
    uint64_t hash = 1;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) hash = mix(hash, words[i]);
    for (uint32_t i = 0; i < c->channel->connections_max; i++)
        hash = mix(hash, c->connection_ids[i]);
    for (uint32_t id = 0; id < c->setup.id_count; id++)
        hash = row_hash(hash, &c->rows[id], c->now_ns);
    return hash;
}

static uint64_t bytes_mix(uint64_t hash, const unsigned char *data, size_t bytes)
{
    for (; bytes >= 8; bytes -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, sizeof word);
        hash = mix(hash, word);
    }
    for (; bytes > 0; bytes--) hash = mix(hash, *data++);
    return hash;
}

/* The bytes of a frame but those that are spans of time or texts. */
static uint64_t frame_hash(uint64_t hash, const struct frame *frame)
{
    size_t bytes = frame->bytes;
    if ((frame->kind == CONTROL_ERROR) || (frame->kind == CONTROL_REFUSED)) bytes = 16;
    if ((frame->kind == CONTROL_STATUS) || (frame->kind == CONTROL_POSITION)) bytes = 28;
    if (frame->kind == CONTROL_OFFER) bytes = 66;
    if (bytes > frame->bytes) bytes = frame->bytes;
    return bytes_mix(mix(hash, frame->kind | (uint64_t)bytes << 16), frame->payload, bytes);
}

/* Of all pipes that have something, so many come before this one. */
static uint32_t before_count(const struct states_pipe *pipe)
{
    uint32_t before = 0;
    for (uint32_t i = 0; i < STATES_CONNS; i++)
        for (uint32_t k = 0; states->conns[i].used && (k < 2); k++)
            before +=
                (states->conns[i].to[k].order < pipe->order) && has_next(&states->conns[i], k);
    return before;
}

static uint64_t conn_hash(uint64_t hash, uint32_t at)
{
    const struct states_conn *conn = &states->conns[at];
    hash = mix(hash, (uint64_t)conn->used | (uint64_t)conn->told[0] << 1 |
                         (uint64_t)conn->told[1] << 2 | (uint64_t)conn->closed[0] << 3 |
                         (uint64_t)conn->closed[1] << 4 | (uint64_t)conn->proc << 8);
    if (!conn->used) return hash;
    for (uint32_t way = 0; way < 2; way++) {
        const struct states_pipe *pipe = &conn->to[way];
        uint32_t before = has_next(conn, way) ? before_count(pipe) : 0;
        hash = mix(hash, (uint64_t)pipe->count | (uint64_t)pipe->ended << 8 |
                             (uint64_t)pipe->lost << 9 | (uint64_t)pipe->end << 10 |
                             (uint64_t)before << 16);
        if (pipe->lost) hash = mix(hash, span(states->now_ns, conn->half_ns));
        for (uint32_t i = 0; i < pipe->count; i++) hash = frame_hash(hash, &frames[at][way][i]);
    }
    return hash;
}

/* Of one that is dead only its votes, its wish to leave and whose place it had are looked at. */
static uint64_t proc_hash(uint64_t hash, uint32_t at)
{
    const struct states_proc *proc = &states->procs[at];
    hash = mix(hash, (uint64_t)proc->alive | (uint64_t)proc->leaves << 1 |
                         (uint64_t)proc->rejoins << 2 | (uint64_t)proc->id << 8 |
                         (uint64_t)proc->number << 16);
    hash = mix(hash, proc->voted | (uint64_t)proc->vote_waiting << 32);
    if (!proc->alive) return hash;
    hash = mix(hash, (uint64_t)proc->stopped | (uint64_t)proc->excused << 1 |
                         (uint64_t)proc->has_state << 2 | (uint64_t)proc->is_old << 3 |
                         (uint64_t)proc->closed << 4 | proc->steps << 16);
    hash = mix(hash, within(states->now_ns, proc->stuck_ns, EXCHANGE_NS + 1));
    if (proc->stopped) hash = mix(hash, span(states->now_ns, proc->stopped_ns));
    return mix(hash, states_member_hash(member_at(at), states->now_ns));
}

/* With so many choices left no act can be taken more often than that. */
static uint64_t limits_hash(uint64_t hash, uint32_t left)
{
    struct states_limits limits = states->limits;
    uint8_t *acts[] = {&limits.kills, &limits.starts,   &limits.cuts, &limits.halves, &limits.stops,
                       &limits.halts, &limits.crashes,  &limits.asks, &limits.leaves, &limits.byes,
                       &limits.edges, &limits.gives_up, &limits.lates};
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
        if (*acts[i] > left) *acts[i] = (uint8_t)left;
    hash = bytes_mix(hash, (const unsigned char *)&limits, sizeof limits);
    return mix(hash, (limits.asks > 0) && (states->asked > 0)); /* the second ends a job */
}

uint64_t states_hash(uint32_t left)
{
    uint64_t hash = limits_hash(1, left);
    if (states->halted) hash = mix(hash, span(states->now_ns, states->halted_ns));
    hash = mix(hash, (uint64_t)states->lives | (uint64_t)states->is_down << 1 |
                         (uint64_t)states->is_over << 2 | (uint64_t)states->proc_count << 8 |
                         (uint64_t)(left == STATES_ALL ? states->passes : 0) << 16);
    for (uint32_t i = 0; i < STATES_IDS; i++) hash = mix(hash, states->edges[i]);
    if (states->lives)
        hash = mix(hash, coordinator_hash());
    else
        hash = mix(hash, span(states->now_ns, states->dead_ns));
    for (uint32_t i = 0; i < states->proc_count; i++) hash = proc_hash(hash, i);
    for (uint32_t i = 0; i < STATES_CONNS; i++) hash = conn_hash(hash, i);
    return hash;
}
