#!/bin/sh
# Allreduce between two hosts with link.encryption and without, taking turns: `make bench-encryption` (root). The hosts
# are network namespaces; RATES as tc writes them: 100gbit bounds nothing here, a rank's core is the limit. Prints the
# table of firmware-tests/results/encryption.md: GB/s each way of each rank, the median of ROUNDS.
set -u
export LC_ALL=C
. firmware-tests/support/shell.sh
. firmware-tests/support/net.sh
net_begin bench-encryption
ROUNDS=${ROUNDS:-3} RATES=${RATES:-"1gbit 10gbit 100gbit"} BYTES=${BYTES:-16M}
head -c 32 /dev/urandom >"$scratch/key"
chmod 600 "$scratch/key"
turn() { # true or false: busbw of each round, one a line
    {
        echo "rendezvous = { address = \"$(net_address 0):7117\"; key_file = \"$scratch/key\"; };"
        echo "link = { devices = \"eth0\"; encryption = $1; };"
    } >"$scratch/net.cfg"
    # shellcheck disable=SC2016
    net_run 60 sh -c '[ $GF_RANK = 0 ] || exec "$@" >/dev/null; exec "$@" --csv '"$scratch/csv" sh "$BUILD/gf-perf" \
        --config "$scratch/net.cfg" --min-bytes "$BYTES" --max-bytes "$BYTES" --seconds 1.5 >"$scratch/out" 2>&1 ||
        { tail -n 3 "$scratch/out" >&2; return 1; }
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i ~ /busbw/) at = i } NR > 1 { print $at }' "$scratch/csv"
}
median() { sort -n | awk '{ v[NR] = $1 } END { printf "%.3f", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }
echo "| link | plain GB/s | encrypted GB/s | share of plain |"
echo "|---|---|---|---|"
for rate in $RATES; do
    net_burst=4m
    net_up "gf$$" 2 "$rate" || exit 1
    : >"$scratch/plain"; : >"$scratch/encrypted"
    for round in $(seq "$ROUNDS"); do
        turn false >>"$scratch/plain" && turn true >>"$scratch/encrypted" || exit 1
    done
    plain=$(median <"$scratch/plain") encrypted=$(median <"$scratch/encrypted")
    echo "| $rate | $plain | $encrypted | $(awk -v a="$encrypted" -v b="$plain" 'BEGIN { printf "%.2f", a / b }') |"
    net_down
done
