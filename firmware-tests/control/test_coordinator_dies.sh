#!/bin/sh
# The coordinator as a process of its own, of gf-run or gf-coordinator, is killed, stopped and started again while
# ranks train. Training goes on, nobody innocent is cut, and whoever dies afterwards is found by the one that came in
# its place.
# TIMES="1 5 20": it is also stopped for so many seconds, and what takes long is done, RUNS times (default 1); in
# check-long.
set -u
. firmware-tests/support/shell.sh
. firmware-tests/support/elastic.sh
RUNS=${RUNS:-1} TIMES=${TIMES:-}

# coordinator_of JOB: the child of gf-run, below timeout
coordinator_of() {
    for run_ in $(cat "/proc/$1/task/$1/children"); do
        for child_ in $(cat "/proc/$run_/task/$run_/children"); do
            [ "$(cat "/proc/$child_/comm" 2>/dev/null)" != gf-coordinator ] || echo "$child_"
        done
    done
}
start() { # RANKS STEPS "GF-RUN OPTIONS"
    job_start "-n $1 --elastic ${3:-}" --batch 32 --steps "$2" --set rendezvous.join_timeout=30s \
        --set exchange.timeout=4s --set link.idle=sleep --set link.private_memory=true
}
# all_here RANKS: the coordinator, asked as rank 1's environment says, has all of them
all_here() {
    # shellcheck disable=SC2016,SC2046 # the rank's; a word each
    env $(tr '\0' '\n' <"/proc/$(cat "$scratch/pid.1")/environ" | grep -E '^GF_(JOB|ADDRESS)=') sh -c '
        timeout 100 "$1" --status "$GF_ADDRESS" --job "$GF_JOB"' sh "$BUILD/gf-coordinator" 2>&1 |
        grep -q "$1 here, 0 away"
}
ended_with() { # RANKS
    job_end || { echo "exit $?"; show; return 1; }
    grep -q "ranks  *$1\$" "$scratch/log" && grep -q 'the same on all ranks' "$scratch/log" || show
}
nobody_was_cut() { ! grep -q 'elastic: rank\|went on without' "$scratch/log" || show; }

killed() { # it is started again, takes the job over, and finds who dies then
    start 3 1000 || return 1
    first=$(coordinator_of $job)
    kill -KILL "$first"
    await 60 all_here 3 && moves 10 && nobody_was_cut || return 1
    second=$(coordinator_of $job)
    [ -n "$second" ] && [ "$second" != "$first" ] || { echo "after $first comes '$second'"; return 1; }
    signal KILL 0
    wait_for 2 'elastic: rank . of 3 is rank . of 2' && ended_with 2
}
killed_with_a_rank() { # nobody takes over a generation of which a rank is missing: all end, and name it
    start 3 1000000 || return 1
    kill -KILL "$(coordinator_of $job)" "$(cat "$scratch/pid.1")"
    began=$(date +%s)
    wait $job && { echo "it went on"; return 1; }
    seconds=$(($(date +%s) - began))
    echo "# a rank and the coordinator at once: ended after $seconds s" >&2
    [ $seconds -lt 45 ] && grep -q 'coordinator\|taken over' "$scratch/log" || show
}
stopped() { # SECONDS
    start 3 1000000 || return 1
    pid=$(coordinator_of $job)
    kill -STOP "$pid"
    moves 20; code=$?
    sleep "$1"
    kill -CONT "$pid"
    [ $code -eq 0 ] && sleep 2 && moves 20 && nobody_was_cut; code=$?
    [ "$(coordinator_of $job)" = "$pid" ] || { echo "it was started again"; code=1; }
    kill $job; wait $job
    return $code
}
stopped_while_a_rank_dies() { # a regroup waits for it, no longer than rule 6 lets it
    start 3 1000 || return 1
    pid=$(coordinator_of $job)
    kill -STOP "$pid"
    signal KILL 2
    sleep 2
    kill -CONT "$pid"
    wait_for 2 'elastic: rank . of 3 is rank . of 2' && ended_with 2
}
unread() { # nobody reads what gf-run shows: the ranks go on without the one that dies
    rm -f "$scratch"/pid.* "$scratch"/c.*
    mkfifo "$scratch/unread" 2>/dev/null
    sleep 60 <"$scratch/unread" & reader=$!
    # shellcheck disable=SC2016 # the rank's
    timeout 100 "$BUILD/gf-run" -n 3 --elastic \
        sh -c 'echo $$ >"$0/pid.$GF_RANK"; head -c 300000 /dev/zero & exec "$@"' \
        "$scratch" "$BUILD/gf-train" $small --elastic --steps 1000000 --checkpoint "$scratch/c" \
        --checkpoint-every 10 --quiet --set link.idle=sleep >"$scratch/unread" 2>"$scratch/log" & job=$!
    until at=$(step_of "$scratch/c.2"); [ "${at:-0}" -gt 0 ]; do sleep 0.05; done
    kill -KILL "$(coordinator_of $job)"
    sleep 1
    signal KILL 1
    sleep 1
    moves 20; code=$?
    kill -KILL $reader; wait $reader 2>/dev/null
    kill $job; wait $job
    return $code
}
# gf-coordinator and a launcher's loop beside it: it says what happens, and how it ends.
by_itself() {
    rm -f "$scratch"/pid.* "$scratch"/c.* "$scratch/log"
    set -- --job of.$$ --key-file "$scratch/key"
    "$BUILD/gf-coordinator" --listen 127.0.0.1:20998 --world 2 "$@" >"$scratch/told" 2>&1 & coordinator=$!
    pids='' && hold 10
    for rank in 0 1; do
        # shellcheck disable=SC2016 # the rank's
        GF_RANK=$rank GF_WORLD=2 GF_JOB=of.$$ GF_ELASTIC=1 GF_COORDINATOR=separate GF_ADDRESS=127.0.0.1:20998 \
            timeout 100 sh -c 'echo $$ >"$0/pid.$GF_RANK"; exec "$@"' "$scratch" "$held" $small --steps 1000 \
            --checkpoint "$scratch/c" --checkpoint-every 10 --set link.idle=sleep \
            --set rendezvous.key_file="$scratch/key" >>"$scratch/log" 2>&1 & pids="$pids $!" job=$!
    done
    until at=$(step_of "$scratch/c.0"); [ "${at:-0}" -gt 0 ]; do
        kill -0 $job 2>/dev/null || { echo "it ended before"; show; cat "$scratch/told"; return 1; }
        sleep 0.05
    done
    timeout 100 "$BUILD/gf-coordinator" --status 127.0.0.1:20998 "$@" >"$scratch/status" 2>&1 ||
        { cat "$scratch/status"; return 1; }
    kill -KILL $coordinator
    wait $coordinator 2>/dev/null
    "$BUILD/gf-coordinator" --listen 127.0.0.1:20998 --world 2 "$@" >>"$scratch/told" 2>&1 & coordinator=$!
    await 60 grep -q 'was taken over' "$scratch/told"; code=$?
    let_end
    [ $code -eq 0 ] || { cat "$scratch/told"; return 1; }
    # shellcheck disable=SC2086 # a word each
    set -- $pids
    wait "$1" && wait "$2" && wait $coordinator || { echo "exit $?"; show; cat "$scratch/told"; return 1; }
}
shown() { grep -q "$1" "$scratch/$2" || { cat "$scratch/$2"; return 1; }; }
other_job() { # a rank of another job, and whoever has another key
    ! "$BUILD/gf-coordinator" --status 127.0.0.1:20998 --job other --key-file "$scratch/key" >"$scratch/status" 2>&1
}

head -c 32 /dev/urandom >"$scratch/key"; chmod 600 "$scratch/key"
check killed_it_is_started_again_and_takes_the_job_over killed
check by_itself_it_ends_well_with_the_job by_itself
check and_says_when_a_generation_begins shown 'generation 1 has begun with 2 ranks' told
check and_that_it_took_one_over shown 'generation 1 of 2 ranks was taken over' told
check and_shows_where_the_job_is shown '^generation 1 of 2 ranks: 2 here, 0 away' status
check and_nobody_answers_once_it_has_ended other_job
[ -n "$TIMES" ] || finish
for _ in $(seq 1 "$RUNS"); do
    for s in $TIMES; do check "stopped_for_${s}_s_it_cuts_nobody" stopped "$s"; done
    check stopped_in_a_regroup_it_is_awaited stopped_while_a_rank_dies
    check killed_with_a_rank_it_ends_the_job killed_with_a_rank
    check nobody_who_does_not_read_stops_it unread
done
finish
