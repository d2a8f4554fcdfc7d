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
check a_restart_after_rank_0_was_left_out stopped_before
check nobody_at_the_address alone 1 'cannot be reached'
check what_it_is_told_is_checked alone yes "GF_REJOIN='yes': expected 0 or 1"
finish
