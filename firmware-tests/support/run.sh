#!/bin/sh
# run.sh SUITE..: runs cmocka programs and shell tests, JOBS (2) at a time, each under a time limit of LIMIT (900)
# seconds and, where this user may, in a network namespace of its own; shows what failed and the last TAIL (60) lines,
# and closes with one line "N passed, N failed, N skipped". A suite's line has its seconds by the clock and of CPU, which
# a busy machine changes less. A suite whose source says "suite: alone" depends on time and runs when the others have
# ended. $BUILD/logs/ keeps what each one printed. A suite that crashes, hangs or counts nothing is a failure.
set -u
BUILD=${BUILD:-build} LIMIT=${LIMIT:-900} TAIL=${TAIL:-60} WRAP=${WRAP:-} NETNS=${NETNS-}
export BUILD LIMIT TAIL WRAP NETNS
logs=$BUILD/logs
name_of() { basename "$1"; }

# count PATTERN: the sum of the numbers that cmocka's closing lines give
count() { sed -n "s/^\[  $1 \].* \([0-9]*\) test(s).*/\1/p" "$log" | awk '{n += $1} END {print n + 0}'; }

one() {
    name=$(name_of "$1") begin=$(date +%s)
    log=$logs/$name.log
    case $1 in
    *.sh) shell=$(sed -n '1s/^#! *//p' "$1")
        $NETNS timeout -k 10 "$LIMIT" "${shell:-/bin/sh}" "$1" >"$log" 2>&1 </dev/null; code=$?
        p=$(grep -c '^ok ' "$log") f=$(grep -c '^not ok ' "$log") s=$(grep -c '^skip ' "$log") ;;
    *) $NETNS timeout -k 10 "$LIMIT" $WRAP "$1" >"$log" 2>&1 </dev/null; code=$?
        p=$(count 'PASSED ') f=$(count 'FAILED ') s=$(count SKIPPED) ;;
    esac
    why=
    if [ "$code" -ne 0 ] && [ "$f" -eq 0 ]; then f=1 why=" (exit $code)"; fi
    [ "$code" -eq 124 ] || [ "$code" -eq 137 ] && why=" (not ended after $LIMIT s)"
    if [ $((p + f + s)) -eq 0 ]; then f=1 why=" (counted nothing)"; fi
    echo "$p $f $s" >"$logs/$name.count"
    times >"$logs/$name.times" # in this shell: a child of its own would have none
    cpu=$(sed -n 's/[ms]/ /g; 2p' "$logs/$name.times" | awk '{printf "%.0f", 60 * $1 + $2 + 60 * $3 + $4}')
    {
        printf '%-44s %4d passed %3d failed %3d skipped %4d s, CPU %3d s%s\n' \
            "$name" "$p" "$f" "$s" $(($(date +%s) - begin)) "$cpu" "$why"
        if [ "$f" -gt 0 ]; then
            head -n "-$TAIL" "$log" | grep '^not ok \|^\[  FAILED' | sed 's/^/    /'
            tail -n "$TAIL" "$log" | sed 's/^/    /'
        fi
        grep '^skip ' "$log" | sed 's/^/    /'
    } >"$logs/$name.said"
    cat "$logs/$name.said"
}
if [ "${1:-}" = --one ]; then one "$2"; exit 0; fi
if [ "${1:-}" = --inside ]; then ip link set lo up; shift; exec "$@"; fi

# Without namespaces two suites may want the same port.
mkdir -p "$logs"
if unshare -n true 2>/dev/null && command -v ip >/dev/null; then NETNS="unshare -n sh $0 --inside"; else JOBS=1; fi
together='' alone=''
for suite in "$@"; do
    name=$(name_of "$suite")
    rm -f "$logs/$name.count"
    if cat firmware-tests/*/"${name%.sh}".* 2>/dev/null | grep -q 'suite: alone'; then alone="$alone $suite"; else together="$together $suite"; fi
done
# shellcheck disable=SC2086
[ -z "$together" ] || printf '%s\n' $together | xargs -P "${JOBS:-2}" -n 1 sh "$0" --one
# shellcheck disable=SC2086
[ -z "$alone" ] || printf '%s\n' $alone | xargs -n 1 sh "$0" --one
[ -z "${LEFT_OUT:-}" ] || echo "left out, for this build lacks what they test: $LEFT_OUT"
for suite in "$@"; do # an empty one: the disk was full
    grep . "$logs/$(name_of "$suite").count" 2>/dev/null || { echo "$suite: not counted" >&2; echo 0 1 0; }
done |
    awk '{p += $1; f += $2; s += $3} END {printf "%d passed, %d failed, %d skipped\n", p, f, s; exit !(f == 0 && p > 0)}'
