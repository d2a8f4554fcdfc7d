#!/bin/sh
# Both stages of the bundle for a first run on a GPU, on the CUDA driver without one: each step runs
# and prints its lines, and what is not installed is skipped. Of a folder that is like the bundle's;
# the bundle itself is test_gpu_bundle.sh's.
. firmware-tests/support/shell.sh
need_cuda gpu_stages
folder=$scratch/bundle
built=$(cd "$BUILD" && pwd)
mkdir -p "$folder/bin" "$folder/lib" "$folder/kernels"
for program in gf-run gf-train gf-perf gf-check; do
    ln -s "$built/$program" "$folder/bin/$program"
done
for program in gpu-check gpu-bench gpu-probe; do
    ln -s "$built/firmware-tests/program_gpu" "$folder/bin/$program"
done
idx_data "$folder/data" 128 8
cp firmware-tests/cuda/first_run.sh "$folder/run.sh"
cp firmware-tests/cuda/first.cfg firmware-tests/cuda/torch_step.py \
    firmware-tests/cuda/kernel_loads.py "$folder"
ln -s "$built/libgradientflow.so" "$folder/lib/libgradientflow.so"
for elf in "$built"/ops/element/cuda/gf_kernels.fatbin.kept/elf.90; do
    [ ! -e "$elf" ] || ln -s "$elf" "$folder/kernels/${elf##*/}"
done
echo "not a bundle" >"$folder/VERSION"

# A machine's tools: those that print, one that cannot work here, and a PyTorch that is not there.
tools=$scratch/tools
mkdir "$tools"
printf '#!/bin/sh\necho "Fake GPU, 580.0, 80 GiB"\n' >"$tools/nvidia-smi"
printf '#!/bin/sh\necho "========= Error: Device not supported."\nexit 1\n' >"$tools/compute-sanitizer"
chmod +x "$tools"/*
export GF_FAKE_CUDA_UNWATCHED=1
stage() {
    stage=$1; shift
    (cd "$scratch" && PATH=$tools:$PATH OUT=$scratch/$stage timeout 240 sh "$folder/run.sh" "$stage" \
        --small --library "$(readlink -f "$OLDPWD/$fake" 2>/dev/null || echo "$fake")" "$@") >"$scratch/said" 2>&1
}
line() { grep -q "$1" "$scratch/said"; }
states() { sed -n 's/.*"step":"\([a-z0-9_]*\)".*"status":"\([a-z]*\)".*/\1 \2/p' "$1" | xargs; }
valid() { python3 -m json.tool "$1" >/dev/null; }
files() { find "$1" -type f | wc -l; }
pytorch=skipped
python3 -c 'import torch' 2>/dev/null && pytorch='[a-z]*'
order=skipped
command -v nvdisasm >/dev/null && [ -n "$(ls "$folder/kernels")" ] && order=passed

check_not "no_stage_is_refused" sh "$folder/run.sh" 2>/dev/null
check_not "nor_is_one_that_is_gone" sh "$folder/run.sh" 1 2>/dev/null
check "stage_A_passes" stage A || cat "$scratch/said"
check "with_each_step" sh -c 'echo "$1" | grep -qx "$2"' sh "$(states "$scratch/A/result-A.json")" \
    "device passed ops_small passed steps passed train_1 passed train_2 passed train_4 passed bench passed \
pytorch $pytorch order $order ops_full passed"
check "in_valid_JSON" valid "$scratch/A/result-A.json"
check "in_eight_files_at_most" [ "$(files "$scratch/A")" -le 8 ]
check "the_device_is_named" line "^Fake GPU, 580.0"
check "a_line_an_op" [ "$(grep -c "the host's bytes, [1-9]" "$scratch/said")" -eq 32 ]
check "memory_of_another_process" line "device memory of another process: .* in both"
check "whole_steps" line "whole steps of several ranks on one GPU end as on the host, in 3 runs"
hashes() { sed -n 's/^weights  *\([0-9a-f]*\), the same on all ranks$/\1/p' "$scratch/said"; }
check "one_hash_in_each_run" [ "$(hashes | wc -l)" -eq 3 ]
check "of_a_row_bytes_rate_share_of_a_copy_and_goal" \
    line "sum fp32, checked .* MB .* GB/s, .* of copy .* of a sweep.*, goal 0.90"
check "few_blocks_beside_an_NVLink" line "sum of 2 ranks, 20 blocks .* goal 1350 GB/s"

check "stage_B_passes" stage B || cat "$scratch/said"
check "with_each_of_its_steps" sh -c 'echo "$1" | grep -qx "$2"' sh "$(states "$scratch/B/result-B.json")" \
    "memcheck skipped racecheck skipped perf_20_blocks passed perf_all_blocks passed probe passed \
overlap passed train_8 passed pytorch_2 $pytorch"
check "in_valid_JSON_too" valid "$scratch/B/result-B.json"
check "in_eight_files_at_most_too" [ "$(files "$scratch/B")" -le 8 ]
check "a_sanitizer_that_cannot_work_is_skipped" line "^skipped memcheck.*cannot work here: .*not supported"
check "allreduce_by_two_processes" [ "$(grep -c '^ *4096 .* float .* sum ' "$scratch/said")" -eq 2 ]
check "the_stack" line "libcuda's part in it: [0-9]* bytes"
check "the_hidden_share" line "of the step is hidden"
check "eight_ranks_with_one_hash" line "^weights .*the same on all ranks"

# Each step's limit, and two seconds to end it in.
limits() { grep -o '"limit":[0-9]*' "$1" | sed 's/.*://' | awk '{ n += $1 + 2 } END { print n }'; }
check "stage_A_has_240_s" [ "$(limits "$scratch/A/result-A.json")" -le 240 ]
check "stage_B_has_220_s" [ "$(limits "$scratch/B/result-B.json")" -le 220 ]

# A step that fails, one that hangs, and findings of a sanitizer: the stage goes on.
printf '#!/bin/sh\necho "========= Invalid __global__ read of size 16 bytes"\nexit 9\n' >"$tools/compute-sanitizer"
for program in gf-perf gpu-probe gpu-bench gf-run; do
    rm "$folder/bin/$program"
    printf '#!/bin/sh\necho "rank 1: refused"\nexit 1\n' >"$folder/bin/$program"
done
printf '#!/bin/sh\nsleep 60\n' >"$folder/bin/gpu-probe"
chmod +x "$folder"/bin/*
sed -i 's/step probe probe 20/step probe probe 1/' "$folder/run.sh"
check_not "a_failure_is_the_exit_code" stage B
check "a_finding_of_a_sanitizer_is_a_failure" line "^failed memcheck.*exit code 9: .*Invalid __global__ read"
check "a_step_that_hangs_is_ended" line "^failed probe, .*not ended after 1 s"
check "and_the_stage_goes_on" line "^failed train_8, .*rank 1: refused"
finish
