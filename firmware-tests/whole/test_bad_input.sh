#!/bin/sh
# Bad input: each ends with an error that names what is wrong, a failing exit code, and in bounded time. Ranks that
# die: test_direct.sh, test_elastic.sh, the lab.
. firmware-tests/support/shell.sh
run="$BUILD/gf-run" train="$BUILD/gf-train $small --steps 20"
valid() { timeout -k 5 100 "$@" >"$scratch/out" 2>&1; }

# ---- configuration files ----
: >"$scratch/empty"
mkdir "$scratch/folder"
truncate -s 100000000 "$scratch/big"
printf 'exchange = { \001\377 };\n' >"$scratch/binary"
for tool in "$BUILD/gf-check" "$train --config"; do
    short=${tool#"$BUILD/"} short=${short%% *}
    refused "${short}_missing_file" "none: cannot be opened" $tool "$scratch/none"
    refused "${short}_empty_file" "empty: is empty" $tool "$scratch/empty"
    refused "${short}_directory" "folder: is a directory" $tool "$scratch/folder"
    refused "${short}_100_MB" "big: has 100000000 bytes; allowed" $tool "$scratch/big"
    refused "${short}_binary_file" "binary:1: is not a text file" $tool "$scratch/binary"
done
printf 'GFSTATE\n\003\0' >"$scratch/saved"
refused "a_saved_state" "saved:2: is not a text file: .*; it is a saved state, for gf_state_load" \
    "$BUILD/gf-check" "$scratch/saved"
refused "unknown_option" "unknown option --nonsense" $train --nonsense
refused "unknown_key" "exchange.nonsense" $train --set exchange.nonsense=1
refused "unknown_algorithm" "exchange.algorithm" $train --algorithm nonsense
refused "keys_with_a_file" "gf-check: --keys stands alone" "$BUILD/gf-check" config/local.cfg --keys

# ---- places where results cannot lie, before a step is made: so many steps would outlast the limit ----
endless="$BUILD/gf-train $small --lr 0.0001 --steps 100000000"
mkfifo "$scratch/fifo"
ln -s "$scratch/none" "$scratch/link"
for option in json dump-weights; do
    refused "${option}_that_cannot_be_written" "/nonexistent/x: open" "$run" -n 2 $endless --$option /nonexistent/x
    refused "${option}_over_a_pipe" "fifo: is there and no regular file" "$run" -n 1 $endless --$option "$scratch/fifo"
done
refused "json_over_a_folder" "folder: is there and no regular file" "$run" -n 1 $endless --json "$scratch/folder"
refused "json_over_a_link" "link: is there and no regular file" "$run" -n 1 $endless --json "$scratch/link"
mkfifo "$scratch/state.0"
refused "checkpoint_over_a_pipe" "state.0: is there and no regular file" "$run" -n 1 $endless --checkpoint "$scratch/state"
mkdir "$scratch/pipes"
mkfifo "$scratch/pipes/train-images-idx3-ubyte.gz"
refused "data_from_a_pipe" "train-images-idx3-ubyte.gz: is not a regular file" "$BUILD/gf-train" --data "$scratch/pipes"
refused "trace_from_a_pipe" "fifo: is not a regular file" "$BUILD/gf-trace" "$scratch/fifo"
refused "trace_from_a_device" "/dev/zero: is not a regular file" "$BUILD/gf-trace" /dev/zero
refused "trace_from_a_folder" "folder: is a directory; allowed is a regular file" "$BUILD/gf-trace" "$scratch/folder"
for cache in fifo folder; do
    refused "cache_that_is_a_$cache" "gf-plan: --cache .*/$cache: is (not a|a directory; allowed is a) regular file" \
        "$BUILD/gf-plan" --gpus 1 --modes ring --cache "$scratch/$cache"
done
check "and_the_pipes_are_left" sh -c '[ -p "$1" ] && [ -p "$2" ]' sh "$scratch/fifo" "$scratch/state.0"

# ---- ranks that do not fit together ----
refused "another_world_on_one_rank" "rank 1 has job.world 3, the coordinator of this job has 2" "$run" -n 2 sh -c \
    "[ \$GF_RANK = 0 ] || export GF_WORLD=3; exec $train"
refused "another_tensor_table_on_one_rank" "tensor tables differ: 2 tensors at rank 0, 8 at rank 1" "$run" -n 2 sh -c \
    "[ \$GF_RANK = 0 ] || exec $BUILD/gf-train --data $images --steps 5; exec $train"
refused "another_wire_on_one_rank" "wire is fp32 at rank 0, fp16 at rank 1" "$run" -n 2 sh -c \
    "[ \$GF_RANK = 0 ] || exec $train --wire fp16; exec $train"
# differs NAME TEXT OTHER OPTION..: rank 1 alone has these options, rank 0 those of $for_both; each says its own
differs() {
    differs_=$1 in_=$2 other_=$3; shift 3
    refused "$differs_" "^error: rank 0: ranks differ in their options; here: .*$in_" "$run" -n 2 --merge sh -c \
        "[ \$GF_RANK = 0 ] || exec $BUILD/gf-train $small $*; exec $train $for_both"
    check "${differs_}_is_said_by_both" grep -Eq "^error: rank 1: ranks differ in .*$other_" "$scratch/out"
}
differs "another_batch_on_one_rank" "--batch 64 " "--batch 65 " --steps 20 --batch 65
differs "other_steps_on_one_rank" ", 20 steps, " ", 30 steps, " --steps 30
differs "another_seed_on_one_rank" "--seed 1 " "--seed 2 " --steps 20 --seed 2
differs "another_rate_on_one_rank" "--lr 0.01, " "--lr 0.5, " --steps 20 --lr 0.5
for_both="--set rate.base=0.05 --set rate.kind=step --set rate.every=10"
differs "another_schedule_on_one_rank" "rate.\* of the configuration" "--lr 0.05" --steps 20 $for_both --lr 0.05
for_both=
differs "checkpoints_of_one_rank" "no checkpoint" "a checkpoint each 100" --steps 20 --checkpoint "$scratch/alone"
# Of a job beside that of gf-run, which has a coordinator of its own.
beside="--set job.id=4710 --set rendezvous.join_timeout=1s"
refused "a_rank_that_never_starts" "error: rank 0: rank 1 of 2 did not join within 1.0 s" "$run" -n 1 sh -c \
    "GF_WORLD=2 exec $train $beside"
refused "rank_0_that_never_starts" "error: rank 1: .*127.0.0.1" "$run" -n 1 sh -c \
    "GF_RANK=1 GF_WORLD=2 exec $train $beside"
# The first job holds its name for as long as its second rank is missing.
"$run" -n 1 sh -c "echo \$GF_ADDRESS >$scratch/address.part; mv $scratch/address.part $scratch/address
    GF_WORLD=2 exec $train --set job.id=4711 --set rendezvous.join_timeout=100s" >/dev/null 2>&1 &
holder=$!
name_held() {
    [ -s "$scratch/address" ] && grep -q "@gradientflow-$(cat "$scratch/address")-4711$" /proc/net/unix
}
await 60 name_held
refused "an_address_in_use" "$(cat "$scratch/address").*in use.*another process of this user listens there" \
    env GF_ADDRESS="$(cat "$scratch/address")" GF_RANK=0 GF_WORLD=2 $train --set job.id=4711 \
    --set rendezvous.join_timeout=2s
kill $holder; wait $holder 2>/dev/null

# ---- data sets ----
train_on="$BUILD/gf-train --model linear --steps 20 --data"
for what in cut magic missing; do
    mkdir "$scratch/$what"
    cp "$images"/*.gz "$scratch/$what"
done
head -c 100000 "$images"/train-images-idx3-ubyte.gz >"$scratch/cut/train-images-idx3-ubyte.gz"
cp "$images"/train-labels-idx1-ubyte.gz "$scratch/magic/train-images-idx3-ubyte.gz"
rm "$scratch/missing/t10k-labels-idx1-ubyte.gz"
refused "data_cut_short" "cut/train-images-idx3-ubyte.gz: cut short" $train_on "$scratch/cut"
refused "data_of_another_kind" "magic/train-images-idx3-ubyte.gz: " $train_on "$scratch/magic"
refused "data_missing" "missing/t10k-labels-idx1-ubyte.gz" $train_on "$scratch/missing"

# ---- tensor tables ----
table() { awk -v n="$1" -v shape="$2" 'BEGIN { print "tensors = ("
    for (i = 0; i < n; i++) printf "%s{ name = \"t%d\"; shape = [%s]; }\n", i ? "," : "", i, shape
    print ");" }' >"$scratch/table"; }
check_table() {
    valid "$BUILD/gf-check" config/local.cfg --tensors "$scratch/table" && grep -q "^tensors: $1\$" "$scratch/out"
}
table 0 1
refused "0_tensors" "table:.*0 tensors; at least 1" "$BUILD/gf-check" config/local.cfg --tensors "$scratch/table"
table 1 0
check "a_tensor_of_0_elements_is_valid" check_table "1, 0 elements"
table 10000 3
check "10000_tensors_are_valid" check_table "10000, 30000 elements"
table 16385 1
refused "16385_tensors" "16385 tensors; allowed are at most 16384" \
    "$BUILD/gf-check" config/local.cfg --tensors "$scratch/table"

# ---- output that nobody takes: an error of the tool, and none of the job's other ranks ----
output() { # NAME STDOUT COMMAND..
    name_=$1 to_=$2; shift 2
    if [ "$to_" = closed ]; then timeout -k 5 100 "$@" >&- 2>"$scratch/err"
    else timeout -k 5 100 "$@" >"$to_" 2>"$scratch/err"; fi
    code_=$?
    if [ $code_ -eq 1 ] && grep -q "cannot write to stdout" "$scratch/err"; then ok "$name_"
    else not_ok "$name_" "exit $code_: $(tail -n 2 "$scratch/err")"; fi
}
for to in /dev/full closed; do
    output "train_into_${to##*/}" $to $train
    output "perf_into_${to##*/}" $to "$BUILD/gf-perf" -b 4K -e 4K -n 2
    output "check_into_${to##*/}" $to "$BUILD/gf-check" config/local.cfg
    output "plan_into_${to##*/}" $to "$BUILD/gf-plan" --gpus 1 --modes ring
done
unheard() { # nobody reads what rank 0 says on stderr: both ranks train to the end all the same
    timeout -k 5 100 "$run" -n 2 sh -c 'if [ $GF_RANK = 0 ]; then "$@" 2>&1 >"$0" | true; else exec "$@"; fi' \
        "$scratch/table" $train >"$scratch/out" 2>&1 && grep -q "the same on all ranks" "$scratch/table"
}
check "a_rank_whose_messages_nobody_reads_goes_on" unheard
finish
