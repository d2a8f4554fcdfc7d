#!/bin/sh
# gf-train's checkpoints: a sparse run that is killed and resumed ends with the weights of the uninterrupted one; what
# is broken, missing or of another run is refused by name; another number of ranks goes on.
set -u
. firmware-tests/support/shell.sh
export LC_ALL=C OPENBLAS_NUM_THREADS=1
steps=250 model=linear batch=1024
trainer="$BUILD/gf-train --data $images"
file=$scratch/c
sparse="--set sparse.enabled=true --set sparse.chunk_elems=64 --set sparse.warmup_steps=10 --set sparse.ramp_steps=20"

# train RANKS [OPTION..]: output in $scratch/log
train() {
    ranks=$1; shift
    # shellcheck disable=SC2086
    timeout 100 "$BUILD/gf-run" -n "$ranks" $trainer --model $model --batch $batch --steps $steps $sparse \
        --set sparse.momentum=local "$@" >"$scratch/log" 2>&1
}
resume() { ranks=$1; shift; train "$ranks" --checkpoint "$file" --checkpoint-every 7 --resume "$@"; }
weights() { sed -n 's/^weights *\([0-9a-f]*\), the same on all ranks$/\1/p' "$scratch/log"; }
said() { grep -q "$1" "$scratch/log" || { cat "$scratch/log"; return 1; }; }
keep() { rm -rf "$scratch/kept"; mkdir "$scratch/kept"; cp "$file".* "$scratch/kept/"; }
restore() { rm -f "$file".*; cp "$scratch"/kept/* "$scratch/"; }
spoil() { printf '\377\000\377' | dd of="$1" bs=1 seek=60001 conv=notrunc 2>/dev/null; }
refused() { # TEXT OPTION..
    text=$1; shift
    resume "$@"
    code=$?
    [ $code -eq 1 ] || { echo "exit $code"; cat "$scratch/log"; return 1; }
    said "$text"
}
equal() { # STEP: resumed there, 2 ranks end where the uninterrupted run ended
    resume 2 || { cat "$scratch/log"; return 1; }
    said "resumed at step $1" && [ "$(weights)" = "$whole" ]
}

# killed SIGNAL STEP: ends a run with 2 ranks by a signal for rank 1 (KILL) or for gf-run (TERM) once a checkpoint of
# STEP is there; the next one resumes.
killed() {
    rm -f "$scratch"/pid.*
    from=$(step_of "$file.0")
    hold "$2"
    sh -c 'echo $$ >"$1.run"; shift; exec "$@"' sh "$scratch/pid" "$BUILD/gf-run" -n 2 \
        sh -c 'echo $$ >"$0.$GF_RANK"; exec "$@"' "$scratch/pid" "$held" --data "$images" --model linear \
        --batch $batch --steps $steps \
        $sparse --set sparse.momentum=local --checkpoint "$file" --checkpoint-every 7 $resumes >"$scratch/log" 2>&1 &
    job=$!
    until at=$(step_of "$file.0") && other=$(step_of "$file.1"); # a first save that one rank lacks is none
        [ "${at:-0}" -ge "$2" ] && [ "$at" -gt "${from:-0}" ] && [ "${other:-0}" -gt 0 ]; do
        kill -0 $job 2>/dev/null || return 1 # it ended before
        sleep 0.005
    done
    if [ "$1" = KILL ]; then kill -KILL "$(cat "$scratch/pid.1")"; else kill -TERM "$(cat "$scratch/pid.run")"; fi
    wait $job 2>/dev/null
    code=$?
    resumes=--resume
    [ $code -ne 0 ]
}

check whole_run train 2
whole=$(weights)
check checkpoints_change_nothing train 2 --checkpoint "$file" --checkpoint-every 7
check checkpoints_change_no_weight [ "$(weights)" = "$whole" ]

rm -f "$file".*
resumes=
check killed_in_warmup killed KILL 7
check killed_in_the_ramp killed KILL 20
check ended_by_term killed TERM 70
check killed_late killed KILL 120
check killed_four_times_and_resumed_ends_with_the_same_weights equal "[1-9]"

# From here on the sets of step 245 and of step 250, the last, are whole.
keep
check a_run_that_has_ended_is_only_tested equal 250
spoil "$file.1"
echo "nothing" >"$file.0.part"
check a_spoilt_file_means_the_set_before equal 245
check and_is_named grep -q "^\[1\] warning: checkpoint: $file.1: corrupt: its checksum is" "$scratch/log"
restore
printf '\377' | dd of="$file.1" bs=1 seek=97 conv=notrunc 2>/dev/null # of the seed
check a_spoilt_head_is_no_other_run equal 245
restore
mv "$file.1.before" "$file.1"
mv "$file.0" "$file.0.part"
check killed_between_two_renames_the_common_set_counts equal 245
finished() { # its files are at step 250: the same weights, and no number made of nothing
    resume 2 --json "$scratch/finished.json" && said "resumed at step 250: the run has ended, nothing is left to do" &&
        said "steps  *250, all of them before" && [ "$(weights)" = "$whole" ] && ! grep -qE '[^a-z](inf|-?nan)[^a-z]' "$scratch/log" &&
        grep -q '"mapped_bytes": 0,' "$scratch/finished.json" && grep -q '"loss_last": null,' "$scratch/finished.json"
}
check a_finished_run_says_that_nothing_is_left finished

restore
spoil "$file.1"
truncate -s -9 "$file.1.before"
check no_whole_set_is_refused refused "no set of files is whole: $file.1: corrupt" 2
check and_the_short_file_is_named said "$file.1.before: shorter than the"
check what_is_refused_stays cmp -s "$file.0" "$scratch/kept/c.0"
check one_rank_needs_no_file_of_the_other resume 1
rm -f "$file.1" "$file.1.before"
check a_missing_rank_is_refused_on_all_ranks refused "$file.1: no file of this save" 2
rm -f "$file".*
file=$scratch/none/c
check a_place_that_is_not_there_is_refused_at_once refused "checkpoint $file.0: open: No such file" 1
[ "$(grep -c "step " "$scratch/log")" -eq 0 ] && ok and_before_the_first_step || not_ok and_before_the_first_step "it ran"
file=$scratch/c
anew() {
    resume 2 && said "^\[0\] --resume: there is no checkpoint $file.0 yet: the run begins at step 0$" &&
        [ "$(weights)" = "$whole" ]
}
check nothing_there_is_a_run_from_step_0 anew
# Without --resume what is there stays, whichever rank has it, and all ranks end with the code of a wrong command line.
stays() { # FILE TEXT-OF-RANK-0 TEXT-OF-RANK-1
    rm -f "$file".*; cp "$scratch/kept/c.0" "$1"
    train 2 --checkpoint "$file" --checkpoint-every 7
    code=$?
    [ $code -eq 2 ] && said "^\[0\] error: rank 0: checkpoint $2: say --resume to go on from it, or remove it$" &&
        said "^\[1\] error: rank 1: checkpoint $3: say --resume to go on from it, or remove it$" &&
        cmp "$1" "$scratch/kept/c.0" && same "$1" "$(ls "$file".*)" ||
        { echo "exit $code"; cat "$scratch/log"; return 1; }
}
check no_file_is_replaced_without_resume stays "$file.0" "$file.0 is there" "$file is there, a file of another rank"
check nor_the_one_before stays "$file.0.before" "$file.0.before is there" "$file is there, a file of another rank"
check nor_one_of_another_rank stays "$file.1" "$file is there, a file of another rank" "$file.1 is there"
restore
check another_seed_is_refused refused "$file.0 is of another run: seed 1 there, 2 here" 1 --seed 2
batch=32
check another_batch_is_refused refused "$file.0 is of another run: batch 1024 there, 32 here" 1
batch=1024
model=cnn
check another_model_is_refused refused "is of another run: model linear there, cnn here" 1
model=linear
check other_chunks_are_refused refused "is of another run: " 1 --set sparse.chunk_elems=65
steps=100
check an_end_before_the_checkpoint_is_refused refused "the checkpoint is at step 250, the run ends at step 100" 1
steps=250
seq 100 | tee "$file.0" >"$file.0.before"
check a_text_is_refused refused "$file.0: this is no checkpoint of gf-train" 1

# Other numbers of ranks, in the middle of the run: from 2 to 3, from 2 to 1.
rm -f "$file".*
resumes=
check killed_once_more killed KILL 60
keep
for ranks in 3 1; do
    restore
    check "resumed_with_$ranks" resume $ranks
    check "resumed_with_${ranks}_in_the_middle" said "resumed at step [1-9]"
    check "resumed_with_${ranks}_ranks_agree" [ -n "$(weights)" ]
    [ $ranks -eq 3 ] || check what_the_other_rank_held_is_dropped said "of a state of 2 ranks 1 go on: [0-9]* values .* are dropped"
    check "resumed_with_${ranks}_learns" said "test accuracy [78]"
    check "resumed_with_${ranks}_counts_its_own_steps" said \
        "produced .* MB  *$(awk "BEGIN { printf \"%.3f\", $ranks * 0.0314 }") MB"
done

# One rank cannot write its file any more: it says why, no rank saves, and training goes on to its end.
rm -f "$file".*
train 2 --checkpoint "$file" --checkpoint-every 100
no_save() { # TEXT: the set before is still the newest, and it was not the end that is not kept
    said "test accuracy" && said "error: rank 0: the state after the last step, 700, is in no checkpoint" &&
        said "error: rank 1: checkpoint $file.1$1; step 700 is not saved, training goes on" &&
        [ "$(step_of "$file.0") $(step_of "$file.1")" = "$steps $steps" ]
}
longer() {
    (steps=700 && train 2 --checkpoint "$file" --checkpoint-every 700 --resume --set link.private_memory=true)
    [ $? -eq 1 ] || { cat "$scratch/log"; return 1; }
}
limited() { (ulimit -f 32 && longer) && no_save ": write: File too large"; }
check saves_over_the_limit_of_file_sizes_fail_and_training_goes_on limited
gone() { # while it is being written it is a file
    rm -f "$scratch/log"
    hold
    trainer="$held --data $images" longer & job=$!
    until grep -qs "resumed at" "$scratch/log"; do kill -0 $job || return 1; sleep 0.01; done
    mkdir "$file.1.part"
    let_end
    wait $job && no_save ".part: open: is a directory; allowed is a regular file"
}
check a_rank_whose_place_is_gone_lets_training_go_on gone
rmdir "$file.1.part"

# Who may write in its folder has put a link in the place of the file that is being written.
linked() {
    echo "somebody's" >"$scratch/victim"
    ln -s "$scratch/victim" "$file.0.part"
    train 2 --checkpoint "$file" --checkpoint-every 100 --resume
    said "checkpoint $file.0: open: Too many levels of symbolic links" || return 1
    [ "$(cat "$scratch/victim")" = "somebody's" ]
}
check a_link_in_its_place_is_not_followed linked
rm -f "$file.0.part"

# What is no regular file is refused by name at once, wherever it lies: a FIFO without another end would be waited for.
blocked() { # PATH TEXT: all ranks end, and one names it
    restore
    rm -rf "$1"; mkfifo "$1"
    resume 2
    code=$?
    rm -f "$1"
    [ $code -eq 1 ] && said "$2" || { echo "exit $code"; cat "$scratch/log"; return 1; }
}
rm -f "$file".*
steps=30
train 2 --checkpoint "$file"
whole=$(weights)
keep
check a_fifo_in_the_place_of_the_newest blocked "$file.1" "checkpoint $file.1: is there and no regular file"
check a_fifo_in_the_place_of_the_one_before blocked "$file.0.before" \
    "checkpoint $file.0.before: is there and no regular file"
check a_fifo_in_the_place_of_a_part blocked "$file.1.part" "checkpoint $file.1.part: open: is not a regular file"
mkfifo "$file.7" # of an id that this run does not have
check a_fifo_of_another_id_is_passed_over equal 30
rm -f "$file.7"

# Rank 1 dies while it writes its file: the preloaded call kills it, and rank 0 has its own written. It leaves no part.
cat >"$scratch/dies.c" <<'END'
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
int fsync(int file)
{
    const char *rank = getenv("GF_RANK");
    if ((rank != NULL) && (rank[0] == '1')) (void)raise(SIGKILL);
    return (file >= 0) ? 0 : -1;
}
END
cut() { # the save of step 30; that of the last run stays
    restore
    (steps=60 && export LD_PRELOAD="$scratch/dies.so" && train 2 --checkpoint "$file" --resume)
    [ $? -ne 0 ] && said "resumed at step 30" && [ ! -e "$file.0.part" ] && cmp "$file.0" "$scratch/kept/c.0" ||
        { cat "$scratch/log"; ls "$scratch"; return 1; }
}
if [ -z "$(nm "$BUILD/gf-train" 2>/dev/null | grep __asan_init)" ] &&
    ${CC:-gcc} -shared -fPIC -o "$scratch/dies.so" "$scratch/dies.c" 2>/dev/null; then
    check a_save_that_a_death_cuts_leaves_no_part_of_the_others cut
else
    skip a_save_that_a_death_cuts_leaves_no_part_of_the_others "no call can be preloaded here"
fi

# The wall clock orders nothing: it is set back, or forward, between a run and the next one. The preloaded call lets
# CLOCK_REALTIME go by $CLOCK_SHIFT seconds; with --resume the newer run counts, by its seed.
cat >"$scratch/shift.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = ((int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"))(clock, now);
    if ((clock == CLOCK_REALTIME) && (getenv("CLOCK_SHIFT") != NULL)) now->tv_sec += atoi(getenv("CLOCK_SHIFT"));
    return result;
}
END
shifted() { # SECONDS COMMAND..
    seconds=$1; shift
    (export CLOCK_SHIFT="$seconds" LD_PRELOAD="$scratch/shift.so" && "$@")
}
run_of() { od -An -tu8 -j32 -N8 "$1" | tr -d ' '; } # the run that a checkpoint is of
newer_counts() { # SECONDS: the second run begins after the clock was set so far, and is the one that is resumed
    rm -f "$file".*
    train 2 --checkpoint "$file" && first=$(run_of "$file.0") || return 1
    for i in 0 1; do mv "$file.$i" "$file.8$i"; done # the second one begins at step 0
    (steps=20 && shifted "$1" train 2 --checkpoint "$file") || return 1
    for i in 0 1; do mv "$file.8$i" "$file.$i.before"; done
    second=$(run_of "$file.0")
    shifted "$1" resume 2 || { cat "$scratch/log"; return 1; }
    said "resumed at step 20" && ! grep -q warning "$scratch/log" || { cat "$scratch/log"; return 1; }
    [ "$first" != "$second" ] && [ "$(run_of "$file.0")" != "$second" ] && [ "$(run_of "$file.0.before")" != "$first" ]
}
if [ -z "$(nm "$BUILD/gf-train" 2>/dev/null | grep __asan_init)" ] &&
    ${CC:-gcc} -shared -fPIC -o "$scratch/shift.so" "$scratch/shift.c" -ldl 2>/dev/null; then
    check the_newer_run_counts_after_the_clock_went_back newer_counts -5
    check the_newer_run_counts_after_the_clock_went_forward newer_counts 31536000
else
    skip the_newer_run_counts "nothing can be preloaded in this build"
fi
printf '\377\377\377\377' | dd of="$file.1" bs=1 seek=36 conv=notrunc 2>/dev/null
check a_number_after_which_there_is_none_is_refused refused "$file.1 has the number 4294967295, after which" 2

for bad in "--resume" "--checkpoint-every 3" "--checkpoint $file --checkpoint-every 0"; do
    # shellcheck disable=SC2086
    "$BUILD/gf-train" $bad >"$scratch/log" 2>&1
    code=$?
    [ $code -eq 2 ] && ok "usage_is_refused($bad)" || not_ok "usage_is_refused($bad)" "exit $code"
done
finish
