#!/bin/sh
# The first hour on a GPU, from a bundle (`make gpu-bundle`): needs an NVIDIA driver, glibc 2.34 or newer, sh,
# coreutils, sed, grep, tar.
#     ./run.sh STAGE [--out DIR] [--small] [--nccl FILE] [--library FILE]
# STAGE, each alone and in under 420 s, 25 minutes in all:
#     1  nvidia-smi, topology; a probe with 1, 8 and 32 connections; preflight; gpu-check
#     2  gpu-bench; a step beside a backward pass of known length; allreduce by two ranks on one GPU and by a rank
#        a GPU, up to 8, beside NCCL
#     3  training by 1, 2, 4 and 8 processes on one GPU; with launches that block; with one killed
#     4  compute-sanitizer on the ops alone; a step of PyTorch with the library and without
# DIR (out) gets result-STAGE.json, after each step anew, and at the end the rest in stage-STAGE.tar. Each line has what
# was measured and in brackets what is asked for. --small: few and small cases. --nccl: that libnccl.so.2. --library:
# that libcuda.so.1, for tests.
# Exit code 0: all that ran passed; 1: a step failed; 2: bad arguments; 77: nothing could run, as where there is no
# driver.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
usage() { sed -n '2,17s/^# \{0,1\}//p' "$0" >&2; exit 2; }
stage=${1-} out=$PWD/out library='' nccl='' small=''
case $stage in [1-4]) shift ;; *) usage ;; esac
while [ $# -gt 0 ]; do
    case $1 in
    --out) out=${2-}; shift ;;
    --library) library=${2-}; shift ;;
    --nccl) nccl=${2-}; shift ;;
    --small) small=1 ;;
    *) usage ;;
    esac
    shift || exit 2
done
[ -n "$out" ] && mkdir -p "$out/stage-$stage" && out=$(cd "$out" && pwd) || exit 2
work=$out/stage-$stage result=$out/result-$stage.json
export PATH="$here/bin:$PATH:/usr/local/cuda/bin" GF_FIRST_RUN_OUT="$work"
total=405 begin=$(date +%s) passed=0 failed=0 skipped=0 rows=''
no_driver=
if [ -z "$library" ] && [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
    no_driver="no NVIDIA driver: this machine has neither /dev/nvidiactl nor /dev/dxg"
    echo "run.sh: $no_driver" >&2
fi

# text FILE..: as the inside of a JSON string
text() { cat "$@" | tr -d '\000-\010\013-\037\177' | sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/ /g; s/$/\\n/' | tr -d '\n'; }
one_line() { printf '%s' "$1" | text | sed 's/\\n$//'; }
# The cause of a failed step, of its log: the first line that names a rank and what is wrong with it, else the last one;
# and the path of the gradients, where the log has it.
cause() {
    path_=$(grep -o 'through host memory\|from device to device\|straight to the wire' "$1" | head -n 1)
    line_=$(grep -i 'rank [0-9].*\(fail\|error\|refus\|differ\|expected\|not \)' "$1" | head -n 1)
    [ -n "$line_" ] || line_=$(grep -v '^ *$' "$1" | tail -n 1)
    printf '%s' "${path_:+$path_: }$line_"
}
# step NAME SECONDS COMMAND..: runs it; figures are what it leaves in NAME.json. $goal is what is asked of it, $shows
# the lines of its log that are beside that.
goal='' shows=''
step() {
    name=$1 limit=$2; shift 2
    left=$((total - ($(date +%s) - begin)))
    [ "$limit" -le "$left" ] || limit=$left
    reason='' code=null figures=null from=$(date +%s)
    rm -f "$work/$name.json" "$work/$name.log"
    if [ -n "$no_driver" ]; then reason="no driver"
    elif ! command -v "$1" >/dev/null; then reason="$1 is not installed"
    elif [ "$limit" -lt 1 ]; then reason="no time is left"
    fi
    if [ -n "$reason" ]; then status=skipped
    else
        timeout -k 2 "$limit" "$@" >"$work/$name.log" 2>&1 </dev/null; code=$?
        case $code in
        0) status=passed
            [ -z "$shows" ] || reason=$(grep -o "$shows" "$work/$name.log" | tr '\n' ';' |
                sed 's/;$//; s/;/; /g; s/   */ /g') ;;
        77) status=skipped reason=$(sed -n 's/^skipped: //p' "$work/$name.log" | head -n 1) ;;
        124|137) status=failed reason="not ended after $limit s: $(cause "$work/$name.log")" ;;
        *) status=failed reason="exit code $code: $(cause "$work/$name.log")" ;;
        esac
        [ ! -s "$work/$name.json" ] || figures=$(cat "$work/$name.json")
        [ ! -r "$work/$name.log" ] || [ -s "$work/$name.json" ] || figures="\"$(tail -n 60 "$work/$name.log" | text)\""
    fi
    eval "$status=\$(($status + 1))"
    rows="$rows${rows:+,
}{\"step\":\"$name\",\"command\":\"$(one_line "$*")\",\"status\":\"$status\",\"reason\":\"$(one_line "$reason")\",\
\"goal\":\"$(one_line "$goal")\",\"exit_code\":$code,\"seconds\":$(($(date +%s) - from)),\"limit\":$limit,\
\"figures\":$figures}"
    echo "$status $name${reason:+: $reason}${goal:+ [$goal]}"
    goal='' shows=''
    # After each step, for a box that does not reach the end.
    printf '{"bundle":"%s","stage":%d,"host":"%s","kernel":"%s","seconds":%d,"passed":%d,"failed":%d,"skipped":%d,' \
        "$(one_line "$(cat "$here/VERSION")")" "$stage" "$(uname -n)" "$(uname -r)" $(($(date +%s) - begin)) \
        $passed $failed $skipped >"$result"
    printf '"steps":[\n%s\n]}\n' "$rows" >>"$result"
}

# What several programs have in common: device memory, all ranks on one GPU.
config=$work/first.cfg
sed "s|shared = true;|&${library:+ library = \"$library\";}|" "$here/first.cfg" >"$config"
train="gf-train --config $config --data $here/data"
bench="gpu-bench ${library:+--library $library}" check="gpu-check ${library:+--library $library}"
probe="gpu-probe ${library:+--library $library}"
perf="gf-perf --device cuda --config $config ${nccl:+--nccl $nccl} -b 4K"
model=cnn steps=200 killed=400 every=50 largest=64M batch=64
[ -z "$small" ] || model=linear steps=3 killed=40 every=5 largest=16K batch=8
path='gradients .*' weights='weights .*'

stage_1() {
    step nvidia_smi 15 nvidia-smi
    step topology 15 nvidia-smi topo -m
    for connections in 1 8 32; do
        goal="no stream waits for another process, whatever shares a queue" shows=' in [0-9]* hardware work queues'
        step probe_$connections 40 env CUDA_DEVICE_MAX_CONNECTIONS=$connections GF_FAKE_CONNECTIONS=$connections \
            $probe --json "$work/probe_$connections.json"
    done
    step preflight 25 sh -c 'gf-run -n 2 --merge gf-check "$1" --preflight --json >"$2"; code=$?
        sed "1s/^/[/; \$!s/\$/,/; \$s/\$/]/" "$2" >"$GF_FIRST_RUN_OUT/preflight.json"
        sed -n "s/.*\"state\":\"fail\",\"text\":\"\(\([^\"\\\\]\|\\\\.\)*\)\".*/\1/p" "$2"
        exit $code' sh "$config" "$work/preflight.rows"
    goal="the host's bytes, in each op and each run" shows='whole steps of several .* in [0-9]* runs'
    step gpu_check 200 $check ${small:+--small} --json "$work/gpu_check.json"
}

stage_2() {
    for mib in 256 2048; do
        goal="on an H200: each kernel at 0.90 of a sweep of its mix, or in its bound" shows='[0-9]* goals* .* missed'
        step gpu_bench_$mib $((mib / 32 + 60)) $bench --mib ${small:-$mib} --json "$work/gpu_bench_$mib.json"
    done
    goal="90 % of the step is hidden" shows='beside each other: [0-9-]* %.*\|a backward pass of .*'
    step overlap 40 $bench --steps --mib ${small:-256} --json "$work/overlap.json"
    step allreduce 40 gf-run -n 2 $perf -e $largest --json "$work/allreduce.json"
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
    [ "$gpus" -le 8 ] || gpus=8
    [ "$gpus" -ge 1 ] || gpus=1
    sed -i 's/ordinal = "0"; shared = true;/ordinal = "auto";/' "$config"
    step allreduce_gpus 60 gf-run -n "$gpus" $perf -e $largest --json "$work/allreduce_gpus.json"
}

stage_3() {
    for ranks in 1 2 4 8; do
        goal="one hash of weights, on all ranks" shows="$path\\|$weights"
        step train_$ranks $((30 + 5 * ranks)) gf-run -n $ranks $train --model $model --steps $steps --batch $batch \
            --json "$work/train_$ranks.json"
    done
    # The same job, with launches that return when their kernels have ended: the same weights.
    goal="the weights of train_2" shows="$path\\|$weights"
    step train_2_blocking 80 sh -c 'out=$1; shift
        CUDA_LAUNCH_BLOCKING=1 "$@" || exit
        want=$(sed -n "s/.*weights  *\([0-9a-f]\{16\}\).*/\1/p" "$out/train_2.log")
        echo "weights of train_2: ${want:-not known}"
        [ -n "$want" ] && grep -q "weights  *$want" "$out/train_2_blocking.log"' sh "$work" \
        gf-run -n 2 $train --model $model --steps $steps --batch $batch --json "$work/train_2_blocking.json"
    # The others go on when one of three is killed (kill -9) behind the first checkpoint.
    goal="the others go on" shows='elastic: rank .*'
    step elastic 90 sh -c 'cd "$GF_FIRST_RUN_OUT" && rm -f elastic.?.pid elastic.c.* || exit 1
        gf-run -n 3 --elastic sh -c "echo \$\$ >elastic.\$GF_RANK.pid; exec \"\$@\"" sh "$@" --elastic \
            --checkpoint elastic.c --json elastic.json &
        job=$!
        until [ -s elastic.c.0 ]; do kill -0 $job 2>/dev/null || { wait $job; exit; }; sleep 0.05; done
        kill -KILL "$(cat elastic.1.pid)"
        wait $job && grep -q "elastic: rank" elastic.log' \
        sh $train --model $model --steps $killed --checkpoint-every $every ${small:+--batch 3 --set link.idle=yield}
}

stage_4() {
    goal="no access outside, none without its order"
    step compute_sanitizer 240 compute-sanitizer --error-exitcode 9 $check --small --ops
    goal="the library's step beside PyTorch's own" shows='a step .*'
    export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    step pytorch 120 python3 "$here/torch_step.py" --library "$here/lib/libgradientflow.so" --config "$config" \
        --json "$work/pytorch.json"
}

stage_$stage
if tar -C "$out" -cf "$out/stage-$stage.tar" "stage-$stage" 2>/dev/null; then rm -rf "$work"; fi
echo "stage $stage: $passed passed, $failed failed, $skipped skipped: $result"
[ $failed -eq 0 ] || exit 1
[ $passed -gt 0 ] || exit 77
