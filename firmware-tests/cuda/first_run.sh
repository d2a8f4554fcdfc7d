#!/bin/sh
# The first run on a GPU, from a bundle (`make gpu-bundle`): needs an NVIDIA driver, glibc 2.34 or newer, sh,
# coreutils, sed.
#     ./run.sh [--out DIR] [--small] [--nccl FILE] [--library FILE]
# In under 10 minutes, each step under a limit of its own: nvidia-smi and topology, preflight, gpu-check,
# compute-sanitizer, gpu-bench, training by two processes on one GPU, the same with one killed, overlap, allreduce by
# two ranks on one GPU and by a rank a GPU, up to 8, beside NCCL. DIR (out) gets result.json and what each step printed.
# --small: few and small cases. --nccl: that libnccl.so.2. --library: that libcuda.so.1, for tests.
# Exit code 0: all that ran passed; 1: a step failed; 2: bad arguments; 77: nothing could run, as where there is no
# driver.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
out=$PWD/out library='' nccl='' small=''
while [ $# -gt 0 ]; do
    case $1 in
    --out) out=${2-}; shift ;;
    --library) library=${2-}; shift ;;
    --nccl) nccl=${2-}; shift ;;
    --small) small=1 ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift || exit 2
done
[ -n "$out" ] && mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
export PATH="$here/bin:$PATH:/usr/local/cuda/bin" GF_FIRST_RUN_OUT="$out"
total=590 begin=$(date +%s) passed=0 failed=0 skipped=0 rows=''
if [ -z "$library" ] && [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then no_driver=1; else no_driver=; fi

# text FILE..: as the inside of a JSON string
text() { cat "$@" | tr -d '\000-\010\013-\037\177' | sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/ /g; s/$/\\n/' | tr -d '\n'; }
one_line() { printf '%s' "$1" | text | sed 's/\\n$//'; }
# step NAME SECONDS COMMAND..: runs it; figures are what it leaves in NAME.json
step() {
    name=$1 limit=$2; shift 2
    left=$((total - ($(date +%s) - begin)))
    [ "$limit" -le "$left" ] || limit=$left
    reason='' code=null figures=null from=$(date +%s)
    rm -f "$out/$name.json" "$out/$name.log"
    if [ -n "$no_driver" ]; then reason="no driver"
    elif ! command -v "$1" >/dev/null; then reason="$1 is not installed"
    elif [ "$limit" -lt 1 ]; then reason="no time is left"
    fi
    if [ -n "$reason" ]; then status=skipped
    else
        timeout -k 2 "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null; code=$?
        case $code in
        0) status=passed
            reason=$(sed -n 's/^\(\[0\] \)\{0,1\}gradients  */gradients /p' "$out/$name.log" | head -n 1) ;;
        77) status=skipped reason=$(sed -n 's/^skipped: //p' "$out/$name.log" | head -n 1) ;;
        124|137) status=failed reason="not ended after $limit s" ;;
        *) status=failed reason="exit code $code: $(tail -n 1 "$out/$name.log")" ;;
        esac
        [ ! -s "$out/$name.json" ] || figures=$(cat "$out/$name.json")
        [ ! -r "$out/$name.log" ] || [ -s "$out/$name.json" ] || figures="\"$(tail -n 60 "$out/$name.log" | text)\""
    fi
    eval "$status=\$(($status + 1))"
    rows="$rows${rows:+,
}{\"step\":\"$name\",\"command\":\"$(one_line "$*")\",\"status\":\"$status\",\"reason\":\"$(one_line "$reason")\",\
\"exit_code\":$code,\"seconds\":$(($(date +%s) - from)),\"limit\":$limit,\"figures\":$figures}"
    echo "$status $name${reason:+: $reason}"
    # After each step, for a box that does not reach the end.
    printf '{"bundle":"%s","host":"%s","kernel":"%s","seconds":%d,"passed":%d,"failed":%d,"skipped":%d,' \
        "$(one_line "$(cat "$here/VERSION")")" "$(uname -n)" "$(uname -r)" $(($(date +%s) - begin)) \
        $passed $failed $skipped >"$out/result.json"
    printf '"steps":[\n%s\n]}\n' "$rows" >>"$out/result.json"
}

# What several programs have in common: device memory, two ranks on one GPU.
train="gf-train --config $out/first.cfg --data $here/data"
bench="gpu-bench ${library:+--library $library}" check="gpu-check ${library:+--library $library}"
perf="gf-perf --device cuda --config $out/first.cfg ${nccl:+--nccl $nccl} -b 4K"
model=cnn steps=200 killed=400 every=50 largest=64M
[ -z "$small" ] || model=linear steps=3 killed=40 every=5 largest=16K

step nvidia_smi 15 nvidia-smi
step topology 15 nvidia-smi topo -m
sed "s|shared = true;|&${library:+ library = \"$library\";}|" "$here/first.cfg" >"$out/first.cfg"
step preflight 20 sh -c 'gf-run -n 2 --merge gf-check "$1" --preflight --json >"$2"; code=$?
    sed "1s/^/[/; \$!s/\$/,/; \$s/\$/]/" "$2" >"$GF_FIRST_RUN_OUT/preflight.json"
    sed -n "s/.*\"state\":\"fail\",\"text\":\"\(\([^\"\\\\]\|\\\\.\)*\)\".*/\1/p" "$2"
    exit $code' sh "$out/first.cfg" "$out/preflight.rows"
step gpu_check 150 $check ${small:+--small} --json "$out/gpu_check.json"
step compute_sanitizer 70 compute-sanitizer --error-exitcode 9 $check --small
step gpu_bench_256 30 $bench --mib ${small:-256} --json "$out/gpu_bench_256.json"
step gpu_bench_2048 60 $bench --mib ${small:-2048} --json "$out/gpu_bench_2048.json"
step train 60 gf-run -n 2 $train --model $model --steps $steps ${small:+--batch 8} --json "$out/train.json"
# The others go on when one of three is killed behind the first checkpoint.
step elastic 60 sh -c 'cd "$GF_FIRST_RUN_OUT" && rm -f elastic.?.pid elastic.c.* || exit 1
    gf-run -n 3 --elastic sh -c "echo \$\$ >elastic.\$GF_RANK.pid; exec \"\$@\"" sh "$@" --elastic \
        --checkpoint elastic.c --json elastic.json &
    job=$!
    until [ -s elastic.c.0 ]; do kill -0 $job 2>/dev/null || { wait $job; exit; }; sleep 0.05; done
    kill -KILL "$(cat elastic.1.pid)"
    wait $job && grep -q "elastic: rank" elastic.log' \
    sh $train --model $model --steps $killed --checkpoint-every $every ${small:+--batch 3 --set link.idle=yield}
step overlap 20 $bench --steps --mib ${small:-256} --json "$out/overlap.json"
step allreduce 20 gf-run -n 2 $perf -e $largest --json "$out/allreduce.json"
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
[ "$gpus" -le 8 ] || gpus=8
[ "$gpus" -ge 1 ] || gpus=1
sed -i 's/ordinal = "0"; shared = true;/ordinal = "auto";/' "$out/first.cfg"
step allreduce_gpus 30 gf-run -n "$gpus" $perf -e $largest --json "$out/allreduce_gpus.json"

echo "$passed passed, $failed failed, $skipped skipped: $out/result.json"
[ $failed -eq 0 ] || exit 1
[ $passed -gt 0 ] || exit 77
