#!/bin/sh
# suite: long (two namespaces, half a minute)
# A split with a true list of the ended, over TCP: ranks {0,1,2}, and a new process of id 3 waits at rank 0. Rank 0 is
# cut off, and that process dies unseen. {1,2} go on, take in another process of id 3, and leave as planned. Rank 0 is
# told that 1 and 2 have ended, which is true, and believes that its connection to the first one stands: it must not go
# on, as the second one trains (firmware-tests/sim/test_view_schedules.c; firmware-tests/states/ searches such).
set -u
. firmware-tests/support/shell.sh
. firmware-tests/support/net.sh
row=who_is_told_of_the_ended_goes_on_beside_nobody

start() { # NAME RANK HOST: its process is $pid
    # shellcheck disable=SC2016
    GF_DEBUG=info GF_RANK=$2 GF_WORLD=3 GF_WORLD_MAX=4 GF_JOB=1 net_exec "$3" timeout -k 5 90 \
        sh -c 'echo $$ >"$0.pid"; exec "$@"' "$scratch/$1" "$BUILD/firmware-tests/program_outage" \
        "$scratch/host.$3" "$scratch/stop" "$scratch/ended.$3" "$scratch/hold" >"$scratch/log.$1" 2>&1 &
    pid=$!
}
pid_of() { cat "$scratch/$1.pid"; }
await_() { # NAME PATTERN: until its log says so, for 20 s
    for _ in $(seq 1 200); do if grep -Eq -- "$2" "$scratch/log.$1"; then return 0; fi; sleep 0.1; done
    echo "$1 did not say: $2"
    return 1
}
show() { for log in "$scratch"/log.*; do echo "== ${log##*/}"; tail -n 12 "$log"; done; return 1; }
split() {
    touch "$scratch/hold" "$scratch/ended.0" "$scratch/ended.1"
    start 0 0 0; zero=$pid
    start 1 1 1; start 2 2 1
    for rank in 0 1 2; do await_ $rank '^ready' || return 1; done
    start 3a 3 1
    await_ 0 'member id 3 waits to come in' || return 1
    net_cable 0 down
    kill -KILL "$(pid_of 3a)"
    net_exec 1 ip addr add "$(net_address 0)/32" dev lo # where the job is reached moves with those that go on
    for rank in 1 2; do await_ $rank 'of 2: epoch 2 has begun' || return 1; done
    start 3b 3 1; last=$pid
    rm "$scratch/hold"
    await_ 3b 'of 3: epoch 3 has begun' || return 1
    kill -USR1 "$(pid_of 1)" "$(pid_of 2)"
    await_ 3b 'of 1: epoch [45] has begun' || return 1
    for rank in 1 2; do await_ $rank 'has left' || return 1; done
    kill -0 $zero || { echo "rank 0 looked for the others no longer"; return 1; }
    echo 1 2 >"$scratch/ended.0"
    wait $zero && { echo "rank 0 did not fail"; return 1; }
    touch "$scratch/stop"
    wait $last || { echo "the last one failed"; return 1; }
    ! grep 'has begun' "$scratch/log.0" && await_ 3b '^end: 1 ranks'
}
splits() { split || show; }

net_suite $row 2
for host in 0 1; do
    cat >"$scratch/host.$host" <<END
rendezvous = {
    address = "$(net_address 0):7117"; insecure = true; join_timeout = "20 s"; keepalive = "$((60 - 59 * host)) s";
};
link = { devices = "eth0"; idle = "sleep"; };
exchange = { timeout = "2 s"; };
END
done
check $row splits
finish
