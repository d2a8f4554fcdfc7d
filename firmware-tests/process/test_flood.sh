#!/bin/sh
# Survivors shrink while 5,000 connections a second come to their control ports, each with a hello that is right in
# all but the proof of the key: no live rank is left out, in RUNS of each kind. The times are printed,
# beside those without strangers. The sender is a session of its own: it takes no share of the ranks (sched_autogroup).
. firmware-tests/support/shell.sh
export LC_ALL=C OPENBLAS_NUM_THREADS=1
RUNS=${RUNS:-1} RATE=${RATE:-5000} ranks=3
head -c 32 /dev/urandom >"$scratch/key"
chmod 600 "$scratch/key"
# shrinks VICTIM RATE
shrinks() {
    rm -rf "$scratch"/pid.* "$scratch"/c.* "$scratch/log"
    # shellcheck disable=SC2016
    timeout 60 "$BUILD/gf-run" -n $ranks --elastic sh -c 'echo $$ >"$0/pid.$GF_RANK"; exec "$@" --checkpoint "$0/c"' "$scratch" \
        "$BUILD/gf-train" $small --elastic --steps 10000 --checkpoint-every 500 --set job.id=4711 \
        --set "rendezvous.key_file=$scratch/key" --set rendezvous.join_timeout=20s --set exchange.timeout=3s \
        --set link.idle=yield >"$scratch/log" 2>&1 &
    job=$! flood=
    until [ -n "$(ls "$scratch"/c.* 2>/dev/null)" ]; do kill -0 $job 2>/dev/null || { cat "$scratch/log"; return 1; }; sleep 0.01; done
    if [ "$2" -gt 0 ]; then
        # shellcheck disable=SC2046
        setsid "$BUILD/firmware-tests/program_strangers" flood "$2" 3 4711 $ranks $(cat "$scratch"/pid.*) >"$scratch/flood" &
        flood=$!
    fi
    sleep 0.5
    began=$(date +%s%N)
    kill -9 "$(cat "$scratch/pid.$1")"
    until [ "$(grep -c 'elastic: rank' "$scratch/log")" -ge $((ranks - 1)) ]; do
        kill -0 $job 2>/dev/null || break
        sleep 0.005
    done
    echo $(($(date +%s%N) - began)) >>"$scratch/times.$2"
    [ -z "$flood" ] || wait $flood
    wait $job || { tail -20 "$scratch/log"; return 1; }
    # each live rank is in the next epoch, and in no other
    [ "$(grep -c 'elastic: rank' "$scratch/log")" -eq $((ranks - 1)) ] && ! grep -q GF_ERR_QUORUM "$scratch/log" ||
        { cat "$scratch/log"; return 1; }
    [ "$2" -eq 0 ] || sed 's/^/# /' "$scratch/flood"
}
for victim in 0 2; do
    for i in $(seq "$RUNS"); do
        check "quiet_without_rank_${victim}_$i" shrinks $victim 0
        check "flooded_no_live_rank_is_left_out_without_rank_${victim}_$i" shrinks $victim "$RATE"
    done
done
for rate in 0 "$RATE"; do
    sort -n "$scratch/times.$rate" | awk -v rate=$rate '{ t[NR] = $1 / 1e9 } END {
        printf "# %d connections a second: seconds until all survivors go on: min %.3f median %.3f max %.3f of %d\n",
               rate, t[1], t[int((NR + 1) / 2)], t[NR], NR }'
done
finish
