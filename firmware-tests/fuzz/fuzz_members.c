/* libFuzzer over what a rank or a coordinator can make of the payloads of control frames: any kind,
 * any bytes, at any time, mixed with connections that come and end and with what the library itself
 * asks for. Whatever comes, every call returns, an error sticks and has a text. An offer may be
 * told to fit, whatever form it has by now. `make fuzz`. */
#include "drivers/bytes.h"
#include "firmware-tests/fuzz/fuzz.h"
#include "lib/membership/members_state.h"

#define ENDPOINT_BYTES_MAX 64u
#define RANKS_MAX 5u
#define WAIT_NS UINT64_C(1000000000)

struct source {
    struct gf_rendezvous base;
    struct gf_get get; /* the input */
    uint32_t rank, world;
    uint32_t connected;   /* bits */
    uint32_t coordinator; /* GF_RANK_NONE: whoever answers */
    uint32_t epoch;
    uint64_t now_ns;
    struct gf_members *members;
    bool paused; /* the next byte is not the driver's */
    unsigned char payload[GF_FRAME_PAYLOAD_MAX];
};

static uint32_t byte_get(struct source *source)
{
    const unsigned char *byte = gf_get_bytes(&source->get, 1);
    return (byte != NULL) ? *byte : 0;
}

static gf_status source_send(struct gf_rendezvous *rendezvous, uint32_t to, uint32_t frame_kind,
                             const void *payload, uint32_t size_bytes)
{
    struct source *source = (struct source *)rendezvous;
    must((size_bytes <= GF_FRAME_PAYLOAD_MAX) && (to < source->world) && (to != source->rank));
    must((frame_kind & 0xffu) < 24);
    memcpy(source->payload, payload, size_bytes);
    return ((source->connected & (1u << to)) != 0) ? GF_OK : GF_ERR_PEER;
}

/* Of exactly its size, for the sanitizer. */
static void *payload_copy(struct gf_get *get, uint32_t bytes)
{
    void *copy = malloc((bytes > 0) ? bytes : 1);
    must(copy != NULL);
    if (bytes > 0) memcpy(copy, gf_get_bytes(get, bytes), bytes);
    return copy;
}

/* A driver's promises: frames and ends come from who is connected. */
static gf_status source_poll(struct gf_rendezvous *rendezvous, uint64_t now_ns,
                             struct gf_rendezvous_event *event_out)
{
    struct source *source = (struct source *)rendezvous;
    while (!source->paused && (source->get.left > 1)) {
        uint32_t op = byte_get(source);
        uint32_t from = source->coordinator;
        if ((from == source->rank) || (from == GF_RANK_NONE))
            from = (source->rank + 1 + (op >> 4) % (source->world - 1)) % source->world;
        bool up = (source->connected & (1u << from)) != 0;
        struct gf_rendezvous_event event = {.rank = from, .text = "of the fuzzer"};
        switch (op & 15) {
        case 0: source->paused = true; return GF_AGAIN;
        case 1:
            if (!up) break;
            source->connected &= ~(1u << from);
            event.kind = GF_RENDEZVOUS_ENDED;
            event.end = (op & 128) != 0 ? GF_END_LEFT : GF_END_GONE;
            *event_out = event;
            return GF_OK;
        case 2:
            if (source->rank != source->coordinator) break;
            event.kind = GF_RENDEZVOUS_REFUSED;
            event.rank = byte_get(source) << 24 | byte_get(source);
            *event_out = event;
            return GF_OK;
        default:
            if (!up) {
                source->connected |= 1u << from;
                event.kind = GF_RENDEZVOUS_CONNECTED;
                event.rejoins = (source->coordinator == source->rank) && ((op & 15) == 15);
                if (source->coordinator == GF_RANK_NONE) source->coordinator = from;
                source->get.at--; /* the frame follows */
                source->get.left++;
                *event_out = event;
                return GF_OK;
            }
            event.kind = GF_RENDEZVOUS_FRAME;
            event.frame_kind = byte_get(source) % 24 | (source->epoch << 8);
            event.size_bytes = byte_get(source) * ((op & 1) ? 16 : 1);
            if (event.size_bytes > GF_FRAME_PAYLOAD_MAX) event.size_bytes = GF_FRAME_PAYLOAD_MAX;
            if (event.size_bytes > source->get.left) event.size_bytes = (uint32_t)source->get.left;
            *event_out = event;
            bool fits = ((op & 32) != 0) && (source->members != NULL);
            if (fits && (event.frame_kind == (MEMBERS_OFFER | (source->epoch << 8)))) {
                struct gf_put put = {source->payload, sizeof source->payload};
                gf_members_offer_put(&put, source->members);
                event_out->size_bytes = (uint32_t)(sizeof source->payload - put.left);
                event_out->payload =
                    payload_copy(&(struct gf_get){source->payload, event_out->size_bytes, false},
                                 event_out->size_bytes);
                return GF_OK;
            }
            event_out->payload = payload_copy(&source->get, event.size_bytes);
            return GF_OK;
        }
    }
    return GF_AGAIN;
}

/* Payloads live until the next poll. */
static gf_status source_poll_and_free(struct gf_rendezvous *rendezvous, uint64_t now_ns,
                                      struct gf_rendezvous_event *event_out)
{
    static const void *last;
    free((void *)(uintptr_t)last);
    last = NULL;
    gf_status status = source_poll(rendezvous, now_ns, event_out);
    if (status == GF_OK) last = event_out->payload;
    return status;
}

static bool source_flushed(struct gf_rendezvous *rendezvous)
{
    return true;
}

static gf_status source_reform(struct gf_rendezvous *rendezvous, uint64_t now_ns,
                               uint32_t coordinator, const char *address)
{
    struct source *source = (struct source *)rendezvous;
    must((coordinator == GF_RANK_NONE) || (coordinator < source->world));
    must((coordinator == GF_RANK_NONE) ||
         (strnlen(address, GF_CONTROL_ADDRESS_BYTES) < GF_CONTROL_ADDRESS_BYTES));
    if ((coordinator != GF_RANK_NONE) && (coordinator == source->coordinator)) return GF_OK;
    source->coordinator = coordinator;
    source->connected = 0;
    return (coordinator == source->rank) ? GF_OK : GF_AGAIN;
}

static void source_address(struct gf_rendezvous *rendezvous, char *text_out)
{
    memcpy(text_out, "fuzz", sizeof "fuzz");
}

static const struct gf_rendezvous_driver source_driver = {.name = "fuzz",
                                                          .send = source_send,
                                                          .poll = source_poll_and_free,
                                                          .flushed = source_flushed,
                                                          .reform = source_reform,
                                                          .address = source_address};

/* The next epoch, as epoch.c goes there: until it has begun or cannot begin. False: it cannot. */
static bool shrink(struct gf_members *members, struct source *source, uint32_t *world_out)
{
    struct gf_members_plan plan = {0};
    gf_status status = GF_AGAIN;
    while ((status == GF_AGAIN) && (source->get.left > 1)) {
        source->paused = false;
        source->now_ns += UINT64_C(100000000);
        status = gf_view_poll(members, source->now_ns, &plan);
    }
    if (status != GF_OK) {
        must((status == GF_AGAIN) || (strnlen(gf_members_error(members)->text, 256) > 0));
        return false;
    }
    if (plan.world == 0) return false; /* it has left */
    must((plan.world >= 1) && (plan.world <= source->world) && (plan.rank < plan.world) &&
         (plan.lead < plan.world));
    must(plan.epoch > source->epoch);
    source->epoch = plan.epoch;
    gf_view_epoch_join(members, "endpoint", 4, source->now_ns);
    *world_out = plan.world;
    for (uint32_t rank = 0; rank < plan.world; rank++)
        must(gf_members_ids(members)[rank] < source->world);
    return true;
}

static gf_status act(struct gf_members *members, struct source *source, uint32_t endpoints,
                     uint32_t op)
{
    struct gf_error error = {.code = GF_ERR_TIMEOUT,
                             .peer = op % RANKS_MAX,
                             .operation = (gf_operation)(op >> 4),
                             .tensor = op,
                             .text = "seen by the fuzzer"};
    struct gf_error out = {0};
    gf_status status = GF_OK;
    size_t bytes;
    switch (op & 7) {
    case 0: source->now_ns += UINT64_C(10000000) << (op >> 4); break;
    case 1: gf_members_tell(members, &error); break;
    case 2: status = gf_members_attribute(members, source->now_ns, &error, &out); break;
    case 3: status = gf_members_leave(members, source->now_ns); break;
    case 4: gf_members_heartbeat(members, source->now_ns); break;
    case 6:
        (void)gf_members_waiting(members);
        if (op >= 128)
            gf_members_call(members, (gf_operation)(op >> 4 & 3), GF_TYPE_F32, op & 1, op);
        break;
    case 5:
        gf_members_position(members)->step++;
        gf_members_position(members)->operation = (op >> 4) % 8;
        break;
    default:
        for (uint32_t rank = 0; rank < endpoints; rank++) {
            must((gf_members_endpoint(members, rank, &bytes) != NULL) &&
                 (bytes <= ENDPOINT_BYTES_MAX));
        }
    }
    if (((op & 7) == 2) && (status == GF_OK))
        must((out.code < 0) && (strnlen(out.text, sizeof out.text) > 0));
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct source source;
    if (size < 2) return 0;
    source = (struct source){
        .base.driver = &source_driver, .get = {.at = data + 1, .left = size - 1}, .now_ns = 1000};
    source.world = 2 + (data[0] >> 1) % (RANKS_MAX - 1);
    source.rank = ((data[0] & 1) != 0) ? 0 : 1 + (data[0] >> 4) % (source.world - 1);
    source.epoch = (data[0] >> 6) & 1; /* 0: none that could be shrunk */
    bool rejoins = (data[0] & 0xc1) == 0xc0;
    uint32_t world_now = source.world;
    struct gf_members_setup setup = {.rank = source.rank,
                                     .world = source.world,
                                     .id_count = source.world,
                                     .epoch = source.epoch,
                                     .joins = rejoins,
                                     .endpoint_bytes_max = ENDPOINT_BYTES_MAX,
                                     .join_timeout_ns = UINT64_C(10000000000),
                                     .address = "fuzz",
                                     .answer_ns = UINT64_C(500000000)};
    unsigned char *state = malloc(gf_members_state_bytes(source.world, ENDPOINT_BYTES_MAX));
    must(state != NULL);
    struct gf_members *members =
        gf_members_open(&setup, state, &source.base, "endpoint", 4, source.now_ns);
    source.members = members;
    gf_status failed = GF_OK;
    bool leaving = false;
    if (rejoins) {
        const struct gf_members_reason comes = {.culprit = GF_RANK_NONE,
                                                .silent_ns = WAIT_NS,
                                                .away_ns = WAIT_NS,
                                                .own = {.applied = 1, .partial = 1}};
        gf_view_change(members, source.now_ns, &comes);
        if (!shrink(members, &source, &world_now)) goto end;
    }
    while (source.get.left > 0) {
        source.paused = false;
        gf_status status = gf_members_poll(members, source.now_ns);
        must((failed == GF_OK) || (status == failed));
        if (status < 0) {
            const struct gf_error *error = gf_members_error(members);
            must((error->code == status) && (strnlen(error->text, sizeof error->text) > 0));
            must(strnlen(error->text, sizeof error->text) < sizeof error->text);
            failed = status;
        }
        source.now_ns += 1000;
        uint32_t op = byte_get(&source);
        struct gf_members_reason reason = {.own = {.steps = op & 3, .applied = op >> 7},
                                           .leaves = (op & 32) != 0,
                                           .culprit =
                                               ((op & 8) != 0) ? GF_RANK_NONE : op % world_now,
                                           .silent_ns = WAIT_NS,
                                           .away_ns = WAIT_NS};
        if ((failed < 0) && ((op & 7) == 7)) { /* as an appliance that goes on */
            gf_view_change(members, source.now_ns, &reason);
        } else if ((status == GF_OK) && !leaving && ((op & 7) == 7) && ((op & 16) != 0) &&
                   (source.epoch > 0)) {
            reason.planned = true;
            reason.culprit = GF_RANK_NONE;
            gf_view_change(members, source.now_ns, &reason);
        } else {
            leaving = leaving || ((op & 7) == 3);
            /* Endpoints are all here behind the join. */
            (void)act(members, &source, (status == GF_OK) ? world_now : 0, op);
            continue;
        }
        failed = GF_OK;
        if (!shrink(members, &source, &world_now)) break;
    }
end:
    for (int i = 0; (i < 10) && (gf_members_leave(members, source.now_ns) == GF_AGAIN); i++)
        source.now_ns += 1000;
    free(state);
    return 0;
}
