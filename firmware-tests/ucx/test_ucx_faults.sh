#!/bin/sh
# suite: long (400 jobs)
# Each call of UCX that a job makes fails once, on either rank, requests under way too.
# No rank hangs or dies of a signal; a job that fails says why on both ranks, and the rank whose call it was names that
# call; a job that goes on (where a sleep did not work) ends with the weights of the others.
# A request that fails in the job's last operation is its own rank's error alone: the other may have all it waits for.
# STRIDE=3 takes each third call.
. firmware-tests/support/shell.sh
export LC_ALL=C OPENBLAS_NUM_THREADS=1
STRIDE=${STRIDE:-1}
idx_data "$scratch/data" 250 || exit 1
train="$BUILD/firmware-tests/program_ucx_faults --model linear --data $scratch/data --batch 25 --steps 3
    --set rendezvous.join_timeout=2s --set exchange.timeout=2s --set link.private_memory=true
    --set link.driver=ucx --set link.transports=tcp --set link.devices=lo --set rendezvous.insecure=true"
weights() { sed -n 's/^.*\(weights .*, the same on all ranks\).*$/\1/p' "$1"; }
job() { # CALL:RANK
    for rank in 0 1; do
        GF_UCX_FAIL=$1 GF_RANK=$rank GF_WORLD=2 timeout 100 $train >"$scratch/log.$rank" 2>&1 &
        eval "pid$rank=$!"
    done
    wait $pid0; code0=$?
    wait $pid1; code1=$?
    failed=$(sed -n 's/^ucx faults: .* failed //p' "$scratch/log.${1#*:}")
}
ends() { # as it should
    case "$code0 $code1" in
    "0 0") [ "$(weights "$scratch/log.0")" = "$quiet" ] ;;
    "1 1") grep -q 'error: rank 0: ' "$scratch/log.0" && grep -q 'error: rank 1: ' "$scratch/log.1" &&
        case $failed in
        *send*) grep -q ucp_tag_send_nbx "$scratch/log.$1" ;;
        *rece*) grep -q ucp_tag_recv_nbx "$scratch/log.$1" ;;
        uct_*) grep -q 'uc[pt]_[a-z_]* gave ' "$scratch/log.$1" ;; # UCX calls these, too
        *) grep -q "${failed%_version} gave" "$scratch/log.$1" ;;
        esac ;;
    "1 0" | "0 1") # the last operation compares the weights; it may be whole on the other rank
        case $code0$code1:$1:$failed in "10:0:a "*"under way" | "01:1:a "*"under way") ;; *) false ;; esac &&
            grep -q "rank $1: .* in step 3, operation allgather" "$scratch/log.$1" &&
            { [ $1 -eq 0 ] || [ "$(weights "$scratch/log.0")" = "$quiet" ]; } ;;
    *) false ;;
    esac || { echo "# exits $code0 $code1 after $failed"; tail -n 4 "$scratch/log.0" "$scratch/log.1"; return 1; }
}
each() { # RANK: every call of that rank fails once
    call=1 bad=0 went_on=0
    while :; do
        job $call:$1
        [ "$failed" != none ] || break
        ends $1 || bad=$((bad + 1))
        [ "$code0 $code1" != "0 0" ] || went_on=$((went_on + 1))
        call=$((call + STRIDE))
    done
    echo "# rank $1: $((call - 1)) calls, $went_on jobs went on"
    [ $call -gt 20 ] && [ $bad -eq 0 ]
}
job 0:0
quiet=$(weights "$scratch/log.0")
check a_job_without_a_failure [ "$code0 $code1" = "0 0" -a -n "$quiet" ]
for rank in 0 1; do check "each_call_of_rank_$rank" each $rank; done
finish
