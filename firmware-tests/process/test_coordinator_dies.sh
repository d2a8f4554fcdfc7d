#!/bin/sh
# suite: long (200 jobs)
# A rank is killed, and while the survivors agree on the next epoch its coordinator, 0 to 40 ms later: in jobs of 3 and
# 4, under gf-run --elastic, which names who has ended, and without a list. What must come of it (lib/elastic):
#     with gf-run's list       the survivors are everybody that is left: they go on
#     3 ranks without a list   1 of 3, or 1 of the 2 of the epoch between that is not its lowest: GF_ERR_QUORUM
#     4 ranks without a list   2 of 4 without the lowest: GF_ERR_QUORUM; they go on as 2 of 3 where the epoch between
#                              was committed
# RUNS jobs each (default 50, the first of seed FIRST), four at a time. Prints "RANKS LIST OUTCOME COUNT".
set -u
. firmware-tests/support/shell.sh
export LC_ALL=C OPENBLAS_NUM_THREADS=1
RUNS=${RUNS:-50} FIRST=${FIRST:-0} steps=1500
idx_data "$scratch/data" 250 || exit 1

train() { # NAME PORT
    echo "$BUILD/gf-train --model linear --data $scratch/data --elastic --steps $steps --batch 12" \
        "--checkpoint $scratch/$1.c --checkpoint-every 20" \
        "--set rendezvous.address=127.0.0.1:$2" \
        "--set exchange.timeout=2s --set rendezvous.join_timeout=8s"
}

# job_start NAME RANKS LIST PORT: each rank says what it says in $scratch/NAME.log.RANK, its number is in NAME.pid.RANK
job_start() {
    # shellcheck disable=SC2016
    own='"$@" >"$0.log.$GF_RANK" 2>&1 & echo $! >"$0.pid.$GF_RANK"
        wait $!; code=$?; echo $code >"$0.exit.$GF_RANK"; exit $code'
    # shellcheck disable=SC2046
    if [ "$3" = list ]; then
        timeout 60 "$BUILD/gf-run" -n "$2" --elastic sh -c "$own" "$scratch/$1" $(train "$1" "$4") \
            >"$scratch/$1.run" 2>&1 &
        started=$!
        return
    fi
    started=''
    for rank in $(seq 0 $(($2 - 1))); do
        GF_RANK=$rank GF_WORLD=$2 GF_JOB=$4 timeout 60 sh -c "$own" "$scratch/$1" $(train "$1" "$4") 2>/dev/null &
        started="$started $!"
    done
}

# What became of a survivor.
came() {
    if [ "$(cat "$scratch/$1.exit.$2")" = 0 ]; then echo on
    elif grep -q 'too few to go on\|contacted another coordinator' "$scratch/$1.log.$2"; then echo quorum
    else echo other; fi
}

# one NAME RANKS LIST PORT SEED: leaves "OUTCOME" in $scratch/NAME.out, and NAME.bad where the survivors differ
one() {
    job_start "$1" "$2" "$3" "$4"
    victim=$(($5 % $2)) coordinator=0
    [ "$victim" -ne 0 ] || coordinator=1
    for _ in $(seq 1 400); do
        [ ! -s "$scratch/$1.c.$(($2 - 1))" ] || break
        sleep 0.05
    done
    sleep "0.$(printf %03d $(($5 * 41 % 200)))"
    kill -9 "$(cat "$scratch/$1.pid.$victim")" 2>/dev/null
    sleep "0.0$(printf %02d $(($5 * 7 % 41)))"
    kill -9 "$(cat "$scratch/$1.pid.$coordinator")" 2>/dev/null
    for pid in $started; do wait "$pid" 2>/dev/null; done
    outcome=''
    for rank in $(seq 0 $(($2 - 1))); do
        [ "$rank" -eq "$victim" ] || [ "$rank" -eq "$coordinator" ] || outcome="$outcome $(came "$1" "$rank")"
    done
    killed=$(cat "$scratch/$1.exit.$victim" "$scratch/$1.exit.$coordinator" 2>/dev/null | tr '\n' ' ')
    [ "$killed" = '137 137 ' ] || outcome=late
    case $outcome in
    late) echo "$2 $3 late" ;;
    ' on' | ' on on') echo "$2 $3 on" ;;
    ' quorum' | ' quorum quorum') echo "$2 $3 quorum" ;;
    *) echo "$2 $3 differ"; tail -n 3 "$scratch/$1".log.* >"$scratch/$1.bad" ;;
    esac >"$scratch/$1.out"
    rm -f "$scratch/$1.c".*
}

for ranks in 3 4; do
    for list in list none; do
        for run in $(seq 0 $((RUNS - 1))); do
            one "$ranks.$list.$run" $ranks $list $((21000 + run)) $((FIRST + run)) &
            [ $((run % 4)) -ne 3 ] || wait
        done
        wait
    done
done
cat "$scratch"/*.out | sort | uniq -c | awk '{print $2, $3, $4, $1}' | tee "$scratch/all"
cat "$scratch"/*.bad 2>/dev/null | head -60
count() { awk -v k="$1" '$1 " " $2 " " $3 == k {n = $4} END {print n + 0}' "$scratch/all"; }
# What must come of all jobs but those that had ended before both ranks were killed, which may be half of them.
all() {
    late=$(count "$1 $2 late")
    [ $(($(count "$1 $2 $3") + $(count "$1 $2 ${4:-none}") + late)) -eq "$RUNS" ] && [ $((2 * late)) -le "$RUNS" ]
}
check three_ranks_with_a_list_go_on all 3 list on
check four_ranks_with_a_list_go_on all 4 list on
check one_of_three_is_no_quorum all 3 none quorum
check two_of_four_are_one_where_the_epoch_between_was_committed all 4 none quorum on
finish
