#!/bin/bash
# gf-coordinator as whoever types it meets it: options, a port that is taken, who is refused and where that is shown,
# members that gf-run did not start, and config/job.sbatch where the ranks fail.
# shellcheck disable=SC2016,SC2030,SC2031 # $GF_RANK is the rank's; a job's variables are its own
. firmware-tests/support/shell.sh
export OPENBLAS_NUM_THREADS=1 LC_ALL=C
tools=$(cd "$BUILD" && pwd)
coordinator=$tools/gf-coordinator
port=$("$tools/gf-run" -n 1 sh -c 'echo ${GF_ADDRESS#*:}')
at=127.0.0.1:$port
head -c 32 /dev/urandom >"$scratch/key"; chmod 600 "$scratch/key"
head -c 32 /dev/urandom >"$scratch/other"; chmod 600 "$scratch/other"

# ---- options ----
echo "rendezvous = { address = \"$at\"; };" >"$scratch/asked.cfg"
while IFS='|' read -r name code options text; do
    # shellcheck disable=SC2086 # words
    timeout 20 "$coordinator" $options >"$scratch/told" 2>"$scratch/out"; found=$?
    if [ $found -ne "$code" ] || ! grep -Eq -- "$text" "$scratch/out"; then
        not_ok "options_$name" "exit $found: $(head -n 2 "$scratch/out")"
    else ok "options_$name"; fi
done <<END
none|2||--listen is missing
no_port|2|--listen 127.0.0.1:0 --job 7 --world 2|port from 1 to 65535
no_world|2|--listen $at --job 7|--world is missing
a_world_of_none|2|--listen $at --job 7 --world 0|--world 0: allowed is
a_smaller_most|2|--listen $at --job 7 --world 3 --world-max 2|--world-max 2: allowed is --world .3. and more
job_0|2|--listen $at --job 0 --world 2|--job '0': expected
both|2|--listen $at --status $at --job 7|--listen and --status: one of them
no_key|1|--listen $at --job 7 --world 2 --key-file /none|/none: No such file
others_may_reach_it|2|--listen 192.0.2.1:7000 --job 7 --world 2|only with rendezvous.key_file
not_of_this_host|1|--listen 192.0.2.1:7000 --job 7 --world 2 --insecure|does not have that address
nobody_there|1|--status $at --job 7|no coordinator answers at $at
nobody_where_the_file_says|1|--status --config $scratch/asked.cfg --job 7|no coordinator answers at $at
no_address_to_ask|2|--status --job 7|ADDRESS of --status, or --config, is missing
END

# ---- a name that nobody knows: it is said, and a signal ends the wait ----
unknown=nowhere.invalid:7117
asked() { # NAME WANTED COMMAND..
    asked_=$1 wanted_=$2; shift 2
    "$@" >"$scratch/told" 2>"$scratch/out" &
    pid_=$!
    check "${asked_}_says_that_it_asks_again" await 20 grep -q "asked for again" "$scratch/out"
    kill -TERM $pid_
    check "${asked_}_ends_by_a_signal" await 10 sh -c "! kill -0 $pid_ 2>/dev/null"
    kill -KILL $pid_ 2>/dev/null
    wait $pid_ 2>/dev/null
    check "${asked_}_ends_with_its_code" same $wanted_ $?
}
asked a_coordinator 143 "$coordinator" --listen $unknown --job 3 --world 1 --insecure
asked a_rank 143 env GF_RANK=1 GF_WORLD=2 GF_ADDRESS=$unknown "$tools/gf-train" $small --steps 2
asked a_status 143 "$coordinator" --status $unknown --job 3 --insecure
check "a_status_is_asked_for_for_seconds" said "it is asked for again for 5.0 s"

# ---- one that runs ----
# begin OPTION..: it listens, as $pid; what it says is in $scratch/log
begin() {
    "$coordinator" --listen "$at" --job 7 --world 2 "$@" >"$scratch/log" 2>&1 & pid=$!
    until grep -q 'listens at' "$scratch/log"; do kill -0 $pid 2>/dev/null || return 1; sleep 0.02; done
}
end() { kill $pid 2>/dev/null; wait $pid 2>/dev/null; }
rank() { # CONFIGURATION; it fails, with what it says in $scratch/out
    echo "$1" >"$scratch/job.cfg"
    GF_JOB=${2:-7} GF_RANK=0 GF_WORLD=2 GF_COORDINATOR=separate GF_ADDRESS=$at timeout 300 "$tools/gf-perf" \
        --config "$scratch/job.cfg" -e 4K >"$scratch/out" 2>&1 && return 1
    return 0
}
status() { "$coordinator" --status "$at" --job 7 "$@" >"$scratch/status" 2>&1; }
# names TEXT STATUS OPTION..: the rank, the coordinator's log and --status say it; the rank did not wait
names() {
    text=$1; shift
    status "$@" || { cat "$scratch/status"; return 1; }
    grep -q "refused this process: $text" "$scratch/out" || { cat "$scratch/out"; return 1; }
    grep -q "$text" "$scratch/log" && grep -q "^refused: 1, the last as: $text" "$scratch/status" ||
        { cat "$scratch/log" "$scratch/status"; return 1; }
}
# The join would go on for an hour, and the limit above is five minutes.
hour='join_timeout = 3600.0;'
key="key_file = \"$scratch/key\";"
begin
refused a_port_that_is_taken 'another process of this user listens there' \
    "$coordinator" --listen "$at" --job 7 --world 2
refused a_disk_that_is_full 'cannot write to stdout' \
    sh -c '"$1" --status "$2" --job 7 >/dev/full' sh "$coordinator" "$at"
rank "rendezvous = { insecure = true; $hour };"
check a_rank_that_is_insecure_alone names 'this process has rendezvous.insecure, and the coordinator has not'
refused and_whoever_asks_so 'coordinator has none' "$coordinator" --status "$at" --job 7 --key-file "$scratch/key"
end; begin
rank "rendezvous = { $key $hour };"
check a_rank_that_has_a_key_alone names 'this process has a key_file, and the coordinator has none'
end; begin --insecure
rank "rendezvous = { $hour };"
check a_rank_that_is_not_insecure names 'the coordinator has rendezvous.insecure, and this process has not' --insecure
rank "rendezvous = { insecure = true; $hour };" 8
check a_rank_of_another_job grep -q 'refused this process: job id 7 at the coordinator, 8' "$scratch/out"
end; begin --key-file "$scratch/key"
rank "rendezvous = { $hour };"
check a_rank_without_the_key names 'this process has no key_file, and this job wants one' --key-file "$scratch/key"
end; begin --key-file "$scratch/key"
rank "rendezvous = { key_file = \"$scratch/other\"; $hour };"
check a_rank_with_another_key names 'this process did not prove' --key-file "$scratch/key"
end; begin --world-max 3
rank "job = { world_max = 2; }; rendezvous = { $hour };"
check a_rank_of_another_world status
check and_that_is_named grep -q 'refused: 1, the last as: rank 0 of job.world_max 2' "$scratch/status"
end

# ---- a join that has failed ----
# Rank 0 dies while rank 1 is awaited. Rank 1 comes after keepalive and 2 s, and after gf-run of node 0 has lost its own
# ranks: it hears why, from that coordinator, as join_timeout / 2 has not passed.
late_at=127.0.0.1:$("$tools/gf-run" -n 1 sh -c 'echo ${GF_ADDRESS#*:}')
echo "rendezvous = { address = \"$late_at\"; keepalive = 1.0; $hour };" >"$scratch/late.cfg"
late="GF_WORLD=2 GF_COORDINATOR=separate $tools/gf-perf --config $scratch/late.cfg -e 4K"
dies_joining() { # ADDRESS JOB PID-FILE: once rank 0 has come
    until "$coordinator" --status "$1" --job "$2" 2>/dev/null | grep -q '^here: 0' && [ -s "$3" ]; do sleep 0.02; done
    kill -9 "$(cat "$3")"
}
begin --keepalive 1s; over=$pid
# shellcheck disable=SC2086 # words
env GF_JOB=7 GF_RANK=0 GF_ADDRESS="$at" $late >/dev/null 2>&1 & echo $! >"$scratch/own.pid"
timeout 300 "$tools/gf-run" -n 1 --nodes 2 --node-rank 0 --job 9 --config "$scratch/late.cfg" sh -c \
    'echo $$ >"$0/run.pid"; exec env '"$late" "$scratch" >/dev/null 2>&1 & run=$!
dies_joining "$at" 7 "$scratch/own.pid"
dies_joining "$late_at" 9 "$scratch/run.pid"
sleep 3.5
hears() { # ADDRESS JOB: the coordinator tells it, and has nobody to wait for then
    # shellcheck disable=SC2086 # words
    env GF_JOB="$2" GF_RANK=1 GF_ADDRESS="$1" timeout 60 env $late >"$scratch/out" 2>&1
    said 'rank 0 died while ranks were joining'
}
check a_coordinator_stays_for_ranks_that_come_late_to_a_failed_join kill -0 $over
check and_one_hears_why hears "$at" 7
check and_so_does_that_of_gf_run kill -0 $run
check and_one_hears_why_of_it hears "$late_at" 9
kill $over $run 2>/dev/null
wait $over; wait $run

# ---- ranks of which gf-run knows nothing ----
# Rank 1 comes by hand; gf-run's own rank is killed once both train, and rank 1 once it goes on alone.
by_hand() {
    how="$small --elastic --steps 100000000 --batch 300 --set link.idle=sleep"
    : >"$scratch/log.1"
    # shellcheck disable=SC2086 # words
    timeout 200 "$tools/gf-run" -n 1 --max 2 sh -c 'env | grep ^GF_ >"$0/env"; echo $$ >"$0/pid"; exec "$@"' \
        "$scratch" "$tools/gf-train" $how >"$scratch/log" 2>&1 & job=$!
    until [ -s "$scratch/pid" ]; do kill -0 $job 2>/dev/null || { cat "$scratch/log"; return 1; }; sleep 0.02; done
    # shellcheck disable=SC2046,SC2086 # words
    env $(cat "$scratch/env") GF_RANK=1 "$tools/gf-train" $how >"$scratch/log.1" 2>&1 & hand=$!
    hand_says 'came in' && kill -9 "$(cat "$scratch/pid")" && hand_says 'is rank 0 of 1' &&
        until grep -q 'its own ranks have ended, and 1' "$scratch/log"; do
            kill -0 $job 2>/dev/null || { echo "gf-run has ended"; false; break; }
            sleep 0.02
        done; code=$?
    kill -9 $hand 2>/dev/null; wait $hand 2>/dev/null
    wait $job; same 137 $? && same 0 $code
}
hand_says() {
    until grep -q "$1" "$scratch/log.1"; do
        kill -0 $hand 2>/dev/null || { echo "no '$1'"; tail -n 5 "$scratch/log.1"; return 1; }
        sleep 0.02
    done
}
check gf_run_stays_for_a_rank_that_it_did_not_start_and_says_so by_hand

# ---- job.sbatch ----
# As it is, but for its address; srun starts one task here, whose program fails.
mkdir "$scratch/bin"
printf '#!/bin/sh\necho 127.0.0.1\n' >"$scratch/bin/hostname"
mkdir "$scratch/bare"
printf '#!/bin/sh\n' >"$scratch/bare/hostname"
chmod +x "$scratch/bare/hostname"
refused a_batch_script_on_a_node_without_an_address 'hostname -I names no address of this node' \
    env PATH="$scratch/bare:$PATH" SLURM_JOB_ID=1 SLURM_NTASKS=1 bash config/job.sbatch
printf '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n' >"$scratch/bin/srun"
cat >"$scratch/bin/gf-train" <<'END'
#!/bin/sh
[ -n "$FAILS" ] || exit 0
echo "try ${GF_REJOIN:-0}"
case " $* " in *" --resume "*) echo resumes ;; esac
exit "$FAILS"
END
printf '#!/bin/sh\necho $$ >>%s/coordinators\nexec %s "$@"\n' "$scratch" "$coordinator" >"$scratch/bin/gf-coordinator"
chmod +x "$scratch"/bin/*
printf '#!/bin/sh\n' >"$scratch/bin/sleep"
chmod +x "$scratch/bin/sleep"
sed "s/^\(GF_ADDRESS=.*\):.*/\1:$port/; /^export PATH=/d" config/job.sbatch >"$scratch/job.sbatch"
echo 'rendezvous = { join_timeout = 3600.0; };' >"$scratch/job.cfg"
batch() { # FAILS
    rm -f "$scratch/coordinators"
    (cd "$scratch" && PATH="$scratch/bin:$PATH" FAILS=$1 SLURM_JOB_ID=$$ SLURM_NTASKS=1 timeout 60 bash job.sbatch) \
        >"$scratch/log" 2>&1
}
left() { # no coordinator is left, and at most one was begun
    for pid in $(cat "$scratch/coordinators"); do ! kill -0 "$pid" 2>/dev/null || { kill "$pid"; return 1; }; done
}
batch 3; code=$?
check a_batch_script_whose_ranks_fail_ends_as_they_do same 3 $code
check and_has_tried_four_times_and_asked_for_its_checkpoint_each_time \
    same "try 0|resumes|try 1|resumes|try 1|resumes|try 1|resumes|" \
    "$(grep '^try\|^resumes' "$scratch/log" | tr '\n' '|')"
check and_leaves_no_coordinator left
batch 2; code=$?
check one_whose_command_line_is_wrong_says_so same 2 $code
check and_is_tried_once same "try 0|resumes|" \
    "$(grep '^try\|^resumes' "$scratch/log" | tr '\n' '|')"
finish
