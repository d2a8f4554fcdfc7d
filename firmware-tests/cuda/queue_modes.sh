#!/bin/sh
# Every CUDA suite and all of gpu-check's steps with few hardware work queues a context and with launches that block
# (MODES), and SEEDS=1000 orders of the fake in each: `make check-queues`; MODES=8 is one mode alone.
. firmware-tests/support/shell.sh
need_cuda queue_modes
seeds=${SEEDS:-1000}

# A suite that a signal ends may leave no word: its code says which.
with() {
    env "$@" >"$scratch/log" 2>&1 && return
    code=$?
    tail -n 20 "$scratch/log"
    echo "exit $code"
    return 1
}
suites=$(cd firmware-tests/cuda && ls test_cuda_*.c test_cuda_*.sh | grep -v test_cuda_queues)
for mode in ${MODES:-1 2 8 32 none blocking}; do
    case $mode in
    none) set -- GF_FAKE_CONNECTIONS= ;;
    blocking) set -- CUDA_LAUNCH_BLOCKING=1 ;;
    *) set -- GF_FAKE_CONNECTIONS=$mode ;;
    esac
    for suite in $suites; do
        case $suite in
        *.c) check "$mode: ${suite%.c}" with "$@" timeout 1000 "$BUILD/firmware-tests/${suite%.c}" ;;
        *) check "$mode: $suite" with "$@" timeout 1000 sh "firmware-tests/cuda/$suite" ;;
        esac
    done
    check "$mode: gpu-check" with "$@" timeout 1000 "$BUILD/firmware-tests/program_gpu" check --steps --library "$fake"
    check "$mode: $seeds seeds" with "$@" "GF_TEST_SEEDS=$seeds" timeout 3000 "$BUILD/firmware-tests/test_cuda_seeds"
done
finish
