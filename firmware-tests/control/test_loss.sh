#!/bin/sh
# Ranks join over a network that loses one packet of ten, at random and in both directions; one is killed, and another
# process takes its place. All are in each time, and no process that lives is said to have died. RUNS such jobs.
# suite: long (12 s a job)
. firmware-tests/support/shell.sh
. firmware-tests/support/net.sh
world=4 RUNS=${RUNS:-1} LOSS=${LOSS:-10}

said_by_all() { # PATTERN RANK..
    pattern=$1; shift
    for _ in $(seq 1 600); do
        all=1
        for rank in "$@"; do grep -Eq -- "$pattern" "$scratch/log.$rank" 2>/dev/null || all=0; done
        [ $all = 0 ] || return 0
        sleep 0.1
    done
    echo "not said by all of $*: $pattern"
    return 1
}
rank_start() { # RANK CONFIGURATION LOG
    GF_RANK=$1 GF_WORLD=$world GF_DEBUG=info timeout -k 5 300 ip netns exec "$net_prefix-$1" \
        "$BUILD/firmware-tests/program_outage" "$scratch/$2.cfg" "$scratch/stop" >"$scratch/log.$3" 2>&1 &
    last=$!
}
job_run() {
    for rank in 0 1 2 3; do rank_start $rank first $rank; eval "pid_$rank=$last"; done
    said_by_all "^ready" 0 1 2 3 || return 1
    # shellcheck disable=SC2154
    ip netns pids "$net_prefix-3" | xargs kill -KILL
    said_by_all "of 3: generation 2 has begun" 0 1 2 || return 1
    rank_start 3 again back
    said_by_all "of 4: generation 3 has begun" 0 1 2 back || return 1
    touch "$scratch/stop"
    said_by_all "^end: 4 ranks" 0 1 2 back
}
job() {
    rm -f "$scratch"/log.* "$scratch/stop"
    net_forget
    job_run; code=$?
    touch "$scratch/stop"
    wait
    awk 'FNR == 1 { lives = (FILENAME ~ /back$/) }
        /generation 2 has begun/ { lives = 1 }
        / died/ && (lives || !/rank 3 died/) { print; found = 1 }
        END { exit found }' "$scratch"/log.* || code=1
    [ $code = 0 ] || for log in "$scratch"/log.*; do echo "== ${log##*/}"; tail -n 12 "$log"; done
    return $code
}
name=all_come_in_where_a_packet_of_ten_is_lost
net_suite $name $world
for rank in 0 1 2 3; do
    net_lose $rank "$LOSS" 2>/dev/null || { skip $name "this kernel has no filter of packets (cls_bpf)"; finish; }
done
cat >"$scratch/first.cfg" <<END
rendezvous = { address = "$(net_address 0):7117"; insecure = true; keepalive = "1 s"; join_timeout = "30 s"; };
link = { devices = "eth0"; idle = "sleep"; };
END
sed 's/insecure/rejoin = true; &/' "$scratch/first.cfg" >"$scratch/again.cfg"
for run in $(seq 1 "$RUNS"); do check $name job; done
finish
