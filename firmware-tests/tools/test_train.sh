#!/bin/sh
# The reference appliance over real UCX: the same weights whatever the number of ranks, the bytes that a wire type
# saves, every algorithm and every way in which ranks learn who they are.
. firmware-tests/support/shell.sh
run="$BUILD/gf-run" train="$BUILD/gf-train" compare="$BUILD/firmware-tests/program_compare_weights"
# Where only a few cores are free, UCX's many spinning ranks take long: a bound for hangs, not for speed.
limit=100
# job NAME RANKS OPTION..: leaves NAME.json, NAME.weights, NAME.out and NAME.err
job() {
    name_=$1 ranks_=$2; shift 2
    timeout -k 5 $limit "$run" -n "$ranks_" "$train" --data "$images" --json "$scratch/$name_.json" \
        --dump-weights "$scratch/$name_.weights" "$@" >"$scratch/$name_.out" 2>"$scratch/$name_.err" ||
        { tail -n 5 "$scratch/$name_.err"; return 1; }
}
value() { sed -n "s/^  \"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$scratch/$1.json"; }
below() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a + 0 <= b + 0) }' ||
        { echo "$1 is not <= $2"; return 1; }
}
near() { below "$("$compare" "$scratch/$1.weights" "$scratch/$2.weights" ${4:+"$scratch/$4.weights"})" "$3"; }
# One hash a rank, all the same
hashes_equal() {
    sed -n 's/.*"weights_hash": \[\(.*\)\].*/\1/p' "$scratch/$1.json" | tr -d '" ' | tr ',' '\n' >"$scratch/hashes"
    [ "$(wc -l <"$scratch/hashes")" -eq "$2" ] && [ "$(sort -u "$scratch/hashes" | wc -l)" -eq 1 ] &&
        grep -Eqx '[0-9a-f]{16}' "$scratch/hashes"
}
share_of() { awk -v a="$(value "$1" "$3")" -v b="$(value "$2" "$3")" 'BEGIN { if (b > 0) print a / b }'; }

# ---- the same weights for any number of ranks ----
for n in 1 2 3 4; do
    check "linear_with_${n}_ranks" job "linear$n" "$n" --model linear --steps 50
    check "linear_with_${n}_ranks_has_equal_weights" hashes_equal "linear$n" "$n"
    [ "$n" -eq 1 ] || check "linear_with_${n}_ranks_is_as_with_1" near linear1 "linear$n" 1e-5
done
check "another_seed_is_seen" job other 2 --model linear --steps 50 --seed 2
below_not() { ! below "$@" >/dev/null; }
check "another_seed_gives_other_weights" below_not \
    "$("$compare" "$scratch/linear1.weights" "$scratch/other.weights")" 1e-5
# ---- rates of the configuration ----
check "rates_of_the_command_line" job rate1 2 --model linear --steps 20 --lr 0.02
check "rates_of_the_configuration" job rate2 2 --model linear --steps 20 \
    --set rate.steps=20 --set rate.kind=polynomial --set rate.base=0.02 --set rate.warmup_steps=4
check "give_the_same_weights" cmp "$scratch/rate1.weights" "$scratch/rate2.weights"
check "the_command_line_goes_before" job rate3 2 --model linear --steps 20 --lr 0.02 --set rate.base=0.3
check "and_gives_its_own_weights" cmp "$scratch/rate1.weights" "$scratch/rate3.weights"
check "cnn_at_first" job cnn0 1 --steps 1 --lr 0
for n in 1 2 4; do
    check "cnn_step_with_${n}_ranks" job "cnn$n" "$n" --steps 1
    check "cnn_step_with_${n}_ranks_has_equal_weights" hashes_equal "cnn$n" "$n"
    [ "$n" -eq 1 ] || check "cnn_step_with_${n}_ranks_changes_as_with_1" near cnn1 "cnn$n" 1e-4 cnn0
done
for n in 1 2; do check "cnn_20_steps_with_${n}_ranks" job "long$n" "$n" --steps 20 --batch 16; done
check "cnn_20_steps_have_equal_weights" hashes_equal long2 2
check "cnn_loss_of_2_ranks_is_that_of_1" below "$(awk -v a="$(value long1 loss_last)" -v b="$(value long2 loss_last)" \
    'BEGIN { if (a > 0 && b > 0) { d = (a - b) / a; print d < 0 ? -d : d } }')" 0.02
check "cnn_learns" below "$(value long2 loss_last)" "$(value long2 loss_first)"

# ---- wire types and algorithms ----
for model in linear cnn; do
    for wire in fp32 fp16 bf16; do
        case $model in linear) more="--steps 50" ;; *) more="--steps 3 --batch 16" ;; esac
        # shellcheck disable=SC2086
        check "${model}_over_$wire" job "$model.$wire" 2 --model $model $more --algorithm ring --wire $wire
        check "${model}_over_${wire}_has_equal_weights" hashes_equal "$model.$wire" 2
        [ $wire = fp32 ] || check "${model}_over_${wire}_sends_half" below \
            "$(share_of "$model.$wire" "$model.fp32" wire_bytes)" 0.505
    done
done
# ---- 16 bits from end to end ----
check "linear_in_fp32_over_fp16" job plain 2 --model linear --steps 50 --algorithm ring
for p in fp16 bf16; do
    check "linear_in_$p" job "p$p" 2 --model linear --steps 50 --algorithm ring --precision $p
    check "linear_in_${p}_has_equal_weights" hashes_equal "p$p" 2
    check "linear_in_${p}_says_so" [ "$(value "p$p" precision) $(value "p$p" wire)" = "$p $p" ]
    check "linear_in_${p}_sends_half" below "$(share_of "p$p" plain wire_bytes)" 0.505
    check "linear_in_${p}_learns" below 70 "$(value "p$p" test_accuracy)"
    check "linear_in_${p}_is_not_fp32" below_not \
        "$("$compare" "$scratch/plain.weights" "$scratch/p$p.weights")" 1e-5
done
check "fp16_with_too_large_a_loss_scale" job scale 2 --model linear --steps 20 --precision fp16 \
    --set loss_scale.initial=16777216
check "finds_a_smaller_one" below 1 "$(value scale steps_skipped)"
check "and_goes_on" below "$(value scale loss_last)" "$(value scale loss_first)"
refused "epochs_beside_steps" "--epochs: allowed is it without --steps N" "$train" --epochs 1 --steps 2
refused "no_precision_without_copies" "--precision with" "$train" --precision fp16 --set optimizer.half_weights=fp32
# ---- a layer whose rows are the ranks' ----
# Forward and backward move what enters the layer and what leaves it, once each in and out.
moved() { [ "$(value "$1" split_bytes)" -eq $(($2 * 2 * ($3 - 1) * $4 * 4)) ]; } # NAME STEPS RANKS FLOATS
check "linear_is_split" job slinear 2 --model linear --steps 50 --split linear --algorithm ring
check "linear_split_learns_what_it_learns_whole" near linear2 slinear 1e-5
check "linear_split_moves_what_enters_and_leaves" \
    [ "$(value slinear split_bytes)" -eq $((50 * (784 + 2 * 10) * 64 * 4)) ]
fc1="--steps 12 --batch 16 --lr 0.005 --algorithm ring"
# shellcheck disable=SC2086
check "fc1_is_whole" job whole 2 $fc1
# shellcheck disable=SC2086
check "fc1_is_split" job split 2 $fc1 --split fc1
check "fc1_split_learns_what_it_learns_whole" near whole split 1e-5
check "fc1_split_moves_what_enters_and_leaves" moved split 12 2 $(((3136 + 512) * 16))
check "fc1_split_has_equal_weights" hashes_equal split 2
constant="--model linear --split linear --set rate.base=0.01 --set rate.warmup_steps=5"
half() { # NAME RANKS STEPS OPTION..
    name_=$1 ranks_=$2 steps_=$3; shift 3
    # shellcheck disable=SC2086
    job "$name_" "$ranks_" $constant --steps "$steps_" --checkpoint "$scratch/c" "$@"
}
# shellcheck disable=SC2086
check "a_split_run" job straight 2 $constant --steps 50
check "and_half_of_it" half first 2 25
check "go_on_from_its_rows" half second 2 50 --resume
check "to_the_same_bits" cmp "$scratch/straight.weights" "$scratch/second.weights"
hash_of() { sed -n 's/.*"weights_hash": \["\([0-9a-f]*\)".*/\1/p' "$scratch/$1.json"; }
check_not "rows_are_in_the_hash" [ "$(hash_of first)" = "$(hash_of second)" ]
check_not "as_rows_of_as_many_ranks_alone" half third 1 60 --resume
check_not "no_rows_of_ranks_that_may_die" job elastic 1 --split fc1 --elastic --steps 1
for algorithm in ring halving doubling tree server direct auto; do
    for n in 2 3; do
        check "${algorithm}_with_$n" job "$algorithm$n" "$n" --model linear --steps 20 --algorithm $algorithm
        check "${algorithm}_with_${n}_has_equal_weights" hashes_equal "$algorithm$n" "$n"
        check "${algorithm}_with_${n}_is_right" near ring2 "$algorithm$n" 1e-5
    done
done
check "over_tcp_alone" job tcp 2 --model linear --steps 50 --set link.private_memory=true
check "over_tcp_alone_is_right" near linear1 tcp 1e-5

# ---- what is reported ----
lines_are_json() {
    awk 'NR == 1 { if ($0 != "{") exit 1; next }
         $0 == "}" { closed = 1; next }
         closed || (NR > 2 && !comma) { exit 1 }
         { comma = sub(/,$/, "")
           if (!sub(/^  "[a-z_]+": /, "")) exit 1
           if ($0 !~ /^(-?[0-9]+(\.[0-9]+)?(e[-+][0-9]+)?|"[^"\\]*"|\["[0-9a-f]+"(, "[0-9a-f]+")*\])$/) exit 1 }
         END { if (!closed || comma) exit 1 }' "$scratch/$1.json"
}
check "json_is_valid" lines_are_json cnn4
for key in ranks steps loss_first loss_last test_accuracy weights_hash wire_bytes wire_bytes_steady mapped_bytes \
    control_bytes step_seconds exchange_seconds hidden_share; do
    check "json_has_$key" grep -q "^  \"$key\": " "$scratch/cnn4.json"
done
check "json_tells_the_ranks" [ "$(value cnn4 ranks)" = 4 ]
check "json_tells_the_steps" [ "$(value linear2 steps)" = 50 ]
check "hidden_share_is_a_share" below "$(value cnn4 hidden_share)" 1
last_line() { tail -n 1 "$scratch/$1.out" | grep -Eqx 'test accuracy [0-9]{1,3}\.[0-9]{2} %'; }
check "last_line_is_the_accuracy" last_line cnn2
diverges() {
    timeout -k 5 $limit "$run" -n 2 "$train" $small --steps 60 --set rate.base=100 \
        --set optimizer.momentum=0.99 --set optimizer.weight_decay=1 >"$scratch/diverged.out" 2>"$scratch/diverged.err"
    [ $? -eq 1 ] && grep -q 'diverged: the loss of step [0-9]* is ' "$scratch/diverged.err" &&
        ! grep -q 'test accuracy' "$scratch/diverged.out"
}
check "a_loss_that_is_no_number_is_an_error" diverges
check "linear_learns" below 70 "$(value linear2 test_accuracy)"

# ---- ways to know who one is ----
# both NAME COMMAND0 COMMAND1: two ranks started by hand, the environment of each before the program
# Free now: nobody listens there, and no connection has it as its own end. Seen from the kernel's tables, v4 and v6.
port_free() {
    hex_=$(printf '%04X' "$1")
    ! cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '{ print $2 }' | grep -q ":$hex_\$"
}
port=$(awk 'BEGIN { srand(); print 10000 + int(rand() * 9000) }')
until port_free "$port"; do port=$((10000 + (port - 9999) % 9000)); done
both() {
    log="$scratch/$1"; shift
    # shellcheck disable=SC2086
    env $1 timeout -k 5 $limit "$train" $small --steps 20 --json "$log.json" $3 >"$log.out0" 2>&1 & first=$!
    # shellcheck disable=SC2086
    env $2 timeout -k 5 $limit "$train" $small --steps 20 $3 >"$log.out1" 2>&1 & second=$!
    result=0
    wait $first || result=1
    wait $second || result=1
    [ $result -eq 0 ] && [ "$(sed -n 's/^  "ranks": \([0-9]*\).*/\1/p' "$log.json")" = 2 ] ||
        { tail -n 2 "$log.out0" "$log.out1"; return 1; }
}
address="--set rendezvous.address=127.0.0.1:$port"
if port_free 7117; then
    check "GF_RANK_and_GF_WORLD_alone" both gf "GF_RANK=0 GF_WORLD=2" "GF_RANK=1 GF_WORLD=2" ""
else
    skip "GF_RANK_and_GF_WORLD_alone" "port 7117, the default, is in use here"
fi
check "slurm" both slurm "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_ID=11 SLURM_STEP_ID=0" \
    "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=11 SLURM_STEP_ID=0" "$address"
check "open_mpi" both ompi "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2" \
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2" "$address"
check "pmi" both pmi "PMI_RANK=0 PMI_SIZE=2" "PMI_RANK=1 PMI_SIZE=2" "$address"
# There torchrun's own store listens: nothing of the library's may.
master="MASTER_ADDR=nowhere.invalid MASTER_PORT=1"
check "torchrun" both torch "RANK=0 WORLD_SIZE=2 $master" "RANK=1 WORLD_SIZE=2 $master" "$address"
# A name server that does not answer, by a clock that no test waits for: a question takes 3 s, so one try (IPv4,
# then IPv6) fills the 5 s.
cat >"$scratch/mute.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <time.h>
#include <unistd.h>
static volatile long passed_s;
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = ((int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"))(clock, now);
    if (clock == CLOCK_MONOTONIC) now->tv_sec += passed_s;
    return result;
}
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found_out)
{
    passed_s += 3;
    (void)name, (void)service, (void)hints, (void)found_out;
    return (write(2, "asked\n", 6) == 6) ? EAI_AGAIN : EAI_FAIL;
}
END
not_named() {
    # shellcheck disable=SC2086
    (export GF_RANK=1 GF_WORLD=2 LD_PRELOAD="$scratch/mute.so"
    exec timeout -k 5 $limit "$train" $small --set rendezvous.address=nowhere.invalid:7117 \
        --set rendezvous.join_timeout=5s) 2>"$scratch/out" && return 1
    said "join_timeout is over" && same 2 "$(sed '1,/it is asked for again/d' "$scratch/out" | grep -c '^asked$')"
}
if [ -z "$(nm "$BUILD/gf-train" 2>/dev/null | grep __asan_init)" ] &&
    ${CC:-cc} -shared -fPIC -o "$scratch/mute.so" "$scratch/mute.c" -ldl 2>/dev/null; then
    check "a_name_server_that_does_not_answer_is_asked_until_join_timeout" not_named
else
    skip "a_name_server_that_does_not_answer_is_asked_until_join_timeout" "no call can be preloaded here"
fi
two_jobs() {
    job first 2 --model linear --steps 500 --lr 0.001 & one=$!
    job second 2 --model linear --steps 500 --lr 0.001 & two=$!
    wait $one && wait $two
}
check "two_jobs_at_once" two_jobs
check "two_jobs_at_once_do_not_meet" near first second 0
finish
