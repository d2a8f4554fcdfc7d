# shellcheck shell=sh disable=SC2034,SC2154,SC2086,SC2046,SC2012 # shared with chaos.sh; numbers are words
# The hosts and ranks of chaos.sh: how a rank is started on its host, which are up, what they hold open.

files_left() {
    ls "$work" | grep '^c\.' | grep -Ev '^c\.[0-9]+(\.before)?$'
}

# What gf-run starts: GF_RANK's process on its host. gf-run and the coordinator are at the switch, which no fault cuts
# off from all hosts; in rank 0's process it is on host 0.
rank_become() { # WORK PREFIX COMMAND..
    work=$1 net_prefix=$2; shift 2
    host=$((GF_RANK % hosts))
    case $place in
    own) export GF_ADDRESS="$(net_switch_address):$own_port" GF_JOB=own ;;
    rank0) export GF_ADDRESS="$(net_address 0):$port" GF_COORDINATOR=rank0 ;;
    esac
    trap : TERM INT HUP
    ip netns exec "$net_prefix-$host" "$@" &
    echo $! >"$work/pid.$GF_RANK"
    while :; do # a signal may end the wait
        wait $!
        code=$?
        kill -0 $! 2>/dev/null || break
    done
    case $code in 0|1|75|137|143) ;; *) echo "crash: rank $GF_RANK ended with $code" ;; esac
    exit $code
}

job_begin() { # OPTION..
    rm -f "$work"/pid.* "$work"/stopped.* "$work"/c.*
    net_forget
    echo none >"$work/log"
    [ $place != own ] || coordinator_begin
    ip netns exec "$net_prefix-sw" "$BUILD/firmware-tests/program_stamp" $((${seconds:-60} * 3 + 300)) "$work/log" \
        "$BUILD/gf-run" -n $ranks --restart 1000 --max $most --config "$work/lab.cfg" \
        --listen "$(net_switch_address):$port" \
        sh "$here/chaos.sh" rank "$work" "$net_prefix" "$BUILD/gf-train" --config "$work/lab.cfg" "$@" &
    stamp=$!
}
# A loop starts it again where it was killed; it ends with the job.
coordinator_begin() {
    # shellcheck disable=SC2016
    ip netns exec "$net_prefix-sw" sh -c 'until "$@" || [ $? -lt 128 ]; do :; done' sh \
        "$BUILD/gf-coordinator" --config "$work/lab.cfg" --listen "$(net_switch_address):$own_port" --job own \
        --world $ranks --world-max $most >>"$work/coordinator" 2>&1 &
    coordinator=$!
}
coordinator_pid() {
    case $place in
    run) ps -C gf-coordinator -o pid=,ppid= | awk -v run="$(gf_run_pid)" '$2 == run { print $1 }' ;;
    own) ps -C gf-coordinator -o pid=,ppid= | awk -v run="$coordinator" '$2 == run { print $1 }' ;;
    esac
}
job_runs() { kill -0 $stamp 2>/dev/null && ! grep -q ' exit [0-9a-z]*$' "$work/log"; }
job_end() {
    wait $stamp
    [ -z "${coordinator:-}" ] || wait "$coordinator" || wrong "gf-coordinator: exit $?: $(tail -n 1 "$work/coordinator")"
    coordinator=''
}
gf_run_pid() { sed -n 's/^[0-9]* pid //p' "$work/log" | head -n 1; }
process_of() { # RANK: its process in $p_ and the name of that in $name_, if it has not ended
    p_='' name_='' state_=Z
    [ -e "$work/pid.$1" ] && read -r p_ <"$work/pid.$1" && { read -r _ name_ state_ _ <"/proc/$p_/stat"; } 2>/dev/null
    case $state_ in [ZX]) return 1 ;; esac
}
pid_now() { process_of "$1" && [ "$name_" = '(gf-train)' ] && echo "$p_"; } # where it is gf-train by now

# up: ranks that are members of the newest generation, as far as the log says; undisturbed: how many of them are neither
# stopped nor cut off; outside: one that runs and is no member.
ranks_look() {
    sort -n "$work/faults" "$work/log" 2>/dev/null >"$work/both"
    up=$(awk -v n=$ranks -v job="$(sed -n 's/^\([0-9]*\) pid .*/\1/p' "$work/log" | head -n 1)" '
        BEGIN { for (i = 0; i < n; i++) here[i] = 1 }
        $1 < job { next }
        ($2 == "kill" && $3 == "rank") || $2 == "restart" || $2 == "leave" { here[$4] = 0 }
        $3 == "error:" || $4 == "error:" ||
            /warning: rank [0-9]+: .*step [0-9]+, (operation|between)/ { sub(/\[/, "", $2); here[$2 + 0] = 0 }
        /elastic: member [0-9]+ came / { here[$5 + 0] = 1 }
        /elastic: rank [0-9]+ of [0-9]+ is rank / { sub(/\[/, "", $2); here[$2 + 0] = 1 }
        /elastic: rank .* has left/ { r = $2; gsub(/[^0-9]/, "", r); here[r + 0] = 0 }
        END { for (i = 0; i < 1024; i++) if (here[i]) print i }' "$work/both")
    present='' outside='' running=0
    for r_ in $(seq 0 $((next_rank - 1))); do
        process_of "$r_" || continue
        running=$((running + 1))
        case " $(echo $up) " in *" $r_ "*) present="$present $r_" ;; *) outside=$r_ ;; esac
    done
    up=$present up_count=0 undisturbed=0
    for r_ in $up; do
        up_count=$((up_count + 1))
        [ -e "$work/stopped.$r_" ] || [ -e "$work/cut.$((r_ % hosts))" ] || undisturbed=$((undisturbed + 1))
    done
    world=$(sed -n 's/^.*elastic: .* is rank [0-9]* of \([0-9]*\) from.*/\1/p' "$work/log" | tail -n 1)
    [ "$undisturbed" -le "${world:-$ranks}" ] || undisturbed=$world
}
count_on() { n_=0; for r_ in $up; do [ $((r_ % hosts)) -ne "$1" ] || n_=$((n_ + 1)); done; echo $n_; }
pick() { # NUMBER RANK..
    n_=$1; shift
    [ $# -gt 0 ] || return 0
    shift $((n_ % $#))
    echo "$1"
}
# Everybody who runs is a member, and there are as many as at first unless somebody left.
all_up() { # SECONDS
    for _ in $(seq 1 $(($1 * 5))); do
        job_runs || return 1
        ranks_look
        [ -s "$work/c.0" ] && [ $up_count -gt 0 ] && [ $up_count = $running ] && [ $undisturbed = $running ] && return 0
        sleep 0.2
    done
    return 1
}
net_mend() {
    for host in $(seq 0 $((hosts - 1))); do net_cable $host up; net_shape $host $link_rate; done
    rm -f "$work"/cut.*
    for p in "$work"/stopped.*; do
        [ -e "$p" ] || continue
        p=${p##*.}
        go_on "$p" "$(cat "$work/pid.$p")" 2>/dev/null
    done
}

# What ranks hold open: the most descriptors and shared mappings of one of them.
fds_look() {
    fds_most=0
    for r_ in $up; do
        p_=$(pid_now "$r_")
        [ -n "$p_" ] || continue
        maps_=$(grep -c 'memfd:gradientflow' "/proc/$p_/maps" 2>/dev/null) # nothing, if it has ended meanwhile
        n_=$(($(ls "/proc/$p_/fd" 2>/dev/null | wc -l) + ${maps_:-0}))
        [ $n_ -le $fds_most ] || fds_most=$n_
    done
}
fds_show() { for r_ in $up; do ls -l "/proc/$(pid_now "$r_")/fd" | sed "s/^/rank $r_: /"; done; }
stacks_show() {
    for r_ in $(seq 0 $((next_rank - 1))); do
        p_=$(pid_now "$r_")
        [ -n "$p_" ] || continue
        echo "rank $r_, process $p_, in $(cat "/proc/$p_/wchan")"
        ! command -v gdb >/dev/null || gdb -p "$p_" -batch -ex bt 2>/dev/null | grep '^#'
    done
}
