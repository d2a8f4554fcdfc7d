/* A control channel in memory. */
#include "firmware-tests/support/fake_rendezvous.h"

#include <string.h>

bool fake_push(struct fake_end *end, struct gf_rendezvous_event event)
{
    if (end->count == FAKE_QUEUE_MAX) return false;
    struct fake_event *slot = &end->queue[(end->head + end->count++) % FAKE_QUEUE_MAX];
    if (event.size_bytes > 0) memcpy(slot->payload, event.payload, event.size_bytes);
    event.payload = slot->payload;
    slot->event = event;
    return true;
}

static gf_status fake_send(struct gf_rendezvous *base, uint32_t to, uint32_t kind, const void *payload, uint32_t bytes)
{
    struct fake_end *end = (struct fake_end *)base;
    struct fake_world *world = end->world;
    struct fake_end *far = &world->ends[to];
    if ((world->room_every > 0) && (++world->sends % world->room_every != 0)) return GF_AGAIN;
    struct gf_rendezvous_event event = {.kind = GF_RENDEZVOUS_FRAME, .rank = end->rank, .frame_kind = kind,
                                        .size_bytes = bytes, .payload = payload};
    return fake_push(far, event) ? GF_OK : GF_AGAIN;
}

static gf_status fake_poll(struct gf_rendezvous *base, uint64_t now_ns, struct gf_rendezvous_event *event_out)
{
    struct fake_end *end = (struct fake_end *)base;
    if (base->fault.code != GF_OK) return base->fault.code;
    if (end->count == 0) return GF_AGAIN;
    *event_out = end->queue[end->head].event;
    end->head = (end->head + 1) % FAKE_QUEUE_MAX;
    end->count--;
    return GF_OK;
}

static bool fake_flushed(struct gf_rendezvous *base) { return true; }

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
    (void)fake_push(&world->ends[0], (struct gf_rendezvous_event){.kind = GF_RENDEZVOUS_CONNECTED, .rank = rank});
    (void)fake_push(&world->ends[rank], (struct gf_rendezvous_event){.kind = GF_RENDEZVOUS_CONNECTED, .rank = 0});
}

void fake_cut(struct fake_world *world, uint32_t rank, const char *how)
{
    (void)fake_push(&world->ends[0],
                    (struct gf_rendezvous_event){.kind = GF_RENDEZVOUS_ENDED, .rank = rank, .text = how});
    (void)fake_push(&world->ends[rank],
                    (struct gf_rendezvous_event){.kind = GF_RENDEZVOUS_ENDED, .rank = 0, .text = how});
}
