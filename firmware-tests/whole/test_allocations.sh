#!/bin/sh
# Whole processes, every allocation counted (program_allocations.c): the library makes none, in a node or over UCX,
# UCX next to none once it is open; and the memory that a context has is the memory it asked for.
. firmware-tests/support/shell.sh
run="$BUILD/gf-run" program="$BUILD/firmware-tests/program_allocations"
[ -x "$program" ] || { echo "not ok program_is_built: $program is missing"; exit 1; }
# UCX linked dynamically does not know the variable by which the library keeps it from handling signals.
export UCX_WARN_UNUSED_ENV_VARS=n
host= # an option of gf-run
foreign_max=$((64 << 20)) page=4096
# counted NAME OPTION..: two ranks; leaves NAME.0 and NAME.1, a line for each number of a rank
counted() {
    name_=$1; shift
    timeout -k 5 100 "$run" -n 2 $host "$program" "$@" >"$scratch/$name_.out" 2>"$scratch/$name_.err" ||
        { code_=$?; tail -n 5 "$scratch/$name_.err"; return $code_; }
    sed -n 's/^\[1\] //p' "$scratch/$name_.out" >"$scratch/$name_.1"
    grep -v '^\[1\] ' "$scratch/$name_.out" >"$scratch/$name_.0"
    for rank_ in 0 1; do
        echo "    $name_ rank $rank_: $(value allocations) allocations in $(steps_with) of $(value steps) steps, \
foreign $(value foreign_bytes), exchange $(value exchange_bytes), mapped $(value exchange_mapped) bytes"
        grep '^caller ' "$scratch/$name_.$rank_"
    done
    return 0
}
value() { sed -n "s/^$1 //p" "$scratch/$name_.$rank_"; }
steps_with() { echo $(($(value steps) - $(value steps_with_none))); }
# both TEST..: true for each rank's numbers
both() { for rank_ in 0 1; do "$@" || { echo "rank $rank_: $*"; return 1; }; done; }
is() { [ "$(value "$1")" = "$2" ]; }
within() { [ "$1" -ge "$2" ] && [ "$1" -le "$3" ]; }

counter_works() {
    within "$(value seen_of_program)" 1 9 && { [ "$name" != ucx ] || within "$(value seen_of_ucx)" 1 999; }
}
# .. and maps its region (with huge pages, then without), a peer's, and at open room for as many as there are peers.
library_allocates_nothing() {
    is from_library 0 && is from_program_until_closed 0 && within "$(value mapped_by_program)" 1 5
}
callers_are_ucx() { is from_other 0 && is from_unnamed 0 && is from_ucx "$(value allocations)" && all_are_named; }
all_are_named() { ! grep '^caller ' "$scratch/$name_.$rank_" | grep -v '^caller ucx [0-9]* libuc[mpst]:'; }
no_step_has_any() { is allocations 0; }
steps_are_whole() { is steps "$1" && is steps_skipped 0 && within "$(moved)" 1000000 99999999999; }
moved() { echo $(($(value wire_bytes) + $(value mapped_bytes))); } # by messages, or in shared memory
foreign_bytes_are_bounded() { within "$(value foreign_bytes)" 0 $((foreign_max - 1)); }
# Where no other rank can map it the region is resident memory of this process, but not UCX's.
region_is_not_foreign() { within "$(value foreign_bytes)" 0 "$(value exchange_bytes)"; }
mapping_is_the_footprint() {
    within "$(value exchange_mapped)" "$(value exchange_bytes)" $(($(value exchange_bytes) + 8 * page))
}

# judged NAME STEPS OPTION..: what holds whatever the transport
judged() {
    name=$1 steps=$2; shift 2
    counted "$name" --steps "$steps" "$@"; code=$?
    [ $code -eq 0 ] || { not_ok "$name" "exit $code"; return 1; }
    set -- "$name"
    for rule in counter_works "steps_are_whole $steps" library_allocates_nothing callers_are_ucx \
        foreign_bytes_are_bounded region_is_not_foreign "is guard_changes 0"; do
        # shellcheck disable=SC2086
        check "$(echo "${1}_$rule" | tr ' ' _)" both $rule
    done
}
# In a node nothing is foreign, and the region is a mapping of its own; with tcp it may lie beside others.
shm() {
    judged "$@" || return
    check "${1}_no_step_has_any" both no_step_has_any
    check "${1}_mapping_is_the_footprint" both mapping_is_the_footprint
}

shm shm 100 link.private_memory=false
sockets() { # no allocation either, and no mapping: messages lie where they go
    judged "$@" || return
    check "${1}_no_step_has_any" both no_step_has_any
}
sockets sockets 100 link.private_memory=true
sockets streams 60 link.private_memory=true link.streams=3 link.checksum=true
host=--insecure # so is the coordinator
judged ucx 100 link.private_memory=true link.driver=ucx link.transports=tcp link.devices=lo rendezvous.insecure=true
host=
shm fp16_ring 60 exchange.wire=fp16 exchange.algorithm=ring
shm sparse 60 sparse.enabled=true sparse.chunk_elems=4096 sparse.warmup_steps=5 sparse.ramp_steps=10
finish
