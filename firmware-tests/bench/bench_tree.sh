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
cat >"$scratch/net.cfg" <<EOF
rendezvous = { address = "$(net_address 0):7117"; insecure = true; };
link = { transports = "self,tcp"; devices = "eth0"; idle = "sleep"; };
EOF
: >"$times"
for n in $HOSTS; do
    net_up gftree "$n" "${RATE_MBIT}mbit" || exit 1
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
rows | awk -v size="$(size_name "$BYTES")" -v rate="$RATE_MBIT" '
    {n[NR] = $1; for (c = 2; c <= 7; c++) {v[NR, c] = $c / 1e3; if ($c / 1e3 > top) top = $c / 1e3}}
    function x(hosts) {return 70 + (hosts - n[1]) * 460 / (n[NR] > n[1] ? n[NR] - n[1] : 1)}
    function y(ms) {return 330 - ms * 280 / top}
    function line(c, color, dash,   i) {
        printf "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s points=\"", color, dash ? " stroke-dasharray=\"5 4\" opacity=\"0.6\"" : ""
        for (i = 1; i <= NR; i++) printf "%.1f,%.1f ", x(n[i]), y(v[i, c])
        print "\"/>"
        for (i = 1; !dash && i <= NR; i++) printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x(n[i]), y(v[i, c]), color
    }
    END {
        print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 390\" font-family=\"sans-serif\" font-size=\"13\">"
        print "<rect width=\"640\" height=\"390\" fill=\"white\"/>"
        printf "<text x=\"70\" y=\"24\" font-size=\"15\">Allreduce of %s at %s Mbit/s, ms (dashed: bytes alone)</text>\n", size, rate
        step = 10 ^ int(log(top) / log(10)); if (top / step < 3) step /= 2
        for (ms = 0; ms <= top; ms += step) {
            printf "<line x1=\"70\" x2=\"530\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", y(ms), y(ms)
            printf "<text x=\"62\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", y(ms) + 4, ms
        }
        for (i = 1; i <= NR; i++) printf "<text x=\"%.1f\" y=\"350\" text-anchor=\"middle\">%d</text>\n", x(n[i]), n[i]
        print "<text x=\"300\" y=\"374\" text-anchor=\"middle\">hosts</text>"
        split("server #c0392b tree #2471a3 ring #1e8449", names, " ")
        for (c = 2; c <= 4; c++) {
            line(c + 3, names[2 * c - 2], 1); line(c, names[2 * c - 2], 0)
            printf "<text x=\"538\" y=\"%.1f\" fill=\"%s\">%s</text>\n", y(v[NR, c]) + 4, names[2 * c - 2], names[2 * c - 3]
        }
        print "</svg>"
    }' >"$svg"
printf '\n%s is drawn.\n' "$svg"
