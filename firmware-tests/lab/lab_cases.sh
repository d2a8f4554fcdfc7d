# shellcheck shell=sh disable=SC2034,SC2154,SC2086,SC2046,SC2016 # shared with lab.sh; options and ranks are words
# The faults: a row each, NAME|bound in seconds|what is done|what survives, and a function case_NAME that does it and looks at
# what the ranks say. Bounds follow from the configuration in lab_job.sh: keepalive 1 s, exchange.timeout 4 s, join_timeout 5 s,
# 1.5 s for the inquiry, 0.7 s to end what is under way; - judges no time. `make fault-table` prints the first table of
# results/faults.md; the number of faults stands in the README. A program's own answer, such as to a full disk, is in
# tools/test_checkpoint.sh.
lab_table='
tcp_kill_worker|1|`kill -9` of a worker|the last checkpoint; with `--elastic` the job
tcp_kill_coordinator|1|`kill -9` of rank 0, which has the coordinator|the last checkpoint
tcp_stop_worker|6.2|SIGSTOP of a worker, for good|the last checkpoint; with `--elastic` the job
tcp_stop_coordinator|9.7|SIGSTOP of rank 0, which has the coordinator, for good|the last checkpoint
tcp_pause|-|SIGSTOP, SIGCONT after 2 s|the job: same weights; `gf_stats` names the rank
tcp_cut_worker|6.2|cable of a worker pulled|the last checkpoint
tcp_cut_coordinator|8|cable of rank 0 pulled, which has the coordinator|the last checkpoint
tcp_cut_and_back|-|cable of a worker pulled, back after 0.5 s|the job: same weights
tcp_slow_link|-|the link of a rank falls to 10 %|the job: same weights
tcp_abort|1|SIGTERM of a worker, which calls `gf_abort()`|the last checkpoint
tcp_corrupt|1|a bit of a message flips behind its checksum (`link.checksum`)|the last checkpoint
tcp_nan|-|a gradient of a rank is NaN in step 30|the job: the step is skipped on all ranks
tcp_strangers|-|2,000 connections of strangers to the control port while training|the job: same weights; rank 0 grows by less than 1 MB
tcp_half_open|-|200 connections that stay open while ranks join|the job: same weights
tcp_data_strangers|-|200 connections of strangers to the port of a worker while training|the job: same weights
tcp_second_rank|-|a second process calls itself rank 2 while training|the job: same weights; the second process is refused
tcp_elastic_worker|21|`kill -9` of a worker, `--elastic`|the job: 3 ranks go on with the same weights
tcp_elastic_coordinator|21|`kill -9` of rank 0 and `gf-coordinator`, which comes again, `--elastic`|the job: 3 ranks go on
tcp_elastic_cut|23|cable of a worker pulled, `--elastic`|the job: 3 ranks go on; the one that is cut off ends
tcp_restart_worker|21|`kill -9` of a worker, `--elastic`, and started again once the others go on|the job: 4 ranks again, with the same weights
tcp_restart_coordinator|21|`kill -9` of rank 0 beside `gf-coordinator`, likewise|the job: 4 ranks again
join_absent|7|a rank never starts|nothing was begun
join_kill|7|`kill -9` of a rank while ranks join|nothing was begun
join_warm_kill|7|a rank kills itself in one of its first 50 calls of the link: between connecting and the end of the warm-up|nothing was begun
join_config|7|a rank has another `exchange.wire`|nothing was begun
join_tensors|7|a rank trains another model|nothing was begun
join_version|7|a rank has another version of the library|nothing was begun
join_key|7|a rank has another key|nothing was begun
join_key_readable|7|the key file of a rank may be read by others|nothing was begun
node_kill_worker|1|`kill -9` of a worker|the last checkpoint; with `--elastic` the job
node_kill_coordinator|1|`kill -9` of rank 0, which has the coordinator|the last checkpoint
node_stop_worker|6.2|SIGSTOP of a worker, for good|the last checkpoint; with `--elastic` the job
direct_kill_worker|1|`kill -9` of a worker, `exchange.algorithm = direct`|the last checkpoint
direct_stop_worker|6.2|SIGSTOP of a worker, for good, likewise|the last checkpoint
node_elastic_worker|21|`kill -9` of a worker, `--elastic`|the job: 3 ranks go on with the same weights
'
kept="--checkpoint-every 20"
ends="--steps 1000000 $kept"   # a job that the fault ends
ends_node="--steps 1000000 --checkpoint-every 100"
goes_on="--steps 400 $kept"    # one that must come to its end

# ---- in the middle of training ----

# A rank dies, stops or aborts. hosts|node RANK SIGNAL PATTERN OPTION..
case_signal() {
    to=$1 victim=$2 number=$3 pattern_=$4; shift 4
    job_start "$to" "$@"
    if training_await; then
        fault_now
        signal "$victim" "$number"
        if [ "$number" = STOP ]; then
            for p in $(others "$victim"); do until is_over "$p"; do sleep 0.05; done; done
            signal "$victim" KILL
        fi
        job_end
        survivors_say "$pattern_" $(others "$victim")
    fi
}
silent='rank V does not answer .*stopped or does not poll|rank V is behind'
went='rank 0 has ended, in whose process the coordinator of the job ran: the job ends with it'
mute='the coordinator at .* (says nothing|cannot be reached)'
died='rank V (died|is cut off|lost its connection): '
pattern() { printf '%s' "$1" | sed "s/V/$2/g"; }
case_tcp_kill_worker() { case_signal hosts 2 KILL "$(pattern "$died" 2)" $ends; }
case_tcp_kill_coordinator() { case_signal hosts 0 KILL "$went" $ends; }
case_tcp_stop_worker() { case_signal hosts 2 STOP "$(pattern "$silent" 2)" $ends; }
case_tcp_stop_coordinator() { case_signal hosts 0 STOP "$mute" $ends; }
case_node_kill_worker() { case_signal node 2 KILL "$(pattern "$died" 2)" $ends_node; }
case_node_kill_coordinator() { case_signal node 0 KILL "$went" $ends_node; }
case_node_stop_worker() { case_signal node 2 STOP "$(pattern "$silent" 2)" $ends_node; }
case_direct_kill_worker() { case_signal node 2 KILL "$(pattern "$died" 2)" $ends_node --algorithm direct; }
case_direct_stop_worker() { case_signal node 2 STOP "$(pattern "$silent" 2)" $ends_node --algorithm direct; }
case_tcp_abort() { case_signal hosts 2 TERM 'rank 2 gave up: aborted by its appliance' $ends; [ "$(exit_of 2)" = 143 ] || bad "rank 2: exit $(exit_of 2)"; }

cut_case() { # RANK PATTERN: the others name it, and it ends too, cut off from all
    job_start hosts $ends
    training_await || return
    fault_now
    net_cable "$1" down
    job_end
    survivors_say "$2" $(others "$1")
    [ "$(exit_of "$1")" = 1 ] || bad "rank $1, cut off, ended with $(exit_of "$1")"
}
case_tcp_cut_worker() { cut_case 2 "$(pattern "$died|$silent" 2)"; }
case_tcp_cut_coordinator() { cut_case 0 "$mute"; }

# A job that must come to its end although COMMAND disturbs it; the options behind it are the job's.
disturbed() { # COMMAND OPTION..
    command_=$1; shift
    if [ -n "${PROGRAM:-}" ]; then job_start hosts $goes_on "$@"; else held job_start hosts $goes_on "$@"; fi
    training_await && { fault_now; $command_; }
    job_end
    all_finish $(others)
}
# RANK MS: two of the others know that it was the slowest, or on a busy machine one that was later
slowest_is() {
    late_='s/^.*slowest: rank \([0-9]*\), late by \([0-9]*\) ms.*/\1 \2/p'
    n_=$(for r in $(others "$1"); do sed -n "$late_" "$(log_of "$r")"; done | awk -v rank="$1" \
        -v ms="$2" '$2 >= ms && ($1 == rank || $2 >= 1.1 * ms) {n++} END {print n + 0}')
    [ "$n_" -ge 2 ] || bad "gf_stats names: $(grep -h -o 'slowest: .*' "$work"/*.log | tr '\n' ' ')"
    said "$(grep -h -o 'slowest: .*' "$(log_of 0)")"
}
# Not near a checkpoint: there ranks agree by a request, which gf_stats leaves out.
pause() { signal 2 STOP; sleep 2; signal 2 CONT; }
case_tcp_pause() {
    goes_on="--steps 400 --checkpoint-every 100"
    PROGRAM=$tests/program_faulty_train disturbed pause
    slowest_is 2 1900
}
cut_and_back() { net_cable 2 down; sleep 0.5; net_cable 2 up; }
case_tcp_cut_and_back() { disturbed cut_and_back; }
slow_link() { net_shape 2 10mbit; }
case_tcp_slow_link() { disturbed slow_link; }

grown_kb() { awk '/VmRSS/ { print $2 }' "/proc/$(pid_of 0)/status"; }
visit="$tests/program_strangers visit"
visited() { # MORE: they came, and what they met is said
    grep -q ' [1-9][0-9]* taken' "$work/strangers" || bad "no stranger has come to the port"
    said "$(cat "$work/strangers")$*"
}
strangers() {
    before=$(grown_kb)
    net_exec $stranger $visit "$(net_address 0)" 7117 2000 200 </dev/null >"$work/strangers"
    grown=$(($(grown_kb) - before))
}
case_tcp_strangers() {
    grown=99999
    disturbed strangers
    [ "$grown" -lt 1024 ] || bad "rank 0 has grown by $grown KB"
    visited "; rank 0 grew by $grown KB"
}
data_strangers() {
    port=$(net_exec 2 ss -Hltnp "( sport >= :26000 and sport <= :31999 )" | sed -n 's/.*:\([0-9]*\) .*/\1/p' | head -n 1)
    net_exec $stranger $visit "$(net_address 2)" "${port:-0}" 200 50 </dev/null >"$work/strangers"
}
case_tcp_data_strangers() { disturbed data_strangers; visited; }
case_tcp_half_open() {
    mkfifo "$work/hold"
    where=hosts
    config_write hosts
    rank_start 0 $goes_on
    until net_exec 0 ss -Hltn "sport = :7117" | grep -q . || is_over 0; do sleep 0.02; done
    net_exec $stranger $visit "$(net_address 0)" 7117 200 200 <"$work/hold" >"$work/strangers" &
    holder=$!
    exec 3>"$work/hold"
    for r in $(others 0); do rank_start "$r" $goes_on; done
    job_end
    exec 3>&-
    wait $holder
    all_finish $(others)
    visited
}
second_rank() {
    LOG=second rank_start 2 $goes_on
}
case_tcp_second_rank() {
    disturbed second_rank
    [ "$(sed -n '$s/.* exit //p' "$work/second.log")" = 1 ] || bad "the second rank 2 was not refused"
    said "$(sed -n 's/^[0-9]* \(error: .*\)/\1/p' "$work/second.log")"
}
case_tcp_nan() {
    PROGRAM=$tests/program_faulty_train ENVIRONMENT=GF_FAULT_NAN=30 undisturbed='' disturbed : --wire fp32
    grep -q 'step 30 skipped on all ranks: .*first on rank 0, tensor 0' "$(log_of 0)" || bad "$(grep -h warning "$(log_of 0)")"
    said "$(grep -h -o 'step 30 skipped.*' "$(log_of 0)")"
}
case_tcp_corrupt() {
    PROGRAM=$tests/program_faulty_train ENVIRONMENT=GF_FAULT_CORRUPT=300 job_start hosts $ends --set link.checksum=true
    job_end
    fault_ns=$(sed -n 's/ fault: .*//p' "$work"/*.log | sort -n | head -n 1)
    survivors_say '.*rank [0-9].*damaged on' $(others)
}

elastic_case() { # hosts|node RANK COMMAND STEPS
    join_s=20 # who is silent for an eighth of it is left behind; on a busy machine that must be more than a hiccup
    held job_start "$1" --steps "$4" --checkpoint-every 20 --elastic
    training_await || return
    fault_now
    $3
    job_end
    gone=$2
    for r in $(others "$gone"); do
        [ "$(exit_of "$r")" = 0 ] || bad "rank $r: exit $(exit_of "$r"): $(grep -h -m 1 error: "$(log_of "$r")")"
        grep -q "elastic: rank $r of 4 is .* of 3 .*rank $gone " "$(log_of "$r")" || bad "rank $r did not go on without $gone"
        seconds_of "$r" " elastic: "
    done | told_last
    grep -hq 'the same on all ranks' "$work"/*.log || bad "weights are not the same on all ranks"
    said "$(grep -h -o 'elastic: .*' "$work"/*.log | head -n 1)"
}
case_tcp_elastic_worker() { elastic_case hosts 2 "signal 2 KILL" 600; }
coordinator_and_0() { coordinator_kill; sleep 1; fault_now; signal 0 KILL; }
case_tcp_elastic_coordinator() { COORDINATOR=1 elastic_case hosts 0 coordinator_and_0 600; }
case_node_elastic_worker() { elastic_case node 2 "signal 2 KILL" 5000; }
case_tcp_elastic_cut() {
    elastic_case hosts 2 "net_cable 2 down" 600
    [ "$(exit_of 2)" = 1 ] || bad "rank 2, cut off, ended with $(exit_of 2)"
}
# From the fault until the restarted rank trains.
restart_case() { # RANK
    join_s=20 back="--steps 900 --checkpoint-every 20 --elastic" other=$(((($1) + 1) % world))
    held job_start hosts $back
    training_await || return
    fault_now
    signal "$1" KILL
    until grep -q 'elastic: rank' "$(log_of $other)" || is_over $other; do sleep 0.02; done
    LOG=back ENVIRONMENT="GF_REJOIN=1" held rank_start "$1" $back
    until grep -q 'came back as' "$(log_of back)" || is_over back || is_over $other; do sleep 0.02; done
    job_end
    for r in $(others "$1") back; do
        [ "$(exit_of "$r")" = 0 ] || bad "rank $r: exit $(exit_of "$r"): $(grep -h -m 1 error: "$(log_of "$r")")"
    done
    grep -hq 'the same on all ranks' "$work"/*.log || bad "weights are not the same on all ranks"
    seconds_of back 'came back as' | told_last
    said "$(grep -h -o 'elastic: .* came back .*' "$(log_of back)" | head -n 1)"
}
case_tcp_restart_worker() { restart_case 2; }
case_tcp_restart_coordinator() { COORDINATOR=1 restart_case 0; }

# ---- at join ----

# Rank 2 is another: its options, PROGRAM_2. What all must say.
join_case() { # PATTERN OPTION..
    pattern_=$1; shift
    where=hosts
    config_write hosts
    for r in $(others 2); do rank_start "$r" $ends; done
    fault_now
    PROGRAM=${PROGRAM_2:-} MODEL=${MODEL_2:-} rank_start 2 $ends "$@"
    job_end
    failed_with "$pattern_" $(others)
    for r in $(others); do seconds_of "$r" " error: "; done | told_last
}
case_join_config() { join_case '.*wire is fp32 at rank 0, fp16 at rank 2' --wire fp16; }
case_join_tensors() { MODEL_2=cnn join_case '.*tensor tables differ: .* at rank 2'; }
case_join_version() { PROGRAM_2=$tests/other_version_train join_case 'rank 2 of 4 did not join|the coordinator at .* refused this process: library version 0\.[0-9]* at the coordinator, 0\.99 at'; }
other_key() { head -c 32 /dev/urandom >"$work/other.key"; chmod "$1" "$work/other.key"; }
case_join_key() { other_key 600; join_case 'rank 2 of 4 did not join|the coordinator at .* refused this process: this process did not prove' --set rendezvous.key_file="$work/other.key"; }
case_join_key_readable() { other_key 644; join_case 'rank 2 of 4 did not join|rendezvous.key_file .* mode 0600' --set rendezvous.key_file="$work/other.key"; }
case_join_absent() {
    where=hosts
    config_write hosts
    for r in $(others 2); do rank_start "$r" $ends; done
    fault_now
    job_end
    failed_with '.*rank 2|.*missing.* 2' $(others 2)
    for r in $(others 2); do seconds_of "$r" " error: "; done | told_last
}
# Where UCX connects: at another call in each run.
case_join_warm_kill() {
    where=hosts
    config_write hosts
    for r in $(others 2); do rank_start "$r" $ends; done
    PROGRAM=$tests/program_faulty_train ENVIRONMENT=GF_FAULT_DIE=$((run * 17 % 50 + 1)) rank_start 2 $ends
    job_end
    fault_ns=$(sed -n 's/ fault: .*//p' "$(log_of 2)")
    failed_with '.*rank 2' $(others 2)
    for r in $(others 2); do seconds_of "$r" " error: "; done | told_last
}
# At another moment in each run, over all of the time that joining takes here.
case_join_kill() {
    job_start hosts $ends
    until grep -q pid "$(log_of 2)" 2>/dev/null; do sleep 0.005; done
    sleep "0.$(printf %03d $((run * 29 % 300)))"
    fault_now
    signal 2 KILL
    job_end
    failed_with '.*rank 2' $(others 2)
    for r in $(others 2); do seconds_of "$r" " error: "; done | told_last
}
