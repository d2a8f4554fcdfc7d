#!/bin/sh
# The quick suites, compiled for 64-bit ARM and run under qemu's user mode: what `make check-aarch64` does. The
# libraries of that architecture are unpacked below $BUILD, and nothing of them is installed. qemu keeps this machine's
# memory order, which is stronger: what two processes tell each other by flags is argued in ops/node/README.md instead.
set -eu
compiler=aarch64-linux-gnu-gcc tuple=aarch64-linux-gnu
packages='libconfig-dev libsodium-dev libcmocka-dev libcmocka0 libopenblas-serial-dev libopenblas0-serial zlib1g-dev'
packages="$packages libucx-dev"
skip() { echo "skip check-aarch64: $1"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
for command in $compiler qemu-aarch64 apt-get dpkg-deb; do
    command -v $command >/dev/null ||
        skip "there is no $command (apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)"
done
root=$PWD/$BUILD/root
if [ ! -e "$root/complete" ]; then
    mkdir -p "$root"
    (cd "$root" && for package in $packages; do apt-get download -q "$package:arm64" >/dev/null 2>&1 || exit 1; done) ||
        skip 'apt-get has no arm64 packages (dpkg --add-architecture arm64 && apt-get update)'
    for package in "$root"/*.deb; do dpkg-deb -x "$package" "$root"; done
    touch "$root/complete"
fi
libraries=$root/usr/lib/$tuple
export PKG_CONFIG_LIBDIR="$libraries/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root"
# not the example's networks: convolutions through OpenBLAS take a quarter of an hour under emulation
suites=$(make -s --no-print-directory quick-programs BUILD="$BUILD" GF_QUIET=1 | tr ' ' '\n' | grep -v train_net)
include=$root/usr/include
include="-isystem $include -isystem $include/$tuple -isystem $include/$tuple/openblas-serial"
# shellcheck disable=SC2086
make -s -j2 --no-print-directory BUILD="$BUILD" CC="${CCACHE:-} $compiler $include" CUDA=0 NVCC= WERROR=1 \
    LIBRARIES="$libraries" LDFLAGS="-L$libraries -Wl,-rpath-link,$libraries" $suites
# shellcheck disable=SC2086
WRAP="qemu-aarch64 -L /usr/$tuple -E LD_LIBRARY_PATH=$libraries" LIMIT=900 BUILD="$BUILD" sh firmware-tests/support/run.sh $suites
