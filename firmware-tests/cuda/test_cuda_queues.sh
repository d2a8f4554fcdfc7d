#!/bin/sh
# What ranks do from device to device with few hardware work queues (1 as some trainers set it, 8 as CUDA has it)
# and with launches that block: no stream waits for another process, so none of that stands still, and no bit
# changes. Beside another library of collectives, whose kernels run until all processes' do, in the same queues.
. firmware-tests/support/shell.sh
need_cuda cuda_queues
idx_data "$scratch/data" 32 2
train="$BUILD/gf-train --data $scratch/data --model linear --batch 4 --steps 2 --device cuda --set device.library=$fake"

# with NAME=VALUE.. COMMAND..
with() { timeout 250 env "$@" >"$scratch/log" 2>&1 || { tail -n 30 "$scratch/log"; return 1; }; }
# trains MODE NAME [NAME=VALUE [OPTION..]]: weights in $scratch/NAME
trains() {
    mode_=$1 name_=$2 more_=${3:-a=a}; shift 2; [ $# -eq 0 ] || shift
    with "$mode_" "$more_" "$BUILD/gf-run" -n 3 $train "$@" --dump-weights "$scratch/$name_" &&
        grep -q "device to device" "$scratch/log"
}
check three_processes_train trains GF_FAKE_CUDA_SEED=3 want
# few: one block, where the device has room for four: the fake looks at each launch. engines: they bring all blocks.
few="--set device.multiprocessors=1" engines="--set device.engine_bytes=1"
check three_processes_with_one_queue trains GF_FAKE_CONNECTIONS=1 one
check three_processes_with_eight_and_few_multiprocessors trains GF_FAKE_CONNECTIONS=8 few GF_FAKE_CUDA_BETWEEN=1 $few
check three_processes_with_launches_that_block_and_copy_engines trains CUDA_LAUNCH_BLOCKING=1 engines a=a $engines
for got in one few engines; do
    check "$got: the_same_weights" cmp "$scratch/want" "$scratch/$got"
done
check "cuda_direct with one queue" with GF_FAKE_CONNECTIONS=1 "GF_TEST_ONLY=operations_under_way*" \
    "$BUILD/firmware-tests/test_cuda_direct"
check "cuda_appliance with one queue" with GF_FAKE_CONNECTIONS=1 "$BUILD/firmware-tests/test_cuda_appliance"
check "beside_another_library with one queue" with GF_FAKE_CONNECTIONS=1 "GF_FAKE_CUDA_OTHERS=3:$scratch/meetings" \
    "$BUILD/gf-run" -n 3 $train --dump-weights "$scratch/got"
check "they_met" test -n "$(tr -d '\0' <"$scratch/meetings")"
check "and_end_with_the_same_weights" cmp "$scratch/want" "$scratch/got"
check "cuda_hierarchy with one queue" with GF_FAKE_CONNECTIONS=1 "GF_TEST_ONLY=nodes_of*" \
    "$BUILD/firmware-tests/test_cuda_hierarchy"
finish
