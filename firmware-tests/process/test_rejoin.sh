#!/bin/sh
# gf-run --restart and gf-train --elastic over real processes: kill -9 of any rank (the coordinator too), which is started
# again and comes back into the run: it ends with the whole world, the same weights on all ranks, within a point of the
# undisturbed accuracy. RUNS a transport (default 1); what was measured is printed.
set -u
. firmware-tests/support/shell.sh
export LC_ALL=C OPENBLAS_NUM_THREADS=1
RUNS=${RUNS:-1} batch=4096 # steps that take long enough for a rank to come back between two of them

accuracy() { sed -n 's/^.*test accuracy *\([0-9.]*\) %.*$/\1/p' "$1"; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d < 1 && d > -1) }'; }
# wait_for N PATTERN: until the log has N lines of it; fails once the job has ended.
wait_for() {
    until [ "$(grep -c "$2" "$scratch/log")" -ge "$1" ]; do
        kill -0 $job 2>/dev/null || return 1
        sleep 0.01
    done
}

# start RANKS TRANSPORTS STEPS: in the background, as $job; checkpoints say that they train
start() {
    ranks=$1 transports=$2 steps=$3
    rm -rf "$scratch"/pid.* "$scratch"/c.* "$scratch/log"
    timeout 300 "$BUILD/gf-run" -n "$ranks" --restart 3 \
        sh -c 'echo $$ >"$0/pid.$GF_RANK"; exec "$@"' "$scratch" \
        "$BUILD/gf-train" --model linear --batch $batch --elastic --steps $steps --set "link.transports=$transports" \
        --set rendezvous.join_timeout=60s --set exchange.timeout=10s --set link.idle=sleep \
        --checkpoint "$scratch/c" --checkpoint-every 10 >"$scratch/log" 2>&1 &
    job=$!
    until [ -s "$scratch/c.0" ]; do
        kill -0 $job 2>/dev/null || return 1
        sleep 0.01
    done
}

ended_whole() { # RANKS ACCURACY
    wait $job
    code=$?
    [ $code -eq 0 ] || { echo "exit $code"; tail -20 "$scratch/log"; return 1; }
    grep -q "ranks  *$1\$" "$scratch/log" && grep -q 'the same on all ranks' "$scratch/log" &&
        near "$(accuracy "$scratch/log")" "$2" && return 0
    tail -30 "$scratch/log"
    return 1
}

comes_back() { # RANKS VICTIM MS TRANSPORTS
    start "$1" "$4" 300 || { cat "$scratch/log"; return 1; }
    sleep "$(awk -v ms="$3" 'BEGIN { print ms / 1000 }')"
    began=$(date +%s%N)
    kill -KILL "$(cat "$scratch/pid.$2")"
    wait_for 1 'came back as' || { tail -20 "$scratch/log"; return 1; }
    echo $(($(date +%s%N) - began)) >>"$scratch/times.$4"
    ended_whole "$1" "$short"
}

twice() { # RANKS VICTIM TRANSPORTS: it is killed again as soon as it has come back, and another one after that
    start "$1" "$3" 900 || { cat "$scratch/log"; return 1; }
    kill -KILL "$(cat "$scratch/pid.$2")"
    wait_for 1 'came back as' || { tail -20 "$scratch/log"; return 1; }
    kill -KILL "$(cat "$scratch/pid.$2")"
    wait_for 2 'came back as' || { tail -20 "$scratch/log"; return 1; }
    kill -KILL "$(cat "$scratch/pid.$((($2 + 1) % $1))")"
    wait_for 3 'came back as' || { tail -20 "$scratch/log"; return 1; }
    ended_whole "$1" "$long"
}

measured() {
    [ -f "$scratch/times.$1" ] || return 0
    sort -n "$scratch/times.$1" | awk -v what="$1" '{ t[NR] = $1 / 1e9 } END {
        printf "# %s: from kill -9 until the restarted rank trains, seconds: min %.3f median %.3f max %.3f of %d\n",
               what, t[1], t[int((NR + 1) / 2)], t[NR], NR }'
}

alone() { # a joiner that finds nobody
    GF_REJOIN=$1 GF_RANK=1 GF_WORLD=3 GF_JOB=1 GF_ADDRESS=127.0.0.1:1 timeout 60 "$BUILD/gf-train" --model linear \
        --elastic --steps 10 --set rendezvous.join_timeout=300ms >"$scratch/alone" 2>&1
    code=$?
    [ $code -eq 1 ] && [ "$(wc -l <"$scratch/alone")" -eq 1 ] && grep -q "$2" "$scratch/alone" && return 0
    echo "exit $code"
    cat "$scratch/alone"
    return 1
}

undisturbed() { # STEPS
    timeout 300 "$BUILD/gf-run" -n 3 "$BUILD/gf-train" --model linear --batch $batch --steps "$1" --set link.idle=sleep \
        >"$scratch/whole" 2>&1
    accuracy "$scratch/whole"
}
short=$(undisturbed 300) long=$(undisturbed 900)
check undisturbed_runs [ -n "$short" -a -n "$long" ]
for transports in self,posix self,tcp; do
    i=0
    while [ $i -lt "$RUNS" ]; do
        ranks=$((2 + (i + 1) % 3)) victim=$((i % 2 == 0 ? 0 : (i * 7) % (2 + (i + 1) % 3)))
        check "${transports}_${ranks}_ranks_and_$victim" comes_back $ranks $victim $((37 * (i + 1) % 400)) $transports
        i=$((i + 1))
    done
    check "${transports}_3_ranks_three_deaths" twice 3 0 $transports
    measured $transports
done
check nobody_at_the_address alone 1 'cannot reach'
check what_it_is_told_is_checked alone yes "GF_REJOIN='yes': expected 0 or 1"
finish
