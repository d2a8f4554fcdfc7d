# Hosts of a slow network as namespaces of this machine (root): host i is PREFIX-i, its interface eth0 has net_address i,
# and a token bucket bounds what leaves it and what reaches it. A bridge in PREFIX-sw joins them.
#     net_up PREFIX COUNT RATE     RATE as tc writes it: 1gbit, 100mbit; empty: no limit
#     net_run LIMIT COMMAND..      one rank of COMMAND on each host, GF_RANK and GF_WORLD set; the first failure's exit code,
#                                  or timeout's, 124 or 137, where any did not end
#     net_run_nodes LIMIT RANKS COMMAND..   RANKS ranks on each host, which share memory there and only there
#     net_exec HOST COMMAND..      on one host
#     net_shape HOST RATE, net_cable HOST up|down    another rate; its carrier goes with the cable
#     net_lose HOST PERCENT        so much of what leaves it is lost, drawn anew for each packet; 0: nothing
#     net_second RATE              every host gets eth1 too, in a network of its own: net_second_address i
#     net_close HOST PORT             no packet of TCP from or to that port passes its cable; 0: all pass again
#     net_pids HOST COMMAND [RANK]    processes of that name there; of a rank alone
#     net_forget                   nobody remembers that a host could not be found, which would fail a job that begins now
#     net_missing                  why there can be no hosts here; nothing where there can
#     net_down                     with what still runs there
# CONGESTION is TCP's congestion control there, reno. With bbr each flow falls to a tenth for 0.2 s in every 10 s, and
# may send nothing for 5 s after a cut of 0.5 s (results/peers.md, results/faults.md).
# net_burst is what may beat the rate for a moment after a pause; at least a packet before it is cut (64 KiB).
net_prefix='' net_hosts=0 net_burst=${NET_BURST:-512k}
net_address() { echo "10.213.7.$(($1 + 1))"; }
net_second_address() { echo "10.213.8.$(($1 + 1))"; }
net_switch_address() { echo 10.213.7.254; }
net_exec() { net_host=$1; shift; ip netns exec "$net_prefix-$net_host" "$@"; }
net_limit() {
    [ -z "$3" ] || ip netns exec "$1" tc qdisc replace dev "$2" root tbf rate "$3" burst "$net_burst" latency 50ms
}
net_shape() { net_limit "$net_prefix-$1" eth0 "$2" && net_limit "$net_prefix-sw" "port$1" "$2"; }
net_cable() { ip -n "$net_prefix-sw" link set "port$1" "$2"; }
# A filter of four instructions: a random word below the limit drops the packet. It needs no netem, which kernels of
# virtual machines often lack. It sits at the switch: of a drop on its own way out TCP would be told.
net_lose() {
    net_sw="ip netns exec $net_prefix-sw tc" net_port="dev port$1"
    # shellcheck disable=SC2086
    $net_sw qdisc del $net_port clsact 2>/dev/null
    [ "$2" -ne 0 ] || return 0
    # shellcheck disable=SC2086
    $net_sw qdisc add $net_port clsact && $net_sw filter add $net_port ingress bpf direct-action \
        bytecode "4,32 0 0 4294963256,53 1 0 $((4294967296 / 100 * $2)),6 0 0 2,6 0 0 0"
}
net_forget() { for net_i in $(seq 0 $((net_hosts - 1))); do ip -n "$net_prefix-$net_i" neigh flush all; done; }
net_missing() {
    if [ "$(id -u)" -ne 0 ]; then echo "needs root to make network namespaces"
    elif ! command -v ip >/dev/null || ! command -v tc >/dev/null || ! command -v ss >/dev/null; then echo "needs iproute2"
    elif ! net_up "gf$$-probe" 1 1gbit 2>/dev/null; then echo "this kernel or container lets nobody make namespaces with veth, bridge and tbf"
    fi
    net_down
}
net_up() {
    net_prefix=$1 net_hosts=$2
    ip netns add "$1-sw" && ip -n "$1-sw" link add bridge type bridge && ip -n "$1-sw" link set lo up &&
        ip -n "$1-sw" addr add "$(net_switch_address)/24" dev bridge && ip -n "$1-sw" link set bridge up || return 1
    for net_i in $(seq 0 $(($2 - 1))); do
        ip netns add "$1-$net_i" && ip -n "$1-$net_i" link set lo up &&
            ip -n "$1-$net_i" link add eth0 type veth peer name "port$net_i" netns "$1-sw" &&
            ip -n "$1-$net_i" addr add "$(net_address "$net_i")/24" dev eth0 && ip -n "$1-$net_i" link set eth0 up &&
            ip -n "$1-sw" link set "port$net_i" master bridge up &&
            net_shape "$net_i" "$3" || return 1
        net_exec "$net_i" sysctl -qw "net.ipv4.tcp_congestion_control=${CONGESTION:-reno}" ||
            [ -z "${CONGESTION:-}" ] || return 1
    done
}
net_second() {
    ip -n "$net_prefix-sw" link add second type bridge && ip -n "$net_prefix-sw" link set second up || return 1
    for net_i in $(seq 0 $((net_hosts - 1))); do
        net_host=$net_prefix-$net_i
        ip -n "$net_host" link add eth1 type veth peer name "second$net_i" netns "$net_prefix-sw" &&
            ip -n "$net_host" addr add "$(net_second_address "$net_i")/24" dev eth1 &&
            ip -n "$net_host" link set eth1 up &&
            ip -n "$net_prefix-sw" link set "second$net_i" master second up &&
            net_limit "$net_host" eth1 "$1" && net_limit "$net_prefix-sw" "second$net_i" "$1" || return 1
    done
}
net_down() {
    [ -n "$net_prefix" ] || return 0
    for net_i in $(seq 0 $((net_hosts - 1))) sw; do
        ip netns pids "$net_prefix-$net_i" 2>/dev/null | xargs -r kill -KILL 2>/dev/null
        ip netns delete "$net_prefix-$net_i" 2>/dev/null
    done
    net_prefix=''
}
# net_suite "CASES" COUNT: so many hosts at 1 Gbit/s for what follows of a suite; where there can be none the cases are
# skipped, and that is all
net_suite() {
    trap 'net_down; rm -rf "$scratch"' EXIT
    trap 'exit 1' INT TERM
    net_why=$(net_missing)
    [ -n "$net_why" ] || ! net_up "gf$$" "$2" 1gbit || return 0
    for net_i in $1; do skip "$net_i" "${net_why:-the hosts cannot be made}"; done
    finish
}
# net_begin NAME: for a benchmark that has $scratch: leaves nothing behind, and says so where namespaces may not be made
net_begin() {
    trap 'net_down; rm -rf "$scratch"' EXIT
    trap 'exit 1' INT TERM
    net_why=$(net_missing)
    [ -z "$net_why" ] || { echo "$1: $net_why" >&2; exit 1; }
}
# net_config [MORE]: a configuration for ranks on these hosts; MORE of the group "link"
net_config() {
    echo "rendezvous = { address = \"$(net_address 0):7117\"; insecure = true; };"
    echo "link = { devices = \"eth0\"; ${1:-}};"
}
# Payload bytes a second of a link, of its rate in Mbit/s: 1448 of 1538 bytes on the wire are payload, but the bucket
# counts neither preamble, gap nor checksum (24 bytes).
net_payload() { awk -v mbit="$1" 'BEGIN { print mbit * 1e6 / 8 * 1448 / 1514 }'; }
# Ten instructions: is it IPv4, TCP, and one of its ports this one?
net_close() {
    net_sw="ip netns exec $net_prefix-sw tc" net_port="dev port$1"
    # shellcheck disable=SC2086
    $net_sw qdisc del $net_port clsact 2>/dev/null
    [ "$2" -ne 0 ] || return 0
    # shellcheck disable=SC2086
    $net_sw qdisc add $net_port clsact || return 1
    for net_way in ingress egress; do
        # shellcheck disable=SC2086
        $net_sw filter add $net_port $net_way bpf direct-action bytecode \
            "10,40 0 0 12,21 0 6 2048,48 0 0 23,21 0 4 6,40 0 0 34,21 3 0 $2,40 0 0 36,21 1 0 $2,6 0 0 0,6 0 0 2" ||
            return 1
    done
}
net_pids() {
    for net_pid in $(ip netns pids "$net_prefix-$1"); do
        [ "$(cat "/proc/$net_pid/comm" 2>/dev/null)" = "$2" ] || continue
        [ -z "${3:-}" ] || tr '\0' '\n' <"/proc/$net_pid/environ" | grep -Eqx "(GF_RANK|SLURM_PROCID)=$3" || continue
        echo "$net_pid"
    done
}
net_wait() {
    net_code=0
    for net_pid in $net_pids; do
        wait "$net_pid"; net_last=$?
        [ $net_code -ne 0 ] && [ $net_last -lt 124 ] || net_code=$net_last
    done
    return $net_code
}
net_run() {
    net_limit_s=$1; shift
    net_pids=''
    for net_i in $(seq 0 $((net_hosts - 1))); do
        GF_RANK=$net_i GF_WORLD=$net_hosts timeout -k 5 "$net_limit_s" ip netns exec "$net_prefix-$net_i" "$@" &
        net_pids="$net_pids $!"
    done
    net_wait
}
net_run_nodes() {
    net_limit_s=$1 net_ranks=$2; shift 2
    net_pids=''
    for net_i in $(seq 0 $((net_hosts - 1))); do
        # shellcheck disable=SC2016
        ip netns exec "$net_prefix-$net_i" sh -c '
            first=$1 ranks=$2 limit=$3; shift 3
            pids="" code=0
            for rank in $(seq "$first" $((first + ranks - 1))); do
                GF_RANK=$rank timeout -k 5 "$limit" "$@" & pids="$pids $!"
            done
            for pid in $pids; do wait "$pid"; last=$?; [ $code -ne 0 ] && [ $last -lt 124 ] || code=$last; done
            exit $code' sh $((net_i * net_ranks)) "$net_ranks" "$net_limit_s" env GF_WORLD=$((net_hosts * net_ranks)) "$@" &
        net_pids="$net_pids $!"
    done
    net_wait
}
