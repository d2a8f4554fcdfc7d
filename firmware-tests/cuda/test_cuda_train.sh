#!/bin/sh
# gf-train --device cuda on the CUDA driver without a GPU: it learns what it learns on the host, the same on all ranks, in
# whatever order streams run, dense and sparse, resumed and without a rank that died; and it says what is wrong where it
# cannot. On a few images, as nothing here asks how well it learns.
. firmware-tests/support/shell.sh
need_cuda gf_train_on_cuda

# near A B LIMIT [BASE]: relative distance of two files of weights; of what was learned since BASE
near() {
    distance=$("$BUILD/firmware-tests/program_compare_weights" "$1" "$2" ${4:+"$4"}) || return 1
    awk -v d="$distance" -v l="$3" 'BEGIN {exit !(d < l)}' || { echo "$distance, allowed is $3"; return 1; }
}
idx_data "$scratch/data" 128 2
data="--data $scratch/data"
steps="$data --model linear --batch 8 --steps 3"
cuda="--device cuda --set device.library=$fake"
timeout 100 "$BUILD/gf-train" $steps --dump-weights "$scratch/host" >"$scratch/log" 2>&1 || cat "$scratch/log"

# The convolutions take a while under the emulator, also where it does not look at what they access (that is
# test_simt_train's): beside all the rest.
cnn="$data --model cnn --batch 1 --steps 1"
GF_FAKE_CUDA_UNWATCHED=1 timeout 300 "$BUILD/gf-train" $cnn $cuda --dump-weights "$scratch/cnn_cuda" \
    >"$scratch/cnn_log" 2>&1 &
cnn_job=$!
for seed in 0 1; do
    export GF_FAKE_CUDA_SEED=$seed
    check "one_rank_trains_seed_$seed" sh -c 'timeout 100 "$@" >/dev/null' sh "$BUILD/gf-train" $steps $cuda --dump-weights "$scratch/one"
    check "one_rank_learns_what_the_host_does_seed_$seed" near "$scratch/host" "$scratch/one" 1e-5
done
trains() {
    timeout 200 "$BUILD/gf-run" -n 2 "$BUILD/gf-train" $steps $cuda ${trains_by:-} --dump-weights "$scratch/two" >"$scratch/log" 2>&1 ||
        { cat "$scratch/log"; return 1; }
}
with_env() { (export "$1"; shift; "$@"); } # NAME=VALUE COMMAND..
check two_ranks_train trains
check two_ranks_learn_what_the_host_does near "$scratch/host" "$scratch/two" 1e-5
check ranks_are_equal grep -q "the same on all ranks" "$scratch/log"
check they_sum_from_device_to_device grep -q "gradients     on a device, from device to device" "$scratch/log"

# Where host memory cannot be registered, as in a sandbox: staged, said once a rank, the same bits.
trains_through_host() { trains_by="--set exchange.algorithm=ring" trains; }
check two_ranks_train_through_host_memory trains_through_host
cp "$scratch/two" "$scratch/registered"
check without_registered_memory_too with_env GF_FAKE_CUDA_NO_REGISTER=1000 trains_through_host
check to_the_same_bits cmp "$scratch/registered" "$scratch/two"
# of the trainer's memory and of the library's
check which_each_rank_says_once [ "$(grep -c "CUDA driver allocates" "$scratch/log")" -eq 4 ]

# ---- sparse, resumed, without one that died ----
sparse="$data --model linear --batch 8 --steps 6 --set sparse.enabled=true --set sparse.chunk_elems=64
    --set sparse.warmup_steps=2 --set sparse.ramp_steps=2 --set sparse.momentum=local"
# two NAME OPTION..: with 2 ranks; output in $scratch/log, weights in $scratch/NAME
two() { name=$1; shift; timeout 100 "$BUILD/gf-run" -n 2 "$BUILD/gf-train" $sparse "$@" --dump-weights "$scratch/$name" >"$scratch/log" 2>&1 || { cat "$scratch/log"; return 1; }; }
two sparse_host
check chunks_are_sent_from_device_to_device two sparse_cuda $cuda --checkpoint "$scratch/c" --checkpoint-every 3
check to_what_the_host_learns near "$scratch/sparse_host" "$scratch/sparse_cuda" 1e-5
rm -f "$scratch/c.0" "$scratch/c.1" # the newest; that of step 3 is left
check a_checkpoint_is_resumed two sparse_again $cuda --checkpoint "$scratch/c" --resume
check from_its_step grep -q "resumed at step 3" "$scratch/log"
check to_the_same_bits_too cmp "$scratch/sparse_cuda" "$scratch/sparse_again"

one_of_three_dies() {
    hold 3
    GF_FAKE_CUDA_UNWATCHED=1 timeout 200 "$BUILD/gf-run" -n 3 --elastic sh -c 'echo $$ >"$0/pid.$GF_RANK"; exec "$@" --checkpoint "$0/e"' "$scratch" \
        "$held" $data --model linear --batch 3 --elastic --steps 30 $cuda --checkpoint-every 3 \
        --set link.idle=yield --set rendezvous.join_timeout=40s >"$scratch/log" 2>&1 &
    job=$!
    until at=$(step_of "$scratch/e.0"); [ "${at:-0}" -ge 3 ]; do
        kill -0 $job 2>/dev/null || { cat "$scratch/log"; return 1; }
        sleep 0.01
    done
    kill -KILL "$(cat "$scratch/pid.1")"
    let_end
    wait $job || { cat "$scratch/log"; return 1; }
}
check the_others_go_on_where_one_dies one_of_three_dies
check as_two_ranks grep -q "elastic: rank 2 of 3 is rank 1 of 2" "$scratch/log"
check from_device_to_device grep -q "gradients     on a device, from device to device" "$scratch/log"

timeout 100 "$BUILD/gf-train" $cnn --dump-weights "$scratch/cnn_host" >"$scratch/log" 2>&1 || cat "$scratch/log"
check the_convolutions_train wait $cnn_job
check and_learn_what_the_host_does near "$scratch/cnn_host" "$scratch/cnn_cuda" 1e-5

# says TEXT COMMAND..: fails, and says it
says() { text=$1; shift; timeout 100 "$@" >"$scratch/log" 2>&1 && return 1; grep -q "$text" "$scratch/log" || { cat "$scratch/log"; return 1; }; }
check half_precision_is_refused says "allowed is fp32" "$BUILD/gf-train" $steps --precision bf16 $cuda
check an_absent_library_is_named says "/nowhere/libcuda.so.1" "$BUILD/gf-train" $steps --device cuda --set device.library=/nowhere/libcuda.so.1
check a_failing_call_is_named env GF_FAKE_CUDA_FAIL=cuLaunchKernel:3:700 sh -c '
    timeout 100 "$@" 2>&1 | grep -q "cuLaunchKernel failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)"' sh "$BUILD/gf-train" $steps $cuda
check the_program_needs_no_cuda_library sh -c '! ldd "$1" | grep -qi "cuda"' sh "$BUILD/gf-train"
finish
