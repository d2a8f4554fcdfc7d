#!/bin/sh
# What compilers make of the kernels, and what a real CUDA driver says to this build: needs no GPU.
. firmware-tests/support/shell.sh
program=$BUILD/firmware-tests/program_kernels
made=$BUILD/ops/element/cuda/kept
kept=firmware-tests/results/kernels.md

# A second compiler. Its own headers are of a CUDA that it knows; clang_cuda.h stands in for them.
by_clang() {
    clang -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 --cuda-path=/nowhere -nocudainc -nocudalib \
        -Xclang -target-feature -Xclang +ptx71 -std=c++17 -O1 -ffp-contract=off -Wall -Wextra -Wno-unused-function \
        -Wno-unused-command-line-argument -Wno-unknown-cuda-version -Werror \
        -include firmware-tests/cuda/clang_cuda.h -I. -Ilib -S -o "$scratch/clang.ptx" "$scratch/all.cu"
}
printf '#include "%s"\n' ops/element/cuda/*.cu >"$scratch/all.cu"
if ! clang --print-targets 2>/dev/null | grep -q nvptx64; then
    skip "clang_compiles_them" "no clang that knows NVIDIA's GPUs"
else
    check "clang_compiles_them" by_clang
    entries=$(grep -c 'visible .entry' "$scratch/clang.ptx")
    check "and_all_of_them" [ "$entries" -eq "$(grep -cE '^\| [a-z_0-9]+ \| 80 \|' "$kept")" ]
    wide=$(grep -cE '(ld|st).global.v4.u32' "$scratch/clang.ptx")
    check "and_its_accesses_are_global" [ "$wide" -gt 100 ]
fi

if [ ! -f "$made/ptxas.log" ] || [ ! -x "$program" ]; then
    skip "kernels_as_recorded" "this build has no kernels (no nvcc)"
else
    BUILD=$BUILD sh firmware-tests/support/kernels.sh >"$scratch/now"
    check "nothing_is_spilled" awk '$4 > 0 { bad = 1 } END { exit bad }' "$scratch/now"
    check "hot_loops_move_whole_packs" awk '$6 > 0 { bad = 1 } END { exit bad }' "$scratch/now"
    check "the_image_is_below_500_KB" awk '$1 == "image" { ok = $8 < 500000 } END { exit !ok }' "$scratch/now"
    if grep -q "nvcc $(cat "$made/version")," "$kept"; then
        BUILD=$BUILD sh firmware-tests/support/kernels.sh worse >"$scratch/worse"
        sed 's/^/worse: /' "$scratch/worse"
        check "none_is_worse_than_recorded" [ ! -s "$scratch/worse" ]
    else skip "none_is_worse_than_recorded" "recorded with another nvcc than $(cat "$made/version")"
    fi
    if ! command -v nvdisasm >/dev/null; then skip "nvdisasm_counts_the_same" "not installed"
    else
        for cubin in "$made"/*.cubin; do nvdisasm -c "$cubin"; done >"$scratch/sass"
        wide=$(for cubin in "$made"/*.cubin; do "$program" 80 "$cubin"; done | awk '{n += $8} END {print n}')
        check "nvdisasm_counts_the_same" [ "$(grep -cE ' (LDG|STG)\.E[A-Z.]*\.128' "$scratch/sass")" -eq "$wide" ]
    fi
fi

# A libcuda of NVIDIA's (Debian: libcuda1 in non-free), where one is installed and there is no GPU: it loads, has every
# call, and says no; or it is too old, which is said.
real=${GF_REAL_LIBCUDA:-$(ldconfig -p 2>/dev/null | awk '/libcuda\.so\.1 .*x86-64/ {print $NF; exit}')}
gpu=$BUILD/firmware-tests/program_gpu
name=a_real_driver_library_has_every_call_or_is_called_too_old
if [ -z "$real" ]; then skip "$name" "no libcuda.so.1 is installed"
elif [ ! -f "$made/ptxas.log" ] || [ ! -x "$gpu" ]; then skip "$name" "this build has no kernels"
elif [ -e /dev/nvidiactl ]; then skip "$name" "there is a GPU"
else
    "$gpu" check --library "$real" >"$scratch/real" 2>&1
    rm -f /dev/nvidiactl # root's libcuda makes it even where there is no such device, and others look for it
    check "$name" grep -qE 'cuInit failed: CUDA_ERROR_NO_DEVICE \(100\)|older than CUDA 12\.0' "$scratch/real"
fi
finish
