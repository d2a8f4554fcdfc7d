#!/bin/bash
# suite: long (namespaces)
# config/job.sbatch on three hosts (network namespaces, root), as Slurm begins it: the batch script on the first, a
# script of this test in place of srun, which starts a task on each host with Slurm's variables; no folder is shared but
# what the test itself looks at. Any ranks but one are killed at once, the coordinator is killed, stopped and cut off.
. firmware-tests/support/shell.sh
. firmware-tests/support/net.sh
export OPENBLAS_NUM_THREADS=1 LC_ALL=C
ranks=3 number=0

# Programs that the batch script finds first.
programs_make() {
    build_=$(cd "$BUILD" && pwd)
    mkdir "$scratch/bin"
    printf '#!/bin/sh\necho %s\n' "$(net_address 0)" >"$scratch/bin/hostname"
    cat >"$scratch/bin/srun" <<END
#!/bin/bash
while [ "\${1#--}" != "\$1" ]; do shift; done
for host in 0 1 2; do
    SLURM_PROCID=\$host SLURM_LOCALID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=$ranks \\
        ip netns exec $net_prefix-\$host "\$@" &
    tasks="\$tasks \$!"
done
worst=0
for task in \$tasks; do wait \$task; code=\$?; [ \$code -le \$worst ] || worst=\$code; done
exit \$worst
END
    cat >"$scratch/bin/gf-train" <<END
#!/bin/sh
exec "$scratch/held/gf-train" "\$@" --data "$build_/images" --model linear --batch 300 --steps \$STEPS \\
    --checkpoint-every 10
END
    chmod +x "$scratch"/bin/*
    mkdir "$scratch/held" # by the name that net_pids() looks for
    ln -s "$build_/firmware-tests/program_held_train" "$scratch/held/gf-train"
    PATH="$scratch/bin:$build_:$PATH"
}
job_start() { # STEPS
    number=$((number + 1))
    hold 10
    rm -f "$scratch"/c.*
    (cd "$scratch" && STEPS=$1 SLURM_JOB_ID=$$$number SLURM_NTASKS=$ranks exec timeout -k 1 200 \
        ip netns exec "$net_prefix-0" bash "$scratch/job.sbatch") >"$scratch/log" 2>&1 & job=$!
    for _ in $(seq 1 600); do
        at=$(step_of "$scratch/c.2")
        [ "${at:-0}" -eq 0 ] || return 0
        kill -0 $job 2>/dev/null || break
        sleep 0.1
    done
    show
}
show() { tail -n 25 "$scratch/log"; return 1; }
job_end() {
    kill -9 $job 2>/dev/null
    wait $job 2>/dev/null
    for host in 0 1 2; do
        ip netns pids "$net_prefix-$host" | xargs -r kill -KILL 2>/dev/null
    done
}
at_once() { # RANK..
    # shellcheck disable=SC2046
    kill -9 $(for rank in "$@"; do net_pids "$rank" gf-train "$rank"; done)
}
# says COUNT PATTERN
says() {
    for _ in $(seq 1 600); do
        [ "$(grep -Ec "$2" "$scratch/log")" -lt "$1" ] || return 0
        kill -0 $job 2>/dev/null || break
        sleep 0.1
    done
    echo "it does not say $2"
    show
}
# moves N: rank 1 saves so many steps more, within a minute
moves() {
    from=$(step_of "$scratch/c.1")
    for _ in $(seq 1 1200); do
        at=$(step_of "$scratch/c.1")
        [ "${at:-0}" -lt $((${from:-0} + $1)) ] || return 0
        sleep 0.05
    done
    echo "no $1 steps more"
    show
}
nobody_was_cut() { ! grep -q 'elastic: rank\|went on without' "$scratch/log" || show; }
ended_well() {
    let_end
    wait $job || { echo "exit $?"; show; return 1; }
    grep -q "ranks  *$ranks\$" "$scratch/log" && grep -q 'the same on all ranks' "$scratch/log" &&
        grep -q 'all ranks have left in good order' "$scratch/log" || show
}

# rank 0 twice in a row, and all but the one that came last
comes_back() {
    job_start 1000 && at_once 0 && says 1 'came back as' && at_once 0 && says 2 'came back as' &&
        at_once 1 2 && says 4 'came back as' && ended_well; code=$?
    job_end
    return $code
}
killed() {
    job_start 1000 || return 1
    kill -9 "$(net_pids 0 gf-coordinator)"
    says 1 'generation 1 of 3 ranks was taken over' && moves 20 && nobody_was_cut && at_once 2 &&
        says 1 'came back as' && shows 'last fault: rank 2 died' && ended_well; code=$?
    job_end
    return $code
}
shows() { # PATTERN, also once a generation has begun without the one that it names
    net_exec 0 "$build_/gf-coordinator" --status "$(net_address 0):7117" --job "$$$number.0" \
        --key-file "$scratch/key" >"$scratch/status" 2>&1
    grep -q "$1" "$scratch/status" || { cat "$scratch/status"; return 1; }
}
# away SECONDS "BEFORE" "AFTER": the coordinator is away for so long while ranks train
away() {
    job_start 10000000 || return 1
    $2
    sleep "$1"
    moves 20; code=$?
    $3
    sleep 3
    [ $code -eq 0 ] && moves 20 && nobody_was_cut; code=$?
    job_end
    return $code
}
pid_of() { net_pids 0 gf-coordinator; }
stop() { kill -STOP "$(pid_of)"; }
cont() { kill -CONT "$(pid_of)"; }
# No packet of the coordinator's port passes, in either direction, while data do.
cut() { net_close 0 7117; }
join() { net_close 0 0; }

cases="ranks_come_back the_coordinator_is_killed it_is_stopped_for_5_s it_is_cut_off_for_1_s it_is_cut_off_for_5_s
    it_is_cut_off_for_20_s"
net_suite "$cases" 3
programs_make
head -c 32 /dev/urandom >"$scratch/key"; chmod 600 "$scratch/key"
sed "s|^state=.*|state=$scratch/c|; s|^\(GF_ADDRESS=.*\):.*|\1:7117|; /^export PATH=/d" \
    config/job.sbatch >"$scratch/job.sbatch"
cat >"$scratch/job.cfg" <<EOF
rendezvous = { key_file = "$scratch/key"; join_timeout = 40.0; keepalive = 2.0; };
link = { devices = "eth0"; idle = "sleep"; };
exchange = { timeout = 4.0; };
EOF
check ranks_come_back comes_back
check the_coordinator_is_killed killed
check it_is_stopped_for_5_s away 5 stop cont
check it_is_cut_off_for_1_s away 1 cut join
check it_is_cut_off_for_5_s away 5 cut join
check it_is_cut_off_for_20_s away 20 cut join
finish
