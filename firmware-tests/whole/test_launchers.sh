#!/bin/sh
# Under real launchers: Open MPI's mpirun, and Slurm's srun on a cluster of one node that this test starts and ends, in a
# network namespace of its own so that its ports are nobody else's. `make deps-test` installs both; skipped where absent.
# suite: long
if [ "${1:-}" != inside ] && unshare -n true 2>/dev/null; then
    exec unshare -n sh "$0" inside
fi
inside=${1:-}
. firmware-tests/support/shell.sh
PATH=$PATH:/usr/sbin:/sbin
[ "$inside" != inside ] || ip link set lo up
gf_check="$BUILD/gf-check config/local.cfg --preflight --deadline 30" train="$BUILD/gf-train --model linear --steps 40"
pids=
# Asked to end, then made to: the last started first.
daemons_end() {
    for pid in $pids; do kill "$pid" 2>/dev/null; done
    for pid in $pids; do
        for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
        kill -9 "$pid" 2>/dev/null
    done
    pids=
}
trap 'daemons_end; rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
# runs COMMAND..: succeeds within 100 s; what it said is in $scratch/out
runs() {
    timeout -k 5 100 "$@" >"$scratch/out" 2>&1 || { echo "exit $?"; tail -n 30 "$scratch/out"; return 1; }
}
weights() { cksum <"$1"; }
# launcher NAME VARIABLE COMMAND..: what every launcher of two ranks must be good for
launcher() {
    name_=$1 variable_=$2; shift 2
    check "${name_}_preflight" runs "$@" $gf_check
    check "${name_}_says_who_is_who" said "^ok +launcher +$variable_: rank 0 of 2"
    check "${name_}_ranks_join" said "^ok +join +2 ranks joined"
    check "${name_}_trains" runs "$@" $train --dump-weights "$scratch/$name_.weights"
    check "${name_}_is_said_in_the_results" said '^ranks +2$'
    check "${name_}_ends_with_the_weights_of_gf_run" same "$reference" "$(weights "$scratch/$name_.weights")"
    check "${name_}_job_ends_when_a_rank_is_killed" dies "$@"
}
# Rank 1 is killed in the middle, once it has saved a step; rank 0 says so and the launcher fails, all in bounded time.
dies() {
    rm -f "$scratch"/dies.*
    timeout -k 5 100 "$@" sh -c 'case ${SLURM_PROCID:-${OMPI_COMM_WORLD_RANK:-$RANK}} in 0) exec "$@";; esac
        "$@" & rank=$!; until [ -s "$0.1" ]; do sleep 0.02; done
        kill -9 $rank; wait $rank 2>/dev/null; sleep 20; exit 9' "$scratch/dies" \
        "$BUILD/gf-train" --model linear --steps 100000000 --lr 0.0001 --checkpoint "$scratch/dies" \
        >"$scratch/out" 2>&1
    code_=$?
    [ $code_ -ne 0 ] && [ $code_ -ne 124 ] && said '^error: rank 0: rank 1 died' || { echo "exit $code_"; return 1; }
}

export GF_ADDRESS=127.0.0.1:7119 OPENBLAS_NUM_THREADS=1
check "gf_run_trains" runs "$BUILD/gf-run" -n 2 $train --dump-weights "$scratch/reference"
reference=$(weights "$scratch/reference")

# ---- the variables of torchrun, as it sets them ----
cat >"$scratch/torchrun" <<'END'
#!/bin/sh
for rank in 1 0; do
    env RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=gf MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=29500 "$@" & last=$!; [ $rank = 0 ] || other=$last
done
wait $other; code=$?
wait $last && exit $code
END
chmod +x "$scratch/torchrun"
launcher torchrun RANK "$scratch/torchrun"

# ---- Open MPI ----
if command -v mpirun >/dev/null && mpirun --version 2>/dev/null | grep -q "Open MPI"; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR="$scratch"
    launcher mpirun OMPI_COMM_WORLD_RANK mpirun --oversubscribe --mca btl self,vader -n 2
else skip "mpirun" "Open MPI is not installed (make deps-test)"; fi

# ---- Slurm ----
slurm_missing() {
    for program in munged slurmctld slurmd srun scontrol; do
        command -v $program >/dev/null || { echo "$program is not installed (make deps-test)"; return; }
    done
    [ "$(id -u)" -eq 0 ] || { echo "needs root"; return; }
    [ "$inside" = inside ] || echo "needs a network namespace"
}
# ready COMMAND..: until it succeeds, or for so long that it will not
ready() {
    until_=$(($(date +%s) + 60))
    until timeout 100 "$@" >/dev/null 2>&1; do [ "$(date +%s)" -lt $until_ ] || return 1; sleep 0.2; done
}
slurm_start() {
    ip address add 10.255.255.1/32 dev lo # its getaddrinfo() finds nothing where 127.0.0.1 alone is there
    mkdir "$scratch/spool" "$scratch/state"
    chmod 755 "$scratch"
    (umask 077; head -c 128 /dev/urandom >"$scratch/munge.key")
    munged --foreground --force --key-file="$scratch/munge.key" --socket="$scratch/munge.socket" \
        --pid-file="$scratch/munge.pid" --log-file="$scratch/munge.log" --seed-file="$scratch/munge.seed" \
        >"$scratch/munged.out" 2>&1 & pids="$! $pids"
    cat >"$scratch/slurm.conf" <<END
ClusterName=gf
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$scratch/munge.socket
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/spool
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmdPidFile=$scratch/slurmd.pid
SlurmctldLogFile=$scratch/slurmctld.log
SlurmdLogFile=$scratch/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/linear
SchedulerType=sched/builtin
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=localhost NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=localhost Default=YES State=UP OverSubscribe=YES
END
    export SLURM_CONF="$scratch/slurm.conf"
    ready test -S "$scratch/munge.socket" || return 1
    slurmctld -D -f "$SLURM_CONF" >"$scratch/slurmctld.out" 2>&1 & pids="$! $pids"
    slurmd -D -N localhost -f "$SLURM_CONF" >"$scratch/slurmd.out" 2>&1 & pids="$! $pids"
    ready sh -c 'sinfo -h -o %T | grep -q idle'
}
why=$(slurm_missing)
if [ -n "$why" ]; then skip "srun" "$why"
elif ! slurm_start; then
    not_ok "a_cluster_of_one_node_comes_up" "$(cat "$scratch"/munged.out "$scratch"/slurm*.out | tail -n 20)"
else
    ok "a_cluster_of_one_node_comes_up"
    launcher srun SLURM_PROCID srun -n 2 --overcommit
    check "srun_trains_the_readmes_language_model" runs srun -n 2 --overcommit "$BUILD/language" \
        --config config/local.cfg --steps 3
    check "both_ranks_have_its_weights" [ "$(grep -c 'rank [01] of 2: 3 steps' "$scratch/out")" -eq 2 ]
    # In a script for sbatch that forgot srun: said at once, with what was seen.
    batch() { # SBATCH_OPTION..
        timeout 100 sbatch --wait --overcommit -D "$PWD" -o "$scratch/out" "$@" "$scratch/batch" \
            >"$scratch/told" 2>&1
    }
    batch_says() { # TEXT SBATCH_OPTION..
        text_=$1; shift
        printf '#!/bin/sh\nexec %s config/local.cfg --preflight\n' "$BUILD/gf-check" \
            >"$scratch/batch"
        batch "$@"
        said "$text_"
    }
    check "a_batch_script_of_several_is_told_of_srun" batch_says \
        "this is the batch script itself, and srun starts the ranks" -n 2
    check "and_one_that_says_no_number" batch_says \
        "SLURM_PROCID is set and SLURM_NTASKS is not; .* srun starts the ranks" -N 1
    two_steps() { # of one allocation, at once: another step is another job
        printf '#!/bin/sh\nfor v in 1 1000; do srun -n 2 --overlap --overcommit %s & done; wait\n' \
            "$BUILD/firmware-tests/program_who \$v config/local.cfg" >"$scratch/batch"
        batch -n 2
        sums_=$(grep -o 'job.*sum.*' "$scratch/out" | sort |
            sed 's/.*job //; s/ of 2: sum//; s/rank //' | paste -sd, -)
        [ "$sums_" = "1 0 2,1 1 2,1000 0 2000,1000 1 2000" ] ||
            { cat "$scratch/out" "$scratch/told"; return 1; }
    }
    check "two_steps_do_not_meet" two_steps
    # config/job.sbatch as it stands, with a program of this test: a rank is killed, and then the coordinator.
    restarts() {
        mkdir "$scratch/bin" "$scratch/job"
        build_=$(cd "$BUILD" && pwd)
        printf '#!/bin/sh\necho 127.0.0.1\n' >"$scratch/bin/hostname"
        cat >"$scratch/bin/gf-train" <<END
#!/bin/sh
echo \$\$ >"$scratch/job/pid.\$SLURM_PROCID"
export OPENBLAS_NUM_THREADS=1
export GF_HOLD="$scratch/hold" GF_HOLD_FROM=10
exec "$build_/firmware-tests/program_held_train" "\$@" --data "$build_/images" --model linear --batch 100 \\
    --steps 1000 --checkpoint-every 10
END
        chmod +x "$scratch/bin/hostname" "$scratch/bin/gf-train"
        cp config/local.cfg "$scratch/job/job.cfg"
        hold 10
        PATH="$scratch/bin:$build_:$PATH" timeout 100 sbatch --wait --nodes=1 --ntasks-per-node=2 --overcommit \
            -D "$scratch/job" -o "$scratch/out" config/job.sbatch >"$scratch/told" 2>&1 & batch_=$!
        for victim in pid.1 coordinator; do
            from_=$(step_of "$scratch/job/night-7.state.0")
            until at_=$(step_of "$scratch/job/night-7.state.0"); [ "${at_:-0}" -ge $((${from_:-0} + 30)) ]; do
                kill -0 $batch_ || { cat "$scratch/out"; return 1; }
                sleep 0.1
            done
            [ -e "$scratch/job/$victim" ] || ps -C gf-coordinator -o pid= >"$scratch/job/$victim"
            kill -KILL $(cat "$scratch/job/$victim")
        done
        await 60 said 'generation [0-9]* of [12] ranks was taken over' >/dev/null
        let_end
        wait $batch_ && said 'member 1 came back as rank 1 of 2' &&
            said 'generation [0-9]* of [12] ranks was taken over' && said 'the same on all ranks'
    }
    check "its_file_of_config_lets_a_job_outlive_a_rank_and_the_coordinator" restarts
    daemons=$pids
    daemons_end
    check "no_daemon_is_left" sh -c '! ps -o pid= -p "$1" | grep -q .' sh "$(echo $daemons | tr ' ' ',')"
fi
finish
