#!/bin/sh
# Chaos: an elastic training job of 8 real ranks on 4 hosts (network namespaces; two ranks of a host share memory),
# under gf-run with restarts and growth. Each second something befalls it that the seed drew: a rank is killed,
# stopped, told to end (and started again) or to leave, a cable is pulled, a link is slow, a rank comes in; the
# coordinator is killed or stopped.
#     chaos.sh SECONDS [SEED]
# PLACE says where the coordinator is: run, gf-run's own; own, gf-coordinator in a loop that starts it again; rank0, in
# rank 0's process, whose death ends the job: nothing befalls that one and its host.
# Then the faults end, and the job must come to its end: weights equal on all ranks, the loss of a quiet run within
# 2 %, no crash, no descriptor, no file and no shared memory left. Each fault is printed with its time; KEEP=DIR keeps
# the logs. Needs root, otherwise it is skipped.
# A fault that would leave nobody undisturbed becomes a slow link. The coordinator is killed where nobody is stopped or
# cut off: it takes over what all of a generation say, and a job of which some have died meanwhile ends, and is right to.
# shellcheck source-path=SCRIPTDIR disable=SC2034,SC2154,SC2086,SC2046,SC2012 # shared with lab_job.sh
set -u
export LC_ALL=C OPENBLAS_NUM_THREADS=1
BUILD=${BUILD:-build}
hosts=4 ranks=8 most=64 enough=1 port=7117 own_port=7118 coordinator=''
place=${PLACE:-run}
here=$(dirname "$0")
. firmware-tests/support/net.sh
. "$here/lab_job.sh"
. "$here/chaos_ranks.sh"
[ "${1:-}" != rank ] || { shift; rank_become "$@"; }
seconds=${1:-60} seed=${2:-$(date +%s)}
missing=$(net_missing)
if [ -n "$missing" ]; then echo "skipped: $missing"; exit 0; fi
net_burst=64k link_rate=100mbit
keepalive_s=1 timeout_s=6 join_s=12 batch=1024

work=$(mktemp -d) || exit 1
touch "$work/faults" "$work/log"
clean() {
    net_down
    wait 2>/dev/null
    [ -z "${KEEP:-}" ] || { mkdir -p "$KEEP" && cp -r "$work"/. "$KEEP"; }
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM HUP
net_up "chaos$$" $hosts $link_rate || exit 1
mkdir "$work/data" && idx_part "$work/data" train 2048 && idx_part "$work/data" t10k 256
config_write hosts
failed=0 faults=0 at=0 job=0
wrong() { echo "not ok: $*"; failed=$((failed + 1)); }

# ---- what befalls the job ----

draw() { # BELOW: a number of the seed's, in $drawn
    seed_state=$(((seed_state * 1103515245 + 12345) & 0x7fffffff))
    drawn=$(((seed_state >> 8) % $1))
}
say() { faults=$((faults + 1)); echo "$(now_ns) $*" >>"$work/faults"; printf '%7.1f s  %s\n' "$(seconds_in)" "$*"; }
seconds_in() { awk -v a="$began_ns" -v b="$(now_ns)" 'BEGIN { print (b - a) / 1e9 }'; }
later() { # SECONDS COMMAND..
    (sleep "$1"; shift; "$@") 2>/dev/null &
}
fault_slow() { # HOST MS
    say "slow host $1: 5 Mbit/s for $2 ms"
    net_shape "$1" 5mbit
    later "$(ms "$2")" net_shape "$1" $link_rate
}
fault_cut() { # HOST MS
    say "cut host $1 for $2 ms"
    touch "$work/cut.$1"
    net_cable "$1" down
    later "$(ms "$2")" mend "$1"
}
# Its connections may be lost all the same: the host counts as cut off until all would have noticed.
mend() { net_cable "$1" up; sleep $((3 * keepalive_s + 1)); rm -f "$work/cut.$1"; }
fault_stop() { # RANK MS
    say "stop rank $1 for $2 ms"
    touch "$work/stopped.$1"
    kill -STOP "$pid"
    later "$(ms "$2")" go_on "$1" "$pid"
}
# It is killed, or stopped for less than exchange.timeout.
fault_coordinator() { # MS
    p_=$(coordinator_pid)
    [ -n "$p_" ] || return 0
    if [ "$1" -lt 500 ]; then say "kill the coordinator"; kill -KILL "$p_"; return; fi
    say "stop the coordinator for $((2 * $1)) ms"
    kill -STOP "$p_"
    later "$(ms $((2 * $1)))" kill -CONT "$p_"
}
go_on() { kill -CONT "$2"; rm -f "$work/stopped.$1"; }
ms() { awk -v ms="$1" 'BEGIN { print ms / 1000 }'; }

# One fault of the seed's; the same number of draws each time.
fault() {
    draw 16; kind=$drawn
    draw 1000; whom=$drawn
    draw 1000; long=$drawn
    ranks_look # up, whole, undisturbed
    [ $place != rank0 ] || up=$(echo $up | sed 's/^0 *//')
    victim=$(pick $whom $up) host=$((whom % hosts))
    pid=$(pid_now "${victim:-none}")
    case $kind in
    [0-3]) left=$((undisturbed - 1)) ;;
    [4-6]) left=$((undisturbed - 1)) ;;
    [7-8]) left=$((undisturbed - $(count_on $host))) ;;
    [9]|1[0-1]) left=$((undisturbed - 1)) ;;
    12) left=$((undisturbed - 1)); [ $next_rank -lt $most ] || kind=14 ;;
    13) left=$enough kind=14 ;;
    15) left=$enough; [ "$undisturbed" -eq "$up_count" ] || kind=14 ;;
    *) left=$enough kind=14 ;;
    esac
    case $place.$kind.$host in rank0.15.*|rank0.[78].0) kind=14 left=$enough ;; esac
    [ $kind -ne 3 ] || { victim=$outside pid=$(pid_now "${outside:-none}") left=$enough; }
    [ -n "$pid" ] || [ $kind -eq 15 ] || kind=14
    [ "$left" -ge $enough ] || kind=14
    # One comes for each that has left.
    [ $((next_rank - ranks)) -ge "$(grep -c 'elastic: rank .* has left' "$work/log")" ] || kind=13
    case $kind in
    [0-3]) say "kill rank $victim"; kill -KILL "$pid" ;;
    [4-5]) fault_stop "$victim" $((100 + long)) ;;
    6) fault_stop "$victim" $((1000 * (timeout_s + 1) + long)) ;;
    7) fault_cut $host $((100 + 2 * long)) ;;
    8) fault_cut $host $((4000 + 2 * long)) ;;
    9|1[0-1]) say "restart rank $victim"; kill -TERM "$pid" ;;
    12) say "leave rank $victim"; kill -USR1 "$pid" ;;
    13) say "grow by rank $next_rank"; kill -USR1 "$(gf_run_pid)"; next_rank=$((next_rank + 1)) ;;
    15) fault_coordinator $long ;;
    *) fault_slow $host $((500 + 2 * long)) ;;
    esac 2>/dev/null
}

# ---- a job ----

steps_a_second() { # of a quiet job
    sed -n 's/^.*time  *\([0-9.]*\) s, .*/\1/p' "$work/log" | awk -v s="$1" '$1 > 0 { print int(s / $1); exit }'
}
loss_of() { sed -n 's/^.*at first, \([0-9.naif]*\) at last.*/\1/p' "$1" | tail -n 1; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d < 0.02 * b && d > -0.02 * b) }'; }

job_end_check() {
    log=$work/log
    grep -q 'exit 0$' "$log" || wrong "job $job: gf-run: $(tail -n 1 "$log" | cut -d' ' -f2-)"
    grep -q ' weights .*, the same on all ranks' "$log" || wrong "job $job: no weights that are the same on all ranks"
    "$BUILD/gf-train" --config "$work/lab.cfg" $options --steps "$steps" >"$work/quiet" 2>&1
    loss=$(loss_of "$log") quiet=$(loss_of "$work/quiet")
    near "${loss:-0}" "${quiet:-0}" || wrong "job $job: the loss is ${loss:-unknown}, in a quiet run ${quiet:-unknown}"
    left=$(files_left)
    [ -z "$left" ] || wrong "job $job: left behind: $left"
    grep -Ei ' crash: |assert|sanitizer|caught signal' "$log" >"$work/crash"
    [ ! -s "$work/crash" ] || wrong "job $job: $(head -n 1 "$work/crash")"
    cp "$log" "$work/log.$job"
}

one_job() { # SECONDS: faults for so long, or until the job has ended
    job=$((job + 1)) next_rank=$ranks
    job_begin --elastic $options --steps "$steps" --checkpoint "$work/c" --checkpoint-every 200
    all_up 30 || { wrong "job $job did not begin: $(grep error: "$work/log" | head -n 1)"; return; }
    fds_look
    before=$fds_most
    lost=0
    until_ns=$(($(now_ns) + $1 * 1000000000))
    while job_runs && [ "$(now_ns)" -lt $until_ns ]; do
        fault
        [ $up_count -gt 0 ] && lost=0 || lost=$((lost + 1))
        [ $lost -lt 30 ] || break
        sleep "$(awk -v now="$(now_ns)" -v from="$began_ns" 'BEGIN { t = (now - from) / 1e9; print 1 - (t - int(t)) }')"
    done
    net_mend
    if job_runs && all_up 90; then
        fds_look
        held="$fds_most descriptors and mappings of a rank at most, $before before the faults"
        printf '%7.1f s  quiet: %s ranks; %s\n' "$(seconds_in)" $up_count "$held"
        [ $fds_most -le $((before + 4)) ] || { wrong "job $job: $held"; fds_show; }
    elif job_runs; then
        wrong "job $job: 90 s after the last fault $up_count of $running ranks are there"
        stacks_show
        kill -TERM "$(gf_run_pid)"
    fi
    job_end
    job_end_check
}

seed_state=$((seed & 0x7fffffff))
options="--model linear --batch $batch --data $work/data"
draw 3
[ "$drawn" -gt 0 ] || options="$options --set link.checksum=true"
steps=300
job_begin --elastic $options --steps $steps
job_end
rate=$(steps_a_second $steps)
[ -n "$rate" ] || { echo "not ok: a quiet job: $(tail -n 3 "$work/log")"; exit 1; }
echo "chaos: coordinator $place, seed $seed, $seconds s,${options##*"$work"/data}; a quiet job makes $rate steps a second"
began_ns=$(now_ns)
while :; do
    rest=$((seconds - ($(now_ns) - began_ns) / 1000000000))
    [ $rest -gt 5 ] && [ $failed -eq 0 ] || break
    steps=$((rate * rest / 5 + 100)) # under faults it makes a sixth of that rate
    one_job $rest
done
counts=$(cut -d' ' -f2 "$work/faults" | sort | uniq -c | awk '{ printf "%s%s %s", (NR > 1) ? ", " : "", $1, $2 }')
came=$(cat "$work"/log.* | grep -c 'elastic: member .* came ')
went=$(cat "$work"/log.* | sed -n 's/^.*elastic: .* of \([0-9]*\) from step.*/\1/p' |
    awk '{ n += 1 / $1 } END { print int(n + 0.5) }')
slow=$(grep -c ' slow host' "$work/faults")
[ "$faults" -lt 60 ] || [ $((4 * slow)) -le $((3 * faults)) ] ||
    wrong "$slow of $faults faults are slow links: ranks that are members are not seen as such"
echo "chaos: $job jobs, $faults faults ($counts), $went generations, $came ranks came back or in;" \
    "loss ${loss:-?}, quiet ${quiet:-?}"
[ $failed -eq 0 ] && echo "ok chaos" && exit 0
echo "again: PLACE=$place make chaos SECONDS=$seconds SEED=$seed"
exit 1
