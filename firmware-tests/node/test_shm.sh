#!/bin/sh
# Memory that ranks of a node share: what this host does not let them have is said in its own words; what they need no
# longer (/dev/shm) may be anything; two users use the network; nothing is left by a kill.
. firmware-tests/support/shell.sh
export LC_ALL=C OPENBLAS_NUM_THREADS=1
perf="$BUILD/gf-perf -n 1 --set rendezvous.join_timeout=30s" small="-b 4 -e 4"
export GF_ADDRESS=127.0.0.1:7$(( $$ % 900 + 100 ))
if [ "$(id -u)" -eq 0 ]; then space="unshare -m"; else space="unshare -rm"; fi
# within SETTING COMMAND..: the command after SETTING, in a mount namespace where SETTING mounts (a chroot allows none)
within() {
    setting=$1; shift
    # shellcheck disable=SC2086
    case $setting in
    mount*) $space sh -c "$setting && exec $*" ;;
    *) sh -c "$setting && exec $*" ;;
    esac
}
says() { grep -qE "$1" "$scratch/log" || { cat "$scratch/log"; return 1; }; }
# two CODE SETTING: two ranks where SETTING was run end with CODE
two() {
    within "$2" env GF_DEBUG=info timeout 100 "$BUILD/gf-run" -n 2 "$perf" "${3:-$small}" >"$scratch/log" 2>&1
    code=$?
    [ $code -eq "$1" ] || { echo "exit $code"; cat "$scratch/log"; return 1; }
}
# case_run CODE NAME SETTING TEXT [OPTIONS]: and the log has TEXT
case_run() {
    if ! within "$3" true 2>/dev/null; then skip "$2" "this user may not: $3"; return; fi
    check "$2" two "$1" "$3" "${5:-}"
    [ -z "$4" ] || check "$2, and_why" says "$4"
}
check a_network_that_one_node_does_not_use_is_said_to_be_unused two 0 : \
    "$small --set link.devices=eth9 --set link.transports=rc"
for named in 'devices = "eth9"' 'transports = "rc"'; do
    told="all ranks are on one node: link.$named is not used"
    check "${named%% *}_are_named_once" same 1 "$(grep -c "$told" "$scratch/log")"
done
alone='shares no memory with ranks of this host'
# Linux 6.1 ends fallocate() with EINTR for any signal, and gives back what it had taken: as under a timer of 10 ms.
cat >"$scratch/interrupted.c" <<'END'
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>
int fallocate(int fd, int mode, off_t offset, off_t length)
{
    static int calls;
    if ((length > 10 << 20) || (++calls % 3 == 0)) return errno = EINTR, -1;
    return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}
END
if [ -z "$(nm "$BUILD/gf-perf" 2>/dev/null | grep __asan_init)" ] &&
    ${CC:-gcc} -shared -fPIC -o "$scratch/interrupted.so" "$scratch/interrupted.c" 2>/dev/null; then
    check signals_while_memory_is_reserved_end_nothing \
        two 0 "export LD_PRELOAD=$scratch/interrupted.so" "-b 24M -e 24M --set exchange.timeout=20s"
else
    skip signals_while_memory_is_reserved_end_nothing "nothing can be preloaded in this build"
fi
case_run 0 dev_shm_is_not_needed "mount -t tmpfs -o size=4k,ro tmpfs /dev/shm" ''
check and_nobody_is_alone sh -c "! grep -q '$alone' '$scratch/log'"
case_run 0 without_proc_they_use_sockets "mount -t tmpfs tmpfs /proc" "$alone: /proc does not tell"
case_run 1 files_are_too_small "ulimit -f 2000" \
    'error: rank [01]: .*a file may have [0-9]+ KiB here .ulimit -f.; shared memory is one, of [0-9]+ KiB'
case_run 1 addresses_are_too_few "ulimit -v 200000" 'error: rank [01]: .*this process may map [0-9]+ MiB .ulimit -v.' \
    '-b 256M -e 256M'
few_descriptors() { # RANK
    sh -c "exec timeout 100 $BUILD/gf-run -n 2 sh -c '[ \$GF_RANK != $1 ] || ulimit -n 8; exec $perf $small'" \
        >"$scratch/log" 2>&1
    says "error: rank $1: .*needs [0-9]+ file descriptors, the limit is 8: raise it .ulimit -n."
}
for rank in 0 1; do check "too_few_descriptors_of_rank_${rank}_are_told" few_descriptors $rank; done
# Room for a rank's own memory, but not for a peer's.
no_room_for_peers() {
    job="--data $images --model linear --steps 4 --set exchange.user_bytes=300MiB"
    sh -c "ulimit -v 630000 && exec timeout 100 $BUILD/gf-run -n 2 $BUILD/gf-train $job" >"$scratch/log" 2>&1 ||
        { cat "$scratch/log"; return 1; }
    [ "$(grep -c "$alone: memory of another rank cannot be mapped: Cannot allocate memory" "$scratch/log")" -eq 2 ]
}
check where_a_peers_memory_cannot_be_mapped_they_use_sockets no_room_for_peers
# .. for one peer's, but not for those of two: that pair alone uses sockets.
no_room_for_two_peers() {
    job="--data $images --model linear --steps 4 --set exchange.user_bytes=200MiB"
    sh -c "ulimit -v 650000 && exec timeout 100 $BUILD/gf-run -n 3 $BUILD/gf-train $job" >"$scratch/log" 2>&1 ||
        { cat "$scratch/log"; return 1; }
    says 'rank . and rank . of one node share no memory: its memory cannot be mapped: Cannot allocate memory'
}
check where_not_all_peers_can_be_mapped_the_others_are no_room_for_two_peers
# A group below this process's own, of version 1: version 2 wants all processes in leaves.
own=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
group=/sys/fs/cgroup/memory$own/gf-test-$$
if [ -n "$own" ] && mkdir "$group" 2>/dev/null; then
    echo 64M >"$group/memory.limit_in_bytes"
    case_run 1 a_control_group_is_too_small "echo \$\$ >$group/cgroup.procs" \
        'error: rank [01]: .*its control group has [0-9]+ of 64 MiB of memory in use' '-b 128M -e 128M'
    rmdir "$group"
else skip a_control_group_is_too_small "no control group can be made here"; fi

# Two ranks that are killed in the middle, in a namespace whose shared memory nobody else uses.
killed() {
    # shellcheck disable=SC2016
    $space --ipc sh -c 'mount -t tmpfs tmpfs /dev/shm || exit 1
        export GF_ADDRESS=127.0.0.1:8${GF_ADDRESS##*:7} GF_WORLD=2
        GF_RANK=0 "$1" $2 --checkpoint "$0/killed" & first=$!
        GF_RANK=1 "$1" $2 --checkpoint "$0/killed" & second=$!
        until [ -s "$0/killed.0" ]; do kill -0 $first && kill -0 $second || exit 1; sleep 0.02; done
        kill -KILL $first $second; wait
        [ -z "$(ls /dev/shm)" ] && [ -z "$(ipcs -m | grep ^0x)" ]' "$scratch" "$BUILD/gf-train" \
        "--data $images --model linear --steps 100000000 --lr 0.0001" >"$scratch/log" 2>&1 ||
        { cat "$scratch/log"; return 1; }
}
if $space --ipc mount -t tmpfs tmpfs /dev/shm 2>/dev/null; then check nothing_is_left_by_a_kill killed
else skip nothing_is_left_by_a_kill "needs a mount and an IPC namespace"; fi

# Rank 0 as root, rank 1 as another user, each with a key of its own with the same bytes; or without.
ended() { [ "$code0 $code1" = "$1" ] || { cat "$scratch/log.0" "$scratch/log.1"; return 1; }; }
# NAME CODE TEXT KEYS SETTING [SETTING-OF-RANK-1]: where there is one, rank 1 comes once rank 0 listens
users() {
    case=$1 code=$2 text=$3 keys=$4
    GF_WORLD=2 GF_RANK=0 timeout 100 $perf $small $5 \
        ${keys:+--set rendezvous.key_file=$scratch/key.0} >"$scratch/log.0" 2>&1 &
    [ -z "${6:-}" ] || await 60 grep -q "@gradientflow-$GF_ADDRESS-0$" /proc/net/unix
    GF_WORLD=2 GF_RANK=1 timeout 100 setpriv --reuid 4711 --regid 4711 --clear-groups \
        $perf $small $5 ${6:-} ${keys:+--set rendezvous.key_file=$scratch/key.1} >"$scratch/log.1" 2>&1
    code1=$?
    wait $!
    code0=$?
    check "$case" ended "$code $code"
    for rank in 0 1; do
        cp "$scratch/log.$rank" "$scratch/log"
        [ -z "$text" ] || check "${case}_as_rank_${rank}_says" says "$text"
    done
}
if ! [ "$(id -u)" -eq 0 ] || ! setpriv --reuid 4711 --regid 4711 --clear-groups test -x "$BUILD/gf-perf"; then
    skip ranks_of_two_users "this user cannot be another one, or that one cannot run $BUILD/gf-perf"
    finish
fi
chmod 755 "$scratch"
head -c 32 /dev/urandom >"$scratch/key.0" && cp "$scratch/key.0" "$scratch/key.1"
chmod 600 "$scratch"/key.*; chown 4711 "$scratch/key.1"
users of_two_users_one_uses_the_network 0 '' keys ''
users and_may_be_told_to 0 '' keys '--set link.private_memory=true'
users of_two_users_without_a_key 1 \
    '(user 4711 at the other end, this job|user 0 listens at @.*, this rank) is of user' '' \
    '--set rendezvous.join_timeout=8s' '--set rendezvous.join_timeout=2s'
# Another user is there first, as rank 0: nobody joins him, and rank 0 of this user ends with his name.
GF_WORLD=2 GF_RANK=0 timeout 100 setpriv --reuid 4711 --regid 4711 --clear-groups $perf $small \
    >"$scratch/log.first" 2>&1 &
first=$!
await 60 grep -q "@gradientflow-$GF_ADDRESS-0$" /proc/net/unix
# first RANK TEXT
first() {
    GF_WORLD=2 GF_RANK=$1 timeout 100 $perf $small --set rendezvous.join_timeout=2s >"$scratch/log" 2>&1
    code=$?
    [ $code -eq 1 ] || { echo "exit $code"; cat "$scratch/log" "$scratch/log.first"; return 1; }
    says "$2"
}
check another_user_is_not_joined first 1 'user 4711 listens at @gradientflow-.*, this rank is of user 0'
check and_is_named_to_rank_0 first 0 'cannot listen at .*user 4711 listens there, this process is of user 0'
kill $first # it would wait for rank 1 for all of its join_timeout
wait
finish
