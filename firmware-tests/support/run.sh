#!/bin/sh
# run.sh SUITE..: runs each suite (a cmocka program or a shell test) under a time limit, shows what failed, and closes with
# one line "N passed, N failed, N skipped". A suite that crashes, hangs or counts nothing is a failure.
set -u
BUILD=${BUILD:-build}
export BUILD
limit=${LIMIT:-240}
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0
for suite in "$@"; do
    begin=$(date +%s)
    case $suite in
    *.sh) shell=$(sed -n '1s/^#! *//p' "$suite")
        timeout -k 10 "$limit" "${shell:-/bin/sh}" "$suite" >"$log" 2>&1 </dev/null; code=$?
        p=$(grep -c '^ok ' "$log") f=$(grep -c '^not ok ' "$log") s=$(grep -c '^skip ' "$log") ;;
    *) timeout -k 10 "$limit" ${WRAP:-} "$suite" >"$log" 2>&1 </dev/null; code=$?
        p=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test(s).*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
        f=$(sed -n 's/^\[  FAILED  \].* \([0-9]*\) test(s).*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
        s=$(sed -n 's/^\[  SKIPPED \].* \([0-9]*\) test(s).*/\1/p' "$log" | awk '{n += $1} END {print n + 0}') ;;
    esac
    why=
    if [ "$code" -ne 0 ] && [ "$f" -eq 0 ]; then f=1 why=" (exit $code)"; fi
    [ "$code" -eq 124 ] || [ "$code" -eq 137 ] && why=" (not ended after $limit s)"
    if [ $((p + f + s)) -eq 0 ]; then f=1 why=" (counted nothing)"; fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '%-44s %4d passed %3d failed %3d skipped %4d s%s\n' "$(basename "$suite")" "$p" "$f" "$s" \
        $(($(date +%s) - begin)) "$why"
    if [ "$f" -gt 0 ]; then tail -n "${TAIL:-60}" "$log" | sed 's/^/    /'; fi
    grep '^skip ' "$log" | sed 's/^/    /'
done
[ -z "${LEFT_OUT:-}" ] || echo "left out, for this build lacks what they test: $LEFT_OUT"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
