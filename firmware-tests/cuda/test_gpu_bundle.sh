#!/bin/sh
# suite: long
# `make gpu-bundle`: it fits, holds what it must, and its stages run in a root that has sh, coreutils, sed, grep, tar
# and libc alone: where there is no driver each step is skipped, and with the CUDA driver without a GPU each passes.
# What its steps print, and what fails: test_gpu_stages.sh.
. firmware-tests/support/shell.sh
bundle=$(cd "$BUILD" && pwd)/gpu-bundle
env -u MAKEFLAGS -u MFLAGS make -s --no-print-directory GF_QUIET=1 AS_BUILT=1 BUILD="$BUILD" \
    gpu-bundle >"$scratch/log" 2>&1
code=$?
if grep -q '^skipped: ' "$scratch/log"; then skip gpu_bundle "$(cat "$scratch/log")"; finish; fi
[ $code -eq 0 ] || { cat "$scratch/log"; not_ok gpu_bundle "exit $code"; finish; }
check it_has_less_than_48_MiB [ "$(du -sk --apparent-size "$bundle" | cut -f 1)" -lt 49152 ]
data='data/t10k-images-idx3-ubyte.gz data/t10k-labels-idx1-ubyte.gz data/train-images-idx3-ubyte.gz '
data=${data}data/train-labels-idx1-ubyte.gz
holds=$(cd "$bundle" && find . -type f ! -name 'lib*.so.*' ! -name 'elf.*' | LC_ALL=C sort | sed 's|^./||' | xargs)
check it_holds_what_it_must [ "$holds" = "LICENSE VERSION bin/gf-check bin/gf-perf \
bin/gf-run bin/gf-train bin/gpu-bench bin/gpu-check bin/gpu-probe $data first.cfg kernel_loads.py \
lib/libgradientflow.so run.sh torch_step.py" ]
check and_machine_code [ -s "$bundle/kernels/elf.90" ]
needs() { for f in "$bundle"/bin/*; do readelf -d "$f" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; done | sort -u; }
check and_needs_libc_alone sh -c '[ -z "$(echo "$1" | grep -vE "^(libc|libm|ld-linux-x86-64)\.so")" ]' sh "$(needs)"
check_not nonsense_is_refused "$bundle/run.sh" A --nonsense 2>/dev/null
check_not no_stage_is_refused "$bundle/run.sh" 2>/dev/null
# The calls that PyTorch's step makes through ctypes, on the host.
sed 's/device = .*//; s/weight_decay = [0-9.]*/weight_decay = 0.0/' "$bundle/first.cfg" >"$scratch/host.cfg"
host_says() {
    [ "$(LD_LIBRARY_PATH=$bundle/lib python3 "$bundle/torch_step.py" --host --config "$scratch/host.cfg" \
        --library "$bundle/lib/libgradientflow.so")" = "$1" ]
}
check ctypes_make_a_step host_says "y = 3.00 x + 1.00"

# ---- a root with nothing in it ----
if ! unshare -mn true 2>/dev/null; then skip an_empty_root "namespaces are not allowed"; finish; fi
root=$scratch/root
mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/tmp" "$root/etc"
for tool in sh timeout date cat tail head tr tee uname mkdir mktemp rm dirname env sed grep sleep; do
    path=$(readlink -f "$(command -v $tool)")
    cp "$path" "$root/bin/$tool"
    for library in $(ldd "$path" | grep -o '/[^ ]*'); do
        mkdir -p "$root${library%/*}" && cp -n "$library" "$root$library"
    done
done
mkdir -p "$root/lib/x86_64-linux-gnu" && cp -n /lib/x86_64-linux-gnu/libm.so.6 "$root/lib/x86_64-linux-gnu/"
cp -r "$bundle" "$root/bundle"
# What a tool prints may hold anything.
cat >"$root/bin/nvidia-smi" <<'END'
#!/bin/sh
printf 'a "quoted" \\ line\tand\033[1m another\n\001end %s\n' "$*"
END
chmod +x "$root/bin/nvidia-smi"
inside() {
    unshare -mn --fork sh -c 'ip link set lo up; root=$1; shift
        mount -t proc proc "$root/proc" && mount -t sysfs sysfs "$root/sys" || exit 99
        mount -t tmpfs tmpfs "$root/dev" && mkdir "$root/dev/shm" || exit 99
        mknod "$root/dev/null" c 1 3 && mknod "$root/dev/zero" c 1 5 && mknod "$root/dev/urandom" c 1 9 || exit 99
        chmod 666 "$root"/dev/*; chmod 1777 "$root/dev/shm"
        chroot=$(command -v chroot)
        PATH=/bin exec "$chroot" "$root" /bundle/run.sh "$@"' sh "$root" "$@" >"$scratch/said" 2>&1
}
# count TEXT FOLDER
count() { cat "$root/$2"/result-?.json | grep -c "$1"; }
# stages FOLDER OPTIONS..: the exit codes of all
stages() {
    folder=$1; shift
    for stage in A B; do
        inside $stage --out /$folder "$@"; printf '%s ' $?
        cat "$scratch/said" >>"$scratch/all"
    done
}
valid() { python3 -m json.tool "$1" >/dev/null; }
check without_a_driver_the_exit_code_is_77 [ "$(stages none)" = "77 77 " ]
check and_that_is_said [ "$(grep -c '^run.sh: no NVIDIA driver: this machine has neither' "$scratch/all")" -eq 2 ]
steps=$(count '"step"' none)
check and_each_step_is_skipped_for_that [ "$(count '"status":"skipped","reason":"no driver"' none)" -eq "$steps" ]
check that_are_eighteen [ "$steps" -eq 18 ]
for stage in A B; do check as_JSON valid "$root/none/result-$stage.json"; done

cp "$BUILD/firmware-tests/fake/libcuda.so.1" "$root/libcuda.so.1"
codes=$(stages fake --small --library /libcuda.so.1)
check with_a_driver_each_step_passes [ "$codes" = "0 0 " ]
[ "$codes" = "0 0 " ] || cat "$scratch/all"
left=$(sed -n 's/.*"step":"\([a-z0-9_]*\)".*"status":"skipped".*/\1/p' "$root"/fake/result-?.json | xargs)
check but_what_is_not_installed [ "$left" = "pytorch order memcheck racecheck pytorch_2" ]
for stage in A B; do check as_JSON_too valid "$root/fake/result-$stage.json"; done
check with_figures [ "$(count '"figures":null' fake)" -eq 2 ]
check from_device_to_device grep -q '^gradients .* on a device, from device to device' "$root/fake/A-train.log"
check in_eight_files_a_stage [ "$(find "$root/fake" -type f | wc -l)" -le 16 ]
finish
