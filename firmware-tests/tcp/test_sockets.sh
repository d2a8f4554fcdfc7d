#!/bin/sh
# Jobs whose ranks share no memory, over sockets: the same bits whatever carries them, an appliance of sockets alone, and
# what is said where a device is not there.
. firmware-tests/support/shell.sh
export OPENBLAS_NUM_THREADS=1 LC_ALL=C
program="$BUILD/firmware-tests/program_sockets"
weights() { # OPTION..: of a short training
    timeout 100 "$BUILD/gf-run" -n "$ranks" "$BUILD/gf-train" $small --steps 6 --set exchange.algorithm=ring \
        "$@" >"$scratch/log" 2>&1 || { tail -n 5 "$scratch/log"; return 1; }
    sed -n 's/^.*weights *\([0-9a-f]*\), the same on all ranks.*$/\1/p' "$scratch/log"
}
same_weights() { found=$(weights --set link.private_memory=true "$@") && same "$wanted" "$found"; }
for ranks in 2 3; do
    wanted=$(weights) || { not_ok "$ranks ranks in shared memory" "they failed"; continue; }
    check "${ranks}_ranks_over_sockets" same_weights
    check "${ranks}_ranks_with_checksums" same_weights --set link.checksum=true
    check "${ranks}_ranks_of_four_streams" same_weights --set link.streams=4
    check "${ranks}_ranks_by_the_device_that_is_named" same_weights --set link.devices=lo
    check "${ranks}_ranks_that_sleep" same_weights --set link.idle=sleep --set link.streams=2
done
# The limit leaves room for the control channel, and for some of the streams.
refused "too_few_descriptors_are_told_at_the_join" \
    "error: rank 0: rank 1 gave up: rank 1 needs [0-9]* file descriptors, 8 to .* limit is 17: .*ulimit -n.* join," \
    "$BUILD/gf-run" -n 2 sh -c "[ \$GF_RANK = 0 ] || ulimit -n 17
        exec $BUILD/gf-train $small --steps 6 --set link.private_memory=true --set link.streams=8"
check "and_as_its_own_by_that_rank" said "error: rank 1: rank 1 needs [0-9]* file descriptors, .* .GF_ERR_SYSTEM"
ranks=2
# by one rank at least: another may have seen that one leave before it came to its own device
refused() { ! weights "$@" && grep -qE "$text" "$scratch/log"; }
text='device "gfnone0" of link.devices is no interface with an IPv4 address here; there are:.* lo'
check a_device_that_is_not_there_is_named refused --set link.private_memory=true --set link.devices=gfnone0
text='device "a" of link.devices'
check and_so_is_the_first_of_several refused --set link.private_memory=true --set link.devices=a,b,c,d,e

# ---- an appliance without UCX, CUDA and libconfig ----
check sockets_alone sh -c "timeout 100 $BUILD/gf-run -n 3 $program | grep -c 'sums are right' | grep -qx 3"
asked_for_ucx() {
    ! "$program" ucx 2>"$scratch/err" && grep -q 'link.driver = ucx: this program is linked without UCX' "$scratch/err"
}
check it_has_no_ucx asked_for_ucx
holds_no() { ! nm "$1" | grep -qE "$2"; }
check and_holds_none_of_it holds_no "$program" ' (ucp_|uct_|ucs_|gf_link_ucx|gf_gpu_cuda|config_init)'
if strip -o "$scratch/stripped" "$program"; then
    check "it_is_below_a_megabyte" [ "$(wc -c <"$scratch/stripped")" -lt 1000000 ]
else skip "it_is_below_a_megabyte" "strip does not take it"; fi
finish
