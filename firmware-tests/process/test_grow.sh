#!/bin/sh
# gf-run --max and gf-train --elastic over real processes: a signal starts one more rank, another makes a rank leave,
# the coordinator too. Nobody fails, the run ends with the others and the same weights on all of them.
# suite: long
set -u
. firmware-tests/support/shell.sh
export LC_ALL=C OPENBLAS_NUM_THREADS=1

wait_for() {
    until grep -q "$1" "$scratch/log"; do
        kill -0 $job 2>/dev/null || return 1
        sleep 0.01
    done
}

grows_and_leaves() { # TRANSPORTS LEAVER
    rm -rf "$scratch"/pid.* "$scratch"/c.* "$scratch/log"
    "$BUILD/gf-run" -n 2 --max 3 sh -c 'echo $$ >"$0/pid.$GF_RANK"; exec "$@"' "$scratch" \
        "$BUILD/gf-train" --model linear --batch 1024 --elastic --steps 300 --set "link.transports=$1" \
        --set rendezvous.join_timeout=40s --set exchange.timeout=10s --set link.idle=sleep \
        --checkpoint "$scratch/c" --checkpoint-every 10 >"$scratch/log" 2>&1 &
    job=$!
    until [ -s "$scratch/c.0" ]; do
        kill -0 $job 2>/dev/null || { cat "$scratch/log"; return 1; }
        sleep 0.01
    done
    kill -USR1 $job
    wait_for 'member 2 came in as rank 2 of 3' || { cat "$scratch/log"; return 1; }
    kill -USR1 "$(cat "$scratch/pid.$2")"
    wait $job
    code=$?
    [ $code -eq 0 ] && grep -q "rank $2 of 3 has left" "$scratch/log" && ! grep -q 'died' "$scratch/log" &&
        grep -q "ranks  *2\$" "$scratch/log" && grep -q 'the same on all ranks' "$scratch/log" && return 0
    echo "exit $code"
    tail -30 "$scratch/log"
    return 1
}

beyond() { # a rank that world_max does not allow
    GF_RANK=3 GF_WORLD=2 GF_WORLD_MAX=3 GF_JOB=1 GF_ADDRESS=127.0.0.1:1 "$BUILD/gf-train" --elastic --steps 1 \
        >"$scratch/out" 2>&1
    code=$?
    [ $code -ne 0 ] && grep -q "GF_RANK='3'" "$scratch/out" && return 0
    cat "$scratch/out"
    return 1
}

check tcp_one_comes_and_rank_0_leaves grows_and_leaves self,tcp 0
check posix_one_comes_and_leaves grows_and_leaves self,posix 2
check a_rank_beyond_world_max_is_refused beyond
finish
