#!/bin/sh
# NULL for each pointer of each public call, one at a time and all at once, on a context that is ready and on one inside
# a step: no call crashes or hangs; it answers GF_ERR_PARAM, unless what the header says above it has a word about NULL.
# The calls come from the headers' declarations (support/null_calls.awk), so a new one is asked, too.
. firmware-tests/support/shell.sh
rows=$scratch/rows.inc
headers="drivers/base/types.h lib/schedule.h lib/configuration.h lib/gradientflow.h lib/advanced.h config/config.h"
for header in $headers; do awk -f firmware-tests/support/null_calls.awk $header; done >"$rows"
# Found in another way: what looks like a call with a pointer on its first line.
asked() {
    cat $headers | sed 's|/\*.*||' | grep -E '^[a-z].*[ *]gf_[a-z0-9_]+\(.*[*]' | grep -vE '^(typedef|extern|static)' |
        sed -E 's/^[^(]*[ *](gf_[a-z0-9_]+)\(.*/\1/' >"$scratch/calls"
    [ "$(wc -l <"$scratch/calls")" -ge 60 ] || return 1
    while read -r call; do
        grep -q "\"$call\"" "$rows" || { echo "$call"; return 1; }
    done <"$scratch/calls"
}
check "every_call_is_asked" asked
cat >"$scratch/null.c" <<'END'
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <gradientflow/config.h>
#include <gradientflow/gradientflow.h>
static _Alignas(64) char room[1 << 16];
static const char *path;
static const char *const texts[] = {"link.window=4"};
static struct gf_config config = {.job = {.world = 1, .ignore_environment = true}};
static const struct gf_tensor tensor = {.name = "w", .elem_count = 64};
static struct gf_stats stats = {.size_bytes = sizeof stats};
static gf_context *gf;
static FILE *out;
static void log_nothing(void *user, gf_log_level level, const char *text)
{
    (void)user, (void)level, (void)text;
}
static int put_nothing(void *user, const void *data, uint64_t bytes)
{
    return (void)user, (void)data, (void)bytes, 0;
}
enum { READY, STEP, STATES };
enum { PARAM, MOMENT, OTHER }; /* answers */
static void context_open(int state)
{
    struct gf_footprint need;
    config.optimizer.kind = GF_OPTIMIZER_SGD;
    if (gf_measure(&config, &tensor, 1, &need) != GF_OK) _exit(90);
    void *memory = aligned_alloc(64, need.control_bytes);
    if (gf_open(&config, &tensor, 1, memory, need.control_bytes, &gf) != GF_OK) _exit(91);
    if (gf_open_wait(gf) != GF_OK) _exit(91);
    if ((state == STEP) && (gf_step_begin(gf) != GF_OK)) _exit(92);
}
static int row_run(int row, int state, int has_context)
{
    gf_status answer = GF_OK;
    (void)log_nothing, (void)put_nothing, (void)texts, (void)stats, (void)path;
    if (has_context) context_open(state);
    (void)alarm(10);
    switch (row) {
#define ROW(call, which, status, says, context, expression) case __COUNTER__: expression; break;
#include "rows.inc"
#undef ROW
    }
    return (answer == GF_ERR_PARAM) ? PARAM : (answer == GF_ERR_STATE) ? MOMENT : OTHER;
}
static const struct { const char *call, *which; int status, says, context; } rows[] = {
#define ROW(call, which, status, says, context, expression) {call, which, status, says, context},
#include "rows.inc"
};
/* NULL: nothing. */
static const char *row_wrong(int row)
{
    int answers[STATES] = {PARAM, PARAM};
    for (int state = READY; state < (rows[row].context ? STATES : 1); state++) {
        int how = 0;
        const pid_t child = fork();
        if (child == 0) _exit(row_run(row, state, rows[row].context));
        if ((child < 0) || (waitpid(child, &how, 0) != child)) return "no child";
        if (!WIFEXITED(how)) return strsignal(WTERMSIG(how));
        if (WEXITSTATUS(how) > OTHER) return "no context was open";
        answers[state] = WEXITSTATUS(how);
    }
    if (!rows[row].status || rows[row].says) return NULL;
    if ((answers[READY] == OTHER) || (answers[STEP] == OTHER)) return "answers anything but GF_ERR_PARAM";
    return (answers[READY] == PARAM) || (answers[STEP] == PARAM) ? NULL : "answers GF_ERR_STATE alone";
}
int main(int argc, char **argv)
{
    int bad = 0;
    path = (argc > 1) ? argv[1] : "";
    out = fopen("/dev/null", "w");
    for (int row = 0; row < (int)(sizeof rows / sizeof rows[0]); row++) {
        const char *wrong = row_wrong(row);
        if (wrong != NULL) printf("%s: %s NULL: %s\n", rows[row].call, rows[row].which, wrong), bad++;
    }
    return bad > 0;
}
END
cc=${CC:-gcc}
# shellcheck disable=SC2046,SC2086
check "they_compile" $cc -std=c11 -Wall -O1 -I"$scratch" "$scratch/null.c" -o "$scratch/null" \
    $(make -s flags BUILD="$BUILD")
check "no_call_minds_null" sh -c '"$1" config/local.cfg 2>"$1.err" || { cat "$1.err"; exit 1; }' sh "$scratch/null"
finish
