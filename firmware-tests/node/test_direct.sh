#!/bin/sh
# The exchange through shared memory between real processes: auto takes it where UCX maps the regions, every operation is
# right, and a rank that is killed or stopped while the others look at flags is named in time.
. firmware-tests/support/shell.sh
run="$BUILD/gf-run" perf="$BUILD/gf-perf"
[ -x "$perf" ] || { skip direct "no gf-perf"; finish; }

# served ALGORITHM RANKS ARGUMENT..: every row is by this algorithm, and no value is wrong
served() {
    wanted=$1 ranks=$2; shift 2
    timeout 100 "$run" -n "$ranks" "$perf" -b 4 -e 1M -f 16 -n 20 -w 1 "$@" >"$scratch/out" 2>&1 ||
        { cat "$scratch/out"; return 1; }
    awk -v wanted="$wanted" '/^# by / { by = $3 }
        $1 ~ /^[0-9]+$/ { rows++; bad += by != wanted || $9 != 0 || $NF != 0 } END { exit !(rows >= 5 && !bad) }' \
        "$scratch/out" || { cat "$scratch/out"; return 1; }
}
for ranks in 2 3 4 7; do check "auto_is_direct_with_${ranks}_ranks" served direct $ranks; done
for op in broadcast reduce_scatter allgather; do check "${op}_by_memory" served direct 3 --op $op; done
for type in half bfloat16; do check "${type}_by_memory" served direct 4 -d $type; done
for idle in spin yield sleep; do check "idle_$idle" served direct 2 --set link.idle=$idle; done

# Ranks that sleep are woken by flags: else each wait would last 10 ms, also the shortest of many.
woken() {
    timeout 100 "$run" -n 2 "$perf" -b 4 -e 4 -n 200 --set link.idle=sleep --csv "$scratch/csv" >"$scratch/out" 2>&1 ||
        { cat "$scratch/out"; return 1; }
    awk -F, 'NR == 2 { fast = $8 < 5000 } END { exit !fast }' "$scratch/csv" || { cat "$scratch/csv"; return 1; }
}
check flags_wake_who_sleeps woken

messages() { served direct "$@" >/dev/null && return 1; ! grep -q direct "$scratch/out" && grep -q "allreduce" "$scratch/out"; }
check auto_without_shared_memory_sends messages 2 --set link.private_memory=true
refused direct_without_shared_memory_is_refused "no shared memory with ranks" \
    "$run" -n 2 "$perf" --algorithm direct --set link.private_memory=true

# ticks PID: of the processor, hundredths of a second; of one that is gone as many as are waited for below
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat" 2>/dev/null || echo 100; }

# strike SIGNAL PATTERN LIMIT_S PROGRAM..: rank 1 gets the signal in mid-run; within the limit the job fails, and says
# so in one line
strike() {
    signal=$1 pattern=$2 limit=$3; shift 3
    rm -f "$scratch/pid"
    timeout 100 "$run" -n 2 sh -c '[ "$GF_RANK" = 0 ] || echo $$ >"$0"; exec "$@"' "$scratch/pid" \
        "$@" >"$scratch/out" 2>&1 &
    job=$!
    while [ ! -s "$scratch/pid" ] && kill -0 $job 2>/dev/null; do sleep 0.05; done
    # Until it has worked for a second, however busy the machine is: before, rank 0 may still fill its buffers.
    while kill -0 $job 2>/dev/null && [ "$(ticks "$(cat "$scratch/pid")")" -lt 100 ]; do sleep 0.05; done
    begin=$(date +%s%N)
    kill -s "$signal" "$(cat "$scratch/pid")" || return 1
    wait $job; code=$?
    took=$((($(date +%s%N) - begin) / 1000000))
    [ "$signal" != STOP ] || kill -s KILL "$(cat "$scratch/pid")" 2>/dev/null
    [ "$(grep -Ec "$pattern" "$scratch/out")" -eq 1 ] || { cat "$scratch/out"; return 1; }
    [ $code -ne 0 ] && [ $code -ne 124 ] && [ $took -lt $((limit * 1000)) ] ||
        { echo "exit $code, took $took ms"; return 1; }
}
long="$perf -b 64M -e 64M --seconds 600"
check a_rank_that_is_killed_is_named strike KILL "error: rank 0: rank 1 (died|.*connection)" 25 $long
check a_rank_that_stops_is_named strike STOP "error: rank 0: .*rank 1 (does not answer|died)" 60 \
    $long --set exchange.timeout=2s
check training_ends_with_a_rank_that_is_killed strike KILL "error: .*rank 1 died" 25 \
    "$BUILD/gf-train" $small --lr 0.0001 --steps 100000000
finish
