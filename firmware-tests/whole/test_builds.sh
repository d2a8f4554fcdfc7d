#!/bin/sh
# Builds without nvcc, and without the CUDA headers too: silent but for the line that names what is left out, and what they
# make runs on the host. One binary with everything does so as well. Objects that do not know the difference are reused.
# suite: long
. firmware-tests/support/shell.sh
unset GF_QUIET MAKEFLAGS MAKELEVEL # as by hand
says() { grep -qF "$1" "$2" || { cat "$2"; return 1; }; }
one_line() { [ "$(wc -l <"$1")" -eq 1 ] || { cat "$1"; return 1; }; }
# builds NAME VARIABLE=.. ..: gf-train and gf-perf in $scratch/NAME, what was said in $scratch/NAME.log
builds() {
    folder=$scratch/$1; shift
    mkdir "$folder"
    cp -Rp "$BUILD"/*.used "$BUILD/lib" "$BUILD/ops" "$BUILD/drivers" "$BUILD/config" "$BUILD/tools" "$folder"
    make -s -j2 WERROR=1 BUILD="$folder" "$@" "$folder/gf-train" "$folder/gf-perf" >"$folder.log" 2>&1 || { cat "$folder.log"; return 1; }
}
trains() { "$1" --model linear --steps 1 --device host >"$scratch/log" 2>&1 || { cat "$scratch/log"; return 1; }; }
loads_no_cuda() { ! ldd "$1" | grep -qiE 'cuda|nvidia'; }
has_kernels() { nm "$1" 2>/dev/null | grep -q ' R gf_kernels_fatbin$'; }
lacks_kernels() { ! has_kernels "$1"; }
# refuses FOLDER PROGRAM TEXT OPTION..: a configuration with cuda, in one line that has the text
refuses() {
    program=$1/$2 text=$3; shift 3
    "$program" "$@" >"$scratch/log" 2>&1 && return 1
    says "$text" "$scratch/log"
}

check "the_whole_binary_loads_no_cuda" loads_no_cuda "$BUILD/gf-train"
check "and_runs_on_the_host" trains "$BUILD/gf-train"
if nm "$BUILD/libgradientflow.a" 2>/dev/null | grep -q 'gf_cuda_load'; then
    if [ -e "$BUILD/ops/element/cuda/gf_kernels.fatbin" ]; then check "its_kernels_are_in_a_symbol" has_kernels "$BUILD/libgradientflow.a"
    else skip "its_kernels_are_in_a_symbol" "built without nvcc"; fi
    check "it_builds_without_nvcc" builds no_nvcc NVCC=
    check "silently" one_line "$scratch/no_nvcc.log"
    check "but_for_what_is_left_out" says "cuda driver 1, gpu kernels 0 (no nvcc)" "$scratch/no_nvcc.log"
    check "no_kernels_are_in_it" lacks_kernels "$scratch/no_nvcc/libgradientflow.a"
    check "without_nvcc_it_runs_on_the_host" trains "$scratch/no_nvcc/gf-train"
    check "and_says_that_it_has_no_kernels" refuses "$scratch/no_nvcc" gf-perf "has no kernels in this build: it was made without nvcc" \
        --set device.driver=cuda -b 4 -e 4
    check "gf_train_does_too" refuses "$scratch/no_nvcc" gf-train "built without nvcc" --device cuda --steps 1
else skip "it_builds_without_nvcc" "there is no cuda.h here"; fi
check "it_builds_without_cuda" builds no_cuda NVCC= CUDA_INC=
check "silently_too" one_line "$scratch/no_cuda.log"
check "and_says_so" says "cuda driver 0 (no cuda.h), gpu kernels 0 (no nvcc)" "$scratch/no_cuda.log"
check "without_cuda_it_runs_on_the_host" trains "$scratch/no_cuda/gf-train"
check "and_says_that_it_has_no_driver" refuses "$scratch/no_cuda" gf-perf 'device.driver "cuda" is not in this build; there is "host"' \
    --set device.driver=cuda -b 4 -e 4
asked() { make -s NVCC= CUDA=1 CUDA_INC= BUILD="$scratch/none" all >"$scratch/log" 2>&1; }
check_not "cuda_that_is_asked_for_and_absent_fails" asked
check "and_says_what_is_missing" says "CUDA=1, and there is no cuda.h" "$scratch/log"
kernels() { make -s NVCC= BUILD="$scratch/none" kernels >"$scratch/log" 2>&1; }
check "no_kernels_are_measured_without_nvcc" kernels
check "which_is_said" says "skipped: this build has no GPU kernels" "$scratch/log"

# Whatever compiles for a GPU is silent with the other compiler as well; all else is `make check-clang`'s.
objects() {
    for source in drivers/cuda/*.c ops/element/cuda/*.c tools/train/train_device*.c firmware-tests/cuda/fake_cuda*.c; do
        case $source in firmware-tests/*) echo "firmware-tests/fake/$(basename "${source%.c}").o" ;; *) echo "${source%.c}.o" ;; esac
    done
    for source in ops/element/cuda/*.cu; do echo "firmware-tests/cuda/kernel_$(basename "${source%.cu}").o"; done
}
with_clang() {
    # shellcheck disable=SC2046
    make -s -j2 CC=clang WERROR=1 BUILD="$scratch/clang" $(objects | sed "s|^|$scratch/clang/|") >"$scratch/clang.log" 2>&1
    code=$?
    [ $code -eq 0 ] && one_line "$scratch/clang.log" || { cat "$scratch/clang.log"; return 1; }
}
if command -v clang >/dev/null && [ -d "$BUILD/firmware-tests/fake" ]; then check "clang_is_silent_about_the_gpus_files" with_clang
else skip "clang_is_silent_about_the_gpus_files" "no clang, or no cuda.h"; fi
finish
