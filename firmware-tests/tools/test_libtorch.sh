#!/bin/sh
# suite: long
# tools/example/libtorch.cc, built as a user does against an installed copy: two ranks fit the curve. Compiling torch's
# headers takes half a minute.
. firmware-tests/support/shell.sh
if ! [ -e /usr/include/torch/csrc/api/include/torch/torch.h ] || ! command -v g++ >/dev/null; then
    skip "libtorch" "no LibTorch or no g++ here (Debian's packages libtorch-dev and g++, make deps-test)"
    finish
fi
make -s --no-print-directory install BUILD="$BUILD" DESTDIR="$scratch/stage" PREFIX=/gf >"$scratch/log" 2>&1
PKG_CONFIG_PATH=$scratch/stage/gf/lib/pkgconfig LD_LIBRARY_PATH=$scratch/stage/gf/lib
export PKG_CONFIG_PATH LD_LIBRARY_PATH
cp -r "$scratch/stage/gf/share/doc/gradientflow/example" "$scratch/example"
compiles() {
    said=$(env -u MAKEFLAGS make -s -C "$scratch/example" libtorch CFLAGS=-O1 2>&1) && [ -z "$said" ] && return
    echo "$said" | head -n 20
    return 1
}
check "it_compiles_without_a_warning" compiles
fit() { timeout 100 "$BUILD/gf-run" -n 2 "$scratch/example/libtorch" >"$scratch/out" 2>&1; }
check "two_ranks_fit" fit
check "the_loss_is_small" said '^loss 0\.00'
finish
