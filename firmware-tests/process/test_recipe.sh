#!/bin/sh
# lib/RECIPE.md: its blocks, put into the trainer one after the other, compile after each and run on one rank; with all
# of them two ranks hold the same parameters and moments, and a rank that is killed comes back to those of the others.
. firmware-tests/support/shell.sh
cc=${CC:-gcc}
# blocks N..: those of these steps
blocks() {
    awk -v wanted="$*" '/^\*\*[0-9]\. / { at = substr($1, 3, 1) } /^```c$/ { inside = 1; next } /^```$/ { inside = 0 }
        inside && index(wanted, at)' lib/RECIPE.md
}
same() { [ "$1" = "$2" ] || { echo "wanted <$1>, found <$2>"; cat "$scratch/log"; return 1; }; }
# How many ranks ended with a small loss, all with the same state; a number a state.
ends_at() {
    sed -n 's/^.*loss 0\.0[0-9]*, state \([0-9a-f]*\)$/\1/p' "$scratch/log" | sort | uniq -c | awk '{ print $1 }'
}

check "the_patch_is_under_60_lines" [ "$(blocks 1 2 3 4 5 6 | wc -l)" -lt 60 ]
cp firmware-tests/process/program_recipe.c "$scratch/trainer.c"
for n in 0 1 2 3 4 5 6; do
    if [ "$n" -gt 0 ]; then
        blocks "$n" >"$scratch/block"
        check "there_is_block_$n" [ -s "$scratch/block" ]
        sed -i "/\/\* recipe $n \*\//{
            r $scratch/block
            d
        }" "$scratch/trainer.c"
    fi
    # After block 3 a step is begun that nothing ends. The words of the flags are to be split.
    # shellcheck disable=SC2046,SC2086
    check "it_compiles_after_block_$n" $cc -std=c11 -Wall -Wextra -Wno-unused -O2 "$scratch/trainer.c" \
        -o "$scratch/trainer" $(make -s flags BUILD="$BUILD") -lm
    timeout 60 "$scratch/trainer" >"$scratch/log" 2>&1
    [ "$n" = 3 ] || check "it_runs_after_block_$n" same 1 "$(ends_at)"
done
timeout 60 "$BUILD/gf-run" -n 2 "$scratch/trainer" >"$scratch/log" 2>&1
check "two_ranks_end_with_the_same_parameters_and_moments" same 2 "$(ends_at)"

# Rank 1 dies in its 150th step, once.
death='if ((step == 150) \&\& (gf_first_rank(gf) == 1) \&\& !gf_rejoined(gf)) raise(SIGKILL);'
sed "s|^        model_run(&model, first_sample);|&\\n        $death|; s|^#include <math.h>|&\\n#include <signal.h>|" \
    "$scratch/trainer.c" >"$scratch/dies.c"
# shellcheck disable=SC2046,SC2086
$cc -std=c11 -O2 "$scratch/dies.c" -o "$scratch/dies" $(make -s flags BUILD="$BUILD") -lm
timeout 60 "$BUILD/gf-run" -n 3 --elastic "$scratch/dies" >"$scratch/log" 2>&1
check "of_three_ranks_two_survive_one" same 2 "$(ends_at)"
sed -i 's/STEPS = 400/STEPS = 60000/' "$scratch/dies.c"
# shellcheck disable=SC2046,SC2086
$cc -std=c11 -O2 "$scratch/dies.c" -o "$scratch/dies" $(make -s flags BUILD="$BUILD") -lm
timeout 60 "$BUILD/gf-run" -n 2 --restart 1 "$scratch/dies" >"$scratch/log" 2>&1
check "started_again_it_has_the_others_parameters_and_moments" same 2 "$(ends_at)"
finish
