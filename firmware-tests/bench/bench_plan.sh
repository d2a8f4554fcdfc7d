#!/bin/sh
# What gf-plan predicts beside what gf-perf --model measures: `make bench-plan` (root). The hosts are network namespaces
# with links of RATES Mbit/s; both programs are given the same model, configuration and computing. What else a prediction is
# given is measured here on operations that are no case of the table (see calibrate below); a link's rate is its nominal
# one. Prints the tables of firmware-tests/results/plan.md. Exit code 1 if errors exceed 10 % in the
# median or 20 % at worst, or a case failed. Each case is kept in $BUILD/bench-plan (or KEPT=FOLDER), so
# that it goes on where it was stopped and can be run in pieces:
# HOSTS="4 8" RATES="100 300 1000" CASES="nin googlenet" SAMPLES=3 (steps of a case after five others;
# their median counts; SAMPLES= SECONDS_EACH=1: for so long, after one). With RANKS=2
# HOSTS=2 each host has so many ranks that share memory, and cases of their own.
set -u
export LC_ALL=C
. firmware-tests/bench/bench_parts.sh
. firmware-tests/support/net.sh
net_begin bench-plan
RANKS=${RANKS:-1} HOSTS=${HOSTS:-4 8} RATES=${RATES:-100 300 1000} SAMPLES=${SAMPLES-3}
kept=${KEPT:-$BUILD/bench-plan}
net_burst=80k # what a link takes at once after a pause; half a megabyte would be a tenth of some exchanges
nominal_ops=1e10
failed=0

# Name, model, algorithm, wire, computing (as a share of what the dense exchange's bytes take), fuse_bytes, sparse, and
# what it is
all_cases='nin nin ring fp32 0 4194304 false NiN, ring, nothing computed
nin-overlap nin ring fp16 1 4194304 false NiN, ring, fp16, overlapped
nin-each nin ring fp32 0.5 1 false NiN, ring, tensor by tensor
nin-tree nin tree fp16 0.5 4194304 false NiN, tree, fp16
nin-sparse nin ring fp16 0.2 4194304 true NiN, ring, fp16, 15 % of the chunks
googlenet googlenet ring fp16 1 4194304 false GoogLeNet, ring, fp16, overlapped
googlenet-each googlenet ring fp16 0.5 1 false GoogLeNet, ring, fp16, tensor by tensor
googlenet-halve googlenet halving fp16 0.7 2097152 false GoogLeNet, halving, fp16'
[ "$RANKS" -eq 1 ] || all_cases='nin-ring nin ring fp32 0 4194304 false NiN, ring, nothing computed
nin-auto nin auto fp32 0 4194304 false NiN, auto, nothing computed
nin-whole nin auto fp32 0 33554432 false NiN, auto, in one buffer
nin-auto-overlap nin auto fp16 1 4194304 false NiN, auto, fp16, overlapped
googlenet-auto googlenet auto fp16 0.5 1 false GoogLeNet, auto, fp16, tensor by tensor'
CASES=${CASES:-$(echo "$all_cases" | awk '{print $1}')}

# column FILE NAME: of the second line
column() { awk -F, -v name="$2" 'NR == 1 {for (i = 1; i <= NF; i++) if ($i == name) at = i} NR == 2 {print $at}' "$1"; }
# all_run LIMIT_S COMMAND..: $ranks of it on each host
all_run() {
    all_limit=$1; shift
    if [ "$RANKS" -eq 1 ]; then net_run "$all_limit" "$@"; else net_run_nodes "$all_limit" "$ranks" "$@"; fi
}
# perf_run LIMIT_S OPTION..: prints the median of the one row, us
perf_run() {
    perf_limit=$1; shift
    rm -f "$scratch/csv"
    # shellcheck disable=SC2016
    all_run "$perf_limit" sh -c '[ $GF_RANK = 0 ] || exec "$@" >/dev/null; exec "$@" --csv '"$scratch/csv" sh \
        "$BUILD/gf-perf" "$@" >"$scratch/turn" 2>"$scratch/turn.err" ||
        { echo "# gf-perf failed: $(tail -n 1 "$scratch/turn.err")" >&2; return 1; }
    column "$scratch/csv" p50_us
}
# plan_run CONFIG MODEL NODES COMPUTE_MS LATENCY_US COST_US OPS_B_S NODE_US NODE_B_S: of $ranks a node, sets plan_ms
plan_run() {
    sed "s/op_bandwidth = [^;]*/op_bandwidth = $7/" config/clusters/plain.cfg >"$scratch/cluster.cfg"
    "$BUILD/gf-plan" --cluster "$scratch/cluster.cfg" --gpus "$(($3 * ranks))" --set "nodes = $3; \
gpus_per_node = $ranks; node_latency = ${8}e-6; node_bandwidth = $9; \
network_bandwidth = $(net_payload "$rate"); network_latency = ${5}e-6; message_cost = ${6}e-6" \
        --config "$1" --model "$2" --compute-ms "$4" --csv "$scratch/plan.csv" \
        >"$scratch/plan" 2>&1 || { echo "# gf-plan failed: $(tail -n 1 "$scratch/plan")" >&2; return 1; }
    plan_ms=$(column "$scratch/plan.csv" step_ms)
}
# config_write FILE SETTINGS
config_write() {
    cat >"$1" <<EOF
rendezvous = { address = "$(net_address 0):7117"; insecure = true; };
link = { devices = "eth0"; idle = "sleep"; };
$2
EOF
}

# What predictions for these hosts at this rate are given beside the rate: sets
# inputs="LATENCY_US COST_US OPS_B_S NODE_US NODE_B_S".
# - By doubling 64 bytes take log2(n) turns of a latency each.
# - A ring sends its bytes in slices: smaller ones are so many messages more, each of which keeps the port for its cost.
# - All hosts at once take sparse steps of worlds of one rank, each by itself: what gf-plan gives such a step says how
#   fast ops were, hosts sharing cores and memory as they do.
# - In a node doubling takes log2(ranks) turns; of `direct` a rank reads and writes (ranks - 1) / ranks of the data of
#   others and, at the rate of ops, reads and writes three times its block.
calibrate() {
    config_write "$scratch/cal.cfg" ''
    ranks=1
    small=$(perf_run 60 --config "$scratch/cal.cfg" --algorithm doubling -b 64 -e 64 -n 300 -w 20) &&
        large=$(perf_run 60 --config "$scratch/cal.cfg" --algorithm ring -b 2M -e 2M -n 5 -w 1) &&
        sliced=$(perf_run 60 --config "$scratch/cal.cfg" --algorithm ring -b 2M -e 2M -n 5 -w 1 \
            --set exchange.slice_bytes=4K) ||
        return 1
    cat >"$scratch/alone.cfg" <<EOF
exchange = { wire = "fp16"; algorithm = "ring"; };
link = { idle = "sleep"; };
sparse = { enabled = true; };
EOF
    ranks=$RANKS
    # shellcheck disable=SC2016
    all_run 60 sh -c 'csv=$1.$GF_RANK; shift; export GF_ADDRESS=127.0.0.1:$((7117 + GF_RANK))
        GF_RANK=0 GF_WORLD=1 exec "$@" --csv "$csv"' sh "$scratch/alone" \
        "$BUILD/gf-perf" --config "$scratch/alone.cfg" --model config/models/nin.cfg -c 0 -n 20 >"$scratch/turn" 2>&1 ||
        { echo "# gf-perf failed: $(tail -n 1 "$scratch/turn")" >&2; return 1; }
    for i in $(seq 0 $((n * ranks - 1))); do
        echo "ops step $(column "$scratch/alone.$i" p50_us)"
    done >"$scratch/alone"
    ranks=1
    plan_run "$scratch/alone.cfg" config/models/nin.cfg 1 0.001 0 0 $nominal_ops 0 1e10 || return 1
    ranks=$RANKS
    alone=$(median "$scratch/alone" ops step)
    inputs=$(echo "$small $large $sliced $alone $plan_ms" | awk -v n="$n" -v ops=$nominal_ops '{
        for (turns = 0; 2 ^ turns < n; turns++) {}
        cost = ($3 - $2) / (2 * (n - 1) / n * (2097152 / 4096 - 2097152 / 262144))
        printf "%.1f %.2f %.3g\n", $1 / turns, (cost > 0 ? cost : 0), ops * $5 * 1e3 / $4}')
    [ "$ranks" -gt 1 ] || { inputs="$inputs 0 1e10"; return; }
    near=$(near_run doubling -b 64 -e 64 -n 300 -w 20) && block=$(near_run direct -b 2M -e 2M -n 20 -w 2) || return 1
    inputs="$inputs $(echo "$inputs $near $block" | awk -v r="$ranks" '{
        for (turns = 0; 2 ^ turns < r; turns++) {}
        left = $5 * 1e-6 - 3 * 2097152 / r / $3
        printf "%.2f %.3g", $4 / turns, (left > 0 ? 2 * (r - 1) / r * 2097152 / left : 1e12)}')"
}
# near_run ALGORITHM OPTION..: on each host a world of its own; prints the median of the first one, us
near_run() {
    near_algorithm=$1; shift
    sed 's/address = [^;]*;//; s/,tcp//; s/devices = [^;]*;//' "$scratch/cal.cfg" >"$scratch/near.cfg"
    # shellcheck disable=SC2016
    all_run 60 sh -c 'export GF_ADDRESS=127.0.0.1:7117 GF_WORLD=$1; csv=$2.$((GF_RANK / $1)); shift 2
        GF_RANK=$((GF_RANK % GF_WORLD)); [ $GF_RANK = 0 ] || exec "$@" >/dev/null; exec "$@" --csv "$csv"' sh "$ranks" \
        "$scratch/near" "$BUILD/gf-perf" --config "$scratch/near.cfg" --algorithm "$near_algorithm" "$@" \
        >"$scratch/turn" 2>"$scratch/turn.err" ||
        { echo "# gf-perf failed: $(tail -n 1 "$scratch/turn.err")" >&2; return 1; }
    column "$scratch/near.0" p50_us
}
# case_run NAME MODEL ALGORITHM WIRE SHARE FUSE SPARSE WHAT: keeps "name hosts rate compute measured predicted
# latency cost ops, of a node latency and rate", ms as far as not said
case_run() {
    model=config/models/$2.cfg
    config_write "$scratch/case.cfg" "exchange = { algorithm = \"$3\"; wire = \"$4\"; fuse_bytes = $6; };
sparse = { enabled = $7; };"
    compute=$(counts_of_model "$model" |
        awk -v n="$((n * RANKS))" -v rate="$(net_payload "$rate")" -v wire="$4" -v share="$5" '{elems += $1}
            END {print int(share * 2 * (n - 1) / n * elems * (wire == "fp32" ? 4 : 2) / rate * 1e3)}')
    real=$(perf_run 200 --config "$scratch/case.cfg" --model "$model" --compute-ms "$compute" \
        ${SECONDS_EACH:+--seconds "$SECONDS_EACH"} ${SAMPLES:+-n "$SAMPLES"} -c 0) || return 1
    [ "$compute" -gt 0 ] || compute=0.001
    # shellcheck disable=SC2086
    plan_run "$scratch/case.cfg" "$model" "$n" "$compute" $inputs || return 1
    echo "$1 $n $rate $compute $real $plan_ms $inputs" | awk '{$5 /= 1e3; print}' >"$kept/$1.$shape.$rate"
    cat "$kept/$1.$shape.$rate" >&2
}

# Of all that is kept: a row a case, a column a network. Exits 1 where it is not good enough.
tables_print() {
    for case in $(echo "$all_cases" | awk '{print $1}'); do
        for n in $HOSTS; do shape_set; for rate in $RATES; do cat "$kept/$case.$shape.$rate" 2>/dev/null; done; done
    done >"$scratch/rows"
    for n in $HOSTS; do for rate in $RATES; do
        where="$n hosts$([ "$RANKS" -eq 1 ] || echo " of $RANKS ranks"), $rate Mbit/s"
        awk -v n="$n" -v rate="$rate" '$2 == n && $3 == rate {
            print "measured", $1, $5; print "predicted", $1, $6}' "$scratch/rows" | rows_keep plan "$where" ms -
    done; done
    echo "$all_cases" | awk -v hosts="$HOSTS" -v rates="$RATES" -v ranks="$RANKS" '
        NR == FNR { at = $2 " " $3; real[$1, at] = $5; plan[$1, at] = $6
            inputs[at] = $7 " us, " $8 " us, " $9 / 1e9 " GB/s"
            if (ranks > 1) inputs[at] = inputs[at] "; " $10 " us, " $11 / 1e9 " GB/s"
            next }
        !hosts_n { hosts_n = split(hosts, h, " "); rates_n = split(rates, r, " ")
            head = "| step, ms; error of the prediction |"; line = "|---|"
            for (i = 1; i <= hosts_n; i++) for (j = 1; j <= rates_n; j++) {
                at = h[i] " " r[j]; nets[++nets_n] = at
                head = head " " h[i] " hosts" (ranks > 1 ? " of " ranks " ranks" : "") ", " r[j] " Mbit/s |"
                line = line "---|" }
            print head; print line }
        { row = $0; for (i = 1; i <= 7; i++) sub(/^[^ ]* /, "", row); row = "| " row " |"
            for (i = 1; i <= nets_n; i++) {
                if (!(($1, nets[i]) in real)) { row = row " - |"; continue }
                error = (plan[$1, nets[i]] / real[$1, nets[i]] - 1) * 100; size = error < 0 ? -error : error
                for (k = ++count; k > 1 && sizes[k - 1] > size; k--) sizes[k] = sizes[k - 1]
                sizes[k] = size
                row = row sprintf(real[$1, nets[i]] < 100 ? " %.1f, " : " %.0f, ", real[$1, nets[i]])
                row = row sprintf("%+.1f %% |", error) }
            print row }
        END { row = "| latency, cost of a message, ops" (ranks > 1 ? "; latency and rate in a node" : "") " |"
            for (i = 1; i <= nets_n; i++) row = row " " inputs[nets[i]] " |"
            print row
            middle = (sizes[int((count + 1) / 2)] + sizes[int(count / 2) + 1]) / 2
            printf "\n%d predictions: the median error is %.1f %%, the worst %.1f %%.\n", count, middle, sizes[count]
            exit !(count > 0 && middle < 10 && sizes[count] < 20) }' "$scratch/rows" -
}

shape_set() { shape=$n; [ "$RANKS" -eq 1 ] || shape=${n}x$RANKS; }

mkdir -p "$kept"
for n in $HOSTS; do
    shape_set
    for rate in $RATES; do
        todo=''
        for case in $CASES; do [ -s "$kept/$case.$shape.$rate" ] || todo="$todo $case"; done
        [ -n "$todo" ] || continue
        net_up "gf$$" "$n" "${rate}mbit" || exit 1
        calibrate || exit 1
        echo "# $n hosts, $rate Mbit/s: $inputs" >&2
        for case in $todo; do
            # shellcheck disable=SC2046
            case_run $(echo "$all_cases" | awk -v name="$case" '$1 == name') || failed=1
        done
        net_down
    done
done
machine_print
echo "\`make bench-plan\`: each host a network namespace of this machine, links of so many Mbit/s both ways."
echo
tables_print || failed=1
exit $failed
