#!/bin/sh
# suite: long (namespaces)
# Two nodes (network namespaces, root) with a gf-run each and two ranks there; the coordinator is node 0's. Whatever
# ranks are killed at once, the others go on; who is started again comes in, from either node. The job ends with node 0.
. firmware-tests/support/shell.sh
. firmware-tests/support/net.sh
export OPENBLAS_NUM_THREADS=1 LC_ALL=C

# job_start OPTIONS..: of gf-run; until rank 3 has saved a step
number=0
job_start() {
    number=$((number + 1)) pids=''
    rm -f "$scratch"/c.*
    for host in 0 1; do
        ip netns exec "$net_prefix-$host" unshare --ipc --pid --fork --kill-child --mount-proc \
            timeout -k 1 150 "$BUILD/gf-run" -n 2 --nodes 2 --node-rank $host --job "nodes.$$.$number" \
            --config "$scratch/net.cfg" "$@" "$BUILD/gf-train" --config "$scratch/net.cfg" --model linear \
            --data "$scratch/data" --batch 12 --elastic --steps 100000000 --lr 0.0001 \
            --checkpoint "$scratch/c" --checkpoint-every 100 >"$scratch/out.$host" 2>&1 & pids="$pids $!"
    done
    for _ in $(seq 1 600); do [ ! -s "$scratch/c.3" ] || return 0; sleep 0.1; done
    show
}
show() { tail -n 15 "$scratch/out.0" "$scratch/out.1"; return 1; }
job_end() {
    # shellcheck disable=SC2086
    kill -9 $pids 2>/dev/null # of unshare, and with it all in its namespace
    for pid in $pids; do wait "$pid" 2>/dev/null; done
}
# at_once RANK..: they are killed by one kill
at_once() {
    # shellcheck disable=SC2046
    kill -9 $(for rank in "$@"; do net_pids $((rank / 2)) gf-train "$rank"; done)
}
# says COUNT PATTERN: both nodes' ranks have said it so often
says() {
    for _ in $(seq 1 600); do
        [ "$(cat "$scratch/out.0" "$scratch/out.1" | grep -Ec "$2")" -lt "$1" ] || return 0
        sleep 0.1
    done
    show
}
goes_on() { # COUNT RANK..: so many are left
    left=$1; shift
    job_start --elastic && at_once "$@" && says "$left" "elastic: rank . of 4 is rank . of $left"; code=$?
    job_end
    return $code
}
comes_back() { # RANK..
    job_start --restart 2 && at_once "$@" && says $# 'came back as rank . of [34] '; code=$?
    job_end
    return $code
}
ends_with_node_0() { # its gf-run and all there are gone; node 1's ranks dial for join_timeout, and name it
    job_start --elastic || return 1
    began=$(date +%s)
    # shellcheck disable=SC2086
    set -- $pids
    kill -9 "$1"
    wait "$2"; code=$?
    echo "# node 1 ended after $(($(date +%s) - began)) s" >&2
    job_end
    [ $code -ne 0 ] && [ $code -lt 124 ] && grep -q "the coordinator at $(net_address 0):7117 cannot be reached" \
        "$scratch/out.1" || show
}

cases="ranks_of_node_0_die ranks_of_node_1_die all_but_one_die ranks_of_both_come_back it_ends_with_node_0"
net_suite "$cases" 2
idx_data "$scratch/data" 250 || exit 1
head -c 32 /dev/urandom >"$scratch/key"; chmod 600 "$scratch/key"
cat >"$scratch/net.cfg" <<EOF
rendezvous = { address = "$(net_address 0):7117"; key_file = "$scratch/key"; join_timeout = 12.0; };
link = { devices = "eth0"; };
EOF
check ranks_of_node_0_die goes_on 2 0 1
check ranks_of_node_1_die goes_on 2 2 3
check all_but_one_die goes_on 1 0 1 2
check ranks_of_both_come_back comes_back 0 3
check it_ends_with_node_0 ends_with_node_0
finish
