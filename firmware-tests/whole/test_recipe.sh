#!/bin/sh
# lib/RECIPE.md: its blocks, put into the trainer one after the other, compile after each; with all of them it is
# tools/example/elastic.c. Ranks of that hold the same parameters and moments, a rank that is killed comes back to those
# of the others, and no checkpoint that cannot be written or read ends ranks one after another.
. firmware-tests/support/shell.sh
cc=${CC:-gcc}
BUILD=$(realpath "$BUILD")
# block N [PAGE]: that below the line "<!-- recipe: N -->"
block() {
    awk -v wanted="$1" '/^<!-- recipe: / { at = ($3 == wanted) }
        /^```c$/ { inside = 1; next } /^```$/ { if (inside) at = 0; inside = 0 }
        inside && at' "${2:-lib/RECIPE.md}"
}
same() { [ "$1" = "$2" ] || { echo "wanted <$1>, found <$2>"; cat "$scratch/log"; return 1; }; }
# How many ranks ended with a small loss, all with the same state; a number a state.
ends_at() {
    sed -n 's/^.*loss 0\.0[0-9]*, state \([0-9a-f]*\)$/\1/p' "$scratch/log" | sort | uniq -c | awk '{ print $1 }'
}
# compiled SOURCE PROGRAM [FLAGS ..]
compiled() {
    from=$1 to=$2; shift 2
    # The words of the flags are to be split.
    # shellcheck disable=SC2046,SC2086
    $cc -std=c11 -Wall -Wextra -Wno-unused -O2 -Itools/example "$@" "$from" -o "$to" \
        $(make -s flags BUILD="$BUILD") -lm -pthread
}
# train SECONDS COMMAND ..: in a folder without a checkpoint; what it says is in the log
train() {
    seconds=$1; shift
    rm -rf "$scratch/run" && mkdir "$scratch/run"
    (cd "$scratch/run" && timeout "$seconds" "$@") >"$scratch/log" 2>&1
}

check "the_patch_is_under_90_lines" [ "$(for n in 1 2 3 4 5 6 7; do block $n; done | wc -l)" -lt 90 ]
cp tools/example/trainer.c "$scratch/trainer.c"
for n in 1 2 3 4 5 6 7; do
    block "$n" >"$scratch/block"
    check "there_is_block_$n" [ -s "$scratch/block" ]
    sed -i "/\/\* recipe $n \*\//{
        r $scratch/block
        d
    }" "$scratch/trainer.c"
    # the one line of the trainer's own that changes: RECIPE.md, recipe 4
    [ "$n" != 4 ] || sed -i 's/; step < STEPS;/; !finished(\&model);/' "$scratch/trainer.c"
    check "it_compiles_after_block_$n" compiled "$scratch/trainer.c" "$scratch/trainer"
done
bare() { sed '1,/\*\/$/d' "$1"; } # without the comment at the head
bare "$scratch/trainer.c" >"$scratch/assembled"
bare tools/example/elastic.c >"$scratch/shown"
check "the_blocks_make_the_example_that_is_shown" diff "$scratch/assembled" "$scratch/shown"
train 100 "$scratch/trainer"
check "it_runs_without_a_launcher" same 1 "$(ends_at)"
train 100 "$BUILD/gf-run" -n 2 "$scratch/trainer"
check "two_ranks_end_with_the_same_parameters_and_moments" same 2 "$(ends_at)"

# ---- checkpoints ----
again() { (cd "$scratch/run" && timeout 100 "$BUILD/gf-run" -n 3 --elastic "$@") >"$scratch/log" 2>&1; }
state=$(sed -n 's/^loss.*, state //p' "$scratch/log")
again "$scratch/trainer"
check "a_second_start_has_the_state_of_the_first" same 3 "$(grep -c "state $state\$" "$scratch/log")"
mkdir "$scratch/run/without"
printf '#!/bin/sh\n[ "$GF_RANK" != 1 ] || cd without || exit 1\nexec "%s/trainer"\n' "$scratch" >"$scratch/run/apart"
chmod +x "$scratch/run/apart"
again ./apart
check "a_rank_without_the_file_ends_the_job" [ $? -eq 1 ]
check "and_each_rank_names_it" same 3 "$(grep -c 'model.state: rank 0 has this file, rank 1 has none' "$scratch/log")"
check "and_says_what_failed" same 3 "$(grep -c 'weights: GF_ERR_SYSTEM: No such file or directory' "$scratch/log")"
mkdir "$scratch/run/without/model.state"
again ./apart
check "a_file_that_one_rank_cannot_read_ends_the_job" [ $? -eq 1 ]
check "and_each_rank_names_that_one" same 3 "$(grep -c 'model.state: rank 1 cannot read it' "$scratch/log")"
rm -r "$scratch/run" && mkdir -p "$scratch/run/model.state.part"
again "$scratch/trainer"
check "a_checkpoint_that_cannot_be_written_ends_no_rank" same 3 "$(ends_at)"
check "and_each_save_says_why" same 4 "$(grep -c 'model.state: Is a directory' "$scratch/log")"

# Rank 1 dies in its 150th step, once.
death='if ((step == 150) \&\& (gf_first_rank(gf) == 1) \&\& !gf_rejoined(gf)) raise(SIGKILL);'
sed "s|^        model_run(&model, first_sample);|&\\n        $death|; s|^#include <math.h>|&\\n#include <signal.h>|" \
    "$scratch/trainer.c" >"$scratch/dies.c"
compiled "$scratch/dies.c" "$scratch/dies"
train 100 "$BUILD/gf-run" -n 3 --elastic "$scratch/dies"
check "of_three_ranks_two_survive_one" same 2 "$(ends_at)"
check "a_death_that_they_recover_from_is_no_error" same 0 "$(grep -c 'error: ' "$scratch/log")"
# dies_once NAME LINE WHERE: rank 1 of 3 dies before LINE, once, and the others train all 400 steps. Each rank begins
# with values of its own, so that they end alike only if all have those of one rank.
dies_once() {
    said='fprintf(stderr, "step %llu was the last\\n", (unsigned long long)gf_steps(gf));'
    sed "s|^ *$2|    if ((gf_first_rank(gf) == 1) \\&\\& $3) raise(SIGKILL);\\n&|
        s|^    while (!gf_weights_common(gf)) {|    *model.params += 0.1f * gf_rank(gf);\\n&|
        s|^    gf_check(gf_close|    $said\\n&|
        s|^#include <math.h>|&\\n#include <signal.h>\\n#include <threads.h>|" "$scratch/trainer.c" >"$scratch/once.c"
    compiled "$scratch/once.c" "$scratch/once"
    train 100 "$BUILD/gf-run" -n 3 --elastic "$scratch/once"
    check "of_three_ranks_two_survive_one_$1" same 2 "$(ends_at)"
    check "and_train_all_steps_after_one_$1" same 2 "$(grep -c 'step 400 was the last' "$scratch/log")"
}
# Half a second later the others are in the call before which it dies: one that still joins would end.
late='(thrd_sleep(\&(struct timespec){.tv_nsec = 500000000}, NULL) == 0)'
dies_once where_they_ask_for_a_file 'gf_status status = state_take' "$late"
dies_once in_the_first_broadcast 'if ((status == GF_OK) && !gf_weights_common' "$late"
dies_once in_the_last_step 'model_run(&model, first_sample)' '(step == STEPS - 1)'
# Rank 1 leaves, and ends with 75, which gf-run takes for no failure.
leaves='(gf_steps(gf) == 150) \&\& (gf_first_rank(gf) == 1)'
sed "s|^        gf_check(gf_updated(gf), .*;|&\\n        if ($leaves) gf_check(gf_leave(gf), \"leave\");|" \
    "$scratch/trainer.c" >"$scratch/leaves.c"
compiled "$scratch/leaves.c" "$scratch/leaves"
printf '#!/bin/sh\n"%s/leaves"\ncode=$?\necho "code $code"\nexit $code\n' "$scratch" >"$scratch/leaves.sh"
chmod +x "$scratch/leaves.sh"
train 100 "$BUILD/gf-run" -n 3 --elastic "$scratch/leaves.sh"
check "a_rank_that_leaves_fails_nothing" [ $? -eq 0 ]
check "of_three_ranks_two_go_on_without_one_that_leaves" same 2 "$(ends_at)"
check "which_ends_with_75" same 1 "$(grep -c 'code 75$' "$scratch/log")"
# Rank 0 hears of a death in its evaluation, and regroups instead of ending: it is there half a second before.
saved='if ((gf_rank(gf) == 0) \&\& (gf_steps(gf) == 150) \&\& world_changed(evaluate(gf), "it", \&model)) continue;'
cat >"$scratch/evaluate.c" <<'END'
#include <signal.h>
#include <threads.h>
static gf_status evaluate(gf_context *gf)
{
    gf_status status = GF_OK;
    for (int i = 0; (i < 1000) && (status == GF_OK); i++) {
        thrd_sleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        status = gf_heartbeat(gf);
    }
    fprintf(stderr, "evaluation: %s\n", gf_status_name(status));
    return status;
}
END
sed "s|^        gf_check(gf_updated(gf), .*;|&\n        $saved|
    s|^        model_run(&model, first_sample);|&\n        ${death%raise*}($late) ? raise(SIGKILL) : 0;|
    /^static const uint32_t pool_order/r $scratch/evaluate.c" "$scratch/trainer.c" >"$scratch/evaluates.c"
compiled "$scratch/evaluates.c" "$scratch/evaluates"
train 100 "$BUILD/gf-run" -n 3 --elastic "$scratch/evaluates"
check "rank_0_hears_of_a_death_in_its_evaluation" grep -Eq 'evaluation: GF_ERR_(PEER|LINK|TIMEOUT)' "$scratch/log"
check "and_two_survive_it" same 2 "$(ends_at)"
# Alone the other one takes its time over a step, so that who is started again finds it.
alone='if (gf_world(gf) == 1) thrd_sleep(\&(struct timespec){.tv_nsec = 1000000}, NULL);'
sed -i "s/STEPS = 400/STEPS = 60000/; s/(gf) % 100 == 0/(gf) % 20000 == 0/
    s|^        model_run(&model, first_sample);|&\n        $alone|
    s|^#include <math.h>|&\n#include <threads.h>|" "$scratch/dies.c"
compiled "$scratch/dies.c" "$scratch/dies"
train 150 "$BUILD/gf-run" -n 2 --restart 1 "$scratch/dies"
check "started_again_it_has_the_others_parameters_and_moments" same 2 "$(ends_at)"

# ---- opened from a file, kept in one and taken from it, traced as lib/RECIPE_MORE.md says ----
echo '#include "checkpoint.h"' >"$scratch/files.c"
block trace lib/RECIPE_MORE.md >>"$scratch/files.c"
cat >>"$scratch/files.c" <<'END'
#include <gradientflow/config.h>
#define ELEMS 3
/* CONFIGURATION STATE TRACE STEPS: fits three numbers, from the state where there is one. */
int main(int argc, char **argv)
{
    const struct gf_tensor tensors[] = {{.name = "weights", .elem_count = ELEMS}};
    const struct gf_config own = {.exchange.average = GF_AVERAGE_RANKS, .log = gf_log_stderr};
    gf_context *gf = NULL;
    void *memory = NULL;
    float *weights;
    gf_status status = GF_ERR_PARAM;
    if (argc == 5) status = gf_open_file(argv[1], &own, GF_NEED_OPTIMIZER, tensors, 1, aligned_alloc, &memory, &gf);
    if (status == GF_OK) status = gf_open_wait(gf);
    if (status == GF_OK) status = state_take(gf, argv[2]);
    if ((status == GF_OK) && !gf_weights_common(gf)) status = gf_broadcast_weights(gf, 0);
    weights = (float *)(uintptr_t)gf_weight(gf, 0);
    while ((status == GF_OK) && (gf_steps(gf) < strtoull(argv[4], NULL, 10))) {
        if ((status = gf_step_begin(gf)) != GF_OK) break;
        for (int i = 0; i < ELEMS; i++)
            ((float *)(uintptr_t)gf_gradient(gf, 0))[i] = (weights[i] - (float)(i + 1)) * gf_loss_scale(gf);
        if ((status = gf_tensor_ready(gf, 0, 0)) != GF_OK) break;
        if ((status = gf_step_wait(gf)) != GF_OK) break;
        status = gf_update(gf, 0.01f);
    }
    if ((status == GF_OK) && (gf_rank(gf) == 0)) status = state_keep(gf, argv[2]);
    if ((gf != NULL) && (trace_keep(gf, argv[3]) != GF_OK)) status = GF_ERR_SYSTEM;
    if (status == GF_OK)
        for (int i = 0; i < ELEMS; i++) printf("%a%c", (double)weights[i], (i + 1 < ELEMS) ? ' ' : '\n');
    gf_close(gf);
    free(memory);
    return status != GF_OK;
}
END
check "it_and_checkpoint_h_compile" compiled "$scratch/files.c" "$scratch/files" -Wunused -Wconversion -Werror
files() { timeout 100 "$BUILD/gf-run" -n 2 --merge "$scratch/files" config/local.cfg "$@" 2>"$scratch/log" | sort -u; }
whole=$(files "$scratch/whole" "$scratch/t" 10)
check "two_ranks_open_from_a_file_and_end_alike" [ "$(echo "$whole" | grep -c .)" -eq 1 ]
half=$(files "$scratch/state" "$scratch/t" 5)
check_not "half_of_it_is_not_all" [ "$half" = "$whole" ]
check "the_rest_goes_on_from_the_state" same "$whole" "$(files "$scratch/state" "$scratch/t" 10)"
check "no_part_is_left" [ ! -e "$scratch/state.part" ]
echo >>"$scratch/state"
check "a_longer_state_is_refused" same "" "$(files "$scratch/state" "$scratch/u" 10)"
check "its_trace_opens_in_gf_trace" \
    sh -c '"$1" "$2.0" "$2.1" --json "$2.json" >"$2.out"' sh "$BUILD/gf-trace" "$scratch/t"
check "which_has_its_ranks_and_steps" grep -Eq '^trace +2 of 2 ranks, steps 6 to 10$' "$scratch/t.out"
check "and_its_tensor" grep -q '"buffer 0: weights"' "$scratch/t.json"
check "so_does_that_of_a_run_that_failed" "$BUILD/gf-trace" "$scratch/u.0" --quiet
finish
