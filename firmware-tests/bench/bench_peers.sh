#!/bin/sh
# Allreduce in shared memory beside what users would pick instead: `make bench-peers`. Peers that are installed and this
# library take turns, ROUNDS times over, because the speed of a shared machine drifts; medians of the rounds count. Prints
# the tables of firmware-tests/results/peers.md. Needs nothing but what is there; root is asked for nothing.
#     apt-get install openmpi-bin libopenmpi-dev mpich libmpich-dev libgloo-dev g++
# UCC_PREFIX=DIR: UCC too, as it was installed there, with the UCX that it was built with; GLOO_PREFIX=DIR: that Gloo.
set -u
export LC_ALL=C
. firmware-tests/bench/bench_parts.sh
ROUNDS=${ROUNDS:-5} SECONDS_EACH=${SECONDS_EACH:-0.1} RANKS=${RANKS:-2 4} ALGORITHM=${ALGORITHM:-direct}
LIMIT=${LIMIT:-60} # seconds for one turn of a peer: two that spin on cores that are taken would not end
sizes="8 64 512 4096 32768 262144 1048576 4194304 16777216 67108864 268435456"
list=$(echo $sizes | tr ' ' ,)
peers_build

bounded() { timeout -k 5 "$LIMIT" "$@"; }
# The label, then the command: its lines "BYTES US" go into $times as "LABEL BYTES US".
turn() {
    turn_label=$1; shift
    "$@" >"$scratch/turn" 2>"$scratch/turn.err" || {
        echo "# $turn_label failed: $(tail -n 1 "$scratch/turn.err")" >&2; return; }
    awk -v label="$turn_label" 'NF == 2 {print label, $1, $2}' "$scratch/turn" >>"$times"
}
ours() {
    for range in "-b 8 -e 256K -f 8" "-b 1M -e 256M -f 4"; do
        # shellcheck disable=SC2016,SC2086
        timeout -k 5 120 "$BUILD/gf-run" -n "$n" sh -c "$pin"' exec "$@"' sh "$BUILD/gf-perf" --algorithm "$ALGORITHM" \
            --seconds "$SECONDS_EACH" $range --csv "$scratch/csv" >"$scratch/turn" 2>&1 || {
            echo "# gradientflow failed: $(tail -n 1 "$scratch/turn")" >&2; return; }
        awk -F, 'NR > 1 {print "gradientflow", $4, $7}' "$scratch/csv" >>"$times"
    done
}
# ResNet-50's tensors, all ready at once, through a step; peers one by one and fused
ours_model() {
    # shellcheck disable=SC2016
    timeout -k 5 120 "$BUILD/gf-run" -n "$n" sh -c "$pin"' exec "$@"' sh "$BUILD/gf-perf" --algorithm "$ALGORITHM" \
        --model config/models/resnet50.cfg --seconds 0.5 --csv "$scratch/csv" >"$scratch/turn" 2>&1 || {
        echo "# gradientflow failed: $(tail -n 1 "$scratch/turn")" >&2; return; }
    awk -F, 'NR > 1 {print "gradientflow", "step", $7}' "$scratch/csv" >>"$times"
}
round() {
    bind="--bind-to none" hbind="-bind-to none" pin=''
    # shellcheck disable=SC2016
    [ "$n" -gt "$(nproc)" ] || { bind="--bind-to core" hbind="-bind-to core" pin='taskset -pc $GF_RANK $$ >/dev/null;'; }
    job="-s $list -c $scratch/counts -t $SECONDS_EACH"
    ours
    ours_model
    turn bound bounded "$peers/bench_bound" -n "$n" $job
    if [ -x "$peers/bench_openmpi" ]; then
        m="bounded mpirun.openmpi --allow-run-as-root --oversubscribe $bind -n $n"
        ucx="--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any"
        # no mmap for temporaries, huge pages for the heap
        heap="-x MALLOC_MMAP_MAX_=0 -x MALLOC_TRIM_THRESHOLD_=8589934592 -x GLIBC_TUNABLES=glibc.malloc.hugetlb=1"
        ring="--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 5"
        ring="$ring --mca coll_tuned_allreduce_algorithm_segmentsize 1048576"
        turn openmpi $m "$peers/bench_openmpi" $job
        turn openmpi+heap $m $heap "$peers/bench_openmpi" $job
        turn openmpi-ucx $m $ucx "$peers/bench_openmpi" $job
        turn openmpi-ucx+heap $m $ucx $heap "$peers/bench_openmpi" $job
        turn openmpi-ring $m $ring "$peers/bench_openmpi" $job
        turn openmpi-ring+heap $m $ring $heap "$peers/bench_openmpi" $job
    fi
    # MPICH of Debian spins: with more ranks than cores it takes minutes.
    if [ -x "$peers/bench_mpich" ] && [ "$n" -le "$(nproc)" ]; then
        turn mpich bounded mpirun.mpich $hbind -n "$n" "$peers/bench_mpich" $job
    fi
    if [ -x "$peers/bench_gloo" ]; then
        turn gloo-ring ranks_meet "$n" bench_gloo -a ring $job
        turn gloo ranks_meet "$n" bench_gloo -a halving_doubling $job
    fi
    if [ -x "$peers/bench_ucc" ]; then turn ucc ranks_meet "$n" bench_ucc $([ "$n" -le "$(nproc)" ] || echo -y) $job; fi
}

counts_of_model config/models/resnet50.cfg >"$scratch/counts"
machine_print
echo "\`make bench-peers\`: allreduce of fp32 in place in shared memory, $ALGORITHM, us, medians of $ROUNDS interleaved rounds."
for n in $RANKS; do
    times=$scratch/times.$n
    : >"$times"
    for i in $(seq 1 "$ROUNDS"); do
        echo "# $n ranks, round $i of $ROUNDS" >&2
        round
    done
    printf '\n%s ranks\n\n' "$n"
    peers_table "$times" "$sizes"
    # shellcheck disable=SC2086
    each=$(best "$times" each $labels) fused=$(best "$times" fused $labels) own=$(median "$times" gradientflow step)
    printf '\n%s ranks: ResNet-50, 161 tensors (102 MB) through a step, us\n\n' "$n"
    echo "| ours | best peer, one by one | / ours | best peer, fused | / ours |"
    echo "|---|---|---|---|---|"
    echo "| $(us "$own") | $(us "${each#* }") ${each% *} | $(ratio "${each#* }" "$own") | $(us "${fused#* }") ${fused% *} |" \
        "$(ratio "${fused#* }" "$own") |"
done
[ -z "$missing" ] || printf '\nNot installed, so not among them: %s.\n' "$missing"
