#!/bin/sh
# suite: long (three namespaces, half a minute)
# A network that is cut in two, with the coordinator on the smaller side: that side goes on. The larger one, which
# cannot reach it, begins no generation: its ranks end and name the coordinator. Started again they come in, and all end
# with the same weights.
set -u
. firmware-tests/support/shell.sh
. firmware-tests/support/net.sh
row="the_side_of_the_coordinator_goes_on and_the_other_comes_in_once_it_is_started_again"

await_() { # RANK PATTERN SECONDS: until its log says so
    for _ in $(seq 1 $(($3 * 10))); do if grep -Eq -- "$2" "$scratch/log.$1"; then return 0; fi; sleep 0.1; done
    echo "rank $1 did not say: $2"
    return 1
}
show() { for log in "$scratch"/log.* "$scratch/told"; do echo "== ${log##*/}"; tail -n 12 "$log"; done; return 1; }
rank_start() { # RANK REJOIN: its process is $pid
    # shellcheck disable=SC2016
    GF_RANK=$1 GF_WORLD=3 GF_JOB=1 GF_COORDINATOR=separate GF_REJOIN=$2 GF_DEBUG=info net_exec "$1" \
        timeout -k 1 300 "$BUILD/firmware-tests/program_outage" "$scratch/net.cfg" "$scratch/stop" \
        >"$scratch/log.$1" 2>&1 &
    pid=$!
}
goes_on() {
    net_exec 0 timeout -k 1 300 "$BUILD/gf-coordinator" --config "$scratch/net.cfg" --job 1 --world 3 \
        >"$scratch/told" 2>&1 & coordinator=$!
    rank_start 0 0; zero=$pid
    rank_start 1 0; one=$pid
    rank_start 2 0; two=$pid
    for rank in 0 1 2; do await_ $rank '^ready' 60 || return 1; done
    net_cable 0 down # ranks 1 and 2 reach each other and nobody else
    await_ 0 'of 1: generation 2 has begun' 60 || return 1
    wait $one && { echo "rank 1 went on"; return 1; }
    wait $two && { echo "rank 2 went on"; return 1; }
    for rank in 1 2; do await_ $rank "^error: rank $rank: the coordinator at $(net_address 0):7117" 1 || return 1; done
    ! grep -l 'generation 2 has begun' "$scratch"/log.[12]
}
comes_in() {
    net_cable 0 up
    rank_start 1 1; one=$pid
    rank_start 2 1; two=$pid
    for rank in 0 1 2; do await_ $rank 'of 3: generation [3-9] has begun' 60 || return 1; done
    touch "$scratch/stop"
    wait $zero && wait $one && wait $two && wait $coordinator || return 1
    sed -n 's/^end: 3 ranks, \(.*\), left out.*/\1/p' "$scratch"/log.* | sort | uniq -c >"$scratch/ends"
    [ "$(awk '{ print $1 }' "$scratch/ends")" = 3 ] || { cat "$scratch/ends"; return 1; }
}
goes_on_or_show() { goes_on || show; }
comes_in_or_show() { comes_in || show; }

net_suite "$row" 3
cat >"$scratch/net.cfg" <<END
rendezvous = { address = "$(net_address 0):7117"; insecure = true; join_timeout = "20 s"; keepalive = "1 s"; };
link = { devices = "eth0"; idle = "sleep"; };
exchange = { timeout = "2 s"; };
END
check the_side_of_the_coordinator_goes_on goes_on_or_show
check and_the_other_comes_in_once_it_is_started_again comes_in_or_show
finish
