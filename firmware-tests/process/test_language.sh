#!/bin/sh
# The example's language model on two ranks: its loss falls, and both ranks end with the same weights, bit by bit.
# test_language_faults.sh has the deaths.
. firmware-tests/support/shell.sh
trains() {
    timeout 100 "$BUILD/gf-run" -n "$1" "$BUILD/language" --steps "$2" >"$scratch/log" 2>&1 && return
    cat "$scratch/log"
    return 1
}
loss_at() { sed -n "s/^.*step $1: loss \([0-9.]*\),.*/\1/p" "$scratch/log"; }
falls() { awk -v a="$(loss_at 0)" -v b="$(loss_at 30)" 'BEGIN { exit !(a > 5.4 && a < 5.7 && b > 1 && b < 3.6) }'; }
weights() { sed -n 's/^.*weights \([0-9a-f]*\)$/\1/p' "$scratch/log" | sort | uniq -c | awk '{ print $1 }'; }
same() { [ "$1" = "$2" ] || { echo "wanted <$1>, found <$2>"; cat "$scratch/log"; return 1; }; }

check "two_ranks_train" trains 2 31
check "the_loss_falls" falls
check "both_end_with_the_same_weights" same 2 "$(weights)"
# A file's average and loss scale are the example's too.
echo 'exchange = { average = "samples"; }; loss_scale = { enabled = true; };' >"$scratch/scales.cfg"
ends() { timeout 60 "$BUILD/gf-run" -n 2 "$BUILD/language" --steps 4 "$@" | sed -n 's/^.*weights //p' | sort -u; }
check "a_files_scales_change_no_weight" same "$(ends)" "$(ends --config "$scratch/scales.cfg")"
# refused STATE WORD: such a checkpoint ends the run, and is what it was
refused() {
    cp -r "$1" "$scratch/was"
    timeout 60 "$BUILD/language" --steps 1 --checkpoint "$1" >"$scratch/log" 2>&1 && { cat "$scratch/log"; return 1; }
    grep -q "$2" "$scratch/log" && diff -r "$1" "$scratch/was" || { cat "$scratch/log"; return 1; }
}
: >"$scratch/empty"
mkdir "$scratch/folder"
check "an_empty_checkpoint_is_none_to_replace" refused "$scratch/empty" GF_ERR_
rm -r "$scratch/was"
check "nor_one_that_cannot_be_read" refused "$scratch/folder" GF_ERR_SYSTEM
finish
