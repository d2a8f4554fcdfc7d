#!/bin/sh
# gf-run --restart and gf-train --elastic over real processes: kill -9 of any rank, which is started
# again and comes back into the run: it ends with the whole world, the same weights on all ranks, within a point of the
# undisturbed accuracy. RUNS a transport (default 1); what was measured is printed.
set -u
. firmware-tests/support/shell.sh
. firmware-tests/support/elastic.sh
RUNS=${RUNS:-1}

start() { # RANKS TRANSPORTS STEPS
    job_start "-n $1 --restart 3" --steps "$3" --set "link.private_memory=$2" \
        --set rendezvous.join_timeout=60s --set exchange.timeout=10s --set link.idle=sleep
}

ended_whole() { # RANKS ACCURACY
    job_end
    code=$?
    [ $code -eq 0 ] || { echo "exit $code"; show; return 1; }
    grep -q "ranks  *$1\$" "$scratch/log" && grep -q 'the same on all ranks' "$scratch/log" &&
        near "$(accuracy "$scratch/log")" "$2" || show 30
}

comes_back() { # RANKS VICTIM MS TRANSPORTS
    start "$1" "$4" 1000 || return 1
    nap "$3"
    began=$(date +%s%N)
    signal KILL "$2"
    wait_for 1 'came back as' || return 1
    echo $(($(date +%s%N) - began)) >>"$scratch/times.$4"
    ended_whole "$1" "$whole" || return 1
}

twice() { # RANKS VICTIM TRANSPORTS: it is killed again as soon as it has come back, and another one after that
    start "$1" "$3" 1000 || return 1
    for death in 1 2 3; do
        signal KILL $((death < 3 ? $2 : ($2 + 1) % $1))
        wait_for $death 'came back as' || return 1
    done
    ended_whole "$1" "$whole"
}

# All at once: the job begins anew from its checkpoint, with the line that it was started with.
all_die() { # RANKS
    echo 'rendezvous = { keepalive = "500ms"; };' >"$scratch/cfg"
    job_start "-n $1 --restart 3 --config $scratch/cfg" --steps 1000 --set link.idle=sleep \
        --set rendezvous.join_timeout=60s --set rendezvous.keepalive=500ms || return 1
    # shellcheck disable=SC2046
    kill -KILL $(cat "$scratch"/pid.*)
    wait_for 1 'resumed at step [1-9]' || return 1
    ended_whole "$1" "$whole"
}

stopped_before() { # rank 0 is stopped and comes in again; then another one dies, and comes back
    job_start "-n 3 --restart 3" --steps 1000 --set link.private_memory=true --set link.idle=sleep \
        --set rendezvous.join_timeout=60s --set exchange.timeout=1s || return 1
    signal STOP 0
    wait_for 2 'elastic: rank' || return 1
    signal CONT 0
    wait_for 2 '1 came in, 0 left' || return 1
    signal KILL 2
    wait_for 1 'member 2 came back as' || return 1
    ended_whole 3 "$whole"
}

# Rank 1 is started again, and is slow to begin: the job has ended well meanwhile, and rank 0's process too, or it ends
# only once rank 1 waits. It is told that the job has ended, and waits for nobody.
late() { # waits | comes
    hold 10
    rm -rf "$scratch"/pid.* "$scratch"/c.* "$scratch/log"
    # shellcheck disable=SC2016,SC2086 # $$ is the rank's; words of the options
    how=$1 timeout 200 "$BUILD/gf-run" -n 2 --restart 1 sh -c '
        echo $$ >"$0/pid.$GF_RANK"
        zombie() { case $(ps -o stat= -p "$(cat "$0/pid.0")") in Z*) ;; *) false ;; esac; }
        closed() { [ -e "$0/closed" ]; }
        if [ -n "${GF_REJOIN:-}" ]; then
            [ $how = waits ] && ended=closed || ended=zombie
            until $ended; do sleep 0.02; done
            exec "$@"
        fi
        "$@" || exit
        : >"$0/closed"
        [ $how = comes ] || until "$BUILD/gf-coordinator" --status "$GF_ADDRESS" --job "$GF_JOB" 2>/dev/null |
            grep -q "^here: 1$"; do sleep 0.02; done' \
        "$scratch" "$held" $small --elastic --checkpoint "$scratch/c" --checkpoint-every 10 --steps 1000 \
        --set rendezvous.join_timeout=20s --set link.idle=sleep >"$scratch/log" 2>&1 &
    job=$!
    until at=$(step_of "$scratch/c.0"); [ "${at:-0}" -gt 0 ]; do
        kill -0 $job 2>/dev/null || { echo "it ended before"; show; return 1; }
        sleep 0.01
    done
    signal KILL 1
    wait_for 1 'rank 1 is started again' || return 1
    job_end || show || return 1
    grep -q '^\[1\].*the job has ended' "$scratch/log" || show
}

# Likewise rank 0 on node 0, whose gf-run has no rank that has ended well.
late_on_node_0() {
    hold 10
    rm -rf "$scratch"/pid.* "$scratch"/c.* "$scratch"/log*
    at=$("$BUILD/gf-run" -n 1 sh -c 'echo $GF_ADDRESS')
    for node in 0 1; do
        # shellcheck disable=SC2016,SC2086 # $$ is the rank's; words of the options
        timeout 200 "$BUILD/gf-run" -n 1 --nodes 2 --node-rank $node --job 7 --listen "$at" --restart 2 sh -c '
            echo $$ >"$0/pid.$GF_RANK"
            [ -z "${GF_REJOIN:-}" ] || until [ -e "$0/goes" ]; do sleep 0.02; done
            exec "$@"' "$scratch" "$held" $small --elastic --checkpoint "$scratch/c" --checkpoint-every 10 \
            --steps 1000 --set rendezvous.join_timeout=20s --set link.idle=sleep >"$scratch/log.$node" 2>&1 &
        [ $node -eq 1 ] || first=$!
    done
    second=$!
    until at=$(step_of "$scratch/c.0"); [ "${at:-0}" -gt 0 ]; do
        kill -0 $first 2>/dev/null || { echo "it ended before"; cat "$scratch/log.0"; return 1; }
        sleep 0.01
    done
    signal KILL 0
    until grep -q 'is started again' "$scratch/log.0"; do # tries begin a second apart
        kill -0 $first 2>/dev/null || { echo "nothing is started again"; cat "$scratch/log.0"; return 1; }
        sleep 0.02
    done
    let_end
    wait $second || { echo "exit $? of node 1"; cat "$scratch/log.1"; return 1; }
    : >"$scratch/goes"
    wait $first
    same 137 $? && same 1 "$(grep -c 'is started again' "$scratch/log.0")" &&
        grep -q 'error: rank 0.*the job has ended' "$scratch/log.0" || { cat "$scratch/log.0"; return 1; }
}

alone() { # a joiner that finds nobody
    GF_REJOIN=$1 GF_RANK=1 GF_WORLD=3 GF_JOB=1 GF_ADDRESS=127.0.0.1:1 timeout 100 "$BUILD/gf-train" $small \
        --elastic --steps 10 --set rendezvous.join_timeout=300ms >"$scratch/log" 2>&1
    code=$?
    [ $code -eq 1 ] && [ "$(wc -l <"$scratch/log")" -eq 1 ] && grep -q "$2" "$scratch/log" && return 0
    echo "exit $code"
    show
}

whole=$(undisturbed --steps 1000)
check undisturbed_run [ -n "$whole" ]
for private in false true; do
    i=0
    while [ $i -lt "$RUNS" ]; do
        ranks=$((2 + (i + 1) % 3)) victim=$((i % 2 == 0 ? 0 : (i * 7) % (2 + (i + 1) % 3)))
        check "$(memory $private)_${ranks}_ranks_and_$victim" comes_back $ranks $victim $((37 * (i + 1) % 400)) $private
        i=$((i + 1))
    done
    measured "$scratch/times.$private" "$(memory $private): from kill -9 until the restarted rank trains"
done
check "3_ranks_three_deaths" twice 3 0 true
check all_die_and_the_job_goes_on_from_its_checkpoint all_die 3
check a_restart_after_rank_0_was_left_out stopped_before
check who_is_late_and_waits_hears_that_the_job_has_ended late waits
check and_who_comes_after_all_others late comes
check and_on_a_node_where_no_rank_has_ended_well late_on_node_0
check nobody_at_the_address alone 1 'cannot be reached'
check what_it_is_told_is_checked alone yes "GF_REJOIN='yes': expected 0 or 1"
finish
