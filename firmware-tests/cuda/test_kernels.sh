#!/bin/sh
# What compilers make of the kernels, and what a real CUDA driver says to this build: needs no GPU.
. firmware-tests/support/shell.sh
program=$BUILD/firmware-tests/program_kernels
image=$BUILD/ops/element/cuda/gf_kernels.fatbin
made=$image.kept
kept=firmware-tests/results/kernels.md

# A second compiler. Its own headers are of a CUDA that it knows; clang_cuda.h stands in for them.
by_clang() {
    clang -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 --cuda-path=/nowhere -nocudainc -nocudalib \
        -Xclang -target-feature -Xclang +ptx71 -std=c++17 -O1 -ffp-contract=off -Wall -Wextra -Wno-unused-function \
        -Wno-unused-command-line-argument -Wno-unknown-cuda-version -Werror \
        -include firmware-tests/cuda/clang_cuda.h -I. -Ilib -Idrivers/base \
        -S -o "$scratch/clang.ptx" "$scratch/all.cu"
}
printf '#include "%s"\n' ops/element/cuda/*.cu >"$scratch/all.cu"
if ! clang --print-targets 2>/dev/null | grep -q nvptx64; then
    skip "clang_compiles_them" "no clang that knows NVIDIA's GPUs"
else
    check "clang_compiles_them" by_clang
    entries=$(grep -c 'visible .entry' "$scratch/clang.ptx")
    check "and_all_of_them" [ "$entries" -eq "$(grep '| 80/13.0 |' "$kept" | grep -vc '^| abi')" ]
    wide=$(grep -cE '(ld|st).global.v4.u32' "$scratch/clang.ptx")
    check "and_its_accesses_are_global" [ "$wide" -gt 100 ]
fi

# In which order kernels load: of nvcc's PTX here, of machine code further down. Each fault must be
# seen.
loads() {
    python3 firmware-tests/cuda/kernel_loads.py "$@" >"$scratch/loads" && return
    grep WRONG "$scratch/loads"
    return 1
}
faults() {
    loads "$@" >/dev/null
    sed -n 's/^WRONG \([a-z]*\):.*/\1/p' "$scratch/loads" | LC_ALL=C sort -u | xargs
}
ptx_of() {
    nvcc -allow-unsupported-compiler -O3 -std=c++17 -fmad=false -I. -Ilib -Idrivers/base -arch=compute_90 -ptx \
        -o "$2" "$1" >"$scratch/why" 2>&1 || { cat "$scratch/why"; return 1; }
}
recorded=firmware-tests/cuda/bad_loads.sass
check "bad_machine_code_is_seen" [ "$(faults sass $recorded)" = "fuses narrow waits" ]
if ! command -v nvcc >/dev/null; then skip "no_load_waits_for_another_in_PTX" "no nvcc"
else
    check "nvcc_makes_PTX_of_bad_kernels" ptx_of firmware-tests/cuda/bad_loads.cu "$scratch/bad.ptx"
    check "which_is_seen" [ "$(faults ptx "$scratch/bad.ptx")" = "fuses narrow waits" ]
    check "nvcc_makes_PTX_of_all_kernels" ptx_of "$scratch/all.cu" "$scratch/all.ptx"
    check "no_load_waits_for_another_in_PTX" loads ptx "$scratch/all.ptx"
fi

# A tool of CUDA's: beside one of the nvccs, or in the path.
tool_of() {
    for nvcc in "${NVCC_OLD:-}" nvcc; do
        found=$(dirname "$(command -v "$nvcc" || echo /nowhere/)")/$1
        [ ! -x "$found" ] || { echo "$found"; return; }
    done
    command -v "$1"
}
if [ ! -f "$made/ptxas.log" ] || [ ! -x "$program" ]; then
    skip "kernels_as_recorded" "this build has no kernels (no nvcc)"
else
    BUILD=$BUILD sh firmware-tests/support/kernels.sh >"$scratch/now"
    check "nothing_is_spilled" awk '$4 > 0 { bad = 1 } END { exit bad }' "$scratch/now"
    check "hot_loops_move_whole_packs" awk '$6 > 0 { bad = 1 } END { exit bad }' "$scratch/now"
    check "the_image_is_below_500_KB" awk '$1 == "image" { ok = $8 < 500000 } END { exit !ok }' "$scratch/now"
    by=$(awk '$1 == "image" { print $2 }' "$scratch/now")
    if grep -q "| image | $by |" "$kept"; then
        BUILD=$BUILD sh firmware-tests/support/kernels.sh worse >"$scratch/worse"
        sed 's/^/worse: /' "$scratch/worse"
        check "none_is_worse_than_recorded" [ ! -s "$scratch/worse" ]
    else skip "none_is_worse_than_recorded" "recorded with other nvccs than $by"
    fi
    # Beside an nvcc, or in the path. From 12.4 on it reads what nvcc 13 makes for sm_80 and sm_90.
    order=no_load_waits_for_another_in_machine_code
    why="no nvdisasm (Debian: nvidia-cuda-toolkit in non-free)"
    if disassembler=$(tool_of nvdisasm); then
        known=$("$disassembler" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
        why="nvdisasm $known reads none of $by"
        awk '$1 == "elf" { print $2, $3 }' "$made/stated" | while read -r arch cuda; do
            [ $((${known%.*} * 100 + ${known#*.})) -ge 1204 ] || [ "${cuda%.*}" -le "${known%.*}" ] || continue
            ! "$disassembler" -c "$made/elf.$arch" >"$scratch/$arch.sass" 2>/dev/null || echo "$arch"
        done >"$scratch/read"
    fi
    if [ ! -s "$scratch/read" ]; then skip "nvdisasm_counts_the_same" "$why"; skip "$order" "$why"
    else
        while read -r arch; do
            wide=$(grep -cE ' (LDG|STG)\.E[A-Z.]*\.128' "$scratch/$arch.sass")
            ours=$("$program" "$arch" "$made/elf.$arch" | awk '{ n += $8 } END { print n }')
            [ "$wide" -eq "$ours" ] || echo "sm_$arch: nvdisasm has $wide wide accesses, program_kernels $ours"
        done <"$scratch/read" >"$scratch/differs"
        cat "$scratch/differs"
        check "nvdisasm_counts_the_same" [ ! -s "$scratch/differs" ]
        while read -r arch; do
            check "$order of sm_$arch" loads sass "$scratch/$arch.sass"
        done <"$scratch/read"
    fi
    # An older cuobjdump cannot decompress what drivers of its time cannot.
    if ! dump=$(tool_of cuobjdump); then skip "cuobjdump_takes_the_parts_out_as_they_went_in" "no cuobjdump"
    elif [ "$("$dump" --version | sed -n 's/.*release \([0-9]*\).*/\1/p')" -lt "${by%%.*}" ]; then
        skip "cuobjdump_takes_the_parts_out_as_they_went_in" "cuobjdump is older than all of $by"
    else
        for arch in 80 90; do
            (cd "$scratch" && "$dump" -xelf "sm_$arch" "$(readlink -f "$OLDPWD/$image")" >/dev/null 2>&1
            cmp ./*.sm_$arch.cubin "$OLDPWD/$made/elf.$arch")
        done >"$scratch/taken" 2>&1
        check "cuobjdump_takes_the_parts_out_as_they_went_in" [ ! -s "$scratch/taken" ]
    fi
fi

# The image is made again where another nvcc is asked for, and only there.
used="$scratch/build/nvcc.used"
asked_for() { make -s BUILD="$scratch/build" "$used" NVCC_OLD="$1" >/dev/null 2>&1; [ "$used" -nt "$scratch/then" ]; }
asked_for /one; touch -d '1 hour ago' "$used"; touch -d '1 minute ago' "$scratch/then"
check_not "the_same_nvcc_makes_nothing_anew" asked_for /one
check "another_one_does" asked_for /other

# What fatbin.sh says of what cuobjdump shows: of this listing, as CUDA's prints it.
listing() {
    printf 'Fatbin %s code:\n================\narch = sm_%s\ncode version = [%s]\nhost = linux\ncompressed\n%s\n' \
        elf 80 1,7 '' elf 90 1,7 '' ptx 90 7,8 'ptxasOptions =  --fmad false ' elf 100 1,8 ''
}
{ echo '#!/bin/sh'; echo 'cat "$1"'; } >"$scratch/dump"
chmod +x "$scratch/dump"
looked_at() { CUOBJDUMP=${3:-$scratch/dump} sh ops/element/cuda/fatbin.sh check "$1" "$2" 2>"$scratch/why"; }
refused() { ! looked_at "$2" "$3" "${4:-}" && grep -q "$1" "$scratch/why"; }
listing >"$scratch/image"
printf '%s\n' 'elf 80 11.8' 'elf 90 11.8' 'ptx 90 11.8' 'elf 100 13.0' >"$scratch/stated"
check "an_image_as_stated_passes" looked_at "$scratch/image" "$scratch/stated"
while read -r name change why; do
    sed "$change" "$scratch/stated" >"$scratch/wrong"
    check "an_image_${name}_fails" refused "$why" "$scratch/image" "$scratch/wrong"
done <<END
of_newer_code_than_stated s/13.0/12.9/ elf.100.has.version.1.8,.newer.than.of.CUDA.12.9
of_newer_PTX_than_stated /ptx/s/11.8/11.7/ ptx.90.has.version.7.8
that_is_not_stated /100/d elf.100.is.not.stated
without_what_is_stated s/80/86/ elf.86.is.stated
END
listing | sed 's/--fmad false//' >"$scratch/fused"
check "an_image_whose_PTX_may_be_fused_fails" refused "may fuse" "$scratch/fused" "$scratch/stated"

# The build itself: an nvcc that states less than it makes.
whole=the_build_fails_where_an_image_is_newer_than_stated
if [ ! -f "$made/ptxas.log" ]; then skip $whole "this build has no kernels (no nvcc)"
elif ! dump=$(tool_of cuobjdump); then skip $whole "no cuobjdump"
else
    real=$(command -v "${NVCC_OLD:-nvcc}")
    for tool in fatbinary cuobjdump; do ln -s "$(tool_of $tool)" "$scratch/$tool"; done
    printf '#!/bin/sh\n[ "$1" = --version ] && { echo release 11.7; exit; }\nexec %s "$@"\n' "$real" >"$scratch/nvcc"
    chmod +x "$scratch/nvcc"
    fails_to_build() {
        ! NVCC=$scratch/nvcc NVCC_OLD='' sh ops/element/cuda/fatbin.sh "$scratch/new.fatbin" ops/element/cuda/ratio.cu \
            >"$scratch/why" 2>&1 && grep -q 'newer than of CUDA 11.7' "$scratch/why" && [ ! -e "$scratch/new.fatbin" ]
    }
    check $whole fails_to_build
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
