#!/bin/sh
# The example's language model among faults: a rank that is killed comes back and all end with the same weights; a run
# that is killed as a whole goes on from its checkpoint and ends with the weights of an undisturbed one.
# suite: long
. firmware-tests/support/shell.sh
start() { # RANKS STEPS OPTION..: in the background, as $job; held from step 10 on
    hold 10
    ranks=$1 steps=$2; shift 2
    rm -f "$scratch"/log "$scratch"/pid.*
    GF_DEBUG=info timeout 200 "$BUILD/gf-run" -n "$ranks" "$@" sh -c 'echo $$ >"$0/pid.$GF_RANK"; exec "$@"' "$scratch" \
        "$BUILD/firmware-tests/held_language" --steps "$steps" --checkpoint "$scratch/state" >"$scratch/log" 2>&1 &
    job=$!
}
reaches() { # STEP
    until grep -q "step $1:" "$scratch/log" 2>/dev/null; do
        kill -0 $job 2>/dev/null || { cat "$scratch/log"; return 1; }
        sleep 0.02
    done
}
ends() { let_end; wait $job || { cat "$scratch/log"; return 1; }; }
weights() { sed -n 's/^.*weights \([0-9a-f]*\)$/\1/p' "$scratch/log" | sort | uniq -c; }
same() { [ "$1" = "$2" ] || { echo "wanted <$1>, found <$2>"; cat "$scratch/log"; return 1; }; }

start 2 60; check "two_ranks_train" ends
undisturbed=$(weights)
rm "$scratch/state"
start 2 60; reaches 30
kill -KILL "$(cat "$scratch/pid.0")" "$(cat "$scratch/pid.1")"; wait $job
check "a_checkpoint_is_left" [ -s "$scratch/state" ]
start 2 60; check "the_run_goes_on" ends
check_not "not_from_the_start" grep -q "step 0:" "$scratch/log"
check "and_ends_with_the_same_weights" same "$undisturbed" "$(weights)"
rm "$scratch/state"
for victim in 1 0; do
    start 3 120 --restart 2; reaches 20
    killed=$(cat "$scratch/pid.$victim"); kill -KILL "$killed"
    await 60 grep -q 'generation [2-9] has begun with 3 ranks' "$scratch/log"
    check "with_rank_${victim}_killed_the_job_ends_well" ends
    check "rank_${victim}_was_started_again" [ "$(cat "$scratch/pid.$victim")" != "$killed" ]
    check "and_all_three_have_the_same_weights" same 3 "$(weights | awk '{ print $1 }')"
    rm -f "$scratch/state"
done
finish
