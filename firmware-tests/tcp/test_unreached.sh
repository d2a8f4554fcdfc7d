#!/bin/sh
# Two ranks that join and cannot connect to each other for their messages: both say which two, at what
# address, by which device, what the kernel says, and what to set; a rank that lacks something itself
# names itself. Each row is two network namespaces with a control network (eth0); all run at once.
set -u
. firmware-tests/support/shell.sh
if [ "${1:-}" != inside ]; then
    if ! unshare -nm true 2>/dev/null; then
        skip ranks_that_do_not_reach_each_other "namespaces are not allowed"
        finish
    fi
    exec unshare -nm sh "$0" inside
fi
mount --make-rprivate / 2>/dev/null; mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns || exit 1
perf=$(cd "$BUILD" && pwd)/gf-perf gf_check=$(cd "$BUILD" && pwd)/gf-check

pair() { # NAME DEVICES: $1.a and $1.b with eth0, a control network; and the row's file
    for end in a b; do ip netns add "$1.$end" && ip -n "$1.$end" link set lo up; done
    ip link add eth0 netns "$1.a" type veth peer name eth0 netns "$1.b"
    ip -n "$1.a" addr add 10.56.0.1/24 dev eth0; ip -n "$1.b" addr add 10.56.0.2/24 dev eth0
    for end in a b; do ip -n "$1.$end" link set eth0 up; done
    cat >"$scratch/$1.cfg" <<-END
	job = { world = 2; };
	rendezvous = { address = "10.56.0.1:17117"; insecure = true; join_timeout = "20 s"; };
	exchange = { timeout = "${limit:-1500 ms}"; };
	link = { $2 };
	END
}
device() { # NAME END ADDRESS DEVICE TYPE..
    name_=$1.$2 address_=$3 device_=$4; shift 4
    ip -n "$name_" link add "$device_" type "$@" && ip -n "$name_" addr add "$address_" dev "$device_" &&
        ip -n "$name_" link set "$device_" up
}
start() { # NAME COMMAND..: on both; the exit codes and what was said go to $scratch/NAME.end.*
    name_=$1; shift
    for end in a b; do
        [ $end = a ] && rank=0 || rank=1
        (export GF_RANK=$rank GF_WORLD=2 GF_JOB=9
            timeout -k 5 100 ip netns exec "$name_.$end" "$@" >"$scratch/$name_.$end" 2>&1
            echo $? >"$scratch/$name_.$end.code") &
    done
}
both() { start "$1" "$perf" --config "$scratch/$1.cfg" -b 1K -e 1K -n 1; }

pair docker 'devices = "docker0";'
for end in a b; do device docker $end 172.17.0.1/16 docker0 bridge; done
both docker
pair lo 'devices = "lo";'
both lo
pair apart 'devices = "eth1";'
device apart a 10.61.0.1/24 eth1 veth peer name eth1x
device apart b 10.62.0.1/24 eth1 veth peer name eth1x
for end in a b; do ip -n apart.$end link set eth1x up; done
both apart
pair nohost 'devices = "eth1";' # one subnet, two wires: nobody answers for the address
device nohost a 10.61.0.1/24 eth1 veth peer name eth1x
device nohost b 10.61.0.2/24 eth1 veth peer name eth1x
for end in a b; do
    ip -n nohost.$end link set eth1x up
    ip netns exec nohost.$end sh -c 'echo 100 >/proc/sys/net/ipv4/neigh/eth1/retrans_time_ms'
done
both nohost
pair rights 'devices = "eth1";' # this host's own policy forbids the way
device rights a 10.61.0.1/24 eth1 veth peer name eth1x
device rights b 10.61.0.2/24 eth1 veth peer name eth1x
for end in a b; do ip -n rights.$end link set eth1x up; done
ip -n rights.a route add prohibit 10.61.0.2/32; ip -n rights.b route add unreachable 10.61.0.1/32
both rights
pair six 'devices = "eth1";' # IPv6, and what stands between the hosts forbids the way: the same errno
ip netns add six.r; ip netns exec six.r sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/forwarding'
for end in a b; do
    [ $end = a ] && n=1 || n=2
    ip link add eth1 netns six.$end type veth peer name eth$n netns six.r
    ip -n six.$end addr add fd56::$n/64 dev eth0 nodad; ip -n six.$end addr add fd6$n::1/64 dev eth1 nodad
    ip -n six.r addr add fd6$n::ff/64 dev eth$n nodad
    ip -n six.$end link set eth1 up; ip -n six.r link set eth$n up
    ip -n six.$end route add default via fd6$n::ff
done
ip -n six.r route add prohibit fd62::1
sed -i 's/10\.56\.0\.1:/[fd56::1]:/' "$scratch/six.cfg"
both six
pair blackhole 'devices = "eth1";' # what connect() answers to that is EINVAL
device blackhole a 10.61.0.1/24 eth1 veth peer name eth1x
device blackhole b 10.61.0.2/24 eth1 veth peer name eth1x
for end in a b; do ip -n blackhole.$end link set eth1x up; done
ip -n blackhole.a route add blackhole 10.61.0.2/32; ip -n blackhole.b route add blackhole 10.61.0.1/32
both blackhole
pair files 'streams = 8;'
start files bash -c 'if [ "$GF_RANK" = 1 ]; then
    ulimit -n 60
    for i in {1..44}; do exec {fd}</dev/null; done
fi
exec "$@"' - "$perf" --config "$scratch/files.cfg" -b 1K -e 1K -n 1
limit='6 s' pair look 'devices = "docker0";'
for end in a b; do device look $end 172.17.0.1/16 docker0 bridge; done
start look "$gf_check" "$scratch/look.cfg" --preflight --deadline 2
wait

say() { for end in a b; do sed "s/^/# $end: /" "$scratch/$1.$end"; done; return 1; }
ends() { # NAME TEXT: both end by themselves, and the error of both matches TEXT
    for end in a b; do
        [ "$(cat "$scratch/$1.$end.code")" = 1 ] || say "$1" || return 1
        grep -Eq "error: rank [01]: $2" "$scratch/$1.$end" || say "$1" || return 1
    done
}
between='rank ([01]) cannot connect to rank ([01]) at'
check one_address_on_all_hosts_is_named ends docker \
    "$between 172\.17\.0\.1:[0-9]+ by docker0 \(172\.17\.0\.1\): .*; both have that address.*set link.devices"
check the_loopback_device_is_named ends lo \
    "$between 127\.0\.0\.1:[0-9]+ by lo .*; a loopback address .*set link.devices"
check two_subnets_are_named ends apart \
    "$between 10\.6[12]\.0\.1:[0-9]+ by eth1 \(10.*: Network is unreachable.*different subnets: set link.devices"
check a_host_that_does_not_answer_is_named_with_the_kernels_word ends nohost \
    "$between 10\.61\.0\.[12]:[0-9]+ by eth1 .*: No route to host \(errno 113\); a route, a firewall"
check a_blackhole_is_named ends blackhole \
    "$between 10\.61\.0\.[12]:[0-9]+ by eth1 .*: Invalid argument \(errno 22\); a route that is a blackhole"
way='at 10\.61\.0\.2:[0-9]+ by eth1 \(10\.61\.0\.1\)'
check what_a_rank_may_not_do_is_its_own ends rights \
    "(rank 0 gave up: )?rank 0 cannot open its connection to rank 1 $way: Permission denied"
check what_a_firewall_of_ipv6_forbids_is_no_lack_of_a_rank ends six \
    "$between \[fd6[12]::1\]:[0-9]+ by eth1 \(fd6[12]::1\): Permission denied \(errno 13\)"
check a_rank_without_descriptors_names_itself_and_the_limit ends files \
    "(rank 1 gave up: )?rank 1 cannot open its connection to rank 0: Too many open files \(errno 24\): the limit is 60"
reach() { grep -q '^fail  interface .*docker0 is up, but ranks do not reach each other' "$scratch/look.a" &&
    ! grep -q '^ok    interface' "$scratch/look.a" || say look; }
check gf_check_does_not_call_such_a_device_ok reach
finish
