#!/bin/sh
# Under gf-run --elastic a job outlives what leaves no quorum: of two ranks either one, of five any three, killed at
# once, because gf-run names the processes that it has reaped. Without that list those left end with GF_ERR_QUORUM.
set -u
. firmware-tests/support/shell.sh
export LC_ALL=C OPENBLAS_NUM_THREADS=1
idx_data "$scratch/data" 250 || exit 1

step_of() { od -An -tu8 -j40 -N8 "$1" 2>/dev/null | tr -d ' '; }

# job RANKS "VICTIMS" COMMAND..: the victims are killed once rank 0 has saved step 10; COMMAND runs before gf-train.
job() {
    ranks=$1 victims=$2; shift 2
    rm -f "$scratch"/pid.* "$scratch"/c.*
    # shellcheck disable=SC2016 # $$ is the rank's
    timeout 60 "$BUILD/gf-run" -n "$ranks" --elastic "$@" \
        sh -c 'echo $$ >"$0/pid.$GF_RANK"; exec "$@" --checkpoint "$0/c"' "$scratch" "$BUILD/gf-train" \
        --model linear --data "$scratch/data" --batch 32 --elastic --steps 2000 \
        --checkpoint-every 10 --set link.transports=self,tcp --set rendezvous.join_timeout=16s --set link.idle=sleep \
        >"$scratch/log" 2>&1 &
    run=$!
    until at=$(step_of "$scratch/c.0"); [ "${at:-0}" -ge 10 ]; do
        kill -0 $run 2>/dev/null || { echo "it ended before"; return 1; }
        sleep 0.01
    done
    began=$(date +%s%N)
    # shellcheck disable=SC2046 # a word each
    kill -KILL $(for v in $victims; do cat "$scratch/pid.$v"; done)
    wait $run
    code=$?
    seconds=$((($(date +%s%N) - began) / 1000000000))
    return $code
}

goes_on() { # RANKS "VICTIMS"
    job "$1" "$2" env || { echo "exit $code"; tail -20 "$scratch/log"; return 1; }
    # shellcheck disable=SC2086 # a word each
    left=$(($1 - $(set -- $2; echo $#)))
    [ "$(grep -c "elastic: rank . of $1 is rank . of $left" "$scratch/log")" -eq $left ] &&
        grep -q 'the same on all ranks' "$scratch/log" || { tail -20 "$scratch/log"; return 1; }
}

ends() { # RANKS "VICTIMS": too few, and said so at once: not after the deadline of the view change
    job "$1" "$2" env -u GF_ENDED_FD && { echo "it went on"; tail -20 "$scratch/log"; return 1; }
    grep -q "too few to go on without proof" "$scratch/log" && [ $seconds -lt 12 ] ||
        { echo "after $seconds s"; tail -20 "$scratch/log"; return 1; }
}

check of_two_ranks_1_goes_on goes_on 2 0
check of_two_ranks_0_goes_on goes_on 2 1
check of_five_ranks_two_go_on goes_on 5 "0 1 3"
check of_five_ranks_the_last_goes_on goes_on 5 "0 1 2 3"
check without_the_list_1_of_two_ends ends 2 0
check without_the_list_two_of_five_end ends 5 "0 1 3"
finish
