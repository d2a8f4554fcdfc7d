/* See generation_log.h. */
#include "firmware-tests/support/generation_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool is(uint64_t set, uint32_t id)
{
    return ((set >> id) & 1u) != 0;
}

__attribute__((format(printf, 2, 3))) static bool broken(struct generation_log *log,
                                                         const char *format, ...)
{
    va_list arguments;
    if (log->error[0] != 0) return false;
    va_start(arguments, format);
    (void)vsnprintf(log->error, sizeof log->error, format, arguments);
    va_end(arguments);
    return false;
}

void generation_log_open(struct generation_log *log)
{
    memset(log, 0, sizeof *log);
}

void generation_log_died(struct generation_log *log, uint32_t id)
{
    log->dead |= UINT64_C(1) << id;
}

void generation_log_gone(struct generation_log *log, uint32_t id)
{
    log->gone |= UINT64_C(1) << id;
}

void generation_log_started(struct generation_log *log, uint32_t id)
{
    log->dead &= ~(UINT64_C(1) << id);
    log->gone &= ~(UINT64_C(1) << id);
    log->life[id]++;
    log->last[id] = (struct generation_seen){0};
}

static bool runs(const struct generation_log *log, const struct generation_begun *begun)
{
    return (begun->life == log->life[begun->id]) && !is(log->dead, begun->id);
}

struct generation_seen generation_log_newest(const struct generation_log *log)
{
    struct generation_seen newest = {0};
    for (uint32_t i = 0; i < log->count; i++)
        if (log->all[i].seen.number > newest.number) newest = log->all[i].seen;
    return newest;
}

/* Nobody has begun this one before: who of the newest before it is there? */
static bool first_check(struct generation_log *log, const struct generation_seen *seen)
{
    struct generation_seen before = {0};
    bool there = false, lives = false;
    for (uint32_t i = 0; i < log->count; i++)
        if ((log->all[i].seen.number < seen->number) && (log->all[i].seen.number > before.number))
            before = log->all[i].seen;
    for (uint32_t i = 0; i < log->count; i++) {
        const struct generation_begun *begun = &log->all[i];
        if ((begun->seen.number != before.number) || !runs(log, begun)) continue;
        lives = lives || !is(log->gone, begun->id);
        there = there || is(seen->members, begun->id);
    }
    return there || !lives ||
           broken(log, "generation %u of %#llx has nobody of generation %u of %#llx", seen->number,
                  (unsigned long long)seen->members, before.number,
                  (unsigned long long)before.members);
}

static bool begin_note(struct generation_log *log, uint32_t id, const struct generation_seen *seen)
{
    bool first = true;
    if (seen->number < log->last[id].number)
        return broken(log, "process %u went from generation %u back to %u", id,
                      log->last[id].number, seen->number);
    if (!is(seen->members, id))
        return broken(log, "process %u is in generation %u of %#llx", id, seen->number,
                      (unsigned long long)seen->members);
    for (uint32_t i = 0; i < log->count; i++) {
        const struct generation_begun *begun = &log->all[i];
        if (begun->seen.number != seen->number) continue;
        if (begun->seen.members == seen->members)
            first = false;
        else if (runs(log, begun))
            return broken(log,
                          "generation %u is of %#llx at process %u, of %#llx at %u, which runs",
                          seen->number, (unsigned long long)seen->members, id,
                          (unsigned long long)begun->seen.members, begun->id);
    }
    if (first && !first_check(log, seen)) return false;
    if (log->count == GENERATION_LOG_MAX)
        return broken(log, "more than %u generations", GENERATION_LOG_MAX);
    log->all[log->count++] =
        (struct generation_begun){.id = id, .life = log->life[id], .seen = *seen};
    return true;
}

bool generation_log_note(struct generation_log *log, uint32_t id,
                         const struct generation_seen *seen)
{
    const struct generation_seen last = log->last[id];
    bool fine = true;
    if (seen->number == 0)
        return (last.number == 0) ||
               broken(log, "process %u has lost generation %u", id, last.number);
    if (seen->number != last.number)
        fine = begin_note(log, id, seen);
    else if (seen->members != last.members)
        fine = broken(log, "the members of generation %u changed at process %u", last.number, id);
    log->last[id] = *seen;
    return fine;
}
