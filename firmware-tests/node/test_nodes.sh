#!/bin/sh
# Several ranks on each of several hosts: network namespaces whose processes do not see each other's memory (root).
# suite: alone
. firmware-tests/support/shell.sh
. firmware-tests/support/net.sh
export OPENBLAS_NUM_THREADS=1
config() {
    printf 'rendezvous = { address = "%s:7117"; insecure = true; };\nlink = { devices = "eth0"; idle = "sleep"; };\n' \
        "$(net_address 0)" >"$scratch/net.cfg"
}
# sums NAME: an allreduce of 1 MiB goes by that algorithm, and every element is right
sums() {
    # shellcheck disable=SC2016
    net_run_nodes 100 2 sh -c '[ $GF_RANK = 0 ] || exec "$@"; exec "$@" --csv '"$scratch/csv" sh "$BUILD/gf-perf" \
        --config "$scratch/net.cfg" -b 64K -e 1M -f 16 -n 3 -w 1 >"$scratch/out" 2>&1 || { tail -n 30 "$scratch/out"; return 1; }
    awk -F, -v name="$1" 'NR > 1 { rows++; if ($15 != 0) bad = 1; last = $16 } END { exit !(rows == 2 && last == name && !bad) }' "$scratch/csv" ||
        { cat "$scratch/csv"; return 1; }
}
trains() {
    net_run_nodes 100 2 "$BUILD/gf-train" --config "$scratch/net.cfg" $small --steps 30 >"$scratch/out" 2>&1 ||
        { tail -n 30 "$scratch/out"; return 1; }
    said "^weights .*, the same on all ranks"
}
# Two GPUs on each, which there are not: inside a node gradients go from device to device.
fake=$(cd "$BUILD" && pwd)/firmware-tests/fake/libcuda.so.1
devices="--device cuda --set device.library=$fake --data $scratch/data --batch 2"
trains_on_devices() {
    # shellcheck disable=SC2086
    GF_DEBUG=info net_run_nodes 100 2 "$BUILD/gf-train" --config "$scratch/net.cfg" $devices --model linear --steps 4 \
        >"$scratch/out" 2>&1 || { tail -n 30 "$scratch/out"; return 1; }
    said "^weights .*, the same on all ranks" && said "hierarchy: 2 nodes" && said "on a device, from device to device"
}
# names_the_dead [OPTIONS]: rank 3 ends when its host has sent 300 KB: both nodes name it.
names_the_dead() {
    # shellcheck disable=SC2016
    net_run_nodes 100 2 sh -c '[ $GF_RANK = 3 ] || exec "$@"; sent() { cat /sys/class/net/eth0/statistics/tx_bytes; }
        goal=$(($(sent) + 300000)); "$@" & rank=$!; until [ "$(sent)" -gt $goal ]; do sleep 0.1; done
        kill -9 $rank; exit 1' sh \
        "$BUILD/gf-train" --config "$scratch/net.cfg" ${1:-$small} --steps 9999999 --lr 1e-4 >"$scratch/out" 2>&1
    [ $? -lt 124 ] || { echo "did not end"; return 1; }
    for rank in 0 1 2; do said "^error: rank $rank: rank 3 died" || return 1; done
}
carried() { net_exec 0 cat "/sys/class/net/$1/statistics/tx_bytes"; }
# survives_an_outage: a second without a network, of a keepalive period of ten, in the middle of a training. Nobody has
# died, and no rank is elastic.
survives_an_outage() {
    idx_data "$scratch/outage" 250 || return 1
    sed 's/insecure/keepalive = "10 s"; insecure/' "$scratch/net.cfg" >"$scratch/outage.cfg"
    before=$(carried eth0)
    hold 500
    net_run_nodes 100 2 "$held" --config "$scratch/outage.cfg" --model linear --data "$scratch/outage" \
        --batch 12 --steps 1500 >"$scratch/out" 2>&1 &
    job=$!
    until [ $(($(carried eth0) - before)) -gt 10000000 ]; do # of 48 MB
        kill -0 $job 2>/dev/null || { echo "ended before the outage"; tail -n 30 "$scratch/out"; return 1; }
        sleep 0.05
    done
    net_cable 1 down
    sleep 1
    kill -0 $job 2>/dev/null && during=yes || during=no
    net_cable 1 up
    let_end
    wait $job && [ $during = yes ] || { echo "in the outage: $during"; tail -n 30 "$scratch/out"; return 1; }
    said "^weights .*, the same on all ranks"
}
# Each of two devices of a rank carries 40 to 60 percent, in whatever order a host lists them.
is_up() { [ "$(net_exec "$1" cat "/sys/class/net/$2/operstate")" = up ]; }
two_devices() {
    net_second 1gbit && net_forget || return 1
    sed 's/"eth0"/"eth0,eth1"/' "$scratch/net.cfg" >"$scratch/two.cfg"
    for host in 0 1; do # UCX takes a device once it is up
        for device in eth0 eth1; do await 60 is_up $host $device || return 1; done
    done
    first=$(carried eth0) second=$(carried eth1)
    net_run 100 "$BUILD/gf-perf" --config "$scratch/two.cfg" -b 4M -e 4M -n 3 -w 1 >"$scratch/out" 2>&1 ||
        { tail -n 30 "$scratch/out"; return 1; }
    first=$(($(carried eth0) - first)) second=$(($(carried eth1) - second))
    [ $((first * 2)) -lt $((second * 3)) ] && [ $((second * 2)) -lt $((first * 3)) ] ||
        { echo "eth0 $first, eth1 $second bytes"; return 1; }
}

cases="auto_takes_hierarchy_between_two_nodes ranks_of_two_nodes_train a_dead_rank_is_named_on_both_nodes \
an_outage_of_less_than_a_keepalive_period_ends_no_job \
devices_of_two_nodes_train a_dead_rank_with_a_device_is_named_on_both_nodes \
two_devices_share_the_bytes_of_two_ranks auto_takes_hierarchy_between_three_nodes \
two_devices_share_the_bytes_of_three_ranks"
net_suite "$cases" 2
config
check auto_takes_hierarchy_between_two_nodes sums hierarchy
check ranks_of_two_nodes_train trains
check a_dead_rank_is_named_on_both_nodes names_the_dead
check an_outage_of_less_than_a_keepalive_period_ends_no_job survives_an_outage
if "$BUILD/gf-train" --device cuda --set device.library=/nowhere 2>&1 | grep -q "/nowhere"; then
    idx_data "$scratch/data" 128
    check devices_of_two_nodes_train trains_on_devices
    # shellcheck disable=SC2086
    check a_dead_rank_with_a_device_is_named_on_both_nodes names_the_dead "$devices --model linear"
else
    for name in devices_of_two_nodes_train a_dead_rank_with_a_device_is_named_on_both_nodes; do
        skip "$name" "no cuda.h or no nvcc in this build"
    done
fi
check two_devices_share_the_bytes_of_two_ranks two_devices
net_down
net_up "gf$$" 3 1gbit
config
check auto_takes_hierarchy_between_three_nodes sums hierarchy
check two_devices_share_the_bytes_of_three_ranks two_devices
finish
