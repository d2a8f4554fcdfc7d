/* Who leads a view, and how a member comes to the coordinator. */
#include "lib/membership/members_state.h"

void gf_view_enter(struct gf_members *members, view_state state)
{
    members->view.state = state;
    members->view.since_ns = members->now_ns;
}

uint32_t gf_view_coordinator(const struct gf_members *members, uint32_t number)
{
    const struct members_list *list = &members->view.epoch;
    uint32_t id = list->first;
    for (uint32_t i = (number - 1) % gf_view_list_count(list, members->id_count); i > 0; i--)
        id = gf_view_list_next(list, id, members->id_count);
    return id;
}

static gf_status reform(struct gf_members *members, uint32_t id)
{
    const struct gf_rendezvous_driver *driver = members->rendezvous->driver;
    const char *address = (id == GF_RANK_NONE) ? "" : members->table[id].address;
    if (driver->reform == NULL) return (id == members_id(members, 0)) ? GF_OK : GF_ERR_STATE;
    if ((id != GF_RANK_NONE) && (id != members->member_id) && (address[0] == 0))
        return GF_ERR_STATE;
    return driver->reform(members->rendezvous, members->now_ns, id, address);
}

gf_status gf_view_turn(struct gf_members *members, uint32_t id)
{
    gf_status status = reform(members, id);
    /* whoever looks for anybody has closed all, also where it knew of no coordinator */
    if ((status < 0) || ((id == members->view.coordinator) && (id != GF_RANK_NONE))) return status;
    members->view.coordinator = id;
    /* connections to the one before are closed; the way to this one may stand already */
    for (uint32_t other = 0; other < members->id_count; other++) {
        if ((other == id) && (status == GF_OK)) continue;
        struct member *member = &members->table[other];
        bool is_dead = gf_member_is_recovering(member) || (member->state == MEMBER_DEAD);
        member->connected = false;
        member->owed = 0;
        member->state = is_dead ? MEMBER_DEAD : MEMBER_EXPECTED;
    }
    return status;
}

/* What members said of lower views counts no more; of whom a process rejoins or whose connection
 * stands is still known. */
static void reports_forget(struct gf_members *members)
{
    for (uint32_t id = 0; id < members->id_count; id++) {
        struct member *member = &members->table[id];
        /* of this epoch, to one that has not heard */
        member->owed &= ~MEMBERS_VIEW_FRAMES | (1u << MEMBERS_COMMIT);
        if (member->state == MEMBER_ACCEPTED) member->state = MEMBER_REPORTED;
    }
}

void gf_view_lead(struct gf_members *members, uint32_t number)
{
    struct members_view *view = &members->view;
    reports_forget(members);
    view->view = number;
    view->led = view->noted; /* before anybody is asked */
    view->sought = GF_RANK_NONE;
    gf_view_enter(members, VIEW_COLLECT);
    gf_view_admit(members);
    gf_view_ask(members);
}

void gf_view_ask(struct gf_members *members)
{
    members->view.said_ns = members->now_ns;
    for (uint32_t id = 0; id < members->id_count; id++) {
        member_state state = members->table[id].state;
        if ((state == MEMBER_REPORTED) || (state == MEMBER_ACCEPTED) || (state == MEMBER_WAITS))
            gf_members_owe_id(members, id, MEMBERS_START_VIEW);
    }
}

void gf_view_lead_again(struct gf_members *members)
{
    uint32_t members_count = gf_view_list_count(&members->view.epoch, members->id_count);
    gf_view_lead(members, members->view.view + members_count);
}

/* Looks for whoever answers where the job's address is: a rank that no epoch in use has told
 * addresses. */
static void seek_any(struct gf_members *members)
{
    gf_view_enter(members, VIEW_SEEK);
    (void)gf_view_turn(members, GF_RANK_NONE);
}

/* Whether both are reached at one host: their addresses are the same up to the port. */
static bool is_same_host(const struct member *a, const struct member *b)
{
    const char *port = strrchr(a->address, ':');
    size_t bytes = (port == NULL) ? 0 : (size_t)(port - a->address) + 1;
    return (bytes > 1) && (strncmp(a->address, b->address, bytes) == 0);
}

bool gf_view_is_near(const struct gf_members *members, uint32_t id)
{
    return is_same_host(&members->table[members->member_id], &members->table[id]);
}

bool gf_view_host_is_silent(const struct gf_members *members, uint32_t id)
{
    for (uint32_t other = 0; other < members->id_count; other++) {
        const struct member *silent = &members->table[other];
        if (!silent->passed_over && !silent->excluded) continue;
        if (is_same_host(silent, &members->table[id])) return true;
    }
    return false;
}

/* When a member is tried as coordinator: those whose host was silent, and those that were silent
 * themselves, behind all others. It is the same for a rank itself, so that all try the same one. A rank
 * that is cut ends when its own turn comes: it tries each of the others before, those once more. */
typedef enum candidate_turn {
    TURN_FIRST = 0,
    TURN_HOST_SILENT,
    TURN_PASSED_OVER,
    TURN_OWN_CUT,
    TURN_NEVER
} candidate_turn;

static candidate_turn turn_of(const struct gf_members *members, uint32_t id)
{
    const struct members_view *view = &members->view;
    const struct member *member = &members->table[id];
    bool unknown = (gf_view_list_took(&view->epoch, id) != 0) && (member->address[0] == 0);
    bool is_gone = (member->state == MEMBER_DEAD) || gf_member_is_recovering(member);
    bool seeks = (view->sought != GF_RANK_NONE);
    bool is_out = is_gone || member->excluded || unknown || (seeks && (view->sought != id));
    bool is_own = (id == members->member_id);
    if (!is_own && is_out) return TURN_NEVER;
    if (seeks) return TURN_FIRST;
    if (is_own && view->is_cut) return TURN_OWN_CUT;
    if (member->passed_over)
        return (view->is_cut && member->sought) ? TURN_NEVER : TURN_PASSED_OVER;
    return gf_view_host_is_silent(members, id) ? TURN_HOST_SILENT : TURN_FIRST;
}

/* The next view whose coordinator has the first turn of all that there are. */
static uint32_t view_find(const struct gf_members *members, uint32_t *coordinator_out)
{
    const struct members_view *view = &members->view;
    uint32_t of = gf_view_list_count(&view->epoch, members->id_count);
    uint32_t id = (view->view == 0) ? view->epoch.first : gf_view_coordinator(members, view->view);
    candidate_turn first = TURN_NEVER;
    uint32_t found = view->view + 1;
    for (uint32_t number = view->view + 1; number <= view->view + of; number++) {
        if (number > 1) id = gf_view_list_next(&view->epoch, id, members->id_count);
        candidate_turn turn = turn_of(members, id);
        if (turn >= first) continue;
        first = turn;
        found = number;
        *coordinator_out = id;
        if (first == TURN_FIRST) break;
    }
    return found;
}

/* This process is of no epoch, and knows where members of one are: one after the other is asked,
 * which lets it in if it coordinates. */
static void ask_next(struct gf_members *members)
{
    struct members_view *view = &members->view;
    const struct members_list *list = &view->epoch;
    uint32_t id = view->coordinator;
    bool knows = (id < members->id_count) && gf_view_has(list->bits, id);
    for (uint32_t i = gf_view_list_count(list, members->id_count); i > 0; i--) {
        id = knows ? gf_view_list_next(list, id, members->id_count) : list->first;
        knows = true;
        if (members->table[id].state == MEMBER_DEAD) continue;
        gf_status status = gf_view_turn(members, id); /* fails where its address is not known */
        if (status < 0) continue;
        gf_view_enter(members, VIEW_SEEK);
        if (status == GF_OK) gf_members_owe_id(members, id, MEMBERS_JOIN);
        return;
    }
    seek_any(members);
}

void gf_view_next(struct gf_members *members)
{
    struct members_view *view = &members->view;
    uint32_t id = members->member_id;
    if (gf_view_joins(members) && view->rejoins) {
        ask_next(members);
        return;
    }
    if (!members->was_member) {
        seek_any(members);
        return;
    }
    for (;;) {
        view->view = view_find(members, &id);
        if (id == members->member_id) break;
        gf_status status = gf_view_turn(members, id);
        if (view->is_cut) members->table[id].sought = members->table[id].passed_over;
        if (status >= 0) {
            reports_forget(members);
            gf_view_enter(members, VIEW_SEEK);
            if (status == GF_OK) gf_members_owe_id(members, id, MEMBERS_DO_VIEW_CHANGE);
            return;
        }
        members->table[id].passed_over = true;
    }
    if (view->is_cut)
        gf_view_fail_cut(members); /* nobody came for its answer */
    else if (gf_view_turn(members, id) >= 0)
        gf_view_lead(members, view->view);
    else
        gf_view_fail(members, GF_ERR_SYSTEM,
                     "rank %u cannot coordinate: its control channel listens nowhere",
                     members->setup.rank);
}
