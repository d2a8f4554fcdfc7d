/* Turns of a tcp_world. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/tcp_turns.h"

struct tcp_world star;
struct seen seen[TCP_WORLD_MAX];
uint64_t now_ns;
void (*turn_too)(void);

void world_clear(void)
{
    memset(&star, 0, sizeof star);
    memset(seen, 0, sizeof seen);
    now_ns = 7 * SECOND;
    tcp_address_free(star.address, false);
}

void world_clear_open(void)
{
    world_clear();
    star.insecure = true;
}

void world_end(void)
{
    tcp_world_close(&star);
}

static void end_poll(uint32_t slot)
{
    struct seen *s = &seen[slot];
    for (int i = 0; i < 100; i++) {
        struct gf_rendezvous_event event = {0};
        s->status = star.ends[slot]->driver->poll(star.ends[slot], now_ns, &event);
        if (s->status != GF_OK) return;
        switch (event.kind) {
        case GF_RENDEZVOUS_CONNECTED: s->connected |= 1u << event.rank % 32; break;
        case GF_RENDEZVOUS_ENDED: s->ended |= 1u << event.rank % 32; break;
        case GF_RENDEZVOUS_REFUSED: s->refused++; break;
        case GF_RENDEZVOUS_FRAME:
            s->frames++;
            s->last_kind = event.frame_kind;
            s->last_from = event.rank;
            s->last_bytes = event.size_bytes;
            memcpy(s->last, event.payload, event.size_bytes);
            break;
        }
        if (event.text != NULL) (void)snprintf(s->text, sizeof s->text, "%s", event.text);
    }
}

void turn(void)
{
    now_ns += MS / 10;
    for (uint32_t slot = 0; slot < TCP_WORLD_MAX; slot++) {
        if (star.ends[slot] != NULL) end_poll(slot);
    }
    if (turn_too != NULL) turn_too();
}

void end_open(uint32_t slot, const struct gf_rendezvous_setup *setup)
{
    struct gf_fault fault = {0};
    gf_status status = tcp_world_end_open(&star, slot, setup, now_ns, &fault);
    if (status != GF_OK) print_error("slot %u: %s\n", slot, fault.text);
    assert_int_equal(status, GF_OK);
}

void end_join(uint32_t slot, uint32_t rank, uint32_t size)
{
    struct gf_rendezvous_setup setup = tcp_setup(&star, rank, size);
    end_open(slot, &setup);
}

void turns_open(uint32_t size)
{
    for (uint32_t rank = 0; rank < size; rank++) end_join(rank, rank, size);
    turns_connect(size);
}

void turns_connect(uint32_t size)
{
    UNTIL(seen[0].connected == (1u << size) - 2);
    for (uint32_t rank = 1; rank < size; rank++) UNTIL(seen[rank].connected == 1);
}

void assert_refused(uint32_t slot, const char *text)
{
    UNTIL(seen[slot].status < 0);
    if (strstr(star.ends[slot]->fault.text, text) == NULL)
        print_error("'%s'\n", star.ends[slot]->fault.text);
    assert_int_equal(seen[slot].status, GF_ERR_MISMATCH);
    assert_int_equal(star.ends[slot]->fault.peer, 0);
    assert_non_null(strstr(star.ends[slot]->fault.text, text));
}
