#!/bin/sh
# suite: long (4 jobs of each cut, four minutes)
# What lies between two hosts of an elastic job of four is cut, one way or both; packets are lost; a card is slow, or a
# CPU is slow. Whoever is named is one of the two ends, and the others go on within exchange.timeout and 5 s; what is
# slow names nobody. Rank 0, which coordinates, is at neither end. RUNS jobs each (4), CUTS of them.
set -u
. firmware-tests/support/shell.sh
. firmware-tests/support/net.sh
CUTS=${CUTS:-one_way two_way loss slow_card slow_cpu} RUNS=${RUNS:-4} timeout_s=4
world=4

# FROM TO: what FROM sends does not reach TO, for FROM believes that TO has another card
drop() { net_exec "$1" ip neigh replace "$(net_address "$2")" lladdr 02:00:00:00:00:99 dev eth0 nud permanent; }
cut_one_way() { drop 2 3; }
cut_two_way() { drop 2 3 && drop 3 2; }
cut_loss() { net_lose 3 5; }
cut_slow_card() { net_shape 3 2mbit; }
cut_slow_cpu() { for _ in 1 2; do ( while [ ! -e "$scratch/stop" ]; do :; done ) & done; }
mend() {
    net_exec 2 ip neigh del "$(net_address 3)" dev eth0 2>/dev/null
    net_exec 3 ip neigh del "$(net_address 2)" dev eth0 2>/dev/null
    net_shape 3 1gbit
    net_lose 3 0
}
said_by() { grep -Eq -- "$2" "$scratch/log.$1"; }
show() { for log in "$scratch"/log.*; do echo "== ${log##*/}"; tail -n 8 "$log"; done; return 1; }
job() { # CUT
    rm -f "$scratch"/log.* "$scratch/stop"
    net_forget
    # shellcheck disable=SC2016
    GF_DEBUG=info net_run 60 sh -c '"$@" >"$0/log.$GF_RANK" 2>&1' "$scratch" "$BUILD/firmware-tests/program_outage" \
        "$scratch/net.cfg" "$scratch/stop" &
    job=$!
    until [ "$(grep -l '^ready' "$scratch"/log.* 2>/dev/null | grep -c .)" -eq $world ]; do
        kill -0 $job || { show; return 1; }
        sleep 0.1
    done
    sleep 0.5
    "cut_$1"
    sleep $((timeout_s + 5))
    touch "$scratch/stop"
    wait $job
    mend
    case $1 in
    *_way)
        named=$(sed -n -e 's/.*what rank \([0-9]\) [^;]*sends to rank \([0-9]\).*/\1 \2/p' \
            -e 's/.*the connection of rank \([0-9]\) [^;]* and rank \([0-9]\) [^;]*ended: .*/\1 \2/p' \
            "$scratch/log.0" | head -n 1)
        case $named in "2 3" | "3 2") ;; *) echo "named: $named"; show; return 1 ;; esac
        for rank in 0 1; do said_by $rank "^end: 3 ranks" || { show; return 1; }; done ;;
    *) for rank in 0 1 2 3; do said_by $rank "^end: 4 ranks" || { show; return 1; }; done
        ! grep -h "generation 2 has begun" "$scratch"/log.* ;;
    esac
}
names=''
for cut in $CUTS; do names="$names nobody_but_an_end_is_named_$cut"; done
net_suite "$names" $world
cat >"$scratch/net.cfg" <<END
rendezvous = { address = "$(net_address 0):7117"; insecure = true; keepalive = "1 s"; join_timeout = "30 s"; };
link = { devices = "eth0"; idle = "sleep"; };
exchange = { timeout = "$timeout_s s"; };
END
for cut in $CUTS; do
    if [ "$cut" = loss ] && ! net_lose 3 5 2>/dev/null; then
        skip nobody_but_an_end_is_named_loss "this kernel has no filter of packets (cls_bpf)"
        continue
    fi
    mend
    for run in $(seq 1 "$RUNS"); do check "nobody_but_an_end_is_named_$cut" job "$cut"; done
done
finish
