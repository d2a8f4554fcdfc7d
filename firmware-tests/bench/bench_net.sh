#!/bin/sh
# Allreduce between hosts of a slow network beside what users would pick instead: `make bench-net` (root). The hosts are
# network namespaces with RATE_MBIT links both ways; contenders take turns, ROUNDS times over. A turn gives its mean,
# for behind stalls in which a link's bucket fills most samples go faster than the link, and the median of the rounds.
# Prints the tables of firmware-tests/results/peers.md. HOSTS="2 4" PARTS="sizes nodes devices small resnet".
# UCC_PREFIX, GLOO_PREFIX: as for bench_peers.sh.
set -u
export LC_ALL=C
. firmware-tests/bench/bench_parts.sh
. firmware-tests/support/net.sh
net_begin bench-net
ROUNDS=${ROUNDS:-5} RATE_MBIT=${RATE_MBIT:-1000} HOSTS=${HOSTS:-2 4} PARTS=${PARTS:-sizes nodes devices small resnet}
MODEL_ROUNDS=${MODEL_ROUNDS:-3} # ResNet-50 takes 1.3 s a step
sizes="8 4096 65536 262144 4194304 16777216" ours_only="67108864"
agent=$PWD/firmware-tests/support/net_agent.sh
peers_build

# keep LABEL: what the last command printed
keep() { awk -v label="$1" 'NF == 2 {print label, $1, $2}' "$scratch/turn" >>"$times"; }
failed() { echo "# $1 failed: $(tail -n 1 "$scratch/turn.err")" >&2; }
# ours LABEL FACTOR OPTION..: gf-perf; sizes are multiplied by FACTOR to count fp32 bytes
ours_run="net_run 120"
ours() {
    ours_label=$1 ours_factor=$2; shift 2
    rm -f "$scratch/csv"
    # shellcheck disable=SC2016
    $ours_run sh -c '[ $GF_RANK = 0 ] || exec "$@" >/dev/null; exec "$@" --csv '"$scratch/csv" sh "$BUILD/gf-perf" \
        --config "$scratch/net.cfg" "$@" >"$scratch/turn" 2>"$scratch/turn.err" || { failed "$ours_label"; return; }
    awk -F, -v label="$ours_label" -v factor="$ours_factor" 'NR > 1 {print label, $1 == "step" ? "step" : $4 * factor, $9}' \
        "$scratch/csv" >>"$times"
}
# The same command on each host, as Open MPI, MPICH and Gloo start it
openmpi() {
    label=$1; shift
    timeout -k 5 120 ip netns exec "$net_prefix-sw" mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent "$agent" \
        --mca plm_rsh_no_tree_spawn 1 --mca mpi_yield_when_idle 1 --bind-to none -H "$hosts" -n "$n" "$@" $job \
        >"$scratch/turn" 2>"$scratch/turn.err" && keep "$label" || failed "$label"
}
mpich() { # it spins: with more ranks than cores some turns do not end
    label=$1
    UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 timeout -k 5 30 ip netns exec "$net_prefix-sw" mpirun.mpich -launcher ssh \
        -launcher-exec "$agent" -localhost "$(net_switch_address)" -hosts "$hosts" -ppn 1 -n "$n" \
        "$PWD/$peers/bench_mpich" $job >"$scratch/turn" 2>"$scratch/turn.err" && keep "$label" || failed "$label"
}
gloo() {
    label=$1 folder=$(mktemp -d "$scratch/gloo.XXXXXX")
    # shellcheck disable=SC2016
    net_run 120 sh -c 'exec "$@" -r $GF_RANK -h 10.213.7.$((GF_RANK + 1))' sh "$peers/bench_gloo" -w "$n" -d "$folder" \
        -a "$2" $job >"$scratch/turn" 2>"$scratch/turn.err" && keep "$label" || failed "$label"
}
ucc() {
    folder=$(mktemp -d "$scratch/ucc.XXXXXX")
    # shellcheck disable=SC2016
    net_run 120 sh -c 'exec env UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 "$@" -r $GF_RANK' sh "$peers/bench_ucc" \
        -w "$n" -d "$folder" $([ "$n" -le "$(nproc)" ] || echo -y) $job >"$scratch/turn" 2>"$scratch/turn.err" &&
        keep ucc || failed ucc
}
# Plain sockets, recursive doubling: no library between, for small data and a power of two of hosts
sockets() {
    [ $((n & (n - 1))) = 0 ] || return 0
    # shellcheck disable=SC2016
    net_run 120 sh -c 'exec "$@" -r $GF_RANK' sh "$peers/bench_sockets" -w "$n" \
        -a "$(net_address 0 | sed 's/1$//')" -m -t 0.1 -s 8,4096,65536 >"$scratch/turn" 2>"$scratch/turn.err" &&
        keep sockets || failed sockets
}
tcp="--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include eth0"
ring="--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm"
ucx="--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any -x UCX_TLS=tcp,self -x UCX_NET_DEVICES=eth0"
peers_progress() {
    if [ -x "$peers/bench_openmpi" ]; then
        mpi=$PWD/$peers/bench_openmpi
        openmpi openmpi $tcp "$mpi"
        openmpi openmpi-ring $tcp $ring 4 "$mpi"
        openmpi openmpi-ucx $ucx "$mpi"
    fi
    [ ! -x "$peers/bench_mpich" ] || mpich mpich
    if [ -x "$peers/bench_gloo" ]; then gloo gloo-ring ring; gloo gloo-chunked ring_chunked; fi
    [ ! -x "$peers/bench_ucc" ] || ucc
}

# Of an allreduce of so many bytes on links of that rate: us
limit_us() { awk -v bytes="$1" -v n="$n" -v rate="$(net_payload "$RATE_MBIT")" 'BEGIN {print 2 * (n - 1) / n * bytes / rate * 1e6}'; }
sizes_table() {
    labels=$(awk '{print $1}' "$times" | sort -u | grep -v -e '^ours' -e sockets)
    echo "| | limit | ours fp32 | of limit | ours fp16 | of limit | deterministic | best peer | | best / ours |" \
        "sockets / ours |"
    echo "|---|---|---|---|---|---|---|---|---|---|---|"
    for size in $sizes $ours_only; do
        limit=$(limit_us "$size") own=$(median "$times" ours "$size") half=$(median "$times" ours-fp16 "$size")
        same=$(median "$times" ours-deterministic "$size")
        # shellcheck disable=SC2086
        top=$(best "$times" "$size" $labels)
        echo "| $(size_name "$size") | $(us "$limit") | $(us "$own") | $(ratio "$limit" "$own") | $(us "$half") |" \
            "$(ratio "$limit" "$half") | $(us "$same") | $(us "${top#* }") | ${top% *} |" \
            "$(ratio "${top#* }" "$own") | $(ratio "$(median "$times" sockets "$size")" "$own") |"
    done
}
sizes_part() {
    times=$scratch/sizes.$n job="-m -t 0.1 -s $(echo $sizes | tr ' ' ,)"
    : >"$times"
    for i in $(seq 1 "$ROUNDS"); do
        echo "# $n hosts, sizes, round $i of $ROUNDS" >&2
        ours ours 1 -b 8 -e 8 --seconds 0.2
        ours ours 1 -b 64K -e 64K --seconds 0.2
        ours ours 1 -b 4K -e 256K -f 64 --seconds 0.2
        ours ours 1 -b 4M -e 64M -f 4 --seconds 0.1
        ours ours-fp16 2 -d half -b 4 -e 4 --seconds 0.2
        ours ours-fp16 2 -d half -b 32K -e 32K --seconds 0.2
        ours ours-fp16 2 -d half -b 2K -e 128K -f 64 --seconds 0.2
        ours ours-fp16 2 -d half -b 2M -e 32M -f 4 --seconds 0.1
        ours ours-deterministic 1 -b 4M -e 16M -f 4 --seconds 0.1 --set exchange.deterministic=true
        peers_progress
        sockets
    done
    printf '\n%s hosts: allreduce in place, %s Mbit/s, us, medians of %s rounds\n\n' "$n" "$RATE_MBIT" "$ROUNDS"
    sizes_table
}
# Two ranks a host that share memory: what auto takes there beside a ring of messages. The limit is of a host's port.
nodes_part() {
    times=$scratch/nodes.$n ours_run="net_run_nodes 120 2"
    : >"$times"
    for i in $(seq 1 "$ROUNDS"); do
        echo "# $n hosts of 2 ranks, round $i of $ROUNDS" >&2
        for algorithm in auto ring; do
            ours $algorithm 1 -b 64K -e 16M -f 16 --seconds 0.2 --algorithm $algorithm \
                --set link.transports=self,posix,tcp
        done
    done
    ours_run="net_run 120"
    printf '\n%s hosts of 2 ranks: allreduce in place, %s Mbit/s a host, us, medians of %s rounds\n\n' "$n" "$RATE_MBIT" "$ROUNDS"
    echo "| | limit | auto | of limit | ring | ring / auto |"
    echo "|---|---|---|---|---|---|"
    for size in 65536 1048576 16777216; do
        limit=$(limit_us "$size") own=$(median "$times" auto "$size") ring=$(median "$times" ring "$size")
        echo "| $(size_name "$size") | $(us "$limit") | $(us "$own") | $(ratio "$limit" "$own") | $(us "$ring") | $(ratio "$ring" "$own") |"
    done
}
# One rank a host, over one device and over two of that rate.
devices_part() {
    times=$scratch/devices.$n
    : >"$times"
    net_second "${RATE_MBIT}mbit" && sleep 1 && net_forget
    for i in $(seq 1 "$ROUNDS"); do
        echo "# $n hosts, one and two devices, round $i of $ROUNDS" >&2
        ours one 1 -b 1M -e 64M -f 4 --seconds 0.3
        ours two 1 -b 1M -e 64M -f 4 --seconds 0.3 --set link.devices=eth0,eth1
    done
    printf '\n%s hosts, %s Mbit/s a device, us, medians of %s rounds\n\n' "$n" "$RATE_MBIT" "$ROUNDS"
    echo "| | one device | two | one / two |"
    echo "|---|---|---|---|"
    for size in 1048576 4194304 16777216 67108864; do
        one=$(median "$times" one "$size") two=$(median "$times" two "$size")
        echo "| $(size_name "$size") | $(us "$one") | $(us "$two") | $(ratio "$one" "$two") |"
    done
}
# model_part NAME FILE ROUNDS
model_part() {
    times=$scratch/$1.$n counts=$scratch/$1.counts job="-m -t 0.1 -c $scratch/$1.counts"
    counts_of_model "$2" >"$counts"
    bytes=$(awk '{n += $1} END {print 4 * n}' "$counts")
    : >"$times"
    for i in $(seq 1 "$3"); do
        echo "# $n hosts, $1, round $i of $3" >&2
        ours ours 1 --model "$2" --seconds 0.2
        ours ours-fp16 1 --model "$2" --seconds 0.2 --set exchange.wire=fp16
        peers_progress
    done
    labels=$(awk '{print $1}' "$times" | sort -u | grep -v '^ours')
    limit=$(limit_us "$bytes") own=$(median "$times" ours step) half=$(median "$times" ours-fp16 step)
    # shellcheck disable=SC2086
    each=$(best "$times" each $labels) fused=$(best "$times" fused $labels)
    printf '\n%s hosts: %s (%s tensors, %s bytes) through a step, us, medians of %s rounds\n\n' "$n" "$1" \
        "$(wc -l <"$counts")" "$bytes" "$3"
    echo "| limit | ours fp32 | of limit | ours fp16 | best peer, one by one | / ours | best peer, fused | / ours | / ours fp16 |"
    echo "|---|---|---|---|---|---|---|---|---|"
    echo "| $(us "$limit") | $(us "$own") | $(ratio "$limit" "$own") | $(us "$half") | $(us "${each#* }") ${each% *} |" \
        "$(ratio "${each#* }" "$own") | $(us "${fused#* }") ${fused% *} | $(ratio "${fused#* }" "$own") |" \
        "$(ratio "${fused#* }" "$half") |"
    printf '\n| one by one, fused |'
    for label in $labels; do printf ' %s |' "$label"; done
    printf '\n|---|'
    for label in $labels; do printf -- '---|'; done
    printf '\n| |'
    for label in $labels; do printf ' %s, %s |' "$(us "$(median "$times" "$label" each)")" "$(us "$(median "$times" "$label" fused)")"; done
    echo
}

machine_print
echo "\`make bench-net\`: each host a network namespace of this machine, links of $RATE_MBIT Mbit/s both ways."
awk '/shape = \[[0-9]*\]/ {sub(/,$/, ""); text = text (text == "" ? "" : ",\n") $0} END {print "tensors = (\n" text "\n);"}' \
    config/models/resnet50.cfg >"$scratch/small.cfg" # one dimension each: 107 tensors
for n in $HOSTS; do
    net_up gfbench "$n" "${RATE_MBIT}mbit" || exit 1
    hosts=$(for i in $(seq 0 $((n - 1))); do printf '%s%s' "$([ "$i" = 0 ] || echo ,)" "gfbench-$i"; done)
    net_config >"$scratch/net.cfg"
    for part in $PARTS; do
        case $part in
        sizes) sizes_part ;;
        nodes) [ "$n" -ne 2 ] || nodes_part ;;
        devices) devices_part ;;
        small) [ "$n" -lt 4 ] || model_part small "$scratch/small.cfg" "$ROUNDS" ;;
        resnet) [ "$n" -lt 4 ] || model_part resnet50 config/models/resnet50.cfg "$MODEL_ROUNDS" ;;
        esac
    done
    net_down
done
[ -z "$missing" ] || printf '\nNot installed, so not among them: %s.\n' "$missing"
