#!/bin/sh
# gpu-check and gpu-bench: from end to end against the CUDA driver without a GPU, and what they say where there is none.
. firmware-tests/support/shell.sh
program=$BUILD/firmware-tests/program_gpu
need_cuda gpu_programs
run() { timeout 300 "$program" "$@" >"$scratch/out" 2>&1; }
ends_with() { want=$1; shift; run "$@"; [ $? -eq "$want" ]; }
with() { (export "$1"; shift; "$@"); } # NAME=VALUE COMMAND..

check "nonsense_is_refused" ends_with 2 nonsense
check "a_bench_of_0_MiB_is_refused" ends_with 2 bench --mib 0
check "a_missing_driver_fails" ends_with 1 check --library /nowhere/libcuda.so.1
check "and_is_named" grep -q /nowhere/libcuda.so.1 "$scratch/out"
if [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then skip "no_gpu_is_said" "there is one"
else
    check "no_gpu_is_a_status_of_its_own" ends_with 77 check
    check "and_said" grep -qx "skipped: no GPU" "$scratch/out"
fi
make_says() { [ "$(env -u MAKEFLAGS -u MFLAGS make -s --no-print-directory GF_QUIET=1 AS_BUILT=1 BUILD="$BUILD" "$1" 2>&1)" = "$2" ]; }
if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
    check "make_gpu_check_says_so" make_says gpu-check "skipped: no GPU"
    check "make_gpu_bench_does_too" make_says gpu-bench "skipped: no GPU"
fi
check "every_op_through_the_driver" with GF_FAKE_CUDA_UNWATCHED=1 ends_with 0 check --library "$fake" --runs 6 \
    --json "$scratch/check.json"
check "a_line_an_op" [ "$(grep -c "the host's bytes, [1-9]" "$scratch/out")" -eq 16 ]
# json EXPRESSION FILE: of d, what is in the file
json() { python3 -c 'import json, sys; d = json.load(open(sys.argv[2])); r = d["rows"]; print(eval(sys.argv[1]))' "$1" "$2"; }
check "and_JSON" [ "$(json '(len(r), d["status"])' "$scratch/check.json")" = "(19, 'passed')" ]
check "and_memory_of_another_process" grep -q "device memory of another process: .* in both" "$scratch/out"
check "and_whole_steps" grep -q "whole steps of several ranks on one GPU end as on the host, in 6 runs" "$scratch/out"
# Three runs, by all ways between ranks; all 27 in each mode: make check-queues.
for mode in GF_FAKE_CONNECTIONS=1 GF_FAKE_CONNECTIONS=8 CUDA_LAUNCH_BLOCKING=1; do
    check "whole_steps with $mode" with $mode ends_with 0 check --steps --runs 3 --library "$fake"
done
# The fake then finds what the two processes leave.
check "an_import_that_fails" with GF_FAKE_CUDA_FAIL=cuMemImportFromShareableHandle:1:999 \
    ends_with 97 check --steps --runs 1 --library "$fake"
check "is_named" grep -q "cuMemImportFromShareableHandle" "$scratch/out"
# A failure is one line: run, path, rank and cause. The fake then finds what a failed program leaves.
fails_in() { GF_FAKE_CUDA_FAIL=$1 ends_with 97 check --steps --runs 3 --library "$fake"; }
check "a_call_that_fails_in_a_step" fails_in cuStreamWaitEvent:40:700
line="^gpu-check: [a-z_]*, [0-9] ranks, [a-z0-9]* on the wire, .* host memory: .*rank [0-9].*CUDA_ERROR"
check "is_one_line" grep -q "$line" "$scratch/out"
check "the_probe_ends" with GF_FAKE_CUDA_UNWATCHED=1 ends_with 0 probe --library "$fake" --json "$scratch/probe.json"
check "and_finds_queues" grep -q "4 streams of 1 contexts .* in [0-9]* hardware work queues" "$scratch/out"
check "and_measures_the_stack" grep -q "libcuda's part in it: [0-9]* bytes; the library asks for 65536" "$scratch/out"
check "and_hears_of_another_process" grep -q "a kernel of another process" "$scratch/out"
# On an H200 a goal that is missed is the exit code: here the fake says it is one, and each launch takes it 30 us.
export GF_FAKE_CUDA_NAME="NVIDIA H200" GF_FAKE_CUDA_US=30 GF_FAKE_CUDA_UNWATCHED=1
check "a_missed_goal_fails_on_an_H200" ends_with 1 bench --library "$fake" --mib 1 --json "$scratch/bench.json"
check "and_said" grep -q "ratio .*30.00 us, bound 10 us: MISSED" "$scratch/out"
check "of_all" grep -q "3 goals were missed" "$scratch/out"
check "times_of_no_GPU_are_called_so" grep -q "NO GPU: these times mean nothing" "$scratch/out"
check "and_a_step_with_its_hidden_share" grep -q "ms beside each other: .* of the step is hidden" "$scratch/out"
check "the_bus_beside_a_pinned_copy" [ "$(grep -c 'of "copy, device to pinned"' "$scratch/out")" -eq 2 ]
sweeps=$(grep -c 'of a sweep, [0-3] read [0-2] written, goal 0.90' "$scratch/out")
check "what_streams_beside_a_sweep_of_the_same_mix" [ "$sweeps" -eq 21 ]
between=$(grep -c "20 blocks .* of copy, goal [0-9]* GB/s" "$scratch/out")
check "what_is_between_devices_beside_an_NVLink" [ "$between" -eq 3 ]
check "what_is_launched_beside_a_bound" [ "$(grep -c 'us, bound [0-9]* us' "$scratch/out")" -eq 4 ]
check "and_JSON_of_it" [ "$(json '(d["status"], len(r), sum("of_sweep" in x for x in r), sum(x.get("counts", False) for x in r))' \
    "$scratch/bench.json")" = "('failed', 33, 21, 4)" ]
check "with_the_goal" grep -q '"op":"ratio","us":30.00,"goal":10.00,"met":false,"counts":true}' "$scratch/bench.json"
finish
