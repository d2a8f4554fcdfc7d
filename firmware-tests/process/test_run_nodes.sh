#!/bin/sh
# suite: long (namespaces)
# Two nodes (network namespaces, root) with a gf-run each and two ranks there. Both ranks of the first are killed at
# once, the lowest among them: half without the lowest is no quorum. With a directory that the nodes share the others
# go on.
. firmware-tests/support/shell.sh
. firmware-tests/support/net.sh
export OPENBLAS_NUM_THREADS=1 LC_ALL=C

# job NUMBER PATTERN OPTIONS..: until both ranks of the second node have said what matches
job() {
    number=$1 pattern=$2 pids='' code=1; shift 2
    rm -f "$scratch"/pid.*
    for host in 0 1; do
        # shellcheck disable=SC2016
        ip netns exec "$net_prefix-$host" unshare --ipc --pid --fork --kill-child --mount-proc \
            timeout -k 1 40 "$BUILD/gf-run" -n 2 --elastic --nodes 2 --node-rank $host --job "$number" "$@" \
            sh -c '[ $GF_RANK -lt 2 ] || exec "$@"; "$@" & echo $! >"$0.$GF_RANK"; [ $GF_RANK = 1 ] ||
                { until [ -e "$0.step.3" ]; do sleep 0.1; done; kill -9 $(cat "$0.0" "$0.1"); }; wait $!' \
            "$scratch/pid" "$BUILD/gf-train" --config "$scratch/net.cfg" --model linear --data "$scratch/data" \
            --batch 12 --elastic --steps 100000000 --lr 0.0001 --checkpoint "$scratch/pid.step" \
            --checkpoint-every 100 >"$scratch/out.$host" 2>&1 & pids="$pids $!"
    done
    for _ in $(seq 1 300); do
        [ "$(grep -Ec "$pattern" "$scratch/out.1")" -lt 2 ] || { code=0; break; }
        sleep 0.1
    done
    # shellcheck disable=SC2086
    kill -9 $pids 2>/dev/null # of unshare, and with it all in its namespace
    for pid in $pids; do wait "$pid" 2>/dev/null; done
    [ $code -eq 0 ] || tail -n 20 "$scratch/out.0" "$scratch/out.1"
    return $code
}

cases="half_without_the_lowest_goes_on_where_nodes_tell_who_has_ended and_ends_where_they_do_not"
net_suite "$cases" 2
idx_data "$scratch/data" 250 || exit 1
head -c 32 /dev/urandom >"$scratch/key"; chmod 600 "$scratch/key"
cat >"$scratch/net.cfg" <<EOF
rendezvous = { address = "$(net_address 0):7117"; key_file = "$scratch/key"; join_timeout = 12.0; };
link = { devices = "eth0"; };
EOF
mkdir -m 700 "$scratch/shared"
check half_without_the_lowest_goes_on_where_nodes_tell_who_has_ended \
    job 1 'elastic: rank [23] of 4 is rank [01] of 2' --shared "$scratch/shared"
check and_ends_where_they_do_not job 2 'too few to go on'
finish
