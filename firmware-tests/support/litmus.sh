#!/bin/sh
# The flag protocols of direct as litmus tests for herd7 (C11, model RC11): `make check-litmus`. No execution of
# a protocol may reach its `exists` clause or have a data race. Each is then broken, one line at a time, and herd7 must
# find that. LITMUS_KEEP=FILE: a table of what was seen.
. firmware-tests/support/shell.sh
tests=firmware-tests/node herd=${HERD:-herd7} passed=0
if ! command -v "$herd" >/dev/null; then
    skip check-litmus "there is no herd7, which is no package of Debian 12 (HERD=FILE gives it)"
    echo "0 passed, 0 failed, 1 skipped"; exit 0
fi
table=${LITMUS_KEEP:-$scratch/table}
{ echo "| protocol, or how it is broken | states | executions that reach it | that do not | seen | race |"
  echo "|---|---|---|---|---|---|"; } >"$table"

# look FILE NAME: sets `seen` (Never, Sometimes, Always) and `race`
look() {
    seen=nothing race=no
    timeout 60 "$herd" -optace true -model rc11.cat "$1" >"$scratch/out" 2>"$scratch/err" || {
        cat "$scratch/err"; return; }
    seen=$(awk '$1 == "Observation" { print $3 }' "$scratch/out")
    grep -q "^Flag\|^Undef" "$scratch/out" && race=yes
    awk -v name="$2" -v race=$race '$1 == "States" { n = $2 } $1 == "Observation" {
        print "| " name " | " n " | " $4 " | " $5 " | " tolower($3) " | " race " |" }' "$scratch/out" >>"$table"
}
holds() {
    look $tests/"$1".litmus "$1"
    if [ "$seen $race" = "Never no" ]; then ok "$1"; passed=$((passed + 1))
    else not_ok "$1" "seen: $seen; race: $race"; fi
}
# broken NAME HOW SED: the protocol with one change
broken() {
    sed "$3" $tests/"$1".litmus >"$scratch/$1.litmus"
    if cmp -s $tests/"$1".litmus "$scratch/$1.litmus"; then not_ok "$1: $2" "the change met no line"; return; fi
    look "$scratch/$1.litmus" "$1: $2"
    case $seen/$race in
    Sometimes/*|Always/*|Never/yes) ok "$1: $2 is found"; passed=$((passed + 1)) ;;
    *) not_ok "$1: $2" "seen: $seen; race: $race" ;;
    esac
}
# orders FUNCTION ORDERS: those that the tests were written for, as they stand in the link
orders() {
    is=$(awk -v name="$1(" '/^[a-z]/ && index($0, name) { inside = 1 } inside && /^}/ { exit }
        inside { sub(/fence\(\);/, "__ATOMIC_SEQ_CST"); while (match($0, /__ATOMIC_[A-Z_]+/)) {
            printf "%s ", substr($0, RSTART + 9, RLENGTH - 9); $0 = substr($0, RSTART + RLENGTH) } }' \
        drivers/host/flags.c drivers/host/node.c drivers/link.h)
    if [ "$is" = "$2 " ]; then ok "orders of $1"; passed=$((passed + 1))
    else not_ok "orders of $1" "$is instead of $2"; fi
}
orders gf_node_flag_store RELEASE
orders gf_flag_load ACQUIRE
orders gf_flag_arm "RELAXED SEQ_CST"
orders gf_flag_sleep "RELAXED RELAXED"
orders gf_flag_wake "SEQ_CST RELAXED RELAXED"

stores() { broken "$1" "$2, relaxed" "/\/\* $3 \*\//s/release/relaxed/"; }
loads() { broken "$1" "$2, relaxed" "/\/\* $3 \*\//s/acquire/relaxed/"; }
fences() {
    broken "$1" "no fence of the $2" "/\/\* $3 \*\//d"
    broken "$1" "the fence of the $2 acquires and releases" "/\/\* $3 \*\//s/seq_cst/acq_rel/"
}
holds data
stores data "the flag's store" "signalled.*"
loads data "the flag's load" waited
holds results
stores results "the store behind the data" signalled
stores results "the store behind the work" worked
loads results "the load before the work" "waited, then the work"
loads results "the owner's load" "waited, then the result"
holds staging
stores staging "the store behind the work" "worked 0"
loads staging "the owner's load" "waited 1"
stores staging "the store behind the next copy" "signalled 2"
loads staging "the load before the next work" "waited 2"
broken staging "copied in a round early" "/waited 1/d;s/second >= 2) { .. COPY_OUT/first >= 1) { \/* COPY_OUT/"
holds rows
stores rows "the store behind the first" "signalled k"
loads rows "the load before the first" "waited k"
stores rows "the store when the first has been read" "signalled k + L"
loads rows "the load before the third" "waited k + L"
stores rows "the store behind the third" "signalled k + 2 L"
broken rows "one place" "/waited k + L/d;s/second >= 2) {/first >= 1) {/"
for name in sleep sleep_again sleep_two; do
    holds $name
    fences $name sleeper armed
    fences $name waker stored
done
echo "$passed passed, $failures failed, 0 skipped"
finish
