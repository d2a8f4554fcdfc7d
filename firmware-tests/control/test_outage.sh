#!/bin/sh
# An elastic job whose network is gone for a while, and in which nobody dies: within the outage and WITHIN (60) seconds
# all ranks are in again by themselves, with the same weights, and two sides were never in use. Hosts are network
# namespaces (root); all lose their cables at once.
# A case is HOSTSxRANKS:SECONDS; OUTAGES: other cases than the few here, RUNS times each.
# suite: alone
. firmware-tests/support/shell.sh
. firmware-tests/support/net.sh
few="2x1:3"
OUTAGES=${OUTAGES:-$few} RUNS=${RUNS:-1} WITHIN=${WITHIN:-60}

cables() { for host in $(seq 0 $((hosts - 1))); do net_cable "$host" "$1"; done; }
ranks_said() { [ "$(grep -El -- "$1" "$scratch"/log.* 2>/dev/null | grep -c .)" -eq "$world" ]; }
show() { for log in "$scratch"/log.*; do echo "== ${log##*/}"; tail -n 12 "$log"; done; return 1; }
# Each generation began at each of its ranks once, and all of them say how many those are.
one_side() {
    sed -n 's/.*rank \([0-9]*\) of \([0-9]*\): generation \([0-9]*\) has begun .*/\3 \1 \2/p' "$scratch"/log.* | awk '
        { if (seen[$1, $2]++ || (($1 in of) && of[$1] != $3)) { print "two sides of " $1; bad = 1 } of[$1] = $3 }
        END { exit bad }'
}
# All are of one world again, by the last generation that each of them has begun. Where none has noticed within five
# seconds, there is nothing to wait for.
all_in() {
    for turn in $(seq 1 $((WITHIN * 10))); do
        sleep 0.1
        [ "$turn" -lt 50 ] || grep -q ' of [0-9]*: generation .* has begun' "$scratch"/log.* || return 0
        in=0
        for log in "$scratch"/log.*; do
            last=$(sed -n 's/.* of \([0-9]*\): generation .* has begun .*/\1/p' "$log" | tail -n 1)
            [ "$last" != "$world" ] || in=$((in + 1))
        done
        [ $in -lt "$world" ] || return 0
    done
}
# away SECONDS: the cables; says in $away_ms for how long that was, which a busy machine makes more
away() {
    from_ms=$(($(date +%s%N) / 1000000))
    cables down && sleep "$1" && cables up; code=$?
    away_ms=$(($(date +%s%N) / 1000000 - from_ms))
    return $code
}
# An outage of a second more than it should be is another one, of which a keepalive of 1 s promises nothing.
outage() { # HOSTSxRANKS SECONDS
    for _ in 1 2 3 4 5 6; do
        if outage_once "$@" >"$scratch/shown"; then return 0; fi
        [ "$away_ms" -gt $(($2 * 1000 + 700)) ] || break
        echo "# the cables were away for $away_ms ms: once more"
    done
    cat "$scratch/shown"
    return 1
}
outage_once() { # HOSTSxRANKS SECONDS
    away_ms=0
    hosts=${1%x*} world=$((${1%x*} * ${1#*x}))
    rm -f "$scratch"/log.* "$scratch/stop"
    net_forget
    # shellcheck disable=SC2016
    GF_DEBUG=info net_run_nodes 150 "${1#*x}" sh -c '"$@" >"$0/log.$GF_RANK" 2>&1' "$scratch" \
        "$BUILD/firmware-tests/program_outage" "$scratch/net.cfg" "$scratch/stop" &
    job=$!
    if await 60 ranks_said "^ready"; then
        sleep "0.$(($(date +%N | cut -c 1-3 | sed 's/^0*//') + 100))"
        away "$2" && all_in
    fi
    touch "$scratch/stop"
    wait $job || { show; return 1; }
    ranks_said "^end: $world ranks" && one_side || { show; return 1; }
    ends=$(sed -n 's/^end: \(.*\), left out.*/\1/p' "$scratch"/log.* | sort -u | grep -c .)
    [ "$ends" = 1 ] || { echo "they end differently"; show; return 1; }
    ! grep -h " died" "$scratch"/log.* || { echo "nobody has died"; show; }
}
names=''
for case in $OUTAGES; do names="$names all_are_in_after_an_outage_$(echo "$case" | tr : _)_s"; done
net_suite "$names" 2
for case in $OUTAGES; do
    shape=${case%:*}
    [ "$net_hosts" = "${shape%x*}" ] || { net_down; net_up "gf$$" "${shape%x*}" 1gbit; }
    cat >"$scratch/net.cfg" <<END
rendezvous = { address = "$(net_address 0):7117"; insecure = true; keepalive = "1 s"; join_timeout = "30 s"; };
link = { devices = "eth0"; idle = "sleep"; };
END
    for run in $(seq 1 "$RUNS"); do
        check "all_are_in_after_an_outage_$(echo "$case" | tr : _)_s" outage "$shape" "${case#*:}"
    done
done
finish
