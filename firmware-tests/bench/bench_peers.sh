#!/bin/sh
# Allreduce in shared memory beside what users would pick instead: `make bench-peers`. Peers that are installed and this
# library take turns, ROUNDS times over, because the speed of a shared machine drifts; medians of the rounds count. "Ours" is
# of gf_exchange_take()'s memory, "program's" of malloc()'s, which is what the peers are given. Prints the tables of
# firmware-tests/results/peers.md. Needs nothing but what is there; root is asked for nothing.
#     apt-get install openmpi-bin libopenmpi-dev mpich libmpich-dev libgloo-dev g++
# UCC_PREFIX=DIR: UCC too, as it was installed there, with the UCX that it was built with; GLOO_PREFIX=DIR: that Gloo.
# RANKS="2 4" SIZES="8 64 .." of allreduces; MODELS="resnet50 gpt2", whose tensors are all ready at once, through a step
# with either wire (of up to 4 ranks: more have no room); PEERS="openmpi gloo .." of them alone. SIZES='' or MODELS='': none.
set -u
export LC_ALL=C
. firmware-tests/bench/bench_parts.sh
ROUNDS=${ROUNDS:-5} SECONDS_EACH=${SECONDS_EACH:-0.1} RANKS=${RANKS:-2 4} ALGORITHM=${ALGORITHM:-direct}
SIZES=${SIZES-8 64 512 4096 32768 262144 1048576 4194304 16777216 67108864 268435456} MODELS=${MODELS-resnet50 gpt2}
LIMIT=${LIMIT:-60} # seconds for one turn of a peer: two that spin on cores that are taken would not end
peers_build

bounded() { timeout -k 5 "$LIMIT" "$@"; }
# The label, then the command: its lines "BYTES US" go into $times as "LABEL BYTES US".
turn() {
    turn_label=$1; shift
    wanted "$turn_label" || return 0
    "$@" >"$scratch/turn" 2>"$scratch/turn.err" || { failed "$turn_label"; return; }
    awk -v label="$turn_label" 'NF == 2 {print label, $1, $2}' "$scratch/turn" >>"$times"
}
# ours LABEL OPTION..: gf-perf
ours() {
    ours_label=$1; shift
    # shellcheck disable=SC2016
    timeout -k 5 120 "$BUILD/gf-run" -n "$n" sh -c "$pin"' exec "$@"' sh "$BUILD/gf-perf" "$@" \
        --algorithm "$ALGORITHM" --csv "$scratch/csv" >"$scratch/turn" 2>"$scratch/turn.err" || {
        failed "$ours_label"; return; }
    awk -F, -v label="$ours_label" 'NR > 1 {print label, $1 == "step" ? $1 : $4, $7}' "$scratch/csv" >>"$times"
}
# Each peer, told its job by what bench_peer.h says
peers_progress() {
    job="$* -t $SECONDS_EACH"
    turn bound bounded "$peers/bench_bound" -n "$n" $job
    if [ -x "$peers/bench_openmpi" ]; then
        m="bounded mpirun.openmpi --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle $yields $bind -n $n"
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
    # MPICH of Debian spins, MPIR_CVAR_POLLS_BEFORE_YIELD or not: with more ranks than cores 8 bytes take 50 ms.
    if [ -x "$peers/bench_mpich" ] && [ "$yields" = 0 ]; then
        turn mpich bounded mpirun.mpich $hbind -n "$n" "$peers/bench_mpich" $job
    fi
    if [ -x "$peers/bench_gloo" ]; then
        turn gloo-ring ranks_meet "$n" bench_gloo -a ring $job
        turn gloo ranks_meet "$n" bench_gloo -a halving_doubling $job
    fi
    if [ -x "$peers/bench_ucc" ]; then turn ucc ranks_meet "$n" bench_ucc $([ "$yields" = 0 ] || echo -y) $job; fi
}
sizes_part() {
    times=$scratch/sizes.$n
    : >"$times"
    for i in $(seq 1 "$ROUNDS"); do
        echo "# $n ranks, round $i of $ROUNDS" >&2
        for size in $SIZES; do
            ours ours -b "$size" -e "$size" --seconds "$SECONDS_EACH"
            ours ours-program -b "$size" -e "$size" --seconds "$SECONDS_EACH" --memory program
        done
        peers_progress -s "$(echo $SIZES | tr ' ' ,)"
    done
    rows_keep memory "$n ranks" us "$times"
    printf '\n%s ranks\n\n' "$n"
    peers_table "$times" "$SIZES"
}
model_part() {
    times=$scratch/$1.$n file=config/models/$1.cfg counts=$scratch/counts
    : >"$times"
    counts_of_model "$file" >"$counts"
    for i in $(seq 1 "$ROUNDS"); do
        echo "# $n ranks, $1, round $i of $ROUNDS" >&2
        ours ours --model "$file" --seconds 0.5
        ours ours-fp16 --model "$file" --seconds 0.5 --set exchange.wire=fp16
        peers_progress -c "$counts"
    done
    rows_keep models "$1, $n ranks" us "$times"
    printf '\n%s ranks: %s (%s) through a step, us\n\n' "$n" "$1" "$(counts_name "$counts")"
    model_table "$times" "$(median "$times" bound fused)"
}

machine_print
echo "\`make bench-peers\`: allreduce of fp32 in place in shared memory, $ALGORITHM, us, medians of $ROUNDS interleaved rounds."
for n in $RANKS; do
    bind="--bind-to none" hbind="-bind-to none" pin='' yields=1
    # shellcheck disable=SC2016
    [ "$n" -gt "$(nproc)" ] || {
        bind="--bind-to core" hbind="-bind-to core" pin='taskset -pc $GF_RANK $$ >/dev/null;' yields=0; }
    [ -z "$SIZES" ] || sizes_part
    [ "$n" -gt 4 ] || for model in $MODELS; do model_part "$model"; done
done
notes_print
