/* See control_words.h. */
#include "firmware-tests/support/control_words.h"

#include <stdio.h>
#include <string.h>

/* ---- as text ---- */

static void list_tell(struct gf_walk *walk, char *text_out, size_t bytes)
{
    struct control_list list = {0};
    gf_frame_list_walk(walk, &list);
    (void)snprintf(text_out, bytes, "list %u rank %u of %u%s", list.number, list.rank, list.world,
                   list.comes_in ? " comes in" : "");
}

static void go_tell(struct gf_walk *walk, char *text_out, size_t bytes)
{
    struct control_go go = {0};
    uint32_t pieces = 0;
    gf_frame_go_walk(walk, &go);
    while ((walk->get->left > 0) && !walk->get->bad) {
        struct control_piece piece = {0};
        gf_frame_piece_walk(walk, &piece);
        (void)gf_get_bytes(walk->get, piece.bytes);
        pieces++;
    }
    (void)snprintf(text_out, bytes, "go %u lead %u steps %u%s pieces %u", go.number, go.lead,
                   (unsigned)go.progress.steps, go.lags ? " lags" : "", pieces);
}

static void refusal_tell(struct gf_walk *walk, char *text_out, size_t bytes)
{
    struct control_refusal refusal = {0};
    gf_frame_refusal_walk(walk, &refusal);
    (void)snprintf(text_out, bytes, "refused %d peer %d%s: %.40s", (int32_t)refusal.code,
                   (int)refusal.peer, refusal.may_retry ? " may retry" : "", refusal.text);
}

static void waiting_tell(struct gf_walk *walk, char *text_out, size_t bytes)
{
    struct control_waiting waiting = {.awaited = GF_RANK_NONE};
    gf_frame_waiting_walk(walk, &waiting);
    if (waiting.awaited == GF_RANK_NONE)
        (void)snprintf(text_out, bytes, "waiting %u%s%s", waiting.count,
                       (waiting.refused[0] == '\0') ? "" : " refused: ", waiting.refused);
    else
        (void)snprintf(text_out, bytes, "waiting %u awaits %u and %u in all, %s", waiting.count,
                       waiting.awaited, waiting.awaited_count, waiting.location);
}

static void finding_tell(struct gf_walk *walk, char *text_out, size_t bytes)
{
    struct control_finding finding = {0};
    gf_frame_finding_walk(walk, &finding);
    (void)snprintf(text_out, bytes, "error %d%s peer %d step %u%s: %.60s", finding.error.code,
                   (finding.error.operation == GF_OPERATION_JOIN) ? " in join" : "",
                   (int)finding.error.peer, (unsigned)finding.error.step,
                   finding.may_go_on ? " goes on" : "", finding.error.text);
}

static void offer_tell(struct gf_walk *walk, char *text_out, size_t bytes)
{
    struct control_offer offer = {0};
    gf_frame_offer_walk(walk, &offer);
    (void)snprintf(text_out, bytes, "offer %u generation %u rank %u of %u said %u listed %u%s",
                   offer.id, offer.standing.generation, offer.standing.rank, offer.standing.world,
                   offer.standing.said, offer.standing.listed, offer.rejoins ? " rejoins" : "");
}

static void report_tell(const char *name, uint32_t number, struct gf_walk *walk, char *text_out,
                        size_t bytes)
{
    struct control_report report = {0};
    gf_frame_report_walk(walk, &report);
    (void)snprintf(text_out, bytes, "%s %u of %u step %u sequence %u patience %u edges %u", name,
                   report.inquiry, number, (unsigned)report.step, (unsigned)report.sequence,
                   (unsigned)(report.patience_ns / CONTROL_MS), report.edges.count);
}

static void member_tell(uint32_t kind, struct gf_walk *walk, char *text_out, size_t bytes)
{
    const uint32_t number = gf_get_u32(walk->get);
    struct control_fault fault = {0};
    struct control_ready ready = {0};
    struct control_piece piece = {0};
    switch (kind) {
    case CONTROL_STATUS: report_tell("status", number, walk, text_out, bytes); break;
    case CONTROL_POSITION: report_tell("position", number, walk, text_out, bytes); break;
    case CONTROL_ENDPOINT:
        gf_frame_piece_walk(walk, &piece);
        (void)gf_get_bytes(walk->get, piece.bytes);
        (void)snprintf(text_out, bytes, "endpoint of %u rank %u%s", number, piece.rank,
                       ((piece.at == 0) && (piece.bytes == piece.total)) ? "" : " in part");
        break;
    case CONTROL_FAULT:
        gf_frame_fault_walk(walk, &fault);
        (void)snprintf(text_out, bytes, "fault of %u code %d peer %d edges %u%s", number,
                       fault.error.code, (int)fault.error.peer, fault.edges.count,
                       fault.ends ? " ends" : "");
        break;
    case CONTROL_READY:
        gf_frame_ready_walk(walk, &ready);
        (void)snprintf(text_out, bytes, "ready of %u steps %u%s%s", number,
                       (unsigned)ready.progress.steps, ready.planned ? " planned" : "",
                       ready.leaves ? " leaves" : "");
        break;
    default:
        (void)snprintf(text_out, bytes, "bye of %u step %u", number,
                       (unsigned)gf_get_u64_bytes(walk->get, 8));
        break;
    }
}

void control_word_tell(const struct gf_channel_event *event, char *text_out, size_t bytes)
{
    struct gf_get get = {.at = event->payload, .left = event->size_bytes};
    struct gf_walk walk = {.get = &get};
    struct control_closed closed = {0};
    uint64_t patience_ns;
    switch (event->frame_kind) {
    case CONTROL_OFFER: offer_tell(&walk, text_out, bytes); break;
    case CONTROL_LIST: list_tell(&walk, text_out, bytes); break;
    case CONTROL_GO: go_tell(&walk, text_out, bytes); break;
    case CONTROL_REFUSED: refusal_tell(&walk, text_out, bytes); break;
    case CONTROL_WAITING: waiting_tell(&walk, text_out, bytes); break;
    case CONTROL_ERROR: finding_tell(&walk, text_out, bytes); break;
    case CONTROL_ASK: (void)snprintf(text_out, bytes, "ask %u", gf_get_u32(&get)); break;
    case CONTROL_ALL_GONE: (void)snprintf(text_out, bytes, "all gone"); break;
    case CONTROL_CLOSED:
        gf_frame_closed_walk(&walk, &closed);
        (void)snprintf(text_out, bytes, "closed %u step %u", closed.rank, (unsigned)closed.step);
        break;
    case CONTROL_PATIENCE:
        patience_ns = gf_get_u64_bytes(&get, 8);
        (void)snprintf(text_out, bytes, "patience %u from %u", (unsigned)(patience_ns / CONTROL_MS),
                       (unsigned)gf_get_u64_bytes(&get, 8));
        break;
    default: member_tell(event->frame_kind, &walk, text_out, bytes); break;
    }
    if (get.bad || (get.left > 0)) (void)snprintf(text_out, bytes, "malformed");
}

const char *control_words_heard(struct gf_channel *channel)
{
    static char text[8192];
    struct gf_channel_event event;
    size_t used = 0;
    text[0] = '\0';
    while (channel->driver->poll(channel, 0, &event)) {
        if (event.kind == GF_CHANNEL_CONNECTED) continue;
        if ((used > 0) && (used + 2 < sizeof text))
            used += (size_t)snprintf(text + used, sizeof text - used, "; ");
        if (event.kind == GF_CHANNEL_ENDED)
            (void)snprintf(text + used, sizeof text - used, "ended");
        else
            control_word_tell(&event, text + used, sizeof text - used);
        used += strlen(text + used);
    }
    return text;
}

/* ---- a process that the test plays ---- */

void control_words_come(struct control_world *world, struct control_words_process *process)
{
    unsigned char payload[1024];
    struct gf_put put = {payload, sizeof payload};
    if (process->channel == NULL) {
        process->proc = world->proc_count;
        process->channel = control_world_stranger(world);
    }
    gf_frame_offer_walk(&(struct gf_walk){.put = &put}, &process->offer);
    process->channel->driver->dial(process->channel, 0);
    (void)process->channel->driver->send(process->channel, 0, CONTROL_OFFER, payload,
                                         (uint32_t)(sizeof payload - put.left));
}

static void word_send(struct control_words_process *process, uint32_t kind,
                      const unsigned char *payload, size_t bytes)
{
    (void)process->channel->driver->send(process->channel, 0, kind, payload, (uint32_t)bytes);
}

void control_words_status(struct control_words_process *process, uint32_t number,
                          const struct control_report *report)
{
    unsigned char payload[GF_CHANNEL_PAYLOAD_MAX];
    struct gf_put put = {payload, sizeof payload};
    struct control_report written = *report;
    gf_put_u32(&put, number);
    gf_frame_report_walk(&(struct gf_walk){.put = &put}, &written);
    word_send(process, (report->inquiry == 0) ? CONTROL_STATUS : CONTROL_POSITION, payload,
              sizeof payload - put.left);
}

void control_words_fault(struct control_words_process *process, uint32_t number,
                         const struct control_fault *fault)
{
    unsigned char payload[GF_CHANNEL_PAYLOAD_MAX];
    struct gf_put put = {payload, sizeof payload};
    struct control_fault written = *fault;
    gf_put_u32(&put, number);
    gf_frame_fault_walk(&(struct gf_walk){.put = &put}, &written);
    word_send(process, CONTROL_FAULT, payload, sizeof payload - put.left);
}

void control_words_ready(struct control_words_process *process, uint32_t number,
                         const struct control_ready *ready)
{
    unsigned char payload[128];
    struct gf_put put = {payload, sizeof payload};
    struct control_ready written = *ready;
    gf_put_u32(&put, number);
    gf_frame_ready_walk(&(struct gf_walk){.put = &put}, &written);
    word_send(process, CONTROL_READY, payload, sizeof payload - put.left);
}

void control_words_bye(struct control_words_process *process, uint32_t number, uint64_t step)
{
    unsigned char payload[16];
    struct gf_put put = {payload, sizeof payload};
    gf_put_u32(&put, number);
    gf_put_u64(&put, step);
    word_send(process, CONTROL_BYE, payload, sizeof payload - put.left);
}

void control_words_endpoint(struct control_words_process *process, uint32_t number, uint32_t rank)
{
    unsigned char payload[64];
    struct gf_put put = {payload, sizeof payload};
    struct control_piece piece = {.rank = rank, .total = 8, .bytes = 8};
    gf_put_u32(&put, number);
    gf_frame_piece_walk(&(struct gf_walk){.put = &put}, &piece);
    gf_put_u64(&put, process->offer.process);
    word_send(process, CONTROL_ENDPOINT, payload, sizeof payload - put.left);
}

/* ---- a coordinator that the test plays ---- */

void control_words_send(struct control_world *world, uint32_t proc, control_frame frame,
                        const void *payload, size_t bytes)
{
    for (uint32_t i = 0; i < CONTROL_CONNS; i++)
        if (world->conns[i].used && (world->conns[i].proc == proc) && !world->conns[i].closed[0])
            (void)world->channel.driver->send(&world->channel, i, frame, payload, (uint32_t)bytes);
}
