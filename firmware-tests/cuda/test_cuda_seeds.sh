#!/bin/sh
# suite: long
# 1,000 seeds of the fake's orders, from device to device and through host memory, each run of nine seeds with the
# next number of hardware work queues, or with launches that block; and all of gpu-check's steps with each.
. firmware-tests/support/shell.sh
need_cuda cuda_seeds
seeds=${GF_TEST_SEEDS:-1000}

# MODE FIRST SUITE: seeds FIRST to FIRST + 8. A suite that a signal ends may leave no word: its code says which.
nine() {
    env "$1" "GF_TEST_SEED=$2" "GF_TEST_ONLY=a_run_*ends_where_it_ends_on_the_host" \
        timeout 1000 "$BUILD/firmware-tests/$3" >"$scratch/log" 2>&1 && return
    code=$?
    tail -n 20 "$scratch/log"
    echo "exit $code"
    return 1
}
modes='GF_FAKE_CONNECTIONS=1 GF_FAKE_CONNECTIONS=2 GF_FAKE_CONNECTIONS=8 GF_FAKE_CONNECTIONS=32
    GF_FAKE_CONNECTIONS= CUDA_LAUNCH_BLOCKING=1'
for mode in $modes; do
    check "gpu_check with $mode" env $mode timeout 1000 "$BUILD/firmware-tests/program_gpu" check --steps \
        --library "$fake"
done
first=0
while [ "$first" -lt "$seeds" ]; do
    for mode in $modes; do
        [ "$first" -lt "$seeds" ] || break
        check "device_to_device with $mode, seeds from $first" nine $mode $first test_cuda_direct
        check "through_host_memory with $mode, seeds from $first" nine $mode $first test_cuda_step
        first=$((first + 9))
    done
done
finish
