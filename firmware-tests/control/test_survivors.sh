#!/bin/sh
# Under gf-run, whose child is the coordinator, one survivor is enough: of two to eight ranks any but one are killed at
# once, also while they join again. Ranks that are started again come in at the same address. Where rank 0's process has
# the coordinator, as a launcher of one's own leaves it, the job ends with rank 0, at once.
set -u
. firmware-tests/support/shell.sh
. firmware-tests/support/elastic.sh

# at_once "VICTIMS": they are killed by one kill
at_once() {
    # shellcheck disable=SC2046 # a word each
    kill -KILL $(for v in $1; do cat "$scratch/pid.$v"; done)
}

goes_on() { # RANKS "VICTIMS" PRIVATE
    job_start "-n $1 --elastic" --batch 32 --steps 1000 --set "link.private_memory=$3" \
        --set rendezvous.join_timeout=40s --set link.idle=sleep || return 1
    # shellcheck disable=SC2086 # a word each
    left=$(($1 - $(set -- $2; echo $#)))
    began=$(date +%s%N)
    at_once "$2"
    wait_for $left "elastic: rank . of $1 is rank . of $left" || return 1
    echo $(($(date +%s%N) - began)) >>"$scratch/times"
    job_end || { echo "exit $?"; show; return 1; }
    grep -q 'the same on all ranks' "$scratch/log" || show
}

# Started again: rank 0 twice in a row, then all but the one that came last.
comes_back() { # RANKS
    others=$(seq 1 $(($1 - 1)))
    job_start "-n $1 --restart 4" --steps 1000 --set rendezvous.join_timeout=30s \
        --set link.idle=sleep || return 1
    came=0
    for victims in 0 0 "$others"; do
        at_once "$victims"
        # shellcheck disable=SC2086 # a word each
        came=$((came + $(set -- $victims; echo $#)))
        wait_for $came 'came back as' || return 1
    done
    job_end || { echo "exit $?"; show; return 1; }
    grep -q "ranks  *$1\$" "$scratch/log" && grep -q 'the same on all ranks' "$scratch/log" || show
}

# The word of a rank whose coordinator went with rank 0, and when it ended: long before anything that it waits for.
hosted() { # RANKS ELASTIC
    rm -f "$scratch"/pid.* "$scratch"/c.* "$scratch"/log.*
    pids=''
    for rank in $(seq 0 $(($1 - 1))); do
        # shellcheck disable=SC2016 # the rank's
        GF_RANK=$rank GF_WORLD=$1 GF_JOB=$$ GF_ELASTIC=$2 GF_ADDRESS=127.0.0.1:20999 timeout 100 \
            sh -c 'echo $$ >"$0/pid.$GF_RANK"; exec "$@"' "$scratch" "$BUILD/gf-train" $small \
            --steps 100000000 --lr 0.0001 --checkpoint "$scratch/c" --checkpoint-every 10 --set link.idle=sleep \
            --set link.private_memory=true --set exchange.timeout=60s --set rendezvous.keepalive=60s \
            >"$scratch/log.$rank" 2>&1 &
        pids="$pids $!"
    done
    await 60 [ -s "$scratch/c.0" ] || return 1
    kill -KILL "$(cat "$scratch/pid.0")"
    began=$(date +%s%N)
    # shellcheck disable=SC2086 # a word each
    set -- $pids
    wait "$1" 2>/dev/null; shift
    for pid in "$@"; do wait "$pid" && { echo "a rank ended well"; return 1; }; done
    ms=$((($(date +%s%N) - began) / 1000000))
    echo "# the others ended after $ms ms: $(tail -n 1 "$scratch/log.1")" >&2
    [ $ms -lt 20000 ] || { echo "after $ms ms"; return 1; }
    for log in "$scratch"/log.[1-9]; do
        grep -q 'rank 0.*coordinator' "$log" || { tail -n 5 "$log"; return 1; }
    done
}

check of_two_ranks_1_goes_on goes_on 2 0 true
check of_two_ranks_0_goes_on goes_on 2 1 false
check of_five_ranks_two_go_on goes_on 5 "0 1 3" true
check of_five_ranks_the_last_goes_on goes_on 5 "0 1 2 3" true
check of_eight_ranks_one_in_the_middle_goes_on goes_on 8 "0 1 2 4 5 6 7" false
measured "$scratch/times" "from kill -9 of all but some until those train"
check who_is_started_again_comes_in comes_back 3
check where_rank_0_has_the_coordinator_the_job_ends_with_it hosted 3 1
check and_says_the_same_where_no_rank_may_die hosted 3 0
finish
