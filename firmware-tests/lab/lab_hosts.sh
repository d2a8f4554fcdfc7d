# shellcheck shell=sh disable=SC2034,SC2154 # shared with lab.sh
# Hosts as network namespaces, joined by a switch (a bridge in a namespace of its own), each link shaped in both directions.
# Names begin with the process id of the lab, so that several may run at once; hosts_down removes what hosts_up made.
prefix="lab$$-"
link_rate=100mbit

netns() { n_=$1; shift; ip netns exec "$prefix$n_" "$@"; }
port_shape() { netns "$1" tc qdisc replace dev "$2" root tbf rate "$3" burst 64k latency 50ms; }
link_shape() { port_shape "$1" eth0 "$2" && port_shape switch "port$1" "$2"; } # HOST RATE
cable() { ip -n "${prefix}switch" link set "port$1" "$2"; }                     # HOST up|down: its carrier goes with it
# After a cable was pulled: nobody remembers that a host could not be found, which would fail a job that begins now.
neighbours_forget() { for host in "$@"; do ip -n "$prefix$host" neigh flush all; done; }

host_up() {
    ip netns add "$prefix$1" && ip -n "$prefix$1" link set lo up &&
        ip -n "$prefix$1" link add eth0 type veth peer name "port$1" netns "${prefix}switch" &&
        ip -n "$prefix$1" addr add "10.77.0.$1/24" dev eth0 && ip -n "$prefix$1" link set eth0 up &&
        ip -n "${prefix}switch" link set "port$1" master bridge0 && cable "$1" up && link_shape "$1" $link_rate
}
hosts_up() { # HOST..
    ip netns add "${prefix}switch" && ip -n "${prefix}switch" link add bridge0 type bridge &&
        ip -n "${prefix}switch" link set bridge0 up || return 1
    for host in "$@"; do host_up "$host" || return 1; done
}
hosts_down() {
    ip netns list 2>/dev/null | sed -n "s/^\(${prefix}[a-z0-9]*\).*/\1/p" | while read -r name; do ip netns del "$name"; done
}
# Why there can be no lab here; nothing where there can.
hosts_missing() {
    if [ "$(id -u)" -ne 0 ]; then echo "needs root to make network namespaces"
    elif ! command -v ip >/dev/null || ! command -v tc >/dev/null || ! command -v ss >/dev/null; then echo "needs iproute2"
    elif ! hosts_up 9 2>/dev/null; then echo "this kernel or container lets nobody make namespaces with veth, bridge and tbf"
    fi
    hosts_down
}
