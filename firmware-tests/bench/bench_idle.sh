#!/bin/sh
# What link.idle = auto costs beside each fixed setting: `make bench-idle` (15 minutes; hosts need root). Settings take
# turns, ROUNDS times over; the mean time of an operation counts, because a core that was given away for a time slice
# shows in no median; of the rounds, the median. CASES="cores oversubscribed hosts neighbour trainer",
# SETTINGS="auto yield sleep" (spin takes minutes with many ranks), RANKS="4 8 16" of one host and HOSTS="2 4".
set -u
export LC_ALL=C
. firmware-tests/bench/bench_parts.sh
. firmware-tests/support/net.sh
CASES=${CASES:-cores oversubscribed hosts neighbour trainer} ROUNDS=${ROUNDS:-5} SECONDS_EACH=${SECONDS_EACH:-0.3}
settings=${SETTINGS:-auto spin yield sleep}
program=$BUILD/firmware-tests/bench_idle
busy=''
busy_end() { [ -z "$busy" ] || kill $busy; [ -z "$busy" ] || wait $busy 2>/dev/null; busy=''; }
net_begin bench-idle
trap 'busy_end; net_down; rm -rf "$scratch"' EXIT

# of all processes, and of those that this shell has waited for: ticks so far
ticks_all() { awk '/^cpu / {print $2 + $3 + $4 + $7 + $8}' /proc/stat; } # a process is charged what interrupted it, too
ticks_own() { awk '{sub(/.*\) /, ""); print $12 + $13 + $14 + $15}' /proc/$$/stat; }

# turn RANKS SETTING BYTES [LAYERS COMPUTE_US]: on this host, or one a host where there are some
turn() {
    turn_ranks=$1 turn_config=$scratch/$2.cfg; shift 2
    if [ -n "$net_prefix" ]; then net_run 60 sh -c "$pin"' exec "$@"' sh \
        "$program" "$turn_config" "$1" "$SECONDS_EACH" ${2:-} ${3:-}
    else timeout -k 5 60 "$BUILD/gf-run" -n "$turn_ranks" --config "$turn_config" sh -c "$pin"' exec "$@"' sh \
        "$program" "$turn_config" "$1" "$SECONDS_EACH" ${2:-} ${3:-}
    fi >"$scratch/turn" 2>"$scratch/turn.err" || { echo "# $turn_config failed: $(tail -n 1 "$scratch/turn.err")" >&2; return; }
    awk 'NF >= 2 {print $(NF - 1)}' "$scratch/turn"
}
# row NAME RANKS "BYTES.." [LAYERS COMPUTE_US]
row() {
    row_name=$1 row_ranks=$2 row_sizes=$3; shift 3
    address=127.0.0.1 rest=''
    [ -z "$net_prefix" ] || address=$(net_address 0) rest='devices = "eth0"; '
    for setting in $settings; do
        echo "rendezvous = { address = \"$address:7117\"; insecure = true; }; link = { ${rest}idle = \"$setting\"; };" >"$scratch/$setting.cfg"
    done
    times=$scratch/times all=$(ticks_all) own=$(ticks_own)
    : >"$times"
    for round in $(seq 1 "$ROUNDS"); do
        echo "# $row_name, round $round of $ROUNDS" >&2
        for bytes in $row_sizes; do
            for setting in $settings; do
                us=$(turn "$row_ranks" "$setting" "$bytes" "$@")
                [ -z "$us" ] || echo "$setting $bytes $us" >>"$times"
            done
        done
    done
    busy_end
    others=$(awk -v all=$(($(ticks_all) - all)) -v own=$(($(ticks_own) - own)) 'BEGIN {printf "%.0f %%", 100 * (all - own) / (all + 1)}')
    for bytes in $row_sizes; do
        printf '| %s | %s |' "$row_name" "$bytes"
        for setting in $settings; do printf ' %s |' "$(us "$(median "$times" "$setting" "$bytes")")"; done
        # shellcheck disable=SC2086
        fastest=$(best "$times" "$bytes" $(echo "$settings" | sed 's/auto//'))
        echo " ${fastest% *} | $(ratio "${fastest#* }" "$(median "$times" auto "$bytes")") | $others |"
    done
    rows_keep idle "$row_name" us "$times"
}
neighbours() { for core in "$@"; do taskset -c "$core" sh -c 'while :; do :; done' & busy="$busy $!"; done; }

cores=$(nproc) pin=''
machine_print
echo "\`make bench-idle\`: us an operation, mean, median of $ROUNDS interleaved rounds of $SECONDS_EACH s; others: what other processes had of the CPU time."
printf '\n| ranks | bytes | auto | spin | yield | sleep | best fixed | / auto | others |\n|---|---|---|---|---|---|---|---|---|\n'
for case in $CASES; do
    case $case in
    cores)
        # shellcheck disable=SC2016
        pin='taskset -pc $GF_RANK $$ >/dev/null;'
        row "2, a core each" 2 "8 4096 65536 4194304"
        pin='' ;;
    oversubscribed)
        # shellcheck disable=SC2016
        pin='taskset -pc 0 $$ >/dev/null;'
        row "2 on one core" 2 "64 65536"
        pin=''
        for n in ${RANKS:-4 8 16}; do row "$n on $cores cores" $n "64 65536"; done ;;
    hosts)
        for n in ${HOSTS:-2 4}; do
            net_up "gf$$" $n 40gbit || exit 1
            row "$n hosts on $cores cores" $n "8 4096 65536"
            # without the scheduler's choice of who shares a core, which decides more than the setting does
            pin="taskset -pc \$((GF_RANK % $cores)) \$\$ >/dev/null;"
            row "$n hosts on $cores cores, pinned" $n "8 4096 65536"
            pin=''
            net_down
        done ;;
    neighbour)
        neighbours $(seq 0 $((cores - 1)))
        row "2, a neighbour on each core" 2 "64 65536"
        neighbours $(seq 0 $((cores - 1)))
        row "4, a neighbour on each core" 4 "64 65536"
        neighbours $(seq 0 $((cores - 1)))
        net_up "gf$$" 4 40gbit || exit 1
        row "4 hosts, a neighbour on each core" 4 "64 65536"
        net_down ;;
    trainer)
        for n in 2 4; do row "$n, steps of 4 layers, 1 ms each" $n 65536 4 1000; done
        net_up "gf$$" 4 40gbit || exit 1
        row "4 hosts, steps of 4 layers, 1 ms each" 4 65536 4 1000
        net_down ;;
    esac
done
