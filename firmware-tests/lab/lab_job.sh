# shellcheck shell=sh disable=SC2034,SC2154,SC2119,SC2120,SC2086,SC2059 # shared with lab.sh; ranks are words
# A training job of the lab, what befalls it, and what its ranks must have said. Each rank runs under program_stamp, which
# puts the time in front of every line: detection is measured from the fault to the line that a survivor prints.
# A case's judgement goes to $record: "bad WHY" lines, "told SECONDS", "said TEXT".
. firmware-tests/support/idx.sh
world=4 # rank R is on host R; all on host 0 of a job of one node
tests=$BUILD/firmware-tests
keepalive_s=1 timeout_s=4 join_s=${JOIN:-5}
limit_s=120

now_ns() { date +%s%N; }
bad() { echo "bad $*" >>"$record"; }
others() { i_=0; while [ $i_ -lt $world ]; do case " $* " in *" $i_ "*) ;; *) echo $i_ ;; esac; i_=$((i_ + 1)); done; }
log_of() { echo "$work/$1.log"; }
pid_of() { sed -n 's/^[0-9]* pid //p' "$(log_of "$1")" 2>/dev/null; }
exit_of() { sed -n '$s/^[0-9]* exit //p' "$(log_of "$1")" 2>/dev/null; }
is_over() { [ -n "$(exit_of "$1")" ]; }

config_write() { # hosts or node
    head -c 32 /dev/urandom >"$work/key" && chmod 600 "$work/key"
    case $1 in
    hosts) address=$(net_address 0):7117 devices=eth0 ;;
    *) address=127.0.0.1:7117 devices=lo ;;
    esac
    [ -z "${COORDINATOR:-}" ] || address=$(net_address $stranger):7117
    cat >"$work/lab.cfg" <<END
rendezvous = { address = "$address"; key_file = "$work/key"; keepalive = "$keepalive_s s"; join_timeout = "$join_s s"; };
link = { devices = "$devices"; idle = "sleep"; };
exchange = { timeout = "$timeout_s s"; };
optimizer = { kind = "sgd"; momentum = 0.9; weight_decay = 0.0005; };
END
}
host_of() { if [ "$where" = node ]; then echo 0; else echo "$1"; fi; }
# One rank in the background; PROGRAM and ENVIRONMENT may be set for it. Its number, its options.
rank_start() {
    r_=$1; shift
    mkdir -p "$work/$r_"
    net_exec "$(host_of "$r_")" env GF_RANK="$r_" GF_WORLD=$world GF_JOB=4711 \
        ${COORDINATOR:+GF_COORDINATOR=separate} OPENBLAS_NUM_THREADS=1 ${ENVIRONMENT:-} \
        "$tests/program_stamp" $limit_s "$(log_of "${LOG:-$r_}")" "${PROGRAM:-$BUILD/gf-train}" --config "$work/lab.cfg" \
        --data "$work/data" --model "${MODEL:-linear}" --checkpoint "$work/$r_/c" "$@" &
    pids="$pids $!"
}
# Where COORDINATOR is set: a process of its own, on the host of no rank, which a loop starts again.
coordinator_start() {
    net_exec $stranger sh -c 'until "$@" || [ $? -lt 128 ]; do :; done' sh \
        "$BUILD/gf-coordinator" --config "$work/lab.cfg" --job 4711 --world $world >"$work/coordinator" 2>&1 &
    pids="$pids $!"
}
coordinator_kill() { net_pids $stranger gf-coordinator | xargs kill -KILL; }
# hosts|node OPTION..: all ranks
job_start() {
    where=$1; shift
    config_write "$where"
    [ -z "${COORDINATOR:-}" ] || coordinator_start
    for r in $(others); do rank_start "$r" "$@"; done
}
# Until rank 0 has kept its first checkpoint, and then a while that is another in each run.
training_await() {
    for _ in $(seq 1 2000); do
        if [ -e "$work/0/c.0" ]; then sleep "0.$(printf %03d $((run * 37 % 300)))"; return 0; fi
        for r in $(others); do if is_over "$r"; then break 2; fi; done
        sleep 0.02
    done
    bad "training did not begin: $(grep -h error: "$work"/*.log | head -n 1)"
    return 1
}
fault_now() { fault_ns=$(now_ns); }
signal() { kill -"$2" "$(pid_of "$1")"; } # RANK SIGNAL
# What needs a job that is not over before its fault: held from the first checkpoint on (control/program_held_train.c).
held() {
    : >"$work/held"
    PROGRAM=$tests/program_held_train ENVIRONMENT="${ENVIRONMENT:-} GF_HOLD=$work/held GF_HOLD_FROM=20" "$@"
}
let_end() { rm -f "$work/held"; }
job_end() { let_end; for p in $pids; do wait "$p" 2>/dev/null; done; pids=; }

# ---- what must have been said ----

# The time of rank R's first line that matches, seconds after the fault.
seconds_of() { # RANK PATTERN
    awk -v from="$fault_ns" -v what="$2" '$0 ~ what { printf "%.3f\n", ($1 - from) / 1e9; exit }' "$(log_of "$1")"
}
# The largest of what is read must not be over the case's bound; it is what counts.
told_last() {
    sort -n | tail -n 1 >"$work/told"
    echo "told $(cat "$work/told")" >>"$record"
    awk -v t="$(cat "$work/told")" -v bound="$bound" -v slack="${SLACK:-1}" 'BEGIN { exit !(t != "" && t <= bound * slack) }' ||
        bad "told after $(cat "$work/told") s, the bound is $bound s"
}
said() { echo "said $*" >>"$record"; }
# Each of the ranks has ended with 1 and one line of error, which matches.
failed_with() { # PATTERN RANK..
    pattern=$1; shift
    for r in "$@"; do
        line=$(sed -n 's/^[0-9]* \(error: .*\)/\1/p' "$(log_of "$r")")
        [ "$(exit_of "$r")" = 1 ] || bad "rank $r: exit $(exit_of "$r")$(grep -h -m 1 -o 'Assertion.*' "$(log_of "$r")")"
        [ "$(printf '%s\n' "$line" | grep -c .)" -eq 1 ] || bad "rank $r: not one line of error: $line"
        printf '%s\n' "$line" | grep -Eq "^error: rank $r: ($pattern)" || bad "rank $r said: $line"
    done
    said "$(sed -n 's/^[0-9]* error: rank [0-9]*: //p' "$(log_of "$1")" | head -n 1)"
}
# The same, and when: in time, in which step, of which operation.
survivors_say() { # PATTERN RANK..
    failed_with "$@"
    shift
    for r in "$@"; do
        grep -Eq "error: rank $r: .*step [0-9]+, (operation|between)" "$(log_of "$r")" || bad "rank $r names no step and operation"
        seconds_of "$r" " error: "
    done | told_last
}
# All have ended well, with the weights of an undisturbed run.
all_finish() { # RANK..
    for r in "$@"; do [ "$(exit_of "$r")" = 0 ] || bad "rank $r: exit $(exit_of "$r"): $(grep -h -m 1 error: "$(log_of "$r")")"; done
    hash=$(sed -n 's/^[0-9]* weights *\([0-9a-f]*\), the same on all ranks/\1/p' "$(log_of 0)")
    [ -n "$hash" ] || bad "no weights that are the same on all ranks"
    [ -z "${undisturbed:-}" ] || [ "$hash" = "$undisturbed" ] || bad "weights $hash, undisturbed $undisturbed"
}
