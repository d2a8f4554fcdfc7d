#!/bin/bash
# gf-run with small shell programs: what ranks are told, what is shown of them, and how they are ended.
# Prints "ok NAME" or "not ok NAME: why" for each; fails if any is not ok. The build folder is $BUILD or the argument.
# shellcheck disable=SC2016
set -u
export LC_ALL=C
run="${1:-${BUILD:-build}}/gf-run"
failed=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# check NAME WANTED FOUND
check() {
    if [ "$2" = "$3" ]; then echo "ok $1"; return; fi
    failed=1
    printf 'not ok %s: wanted <%.200s>, found <%.200s>\n' "$1" "$2" "$3"
}
# code LIMIT COMMAND ..: its exit code; 124 if it was still there after LIMIT seconds
code() { timeout -k 1 "$@" >"$work/out" 2>"$work/err"; echo $?; }
# The processes of a list that are there and no zombies
living() { ps -o stat= -p "$1" | grep -v Z; }
# Within 60 s the processes of the list are gone
gone() { for _ in $(seq 3000); do [ -n "$(living "$1")" ] || return; sleep 0.02; done; }
one_line() { sort | tr '\n' '|'; }

if [ ! -x "$run" ]; then echo "not ok gf_run_is_built: $run is missing"; exit 1; fi

# Beside all that follows: the preloaded call holds the coordinator up as it begins. Its end is looked at last.
cat >"$work/holds.c" <<'END'
#define _GNU_SOURCE
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int listen(int file, int most)
{
    char name[16] = "";
    (void)prctl(PR_GET_NAME, name);
    while (strcmp(name, "gf-coordinator") == 0) (void)pause();
    return (int)syscall(SYS_listen, file, most);
}
END
held=
if [ -z "$(nm "$run" 2>/dev/null | grep __asan_init)" ] &&
    ${CC:-gcc} -shared -fPIC -o "$work/holds.so" "$work/holds.c" 2>/dev/null; then
    timeout -s KILL 70 env LD_PRELOAD="$work/holds.so" "$run" -n 1 true 2>"$work/held" &
    held=$!
fi
# What may be written and when is not left to a reader's pace. GRANTS=writes: one write, then none at the next look.
# GRANTS=waits: one write after every second wait. TORN=FILE: a write to a terminal that is not one line is noted there.
cat >"$work/paced.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int looks, waits, left;
int ppoll(struct pollfd *of, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
    left = ++waits % 2;
    return ((int (*)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *))dlsym(RTLD_NEXT, "ppoll"))(
        of, count, timeout, mask);
}
int poll(struct pollfd *of, nfds_t count, int timeout_ms)
{
    const char *grants = getenv("GRANTS");
    if ((grants != NULL) && (count == 1) && (of->events == POLLOUT) && (timeout_ms == 0)) {
        if ((strcmp(grants, "writes") == 0) && (looks++ % 2 != 0)) return 0;
        if ((strcmp(grants, "waits") == 0) && (left-- <= 0)) return 0;
    }
    return ((int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll"))(of, count, timeout_ms);
}
ssize_t write(int file, const void *data, size_t bytes)
{
    const char *path = getenv("TORN");
    if ((path != NULL) && isatty(file) && (memchr(data, '\n', bytes) != (const char *)data + bytes - 1))
        (void)close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    return syscall(SYS_write, file, data, bytes);
}
END
paced=
if [ -n "$held" ] && ${CC:-gcc} -shared -fPIC -o "$work/paced.so" "$work/paced.c" -ldl 2>/dev/null; then
    paced=$work/paced.so
fi

check ranks_know_who_they_are "0/3|1/3|2/3|" "$("$run" -n 3 --merge sh -c 'echo $GF_RANK/$GF_WORLD' | one_line)"
check ranks_share_job_and_address 1 "$("$run" -n 4 --merge sh -c 'echo $GF_JOB $GF_ADDRESS' | sort -u | wc -l)"
check two_jobs_have_two_ids 2 "$( (for _ in 1 2; do "$run" -n 1 sh -c 'echo $GF_JOB'; done) | sort -u | wc -l)"
# A job that a rank of another begins, one that came back into a job that may grow.
check a_job_in_a_job_is_its_own "" "$(GF_WORLD_MAX=9 GF_REJOIN=1 "$run" -n 1 sh -c 'echo $GF_WORLD_MAX$GF_REJOIN')"
read -r low high </proc/sys/net/ipv4/ip_local_port_range
port=$("$run" -n 1 sh -c 'echo ${GF_ADDRESS#127.0.0.1:}')
check port_is_not_ephemeral yes \
    "$([ "$port" -gt 1023 ] && { [ "$port" -lt "$low" ] || [ "$port" -gt "$high" ]; } && echo yes)"

# What they are told of the coordinator, and that ranks may come and go.
told='echo $GF_COORDINATOR/$GF_ELASTIC'
check ranks_know_where_the_coordinator_is "separate/|" "$(GF_ELASTIC=1 "$run" -n 1 sh -c "$told" | one_line)"
check and_that_the_others_go_on "separate/1|separate/1|" "$("$run" -n 2 --merge --elastic sh -c "$told" | one_line)"

# A gf-run on each of two nodes.
node() { # NODE OPTION..
    node_=$1; shift
    timeout 100 "$run" -n 2 --merge --elastic --nodes 2 --node-rank "$node_" "$@" \
        sh -c 'echo $GF_RANK/$GF_LOCAL_RANK/$GF_WORLD/$GF_JOB/$GF_ADDRESS' 2>&1
}
at=127.0.0.1:$port
check places_are_counted_on_each_node "0/0/4/a.1/$at|1/1/4/a.1/$at|2/0/4/a.1/$at|3/1/4/a.1/$at|" \
    "$( (node 0 --job a.1 --listen "$at" & node 1 --job a.1 --listen "$at"; wait) | one_line)"
check another_node_needs_no_address "2/0/4/7/|3/1/4/7/|" "$(GF_ADDRESS='' node 1 --job 7 | one_line)"
check but_that_of_the_coordinator_does 2 "$(GF_ADDRESS='' code 5 "$run" -n 2 --nodes 2 --job 7 true)"
check and_what_is_missing_is_said 1 "$(grep -c 'node 0 runs the coordinator: --config' "$work/err")"
echo "rendezvous = { address = \"$at\"; };" >"$work/job.cfg"
check it_may_be_the_configurations "0/0/4/7/|1/1/4/7/|" \
    "$(GF_ADDRESS='' node 0 --job 7 --config "$work/job.cfg" | one_line)"
check a_configuration_that_is_not_there 1 "$(code 5 "$run" -n 2 --nodes 2 --job 7 --config "$work/none" true)"
check an_address_that_others_reach_wants_a_key 2 \
    "$(code 5 "$run" -n 2 --nodes 2 --job 7 --listen 192.0.2.1:7117 true)"
check and_one_that_is_not_here_is_named 1 \
    "$(code 5 "$run" -n 2 --nodes 2 --job 7 --insecure --listen 192.0.2.1:7117 true)"
check and_why_it_cannot_be 1 "$(grep -c 'the coordinator cannot start: .*192.0.2.1' "$work/err")"
left='if [ $GF_RANK = 0 ]; then sleep 100 & echo $! >"$1"; exit 3; fi
    for i in $(seq 3000); do
        case $(cut -d" " -f3 "/proc/$(cat "$1")/stat" 2>/dev/null) in ""|Z) echo gone; exit ;; esac; sleep 0.02
    done'
check who_has_failed_has_left_nobody gone \
    "$(timeout 80 "$run" -n 2 --merge --elastic sh -c "$left" sh "$work/left" 2>/dev/null)"
# gf-run gets no more descriptors; poll() takes as many as it has
fails='if [ $GF_RANK = 1 ]; then prlimit --nofile=4:4 --pid $PPID; exit 3; fi
    until grep -q "cannot start" "$0"; do sleep 0.02; done; echo on'
check who_could_not_be_started_again_has_ended on \
    "$(timeout 100 "$run" -n 2 --merge --restart 1 sh -c "$fails" "$work/err" 2>"$work/err")"
check and_why_is_said 1 "$(grep -c 'cannot start sh as rank 1: Too many open files' "$work/err")"

# The coordinator is a child beside the ranks: it is there before them, comes again, and leaves with gf-run.
of_run='of() { for p in $(cat /proc/$PPID/task/$PPID/children); do
        [ "$(cat /proc/$p/comm)" != gf-coordinator ] || echo $p; done; }'
again='first=$(of); kill -9 $first; for i in $(seq 3000); do
        second=$(of); [ -z "$second" ] || [ "$second" = "$first" ] || { echo again; exit; }; sleep 0.02; done'
check the_coordinator_is_there_before_a_rank 1 "$("$run" -n 1 sh -c "$of_run; of" | wc -l)"
check and_is_started_again again "$("$run" -n 1 sh -c "$of_run; $again" 2>"$work/err")"
check and_its_end_is_said 1 "$(grep -c 'the coordinator was ended by SIGKILL, and is started again' "$work/err")"
child=$("$run" -n 1 sh -c "$of_run; of")
check it_leaves_with_gf_run "" "$(living "$child")"
"$run" -n 1 sh -c "$of_run; of >\"\$0\"; kill -9 \$PPID" "$work/child" 2>/dev/null
gone "$(cat "$work/child")"
check and_with_a_gf_run_that_is_killed "" "$(living "$(cat "$work/child")")"

# What gf-run says where a rank says nothing itself.
timeout 100 "$run" -n 2 --restart 2 sh -c '[ $GF_RANK = 0 ] || kill -SEGV $$
    until [ "$(grep -c "ended by SIGSEGV" "$0")" -ge 3 ]; do sleep 0.02; done' "$work/err" >"$work/out" 2>"$work/err"
check a_rank_that_a_signal_ends_is_named 3 "$(grep -c '^gf-run: rank 1 was ended by SIGSEGV (signal 11)' "$work/err")"
check and_that_it_is_started_again \
    "gf-run: rank 1 is started again: try 2 of 3|gf-run: rank 1 is started again: try 3 of 3|" \
    "$(grep 'is started again' "$work/err" | one_line)"
check and_that_it_no_longer_is 1 "$(grep -c 'gf-run: rank 1 is not started again: it failed 3 times' "$work/err")"
# The kernel's own word, in its ticks: a machine that is busy delays only what comes after it.
"$run" -n 1 --restart 1 sh -c 'cut -d" " -f22 /proc/$$/stat; exit 3' >"$work/out" 2>/dev/null
check the_tries_of_a_rank_begin_a_second_apart yes "$({ read -r one; read -r two; } <"$work/out"
    [ $((two - one)) -ge $(($(getconf CLK_TCK) - 1)) ] && echo yes)"
# What has left its group writes on, without end: the rank that began it is started again all the same.
writes='if [ $GF_RANK = 0 ]; then until [ -e "$1" ]; do sleep 0.02; done; exit 0; fi
    if [ -n "$GF_REJOIN" ]; then : >"$1"; exit 0; fi
    setsid sh -c '\''echo $$ >"$1"; exec yes'\'' sh "$1.pid" & until [ -s "$1.pid" ]; do sleep 0.02; done; exit 3'
timeout -k 1 60 "$run" -n 2 --restart 1 sh -c "$writes" sh "$work/writes" >/dev/null 2>"$work/err"
check what_a_rank_left_behind_writes_is_not_waited_for 0 $?
kill "$(cat "$work/writes.pid")" 2>/dev/null
timeout 100 "$run" -n 2 sh -c '[ $GF_RANK = 0 ] && exit 3; exec sleep 60' >"$work/out" 2>"$work/err"
check who_is_ended_by_gf_run_is_no_news 0 "$(grep -c 'was ended by' "$work/err")"
# Nobody is left whom one that is started again could join: all are started again, and begin the job anew.
# all_killed RANK EXIT-CODE: all at once, but this rank, which has ended so by then
all_killed() {
    rm -f "$work"/all.*
    timeout 90 "$run" -n 3 --merge --restart 1 sh -c 'if [ -n "${GF_REJOIN:-}" ]; then echo anew; exit 0; fi
        echo $$ >"$1.$GF_RANK"
        [ $GF_RANK != "$2" ] || exit "$3"
        exec sleep 60' sh "$work/all" "$@" >"$work/out" 2>"$work/err" & job=$!
    for i in 0 1 2; do until [ -s "$work/all.$i" ]; do sleep 0.05; done; done
    [ "$1" = none ] || gone "$(cat "$work/all.$1")"
    # shellcheck disable=SC2046
    kill -9 $(cat "$work"/all.[012])
    wait $job
}
all_killed none 0
check a_job_of_which_nobody_is_left_begins_anew 0 $?
check and_with_all_its_ranks "anew|anew|anew|" "$(one_line <"$work/out")"
check and_that_it_begins_anew_is_said 1 "$(grep -c 'no rank runs any more: the job begins anew' "$work/err")"
for ends in 75 2; do
    all_killed 1 $ends
    check "but_without_one_that_ended_with_${ends}_it_ends" $((ends == 2 ? 2 : 137)) $?
    check "${ends}_and_that_it_has_ended_is_said" 1 \
        "$(grep -c 'could join, and rank 1 is not started again: the job has ended; start it anew' "$work/err")"
    check "${ends}_and_nobody_is_started_again" 0 "$(grep -c 'started again: try' "$work/err")"
done
check one_that_ended_with_2_is_not_started_again 1 \
    "$(grep -c 'rank 1 is not started again: it ended with 2' "$work/err")"
timeout 60 "$run" -n 2 sh -c '[ $GF_RANK = 0 ] || exit 7; sleep 60' >"$work/out" 2>"$work/err"
check a_rank_that_fails_is_named_with_its_code "gf-run: rank 1 ended with 7|" "$(one_line <"$work/err")"
check nodes_do_not_grow 2 "$(code 5 "$run" -n 2 --nodes 2 --job 9 --listen 127.0.0.1:1 --max 5 true)"

check only_rank_0_is_not_prefixed "[1] a|a|" "$("$run" -n 2 echo a | one_line)"
check ranks_that_may_come_take_no_descriptors "[1] a|a|" \
    "$( (ulimit -n 64; timeout 100 "$run" -n 2 --max 100 echo a) | one_line)"
check stderr_is_prefixed "[0] a|[1] a|" "$("$run" -n 2 sh -c 'echo a >&2' 2>&1 >/dev/null | one_line)"
check merge_adds_nothing "a|a|" "$("$run" -n 2 --merge echo a | one_line)"
check partial_last_line_is_shown "[1] end" "$("$run" -n 2 sh -c '[ $GF_RANK = 0 ] || printf end')"
check partial_last_line_of_rank_0_gets_no_newline 3 "$("$run" -n 1 printf end | wc -c)"
# 300 KB in one line, then 10 MB of lines: more than any buffer on the way.
much='head -c 300000 /dev/zero | tr "\\0" x; echo; seq 1 1500000'
check long_lines_and_much_output_pass_whole "$(sh -c "$much" | cksum)" "$("$run" -n 1 sh -c "$much" | cksum)"
check much_output_of_two_ranks_is_whole "$(seq 1 200000 | cksum)" \
    "$("$run" -n 2 seq 1 200000 | sed -n 's/^\[1\] //p' | cksum)"
check slow_reader_loses_nothing "$(seq 1 100000 | cksum)" "$("$run" -n 1 seq 1 100000 | { sleep 0.3; cksum; })"
# Both streams have something while gf-run is stopped, and go to the same pipe.
both='kill -STOP $PPID; seq -f "out %05.0f" 6000; seq -f "err %05.0f" 6000 >&2; kill -CONT $PPID'
if [ -n "$paced" ]; then
    LD_PRELOAD=$paced GRANTS=writes timeout 100 "$run" -n 1 sh -c "$both" 2>&1 | cat >"$work/out"
    check two_streams_of_one_pipe_do_not_mix 12000 "$(grep -cxE '(out|\[0\] err) [0-9]{5}' "$work/out")"
else
    echo "skip two_streams_of_one_pipe_do_not_mix: no call can be preloaded here"
fi
# Rank 0 has the terminal itself, and may write after each write of gf-run.
if [ -n "$paced" ] && [ "$(script -qec 'test -t 1 && echo yes' /dev/null </dev/null | tr -d '\r')" = yes ]; then
    echo '[ $GF_RANK = 0 ] || seq 1000' >"$work/seq"
    found=$(timeout 100 script -qec "LD_PRELOAD=$paced TORN=$work/torn $run -n 2 sh $work/seq" /dev/null </dev/null |
        tr -d '\r' | grep -cxE '\[1\] [0-9]+')
    check a_terminal_gets_all_lines 1000 "$found"
    check and_one_with_each_write "" "$(ls "$work/torn" 2>/dev/null)"
else
    echo "skip a_terminal_gets_all_lines: no call can be preloaded here, or there is no terminal"
fi
# Who cannot be written to any more hurts no rank: gf-run says so and ends with 1 once they have ended.
goes_on='seq 1 30000; seq 1 30000 >&2; echo "$GF_RANK" >>"$0"'
ranks_done() { sort "$work/done" | tr -d '\n'; rm -f "$work/done"; }
for out in /dev/full closed left; do
    case $out in
    closed) "$run" -n 2 sh -c "$goes_on" "$work/done" >&- 2>"$work/err"; found=$? ;;
    left) { "$run" -n 2 sh -c "$goes_on" "$work/done" 2>"$work/err"; echo $? >"$work/code"; } | head -n 1 >/dev/null
          found=$(cat "$work/code") ;;
    *) "$run" -n 2 sh -c "$goes_on" "$work/done" >$out 2>"$work/err"; found=$? ;;
    esac
    check "stdout_${out##*/}_is_exit_1" 1 "$found"
    check "stdout_${out##*/}_is_said" 1 "$(grep -c '^gf-run: cannot write to stdout: ' "$work/err")"
    check "stdout_${out##*/}_lets_the_ranks_go_on" 01 "$(ranks_done)"
done
{ "$run" -n 2 sh -c "$goes_on" "$work/done" 2>&1 >/dev/null; echo $? >"$work/code"; } | true
check stderr_that_nobody_reads_is_exit_1 1 "$(cat "$work/code")"
check stderr_that_nobody_reads_lets_the_ranks_go_on 01 "$(ranks_done)"

check success_is_0 0 "$(code 10 "$run" -n 3 true)"
check exit_75_is_a_failure_where_nobody_may_leave 75 "$(code 10 "$run" -n 2 sh -c 'exit 75')"
check and_where_all_have_left 75 "$(code 10 "$run" -n 2 --elastic sh -c 'exit 75')"
check exit_code_of_the_failure 7 "$(code 10 "$run" -n 3 sh -c '[ $GF_RANK != 1 ] || exit 7')"
check signal_is_128_and_number 137 "$(code 10 "$run" -n 2 sh -c '[ $GF_RANK != 1 ] || kill -9 $$; sleep 0.2')"
check failure_ends_the_others 3 "$(code 20 "$run" -n 3 sh -c '[ $GF_RANK != 2 ] || exit 3; sleep 600')"
check who_ignores_term_is_killed 3 \
    "$(code 20 "$run" -n 2 sh -c '[ $GF_RANK != 1 ] || exit 3; trap "" TERM; while :; do sleep 1; done')"
# A process that has ended has no program any more.
check last_words_are_shown "[1] saw it" "$("$run" -n 2 sh -c '[ $GF_RANK != 0 ] || { echo $$ >"$0"; exit 3; }
    until [ -s "$0" ] && [ ! -e "/proc/$(cat "$0")/exe" ]; do :; done; echo saw it' "$work/first")"
"$run" -n 1 sh -c 'sleep 600 & echo $! >"$0"' "$work/left"
check what_ranks_left_behind_ends "" "$(living "$(cat "$work/left")")"
"$run" -n 1 sh -c 'setsid sh -c "echo \$\$ >$0; exec sleep 600" & until [ -s "$0" ]; do sleep 0.02; done' "$work/stays"
check but_not_what_has_left_its_group yes "$([ -n "$(living "$(cat "$work/stays")")" ] && echo yes)"
kill "$(cat "$work/stays")"

# One of several, each of which would begin a job of its own.
check a_gf_run_of_each_rank_is_refused 2 "$(code 20 "$run" -n 2 "$run" -n 1 true)"
check and_whose_it_is_is_said 1 "$(grep -c '^\[1\] gf-run: GF_RANK=1 and GF_WORLD=2 are set: another' "$work/err")"
check but_not_where_that_is_meant 0 "$(code 20 "$run" -n 2 env -u GF_RANK "$run" -n 1 true)"
check and_nothing_is_said "" "$(cat "$work/err")"
for of in JOB_COMPLETION_INDEX FLUX_TASK_RANK PMIX_RANK; do
    check "one_that_may_be_of_several_begins($of)" 0 "$(code 10 env $of=1 "$run" -n 2 true)"
    check "and_that_is_said($of)" 1 \
        "$(grep -c "^gf-run: warning: $of=1 is of .*: where that starts several" "$work/err")"
done
check but_not_with_nodes "" "$(JOB_COMPLETION_INDEX=1 "$run" -n 1 --nodes 2 --node-rank 1 --job 9 true 2>&1)"

check unknown_program_is_127 127 "$(code 10 "$run" -n 2 gf-no-such-program)"
check unknown_program_is_named 1 "$(grep -c gf-no-such-program "$work/err")"
check unknown_program_on_another_node_is_127 127 "$(code 10 "$run" -n 2 --nodes 2 --node-rank 1 --job 9 gf-no-program)"
check unknown_program_is_named_with_its_rank_in_the_job 1 "$(grep -c 'gf-no-program as rank 2: No such' "$work/err")"
check program_that_may_not_run_is_126 126 "$(code 10 "$run" -n 1 /etc/passwd)"
for bad in "" "-n" "-n 0 true" "-n x true" "-n 2" "-n 1025 true" "true" "--frobnicate -n 2 true" "-n 2 -n 2 true" \
    "-n 2 --max 1 true" "-n 1 --job 0 true" "-n 1 --job none true" "-n 1 --listen nowhere true"; do
    # shellcheck disable=SC2086
    check "usage_is_refused($bad)" 2 "$(code 10 "$run" $bad)"
done
check options_of_the_program_are_its_own "-n --merge --help" "$("$run" -n 1 printf '%s %s %s' -n --merge --help)"
check two_dashes_end_the_options "--merge" "$("$run" -n 1 -- printf '%s' --merge)"

# Nobody reads: the pipe is full, and gf-run has taken some of what rank 1 prints. Ranks are watched all the same.
no_reader() { # COMMAND-OF-RANK-0 OPTION..
    zero=$1; shift
    rm -f "$work/full" "$work/prints" "$work"/pid.*
    mkfifo "$work/full"
    exec 8<>"$work/full" 9<"$work/full"
    dd if=/dev/zero of="$work/full" bs=4096 count=999 oflag=nonblock 2>/dev/null
    LD_PRELOAD=$paced GRANTS=waits "$run" -n 2 "$@" sh -c 'echo $$ >"$0/pid.$GF_RANK"
        [ $GF_RANK != 1 ] || { yes | head -c 66000; : >"$0/prints"; exec sleep 600; }
        until [ -e "$0/prints" ]; do sleep 0.02; done; eval "$1"' "$work" "$zero" >"$work/full" 2>&1 8>&- 9>&- &
    job=$!
    exec 8>&-
    until [ -e "$work/prints" ] && [ -s "$work/pid.0" ]; do sleep 0.02; done
    pids="$(cat "$work/pid.0"),$(cat "$work/pid.1")"
}
for option in --elastic --merge; do
    no_reader 'exec sleep 600' $option
    { kill -TERM $job; gone $job; kill -9 $job; wait $job; found=$?; } 2>/dev/null
    check "a_signal_ends_it_while_nobody_reads($option)" 143 $found
    gone "$pids"
    check "and_its_ranks($option)" "" "$(living "$pids")"
done
no_reader 'kill -USR2 $$'
gone "$pids"
check a_dead_rank_ends_the_others_while_nobody_reads "" "$(living "$pids")"
[ -z "$(living "$pids")" ] || kill -9 $job
cat <&9 >"$work/out"; exec 9<&-
{ wait $job; } 2>/dev/null
check and_that_is_the_exit_code 140 $?
check and_all_is_there_for_who_reads_on "33000 1" \
    "$(grep -ac '\[1\] y$' "$work/out") $(grep -ac 'gf-run: rank 0 was ended by SIGUSR2' "$work/out")"
if [ -n "$paced" ]; then
    check and_what_gf_run_says_does_not_wait_for_the_end_of_it "[1] y" "$(tail -n 1 "$work/out")"
else
    echo "skip and_what_gf_run_says_does_not_wait_for_the_end_of_it: no call can be preloaded here"
fi
# Ranks that print without end: gf-run never has to wait for them.
rm -f "$work"/pid.*
"$run" -n 2 --max 3 sh -c 'echo $$ >"$0.$GF_RANK"; exec yes' "$work/pid" >/dev/null 2>"$work/err" &
job=$!
until [ -s "$work/pid.0" ] && [ -s "$work/pid.1" ]; do sleep 0.02; done
kill -USR1 $job
for _ in $(seq 1000); do [ ! -s "$work/pid.2" ] || break; sleep 0.02; done
check a_flood_of_output_keeps_no_rank_from_coming yes "$([ -s "$work/pid.2" ] && echo yes)"
{ kill -TERM $job; gone $job; kill -9 $job; wait $job; found=$?; } 2>/dev/null
check and_no_signal_from_ending_it 143 $found

# A signal for gf-run goes on to the ranks, and gf-run says which it was; killed, it leaves nobody behind.
ulimit -c 0
for signal in INT TERM QUIT KILL; do
    rm -f "$work"/pid.*
    "$run" -n 2 sh -c 'echo $$ >"$0.$GF_RANK"; exec sleep 600' "$work/pid" &
    job=$!
    until [ -s "$work/pid.0" ] && [ -s "$work/pid.1" ]; do sleep 0.02; done
    pids="$(cat "$work/pid.0"),$(cat "$work/pid.1")"
    { kill -s "$signal" "$job"; wait "$job"; found=$?; } 2>/dev/null
    check "signal_${signal}_is_the_exit_code" $((128 + $(kill -l "$signal"))) "$found"
    gone "$pids"
    check "signal_${signal}_leaves_nobody" "" "$(living "$pids")"
done
# Started by whoever blocks signals, as a program does that has a thread for its own: gf-run is
# ended by them all the same, and its ranks keep what it does not need.
if env --block-signal=TERM true 2>/dev/null; then
    rm -f "$work"/pid.*
    env --block-signal=TERM,CHLD "$run" -n 2 sh -c 'echo $$ >"$0.$GF_RANK"; exec sleep 600' \
        "$work/pid" &
    job=$!
    until [ -s "$work/pid.0" ] && [ -s "$work/pid.1" ]; do sleep 0.02; done
    pids="$(cat "$work/pid.0"),$(cat "$work/pid.1")"
    { kill -TERM $job; timeout 100 tail --pid=$job -f /dev/null; kill -9 $job; wait $job
      found=$?; } 2>/dev/null
    check a_blocked_signal_ends_it_too 143 "$found"
    gone "$pids"
    check and_its_ranks "" "$(living "$pids")"
    check ranks_inherit_what_it_does_not_need 0000000000000800 \
        "$(env --block-signal=TERM,USR1,CHLD,USR2 "$run" -n 1 \
            sed -n 's/SigBlk:[^0-9]*//p' /proc/self/status)"
else
    echo "skip a_blocked_signal_ends_it_too: this env has no --block-signal"
fi
# What whoever began gf-run has it ignore.
check a_job_outlives_its_terminal_under_nohup "on0" \
    "$(trap '' HUP; "$run" -n 1 sh -c 'kill -HUP $PPID $$; sleep 0.3; printf on'; echo $?)"
check ranks_end_by_the_limit_of_file_sizes 153 "$(code 10 "$run" -n 1 sh -c 'kill -XFSZ $$')"

if [ -n "$held" ]; then
    wait $held
    code=$?
    check a_coordinator_that_does_not_come_is_waited_for_ten_seconds "1 gf-run: the coordinator cannot start: it did not \
say within 10 s whether it listens" "$code $(cat "$work/held")"
else
    echo "skip a_coordinator_that_does_not_come_is_waited_for_ten_seconds: no call can be preloaded here"
fi
exit $failed
