#!/bin/sh
# What ranks do from device to device with few hardware work queues (1 as some trainers set it, 8 as CUDA has it)
# and with launches that block: no stream waits for another process, so none of that stands still, and no bit
# changes. Beside another library of collectives, whose kernels run until all processes' do, in the same queues.
. firmware-tests/support/shell.sh
need_cuda cuda_queues
idx_data "$scratch/data" 32
train="$BUILD/gf-train --data $scratch/data --model linear --batch 4 --steps 3 --device cuda --set device.library=$fake"

# with NAME=VALUE.. COMMAND..
with() { timeout 250 env "$@" >"$scratch/log" 2>&1 || { tail -n 30 "$scratch/log"; return 1; }; }
trains() {
    mode_=$1 name_=$2; shift 2
    with "$mode_" "$BUILD/gf-run" -n 3 $train "$@" --dump-weights "$scratch/$name_" &&
        grep -q "device to device" "$scratch/log"
}
check three_processes_train trains GF_FAKE_CUDA_SEED=3 want
for mode in GF_FAKE_CONNECTIONS=1 GF_FAKE_CONNECTIONS=8 CUDA_LAUNCH_BLOCKING=1; do
    [ $mode = GF_FAKE_CONNECTIONS=8 ] || # between 1 and none, which test_cuda_direct has by itself
        check "cuda_direct with $mode" with $mode "GF_TEST_ONLY=*end*on_the_host" \
            "$BUILD/firmware-tests/test_cuda_direct"
    check "three_processes with $mode" trains $mode got
    check "end_with_the_same_weights" cmp "$scratch/want" "$scratch/got"
done
check "cuda_appliance with one queue" with GF_FAKE_CONNECTIONS=1 "$BUILD/firmware-tests/test_cuda_appliance"
check "beside_another_library with one queue" with GF_FAKE_CONNECTIONS=1 "GF_FAKE_CUDA_OTHERS=3:$scratch/meetings" \
    "$BUILD/gf-run" -n 3 $train --dump-weights "$scratch/got"
check "they_met" test -n "$(tr -d '\0' <"$scratch/meetings")"
check "and_end_with_the_same_weights" cmp "$scratch/want" "$scratch/got"
check "cuda_hierarchy with one queue" with GF_FAKE_CONNECTIONS=1 "$BUILD/firmware-tests/test_cuda_hierarchy"
# One block, where the device has room for four: the fake looks at each launch.
check "kernels_between_devices_take_few_multiprocessors" trains GF_FAKE_CUDA_BETWEEN=1 got \
    --set device.multiprocessors=1
check "with_the_same_weights" cmp "$scratch/want" "$scratch/got"
check "copy_engines_bring_blocks" trains GF_FAKE_CUDA_SEED=1 got --set device.engine_bytes=1
check "of_the_same_weights" cmp "$scratch/want" "$scratch/got"
finish
