#!/bin/sh
# Several ranks on each of several hosts: network namespaces whose processes do not see each other's memory (root).
# suite: alone
. firmware-tests/support/shell.sh
. firmware-tests/support/net.sh
trap 'net_down; rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
export OPENBLAS_NUM_THREADS=1
said() { grep -Eq "$1" "$scratch/out" || { tail -n 30 "$scratch/out"; return 1; }; }
config() {
    printf 'rendezvous = { address = "%s:7117"; insecure = true; };\nlink = { transports = "self,posix,tcp"; devices = "eth0"; idle = "sleep"; };\n' \
        "$(net_address 0)" >"$scratch/net.cfg"
}
# sums NAME: an allreduce of 1 MiB goes by that algorithm, and every element is right
sums() {
    # shellcheck disable=SC2016
    net_run_nodes 60 2 sh -c '[ $GF_RANK = 0 ] || exec "$@"; exec "$@" --csv '"$scratch/csv" sh "$BUILD/gf-perf" \
        --config "$scratch/net.cfg" -b 64K -e 1M -f 16 -n 3 -w 1 >"$scratch/out" 2>&1 || { tail -n 30 "$scratch/out"; return 1; }
    awk -F, -v name="$1" 'NR > 1 { rows++; if ($15 != 0) bad = 1; last = $16 } END { exit !(rows == 2 && last == name && !bad) }' "$scratch/csv" ||
        { cat "$scratch/csv"; return 1; }
}
trains() {
    net_run_nodes 60 2 "$BUILD/gf-train" --config "$scratch/net.cfg" --model linear --steps 30 >"$scratch/out" 2>&1 ||
        { tail -n 30 "$scratch/out"; return 1; }
    said "^weights .*, the same on all ranks"
}
# Rank 3 ends in the middle: both nodes name it.
names_the_dead() {
    # shellcheck disable=SC2016
    net_run_nodes 60 2 sh -c '[ $GF_RANK = 3 ] || exec "$@"; "$@" & rank=$!; sleep 3; kill -9 $rank; wait $rank' sh \
        "$BUILD/gf-train" --config "$scratch/net.cfg" --model linear --steps 100000000 --lr 0.0001 >"$scratch/out" 2>&1
    [ $? -ne 124 ] || { echo "did not end"; return 1; }
    for rank in 0 1 2; do said "^error: rank $rank: rank 3 died" || return 1; done
}

cases="auto_takes_hierarchy_between_two_nodes ranks_of_two_nodes_train a_dead_rank_is_named_on_both_nodes \
auto_takes_messages_between_three_nodes"
if ! command -v ip >/dev/null || ! command -v tc >/dev/null || ! net_up "gf$$" 2 1gbit 2>/dev/null; then
    net_down
    for name in $cases; do skip "$name" "this user may not make network namespaces with shaped links"; done
    exit 0
fi
config
check auto_takes_hierarchy_between_two_nodes sums hierarchy
check ranks_of_two_nodes_train trains
check a_dead_rank_is_named_on_both_nodes names_the_dead
net_down
net_up "gf$$" 3 1gbit
config
check auto_takes_messages_between_three_nodes sums ring
finish
