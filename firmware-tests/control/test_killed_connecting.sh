#!/bin/sh
# suite: long (KILLS jobs, default 90)
# One of three ranks is killed 20 to 480 ms after it was started: before it joins, while ranks connect, in the first
# messages; two jobs in three over sockets. The others end with exit code 1, none by a signal.
. firmware-tests/support/shell.sh
export LC_ALL=C
KILLS=${KILLS:-90}
rank() { # RANK PRIVATE_MEMORY
    export GF_RANK=$1 GF_WORLD=3
    exec timeout 100 "$BUILD/gf-perf" -b 1M -e 16M -f 16 -n 2000 \
        --set rendezvous.join_timeout=1500ms --set exchange.timeout=2s --set "link.private_memory=$2" >"$scratch/log.$1" 2>&1
}
jobs_end() {
    for i in $(seq "$KILLS"); do
        private=true
        [ $((i % 3)) -ne 0 ] || private=false
        rank 0 $private & pid0=$!
        rank 2 $private & pid2=$!
        (export GF_RANK=1 GF_WORLD=3; exec timeout -s KILL "0.$(shuf -i 120-480 -n 1)" \
            "$BUILD/gf-perf" -b 1M -e 16M -f 16 -n 2000 \
            --set link.private_memory=$private >/dev/null 2>&1) &
        wait $pid0; code0=$?
        wait $pid2; code2=$?
        wait
        [ "$code0 $code2" = "1 1" ] || { echo "# $private: $code0 $code2"; tail -n 3 "$scratch"/log.*; return 1; }
    done
}
check survivors_of_a_rank_that_dies_while_it_connects_end_by_themselves jobs_end
finish
