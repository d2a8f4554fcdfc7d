/* See frames.h. */
#include "lib/control/frames.h"

#include "drivers/base/fnv.h"

#define COUNT(fields) (sizeof(fields) / sizeof((fields)[0]))

static void progress_walk(struct gf_walk *walk, struct gf_control_progress *progress)
{
    static const struct gf_field fields[] = {
        GF_FIELD(gf_control_progress, steps), GF_FIELD(gf_control_progress, requests),
        GF_FIELD(gf_control_progress, applied), GF_FIELD(gf_control_progress, partial)};
    gf_walk_fields(walk, progress, fields, COUNT(fields));
}

static void error_walk(struct gf_walk *walk, struct gf_error *error)
{
    static const struct gf_field fields[] = {
        GF_FIELD(gf_error, code),         GF_FIELD(gf_error, peer),
        GF_FIELD(gf_error, operation),    GF_FIELD(gf_error, tensor),
        GF_FIELD(gf_error, step),         GF_FIELD(gf_error, foreign_code),
        GF_FIELD(gf_error, foreign_call), GF_FIELD(gf_error, text)};
    gf_walk_fields(walk, error, fields, COUNT(fields));
    if ((walk->get != NULL) && ((int32_t)error->code >= 0)) walk->get->bad = true;
}

/* The text travels where there is one. */
static void edges_walk_reported(struct gf_walk *walk, struct control_edges *edges)
{
    static const struct gf_field fields[] = {
        GF_FIELD(control_edges, code), GF_FIELD(control_edges, peer),
        GF_FIELD(control_edges, foreign_code), GF_FIELD(control_edges, foreign_call),
        GF_FIELD(control_edges, text)};
    bool is_said = (edges->code != GF_OK);
    gf_walk_bool(walk, &is_said);
    if (!is_said) return;
    gf_walk_fields(walk, edges, fields, COUNT(fields));
    if ((edges->code != GF_ERR_LINK) && (edges->code != GF_ERR_SYSTEM)) {
        if (walk->get != NULL) walk->get->bad = true; /* it ends other ranks with this code */
        edges->code = GF_OK;
    }
}

static void edges_walk(struct gf_walk *walk, struct control_edges *edges)
{
    gf_walk_u32(walk, &edges->count);
    if (edges->count > CONTROL_EDGES_MAX) {
        walk->get->bad = true; /* a writer never has more */
        edges->count = 0;
    }
    for (uint32_t i = 0; i < edges->count; i++) gf_walk_u16(walk, &edges->peers[i]);
    edges_walk_reported(walk, edges);
}

static void standing_walk(struct gf_walk *walk, struct control_standing *standing)
{
    static const struct gf_field fields[] = {
        GF_FIELD(control_standing, generation), GF_FIELD(control_standing, rank),
        GF_FIELD(control_standing, world),      GF_FIELD(control_standing, list_hash),
        GF_FIELD(control_standing, said),       GF_FIELD(control_standing, closed_step),
        GF_FIELD(control_standing, listed)};
    gf_walk_fields(walk, standing, fields, COUNT(fields));
    if ((walk->get != NULL) && (standing->said >= CONTROL_SAID_COUNT)) walk->get->bad = true;
}

static void values_walk(struct gf_walk *walk, struct gf_offer *values)
{
    static const struct gf_field fields[] = {
        GF_FIELD(gf_offer, version),      GF_FIELD(gf_offer, config_hash),
        GF_FIELD(gf_offer, tensors_hash), GF_FIELD(gf_offer, tensor_count),
        GF_FIELD(gf_offer, network),      GF_FIELD(gf_offer, fabric),
        GF_FIELD(gf_offer, node),         GF_FIELD(gf_offer, elem_count),
        GF_FIELD(gf_offer, summary)};
    gf_walk_fields(walk, values, fields, COUNT(fields));
}

void gf_frame_offer_walk(struct gf_walk *walk, struct control_offer *offer)
{
    gf_walk_u32(walk, &offer->id);
    gf_walk_u32(walk, &offer->id_count);
    gf_walk_u32(walk, &offer->first_world);
    gf_walk_bool(walk, &offer->rejoins);
    gf_walk_u64(walk, &offer->process);
    standing_walk(walk, &offer->standing);
    gf_walk_bool(walk, &offer->terms.elastic);
    gf_walk_u64(walk, &offer->terms.join_timeout_ns);
    gf_walk_u64(walk, &offer->terms.keepalive_ns);
    gf_walk_u64(walk, &offer->terms.exchange_timeout_ns);
    values_walk(walk, &offer->values);
    if ((walk->get != NULL) && (offer->process == 0)) walk->get->bad = true;
}

void gf_frame_list_walk(struct gf_walk *walk, struct control_list *list)
{
    gf_walk_u32(walk, &list->number);
    gf_walk_u32(walk, &list->rank);
    gf_walk_u32(walk, &list->world);
    gf_walk_u32(walk, &list->network);
    gf_walk_bool(walk, &list->comes_in);
}

void gf_frame_go_walk(struct gf_walk *walk, struct control_go *go)
{
    gf_walk_u32(walk, &go->number);
    gf_walk_u64(walk, &go->list_hash);
    gf_walk_u32(walk, &go->lead);
    gf_walk_bool(walk, &go->lags);
    progress_walk(walk, &go->progress);
}

void gf_frame_piece_walk(struct gf_walk *walk, struct control_piece *piece)
{
    gf_walk_u32(walk, &piece->rank);
    gf_walk_u32(walk, &piece->total);
    gf_walk_u32(walk, &piece->at);
    gf_walk_u32(walk, &piece->bytes);
}

static void call_walk(struct gf_walk *walk, struct control_call *call)
{
    static const struct gf_field fields[] = {
        GF_FIELD(control_call, hash), GF_FIELD(control_call, elem_count),
        GF_FIELD(control_call, what), GF_FIELD(control_call, root)};
    gf_walk_fields(walk, call, fields, COUNT(fields));
}

/* Of those that there are. */
static void calls_walk(struct gf_walk *walk, struct control_calls *calls)
{
    gf_walk_u64(walk, &calls->count);
    for (uint32_t i = 0; i < CONTROL_CALLS_TOLD; i++) {
        uint64_t number = gf_calls_number(calls, i);
        struct control_call *call = (i < CONTROL_CALLS_LAST)
                                        ? &calls->last[number % CONTROL_CALLS_LAST]
                                        : &calls->marks[i - CONTROL_CALLS_LAST];
        if (number != 0) call_walk(walk, call);
    }
}

void gf_frame_report_walk(struct gf_walk *walk, struct control_report *report)
{
    static const struct gf_field fields[] = {
        GF_FIELD(control_report, inquiry),       GF_FIELD(control_report, step),
        GF_FIELD(control_report, sequence),      GF_FIELD(control_report, operation),
        GF_FIELD(control_report, tensor),        GF_FIELD(control_report, buffer),
        GF_FIELD(control_report, waits_for),     GF_FIELD(control_report, free_ns),
        GF_FIELD(control_report, unmoved_ns),    GF_FIELD(control_report, patience_ns),
        GF_FIELD(control_report, patience_from), GF_FIELD(control_report, tensor_name)};
    gf_walk_fields(walk, report, fields, COUNT(fields));
    calls_walk(walk, &report->calls);
    edges_walk(walk, &report->edges);
}

void gf_frame_waiting_walk(struct gf_walk *walk, struct control_waiting *waiting)
{
    gf_walk_u32(walk, &waiting->number);
    gf_walk_u32(walk, &waiting->count);
    gf_walk_u32(walk, &waiting->awaited);
    if (waiting->number == 0) gf_walk_text(walk, waiting->refused, sizeof waiting->refused);
    if (waiting->awaited == GF_RANK_NONE) return;
    gf_walk_u32(walk, &waiting->awaited_count);
    gf_walk_text(walk, waiting->location, sizeof waiting->location);
}

void gf_frame_status_walk(struct gf_walk *walk, struct control_status *shown)
{
    static const struct gf_field fields[] = {
        GF_FIELD(control_status, state),   GF_FIELD(control_status, generation),
        GF_FIELD(control_status, world),   GF_FIELD(control_status, here),
        GF_FIELD(control_status, waiting), GF_FIELD(control_status, refused_count),
        GF_FIELD(control_status, id_count)};
    bool has_error = (shown->error.code != GF_OK);
    gf_walk_fields(walk, shown, fields, COUNT(fields));
    gf_walk_bool(walk, &has_error);
    if (has_error) error_walk(walk, &shown->error);
    if (shown->id_count > GF_WORLD_MAX) {
        if (walk->get != NULL) walk->get->bad = true;
        shown->id_count = 0;
    }
    if (shown->refused_count > 0)
        gf_walk_text(walk, shown->refused_text, sizeof shown->refused_text);
    gf_walk_bytes(walk, shown->present, (shown->id_count + 7) / 8);
}

void gf_frame_fault_walk(struct gf_walk *walk, struct control_fault *fault)
{
    gf_walk_bool(walk, &fault->ends);
    error_walk(walk, &fault->error);
    edges_walk(walk, &fault->edges);
}

void gf_frame_finding_walk(struct gf_walk *walk, struct control_finding *finding)
{
    gf_walk_bool(walk, &finding->may_go_on);
    error_walk(walk, &finding->error);
}

void gf_frame_ready_walk(struct gf_walk *walk, struct control_ready *ready)
{
    gf_walk_bool(walk, &ready->planned);
    gf_walk_bool(walk, &ready->leaves);
    progress_walk(walk, &ready->progress);
}

void gf_frame_closed_walk(struct gf_walk *walk, struct control_closed *closed)
{
    gf_walk_u32(walk, &closed->rank);
    gf_walk_u64(walk, &closed->step);
}

void gf_frame_refusal_walk(struct gf_walk *walk, struct control_refusal *refusal)
{
    gf_walk_u32(walk, &refusal->code);
    gf_walk_bool(walk, &refusal->may_retry);
    gf_walk_u32(walk, &refusal->peer);
    gf_walk_text(walk, refusal->text, sizeof refusal->text);
}

uint64_t gf_frame_list_hash(uint64_t hash, uint32_t id, uint64_t process)
{
    return gf_fnv_word(gf_fnv_word(hash, id), process);
}
