#!/bin/sh
# The links of UCX that are not the default: InfiniBand in the binary, and a UCX that is found at run time. Without a card the
# way to rc and ud ends where UCX looks for a device: the transports lie in the program, and what is missing is named.
. firmware-tests/support/shell.sh
prefix=$(echo "${MAKEFLAGS:-}" | tr ' ' '\n' | sed -n 's/^UCX_PREFIX=//p') # of make check-ucx
unset GF_QUIET MAKEFLAGS MAKELEVEL # as by hand
make() { command make UCX_PREFIX="$prefix" "$@"; }
says() { grep -qF "$1" "$2" || { cat "$2"; return 1; }; }
# builds NAME VARIABLE=..: gf-check and gf-perf in $scratch/NAME. What does not know how UCX is linked is reused.
builds() {
    folder=$scratch/$1; shift
    mkdir "$folder"
    cp -Rp "$BUILD"/*.used "$BUILD/lib" "$BUILD/ops" "$BUILD/drivers" "$BUILD/config" "$BUILD/tools" "$folder"
    make -s -j2 WERROR=1 BUILD="$folder" "$@" "$folder/gf-check" "$folder/gf-run" "$folder/gf-perf" >"$folder.log" 2>&1 ||
        { cat "$folder.log"; return 1; }
}
over="--set link.driver=ucx --set link.devices=lo --set link.private_memory=true --set rendezvous.insecure=true"
# lacks FOLDER TRANSPORT TEXT: a configuration with that transport, beside tcp, fails, and why is said
lacks() {
    echo "link = { driver = \"ucx\"; transports = \"tcp,$2\"; }; rendezvous = { insecure = true; };" >"$scratch/lacks.cfg"
    "$1/gf-check" "$scratch/lacks.cfg" --preflight >"$scratch/out" 2>&1 && { echo "it went well"; return 1; }
    says "\"$2\" $3" "$scratch/out"
}
# sums FOLDER TRANSPORT
sums() {
    # The words of the settings are to be split.
    # shellcheck disable=SC2086
    GF_DEBUG=info "$1/gf-run" -n 2 --insecure "$1/gf-perf" -b 4K -e 4M $over --set "link.transports=$2" >"$scratch/out" 2>&1 &&
        says "open over ucx" "$scratch/out" || { cat "$scratch/out"; return 1; }
}
# train NAME SETTINGS..: two ranks; their weights are in $scratch/NAME
train() {
    name_=$1; shift
    case $* in *insecure=true*) host=--insecure ;; *) host= ;; esac
    GF_DEBUG=info "$BUILD/gf-run" -n 2 $host "$BUILD/gf-train" $small --steps 20 --dump-weights "$scratch/$name_" \
        --algorithm ring "$@" >"$scratch/out" 2>&1 || { cat "$scratch/out"; return 1; }
}
no_ucx_to_load() { ! ldd "$1" | grep -qE 'libuc[pstm]|ibverbs|mlx'; }
holds() { nm "$1" >"$scratch/names" && says "$2" "$scratch/names"; }
card() { [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; }
no_device="is in this binary, but there is no device for it here"

echo 'link = { driver = "ucx"; transports = "rc"; };' >"$scratch/rc.cfg"
"$BUILD/gf-check" "$scratch/rc.cfg" --preflight >"$scratch/out" 2>&1
if ! grep -q '"rc" is not in this binary' "$scratch/out"; then
    skip "the_default_link_has_no_infiniband" "this build is not the default link"
else
    check "the_default_link_has_tcp" sums "$BUILD" tcp
    for name in rc ud_x dc; do
        check "the_default_link_says_which_has_$name" lacks "$BUILD" $name "is not in this binary; it is in one made with UCX_IB=1, or UCX_DYNAMIC=1"
    done
    check "and_which_has_cuda" lacks "$BUILD" cuda_copy "is not in this binary; it is in one made with UCX_DYNAMIC=1 with a UCX built for CUDA"
fi
# shellcheck disable=SC2086
check "it_trains_over_ucx" train ucx $over --set link.transports=tcp
check "which_is_what_it_did" says "open over ucx" "$scratch/out"
check "and_over_sockets" train tcp --set link.private_memory=true --set rendezvous.insecure=true
check "which_they_were" says "open over tcp" "$scratch/out"
check "to_the_same_bits" cmp "$scratch/tcp" "$scratch/ucx"
check "and_in_the_memory_of_a_node" train node
check "to_these_bits_too" cmp "$scratch/tcp" "$scratch/node"

if make -s UCX_IB=1 flags >/dev/null 2>&1 && [ -e /usr/include/infiniband/verbs.h ]; then
    check "it_links_with_infiniband" builds ib UCX_IB=1
    check "all_of_it_is_static" no_ucx_to_load "$scratch/ib/gf-perf"
    for provider in mlx4 mlx5 rxe; do
        check "it_has_the_provider_$provider" holds "$scratch/ib/gf-perf" "verbs_provider_$provider"
    done
    check "it_runs_over_tcp" sums "$scratch/ib" tcp
    if card; then
        for name in rc ud; do check "it_runs_over_$name" sums "$scratch/ib" $name; done
    else
        for name in rc ud rc_v ud_x; do check "without_a_card_${name}_says_so" lacks "$scratch/ib" $name "$no_device"; done
        skip "it_runs_over_rc_and_ud" "there is no InfiniBand or RoCE device"
    fi
else skip "it_links_with_infiniband" "not installed: $(make -s UCX_IB=1 flags 2>&1 | sed -n 's/.*packages //p' | tr -d .)"; fi

check "it_links_with_a_dynamic_ucx" builds dynamic UCX_DYNAMIC=1
check "which_is_looked_for_beside_the_program_first" sh -c "readelf -d $scratch/dynamic/gf-perf | grep -q 'path: \[\$ORIGIN:\$ORIGIN/../lib'"
check "the_dynamic_one_runs_over_tcp" sums "$scratch/dynamic" tcp
flags=$(make -s BUILD="$scratch/dynamic" UCX_DYNAMIC=1 flags)
printf '%s\n' '#include <signal.h>' '#include "drivers/link.h"' \
    'const void *keep(void); const void *keep(void) { return &gf_link_ucx; }' \
    'int main(void) { struct sigaction a; sigaction(SIGSEGV, 0, &a); return a.sa_handler != SIG_DFL; }' >"$scratch/signals.c"
# As the README links an appliance: words, and no quotes.
# shellcheck disable=SC2086
signals() { ${CC:-gcc} -D_GNU_SOURCE -I. -Ilib -Idrivers/base "$scratch/signals.c" -o "$scratch/signals" $flags && "$scratch/signals"; }
check "and_takes_no_signals" signals
other=$(cd "$(dirname "$(ldd "$scratch/dynamic/gf-perf" | sed -n 's/.*libucp.so.0 => \(.*\) (.*/\1/p')")" && pwd)
mkdir "$scratch/lib"
for library in ucp uct ucs ucm; do cp -L "$other/lib$library.so.0" "$scratch/lib"; done
check "a_ucx_in_lib_beside_bin_is_taken" sh -c "ldd $scratch/dynamic/gf-perf | grep -q 'libucp.so.0 => .*$scratch/'"
check "deps_has_what_infiniband_wants" sh -c 'make -n deps UCX_IB=1 | grep -q libibverbs-dev'
in_environment() { ! UCX_IB=1 make -s flags >"$scratch/out" 2>&1 && says "make UCX_IB=1" "$scratch/out"; }
check "what_the_environment_asks_for_is_refused" in_environment
fails() { ! make -s UCX_PREFIX=/nonexistent flags >"$scratch/out" 2>&1; }
check "a_prefix_without_ucx_fails" fails
check "and_is_named" says "UCX_PREFIX=/nonexistent" "$scratch/out"
finish
