#!/bin/sh
# Strangers at every port and abstract unix name of real jobs: of one node (as another user too), and between two hosts with a key (root),
# from the jobs' network and from a job's own host. They write nothing, nobody answers them, and the job ends with
# the weights it has without them.
. firmware-tests/support/shell.sh
. firmware-tests/support/net.sh
export OPENBLAS_NUM_THREADS=1 LC_ALL=C
attack="$BUILD/firmware-tests/program_strangers attack" steps=1000
head -c 32 /dev/urandom >"$scratch/key"
chmod 600 "$scratch/key"
weights() { sed -n 's/^.*\(weights .*, the same on all ranks\).*$/\1/p' "$1"; }

# The command of a rank: says its number, then is the training.
# shellcheck disable=SC2016
rank='echo $$ >"$0/pid.$GF_RANK"; exec "$@"'
pids() { # how many; waits until all train
    for i in $(seq 0 $(($1 - 1))); do
        until [ -s "$scratch/pid.$i" ]; do kill -0 $job 2>/dev/null || return 1; sleep 0.01; done
    done
    until [ -n "$(ls "$scratch"/c.* 2>/dev/null)" ]; do kill -0 $job 2>/dev/null || return 1; sleep 0.01; done
    cat "$scratch"/pid.*
}
children() { cat "/proc/$1/task/$1/children"; }
coordinator() { # a child of gf-run, which is a child of timeout
    for run_ in $(children $job); do
        for pid_ in $(children "$run_"); do [ "$(cat "/proc/$pid_/comm")" = gf-coordinator ] && echo "$pid_"; done
    done
}
ended() { # the job, with the weights of file $1
    let_end
    wait $job || { tail -n 20 "$scratch/log"; return 1; }
    [ -n "$(weights "$1")" ] && [ "$(weights "$1")" = "$(weights "$scratch/log")" ] ||
        { echo "weights differ: $(weights "$1") and $(weights "$scratch/log")"; return 1; }
}
clear_job() { hold 100; rm -rf "$scratch"/pid.* "$scratch"/c.* "$scratch/log"; } # for a job that is held

local_job() {
    clear_job
    timeout 120 "$BUILD/gf-run" -n 3 sh -c "$rank" "$scratch" "$held" $small --steps $steps \
        --checkpoint "$scratch/c" --checkpoint-every 100 >"$scratch/log" 2>&1 &
    job=$!
}
one_name() { # of its coordinator, and no port
    local_job
    # shellcheck disable=SC2046
    pid=$(pids 3) && $attack 0 $pid $(coordinator) >"$scratch/out"
    let_end
    wait $job && cp "$scratch/log" "$scratch/local" || { cat "$scratch/log"; return 1; }
    [ "$(grep -c ' @gradientflow-' "$scratch/out")" -eq 1 ] && ! grep -q ' [0-9.]*:[0-9]' "$scratch/out" ||
        { cat "$scratch/out"; return 1; }
}
local_attack() { # user
    local_job
    pid=$(pids 3) || { cat "$scratch/log"; return 1; }
    # shellcheck disable=SC2046
    ATTACK_USER=$1 $attack 60 $pid $(coordinator) >"$scratch/out" 2>&1
    grep -q '^stood [1-9]' "$scratch/out" || { cat "$scratch/out"; return 1; }
    ended "$scratch/local"
}
check a_job_of_one_node_has_one_name_for_its_control_channel one_name
check a_user_who_attacks_his_own_job_on_loopback_changes_nothing local_attack "$(id -u)"
if [ "$(id -u)" -eq 0 ]; then check another_user_on_loopback_changes_nothing local_attack 65534
else skip another_user_on_loopback_changes_nothing "this user cannot be another one"; fi

cases="one_node_with_a_routable_address_listens_for_its_control_channel_alone"
cases="$cases strangers_of_the_network_change_nothing"
cases="$cases strangers_of_a_jobs_own_host_change_nothing"
net_suite "$cases" 2
printf 'rendezvous = { address = "%s:7117"; key_file = "%s"; };\nlink = { devices = "eth0"; idle = "sleep"; };\n' \
    "$(net_address 0)" "$scratch/key" >"$scratch/net.cfg"
net_job() {
    clear_job
    net_run 120 sh -c "$rank" "$scratch" "$held" --config "$scratch/net.cfg" $small --steps $steps \
        --checkpoint "$scratch/c" --checkpoint-every 100 >"$scratch/log" 2>&1 &
    job=$!
}
routed_job() { # of one node, whose address others reach
    clear_job
    {
        for i in 0 1 2; do
            GF_RANK=$i GF_WORLD=3 timeout 120 ip netns exec "gf$$-0" sh -c "$rank" "$scratch" "$held" \
                --config "$scratch/routed.cfg" $small --steps $steps --checkpoint "$scratch/c" \
                --checkpoint-every 100 &
        done
        wait
    } >"$scratch/log" 2>&1 &
    job=$!
}
routed_listeners() {
    routed_job
    pid=$(pids 3) || { cat "$scratch/log"; return 1; }
    ip netns exec "gf$$-sw" $attack 20 $pid >"$scratch/out" 2>&1
    [ "$(grep -c : "$scratch/out")" -eq 1 ] &&
        grep -q '^stood [1-9].*answered 0$' "$scratch/out" || { cat "$scratch/out"; return 1; }
    ended "$scratch/local"
}
net_attack() { # namespace
    net_job
    pid=$(pids 2) || { cat "$scratch/log"; return 1; }
    ip netns exec "$1" $attack 60 $pid >"$scratch/out" 2>&1
    grep -q '^stood [1-9].*answered 0$' "$scratch/out" ||
        { cat "$scratch/out"; return 1; }
    ended "$scratch/quiet" && grep -q 'are no hello' "$scratch/log"
}
sed 's/^link.*//' "$scratch/net.cfg" >"$scratch/routed.cfg"
check one_node_with_a_routable_address_listens_for_its_control_channel_alone routed_listeners
net_job
let_end
wait $job
cp "$scratch/log" "$scratch/quiet"
check strangers_of_the_network_change_nothing net_attack "gf$$-sw"
check strangers_of_a_jobs_own_host_change_nothing net_attack "gf$$-0"
finish
