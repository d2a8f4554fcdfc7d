#!/bin/sh
# suite: long
# `make gpu-bundle`: it fits, holds what it must, and runs in a root that has sh, coreutils, sed, grep and
# libc alone: where there is no driver each step is skipped, and with the CUDA driver without a GPU each passes.
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
holds=$(cd "$bundle" && find . -type f | LC_ALL=C sort | sed 's|^./||' | xargs)
check it_holds_what_it_must [ "$holds" = "LICENSE VERSION bin/gf-check bin/gf-perf \
bin/gf-run bin/gf-train bin/gpu-bench bin/gpu-check $data first.cfg run.sh" ]
needs() { for f in "$bundle"/bin/*; do readelf -d "$f" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; done | sort -u; }
check and_needs_libc_alone sh -c '[ -z "$(echo "$1" | grep -vE "^(libc|libm|ld-linux-x86-64)\.so")" ]' sh "$(needs)"
check_not nonsense_is_refused "$bundle/run.sh" --nonsense 2>/dev/null

# ---- a root with nothing in it ----
if ! unshare -mn true 2>/dev/null; then skip an_empty_root "namespaces are not allowed"; finish; fi
root=$scratch/root
mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/tmp" "$root/etc"
for tool in sh timeout date cat tail head tr uname mkdir rm dirname sed grep sleep; do
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
count() { grep -c "$1" "$root/$2/result.json"; }
valid() { python3 -m json.tool "$1" >/dev/null; }
inside --out /none; code=$?
check without_a_driver_the_exit_code_is_77 [ $code -eq 77 ]
[ $code -eq 77 ] || cat "$scratch/said"
steps=$(count '"step"' none)
check and_each_step_is_skipped_for_that [ "$(count '"status":"skipped","reason":"no driver"' none)" -eq "$steps" ]
check that_are_at_least_ten [ "$steps" -ge 10 ]
check as_JSON valid "$root/none/result.json"

cp "$BUILD/firmware-tests/fake/libcuda.so.1" "$root/libcuda.so.1"
inside --out /fake --small --library /libcuda.so.1; code=$?
check with_a_driver_each_step_passes [ $code -eq 0 ]
[ $code -eq 0 ] || cat "$scratch/said"
left=$(sed -n 's/.*"step":"\([a-z_]*\)".*"status":"skipped".*/\1/p' "$root/fake/result.json")
check but_what_is_not_installed [ "$left" = compute_sanitizer ]
check as_JSON_too valid "$root/fake/result.json"
check with_figures [ "$(count '"figures":null' fake)" -eq 1 ]
check from_device_to_device grep -q '"reason":"gradients on a device, from device to device' "$root/fake/result.json"
most=$(grep -o '"limit":[0-9]*' "$root/fake/result.json" | awk -F: '{n += $2 + 2} END {print n}')
check with_time_limits_of_ten_minutes_in_all [ "$most" -lt 600 ]

# A step that fails, and one that hangs.
printf '#!/bin/sh\n[ "$1" = topo ] && sleep 60\nexit 9\n' >"$root/bin/nvidia-smi"
printf '#!/bin/sh\nexit 1\n' >"$root/bundle/bin/gpu-check"
sed -i 's/^step topology 15/step topology 1/; s/^step train .*/exit 1/' "$root/bundle/run.sh"
inside --out /bad --small --library /libcuda.so.1; code=$?
check a_failure_is_the_exit_code [ $code -eq 1 ]
check and_named grep -q '"step":"nvidia_smi".*"status":"failed","reason":"exit code 9' "$root/bad/result.json"
check a_step_that_hangs_is_ended [ "$(count '"step":"topology".*"failed","reason":"not ended after 1 s"' bad)" -eq 1 ]
check what_was_found_before_the_end_is_valid valid "$root/bad/result.json"
finish
