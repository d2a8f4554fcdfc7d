#!/bin/sh
# Under gf-run --elastic a job outlives what leaves no quorum: of two ranks either one, of five any three, killed at
# once, because gf-run names the processes that it has reaped. Without that list those left end with GF_ERR_QUORUM.
set -u
. firmware-tests/support/shell.sh
. firmware-tests/support/elastic.sh

# run RANKS "VICTIMS" COMMAND..: the victims are killed at once; COMMAND runs before gf-train.
run() {
    ranks=$1 victims=$2; shift 2
    job_start "-n $ranks --elastic $*" --batch 32 --steps 2000 --set link.private_memory=true \
        --set rendezvous.join_timeout=16s --set link.idle=sleep || return 1
    began=$(date +%s%N)
    # shellcheck disable=SC2046 # a word each
    kill -KILL $(for v in $victims; do cat "$scratch/pid.$v"; done)
    wait $job
    code=$?
    seconds=$((($(date +%s%N) - began) / 1000000000))
    return $code
}

goes_on() { # RANKS "VICTIMS"
    run "$1" "$2" || { echo "exit $code"; show; return 1; }
    # shellcheck disable=SC2086 # a word each
    left=$(($1 - $(set -- $2; echo $#)))
    [ "$(grep -c "elastic: rank . of $1 is rank . of $left" "$scratch/log")" -eq $left ] &&
        grep -q 'the same on all ranks' "$scratch/log" || show
}

ends() { # RANKS "VICTIMS": too few, and said so at once: not after the deadline of the view change
    run "$1" "$2" env -u GF_ENDED_FD && { echo "it went on"; show; return 1; }
    grep -q "too few to go on without proof" "$scratch/log" && [ $seconds -lt 12 ] || { echo "after $seconds s"; show; }
}

# Ranks 0 and 1 die, and a stranger keeps rank 1's port: connections are taken there, and nobody says anything. Rank 2
# tries it first, and gf-run says that its process has ended.
port_is_kept() {
    job_start "-n 3 --elastic" --batch 32 --steps 2000 --set link.private_memory=true \
        --set rendezvous.join_timeout=40s --set link.idle=sleep || return 1
    mkfifo "$scratch/until"
    "$BUILD/firmware-tests/program_strangers" hold "$(cat "$scratch/pid.1")" <"$scratch/until" >"$scratch/held" &
    exec 7>"$scratch/until"
    until [ -s "$scratch/held" ]; do sleep 0.01; done
    began=$(date +%s%N)
    kill -KILL "$(cat "$scratch/pid.0")" "$(cat "$scratch/pid.1")"
    wait_for 1 "elastic: rank 2 of 3 is rank 0 of 1" || return 1
    ms=$((($(date +%s%N) - began) / 1000000))
    exec 7>&-
    kill "$(cat "$scratch/pid.2")"
    wait $job
    echo "# it went on after $ms ms" >&2
    [ "$(cat "$scratch/held")" -gt 0 ] || { echo "no socket of rank 1 was kept"; return 1; }
    [ $ms -lt 5000 ] || { echo "after $ms ms"; show; }
}

check who_has_a_dead_ranks_port_costs_no_part_of_the_deadline port_is_kept
check of_two_ranks_1_goes_on goes_on 2 0
check of_two_ranks_0_goes_on goes_on 2 1
check of_five_ranks_two_go_on goes_on 5 "0 1 3"
check of_five_ranks_the_last_goes_on goes_on 5 "0 1 2 3"
check without_the_list_1_of_two_ends ends 2 0
check without_the_list_two_of_five_end ends 5 "0 1 3"
finish
