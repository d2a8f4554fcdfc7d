#!/bin/sh
# gf-run --max and gf-train --elastic over real processes: a signal starts one more rank, another makes a rank leave,
# rank 0 too. Nobody fails, the run ends with the others and the same weights on all of them.
# suite: long
set -u
. firmware-tests/support/shell.sh
. firmware-tests/support/elastic.sh

grows_and_leaves() { # TRANSPORTS LEAVER
    job_start "-n 2 --max 3" --batch 32 --steps 1000 --set "link.private_memory=$1" --set rendezvous.join_timeout=40s \
        --set exchange.timeout=10s --set link.idle=sleep || return 1
    before=$(regions 0 1)
    kill -USR1 "$(cat /proc/$job/task/$job/children)" # gf-run, below timeout
    wait_for 1 'member 2 came in as rank 2 of 3' || return 1
    signal USR1 "$2"
    wait_for 1 "rank $2 of 3 has left"
    if [ "$2" = 2 ]; then # each is done with the others' regions when it is READY: they stay
        after=$(regions 0 1)
        [ "$before" = "$after" ] && [ -n "$after" ] || { echo "$before, then $after"; kill $job; return 1; }
    fi
    job_end
    code=$?
    [ $code -eq 0 ] && grep -q "rank $2 of 3 has left" "$scratch/log" && ! grep -q 'died' "$scratch/log" &&
        grep -q "ranks  *2\$" "$scratch/log" && grep -q 'the same on all ranks' "$scratch/log" && return 0
    echo "exit $code"
    show 30
}

beyond() { # a rank that world_max does not allow
    GF_RANK=3 GF_WORLD=2 GF_WORLD_MAX=3 GF_JOB=1 GF_ADDRESS=127.0.0.1:1 "$BUILD/gf-train" --elastic --steps 1 \
        >"$scratch/log" 2>&1
    code=$?
    [ $code -ne 0 ] && grep -q "GF_RANK='3'" "$scratch/log" || show
}

# Rank 1 is asked to leave while it waits for rank 2, which comes once it was asked; a signal that it does not catch yet
# would end it.
early() {
    # shellcheck disable=SC2016 # the ranks'
    rm -f "$scratch/asked"
    timeout 100 "$BUILD/gf-run" -n 3 --elastic sh -c '[ $GF_RANK != 1 ] || {
            (until grep -q "SigCgt:.*[2367abef]..$" /proc/$$/status; do sleep 0.02; done
            kill -USR1 $$; : >"$0/asked") & }
        [ $GF_RANK != 2 ] || until [ -e "$0/asked" ]; do sleep 0.02; done; exec "$@"' \
        "$scratch" "$BUILD/gf-train" $small --elastic --steps 100 >"$scratch/log" 2>&1 &&
        grep -q "rank 1 of 3 has left" "$scratch/log" && grep -q "ranks  *2\$" "$scratch/log" || show
}

check who_is_asked_before_it_has_joined_leaves early
check over_tcp_one_comes_and_rank_0_leaves grows_and_leaves true 0
check in_a_node_one_comes_and_leaves grows_and_leaves false 2
check a_rank_beyond_world_max_is_refused beyond
finish
