#!/bin/sh
# suite: long (JOBS jobs, default 100, 3 s each)
# Rank 0 of 2 is killed and started again at once: rank 1 goes on alone, or with the process that waits. Each job
# trains until it is ended from here, so each kill meets one that trains. It has gone on once rank 0 saves more steps.
set -u
. firmware-tests/support/shell.sh
. firmware-tests/support/elastic.sh
JOBS=${JOBS:-100} went_on=0

again() { # MS after the first checkpoint
    every=2 job_start "-n 2 --restart 1" --batch 500 --steps 1000000 --set rendezvous.join_timeout=60s \
        --set exchange.timeout=10s --set link.idle=sleep || return 1
    nap "$1"
    began=$(date +%s%N)
    signal KILL 0
    wait_for 1 'came back as' && echo $(($(date +%s%N) - began)) >>"$scratch/times" && moves 4
    code=$?
    kill $job
    wait $job
    return $code
}
for n in $(seq 1 "$JOBS"); do
    if again $((n * 37 % 400)); then went_on=$((went_on + 1)); else show 30; fi
done
echo "# $went_on of $JOBS went on"
measured "$scratch/times" "from kill -9 of rank 0 until it trains again"
check rank_0_of_2_started_again_at_once_goes_on_each_time [ "$went_on" -eq "$JOBS" ]
finish
