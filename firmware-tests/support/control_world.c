/* See control_world.h. */
#include "firmware-tests/support/control_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/base/fnv.h"
#include "lib/control/member_state.h"

#define JOIN_NS (8000 * CONTROL_MS)
#define KEEPALIVE_NS (1000 * CONTROL_MS)
#define EXCHANGE_NS (2000 * CONTROL_MS)
#define TURN_NS (5 * CONTROL_MS)
enum { TO_COORDINATOR, TO_MEMBER };

static struct control_world *the_world; /* of the channel's calls */

uint32_t control_world_draw(struct control_world *world, uint32_t below)
{
    world->random = world->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(world->random >> 33) % below;
}

static void rule(struct control_world *world, bool holds, const char *text)
{
    if (!holds && (world->broken == NULL)) world->broken = text;
}

/* ---- the channel ---- */

/* The search has a channel of its own (control/states_world.c): there a frame is read once it was
 * chosen to be delivered, frames are short and lie beside the world, and a job is copied millions
 * of times. Here all that was sent is read at the next poll, and a frame may have any size. */

static struct control_proc *proc_of(struct gf_channel *channel)
{
    return (struct control_proc *)((char *)channel - offsetof(struct control_proc, channel));
}

static bool is_coordinators(const struct gf_channel *channel)
{
    return channel == &the_world->channel;
}

static bool pipe_take(struct control_conn *conn, uint32_t connection, uint32_t way,
                      struct gf_channel_event *event_out)
{
    static struct control_frame_kept frame; /* valid until the next poll */
    struct control_pipe *pipe = &conn->to[way];
    if (!conn->used || conn->closed[way]) return false;
    if (!conn->told[way]) {
        conn->told[way] = true;
        *event_out =
            (struct gf_channel_event){.kind = GF_CHANNEL_CONNECTED, .connection = connection};
        return true;
    }
    if (pipe->count > 0) {
        frame = pipe->frames[0];
        memmove(&pipe->frames[0], &pipe->frames[1], --pipe->count * sizeof pipe->frames[0]);
        *event_out = (struct gf_channel_event){.kind = GF_CHANNEL_FRAME,
                                               .connection = connection,
                                               .frame_kind = frame.kind,
                                               .size_bytes = frame.size_bytes,
                                               .payload = frame.payload};
        return true;
    }
    if (!pipe->ended) return false;
    conn->closed[way] = true;
    *event_out = (struct gf_channel_event){
        .kind = GF_CHANNEL_ENDED, .connection = connection, .end = pipe->end, .text = "ended"};
    if (conn->closed[0] && conn->closed[1]) conn->used = false;
    return true;
}

static bool channel_poll(struct gf_channel *channel, uint64_t now_ns,
                         struct gf_channel_event *event_out)
{
    (void)now_ns;
    for (uint32_t i = 0; i < CONTROL_CONNS; i++) {
        struct control_conn *conn = &the_world->conns[i];
        bool mine = is_coordinators(channel) ||
                    (conn->used && (&the_world->procs[conn->proc] == proc_of(channel)));
        uint32_t way = is_coordinators(channel) ? TO_COORDINATOR : TO_MEMBER;
        if (mine && pipe_take(conn, is_coordinators(channel) ? i : 0, way, event_out)) return true;
    }
    return false;
}

static struct control_conn *conn_of(struct gf_channel *channel, uint32_t connection)
{
    if (is_coordinators(channel)) return &the_world->conns[connection];
    for (uint32_t i = 0; i < CONTROL_CONNS; i++) {
        struct control_conn *conn = &the_world->conns[i];
        if (conn->used && !conn->closed[TO_MEMBER] &&
            (&the_world->procs[conn->proc] == proc_of(channel)))
            return conn;
    }
    return NULL;
}

static gf_status channel_send(struct gf_channel *channel, uint32_t connection, uint32_t frame_kind,
                              const void *payload, uint32_t size_bytes)
{
    struct control_conn *conn = conn_of(channel, connection);
    struct control_pipe *pipe;
    if ((conn == NULL) || !conn->used) return GF_ERR_PEER;
    pipe = &conn->to[is_coordinators(channel) ? TO_MEMBER : TO_COORDINATOR];
    if (pipe->ended || pipe->lost) return GF_OK; /* the kernel takes it, and nobody reads it */
    if ((pipe->count == CONTROL_PIPE) ||
        ((the_world->room != 0) && (pipe->count >= the_world->room)))
        return GF_FULL;
    struct control_frame_kept *frame = &pipe->frames[pipe->count++];
    frame->kind = frame_kind;
    frame->size_bytes = size_bytes;
    memcpy(frame->payload, payload, size_bytes);
    return GF_OK;
}

static void pipe_end(struct control_pipe *pipe, gf_channel_end end)
{
    if (pipe->ended) return;
    pipe->ended = true;
    pipe->end = end;
}

static void channel_drop(struct gf_channel *channel, uint32_t connection)
{
    struct control_conn *conn = conn_of(channel, connection);
    uint32_t own = is_coordinators(channel) ? TO_COORDINATOR : TO_MEMBER;
    if ((conn == NULL) || !conn->used) return;
    conn->closed[own] = true;
    pipe_end(&conn->to[1 - own], GF_CHANNEL_CLOSED);
    if (conn->closed[0] && conn->closed[1]) conn->used = false;
}

static void channel_dial(struct gf_channel *channel, uint64_t now_ns)
{
    struct control_proc *proc = proc_of(channel);
    (void)now_ns;
    for (uint32_t i = 0; i < GF_COORDINATOR_CONNECTIONS(the_world->id_count); i++) {
        struct control_conn *conn = &the_world->conns[i];
        if (conn->used) continue;
        *conn = (struct control_conn){.used = true, .proc = (uint32_t)(proc - the_world->procs)};
        if (the_world->coordinator_lives) return;
        conn->closed[TO_COORDINATOR] = conn->told[TO_MEMBER] = true;
        pipe_end(&conn->to[TO_MEMBER], GF_CHANNEL_DIED); /* refused */
        return;
    }
    rule(the_world, false, "there is no room for a connection");
}

static bool channel_flushed(struct gf_channel *channel)
{
    (void)channel;
    return true;
}

static const struct gf_channel_driver driver = {.name = "memory",
                                                .poll = channel_poll,
                                                .send = channel_send,
                                                .drop = channel_drop,
                                                .dial = channel_dial,
                                                .flushed = channel_flushed};

/* ---- who is there ---- */

/* GF_TEST_LOG=1 shows what happened, with the clock of the coordinator. */
static void log_line(void *user, gf_log_level level, const char *text)
{
    (void)level;
    if ((user != NULL) && (the_world->said != NULL)) {
        size_t used = strlen(the_world->said);
        (void)snprintf(the_world->said + used, the_world->said_bytes - used, "%s\n", text);
    }
    if (getenv("GF_TEST_LOG") == NULL) return;
    printf("%6llu ms: %s\n", (unsigned long long)(the_world->now_ns / CONTROL_MS), text);
}
#define TELL(...) gf_log_line(&(struct gf_log){.fn = log_line}, GF_LOG_INFO, __VA_ARGS__)

/* What a caller gives may hold anything, and what lies behind it is not the library's: one world
 * has other bytes there than the next, so that setting a bit shows as well as clearing it. */
#define BEHIND_BYTES 8192u
static unsigned char filled_with = 0x5a;

/* Of the address sanitizer, where the program has it: to read there is wrong, too. */
void __asan_poison_memory_region(const volatile void *, size_t) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void *, size_t) __attribute__((weak));

static void *filled(size_t bytes)
{
    void *memory = malloc(bytes + BEHIND_BYTES);
    if (memory == NULL) abort();
    memset(memory, filled_with, bytes + BEHIND_BYTES);
    if (__asan_poison_memory_region != NULL)
        __asan_poison_memory_region((char *)memory + bytes, BEHIND_BYTES);
    return memory;
}

static void give_back(void *memory, size_t bytes)
{
    const unsigned char *behind = (const unsigned char *)memory + bytes;
    if ((memory != NULL) && (__asan_unpoison_memory_region != NULL))
        __asan_unpoison_memory_region(behind, BEHIND_BYTES);
    for (uint32_t i = 0; (memory != NULL) && (i < BEHIND_BYTES); i++) {
        if (behind[i] == behind[BEHIND_BYTES - 1]) continue;
        printf("ERROR: byte %u behind a state of %zu bytes was written\n", i, bytes);
        abort();
    }
    free(memory);
}

void control_world_coordinator_begin(struct control_world *world)
{
    world->setup.is_first = (world->coordinators++ == 0);
    world->channel = (struct gf_channel){
        .driver = &driver, .connections_max = GF_COORDINATOR_CONNECTIONS(world->id_count)};
    world->coordinator =
        gf_coordinator_open(&world->setup, filled(gf_coordinator_state_bytes(&world->setup)),
                            &world->channel, world->now_ns);
    world->coordinator_lives = true;
    TELL("coordinator %u begins", world->coordinators);
}

void control_world_coordinator_end(struct control_world *world)
{
    for (uint32_t i = 0; i < CONTROL_CONNS; i++) {
        struct control_conn *conn = &world->conns[i];
        if (!conn->used) continue;
        conn->closed[TO_COORDINATOR] = true;
        pipe_end(&conn->to[TO_MEMBER], GF_CHANNEL_DIED);
        if (conn->closed[TO_MEMBER]) conn->used = false;
    }
    give_back(world->coordinator, gf_coordinator_state_bytes(&world->setup));
    world->coordinator = NULL;
    world->coordinator_lives = false;
}

/* The process that has a rank in the generation of another. */
static const struct control_proc *peer_of(const struct control_proc *proc, uint32_t rank)
{
    size_t bytes;
    uint64_t process;
    memcpy(&process, gf_member_endpoint(proc->member, rank, &bytes), sizeof process);
    return &the_world->procs[process - 100];
}

/* Data that it waits for in its generation does not come. */
static bool is_cut_off(const struct control_world *world, const struct control_proc *proc,
                       struct control_edges *edges_out)
{
    const struct gf_generation *generation = gf_member_generation(proc->member);
    edges_out->count = 0;
    for (uint32_t rank = 0; rank < generation->world; rank++)
        if ((world->cut_edges[proc->id] & (1u << peer_of(proc, rank)->id)) != 0)
            edges_out->peers[edges_out->count++] = (uint16_t)rank;
    return edges_out->count > 0;
}

static void edges_ask(void *edges_of, struct control_edges *edges_out)
{
    struct control_proc *proc = edges_of;
    if (proc->edges != NULL)
        proc->edges(proc, edges_out);
    else
        (void)is_cut_off(the_world, proc, edges_out);
}

static const char *tensor_name(void *of, uint32_t tensor)
{
    (void)of;
    return (tensor == 12) ? "conv1.weight" : NULL;
}

static uint64_t first_unbegun(void *of)
{
    (void)of;
    return 42;
}

struct gf_channel *control_world_stranger(struct control_world *world)
{
    struct control_proc *proc = &world->procs[world->proc_count++];
    *proc = (struct control_proc){.channel = {.driver = &driver, .connections_max = 1}};
    return &proc->channel;
}

uint32_t control_world_start(struct control_world *world, uint32_t id, bool rejoins)
{
    uint32_t at = world->proc_count++;
    struct control_proc *proc = &world->procs[at];
    struct gf_member_setup setup = {.id = id,
                                    .world = world->ids,
                                    .id_count = world->id_count,
                                    .host_id = world->setup.host_id,
                                    .edges = edges_ask,
                                    .edges_of = proc,
                                    .tensor_name = tensor_name,
                                    .begun = first_unbegun,
                                    .rejoins = rejoins,
                                    .process = 100 + at,
                                    .terms = {.elastic = !world->is_fixed,
                                              .join_timeout_ns = JOIN_NS,
                                              .keepalive_ns = KEEPALIVE_NS,
                                              .exchange_timeout_ns = EXCHANGE_NS},
                                    .values = {.version = 1,
                                               .node = world->offer.node ? world->offer.node : id,
                                               .fabric = world->offer.fabric,
                                               .network = world->offer.network,
                                               .tensors_hash = world->tensors_hash},
                                    .endpoint_bytes_max = world->setup.endpoint_bytes_max,
                                    .address = "memory",
                                    .log = {.fn = log_line, .user = world}};
    *proc = (struct control_proc){.alive = true,
                                  .rejoins = rejoins,
                                  .id = id,
                                  .process = setup.process,
                                  .now_ns = world->now_ns,
                                  .has_state = !rejoins && (id < world->ids),
                                  .state = 7};
    proc->channel = (struct gf_channel){.driver = &driver, .connections_max = 1};
    proc->member = gf_member_open(&setup, filled(gf_member_state_bytes(&setup)), &proc->channel,
                                  world->now_ns);
    proc->stuck_ns = world->now_ns;
    TELL("process %u of id %u begins", at, id);
    return at;
}

static void proc_kill(struct control_world *world, uint32_t proc, gf_channel_end end)
{
    for (uint32_t i = 0; i < CONTROL_CONNS; i++) {
        struct control_conn *conn = &world->conns[i];
        if (!conn->used || (conn->proc != proc)) continue;
        conn->closed[TO_MEMBER] = true;
        pipe_end(&conn->to[TO_COORDINATOR], end);
        if (conn->closed[TO_COORDINATOR]) conn->used = false;
    }
    TELL("process %u of id %u dies%s", proc, world->procs[proc].id,
         (end == GF_CHANNEL_RESET) ? " with words unread" : "");
    if (world->procs[proc].member != NULL)
        give_back(world->procs[proc].member,
                  gf_member_state_bytes(&world->procs[proc].member->setup));
    world->procs[proc].member = NULL;
    world->procs[proc].alive = false;
}

void control_world_kill(struct control_world *world, uint32_t proc)
{
    proc_kill(world, proc, GF_CHANNEL_DIED);
}

void control_world_kill_unread(struct control_world *world, uint32_t proc)
{
    proc_kill(world, proc, GF_CHANNEL_RESET);
}

static void proc_cut(struct control_world *world, uint32_t proc, gf_channel_end end)
{
    TELL("process %u is %s", proc, (end == GF_CHANNEL_RESET) ? "reset" : "cut");
    for (uint32_t i = 0; i < CONTROL_CONNS; i++) {
        struct control_conn *conn = &world->conns[i];
        if (!conn->used || (conn->proc != proc)) continue;
        for (uint32_t way = 0; way < 2; way++) {
            conn->to[way].count = 0; /* what was under way is lost */
            pipe_end(&conn->to[way], end);
        }
    }
}

void control_world_cut(struct control_world *world, uint32_t proc)
{
    proc_cut(world, proc, GF_CHANNEL_BROKE);
}

void control_world_reset(struct control_world *world, uint32_t proc)
{
    proc_cut(world, proc, GF_CHANNEL_RESET);
}

void control_world_cut_half(struct control_world *world, uint32_t proc, uint32_t end)
{
    TELL("process %u is cut, and only %s is told", proc, (end == 0) ? "the coordinator" : "it");
    for (uint32_t i = 0; i < CONTROL_CONNS; i++) {
        struct control_conn *conn = &world->conns[i];
        if (!conn->used || (conn->proc != proc)) continue;
        conn->to[0].count = conn->to[1].count = 0;
        conn->to[0].lost = conn->to[1].lost = true;
        conn->half_ns = world->now_ns;
        pipe_end(&conn->to[end], GF_CHANNEL_BROKE);
    }
}

static void halves_end(struct control_world *world, uint64_t age_ns)
{
    for (uint32_t i = 0; i < CONTROL_CONNS; i++)
        for (uint32_t way = 0; world->conns[i].used && (way < 2); way++)
            if (world->conns[i].to[way].lost && (world->now_ns - world->conns[i].half_ns >= age_ns))
                pipe_end(&world->conns[i].to[way], GF_CHANNEL_BROKE);
}

void control_world_halves_end(struct control_world *world)
{
    halves_end(world, 0);
}

void control_world_edge(struct control_world *world, uint32_t a, uint32_t b, bool broken)
{
    if (a == b) return;
    TELL("the edge of ids %u and %u %s", a, b, broken ? "breaks" : "heals");
    for (uint32_t i = 0; i < 2; i++) {
        uint8_t bit = (uint8_t)(1u << (i ? a : b));
        uint8_t *edges = &world->cut_edges[i ? b : a];
        *edges = broken ? (uint8_t)(*edges | bit) : (uint8_t)(*edges & ~bit);
    }
}

static void world_begin(struct control_world *world, uint32_t ids, uint64_t seed, uint32_t id_count,
                        uint32_t host_id)
{
    the_world = world;
    filled_with = (unsigned char)~filled_with;
    if (world->endpoint_bytes == 0) world->endpoint_bytes = 8;
    world->ids = ids;
    world->id_count = id_count;
    world->random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    world->now_ns = 1000 * CONTROL_MS;
    world->setup = (struct gf_coordinator_setup){
        .world = ids,
        .id_count = id_count,
        .host_id = host_id,
        .join_timeout_ns = JOIN_NS,
        .endpoint_bytes_max = (world->endpoint_bytes > 16) ? world->endpoint_bytes : 16,
        .log = {.fn = log_line, .user = world}};
    control_world_coordinator_begin(world);
    for (uint32_t id = 0; id < ids; id++) (void)control_world_start(world, id, false);
}

void control_world_open(struct control_world *world, uint32_t ids, uint64_t seed)
{
    control_world_open_hosted(world, ids, seed, GF_RANK_NONE);
}

void control_world_open_hosted(struct control_world *world, uint32_t ids, uint64_t seed,
                               uint32_t host_id)
{
    control_world_open_growing(world, ids, seed, ids, host_id);
}

void control_world_open_growing(struct control_world *world, uint32_t ids, uint64_t seed,
                                uint32_t id_count, uint32_t host_id)
{
    memset(world, 0, sizeof *world);
    world_begin(world, ids, seed, id_count, host_id);
}

void control_world_open_large(struct control_world *world, uint32_t ids, uint32_t endpoint_bytes)
{
    memset(world, 0, sizeof *world);
    world->endpoint_bytes = endpoint_bytes;
    world_begin(world, ids, 1, ids, GF_RANK_NONE);
}

void control_world_open_fixed(struct control_world *world, uint32_t ids, uint64_t seed,
                              bool is_fixed)
{
    memset(world, 0, sizeof *world);
    world->is_fixed = is_fixed;
    world_begin(world, ids, seed, ids, GF_RANK_NONE);
}

void control_world_close(struct control_world *world)
{
    for (uint32_t i = 0; i < world->proc_count; i++)
        if (world->procs[i].alive) control_world_kill(world, i);
    give_back(world->coordinator, gf_coordinator_state_bytes(&world->setup));
    the_world = NULL;
}

uint32_t control_world_of(const struct control_world *world, uint32_t id)
{
    for (uint32_t i = world->proc_count; i-- > 0;)
        if (world->procs[i].alive && (world->procs[i].id == id)) return i;
    return CONTROL_PROCS;
}

/* ---- the program ---- */

/* A step of a generation ends where all of its members have voted for it, in that generation. */
static bool all_have_voted(struct control_world *world, const struct control_proc *own,
                           uint32_t *waiting_out)
{
    uint32_t found = 0;
    *waiting_out = 0;
    for (uint32_t i = 0; i < world->proc_count; i++) {
        const struct control_proc *proc = &world->procs[i];
        if ((proc->number != own->number) || (proc->voted <= own->steps)) continue;
        found++; /* a vote that was sent stays, whoever has died since */
        if (proc->vote_waiting > *waiting_out) *waiting_out = proc->vote_waiting;
    }
    return found == gf_member_generation(own->member)->world;
}

static const struct control_proc *lead_of(const struct control_world *world,
                                          const struct gf_generation *generation)
{
    for (uint32_t i = 0; i < world->proc_count; i++) {
        const struct control_proc *proc = &world->procs[i];
        if (proc->alive && (proc->number == generation->number) &&
            (gf_member_generation(proc->member)->rank == generation->lead))
            return proc;
    }
    return NULL;
}

/* Another process of its id lives, or was begun by a launcher that has said it was reaped: only one
 * of them is of the job. */
static bool is_replaced(const struct control_world *world, uint32_t proc)
{
    for (uint32_t i = 0; i < world->proc_count; i++)
        if ((i != proc) && (world->procs[i].id == world->procs[proc].id) &&
            (world->procs[i].alive || ((i > proc) && world->procs[i].rejoins)))
            return true;
    return false;
}

/* The number of its process, then bytes that follow from it and their place. */
static void endpoint_fill(const struct control_world *world, uint64_t process,
                          unsigned char *endpoint_out)
{
    for (uint32_t at = 8; at < world->endpoint_bytes; at++)
        endpoint_out[at] = (unsigned char)(process * 31 + at * 7 + at / 251);
    memcpy(endpoint_out, &process, sizeof process);
}

static bool endpoint_is_whole(const struct control_world *world, const unsigned char *endpoint,
                              size_t bytes)
{
    static unsigned char expected[CONTROL_ENDPOINT_MAX];
    uint64_t process;
    if (bytes != world->endpoint_bytes) return false;
    memcpy(&process, endpoint, sizeof process);
    endpoint_fill(world, process, expected);
    return memcmp(endpoint, expected, bytes) == 0;
}

/* The generation that a process sees for the first time; then what it lacks is copied. */
static void generation_begin(struct control_world *world, struct control_proc *proc)
{
    const struct gf_generation *generation = gf_member_generation(proc->member);
    TELL("process %u of id %u begins generation %u as rank %u of %u, step %llu%s",
         (unsigned)(proc - world->procs), proc->id, generation->number, generation->rank,
         generation->world, (unsigned long long)generation->progress.steps,
         generation->comes_in ? ", comes in" : "");
    struct control_begun *begun = &world->begun[generation->number % 512];
    uint64_t list = GF_FNV_START;
    bool alone = true; /* nobody lives that was of a generation before */
    for (uint32_t i = 0; i < world->proc_count; i++)
        alone = alone &&
                (!world->procs[i].alive || (world->procs[i].number == 0) || is_replaced(world, i) ||
                 world->procs[i].stopped || (control_world_state(world, i) >= GF_MEMBER_GONE));
    if (alone) memset(world->begun, 0, sizeof world->begun); /* the job is begun anew */
    for (uint32_t i = 0; alone && (i < world->proc_count); i++)
        world->procs[i].is_old = (world->procs[i].number != 0);
    rule(world, generation->number > proc->number, "the numbers of a process grow");
    for (uint32_t rank = 0; rank < generation->world; rank++) {
        size_t bytes;
        const unsigned char *endpoint = gf_member_endpoint(proc->member, rank, &bytes);
        rule(world, endpoint_is_whole(world, endpoint, bytes),
             "each rank of a generation has its endpoint");
        list = gf_fnv_bytes(list, endpoint, bytes);
    }
    rule(world, (begun->list == 0) || (begun->list == list), "a number has one list");
    begun->list = list;
    /* Who was left out had ended at most one step that the others had voted for. */
    /* of a job before this one */
    bool is_old = proc->is_old || is_replaced(world, (uint32_t)(proc - world->procs));
    rule(world, alone || is_old || (proc->steps <= generation->progress.steps + 1),
         "a generation loses no more than the step that was under way");
    proc->number = generation->number;
    proc->is_old = false;
    proc->voted = generation->progress.steps;
    proc->vote_waiting = 0;
    proc->stuck_ns = proc->now_ns;
    bool lags =
        !proc->has_state || generation->comes_in || (proc->steps != generation->progress.steps);
    bool first = !generation->lags && !generation->comes_in && (generation->progress.steps == 0);
    if (first) proc->state = 7; /* the job begins: all have drawn the same weights */
    proc->has_state = first || !lags;
    proc->steps = generation->progress.steps;
    if (proc->has_state && (begun->state == 0)) begun->state = proc->state;
    if (proc->has_state)
        rule(world, begun->state == proc->state, "members that are as far have the same weights");
}

/* The lead broadcasts what is common; a vote is cast once a process has it. */
static void state_copy(struct control_world *world, struct control_proc *proc)
{
    const struct control_proc *lead = lead_of(world, gf_member_generation(proc->member));
    if ((lead == NULL) || !lead->has_state || (lead->steps != proc->steps)) return;
    proc->state = lead->state;
    proc->has_state = true;
}

static void ready_say(struct control_proc *proc, bool planned)
{
    struct control_ready ready = {.planned = planned,
                                  .leaves = proc->leaves,
                                  .progress = {.steps = proc->steps,
                                               .applied = proc->unapplied ? 0 : 1,
                                               .partial = proc->has_state ? 0 : 1}};
    gf_member_ready(proc->member, &ready);
}

static void step_go(struct control_world *world, struct control_proc *proc)
{
    uint32_t waiting;
    struct control_edges edges;
    struct control_report *report = gf_member_report(proc->member);
    if (!proc->has_state) {
        state_copy(world, proc);
        report->waits_for = gf_member_generation(proc->member)->lead;
        return;
    }
    if (proc->hangs) {
        uint32_t world_size = gf_member_generation(proc->member)->world;
        if (proc->voted == proc->steps) report->sequence += proc->computes ? 1 : 2;
        proc->voted = proc->steps + 1;
        report->waits_for = proc->computes
                                ? GF_RANK_NONE
                                : (gf_member_generation(proc->member)->rank + 1) % world_size;
        return;
    }
    if (proc->voted == proc->steps) {
        proc->voted++;
        proc->vote_waiting = gf_member_joiner_count(proc->member) + (proc->leaves ? 1u : 0u);
        report->sequence++;
    }
    report->waits_for =
        (gf_member_generation(proc->member)->rank + 1) % gf_member_generation(proc->member)->world;
    if (!all_have_voted(world, proc, &waiting)) return;
    if (is_cut_off(world, proc, &edges)) return;
    proc->steps++;
    proc->state = gf_fnv_word(gf_fnv_word(proc->state, proc->number), proc->steps);
    report->step = proc->steps;
    proc->stuck_ns = proc->now_ns;
    if (waiting > 0) ready_say(proc, true);
}

static void works(struct control_world *world, struct control_proc *proc)
{
    struct gf_error seen = {.code = GF_ERR_TIMEOUT,
                            .peer = GF_RANK_NONE,
                            .step = proc->steps,
                            .tensor = GF_TENSOR_NONE,
                            .text = "no step ends"};
    if (gf_member_generation(proc->member)->number != proc->number) generation_begin(world, proc);
    step_go(world, proc);
    if (gf_member_poll(proc->member, proc->now_ns) != GF_MEMBER_WORKS) return;
    const struct control_closed *closed = gf_member_closed(proc->member);
    bool is_alone = (closed != NULL) && (closed->step <= proc->steps);
    if (is_alone || (proc->now_ns - proc->stuck_ns > EXCHANGE_NS))
        gf_member_fault(proc->member, &seen, false);
}

/* A program whose member has ended closes it. */
static void connection_close(struct control_world *world, uint32_t proc)
{
    for (uint32_t i = 0; i < CONTROL_CONNS; i++) {
        struct control_conn *conn = &world->conns[i];
        if (conn->used && (conn->proc == proc) && !conn->closed[TO_MEMBER])
            channel_drop(&world->procs[proc].channel, 0);
    }
}

void control_world_turn(struct control_world *world, uint32_t at)
{
    struct control_proc *proc = &world->procs[at];
    struct gf_generation listed;
    static unsigned char endpoint[CONTROL_ENDPOINT_MAX];
    if (!proc->alive || proc->stopped) return;
    proc->now_ns += TURN_NS;
    switch (gf_member_poll(proc->member, proc->now_ns)) {
    case GF_MEMBER_LISTED:
        if (!gf_member_list_due(proc->member, &listed)) break;
        endpoint_fill(world, proc->process, endpoint);
        gf_member_endpoint_set(proc->member, endpoint, world->endpoint_bytes);
        break;
    case GF_MEMBER_WORKS: works(world, proc); break;
    case GF_MEMBER_FAILED:
        if (gf_member_is_found(proc->member)) ready_say(proc, false);
        break;
    case GF_MEMBER_JOINING:
    case GF_MEMBER_READY:
    case GF_MEMBER_CLOSING: break;
    case GF_MEMBER_GONE:
    case GF_MEMBER_ENDED: connection_close(world, at); break;
    }
}

void control_world_coordinate(struct control_world *world)
{
    world->now_ns += TURN_NS;
    halves_end(world, KEEPALIVE_NS); /* the kernel's own probes */
    if (world->coordinator_lives && !world->is_stopped)
        (void)gf_coordinator_poll(world->coordinator, world->now_ns);
}

void control_world_quiet(struct control_world *world, uint64_t for_ns)
{
    for (uint64_t spent_ns = 0; (spent_ns < for_ns) && (world->broken == NULL);
         spent_ns += TURN_NS) {
        control_world_coordinate(world);
        for (uint32_t i = 0; i < world->proc_count; i++) control_world_turn(world, i);
    }
}

gf_member_state control_world_state(const struct control_world *world, uint32_t proc)
{
    return gf_member_poll(world->procs[proc].member, world->procs[proc].now_ns);
}
