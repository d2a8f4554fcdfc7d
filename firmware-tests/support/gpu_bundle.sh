#!/bin/sh
# gpu_bundle.sh FOLDER LIBRARY PROGRAM..: what a first run on a GPU needs, for a box with nothing but the NVIDIA driver:
# programs, a cut of the data, a configuration, run.sh (firmware-tests/cuda/first_run.sh). Fails where it would not
# fit or not start.
set -eu
. firmware-tests/support/idx.sh
to=$1 library=$2; shift 2
limit_mib=48 glibc=2.34 # Debian 12, Ubuntu 22.04, RHEL 9 and what came since
rm -rf "$to"
mkdir -p "$to/bin"
for program in "$@"; do strip -o "$to/bin/$(basename "$program")" "$program"; done
mv "$to/bin/program_gpu" "$to/bin/gpu-check"
cp "$to/bin/gpu-check" "$to/bin/gpu-bench"
cp "$to/bin/gpu-check" "$to/bin/gpu-probe"
mkdir "$to/lib" # what Python loads, with all but libc
strip --strip-unneeded -o "$to/lib/libgradientflow.so" "$library"
ldd "$library" | awk '$3 ~ /^[/]/ && $1 !~ /^(libc|libm|libdl|librt|libpthread)[.]/ { print $1, $3 }' |
    while read -r name path; do cp -L "$path" "$to/lib/$name"; done
cp firmware-tests/cuda/torch_step.py firmware-tests/cuda/kernel_loads.py "$to"
mkdir "$to/kernels" # machine code, for a disassembler there
cp "$BUILD"/ops/element/cuda/gf_kernels.fatbin.kept/elf.* "$to/kernels"
mkdir "$to/data"
idx_part "$to/data" train 6000
idx_part "$to/data" t10k 1000
cp firmware-tests/cuda/first.cfg LICENSE "$to"
install -m 755 firmware-tests/cuda/first_run.sh "$to/run.sh"
commit=$(git rev-parse --short HEAD 2>/dev/null || echo 'no commit')
nvcc=$(awk '{ print $3 }' "$BUILD/ops/element/cuda/gf_kernels.fatbin.kept/stated" | sort -Vu | paste -sd +)
echo "$("$to/bin/gf-train" --version), $commit, nvcc $nvcc" >"$to/VERSION"
fail() { echo "$to: $1" >&2; exit 1; }

for program in "$to"/bin/*; do
    for needed in $(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
        case $needed in libc.so.6|libm.so.6|ld-linux-*) ;; *) fail "$program needs $needed" ;; esac
    done
    newest=$(readelf -V "$program" | grep -o 'GLIBC_2\.[0-9.]*' | sed 's/GLIBC_//' | sort -V | tail -n 1)
    [ "$(printf '%s\n' "$newest" "$glibc" | sort -V | tail -n 1)" = "$glibc" ] ||
        fail "$program needs glibc $newest, stated is $glibc"
done
kib=$(du -sk --apparent-size "$to" | cut -f 1)
[ "$kib" -le $((limit_mib << 10)) ] || fail "it has $kib KiB, allowed are $limit_mib MiB"
echo "$to: $((kib >> 10)) of $limit_mib MiB, glibc $glibc: on a GPU's box start run.sh A, then run.sh B of that folder"
