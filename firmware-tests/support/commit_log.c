/* See commit_log.h. */
#include "firmware-tests/support/commit_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/membership/members_state.h"

static bool is(uint64_t set, uint32_t id)
{
    return ((set >> id) & 1u) != 0;
}

__attribute__((format(printf, 2, 3))) static bool broken(struct commit_log *log, const char *format,
                                                         ...)
{
    va_list arguments;
    if (log->error[0] != 0) return false;
    va_start(arguments, format);
    (void)vsnprintf(log->error, sizeof log->error, format, arguments);
    va_end(arguments);
    return false;
}

void commit_log_open(struct commit_log *log, uint32_t id_count)
{
    memset(log, 0, sizeof *log);
    log->id_count = id_count;
}

void commit_log_died(struct commit_log *log, uint32_t id)
{
    log->dead |= UINT64_C(1) << id;
}

void commit_log_started(struct commit_log *log, uint32_t id)
{
    log->dead &= ~(UINT64_C(1) << id);
    log->life[id]++;
    log->last[id] = (struct commit_seen){0};
}

static bool runs(const struct commit_log *log, const struct commit *commit)
{
    return (commit->life == log->life[commit->id]) && !is(log->dead, commit->id);
}

static bool add(struct commit_log *log, uint32_t id, uint32_t epoch, uint64_t members,
                bool accepted)
{
    if (log->count == COMMIT_LOG_MAX) return broken(log, "more than %u commits", COMMIT_LOG_MAX);
    log->all[log->count++] = (struct commit){
        .id = id, .life = log->life[id], .epoch = epoch, .members = members, .accepted = accepted};
    return true;
}

/* Members of the epoch before, as the one that commits this one knew it. */
static uint64_t before(const struct commit_log *log, uint32_t id, uint32_t epoch)
{
    if (log->last[id].epoch == epoch) return log->last[id].members;
    for (uint32_t i = log->count; i-- > 0;) { /* it has learned of both in one turn */
        const struct commit *commit = &log->all[i];
        if (!commit->accepted && (commit->epoch == epoch) && is(commit->members, id))
            return commit->members;
    }
    return 0;
}

bool commit_log_is_quorum(uint64_t members, uint64_t some)
{
    int all = __builtin_popcountll(members);
    int twice = 2 * __builtin_popcountll(members & some);
    return (twice > all) || ((twice == all) && ((members & some & -members) != 0));
}

const struct commit *commit_log_newest(const struct commit_log *log)
{
    const struct commit *newest = &log->all[0];
    for (uint32_t i = 1; i < log->count; i++)
        if (!log->all[i].accepted && (log->all[i].epoch > newest->epoch)) newest = &log->all[i];
    return newest;
}

static bool quorum_check(struct commit_log *log, uint32_t id, const struct commit_seen *seen)
{
    /* who committed it may have left, and this process heard of it first */
    bool anew = (log->last[id].epoch == 0);
    uint32_t witness = anew ? GF_RANK_NONE : id;
    uint64_t of;
    uint64_t by = anew ? 0 : UINT64_C(1) << id;
    uint64_t others = 0;
    for (uint32_t i = 0; i < log->count; i++) {
        const struct commit *commit = &log->all[i];
        if (!commit->accepted || (commit->epoch != seen->epoch) ||
            (commit->members != seen->members))
            continue;
        by |= UINT64_C(1) << commit->id;
        if ((witness == GF_RANK_NONE) && runs(log, commit)) witness = commit->id;
    }
    if (witness == GF_RANK_NONE)
        return broken(log,
                      "epoch %u: nobody has accepted it before process %u, which was started anew",
                      seen->epoch, id);
    id = witness;
    of = before(log, id, seen->epoch - 1);
    if (!is(of, id))
        return broken(log,
                      "epoch %u of members %#llx: the first to begin it, %u, was not of epoch %u",
                      seen->epoch, (unsigned long long)seen->members, id, seen->epoch - 1);
    if (commit_log_is_quorum(of, by)) return true;
    for (uint32_t other = 0; other < log->id_count; other++)
        if (!is(by | log->dead, other) && (log->last[other].epoch != 0))
            others |= UINT64_C(1) << other;
    if (others == 0) return true;
    return broken(
        log, "epoch %u of members %#llx was accepted by %#llx, no quorum of %#llx, and %#llx run",
        seen->epoch, (unsigned long long)seen->members, (unsigned long long)by,
        (unsigned long long)of, (unsigned long long)others);
}

static bool commit_note(struct commit_log *log, uint32_t id, const struct commit_seen *seen)
{
    const struct commit_seen *last = &log->last[id];
    /* the job's own first epoch */
    bool first = true, begins = (last->epoch == 0) && (log->life[id] == 0);
    if (seen->epoch < last->epoch)
        return broken(log, "process %u went from epoch %u back to %u", id, last->epoch,
                      seen->epoch);
    if (!is(seen->members, id))
        return broken(log, "process %u is in epoch %u of members %#llx", id, seen->epoch,
                      (unsigned long long)seen->members);
    for (uint32_t i = 0; i < log->count; i++) {
        const struct commit *commit = &log->all[i];
        if (commit->accepted || (commit->epoch != seen->epoch)) continue;
        if (commit->members == seen->members)
            first = false;
        else if (runs(log, commit))
            return broken(log, "epoch %u has members %#llx at process %u, %#llx at %u, which runs",
                          seen->epoch, (unsigned long long)seen->members, id,
                          (unsigned long long)commit->members, commit->id);
    }
    if (first && !begins && !quorum_check(log, id, seen)) return false;
    return add(log, id, seen->epoch, seen->members, false);
}

bool commit_log_note(struct commit_log *log, uint32_t id, const struct commit_seen *seen)
{
    const struct commit_seen last = log->last[id];
    bool fine = true;
    if ((seen->epoch == 0) && (seen->accepted != 0))
        fine = broken(log, "process %u of no epoch has accepted members %#llx", id,
                      (unsigned long long)seen->accepted);
    if ((seen->epoch == 0) && (last.epoch != 0))
        fine = broken(log, "process %u has lost epoch %u", id, last.epoch);
    if (fine && (seen->epoch != 0) &&
        ((seen->epoch != last.epoch) || (seen->members != last.members)))
        fine = (seen->epoch != last.epoch)
                   ? commit_note(log, id, seen)
                   : broken(log, "the members of epoch %u changed at process %u", last.epoch, id);
    if (fine && (seen->accepted != 0) &&
        ((seen->accepted != last.accepted) || (seen->epoch != last.epoch)))
        fine = add(log, id, seen->epoch + 1, seen->accepted, true);
    log->last[id] = *seen;
    return fine;
}

static uint64_t bits_of(const struct members_list *list)
{
    uint64_t bits = 0;
    for (uint32_t byte = 0; byte < COMMIT_LOG_IDS / 8; byte++)
        bits |= (uint64_t)list->bits[byte] << (8 * byte);
    return bits;
}

/* It counts as one that has ended and another that was started, of an epoch that others have closed. */
static void left_out(struct commit_log *log, uint32_t id)
{
    bool begun = false; /* or this one has decided it, so that others have accepted it */
    for (uint32_t i = 0; i < log->count; i++)
        begun = begun || (log->all[i].epoch > log->last[id].epoch);
    if (!begun) (void)broken(log, "process %u is left out of no epoch", id);
    commit_log_died(log, id);
    commit_log_started(log, id);
}

bool commit_log_look(struct commit_log *log, uint32_t id, const struct gf_members *members)
{
    const struct members_view *view = &members->view;
    struct commit_seen seen = {.epoch = view->epoch.epoch};
    bool rejoins = view->rejoins && (view->epoch.epoch == 0);
    if (rejoins && (log->last[id].epoch != 0)) left_out(log, id);
    /* without it: as coordinator it has accepted and committed in one turn */
    if (view->state == VIEW_LEFT) {
        seen.accepted = bits_of(&view->current.list);
        if ((view->coordinator != id) || (log->last[id].accepted == seen.accepted)) return true;
        log->last[id].accepted = seen.accepted;
        return add(log, id, view->current.list.epoch, seen.accepted, true);
    }
    if (seen.epoch != 0) seen.members = bits_of(&view->epoch);
    if ((view->accepted_view != 0) && (view->accepted_view == view->view))
        seen.accepted = bits_of(&view->accepted.list);
    return commit_log_note(log, id, &seen);
}
