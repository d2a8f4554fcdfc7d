#!/bin/sh
# The first quarter of an hour on a GPU, from a bundle (`make gpu-bundle`): needs an NVIDIA driver,
# glibc 2.34 or newer, sh, coreutils, sed, grep; what else a step needs is said where it is missing.
#     DIR/run.sh STAGE [--out DIR] [--small] [--nccl FILE] [--library FILE]
# STAGE, each alone, from any folder:
#     A  at most 240 s: the device; all ops on small counts; memory of another process and whole
#        steps; training by 1, 2 and 4 processes; gpu-bench at 1 GiB; steps of PyTorch with the
#        library's memory as its gradients; the order of loads in machine code; all ops on full
#        counts
#     B  at most 220 s: compute-sanitizer on the ops with their main loops; allreduce by two
#        processes with 20 blocks and with all; gpu-probe; a step beside a backward pass; training
#        by 8 processes; PyTorch with two ranks
# Each step has its own limit and prints its lines at once; one that fails does not end the stage.
# DIR (--out; else $OUT; else out) gets result-STAGE.json, after each step anew, and a log a group of
# steps: no more than eight files. In brackets stands what is asked for. --small: few and small
# cases. --nccl: that libnccl.so.2. --library: that libcuda.so.1, for tests.
# Exit code 0: all that ran passed; 1: a step failed; 2: bad arguments; 77: nothing could run, as
# where there is no driver.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
usage() { sed -n '2,21s/^# \{0,1\}//p' "$0" >&2; exit 2; }
stage=${1-} out=${OUT:-$PWD/out} library='' nccl='' small=''
case $stage in
A) shift; total=236 ;;
B) shift; total=216 ;;
*) usage ;;
esac
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
[ -n "$out" ] && mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
result=$out/result-$stage.json
export PATH="$here/bin:$PATH:/usr/local/cuda/bin" PYTHONUNBUFFERED=1
begin=$(date +%s) passed=0 failed=0 skipped=0 rows=''
no_driver=
if [ -z "$library" ] && [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
    no_driver="no NVIDIA driver: this machine has neither /dev/nvidiactl nor /dev/dxg"
    echo "run.sh: $no_driver" >&2
fi
# Everything is warmed: a device that is held open starts in each process at once, and PyTorch takes
# many seconds to come from a disk.
[ ! -r /dev/nvidia0 ] || exec 9</dev/nvidia0
[ -n "$no_driver" ] || ! command -v python3 >/dev/null || python3 -c 'import torch' >/dev/null 2>&1 &

# text FILE..: as the inside of a JSON string
text() {
    cat "$@" | tr -d '\000-\010\013-\037\177' |
        sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/ /g; s/$/\\n/' | tr -d '\n'
}
one_line() { printf '%s' "$1" | text | sed 's/\\n$//'; }
# The cause of a failed step, of its log: the first line that names a rank and what is wrong with it,
# else the last one; and the path of the gradients, where the log has it.
cause() {
    path_=$(grep -o 'through host memory\|from device to device\|straight to the wire' "$1" |
        head -n 1)
    line_=$(grep -i 'rank [0-9].*\(fail\|error\|refus\|differ\|expected\|not \)' "$1" | head -n 1)
    [ -n "$line_" ] || line_=$(grep -v '^ *$' "$1" | tail -n 1)
    printf '%s' "${path_:+$path_: }$line_"
}
# run SECONDS COMMAND..: its exit code; all of it goes to the log, at once what $shows matches.
run() {
    seconds=$1; shift
    {
        timeout -k 2 "$seconds" "$@" 2>&1 </dev/null
        echo $? >"$work/code"
    } | tee "$work/log" | { grep --line-buffered "$shows" || true; }
    return "$(cat "$work/code")"
}
# step GROUP NAME SECONDS COMMAND..: runs it; figures are what it leaves in $work/NAME.json. $goal is
# what is asked of it, $shows the lines that are printed.
goal='' shows='.'
step() {
    group=$1 name=$2 limit=$3; shift 3
    left=$((total - ($(date +%s) - begin)))
    [ "$limit" -le "$left" ] || limit=$left
    reason='' code=null figures=null from=$(date +%s)
    echo "--- $name${goal:+ [$goal]}"
    if [ -n "$no_driver" ]; then reason="no driver"
    elif ! command -v "$1" >/dev/null; then reason="$1 is not installed"
    elif [ "$limit" -lt 1 ]; then reason="no time is left"
    fi
    if [ -n "$reason" ]; then status=skipped
    else
        run "$limit" "$@"; code=$?
        case $code in
        0) status=passed ;;
        77) status=skipped reason=$(sed -n 's/^skipped: //p' "$work/log" | tail -n 1) ;;
        124|137) status=failed reason="not ended after $limit s: $(cause "$work/log")" ;;
        *) status=failed reason="exit code $code: $(cause "$work/log")" ;;
        esac
        if [ -s "$work/$name.json" ]; then figures=$(cat "$work/$name.json")
        else figures="\"$(tail -n 60 "$work/log" | text)\""
        fi
        { echo "--- $name: $*"; cat "$work/log"; } >>"$out/$stage-$group.log"
    fi
    eval "$status=\$(($status + 1))"
    seconds=$(($(date +%s) - from))
    rows="$rows${rows:+,
}{\"step\":\"$name\",\"command\":\"$(one_line "$*")\",\"status\":\"$status\",\
\"reason\":\"$(one_line "$reason")\",\"goal\":\"$(one_line "$goal")\",\"exit_code\":$code,\
\"seconds\":$seconds,\"limit\":$limit,\"figures\":$figures}"
    echo "$status $name, $seconds of $limit s${reason:+: $reason}"
    goal='' shows='.'
    # After each step, for a box that does not reach the end.
    printf '{"bundle":"%s","stage":"%s","host":"%s","kernel":"%s","seconds":%d,' \
        "$(one_line "$(cat "$here/VERSION")")" "$stage" "$(uname -n)" "$(uname -r)" \
        $(($(date +%s) - begin)) >"$result"
    printf '"passed":%d,"failed":%d,"skipped":%d,"steps":[\n%s\n]}\n' \
        $passed $failed $skipped "$rows" >>"$result"
}

# What several programs have in common: device memory, all ranks on one GPU.
config=$work/first.cfg
sed "s|shared = true;|&${library:+ library = \"$library\";}|" "$here/first.cfg" >"$config"
bench="gpu-bench ${library:+--library $library}" check="gpu-check ${library:+--library $library}"
probe="gpu-probe ${library:+--library $library}"
train="gf-train --config $config --data $here/data"
perf="gf-perf --device cuda --config $config --set exchange.average=sum ${nccl:+--nccl $nccl} -b 4K"
torch="python3 $here/torch_step.py --library $here/lib/libgradientflow.so --config $config"
for folder in /usr/local/nvidia/lib64 /usr/local/nvidia/lib; do # where containers have the driver
    [ -n "$library" ] || [ ! -e $folder/libcuda.so.1 ] ||
        export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
done
job="--model cnn --steps 60 --batch 64" largest=64M mib=1024 step_mib=256 runs=9 torch_steps=10
[ -z "$small" ] ||
    job="--model linear --steps 3 --batch 8" largest=16K mib=1 step_mib=1 runs=3 torch_steps=3
hosts="the host's bytes in each op"
weights="one hash of weights, on all ranks"

# train_step RANKS SECONDS
train_step() {
    goal=$weights shows='^gradients \|^weights \|^step \|error'
    step train "train_$1" "$2" sh -c 'ranks=$1 log=$2; shift 2
        gf-run -n "$ranks" "$@" >"$log" 2>&1; code=$?
        cat "$log"
        [ $code -eq 0 ] || exit $code
        [ "$ranks" -eq 1 ] || grep -q "the same on all ranks" "$log"' \
        sh "$1" "$work/trained" $train $job --json "$work/train_$1.json"
}
# torch_step NAME RANKS SECONDS: PyTorch loads the library, and with it what it was linked with.
torch_step() {
    before=${LD_LIBRARY_PATH-}
    export LD_LIBRARY_PATH="$here/lib${before:+:$before}"
    name=$1 ranks=$2 seconds=$3
    set -- $torch --steps $torch_steps --json "$work/$name.json"
    [ "$ranks" -eq 1 ] || ! command -v python3 >/dev/null || set -- gf-run -n "$ranks" "$@"
    step pytorch "$name" "$seconds" "$@"
    export LD_LIBRARY_PATH="$before"
    [ -n "$before" ] || unset LD_LIBRARY_PATH
}
# In machine code no load waits for another: what the order of the source cannot show.
order_step() {
    goal="no load of a hot loop waits for another" shows='WRONG\|order'
    step order order 5 sh -c 'command -v nvdisasm >/dev/null || { echo "skipped: no nvdisasm"; exit 77; }
        for cubin in "$1"/kernels/elf.*; do
            nvdisasm -c "$cubin" >"$2" 2>&1 || { echo "skipped: nvdisasm: $(head -n 1 "$2")"; continue; }
            python3 "$1/kernel_loads.py" sass "$2" || exit 1
            echo "order: ${cubin##*/} is as it must be"
        done' sh "$here" "$work/sass"
}
# sanitizer TOOL SECONDS. Where the tool itself cannot work here, that is no finding.
cannot='[Dd]evice not supported\|not supported on\|Unable to \|Internal Sanitizer Error'
cannot="$cannot"'\|[Ff]ailed to initialize\|LibraryNotLoaded'
sanitizer_step() {
    goal="no access outside, none without its order"
    shows='=========.*\(Invalid\|Race\|hazard\|SUMMARY\|not supported\)\|NOT\|skipped'
    step sanitizer "$1" "$2" sh -c 'log=$1 cannot=$2; shift 2
        command -v compute-sanitizer >/dev/null || { echo "skipped: no compute-sanitizer"; exit 77; }
        "$@" >"$log" 2>&1; code=$?
        cat "$log"
        [ $code -eq 0 ] && exit 0
        ! grep -q "Invalid __\|Race reported\|hazard" "$log" && grep -q "$cannot" "$log" || exit $code
        echo "skipped: it cannot work here: $(grep "$cannot" "$log" | head -n 1)"
        exit 77' sh "$work/sanitizer" "$cannot" \
        compute-sanitizer --tool "$1" --error-exitcode 9 $check --small --ops
}

stage_A() {
    step device device 6 sh -c 'command -v nvidia-smi >/dev/null || { echo "skipped: no nvidia-smi"; exit 77; }
        nvidia-smi --query-gpu=name,driver_version,memory.total,mig.mode.current --format=csv'
    goal=$hosts
    step ops ops_small 25 $check --small --ops --json "$work/ops_small.json"
    goal="memory of another process, and whole steps, as on the host"
    step steps steps 30 $check --steps --runs $runs --json "$work/steps.json"
    for ranks in 1 2 4; do train_step $ranks 14; done
    goal="on an H200: each kernel at 0.90 of a sweep of its mix, or in its bound"
    step bench bench 35 $bench --rows --mib $mib --json "$work/bench.json"
    goal="the library's step beside PyTorch's own"
    torch_step pytorch 1 22
    order_step
    goal=$hosts
    step ops ops_full 40 $check ${small:+--small} --ops --json "$work/ops_full.json"
}

stage_B() {
    sanitizer_step memcheck 55
    sanitizer_step racecheck 45
    step perf perf_20_blocks 12 gf-run -n 2 $perf -e $largest --set device.multiprocessors=20 \
        --json "$work/perf_20_blocks.json"
    step perf perf_all_blocks 12 gf-run -n 2 $perf -e $largest --set device.multiprocessors=1024 \
        --json "$work/perf_all_blocks.json"
    step probe probe 20 $probe --json "$work/probe.json"
    goal="90 % of the step is hidden"
    step overlap overlap 12 $bench --steps --mib $step_mib --json "$work/overlap.json"
    train_step 8 20
    goal="two ranks with the same data learn what one does"
    torch_step pytorch_2 2 22
}

"stage_$stage"
echo "stage $stage: $passed passed, $failed failed, $skipped skipped: $result"
[ $failed -eq 0 ] || exit 1
[ $passed -gt 0 ] || exit 77
