#!/bin/sh
# Networks that do less than the hosts' devices: one between hosts with an MTU of 9000 that drops what is longer than it
# takes, without a word; and two devices of each host on one network, of which the kernel would use one.
. firmware-tests/support/shell.sh
. firmware-tests/support/net.sh
names="only_large_messages_are_lost_and_the_error_says_mtu preflight_says_mtu two_devices_on_one_network_both_carry"
net_suite "$names" 2
# At the switch, where TCP is not told: a packet longer than BYTES is dropped; no BYTES: none is.
longest() {
    for i in 0 1; do
        sw="ip netns exec $net_prefix-sw tc" port="dev port$i"
        # shellcheck disable=SC2086
        $sw qdisc del $port clsact 2>/dev/null
        # shellcheck disable=SC2086
        [ -z "${1:-}" ] || { $sw qdisc add $port clsact && $sw filter add $port ingress bpf direct-action \
            bytecode "4,128 0 0 0,37 0 1 $1,6 0 0 2,6 0 0 0"; } || return 1
    done
}
jumbo() { # BYTES
    ip -n "$net_prefix-sw" link set bridge mtu "$1"
    for i in 0 1; do
        ip -n "$net_prefix-sw" link set "port$i" mtu "$1"
        ip -n "$net_prefix-$i" link set eth0 mtu "$1" gso_max_segs 1 || return 1
    done
}
{ net_config; echo 'exchange = { timeout = "1500 ms"; };'; } >"$scratch/one.cfg"
perf() { net_run 100 "$BUILD/gf-perf" --config "$scratch/$1.cfg" -b "$2" -e "$2" -n "$3" -w 1 >"$scratch/out" 2>&1; }
preflight() { net_run 100 "$BUILD/gf-check" "$scratch/$1.cfg" --preflight --deadline 2 >"$scratch/out" 2>&1; }
sent() { ip netns exec "$net_prefix-0" cat "/sys/class/net/$1/statistics/tx_bytes"; }

# ---- an MTU that the network does not have ----
check "hosts_have_jumbo_frames" jumbo 9000
check "of_which_those_up_to_1514_bytes_pass" longest 1514
check "small_messages_pass" perf one 1K 5
check_not "only_large_messages_are_lost" perf one 1M 5
mtu='is not acknowledged:.* \(small messages pass, packets of 9000 bytes do not: MTU\?\)'
check "and_the_error_of_each_rank_says_mtu" same 2 "$(grep -cE "error: .*$mtu" "$scratch/out")"
check_not "preflight_fails" preflight one
check "its_words_of_the_first_frames_are_mtu" \
    said '^fail  large .* a small frame came from 1 rank, one of 4096 bytes did not: MTU'
check "up_to_6000_bytes_pass" longest 6000
check_not "preflight_meets_and_fails" preflight one
check "its_words_of_a_large_sum_are_mtu" \
    said '^fail  large .* one of 2 MiB did not: .*packets of 9000 bytes do not: MTU\?'
longest
jumbo 1500

# ---- two devices on one network ----
twins() {
    for i in 0 1; do
        at=$net_prefix-$i
        ip -n "$at" link add eth1 type veth peer name "twin$i" netns "$net_prefix-sw" &&
            ip -n "$at" addr add "10.213.7.$((i + 101))/24" dev eth1 && ip -n "$at" link set eth1 up &&
            ip -n "$net_prefix-sw" link set "twin$i" master bridge up || return 1
        for dev in all eth0 eth1; do
            ip netns exec "$at" sysctl -qw "net.ipv4.conf.$dev.rp_filter=0" || return 1
        done
    done
}
even() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < 3 * b && b < 3 * a) }' || { echo "$1 and $2 bytes"; return 1; }; }
{ net_config | sed 's/"eth0"/"eth0,eth1"/'; echo 'exchange = { timeout = "5 s"; };'; } >"$scratch/two.cfg"
check "hosts_get_a_second_device" twins
first=$(sent eth0) second=$(sent eth1)
check "a_job_runs_over_two_devices_of_one_network" perf two 4M 10
check "both_carry" even $(($(sent eth0) - first)) $(($(sent eth1) - second))
check "and_what_is_to_be_set_is_said" said 'devices eth[01] and eth[01] are on one network,.*arp_ignore=1'
net_forget
check "preflight_takes_them" preflight two
check "as_both_carry" said '^ok    devices .*each carries: a large sum sent by eth0 .*, eth1'
check "it_recommends_one" said '^ok    devices .*link.devices = "eth0"$'
for i in 0 1; do ip netns exec "$net_prefix-$i" sysctl -qw net.ipv4.conf.all.rp_filter=1; done
net_forget
first=$(sent eth0) second=$(sent eth1)
check "where_the_kernel_drops_what_comes_by_the_second_a_job_runs" perf two 4M 10
check "over_the_first" [ $(($(sent eth1) - second)) -lt $((($(sent eth0) - first) / 100)) ]
check "which_is_said" said 'devices eth1 and eth0 are on one network, .*no connection stands that is bound to the first'
net_forget
preflight two
check "and_preflight_warns" said '^warn  devices .*do not all carry: a large sum sent by eth0 .*, eth1 0\.0 MiB'
finish
