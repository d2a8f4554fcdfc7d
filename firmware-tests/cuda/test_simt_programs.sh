#!/bin/sh
# gpu-check and gpu-bench: from end to end against the CUDA driver without a GPU, and what they say where there is none.
. firmware-tests/support/shell.sh
program=$BUILD/firmware-tests/program_gpu
fake=$BUILD/firmware-tests/fake/libcuda.so.1
if [ ! -x "$program" ]; then skip "gpu_programs" "this build has no CUDA driver"; finish; fi
run() { timeout 300 "$program" "$@" >"$scratch/out" 2>&1; }
ends_with() { want=$1; shift; run "$@"; [ $? -eq "$want" ]; }

check "nonsense_is_refused" ends_with 2 nonsense
check "a_bench_of_0_MiB_is_refused" ends_with 2 bench "" 0
run check /nowhere/libcuda.so.1
if grep -q "no GPU kernels" "$scratch/out"; then skip "gpu_programs" "this build has no kernels (no nvcc)"; finish; fi
check "a_missing_driver_fails" ends_with 1 check /nowhere/libcuda.so.1
check "and_is_named" grep -q /nowhere/libcuda.so.1 "$scratch/out"
if [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then skip "no_gpu_is_said" "there is one"
else
    check "no_gpu_is_a_status_of_its_own" ends_with 77 check
    check "and_said" grep -qx "skipped: no GPU" "$scratch/out"
fi
make_says() { [ "$(env -u MAKEFLAGS -u MFLAGS make -s --no-print-directory GF_QUIET=1 BUILD="$BUILD" "$1" 2>&1)" = "$2" ]; }
if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
    check "make_gpu_check_says_so" make_says gpu-check "skipped: no GPU"
    check "make_gpu_bench_does_too" make_says gpu-bench "skipped: no GPU"
fi
check "every_op_through_the_driver" ends_with 0 check "$fake"
check "and_said_how_many" grep -q "every op has the host's bytes, in 14 rounds" "$scratch/out"
check "and_whole_steps" grep -q "whole steps of several ranks on one GPU end as on the host, in 30 runs" "$scratch/out"
check "bench_runs" ends_with 0 bench "$fake" 1
check "and_a_step_with_and_without_overlap" grep -q "one behind the other, .* beside each other" "$scratch/out"
check "the_bus_beside_a_pinned_copy" [ "$(grep -c 'of "copy, device to pinned"' "$scratch/out")" -eq 2 ]
check "what_writes_beside_a_copy" [ "$(grep -c 'of "copy, device to device", aimed at 0.90' "$scratch/out")" -eq 13 ]
check "what_only_reads_beside_a_sweep" [ "$(grep -c 'of "read-only sweep", aimed at 0.90' "$scratch/out")" -eq 3 ]
check "and_which_sizes_count" grep -q "aimed at is 90 % from 256 MiB on, which these are not" "$scratch/out"
finish
