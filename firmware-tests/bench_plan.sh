#!/bin/sh
# What gf-plan predicts beside what gf-perf --model measures: `make bench-plan` (root). The hosts are network namespaces with
# links of RATES Mbit/s; both programs are given the same model, configuration and compute time. What else the prediction
# is given is measured here on a collective that is no case of the table: latency on 4 KiB by doubling, the cost of a
# message on slices of 4 KiB; the link's rate is its nominal one. Rows are kept in $BUILD/bench-plan, so it can be run in
# pieces and goes on where it was stopped: HOSTS="4 8" RATES="100 300 1000" CASES="..", SAMPLES steps each. Exit code 1 if
# errors exceed 10 % in the median or 20 % at worst, or a case failed.
set -u
export LC_ALL=C
. firmware-tests/bench_parts.sh
. firmware-tests/net.sh
trap 'net_down; rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
HOSTS=${HOSTS:-4 8} RATES=${RATES:-100 300 1000} SAMPLES=${SAMPLES:-3}
kept=$BUILD/bench-plan
net_burst=80k # 1 Gbit/s needs it
failed=0
nominal_ops=1e10

# name model algorithm wire compute fuse_bytes sparse; compute is a share of the time that the dense exchange's bytes take
all_cases='nin            nin       ring    fp32 0.0 4194304  false
nin-16          nin       ring    fp16 1.0 4194304  false
nin-sparse      nin       ring    fp16 0.2 4194304  true
nin-unfused     nin       ring    fp32 0.5 1        false
googlenet       googlenet ring    fp16 1.0 4194304  false
googlenet-each  googlenet ring    fp16 0.5 1        false
googlenet-halve googlenet halving fp16 0.7 2097152  false
nin-tree        nin       tree    fp16 0.5 4194304  false
resnet50-norms  norms     auto    fp32 0.0 1        false'
CASES=${CASES:-$(echo "$all_cases" | awk '{print $1}')}

if ! ip netns add gfplan-probe 2>/dev/null; then echo "bench-plan: this user may not make network namespaces" >&2; exit 1; fi
ip netns delete gfplan-probe
mkdir -p "$kept"

config_write() { # FILE [exchange and sparse settings]
    cat >"$1" <<EOF
rendezvous = { address = "$(net_address 0):7117"; insecure = true; };
link = { transports = "self,tcp"; devices = "eth0"; idle = "sleep"; };
$2
EOF
}
# column FILE NAME: of the second line
column() { awk -F, -v name="$2" 'NR == 1 {for (i = 1; i <= NF; i++) if ($i == name) at = i} NR == 2 {print $at}' "$1"; }
# perf_run LIMIT_S OPTION..: p50 of the one row, us
perf_run() {
    perf_limit=$1; shift
    rm -f "$scratch/csv"
    # shellcheck disable=SC2016
    net_run "$perf_limit" sh -c '[ $GF_RANK = 0 ] || exec "$@" >/dev/null; exec "$@" --csv '"$scratch/csv" sh \
        "$BUILD/gf-perf" "$@" >"$scratch/turn" 2>"$scratch/turn.err" ||
        { echo "# gf-perf failed: $(tail -n 1 "$scratch/turn.err")" >&2; return 1; }
    column "$scratch/csv" p50_us
}
# plan_run CONFIG MODEL HOSTS COMPUTE_MS LATENCY_US COST_US OPS_B_S: sets plan_ms
plan_run() {
    sed "s/op_bandwidth = [^;]*/op_bandwidth = $7/" config/clusters/plain.cfg >"$scratch/cluster.cfg"
    "$BUILD/gf-plan" --cluster "$scratch/cluster.cfg" --nodes "$3" --gpus "$3" --bandwidth "$(net_payload "$rate")" \
        --latency "$5" --message-cost "$6" --config "$1" --model "$2" --compute-ms "$4" --csv "$scratch/plan.csv" \
        >"$scratch/plan" 2>&1 || { echo "# gf-plan failed: $(tail -n 1 "$scratch/plan")" >&2; return 1; }
    plan_ms=$(column "$scratch/plan.csv" step_ms)
}
# What the prediction is given beside the nominal rate, of these hosts at this rate: "LATENCY_US COST_US OPS_B_S".
# - By doubling 64 bytes take log2(n) turns of a latency each.
# - A ring sends its bytes in slices: smaller ones are so many messages more, each of which keeps the port for its cost.
# - All hosts at once take sparse steps of worlds of one rank, each by itself: what gf-plan gives such a step says how fast ops
#   were, hosts sharing cores and memory as they do.
calibrate() {
    config_write "$scratch/cal.cfg" ''
    small=$(perf_run 60 --config "$scratch/cal.cfg" -a doubling -b 64 -e 64 -n 300 -w 20) &&
        large=$(perf_run 60 --config "$scratch/cal.cfg" -a ring -b 2M -e 2M -n 5 -w 1) &&
        sliced=$(perf_run 60 --config "$scratch/cal.cfg" -a ring -b 2M -e 2M -n 5 -w 1 --set exchange.slice_bytes=4K) ||
        return 1
    printf 'exchange = { wire = "fp16"; algorithm = "ring"; };\nlink = { idle = "sleep"; };\nsparse = { enabled = true; };\n' \
        >"$scratch/alone.cfg"
    # shellcheck disable=SC2016
    net_run 60 sh -c 'csv=$1.$GF_RANK; shift; GF_RANK=0 GF_WORLD=1 GF_ADDRESS=127.0.0.1:7117 exec "$@" --csv "$csv"' sh \
        "$scratch/alone" "$BUILD/gf-perf" --config "$scratch/alone.cfg" --model config/models/nin.cfg -c 0 -n 20 \
        >"$scratch/turn" 2>&1 || { echo "# gf-perf failed: $(tail -n 1 "$scratch/turn")" >&2; return 1; }
    for i in $(seq 0 $((n - 1))); do echo "ops step $(column "$scratch/alone.$i" p50_us)"; done >"$scratch/alone"
    plan_run "$scratch/alone.cfg" config/models/nin.cfg 1 0.001 0 0 "$nominal_ops" || return 1
    echo "$small $large $sliced $(median "$scratch/alone" ops step) $plan_ms" | awk -v n="$n" -v ops="$nominal_ops" '{
        for (turns = 0; 2 ^ turns < n; turns++) {}
        cost = ($3 - $2) / (2 * (n - 1) / n * (2097152 / 4096 - 2097152 / 262144))
        printf "%.1f %.2f %.3g\n", $1 / turns, (cost > 0 ? cost : 0), ops * $5 * 1e3 / $4}'
}
# case_run NAME MODEL ALGORITHM WIRE SHARE FUSE SPARSE: appends "case hosts rate compute_ms measured_ms predicted_ms"
case_run() {
    model=config/models/$2.cfg
    [ "$2" != norms ] || model=$scratch/norms.cfg
    config_write "$scratch/case.cfg" "exchange = { algorithm = \"$3\"; wire = \"$4\"; fuse_bytes = $6; };
sparse = { enabled = $7; };"
    compute=$(counts_of_model "$model" | awk -v n="$n" -v rate="$(net_payload "$rate")" -v wire="$4" -v share="$5" \
        '{elems += $1} END {print int(share * 2 * (n - 1) / n * elems * (wire == "fp32" ? 4 : 2) / rate * 1e3)}')
    real=$(perf_run 200 --config "$scratch/case.cfg" --model "$model" --compute-ms "$compute" -n "$SAMPLES" -w 0 -c 0) ||
        return 1
    [ "$compute" -gt 0 ] || compute=0.001
    # shellcheck disable=SC2086
    plan_run "$scratch/case.cfg" "$model" "$n" "$compute" $inputs || return 1
    echo "$1 $n $rate $compute $real $plan_ms $inputs" | awk '{$5 /= 1e3; print}' >"$kept/$1.$n.$rate"
    cat "$kept/$1.$n.$rate" >&2
}

# 107 tensors of 2 KiB in the mean: all latency.
sed '/shape = \[[0-9]*\]\|"conv1.weight"/!{/tensors\|^ *) *;/!d}' config/models/resnet50.cfg >"$scratch/norms.cfg"
for n in $HOSTS; do
    for rate in $RATES; do
        todo=''
        for name in $CASES; do [ -s "$kept/$name.$n.$rate" ] || todo="$todo $name"; done
        [ -n "$todo" ] || continue
        net_up gfplan "$n" "${rate}mbit" || exit 1
        inputs=$(calibrate) || exit 1
        echo "# $n hosts, $rate Mbit/s: latency, message cost, ops: $inputs" >&2
        for name in $todo; do
            # shellcheck disable=SC2046
            case_run $(echo "$all_cases" | awk -v name="$name" '$1 == name') || failed=1
        done
        net_down
    done
done
cat "$kept"/*
exit $failed
