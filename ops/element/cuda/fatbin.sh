#!/bin/sh
# fatbin.sh OUT SOURCE: the kernels of SOURCE in one image for GPUs from sm_80 on, by $NVCC. Where there is an older
# nvcc, sm_80, sm_90 and PTX are its, which older drivers load, and machine code for newer GPUs is $NVCC's. $NVCC_OLD is
# its path; empty: use none; not set: one is looked for. OUT_fatbin.s holds the image for the assembler, and which CUDA
# made it; OUT.kept/ each part, what ptxas said, and "stated": kind, architecture, CUDA of each part. Fails where
# cuobjdump ($CUOBJDUMP, or one beside an nvcc) shows a part that is not stated, or newer than stated.
# fatbin.sh check OUT STATED: that alone; 77: there is no cuobjdump.
set -eu
flags="-allow-unsupported-compiler -O3 -std=c++17 -fmad=false -I. -Ilib -Idrivers/base"
newer=100 # others take the PTX

version_of() { "$1" --version | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p'; }
number() { echo $((${1%.*} * 1000 + ${1#*.} * 10)); } # 13000 of 13.0, as drivers say it

# An nvcc before CUDA $1 that knows sm_90 and gets on with this host's compiler.
older() {
    echo "__global__ void probe(void) {}" >"$out.probe.cu"
    for found in /usr/lib/nvidia-cuda-toolkit/bin/nvcc /usr/local/cuda-1[12].*/bin/nvcc; do
        [ -x "$found" ] && [ "$(number "$(version_of "$found")")" -lt "$(number "$1")" ] || continue
        "$found" --list-gpu-code | grep -q sm_90 || continue
        "$found" $flags -arch=sm_90 -cubin -o "$out.probe" "$out.probe.cu" >/dev/null 2>&1 ||
            { echo "$out: $found is not used: it cannot compile here" >&2; continue; }
        echo "$found"
        return
    done
}

# A tool of the toolkit that an nvcc is of.
beside() {
    for folder in "$(dirname "$(command -v "$1")")" "$(dirname "$(readlink -f "$(command -v "$1")")")"; do
        [ ! -x "$folder/$2" ] || { echo "$folder/$2"; return; }
    done
}

# Machine code of CUDA 13 has version 1.8, before it 1.7; PTX of CUDA N.M is N - 4.M at most. A cuobjdump stops at what
# it cannot decompress, and behind an architecture that it does not know.
check() {
    dump=${CUOBJDUMP:-}
    for nvcc in "${NVCC:-nvcc}" ${NVCC_OLD:-}; do
        [ -n "$dump" ] || ! command -v "$nvcc" >/dev/null || dump=$(beside "$nvcc" cuobjdump)
    done
    [ -n "$dump" ] || dump=$(command -v cuobjdump) || return 77
    "$dump" "$1" 2>&1 | awk -v image="$1" '
        function wrong(text) { print image ": " text; bad = 1 }
        FNR == NR { stated[$1 " " $2] = $3; next }
        /^Fatbin / { kind = $2 }
        /^arch = / { part = kind " " substr($3, 4) }
        /^code version/ {
            split($0, v, /[][,]/)
            has = v[2] * 1000 + v[3] * 10
            split(stated[part], cuda, /[.]/)
            most = (kind == "ptx") ? (cuda[1] - 4) * 1000 + cuda[2] * 10 : (cuda[1] < 13) ? 1070 : 1080
            seen[part] = 1
            if (!stated[part]) wrong(part " is not stated")
            else if (has > most) wrong(part " has version " v[2] "." v[3] ", newer than of CUDA " stated[part])
        }
        /^ptxasOptions/ && !/--fmad false/ { wrong("a driver may fuse what its PTX multiplies and adds") }
        END {
            for (part in stated) if (!seen[part]) wrong(part " is stated, and is not there")
            exit bad
        }' "$2" - >&2
}
if [ "$1" = check ]; then
    check "$2" "$3"
    exit
fi

out=$1 source=$2 kept=$1.kept name=$(basename "$1" .fatbin)_fatbin images=
NVCC=${NVCC:-nvcc}
newest=$(version_of "$NVCC")
NVCC_OLD=${NVCC_OLD-$(older "$newest")}
oldest=$(version_of "${NVCC_OLD:-$NVCC}")
rm -rf "$kept" "$out.probe" "$out.probe.cu"
mkdir -p "$kept"
# part NVCC KIND ARCH CUDA FLAG..
part() {
    nvcc=$1 kind=$2 arch=$3 cuda=$4
    shift 4
    "$nvcc" $flags "$@" -o "$kept/$kind.$arch" "$source" 2>>"$kept/ptxas.log" ||
        { cat "$kept/ptxas.log" >&2; exit 1; }
    echo "$kind $arch $cuda" >>"$kept/stated"
    images="$images --image3=kind=$kind,sm=$arch,file=$kept/$kind.$arch"
}
for arch in 80 90; do part "${NVCC_OLD:-$NVCC}" elf $arch "$oldest" -arch=sm_$arch -Xptxas -v -cubin; done
# For GPUs that nobody has met: one pack under way, for a third less of text.
part "${NVCC_OLD:-$NVCC}" ptx 90 "$oldest" -arch=compute_90 -DGF_ONE_PACK -ptx
if [ -n "$NVCC_OLD" ] && "$NVCC" --list-gpu-code | grep -q "sm_$newer\$"; then
    part "$NVCC" elf $newer "$newest" -arch=sm_$newer -Xptxas -v -cubin
fi
# What is made for size is read by drivers of CUDA 12.4 and later, and by all that load machine code of 13.
fatbinary=$(beside "$NVCC" fatbinary) mode=
[ -n "$fatbinary" ] || fatbinary=$(command -v fatbinary) || { echo "$out: no fatbinary beside $NVCC" >&2; exit 1; }
! "$fatbinary" --help | grep -q compress-mode || mode=--compress-mode=speed
[ "${oldest%.*}" -lt 13 ] || mode=--compress-mode=size
"$fatbinary" --create="$out" -64 -compress-all $mode "--cmdline= --fmad false " $images
code=0
check "$out" "$kept/stated" || code=$?
[ $code -eq 0 ] || [ $code -eq 77 ] || { rm -f "$out"; exit 1; }
[ $code -eq 0 ] || [ "$name" != gf_kernels_fatbin ] || # once a build
    echo "$out: what is in it is not looked at: no cuobjdump beside nvcc"
cat >"${out%.fatbin}_fatbin.s" <<END
.section .rodata
.balign 64
.globl $name, ${name}_cuda
$name:
.incbin "$out"
.type $name, @object
.size $name, . - $name
.balign 4
${name}_cuda:
.type ${name}_cuda, @object
.long $(number "$oldest"), $(grep -q "elf $newer" "$kept/stated" && number "$newest" || echo 0)
.section .note.GNU-stack,"",@progbits
END
