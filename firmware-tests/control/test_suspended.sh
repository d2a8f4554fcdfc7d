#!/bin/sh
# suite: long (the pauses)
# All ranks of a job are stopped together and continued, as by a machine that was suspended, a debugger or a terminal:
# the job goes on, though the pause is several times exchange.timeout and the answer of a second. RUNS jobs (default 20)
# of 3 ranks each over shared memory and over tcp, four at a time, stopped at random moments for PAUSE seconds (4).
set -u
. firmware-tests/support/shell.sh
. firmware-tests/support/elastic.sh
RUNS=${RUNS:-20} PAUSE=${PAUSE:-4}
idx_data "$scratch/data" 250 || exit 1

# one NAME TRANSPORTS PORT DELAY: leaves what went wrong in $scratch/NAME.bad
one() {
    GF_HOLD=$scratch/$1.hold GF_HOLD_FROM=20
    export GF_HOLD GF_HOLD_FROM
    : >"$GF_HOLD"
    # shellcheck disable=SC2016
    timeout 100 "$BUILD/gf-run" -n 3 sh -c 'echo $$ >"$0.pid.$GF_RANK"; exec "$@"' "$scratch/$1" "$held" \
        --model linear --data "$scratch/data" --steps 1000 --batch 12 \
        --checkpoint "$scratch/$1" --checkpoint-every 20 --set "link.private_memory=$2" \
        --set "rendezvous.address=127.0.0.1:$3" --set exchange.timeout=1s \
        --set rendezvous.join_timeout=10s >"$scratch/$1.log" 2>&1 &
    job=$!
    until [ -s "$scratch/$1.2" ]; do
        kill -0 $job 2>/dev/null || break
        sleep 0.05
    done
    sleep "0.$4"
    ranks=$(cat "$scratch/$1".pid.*)
    # shellcheck disable=SC2086
    kill -STOP $ranks || echo "it ended before" >"$scratch/$1.bad"
    sleep "$PAUSE"
    # shellcheck disable=SC2086
    kill -CONT $ranks
    rm -f "$GF_HOLD"
    wait $job || { echo "exit $?"; cat "$scratch/$1.log"; } >"$scratch/$1.bad"
}

for private in false true; do
    for run in $(seq 0 $((RUNS - 1))); do
        one "$private.$run" $private $((21000 + run)) $((run * 37 % 90 + 10)) &
        [ $((run % 4)) -ne 3 ] || wait
    done
    wait
    cat "$scratch/$private."*.bad 2>/dev/null | head -40
    check "$(memory $private)_jobs_whose_ranks_were_all_stopped_for_${PAUSE}_s_go_on" \
        [ "$(ls "$scratch/$private."*.bad 2>/dev/null | wc -l)" -eq 0 ]
done
finish
