#!/bin/sh
# The lab of real faults: a training job on hosts that are network namespaces (or in one host over shared memory), and what
# can befall it. Needs root and iproute2, otherwise it is skipped. From the repository root with BUILD set:
#     lab.sh [CASE ..]    each case once, or RUNS times: "ok", "not ok" or "skip" a run, and a line that counts them
#     lab.sh table        what has been measured, as Markdown
#     lab.sh rows         the same as JSON, a line for each case
# With RUNS above 1, or LAB set, results stay in $BUILD/lab (or LAB_FOLDER), and what is there is not done
# again; several labs may then work at once, each run is claimed by one, and LAB=1/3 has the first of
# three begin at another case than the others. A case may be a pattern: 'tcp_kill*'.
# shellcheck source-path=SCRIPTDIR disable=SC2034,SC2154,SC2086,SC2046,SC2119 # shared with lab_*.sh
set -u
export LC_ALL=C
BUILD=${BUILD:-build}
RUNS=${RUNS:-1}
here=$(dirname "$0")
. firmware-tests/support/net.sh
net_burst=64k link_rate=100mbit stranger=4 # the host of no rank
. "$here/lab_job.sh"
. "$here/lab_cases.sh"
. "$here/lab_report.sh"

row_of() { printf '%s' "$lab_table" | grep "^$1|"; }
all_cases() { printf '%s' "$lab_table" | sed -n 's/|.*//p'; }
chosen() { # PATTERN..
    for c in $(all_cases); do
        for wanted in "$@"; do
            # shellcheck disable=SC2254
            case $c in $wanted) echo "$c"; break ;; esac
        done
    done
}

lab=${LAB_FOLDER:-$BUILD/lab}
if [ "${1:-}" = table ]; then report_table "$lab"; exit 0; fi
if [ "${1:-}" = rows ]; then report_rows "$lab"; exit 0; fi
[ $# -gt 0 ] || set -- '*'
cases=$(chosen "$@")
cases=$(printf '%s\n' "$cases" | awk -v lab="${LAB:-1/1}" '{ c[NR] = $0 } END {
    split(lab, of, "/")
    for (i = 0; i < NR; i++) print c[(i + int((of[1] - 1) * NR / of[2])) % NR + 1] }')
if [ -z "$cases" ]; then echo "lab.sh: no case fits: $*; there are: $(all_cases | tr '\n' ' ')" >&2; exit 2; fi

passed=0 failed=0 skipped=0 pids='' undisturbed='' running=''
missing=$(net_missing)
if [ -n "$missing" ]; then
    for c in $cases; do echo "skip $c: $missing"; skipped=$((skipped + 1)); done
    echo "$passed passed, $failed failed, $skipped skipped"
    exit 0
fi

work=$(mktemp -d) || exit 1
clean() {
    [ -z "$running" ] || kill -KILL "$running" 2>/dev/null
    net_down
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM HUP
net_up "lab$$" 5 $link_rate || exit 1
mkdir "$work/data" && idx_part "$work/data" train 2048 && idx_part "$work/data" t10k 256
results=$work/results
[ "$RUNS" -eq 1 ] && [ -z "${LAB:-}" ] || results=$lab
mkdir -p "$results"
commit=$(git rev-parse --short=8 HEAD 2>/dev/null) # bench/report.py wants results of one
[ "$results" = "$work/results" ] || grep -qsx "$commit" "$results/commit" || echo "$commit" >>"$results/commit"

# What the jobs that go on must end with.
learn_undisturbed() {
    record=$work/record run=0
    job_start hosts $goes_on
    job_end
    all_finish $(others)
    undisturbed=$hash
}

run_one() { # CASE
    rm -rf "${work:?}"/[0-9] "$work"/*.log "$work"/hold "$work"/told
    record=$work/record
    : >"$record"
    bound=$(row_of "$1" | cut -d'|' -f2)
    ( "case_$1"; job_end ) & # what it sets is its own; waiting for it can be interrupted
    running=$!
    wait $running
    running=
    net_cable 2 up; net_cable 0 up; net_shape 2 $link_rate; net_forget
    if grep -q '^bad' "$record"; then
        echo "not ok $1: $(sed -n 's/^bad //p' "$record" | tr '\n' ';')"
        [ -z "${KEEP:-}" ] || { mkdir -p "$KEEP/$1.$run"; cp "$work"/*.log "$record" "$KEEP/$1.$run"; }
        failed=$((failed + 1))
    else
        echo "ok $1 $(sed -n 's/^told \(.*\)/(\1 s)/p' "$record")"
        passed=$((passed + 1))
    fi
    mkdir -p "$results/$1"
    [ -z "${KEEP:-}" ] || { mkdir -p "$KEEP/$1.$run"; cp "$work"/*.log "$KEEP/$1.$run"; }
    mv "$record" "$results/$1/$run"
}

# A claim is a link to the process that made it; one of a lab that has ended is worth nothing.
claim() { # CASE RUN
    mkdir -p "$results/$1"
    [ ! -e "$results/$1/$2" ] || return 1
    ln -s $$ "$results/$1/.$2" 2>/dev/null && return 0
    ! kill -0 "$(readlink "$results/$1/.$2")" 2>/dev/null && ln -sfn $$ "$results/$1/.$2" &&
        [ "$(readlink "$results/$1/.$2")" = $$ ] && [ ! -e "$results/$1/$2" ]
}

learn_undisturbed
if [ -z "$undisturbed" ]; then
    echo "not ok undisturbed: $(tail -n 3 "$work"/*.log)"
    failed=1
fi
run=1
while [ "$run" -le "$RUNS" ]; do
    for c in $cases; do
        claim "$c" "$run" || continue
        run_one "$c"
        rm -f "$results/$c/.$run"
    done
    run=$((run + 1))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
