#!/bin/sh
# What runs over the simulator elsewhere, over real links: suites of collectives, hierarchy, sparse communication,
# steps, requests, leaving, and jobs that shrink and grow, in one process (support/real_links.h), and jobs of
# processes, over sockets, over UCX's tcp and in shared memory, which end with the same weights bit for bit, and a job
# over UCX that goes on when a rank is killed; over sockets: test_elastic.sh. Over rc and ud: ucx/test_verbs.sh.
# Devices, whose memory only UCX reaches: test_link_ucx_device.
. firmware-tests/support/shell.sh
. firmware-tests/support/elastic.sh
suites="coll hierarchy sparse step request reduction leave"
elastic="regroup rejoin coordinator"
links="tcp ucx"
if GF_TEST_LINK=ucx "$BUILD/firmware-tests/test_reduction" 2>&1 | grep -q 'there is no such link'; then
    skip ucx "this build has none"
    links=tcp
fi
one() { # LINK SUITE: leaves $scratch/LINK.SUITE.good
    case " $elastic " in *" $2 "*) stride=401 ;; *) stride=797 ;; esac
    GF_TEST_LINK=$1 GF_TEST_STRIDE=$stride timeout 120 "$BUILD/firmware-tests/test_$2" >"$scratch/$1.$2" 2>&1 &&
        touch "$scratch/$1.$2.good"
}
for link in $links; do
    for suite in $suites $elastic; do one "$link" "$suite"; done &
done
wait
passed() {
    [ -e "$scratch/$1.$2.good" ] && grep -q 'PASSED .* [1-9][0-9]* test' "$scratch/$1.$2" ||
        { tail -n 20 "$scratch/$1.$2"; return 1; }
}
for link in $links; do
    for suite in $suites $elastic; do check "${suite}_over_$link" passed "$link" "$suite"; done
done

over() { # LINK: the settings of a job
    case $1 in
    memory) ;;
    tcp) echo "--set link.private_memory=true --set link.driver=tcp" ;;
    ucx) echo "--set link.private_memory=true --set link.driver=ucx --set link.transports=tcp --set link.devices=lo
        --set rendezvous.insecure=true" ;;
    esac
}
host() { [ "$1" != ucx ] || echo --insecure; } # LINK: of gf-run, where the coordinator runs
goes_on() { # LINK: one of three ranks is killed
    # shellcheck disable=SC2046
    job_start "-n 3 --elastic $(host "$1")" --steps 1000 --set rendezvous.join_timeout=40s --set exchange.timeout=3s \
        --set link.idle=sleep $(over "$1") || return 1
    signal KILL 1
    wait_for 2 'elastic: rank' && job_end && grep -q 'the same on all ranks' "$scratch/log" &&
        [ "$(grep -c 'elastic: rank' "$scratch/log")" -eq 2 ] || show
}
[ "$links" = tcp ] || check a_rank_killed_over_ucx_leaves_the_others_going goes_on ucx

weights() { # LINK OPTION..
    link=$1; shift
    # shellcheck disable=SC2046
    timeout 100 "$BUILD/gf-run" -n 3 $(host "$link") "$BUILD/gf-train" $small --steps 6 $(over "$link") "$@" \
        >"$scratch/log" 2>&1 ||
        { tail -n 5 "$scratch/log"; return 1; }
    sed -n 's/^.*weights *\([0-9a-f]*\), the same on all ranks.*$/\1/p' "$scratch/log"
}
same_weights() { found=$(weights "$@") && same "$wanted" "$found"; }
for job in ring sparse; do
    case $job in
    sparse)
        options="--set exchange.algorithm=ring --set sparse.enabled=true"
        options="$options --set sparse.chunk_elems=64 --set sparse.warmup_steps=2"
        ;;
    ring) options="--set exchange.algorithm=ring" ;;
    esac
    # shellcheck disable=SC2086
    wanted=$(weights memory $options) || { not_ok "${job}_in_memory" "it failed"; continue; }
    for link in $links; do
        # shellcheck disable=SC2086
        check "weights_of_${job}_over_$link" same_weights "$link" $options
    done
done
finish
