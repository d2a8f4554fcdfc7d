#!/bin/sh
# FireCaffe's figure: a reduction tree against a parameter server (and a ring) over 2 to 8 hosts, each a network namespace
# with RATE_MBIT links: `make bench-tree` (root). Contenders take turns; medians of ROUNDS. Prints a table and draws
# $1 (build/tree_against_server.svg); dashed is what the bytes alone would take.
set -u
export LC_ALL=C
. firmware-tests/bench/bench_parts.sh
. firmware-tests/support/net.sh
net_begin bench-tree
ROUNDS=${ROUNDS:-3} RATE_MBIT=${RATE_MBIT:-1000} HOSTS=${HOSTS:-2 3 4 5 6 7 8} BYTES=${BYTES:-4194304}
svg=${1:-$BUILD/tree_against_server.svg}
times=$scratch/times
net_config 'idle = "sleep"; ' >"$scratch/net.cfg"
: >"$times"
for n in $HOSTS; do
    net_up "gf$$" "$n" "${RATE_MBIT}mbit" || exit 1
    for i in $(seq 1 "$ROUNDS"); do
        echo "# $n hosts, round $i of $ROUNDS" >&2
        for algorithm in server tree ring; do
            # shellcheck disable=SC2016
            net_run 60 sh -c '[ $GF_RANK = 0 ] || exec "$@" >/dev/null; exec "$@" --csv '"$scratch/csv" sh "$BUILD/gf-perf" \
                --config "$scratch/net.cfg" --algorithm $algorithm -b "$BYTES" -e "$BYTES" -n 3 -w 1 \
                >"$scratch/turn" 2>&1 ||
                { echo "# $algorithm failed: $(tail -n 1 "$scratch/turn")" >&2; exit 1; }
            awk -F, -v label=$algorithm -v n="$n" 'NR > 1 {print label, n, $7}' "$scratch/csv" >>"$times"
        done
    done
    net_down
done

# Hosts, then us of server, tree, ring and what bytes take: server 2 (n-1) W / B, tree 2 ceil(log2 n) W / B, ring
rows() {
    for n in $HOSTS; do
        echo "$n $(median "$times" server "$n") $(median "$times" tree "$n") $(median "$times" ring "$n")"
    done | awk -v bytes="$BYTES" -v rate="$(net_payload "$RATE_MBIT")" '{
        for (levels = 0; 2 ^ levels < $1; levels++) {}
        unit = bytes / rate * 1e6; print $0, 2 * ($1 - 1) * unit, 2 * levels * unit, 2 * ($1 - 1) / $1 * unit }'
}
machine_print
echo "\`make bench-tree\`: allreduce of $(size_name "$BYTES") in fp32, $RATE_MBIT Mbit/s, ms, medians of $ROUNDS rounds."
printf '\n| hosts | server | 2 (n-1) W/B | tree | 2 log2(n) W/B | ring | 2 (n-1)/n W/B |\n|---|---|---|---|---|---|---|\n'
rows | awk '{printf "| %d | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f |\n", $1, $2 / 1e3, $5 / 1e3, $3 / 1e3, $6 / 1e3, $4 / 1e3, $7 / 1e3}'
rows | awk -v size="$(size_name "$BYTES")" -v rate="$RATE_MBIT" -f firmware-tests/bench/bench_tree.awk >"$svg"
printf '\n%s is drawn.\n' "$svg"
