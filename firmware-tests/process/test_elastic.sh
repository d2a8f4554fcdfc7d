#!/bin/sh
# gf-train --elastic over real processes: kill -9 of any rank (the coordinator too) in the middle of a run; the others go
# on as one world and end with the same weights, within a point of the undisturbed accuracy. RUNS a transport (default 1);
# what was measured is printed.
set -u
. firmware-tests/support/shell.sh
export LC_ALL=C OPENBLAS_NUM_THREADS=1
RUNS=${RUNS:-1} steps=1000

step_of() { od -An -tu8 -j40 -N8 "$1" 2>/dev/null | tr -d ' '; }
accuracy() { sed -n 's/^.*test accuracy *\([0-9.]*\) %.*$/\1/p' "$1"; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d < 1 && d > -1) }'; }

# run RANKS VICTIM MS TRANSPORTS SIGNAL: VICTIM gets SIGNAL MS after training has begun; the log is in $scratch/log.
run() {
    ranks=$1 victim=$2 ms=$3 transports=$4 number=$5
    rm -rf "$scratch"/pid.* "$scratch"/c.* "$scratch/log"
    timeout 100 "$BUILD/gf-run" -n "$ranks" --elastic \
        sh -c 'echo $$ >"$0/pid.$GF_RANK"; exec "$@" --checkpoint "$0/c"' "$scratch" \
        "$BUILD/gf-train" --model linear --elastic --steps $steps --set "link.transports=$transports" \
        --set rendezvous.join_timeout=20s --set exchange.timeout=3s --set link.idle=yield --checkpoint-every 10 \
        >"$scratch/log" 2>&1 &
    job=$!
    until at=$(step_of "$scratch/c.0"); [ "${at:-0}" -ge 10 ]; do
        kill -0 $job 2>/dev/null || return 1 # it ended before
        sleep 0.01
    done
    sleep "$(awk -v ms="$ms" 'BEGIN { print ms / 1000 }')"
    began=$(date +%s%N)
    kill -"$number" "$(cat "$scratch/pid.$victim")"
    until [ "$(grep -c 'elastic: rank' "$scratch/log")" -ge $((ranks - 1)) ]; do
        kill -0 $job 2>/dev/null || break
        sleep 0.005
    done
    echo $(($(date +%s%N) - began)) >>"$scratch/times.$number.$transports"
    [ "$number" = KILL ] || kill -CONT "$(cat "$scratch/pid.$victim")"
    wait $job
}

# own_files RANKS VICTIM: files go by the rank of the start, so nobody has written the victim's but itself.
own_files() {
    k=0
    while [ $k -lt "$1" ]; do
        at=$(step_of "$scratch/c.$k")
        [ -n "$at" ] || at=$(step_of "$scratch/c.$k.before") # killed between two renames
        if [ $k -eq "$2" ]; then [ "$at" -lt $steps ]; else [ "$at" -eq $steps ]; fi ||
            { echo "file of rank $k is at step $at"; return 1; }
        k=$((k + 1))
    done
}

# goes_on RANKS VICTIM: what the survivors saved is a whole set for as many ranks, or other numbers
goes_on() {
    for ranks in $(($1 - 1)) "$1"; do
        timeout 100 "$BUILD/gf-run" -n "$ranks" "$BUILD/gf-train" --model linear --steps $steps --checkpoint "$scratch/c" \
            --resume --set link.idle=yield >"$scratch/again" 2>&1 &&
            grep -q "resumed at step $steps" "$scratch/again" && near "$(accuracy "$scratch/again")" "$whole" ||
            { cat "$scratch/again"; return 1; }
    done
}

stopped() { # RANKS VICTIM MS TRANSPORTS: silent past the deadline it is left behind, and finds that out when it goes on
    steps=6000 # the others must not have ended when it goes on: then nobody could tell it
    run "$@" STOP
    code=$?
    own_files "$1" "$2" || code=$?
    steps=1000
    [ $code -eq 0 ] || { echo "exit $code"; tail -20 "$scratch/log"; return 1; }
    grep -q "rank $2: the other ranks \(go\|went\) on without" "$scratch/log" || { cat "$scratch/log"; return 1; }
    near "$(accuracy "$scratch/log")" "$whole"
}
measured() { # SIGNAL TRANSPORTS
    [ -f "$scratch/times.$1.$2" ] || return 0
    sort -n "$scratch/times.$1.$2" | awk -v what="$1, $2" '{ t[NR] = $1 / 1e9 } END {
        printf "# %s: from the signal until all survivors go on, seconds: min %.3f median %.3f max %.3f of %d\n",
               what, t[1], t[int((NR + 1) / 2)], t[NR], NR }'
}

disturbed() { # RANKS VICTIM MS TRANSPORTS
    run "$@" KILL || { echo "exit $?"; tail -20 "$scratch/log"; return 1; }
    [ "$(grep -c 'elastic: rank' "$scratch/log")" -eq $(($1 - 1)) ] || { echo "not every survivor went on"; cat "$scratch/log"; return 1; }
    grep -q "rank $2 died" "$scratch/log" && grep -q 'the same on all ranks' "$scratch/log" || { cat "$scratch/log"; return 1; }
    near "$(accuracy "$scratch/log")" "$whole" || { echo "accuracy $(accuracy "$scratch/log"), undisturbed $whole"; return 1; }
    own_files "$1" "$2" && goes_on "$1"
}

timeout 100 "$BUILD/gf-run" -n 3 "$BUILD/gf-train" --model linear --steps $steps >"$scratch/whole" 2>&1
whole=$(accuracy "$scratch/whole")
check undisturbed_run [ -n "$whole" ]
for transports in self,posix self,tcp; do
    i=0
    while [ $i -lt "$RUNS" ]; do
        ranks=$((2 + (i + 1) % 3)) victim=$((i % 2 == 0 ? 0 : (i * 7) % (2 + (i + 1) % 3)))
        check "${transports}_${ranks}_ranks_without_$victim" disturbed $ranks $victim $((37 * (i + 1) % 400)) $transports
        i=$((i + 1))
    done
    check "${transports}_3_ranks_while_1_stops" stopped 3 1 20 $transports
    check "${transports}_3_ranks_while_0_stops" stopped 3 0 20 $transports
    measured KILL $transports
    measured STOP $transports
done
finish
