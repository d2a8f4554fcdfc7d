# What the suites of elastic jobs share: gf-train under gf-run, ranks that say their process in $scratch/pid.RANK, and
# what a job printed in $scratch/log. Read behind shell.sh.
export LC_ALL=C OPENBLAS_NUM_THREADS=1

accuracy() { sed -n 's/^.*test accuracy *\([0-9.]*\) %.*$/\1/p' "$1"; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d < 1 && d > -1) }'; } # within a point
nap() { sleep "$(awk -v ms="$1" 'BEGIN { print ms / 1000 }')"; }
show() { tail -n "${1:-20}" "$scratch/log"; return 1; }

# memory PRIVATE: what link.private_memory makes of a job on one host
memory() { if [ "$1" = true ]; then echo over_tcp; else echo in_a_node; fi; }

# job_start "GF-RUN OPTIONS" GF-TRAIN OPTION..: in the background, as $job, until rank 0 has saved a step. It is held
# from there on: it does not come to its end before job_end. All say --resume, which is right for the first start and
# for a later one.
job_start() {
    how=$1; shift
    hold "${every:-10}"
    rm -rf "$scratch"/pid.* "$scratch"/c.* "$scratch/log"
    # shellcheck disable=SC2016,SC2086 # $$ is the rank's; words of the options
    timeout 200 "$BUILD/gf-run" $how sh -c '
        echo $$ >"$0/pid.$GF_RANK"; exec "$@"' "$scratch" "$held" $small --elastic \
        --checkpoint "$scratch/c" --resume --checkpoint-every "${every:-10}" "$@" >"$scratch/log" 2>&1 &
    job=$!
    until at=$(step_of "$scratch/c.0"); [ "${at:-0}" -gt 0 ]; do
        kill -0 $job 2>/dev/null || { echo "it ended before"; show; return 1; }
        sleep 0.01
    done
}
# wait_for N PATTERN: until the log has N lines of it; fails if the job has ended without
has_said() { [ "$(grep -c "$2" "$scratch/log")" -ge "$1" ]; }
wait_for() {
    until has_said "$@"; do
        kill -0 $job 2>/dev/null || { has_said "$@" || show; return; }
        sleep 0.01
    done
}
job_end() { let_end; wait $job; } # its exit code
# moves N: rank 0 saves so many steps more, within a minute
has_saved() { at=$(step_of "$scratch/c.0"); [ "${at:-0}" -ge $goal ] || ! kill -0 $job 2>/dev/null; }
moves() {
    from=$(step_of "$scratch/c.0") goal=$((${from:-0} + $1))
    await 60 has_saved || { show; return 1; }
    kill -0 $job 2>/dev/null || { echo "it ended"; show; }
}
signal() { kill "-$1" "$(cat "$scratch/pid.$2")"; } # SIGNAL RANK
# regions RANK..: which memory each of them has as its exchange region
regions() {
    for rank in "$@"; do
        pid=$(cat "$scratch/pid.$rank")
        for fd in "/proc/$pid/fd"/*; do
            case $(readlink "$fd") in /memfd:gradientflow*) echo "$rank $(stat -L -c %i "$fd")" ;; esac
        done
    done
}
# undisturbed OPTION..: the accuracy of a job of one rank: that of any number
undisturbed() {
    timeout 200 "$BUILD/gf-train" $small "$@" >"$scratch/whole" 2>&1
    accuracy "$scratch/whole"
}
# measured FILE WHAT: of the nanoseconds in the file, one a line
measured() {
    [ -f "$1" ] || return 0
    sort -n "$1" | awk -v what="$2" '{ t[NR] = $1 / 1e9 } END {
        printf "# %s, seconds: min %.3f median %.3f max %.3f of %d\n", what, t[1], t[int((NR + 1) / 2)], t[NR], NR }'
}
