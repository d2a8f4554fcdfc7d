#!/bin/sh
# Allreduce between hosts of a slow network beside what users would pick instead: `make bench-net` (root). The hosts are
# network namespaces with RATE_MBIT links both ways; contenders take turns, ROUNDS times over. A turn gives its mean,
# for behind stalls in which a link's bucket fills most samples go faster than the link, and the median of the rounds.
# Prints the tables of firmware-tests/results/peers.md. UCC_PREFIX, GLOO_PREFIX, PEERS: as for bench_peers.sh.
#     HOSTS="2 4"  PARTS="sizes nodes devices small models"  SIZES="8 4096 .."  MODELS="resnet50 gpt2"
# nodes: two ranks on each of 2 hosts, sizes and models. models: from 4 hosts on. HOSTS=3 RATE_MBIT=2500 PARTS=sizes
# SIZES="65536 1048576 16777216": a faster link; RATE_MBIT=0: as fast as this machine moves bytes.
set -u
export LC_ALL=C
. firmware-tests/bench/bench_parts.sh
. firmware-tests/support/net.sh
net_begin bench-net
ROUNDS=${ROUNDS:-5} RATE_MBIT=${RATE_MBIT:-1000} HOSTS=${HOSTS:-2 4} PARTS=${PARTS:-sizes nodes devices small models}
MODEL_ROUNDS=${MODEL_ROUNDS:-3} MODELS=${MODELS-resnet50 gpt2} # 1.3 s and 6.3 s a step of 4 hosts
[ -n "${SIZES+given}" ] && ours_only='' || ours_only=67108864
SIZES=${SIZES-8 4096 65536 262144 1048576 4194304 16777216}
agent=$PWD/firmware-tests/support/net_agent.sh
peers_build

# keep LABEL: what the last command printed
keep() { awk -v label="$1" 'NF == 2 {print label, $1, $2}' "$scratch/turn" >>"$times"; }
# On each host one rank of it, or per_host ranks that share memory
hosts_run() {
    if [ "$per_host" = 1 ]; then net_run "$limit_s" "$@"; else net_run_nodes "$limit_s" "$per_host" "$@"; fi
}
# ours LABEL FACTOR OPTION..: gf-perf; sizes are multiplied by FACTOR to count fp32 bytes
ours() {
    ours_label=$1 ours_factor=$2; shift 2
    rm -f "$scratch/csv"
    # shellcheck disable=SC2016
    hosts_run sh -c '[ $GF_RANK = 0 ] || exec "$@" >/dev/null; exec "$@" --csv '"$scratch/csv" sh "$BUILD/gf-perf" \
        --config "$scratch/net.cfg" "$@" >"$scratch/turn" 2>"$scratch/turn.err" || {
        failed "$ours_label"; return; }
    awk -F, -v label="$ours_label" -v factor="$ours_factor" 'NR > 1 {print label, $1 == "step" ? "step" : $4 * factor, $9}' \
        "$scratch/csv" >>"$times"
}
# The same command on each host, as Open MPI, MPICH and Gloo start it
openmpi() {
    label=$1; shift
    wanted "$label" || return 0
    timeout -k 5 "$limit_s" ip netns exec "$net_prefix-sw" mpirun.openmpi --allow-run-as-root --map-by slot \
        --mca plm_rsh_agent "$agent" --mca plm_rsh_no_tree_spawn 1 --leave-session-attached --bind-to none \
        --mca mpi_yield_when_idle 1 -H "$hosts" -n "$ranks" "$@" $job >"$scratch/turn" 2>"$scratch/turn.err" && keep "$label" || failed "$label"
}
mpich_fails='' # where it failed: there it is not tried again, for each turn would take all its time
mpich() { # it spins: with more ranks than cores some turns do not end
    wanted mpich && [ "$mpich_fails" != "$where" ] || return 0
    UCX_TLS=$tls UCX_NET_DEVICES=eth0 timeout -k 5 $([ "$yields" = 1 ] && echo 30 || echo "$limit_s") ip netns exec \
        "$net_prefix-sw" mpirun.mpich -launcher ssh -launcher-exec "$agent" -localhost "$(net_switch_address)" \
        -hosts "$(echo "$hosts" | sed 's/:[0-9]*//g')" -ppn "$per_host" -n "$ranks" "$PWD/$peers/bench_mpich" $job \
        >"$scratch/turn" 2>"$scratch/turn.err" && keep mpich || { failed mpich; mpich_fails=$where; }
}
gloo() {
    label=$1 folder=$(mktemp -d "$scratch/gloo.XXXXXX")
    wanted "$label" || return 0
    # shellcheck disable=SC2016
    hosts_run sh -c "host=\$((GF_RANK / $per_host + 1))"'; exec "$@" -r $GF_RANK -h 10.213.7.$host' sh \
        "$peers/bench_gloo" -w "$ranks" -d "$folder" -a "$2" $job >"$scratch/turn" 2>"$scratch/turn.err" && keep "$label" || failed "$label"
}
ucc() { # it tells hosts apart by their boot, and each has one of its own while this lasts
    folder=$(mktemp -d "$scratch/ucc.XXXXXX")
    wanted ucc || return 0
    # shellcheck disable=SC2016
    hosts_run sh -c "host=\$((GF_RANK / $per_host)) boot=$folder."'$GF_RANK
        echo "0000000$host-0000-4000-8000-000000000000" >"$boot" && mount --bind "$boot" /proc/sys/kernel/random/boot_id &&
        exec "$@" -r $GF_RANK' sh env "UCX_TLS=$tls" UCX_NET_DEVICES=eth0 "$peers/bench_ucc" -w "$ranks" -d "$folder" \
        $([ "$yields" = 0 ] || echo -y) $job \
        >"$scratch/turn" 2>"$scratch/turn.err" && keep ucc || failed ucc
}
# Plain sockets, recursive doubling: no library between, for small data and a power of two of hosts
sockets() {
    [ "$per_host" = 1 ] && [ $((n & (n - 1))) = 0 ] && [ "${SIZES%% *}" -le 65536 ] || return 0
    # shellcheck disable=SC2016
    hosts_run sh -c 'exec "$@" -r $GF_RANK' sh "$peers/bench_sockets" -w "$n" -a "$(net_address 0 | sed 's/1$//')" \
        -m -t 0.1 -s "$(for size in $SIZES; do [ "$size" -gt 65536 ] || echo "$size"; done | paste -sd, -)" \
        >"$scratch/turn" 2>"$scratch/turn.err" && keep sockets || failed sockets
}
# One way between two hosts, us: both send 8 bytes at once and poll
latency_measure() {
    net_exec 1 timeout 20 "$peers/bench_sockets" -w 2 -r 1 -a "$(net_address 0 | sed 's/1$//')" -t 0.5 -s 8 &
    net_exec 0 timeout 20 "$peers/bench_sockets" -w 2 -r 0 -a "$(net_address 0 | sed 's/1$//')" -t 0.5 -s 8 |
        awk '{print $2}' >"$scratch/latency"
    wait $! && latency=$(cat "$scratch/latency") && [ -n "$latency" ]
}
ring="--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm"
peers_progress() {
    if [ -x "$peers/bench_openmpi" ]; then
        mpi=$PWD/$peers/bench_openmpi tcp="--mca pml ob1 --mca btl tcp,self,vader --mca btl_tcp_if_include eth0"
        openmpi openmpi $tcp "$mpi"
        openmpi openmpi-ring $tcp $ring 4 "$mpi"
        openmpi openmpi-ucx --mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any -x "UCX_TLS=$tls" \
            -x UCX_NET_DEVICES=eth0 "$mpi"
    fi
    [ ! -x "$peers/bench_mpich" ] || mpich
    if [ -x "$peers/bench_gloo" ]; then gloo gloo-ring ring; gloo gloo-chunked ring_chunked; fi
    [ ! -x "$peers/bench_ucc" ] || ucc
}

# Of an allreduce of so many bytes by a host's link, us: all to all at once, or shares to their owners and back, which
# sends less and waits twice.
limit_us() {
    [ "$RATE_MBIT" -gt 0 ] || return 0
    awk -v bytes="$1" -v n="$n" -v rate="$(net_payload "$RATE_MBIT")" -v latency="$latency" 'BEGIN {
        once = (n - 1) * bytes / rate * 1e6 + latency; twice = 2 * (n - 1) / n * bytes / rate * 1e6 + 2 * latency
        print once < twice ? once : twice}'
}
sizes_table() {
    echo "| | limit | ours fp32 | of limit | ours fp16 | of limit | $also | best peer | | best / ours |" \
        "sockets / ours |"
    echo "|---|---|---|---|---|---|---|---|---|---|---|"
    for size in $SIZES $ours_only; do
        limit=$(limit_us "$size") own=$(median "$times" ours "$size") half=$(median "$times" ours-fp16 "$size")
        # shellcheck disable=SC2046
        top=$(best "$times" "$size" $(peers_of "$times"))
        echo "| $(size_name "$size") | $(us "$limit") | $(us "$own") | $(ratio "$limit" "$own") | $(us "$half") |" \
            "$(ratio "$limit" "$half") | $(us "$(median "$times" "ours-$also" "$size")") | $(us "${top#* }") |" \
            "${top% *} | $(ratio "${top#* }" "$own") | $(ratio "$(median "$times" sockets "$size")" "$own") |"
    done
}
# Beside it ours with other settings, as the column `also`
sizes_part() {
    times=$scratch/sizes.$ranks job="-m -t 0.1 -s $(echo $SIZES | tr ' ' ,)" also=deterministic
    set=exchange.deterministic=true
    [ "$per_host" = 1 ] || also=ring set=exchange.algorithm=ring
    : >"$times"
    for i in $(seq 1 "$ROUNDS"); do
        echo "# $where, sizes, round $i of $ROUNDS" >&2
        for size in $SIZES $ours_only; do
            seconds=0.2
            [ "$size" -le 1048576 ] || seconds=0.1
            ours ours 1 -b "$size" -e "$size" --seconds $seconds
            ours ours-fp16 2 -d half -b $((size / 2)) -e $((size / 2)) --seconds $seconds
            [ "$size" -lt 65536 ] || ours "ours-$also" 1 -b "$size" -e "$size" --seconds $seconds --set $set
        done
        peers_progress
        sockets
    done
    for size in $SIZES $ours_only; do echo "limit $size $(limit_us "$size")"; done |
        rows_keep hosts "$where, $speed" us "$times" -
    printf '\n%s: allreduce in place, %s, %s us one way, us, medians of %s rounds\n\n' "$where" "$links" \
        "$latency" "$ROUNDS"
    sizes_table
}
# One rank a host, over one device and over two of that rate.
devices_part() {
    times=$scratch/devices.$n
    : >"$times"
    net_second "$rate" && sleep 1 && net_forget
    for i in $(seq 1 "$ROUNDS"); do
        echo "# $n hosts, one and two devices, round $i of $ROUNDS" >&2
        ours one 1 -b 1M -e 16M -f 4 --seconds 0.3
        ours two 1 -b 1M -e 16M -f 4 --seconds 0.3 --set link.devices=eth0,eth1
    done
    rows_keep devices "$n hosts, $speed" us "$times"
    printf '\n%s hosts, on each device %s, us, medians of %s rounds\n\n' "$n" "$links" "$ROUNDS"
    echo "| | one device | two | one / two |"
    echo "|---|---|---|---|"
    for size in 1048576 4194304 16777216; do
        one=$(median "$times" one "$size") two=$(median "$times" two "$size")
        echo "| $(size_name "$size") | $(us "$one") | $(us "$two") | $(ratio "$one" "$two") |"
    done
}
# model_part NAME FILE ROUNDS
model_part() {
    times=$scratch/$1.$ranks counts=$scratch/$1.counts job="-m -t 0.1 -c $scratch/$1.counts" limit_s=300
    counts_of_model "$2" >"$counts"
    : >"$times"
    for i in $(seq 1 "$3"); do
        echo "# $where, $1, round $i of $3" >&2
        ours ours 1 --model "$2" --seconds 0.2
        ours ours-fp16 1 --model "$2" --seconds 0.2 --set exchange.wire=fp16
        peers_progress
    done
    echo "limit step $(limit_us "$(awk '{n += $1} END {print 4 * n}' "$counts")")" |
        rows_keep models "$1, $where" us "$times" -
    printf '\n%s: %s (%s) through a step, us, medians of %s rounds\n\n' "$where" "$1" "$(counts_name "$counts")" "$3"
    model_table "$times" "$(limit_us "$(awk '{n += $1} END {print 4 * n}' "$counts")")"
    limit_s=120
}
models_part() { for model in $MODELS; do model_part "$model" "config/models/$model.cfg" "$MODEL_ROUNDS"; done; }
# ranks_set PER_HOST
ranks_set() {
    per_host=$1 ranks=$((n * $1)) tls=self,tcp where="$n hosts" yields=0
    [ "$1" = 1 ] || tls=self,posix,tcp where="$n hosts of $1 ranks"
    [ "$ranks" -le "$(nproc)" ] || yields=1
    hosts=$(for i in $(seq 0 $((n - 1))); do printf '%s%s' "$([ "$i" = 0 ] || echo ,)" "$net_prefix-$i:$1"; done)
}

rate=${RATE_MBIT}mbit links="links of $RATE_MBIT Mbit/s both ways" speed="$RATE_MBIT Mbit/s"
[ "$RATE_MBIT" -gt 0 ] || rate='' links='links without a limit' speed='no limit'
machine_print
echo "\`make bench-net\`: each host a network namespace of this machine, $links."
limit_s=120
awk '/shape = \[[0-9]*\]/ {sub(/,$/, ""); text = text (text == "" ? "" : ",\n") $0} END {print "tensors = (\n" text "\n);"}' \
    config/models/resnet50.cfg >"$scratch/small.cfg" # one dimension each: 107 tensors
for n in $HOSTS; do
    net_up "gf$$" "$n" "$rate" && latency_measure || exit 1
    net_config >"$scratch/net.cfg"
    for part in $PARTS; do
        ranks_set 1
        case $part in
        sizes) sizes_part ;;
        nodes) [ "$n" -ne 2 ] || { ranks_set 2; [ -z "$SIZES" ] || sizes_part; models_part; } ;;
        devices) devices_part ;;
        small) [ "$n" -lt 4 ] || model_part small "$scratch/small.cfg" "$ROUNDS" ;;
        models) [ "$n" -lt 4 ] || models_part ;;
        esac
    done
    net_down
done
notes_print
