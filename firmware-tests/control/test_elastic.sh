#!/bin/sh
# gf-train --elastic over real processes: kill -9 of any rank in the middle of a run; the others go
# on as one world and end with the same weights, within a point of the undisturbed accuracy. RUNS a transport
# (default 1);
# what was measured is printed.
set -u
. firmware-tests/support/shell.sh
. firmware-tests/support/elastic.sh
RUNS=${RUNS:-1} steps=1000

# run RANKS VICTIM MS TRANSPORTS SIGNAL: VICTIM gets SIGNAL MS after training has begun; the log is in $scratch/log.
run() { # who is silent for an eighth of join_timeout is left behind, and a busy machine has hiccups
    job_start "-n $1 --elastic" --steps $steps --set "link.private_memory=$4" --set rendezvous.join_timeout=24s \
        --set exchange.timeout=2s --set link.idle=sleep || return 1
    nap "$3"
    before='' after=''
    # shellcheck disable=SC2046 # words
    [ "$5$4" != STOPfalse ] || before=$(regions $(seq 0 $(($1 - 1)) | grep -vx "$2"))
    began=$(date +%s%N)
    signal "$5" "$2"
    [ "$5" = STOP ] || let_end # who has got the signal cannot end before it any more
    wait_for $(($1 - 1)) 'elastic: rank' >/dev/null
    echo $(($(date +%s%N) - began)) >>"$scratch/times.$5.$4"
    # shellcheck disable=SC2046 # words
    [ "$5$4" != STOPfalse ] || after=$(regions $(seq 0 $(($1 - 1)) | grep -vx "$2"))
    [ "$5" = KILL ] || { signal CONT "$2"; wait_for $(($1 - 1)) ' 1 came in, 0 left$' >/dev/null; }
    job_end
}

# own_files RANKS VICTIM: files go by the rank of the start, so nobody has written the victim's but itself. VICTIM none:
# all have ended well.
own_files() {
    k=0
    while [ $k -lt "$1" ]; do
        at=$(step_of "$scratch/c.$k")
        [ -n "$at" ] || at=$(step_of "$scratch/c.$k.before") # killed between two renames
        if [ $k = "$2" ]; then [ "$at" -lt $steps ]; else [ "$at" -eq $steps ]; fi ||
            { echo "file of rank $k is at step $at"; return 1; }
        k=$((k + 1))
    done
}

# goes_on RANKS VICTIM: what the survivors saved is a whole set for as many ranks, or other numbers
goes_on() {
    for ranks in $(($1 - 1)) "$1"; do
        timeout 100 "$BUILD/gf-run" -n "$ranks" "$BUILD/gf-train" $small --steps $steps --checkpoint "$scratch/c" \
            --resume --set link.idle=yield >"$scratch/again" 2>&1 &&
            grep -q "resumed at step $steps" "$scratch/again" && near "$(accuracy "$scratch/again")" "$whole" ||
            { cat "$scratch/again"; return 1; }
    done
}

stopped() { # RANKS VICTIM MS TRANSPORTS: silent past the deadline it is left out; it comes in again when it goes on
    run "$@" STOP
    code=$?
    own_files "$1" none || code=$?
    steps=1000 every=10
    # it may still write into what they had
    for region in $before; do
        case "$region:$after" in ?:*) ;; *:*"$region"*) echo "$before, then $after"; return 1 ;; esac
    done
    [ $code -eq 0 ] || { echo "exit $code"; show; return 1; }
    grep -q "went on without rank $2: it has come in again" "$scratch/log" &&
    grep -q "elastic: rank $2 of $1 is rank . of $1 from step" "$scratch/log" &&
        grep -q "rank $2 does not answer" "$scratch/log" &&
        [ "$(grep -c ' 1 came in, 0 left$' "$scratch/log")" -eq $(($1 - 1)) ] || { show 30; return 1; }
    near "$(accuracy "$scratch/log")" "$whole"
}

disturbed() { # RANKS VICTIM MS TRANSPORTS
    run "$@" KILL || { echo "exit $?"; show; return 1; }
    [ "$(grep -c 'elastic: rank' "$scratch/log")" -eq $(($1 - 1)) ] || { echo "not every survivor went on"; show; return 1; }
    grep -q "rank $2 died" "$scratch/log" && grep -q 'the same on all ranks' "$scratch/log" || { show; return 1; }
    near "$(accuracy "$scratch/log")" "$whole" || { echo "accuracy $(accuracy "$scratch/log"), undisturbed $whole"; return 1; }
    own_files "$1" "$2" && goes_on "$1"
}

# Rank 1 dies while ranks save what is after the last step, from which rank 0 comes late: the others save it all the
# same.
last_save() {
    hold 6
    rm -f "$scratch"/pid.*
    # shellcheck disable=SC2016 # $$ is the rank's
    GF_HOLD_MS=60000 timeout 100 "$BUILD/gf-run" -n 3 --elastic \
        sh -c 'echo $$ >"$0/pid.$GF_RANK"; exec "$@"' "$scratch" \
        "$held" --data "$images" --batch 12 --steps 6 --elastic --checkpoint "$scratch/last" \
        >"$scratch/log" 2>&1 &
    job=$!
    until [ -s "$scratch/last.1.part" ] || [ -e "$scratch/last.1" ]; do
        kill -0 $job || { show; return 1; }
        sleep 0.002
    done
    signal KILL 1
    job_end && [ "$(step_of "$scratch/last.0") $(step_of "$scratch/last.2")" = "6 6" ] || show
}

whole=$(undisturbed --steps $steps)
check undisturbed_run [ -n "$whole" ]
check a_death_in_the_last_save last_save
for private in false true; do
    i=0
    while [ $i -lt "$RUNS" ]; do
        ranks=$((2 + (i + 1) % 3)) victim=$((i % 2 == 0 ? 0 : (i * 7) % (2 + (i + 1) % 3)))
        check "$(memory $private)_${ranks}_ranks_without_$victim" disturbed $ranks $victim $((37 * (i + 1) % 400)) $private
        i=$((i + 1))
    done
    stops=1
    $private && stops=0
    check "$(memory $private)_3_ranks_while_${stops}_stops" stopped 3 $stops 20 $private
    for number in KILL STOP; do
        measured "$scratch/times.$number.$private" "$number, $(memory $private): from the signal until all survivors go on"
    done
done
finish
