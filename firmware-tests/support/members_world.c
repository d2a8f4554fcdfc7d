/* Ranks of the membership tests, all in one thread. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/members_world.h"
#include "lib/membership/members_state.h"

struct fake_world fake;
struct tcp_world tcp;
struct world world;

/* ---- the control channel in memory ---- */

bool fake_push(struct fake_end *end, struct gf_rendezvous_event event)
{
    if (end->count == FAKE_QUEUE_MAX) return false;
    struct fake_event *slot = &end->queue[(end->head + end->count++) % FAKE_QUEUE_MAX];
    if (event.size_bytes > 0) memcpy(slot->payload, event.payload, event.size_bytes);
    event.payload = slot->payload;
    slot->event = event;
    return true;
}

static gf_status fake_send(struct gf_rendezvous *base, uint32_t to, uint32_t kind,
                           const void *payload, uint32_t bytes)
{
    struct fake_end *end = (struct fake_end *)base;
    struct fake_world *world = end->world;
    struct fake_end *far = &world->ends[to];
    if ((world->room_every > 0) && (++world->sends % world->room_every != 0)) return GF_AGAIN;
    struct gf_rendezvous_event event = {.kind = GF_RENDEZVOUS_FRAME,
                                        .rank = end->rank,
                                        .frame_kind = kind,
                                        .size_bytes = bytes,
                                        .payload = payload};
    if (!fake_push(far, event)) return GF_AGAIN;
    world->frames[members_kind(&event) % LENGTH(world->frames)]++;
    return GF_OK;
}

static gf_status fake_poll(struct gf_rendezvous *base, uint64_t now_ns,
                           struct gf_rendezvous_event *event_out)
{
    struct fake_end *end = (struct fake_end *)base;
    if (base->fault.code != GF_OK) return base->fault.code;
    if (end->count == 0) return GF_AGAIN;
    *event_out = end->queue[end->head].event;
    end->head = (end->head + 1) % FAKE_QUEUE_MAX;
    end->count--;
    return GF_OK;
}

static bool fake_flushed(struct gf_rendezvous *base)
{
    return true;
}

static const struct gf_rendezvous_driver fake_driver = {
    .name = "fake", .send = fake_send, .poll = fake_poll, .flushed = fake_flushed};

void fake_world_init(struct fake_world *world, uint32_t size, uint32_t room_every)
{
    memset(world, 0, sizeof *world);
    world->world = size;
    world->room_every = room_every;
    for (uint32_t rank = 0; rank < size; rank++) {
        world->ends[rank].base.driver = &fake_driver;
        world->ends[rank].world = world;
        world->ends[rank].rank = rank;
    }
}

void fake_connect(struct fake_world *world, uint32_t rank)
{
    (void)fake_push(&world->ends[0],
                    (struct gf_rendezvous_event){.kind = GF_RENDEZVOUS_CONNECTED, .rank = rank});
    (void)fake_push(&world->ends[rank],
                    (struct gf_rendezvous_event){.kind = GF_RENDEZVOUS_CONNECTED, .rank = 0});
}

void fake_cut(struct fake_world *world, uint32_t rank, const char *how)
{
    (void)fake_push(&world->ends[0], (struct gf_rendezvous_event){
                                         .kind = GF_RENDEZVOUS_ENDED, .rank = rank, .text = how});
    (void)fake_push(&world->ends[rank], (struct gf_rendezvous_event){
                                            .kind = GF_RENDEZVOUS_ENDED, .rank = 0, .text = how});
}

/* ---- ranks ---- */

struct gf_offer offer_of(uint32_t size)
{
    struct gf_offer offer = {.version = GF_VERSION,
                             .world = size,
                             .config_hash = 11,
                             .tensors_hash = 22,
                             .tensor_count = 3,
                             .elem_count = 44};
    (void)snprintf(offer.summary, sizeof offer.summary,
                   "wire=fp32 algorithm=ring slice_bytes=64KiB");
    return offer;
}

static uint32_t endpoint_make(uint32_t rank, unsigned char *endpoint)
{
    uint32_t bytes = (rank == 1) ? 0 : ENDPOINT_MAX - 100 * rank; /* an empty one is valid */
    for (uint32_t i = 0; i < bytes; i++) endpoint[i] = (unsigned char)(i * 7 + rank);
    return bytes;
}

static struct gf_rendezvous *rendezvous_of(uint32_t rank)
{
    return world.over_tcp ? tcp.ends[rank] : &fake.ends[rank].base;
}

static uint64_t begun_tell(void *of)
{
    return ((const struct rank *)of)->waits.taken;
}

static void waits_tell(void *of, struct gf_waits *waits_out)
{
    *waits_out = ((const struct rank *)of)->waits;
}

void rank_open(uint32_t rank, const struct gf_offer *offer)
{
    static unsigned char endpoint[ENDPOINT_MAX];
    struct gf_members_setup setup = {.rank = rank,
                                     .world =
                                         (world.first_world > 0) ? world.first_world : world.size,
                                     .id_count = world.size,
                                     .epoch = world.epoch,
                                     .join_timeout_ns = 60 * SECOND,
                                     .answer_ns = SECOND,
                                     .silent_ns = 10 * SECOND,
                                     .grace_ns = SECOND,
                                     .waits = waits_tell,
                                     .begun = begun_tell,
                                     .waits_of = &world.ranks[rank],
                                     .address = "127.0.0.1:7117",
                                     .offer = *offer,
                                     .endpoint_bytes_max = ENDPOINT_MAX};
    size_t bytes = gf_members_state_bytes(world.size, ENDPOINT_MAX);
    struct rank *r = &world.ranks[rank];
    r->state = malloc(bytes); /* of exactly this size, so that the sanitizer sees a byte too many */
    assert_non_null(r->state);
    memset(r->state, 0xa5, bytes);
    r->members = gf_members_open(&setup, r->state, rendezvous_of(rank), endpoint,
                                 endpoint_make(rank, endpoint), world.now_ns);
    assert_ptr_equal(r->members, r->state);
}

void members_world_begin(uint32_t size, bool over_tcp, uint32_t room_every)
{
    memset(&world, 0, sizeof world);
    world.size = size;
    world.over_tcp = over_tcp;
    world.now_ns = 5 * SECOND;
    if (over_tcp)
        tcp_world_open(&tcp, size, world.now_ns);
    else
        fake_world_init(&fake, size, room_every);
}

void members_world_end(void)
{
    for (uint32_t rank = 0; rank < world.size; rank++) free(world.ranks[rank].state);
    if (world.over_tcp) tcp_world_close(&tcp);
    memset(&world, 0, sizeof world);
}

static void open_all(void)
{
    const uint32_t size = world.size;
    struct gf_offer offer = offer_of(size);
    for (uint32_t rank = 0; rank < size; rank++) rank_open(rank, &offer);
    for (uint32_t rank = 1; (rank < size) && !world.over_tcp; rank++) fake_connect(&fake, rank);
}

void members_world_open(uint32_t size, bool over_tcp, uint32_t room_every)
{
    members_world_begin(size, over_tcp, room_every);
    open_all();
}

void members_world_open_epoch(uint32_t size, uint32_t epoch)
{
    members_world_begin(size, false, 0);
    world.epoch = epoch;
    open_all();
}

bool members_world_progress(gf_status expect)
{
    bool all = true;
    world.now_ns += MS;
    for (uint32_t rank = 0; rank < world.size; rank++) {
        if ((world.ranks[rank].members == NULL) || world.ranks[rank].stopped) continue;
        if (gf_members_poll(world.ranks[rank].members, world.now_ns) != expect) all = false;
    }
    return all;
}

void members_world_until(gf_status expect)
{
    for (uint32_t turn = 0; turn < 100000; turn++) {
        if (members_world_progress(expect)) return;
    }
    for (uint32_t rank = 0; rank < world.size; rank++) {
        if (world.ranks[rank].members == NULL) continue;
        print_error("rank %u: %s\n", rank, gf_members_error(world.ranks[rank].members)->text);
    }
    fail_msg("not all ranks reached %s", gf_status_name(expect));
}

const struct gf_error *error_of(uint32_t rank)
{
    return gf_members_error(world.ranks[rank].members);
}

void assert_all_failed(gf_status code, uint32_t peer, const char *text)
{
    const struct gf_error *first = NULL;
    for (uint32_t rank = 0; rank < world.size; rank++) {
        if ((world.ranks[rank].members == NULL) || world.ranks[rank].stopped) continue;
        const struct gf_error *error = error_of(rank);
        if (first == NULL) first = error;
        if ((error->code != code) || (error->peer != peer) || (strstr(error->text, text) == NULL)) {
            print_error("rank %u: %s peer %u '%s', expected '%s'\n", rank,
                        gf_status_name(error->code), error->peer, error->text, text);
        }
        assert_int_equal(error->code, code);
        assert_int_equal(error->peer, peer);
        assert_int_equal(error->rank, rank);
        assert_non_null(strstr(error->text, text));
        assert_string_equal(error->text, first->text);
    }
    assert_non_null(first);
}

void assert_endpoints_are_everywhere(void)
{
    static unsigned char expect[ENDPOINT_MAX];
    for (uint32_t rank = 0; rank < world.size; rank++) {
        for (uint32_t of = 0; of < world.size; of++) {
            size_t bytes = 0;
            size_t expect_bytes = endpoint_make(of, expect);
            const void *endpoint = gf_members_endpoint(world.ranks[rank].members, of, &bytes);
            assert_int_equal(bytes, expect_bytes);
            assert_memory_equal(endpoint, expect, expect_bytes);
        }
    }
}

void place(uint32_t rank, uint64_t step, uint64_t sequence, gf_operation operation,
           uint32_t waits_for)
{
    struct gf_position *position = gf_members_position(world.ranks[rank].members);
    position->step = step;
    position->sequence = sequence;
    position->operation = operation;
    position->buffer = 2;
    position->tensor = (operation == GF_OPERATION_NONE) ? GF_TENSOR_NONE : 5;
    position->waits_for = waits_for;
}
