#!/bin/sh
# Where shared memory cannot work, the error says why in the host's words: /dev/shm small, full, read-only, without
# inodes, not there or not this user's; no /proc; ranks of one node that are of two users.
. firmware-tests/support/shell.sh
export LC_ALL=C OPENBLAS_NUM_THREADS=1
perf="$BUILD/gf-perf -b 4 -e 4 -n 1 --set rendezvous.join_timeout=2s"
if [ "$(id -u)" -eq 0 ]; then space="unshare -m"; else space="unshare -rm"; fi
says() { grep 'cannot open' "$scratch/log" | grep -qE "$1" || { cat "$scratch/log"; return 1; }; }
# refused NAME MOUNT TEXT: two ranks where MOUNT was run; both end with a failure, and the log has TEXT
refused() {
    if ! $space sh -c "$2" 2>/dev/null; then skip "$1" "this user may not: $2"; return; fi
    timeout 30 $space sh -c "$2 && exec $BUILD/gf-run -n 2 $perf" >"$scratch/log" 2>&1
    code=$?
    check "$1" [ $code -gt 0 -a $code -lt 124 ]
    check "$1, and why" says "$3"
}
shm() { echo "mount -t tmpfs -o $1 tmpfs /dev/shm"; }
refused a_tiny_dev_shm "$(shm size=3m)" '/dev/shm has 3 of 3 MiB free, [0-9]+ are needed'
refused room_for_one_of_two "$(shm size=18m)" '/dev/shm has [0-9]+ of 18 MiB free'
refused read_only "$(shm size=300m,ro)" '/dev/shm is read-only'
refused no_inode "$(shm size=300m,nr_inodes=1)" '0 inodes are free on /dev/shm'
refused few_inodes "$(shm size=300m,nr_inodes=3)" '2 inodes are free on /dev/shm, 3 are needed'
refused inodes_for_one_of_two "$(shm size=300m,nr_inodes=5)" \
    '[012] inodes are free on /dev/shm|of 5 inodes|aborted by its appliance'
refused no_dev_shm "mount -t tmpfs -o mode=755 tmpfs /dev" '/dev/shm: No such file or directory'
refused no_proc "umount -l /proc" '/proc is not mounted, or hidden'
refused another_proc "mount -t tmpfs tmpfs /proc" '/proc is not mounted, or hidden'
refused no_files_of_that_size "ulimit -f 2000" \
    'a file may have [0-9]+ KiB here .ulimit -f.; shared memory takes files of [0-9]+ KiB'
if $space sh -c "$(shm size=64m)" 2>/dev/null; then
    check enough_of_each_is_enough $space sh -c "$(shm size=40m,nr_inodes=7) && $BUILD/gf-run -n 2 $perf >/dev/null"
fi

# Rank 0 as root, rank 1 as another user, each with a key of its own with the same bytes; or without.
users() { # NAME CODE TEXT KEYS SETTING
    case=$1 code=$2 text=$3 keys=$4
    GF_WORLD=2 GF_RANK=0 timeout 30 $perf $5 ${keys:+--set rendezvous.key_file=$scratch/key.0} >"$scratch/log.0" 2>&1 &
    GF_WORLD=2 GF_RANK=1 timeout 30 setpriv --reuid 65534 --regid 65534 --clear-groups \
        $perf $5 ${keys:+--set rendezvous.key_file=$scratch/key.1} >"$scratch/log.1" 2>&1
    code1=$?
    wait $!
    code0=$?
    check "$case" [ "$code0 $code1" = "$code $code" ]
    for rank in 0 1; do
        cp "$scratch/log.$rank" "$scratch/log"
        [ -z "$text" ] || check "${case}_as_rank_${rank}_says" says "$text"
    done
}
if ! [ "$(id -u)" -eq 0 ] || ! setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$BUILD/gf-perf"; then
    skip ranks_of_two_users "this user cannot be another one, or that one cannot run $BUILD/gf-perf"
    finish
fi
chmod 755 "$scratch"
head -c 32 /dev/urandom >"$scratch/key.0" && cp "$scratch/key.0" "$scratch/key.1"
chmod 600 "$scratch"/key.*; chown 65534 "$scratch/key.1"
users of_two_users_one_node 1 \
    'rank 1 runs as user 65534, rank 0 of the same node as 0: shared memory needs the same user' keys ''
users of_two_users_over_tcp 0 '' keys '--set link.transports=self,tcp'
users of_two_users_without_a_key 1 'user 65534 at the other end, this job is of user 0' '' ''
finish
