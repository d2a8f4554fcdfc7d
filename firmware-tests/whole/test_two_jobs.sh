#!/bin/sh
# Two jobs at once on a host, of equal worlds and tensors: whatever launcher has started them, and
# in whatever order their ranks come, no rank of one meets one of the other. And who is one of
# several and was not told so: that is said.
. firmware-tests/support/shell.sh
who="$BUILD/firmware-tests/program_who" gf_check="$BUILD/gf-check"
unset GF_RANK GF_WORLD GF_JOB GF_ADDRESS
base=$((20000 + $$ % 5000))
short="rendezvous.join_timeout=30s"
# start TAG RANK COMMAND..: rank RANK of the job TAG, in the background, says that to $scratch/..
start() {
    tag_=$1 rank_=$2; shift 2
    rm -f "$scratch/$tag_.$rank_.code"
    (timeout -k 5 100 "$@" >"$scratch/$tag_.$rank_" 2>&1; echo $? >"$scratch/$tag_.$rank_.code") &
}
# Four ranks of two jobs, each with the sum of its own.
whole() { # PART..: of the names in $scratch
    sums_=$(for part; do cat "$scratch/1.$part" "$scratch/1000.$part"; done | grep -o 'job.*sum.*' |
        sort | sed 's/job //; s/ of 2: sum//; s/rank //' | paste -sd, -)
    [ "$sums_" = "1 0 2,1 1 2,1000 0 2000,1000 1 2000" ] && return
    echo "job, rank and sum: $sums_"
    for part; do tail -n 3 "$scratch/1.$part" "$scratch/1000.$part"; done
    return 1
}
# apart START: START TAG RANK begins a rank of job 1 or 1000; all orders that mix the jobs
apart() {
    for order in "1.0 1000.1 1000.0 1.1" "1.0 1000.0 1000.1 1.1" "1000.1 1.1 1.0 1000.0"; do
        for one in $order; do "$1" "${one%.*}" "${one#*.}"; sleep 0.02; done
        wait
        whole 0 1 || { echo "in the order $order"; return 1; }
    done
}

# ---- torchrun: without --rdzv-id its id is "none" in each job ----
torch_env() { # TAG RANK: as torchrun sets it
    echo "RANK=$2 LOCAL_RANK=$2 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none"
    echo "MASTER_ADDR=${3:-127.0.0.1} MASTER_PORT=$((base + $1))"
}
# shellcheck disable=SC2046
torchrun() { start "$1" "$2" env $(torch_env "$1" "$2") "$who" "$1" config/local.cfg $short; }
check "torchruns_of_one_address_do_not_meet" apart torchrun
# shellcheck disable=SC2046
torchrun_bare() {
    start "$1" "$2" env $(torch_env "$1" "$2" node.nowhere.invalid) "$who" "$1" - $short
}
check "nor_where_nobody_says_an_address" apart torchrun_bare
# shellcheck disable=SC2046
torchrun_far() { # each rank an agent of its own: what torchrun says of rank 0's host is a name
    start "$1" "$2" env $(torch_env "$1" "$2" localhost) LOCAL_WORLD_SIZE=1 "$who" "$1" - $short \
        rendezvous.insecure=true
}
listens() { await 60 grep -q ":$(printf '%04X' "$1") 00000000:0000 0A" /proc/net/tcp; } # PORT: until somebody does
check "nor_at_ports_of_torchruns_host" apart torchrun_far
# Rank 0 is started twice: the port that was made of torchrun's is named, and what to set.
taken() {
    torchrun_far 1 0
    listens "$port"
    # shellcheck disable=SC2046
    env $(torch_env 1 0 localhost) LOCAL_WORLD_SIZE=1 timeout 100 "$who" 1 - $short \
        rendezvous.insecure=true >"$scratch/out" 2>&1; code_=$?
    torchrun_far 1 1
    wait
    [ $code_ -eq 1 ] || { echo "exit $code_"; return 1; }
    said "cannot listen at 127.0.0.1:$port: .*another .GF_ADDRESS; --listen .*, or there are two coordinators"
}
# shellcheck disable=SC2046
port=$(env $(torch_env 1 1 localhost) LOCAL_WORLD_SIZE=1 timeout 100 "$who" 1 - \
    rendezvous.join_timeout=1ms rendezvous.insecure=true 2>&1 |
    sed -n 's/.*coordinator at 127.0.0.1:\([0-9]*\).*/\1/p')
in_range() {
    [ "${port:-0}" -ge 20000 ] && [ "${port:-0}" -le 25999 ] || { echo "<$port>"; return 1; }
}
check "torchruns_port_is_in_the_range" in_range
check "one_that_is_taken_is_named" taken
# One address for both, at a port: the second job says why it does not begin, the first is whole.
both_at_one_port() {
    at_=$((base + 1))
    here_="config/local.cfg $short rendezvous.insecure=true rendezvous.address=127.0.0.1:$at_"
    # shellcheck disable=SC2046,SC2086
    start 1 0 env $(torch_env 1 0) "$who" 1 $here_
    listens $at_
    for rank in 1 0; do
        # shellcheck disable=SC2046,SC2086
        start 1000 $rank env $(torch_env 1000 $rank) "$who" 1000 $here_
    done
    until [ -e "$scratch/1000.0.code" ] && [ -e "$scratch/1000.1.code" ]; do sleep 0.02; done
    # shellcheck disable=SC2046,SC2086
    start 1 1 env $(torch_env 1 1) "$who" 1 $here_
    wait
    cat "$scratch"/1.[01] "$scratch"/1000.[01] >"$scratch/out"
    codes_=$(cat "$scratch"/1.[01].code "$scratch"/1000.[01].code | paste -sd, -)
    [ "$codes_" = 0,0,1,1 ] && said "job 1 rank 0 of 2: sum 2$" &&
        said "another job or context has that port: give this one another .GF_ADDRESS" &&
        said "job id [0-9]+ at the coordinator, [0-9]+ at this process: another job's address, or GF_JOB or MASTER_ADDR differ"
}
check "two_at_one_port_say_why_not" both_at_one_port

# ---- bare starts: the address is all that tells them apart ----
bare() { # TAG RANK
    start "$1" "$2" env GF_RANK="$2" GF_WORLD=2 GF_ADDRESS="127.0.0.$(($1 % 7)):$((base + 3))" \
        "$who" "$1" config/local.cfg $short
}
check "bare_starts_at_two_addresses_do_not_meet" apart bare

# ---- MPI ----
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR="$scratch"
mpiruns() { # COMMAND OPTIONS: two at once
    for tag in 1 1000; do
        mkdir -p "$scratch/tmp.$tag" # one removes what the other needs, now and then
        # shellcheck disable=SC2046,SC2086
        start $tag mpi env TMPDIR="$scratch/tmp.$tag" $1 $(echo "$2" | sed "s/TAG/$tag/") -n 2 \
            "$who" $tag config/local.cfg $short
    done
    wait
    whole mpi
}
if command -v mpirun.openmpi >/dev/null; then
    check "mpiruns_do_not_meet" mpiruns mpirun.openmpi "--oversubscribe --mca btl self,vader"
else skip "mpiruns_do_not_meet" "Open MPI is not installed (make deps-test)"; fi
if command -v mpirun.mpich >/dev/null; then
    check "nor_mpichs_with_an_id_each" mpiruns mpirun.mpich "-genv GF_JOB TAG"
    refused "mpichs_without_one_are_refused" \
        "what sets PMI_RANK says no id of the job, .*: set GF_JOB to a number, or GF_ADDRESS" \
        mpirun.mpich -n 2 "$who" 1 - $short
    warned() {
        mpirun.mpich -n 2 -genv GF_ADDRESS 127.0.0.1:$((base + 4)) "$who" 1 - $short \
            >"$scratch/out" 2>&1 &&
            said "warn.*the launcher says no id of this job.*GF_JOB"
    }
    check "at_an_address_of_their_own_that_is_a_warning" warned
else skip "nor_mpichs_with_an_id_each" "MPICH is not installed"; fi

# ---- one of several that was not told so ----
alone() { # TEXT VARIABLE=VALUE.. COMMAND..
    text_=$1; shift
    timeout 100 env "$@" >"$scratch/out" 2>&1 || { cat "$scratch/out"; return 1; }
    said "$text_"
}
check "a_launcher_that_is_not_read_is_named" alone \
    "warn.*FLUX_TASK_RANK=1 is of Flux, which is not read: .* to FLUX_JOB_SIZE; .* rank 0 of 1" \
    FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 "$who" 1 config/local.cfg
one_task="SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0"
# shellcheck disable=SC2086
check "also_in_an_allocation_of_one_task" alone \
    "warn.*FLUX_TASK_RANK=1 is set, and SLURM_PROCID=0 and SLURM_NTASKS=1 were .* rank 0 of 1" \
    $one_task FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 "$who" 1 config/local.cfg
check "so_is_an_address_for_several" alone \
    "warn.*rank 0 of 1 .* beside a rendezvous.address for several \(10.9.9.9:7117\)" \
    LC_ALL=C "$who" 1 - rendezvous.insecure=true rendezvous.address=10.9.9.9:7117
silent() { # COMMAND..
    timeout 100 "$@" >"$scratch/out" 2>&1 && ! grep warn "$scratch/out"
}
check "a_job_of_one_says_nothing" silent "$who" 1 config/local.cfg
check "nor_does_one_process_of_pytorchs" silent \
    env RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500 "$who" 1 -
preflight() { # TEXT VARIABLE..: gf-check fails
    text_=$1; shift
    timeout 100 env "$@" "$gf_check" config/local.cfg --preflight >"$scratch/out" 2>&1
    [ $? -eq 1 ] && said "$text_"
}
check "gf_check_fails_there" preflight \
    "^fail +launcher +JOB_COMPLETION_INDEX=1 is of an indexed job of Kube" JOB_COMPLETION_INDEX=1
# shellcheck disable=SC2086
check "and_where_a_launcher_around_it_says_one_rank" preflight \
    "^fail +launcher +FLUX_TASK_RANK=1 is set, and SLURM_PROCID=0 and SLURM_NTASKS=1 were read" \
    $one_task FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2
# shellcheck disable=SC2086
refused "ranks_of_a_script_are_not_the_allocations_one" \
    "rank 1: the coordinator at .* cannot be reached" \
    env $one_task RANK=1 WORLD_SIZE=2 "$who" 1 - rendezvous.address=127.0.0.1:$((base + 6)) \
    rendezvous.join_timeout=300ms
refused "two_launchers_that_disagree" \
    "RANK=1 and WORLD_SIZE=2 are set, and SLURM_PROCID=2 and SLURM_NTASKS=4, too: unset" \
    env RANK=1 WORLD_SIZE=2 SLURM_PROCID=2 SLURM_NTASKS=4 "$who" 1 -
# RANK that a script for sbatch has exported is 0 in all that srun starts.
of_srun() { # RANK COMMAND..
    rank_=$1; shift
    timeout 100 env RANK=0 WORLD_SIZE=2 SLURM_JOB_ID=5 SLURM_STEP_ID=$base SLURM_PROCID="$rank_" \
        SLURM_NTASKS=2 SLURM_LOCALID="$rank_" "$@"
}
cat >"$scratch/of_srun.cfg" <<END
rendezvous = { address = "127.0.0.1:$((base + 7))"; join_timeout = "30 s"; };
END
sruns() { # TEXT COMMAND..: rank 1 says it; gf-check may find fault with the host
    text_=$1; shift
    of_srun 0 "$@" >"$scratch/of_srun.0" 2>&1 &
    of_srun 1 "$@" >"$scratch/out" 2>&1 || [ "$1" = "$gf_check" ] ||
        { cat "$scratch/out"; wait; return 1; }
    wait $! || [ "$1" = "$gf_check" ] || { cat "$scratch/of_srun.0"; return 1; }
    said "$text_"
}
check "but_one_with_a_local_rank_is_read_and_both_are_named" sruns \
    "warn.*RANK=0 and WORLD_SIZE=2 are set, and SLURM_PROCID=1 .* a local rank, were read; unset" \
    "$who" 1 "$scratch/of_srun.cfg"
check "gf_check_warns_of_that" sruns \
    "^warn +launcher .*: RANK=0 and WORLD_SIZE=2 are set, and SLURM_PROCID=1 .* were read" \
    "$gf_check" "$scratch/of_srun.cfg" --preflight
refused "gf_run_under_another_launcher" \
    "OMPI_COMM_WORLD_RANK=1 and OMPI_COMM_WORLD_SIZE=2 are set: another launcher" \
    env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$BUILD/gf-run" -n 2 true
refused "a_batch_script_is_no_rank" \
    "SLURM_PROCID=0 and SLURM_NTASKS=2 are set .* srun starts the ranks" \
    env SLURM_JOB_ID=5 SLURM_PROCID=0 SLURM_NTASKS=2 "$who" 1 config/local.cfg

# ---- misspelled variables ----
check "a_misspelled_variable_is_named" alone \
    "warn.*GF_ADRESS is set, and is not read; did you mean GF_ADDRESS" \
    GF_RANK=0 GF_WORLD=1 GF_ADRESS=3 "$who" 1 config/local.cfg
check "gf_check_warns_of_it" alone "^warn +environment +GF_ELASTC is set, .* mean GF_ELASTIC" \
    GF_ELASTC=1 "$gf_check" config/local.cfg --preflight
others=$(grep -rhoE --include='*.[ch]' --include='*.sh' --exclude='test_variables.c' \
    --exclude=test_two_jobs.sh 'getenv\("GF_[A-Z_0-9]+|\bGF_[A-Z_0-9]+=' firmware-tests tools |
    sed 's/.*(.//; s/=//' | sort -u |
    grep -vxE 'GF_(RANK|WORLD|LOCAL_RANK|JOB|ADDRESS|DEBUG|COORDINATOR|ELASTIC|REJOIN|WORLD_MAX)')
check "the_tree_has_others" [ "$(echo "$others" | wc -l)" -gt 20 ]
# shellcheck disable=SC2046
check "none_of_them_is_taken_for_one" silent \
    env $(echo "$others" | sed 's/$/=1/') "$who" 1 config/local.cfg

# A launcher has chosen another host for rank 0 than the one that the address is of.
refused "rank_0_on_another_host_says_so" \
    "runs here, .*and this host does not have that address .*; torchrun says rank 0's where" \
    env GF_RANK=0 GF_WORLD=2 "$who" 1 - rendezvous.insecure=true rendezvous.address=203.0.113.9:7117

# ---- two contexts of one process ----
two_contexts() {
    ! "$BUILD/gf-run" -n 2 --merge "$who" 1 config/local.cfg twice rendezvous.join_timeout=2s \
        >"$scratch/out" 2>&1 &&
        said "by another context of this process: each wants a job.id of its own"
}
check "a_second_context_is_told_what_to_set" two_contexts
check "and_opens_with_a_job_id_of_its_own" timeout 100 "$BUILD/gf-run" -n 2 "$who" 1 config/local.cfg \
    both $short

# ---- names ----
named() { # at a name each
    start "$1" "$2" env GF_RANK="$2" GF_WORLD=2 GF_JOB="$1" GF_ADDRESS=localhost:$((base + 5)) \
        "$who" "$1" - $short
}
check "GF_ADDRESS_takes_a_name" apart named
refused "a_name_that_nobody_knows_ends_with_join_timeout" \
    "GF_ADDRESS gf.nowhere.invalid:7117: the host is not known: .*; join_timeout is over" \
    env GF_RANK=1 GF_WORLD=2 GF_ADDRESS=gf.nowhere.invalid:7117 \
    "$who" 1 - rendezvous.join_timeout=300ms
unusable() { # NAME TEXT VARIABLE..: rank 0 and rank 1 are told alike, and at once
    whose_=$1 said_=$2; shift 2
    refused "${whose_}_at_rank_0" "$said_" env GF_RANK=0 GF_WORLD=2 "$@" "$who" 1 - rendezvous.insecure=true
    refused "${whose_}_at_rank_1" "$said_" env GF_RANK=1 GF_WORLD=2 "$@" "$who" 1 - rendezvous.insecure=true
}
unusable "an_address_without_a_port" \
    "GF_ADDRESS = 'gpunode01': expected host:port or IP:port" GF_ADDRESS=gpunode01
unusable "an_address_without_brackets" "GF_ADDRESS = '::1:7000': expected host" GF_ADDRESS=::1:7000
unusable "an_address_of_no_host" \
    "GF_ADDRESS = '0.0.0.0:7990': ranks dial it, and it is the address of no host" \
    GF_ADDRESS=0.0.0.0:7990
unusable "likewise_of_ipv6" "GF_ADDRESS = '\[::\]:7990': ranks dial it" "GF_ADDRESS=[::]:7990"
refused "a_host_of_torchruns_that_nobody_knows" \
    "rank 1: MASTER_ADDR gf.nowhere.invalid: the host is not known: .*; join_timeout is over" \
    env RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=gf.nowhere.invalid MASTER_PORT=29500 \
    "$who" 1 - rendezvous.join_timeout=300ms
check "it_has_said_that_it_asks_again" said \
    "warn.*it is asked for again until rendezvous.join_timeout \(0.3 s\)"
refused "a_broken_name" "GF_ADDRESS = 'a:b:7117'" \
    env GF_RANK=1 GF_WORLD=2 GF_ADDRESS=a:b:7117 "$who" 1 -
# A pod that runs before its record exists: rank 1 begins, the name becomes known, rank 0 begins.
later() {
    printf '127.0.0.1 localhost\n' >"$scratch/hosts"
    echo 'nameserver 127.0.0.1' >"$scratch/resolv"
    # shellcheck disable=SC2016
    timeout -k 5 100 unshare -nm sh -c 'ip link set lo up; ip link add eth0 type veth peer name eth0p
        ip link set eth0p up; ip addr add 10.7.7.1/24 dev eth0; ip link set eth0 up
        mount --bind "$1/hosts" /etc/hosts && mount --bind "$1/resolv" /etc/resolv.conf || exit 9
        set -- "$1" "$2" 1 "$1/later.cfg"
        : >"$1/later.1"
        GF_RANK=1 GF_WORLD=2 GF_JOB=5 "$2" "$3" "$4" >"$1/later.1" 2>&1 & other=$!
        until grep -q "asked for again" "$1/later.1"; do sleep 0.05; kill -0 $other || exit 8; done
        echo "10.7.7.1 master-0.train.svc" >>"$1/hosts"
        GF_RANK=0 GF_WORLD=2 GF_JOB=5 "$2" "$3" "$4" >"$1/later.0" 2>&1 || exit 7
        wait $other' sh "$scratch" "$who" ||
        { echo "exit $?"; cat "$scratch"/later.[01]; return 1; }
}
cat >"$scratch/later.cfg" <<'END'
rendezvous = { address = "master-0.train.svc:17117"; insecure = true; join_timeout = "20 s"; };
END
looked_at() { # without ranks, and with
    "$gf_check" "$scratch/later.cfg" >/dev/null 2>"$scratch/out" &&
        said "master-0.train.svc:17117: the host is not known here; ranks ask again until" || return 1
    timeout 100 "$gf_check" "$scratch/later.cfg" --preflight --deadline 1 >"$scratch/out" 2>&1
    [ $? -eq 1 ] && said "^fail +control +rendezvous.address master-0.*: the host is not known"
}
check "gf_check_says_that_a_name_is_not_known" looked_at
if unshare -nm true 2>/dev/null && [ -e /etc/resolv.conf ]; then
    check "a_name_that_is_known_later" later
else skip "a_name_that_is_known_later" "needs a network namespace"; fi

# ---- link-local addresses: each host has its own name for the interface ----
local_() { # NAME TEXT SETTING..: a rank that is refused at once
    name_=$1 text_=$2; shift 2
    refused "$name_" "$text_" env GF_RANK=1 GF_WORLD=2 "$who" 1 - rendezvous.insecure=true "$@"
}
local_ "a_link_local_address_wants_its_interface" \
    "wants its interface behind it, as \[fe80::a%eth0\]:7117" "rendezvous.address=[fe80::a]:7117"
local_ "one_that_is_here" \
    "'\[fe80::a%gf-none\]:7117' is link-local: expected an interface that this host has" \
    "rendezvous.address=[fe80::a%gf-none]:7117"
link_local() {
    # shellcheck disable=SC2016
    timeout -k 5 100 unshare -nm sh -c 'ip link set lo up
        set -- "$1" "$2" "$3 rendezvous.insecure=true link.private_memory=true"
        unshare -n sh -c "ip link set lo up
            until ip addr add fe80::b/64 dev gfb nodad 2>/dev/null; do sleep 0.02; done
            ip link set gfb up
            GF_RANK=1 GF_WORLD=2 exec \"$2\" 1 - $3 \"rendezvous.address=[fe80::a%gfb]:7117\"" \
            >"$1/local.1" 2>&1 & other=$!
        here=$(readlink /proc/self/ns/net)
        until [ "$(readlink /proc/$other/ns/net)" != "$here" ]; do sleep 0.02; done
        ip link add gfa type veth peer name gfb netns $other
        ip addr add fe80::a/64 dev gfa nodad; ip link set gfa up
        GF_RANK=0 GF_WORLD=2 "$2" 1 - $3 "rendezvous.address=[fe80::a%gfa]:7117" \
            >"$1/local.0" 2>&1 || exit 7
        wait $other' sh "$scratch" "$who" "$short" &&
        [ "$(cat "$scratch"/local.[01] | grep -c 'sum 2$')" = 2 ] ||
        { cat "$scratch"/local.[01]; return 1; }
}
if unshare -nm ip link add gfa type veth peer name gfb 2>/dev/null; then
    check "ranks_meet_at_a_link_local_address" link_local
else skip "ranks_meet_at_a_link_local_address" "needs a network namespace with devices"; fi
finish
