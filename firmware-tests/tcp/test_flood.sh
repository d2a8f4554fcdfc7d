#!/bin/sh
# Survivors go on while 5,000 connections a second come to the coordinator and to the ranks, each with a hello that is right in
# all but the proof of the key: no live rank is left out, in RUNS of each kind. The times are printed,
# beside those without strangers. The sender is a session of its own: it takes no share of the ranks (sched_autogroup).
. firmware-tests/support/shell.sh
. firmware-tests/support/elastic.sh
RUNS=${RUNS:-1} RATE=${RATE:-5000} ranks=3 every=1
export GF_HOLD_MS=300 # a step, while it is held
head -c 32 /dev/urandom >"$scratch/key"
chmod 600 "$scratch/key"
# shrinks VICTIM RATE
shrinks() {
    job_start "-n $ranks --elastic" --steps 200 --set job.id=4711 --set "rendezvous.key_file=$scratch/key" \
        --set rendezvous.join_timeout=40s --set exchange.timeout=3s --set link.idle=yield || return 1
    flood=
    : >"$scratch/flood"
    if [ "$2" -gt 0 ]; then
        # shellcheck disable=SC2046
        setsid "$BUILD/firmware-tests/program_strangers" flood "$2" 100 4711 $ranks $(cat "$scratch"/pid.*) \
            >"$scratch/flood" &
        flood=$!
        await 60 grep -q floods "$scratch/flood" || return 1
    fi
    began=$(date +%s%N)
    signal KILL "$1"
    wait_for $((ranks - 1)) 'elastic: rank' >/dev/null
    echo $(($(date +%s%N) - began)) >>"$scratch/times.$2"
    moves 2; code=$?
    [ -z "$flood" ] || { kill $flood; wait $flood; }
    job_end && [ $code -eq 0 ] || { show; return 1; }
    # each live rank is in the next generation, and in no other
    [ "$(grep -c 'elastic: rank' "$scratch/log")" -eq $((ranks - 1)) ] ||
        { cat "$scratch/log"; return 1; }
    [ "$2" -eq 0 ] || sed 's/^/# /' "$scratch/flood" | grep 'made [1-9]'
}
for victim in 1 2; do # rank 0 hosts the coordinator here
    for i in $(seq "$RUNS"); do
        check "quiet_without_rank_${victim}_$i" shrinks $victim 0
        check "flooded_no_live_rank_is_left_out_without_rank_${victim}_$i" shrinks $victim "$RATE"
    done
done
for rate in 0 "$RATE"; do
    measured "$scratch/times.$rate" "$rate connections a second: until all survivors go on"
done
finish
