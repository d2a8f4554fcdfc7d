#!/bin/sh
# gf-train --device cuda on the CUDA driver without a GPU: it learns what it learns on the host, the same on all ranks, in
# whatever order streams run; and it says what is wrong where it cannot.
. firmware-tests/shell.sh
fake=$(cd "$BUILD" && pwd)/firmware-tests/fake/libcuda.so.1
if [ ! -r "$fake" ]; then skip gf_train_on_cuda "no cuda.h in this build"; finish; fi
if ! "$BUILD/gf-train" --device cuda --model bn --steps 1 2>&1 | grep -q "allowed are --model cnn and linear"; then
    skip gf_train_on_cuda "no nvcc in this build"; finish
fi

# near A B LIMIT: relative distance of two files of weights
near() {
    distance=$("$BUILD/firmware-tests/program_compare_weights" "$1" "$2") || return 1
    awk -v d="$distance" -v l="$3" 'BEGIN {exit !(d < l)}' || { echo "$distance, allowed is $3"; return 1; }
}
steps="--model linear --batch 8 --steps 3"
cuda="--device cuda --set device.library=$fake"
timeout 100 "$BUILD/gf-train" $steps --dump-weights "$scratch/host" >"$scratch/log" 2>&1 || cat "$scratch/log"
for seed in 0 1; do
    export GF_FAKE_CUDA_SEED=$seed
    check "one_rank_trains_seed_$seed" sh -c 'timeout 100 "$@" >/dev/null' sh "$BUILD/gf-train" $steps $cuda --dump-weights "$scratch/one"
    check "one_rank_learns_what_the_host_does_seed_$seed" near "$scratch/host" "$scratch/one" 1e-5
done
check two_ranks_train timeout 200 "$BUILD/gf-run" -n 2 "$BUILD/gf-train" $steps $cuda --dump-weights "$scratch/two" >"$scratch/log" 2>&1
cat "$scratch/log" | grep -v "^\[" | tail -n 3
check two_ranks_learn_what_the_host_does near "$scratch/host" "$scratch/two" 1e-5
check ranks_are_equal grep -q "the same on all ranks" "$scratch/log"
check they_sum_from_device_to_device grep -q "gradients     on a device, from device to device" "$scratch/log"
# Where one process may not: GF_RANK tells them apart, gf-run gives all the same environment.
cat >"$scratch/refused" <<'END'
#!/bin/sh
[ "$GF_RANK" -eq 1 ] && export GF_FAKE_CUDA_FAIL=cuIpcOpenMemHandle:1:217
exec "$@"
END
check two_ranks_train_where_one_is_refused timeout 200 "$BUILD/gf-run" -n 2 sh "$scratch/refused" "$BUILD/gf-train" $steps $cuda \
    --dump-weights "$scratch/refused_two" >"$scratch/log" 2>&1
check they_say_so grep -q "rank 0: gradients go through host memory, not from device to device: rank 1: it cannot reach" "$scratch/log"
check and_sum_through_host_memory grep -q "gradients     on a device, through host memory" "$scratch/log"
check to_the_same_bits cmp "$scratch/two" "$scratch/refused_two"

# says TEXT COMMAND..: fails, and says it
says() { text=$1; shift; timeout 60 "$@" >"$scratch/log" 2>&1 && return 1; grep -q "$text" "$scratch/log" || { cat "$scratch/log"; return 1; }; }
check an_absent_library_is_named says "/nowhere/libcuda.so.1" "$BUILD/gf-train" $steps --device cuda --set device.library=/nowhere/libcuda.so.1
check a_failing_call_is_named env GF_FAKE_CUDA_FAIL=cuLaunchKernel:3:700 sh -c '
    timeout 60 "$@" 2>&1 | grep -q "cuLaunchKernel failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)"' sh "$BUILD/gf-train" $steps $cuda
check the_program_needs_no_cuda_library sh -c '! ldd "$1" | grep -qi "cuda"' sh "$BUILD/gf-train"
finish
