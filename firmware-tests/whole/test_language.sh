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
ends() { timeout 100 "$BUILD/gf-run" -n 2 "$BUILD/language" --steps 4 "$@" | sed -n 's/^.*weights //p' | sort -u; }
check "a_files_scales_change_no_weight" same "$(ends)" "$(ends --config "$scratch/scales.cfg")"
# refused STATE WORD: such a checkpoint ends the run, and is what it was
refused() {
    cp -r "$1" "$scratch/was"
    timeout 100 "$BUILD/language" --steps 1 --checkpoint "$1" >"$scratch/log" 2>&1 && { cat "$scratch/log"; return 1; }
    grep -q "$2" "$scratch/log" && diff -r "$1" "$scratch/was" || { cat "$scratch/log"; return 1; }
}
: >"$scratch/empty"
mkdir "$scratch/folder"
check "an_empty_checkpoint_is_none_to_replace" refused "$scratch/empty" GF_ERR_
rm -r "$scratch/was"
check "nor_one_that_cannot_be_read" refused "$scratch/folder" GF_ERR_SYSTEM
mkfifo "$scratch/fifo"
piped() {
    timeout 100 "$BUILD/language" --steps 1 --checkpoint "$scratch/fifo" >"$scratch/log" 2>&1
    [ $? -eq 1 ] && grep -q "fifo: is no regular file" "$scratch/log" && [ -p "$scratch/fifo" ]
}
check "nor_a_pipe_which_would_be_waited_for" piped
mkdir "$scratch/full" "$scratch/full/kept.part"
full() {
    timeout 100 "$BUILD/gf-run" -n 2 --elastic "$BUILD/language" --steps 21 --checkpoint "$scratch/full/kept" \
        >"$scratch/log" 2>&1 && [ "$(grep -c 'full/kept: Is a directory' "$scratch/log")" -eq 2 ] ||
        { cat "$scratch/log"; return 1; }
}
check "a_checkpoint_that_cannot_be_written_ends_no_rank" full

# What a power failure leaves is a whole checkpoint: its bytes are on the disk before its name changes, then the folder.
cat >"$scratch/order.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
static void say(const char *text)
{
    FILE *to = fopen(getenv("ORDER"), "a");
    if (to != NULL) fprintf(to, "%s\n", text), fclose(to);
}
int rename(const char *from, const char *to)
{
    say("rename");
    return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
}
int fsync(int number)
{
    struct stat about;
    say(((fstat(number, &about) == 0) && S_ISDIR(about.st_mode)) ? "folder" : "file");
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(number);
}
END
keeps() {
    ORDER="$scratch/order" LD_PRELOAD="$scratch/order.so" timeout 100 "$BUILD/language" --steps 1 \
        --checkpoint "$scratch/kept" >"$scratch/log" 2>&1 || { cat "$scratch/log"; return 1; }
    same "file rename folder" "$(paste -sd' ' "$scratch/order")" && [ -s "$scratch/kept" ] &&
        [ ! -e "$scratch/kept.part" ]
}
if ${CC:-gcc} -shared -fPIC -o "$scratch/order.so" "$scratch/order.c" -ldl 2>/dev/null &&
    LD_PRELOAD="$scratch/order.so" "$BUILD/language" 2>/dev/null --usage; [ $? -eq 2 ]; then
    check "a_checkpoint_is_on_the_disk_before_its_name_changes" keeps
else
    skip "a_checkpoint_is_on_the_disk_before_its_name_changes" "nothing can be preloaded in this build"
fi
finish
