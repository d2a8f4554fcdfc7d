#!/bin/sh
# A program that has closed its stdin, stdout or stderr, before it opens the library or after, and writes there all the
# same: no descriptor of the library's lies there, so the job goes on. Over shared memory, sockets and UCX.
. firmware-tests/support/shell.sh
program=$BUILD/firmware-tests/program_streams
# streams RANKS-THAT-END-WELL MASK WHEN [KEY=VALUE..]: each of so many ranks says "ok"
streams() {
    good=$1 mask=$2 when=$3; shift 3
    rm -f "$scratch"/s.*
    elastic=
    [ "$when" = after ] && elastic=--elastic
    case $* in *insecure=true*) host=--insecure ;; *) host= ;; esac
    timeout 100 "$BUILD/gf-run" -n 3 $elastic $host "$program" "$scratch/s" "$mask" "$when" exchange.timeout=5s "$@" \
        >"$scratch/log" 2>&1
    for rank in $(seq 0 $((good - 1))); do
        [ "$(cat "$scratch/s.$rank" 2>&1)" = ok ] || { cat "$scratch"/s.* "$scratch/log"; return 1; }
    done
}
for row in "shared_memory" "sockets link.private_memory=true" \
    "ucx link.private_memory=true link.driver=ucx link.transports=tcp rendezvous.insecure=true"; do
    # shellcheck disable=SC2086
    set -- $row
    over=$1; shift
    if [ $over = ucx ] && [ ! -e "$BUILD/drivers/ucx/link_ucx_open.o" ]; then
        skip "all_closed_before_$over" "this build has no UCX"
        continue
    fi
    check "all_closed_before_$over" streams 3 7 before "$@"
    [ $over = ucx ] || check "all_closed_after_$over" streams 2 7 after "$@"
done
check "stdin_closed_before" streams 3 1 before
check "stdout_closed_before" streams 3 2 before
check "stderr_closed_before" streams 3 4 before
finish
