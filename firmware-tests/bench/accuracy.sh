#!/bin/sh
# accuracy.sh sparse: where sparse communication and large batches end, beside dense runs (50 minutes on two cores).
# accuracy.sh wire: where 16-bit wires end, beside fp32 (10 minutes); accuracy.sh precision: the same where all but the
# weights that are updated has 16 bits (15 minutes). A table in Markdown each. Stopped and started again it
# goes on with the runs that are missing, each of which leaves its result and its options in $BUILD/accuracy. TRIAL=N
# makes every run N steps long, in a folder of its own, to see that all of them start.
set -u
BUILD=${BUILD:-build}
table=${1:-sparse}
out=$BUILD/accuracy
[ -n "${TRIAL:-}" ] && out=$BUILD/accuracy-trial
mkdir -p "$out" || exit 1

length() { if [ -n "${TRIAL:-}" ]; then echo "--steps $TRIAL"; else echo "--epochs $1"; fi; }
small="--model cnn --batch 256 $(length 5) --lr 0.1 --algorithm ring"
dense_steps=100 ramp_steps=200
[ -n "${TRIAL:-}" ] && dense_steps=1 ramp_steps=1
chunks="--set sparse.enabled=true --set sparse.keep_share=0.15 --set sparse.chunk_elems=4096"
sparse="$small $chunks --wire fp16 --set loss_scale.enabled=true --set sparse.warmup_steps=$dense_steps
    --set sparse.ramp_steps=$ramp_steps"
# 140 steps, of which the rate rises for 28, and then falls as a square.
lars="--model cnn --batch 8192 $(length 20) --algorithm ring --set optimizer.kind=lars --set optimizer.lars_eta=0.02
    --set rate.kind=polynomial --set rate.base=0.4 --set rate.power=2 --set rate.steps=${TRIAL:-140}
    --set rate.warmup_steps=$((${TRIAL:-140} / 5))"

# The first kind of run is what the others are held against; the last one takes longest.
case $table in
sparse) runs="dense reduced local lars" ranks=4 ;;
wire) runs="fp32 fp16 bf16" ranks=2 ;;
precision) runs="fp32-all fp16-all bf16-all" ranks=2 ;;
*) echo "usage: accuracy.sh sparse|wire|precision" >&2; exit 2 ;;
esac
base=${runs%% *}

seeds_of() { if [ "$1" = lars ]; then echo 1; else echo "1 2 3"; fi; } # the large batch costs four of the others

options() { # of a kind of run, in a line
    options_of "$1" | tr -s '\n ' ' '
}
options_of() {
    case $1 in
    dense) echo "$small" ;;
    lars) echo "$lars" ;;
    fp32 | fp16 | bf16) echo "--model cnn --batch 64 $(length 1) --algorithm ring --wire $1" ;;
    *-all) echo "--model cnn --batch 64 $(length 1) --algorithm ring --precision ${1%-all}" ;;
    *) echo "$sparse --set sparse.momentum=$1" ;;
    esac
}

title() {
    case $1 in
    dense) echo "dense, fp32" ;;
    lars) echo "dense, fp32, batch 8192, LARS, 20 epochs" ;;
    fp32 | fp16 | bf16) echo "dense, $1, 1 epoch, batch 64" ;;
    *-all) echo "dense, all of it in ${1%-all}, 1 epoch, batch 64" ;;
    *) echo "15 % kept, fp16, momentum \`$1\`" ;;
    esac
}

run() { # kind, seed
    name=$out/$1-$2
    wanted="-n $ranks $(options "$1") --seed $2"
    [ -s "$name.json" ] && [ "$(cat "$name.options" 2>/dev/null)" = "$wanted" ] && return 0
    rm -f "$name.json"
    echo "$wanted" >"$name.options"
    echo "accuracy: $1, seed $2 .." >&2
    # The words of the options are to be split.
    # shellcheck disable=SC2046
    if "$BUILD/gf-run" -n "$ranks" "$BUILD/gf-train" $(options "$1") --seed "$2" --json "$name.json" >"$name.log" 2>&1; then
        echo "accuracy: $1, seed $2: $(number "$name.json" test_accuracy) %" >&2
        return 0
    fi
    echo "accuracy: $1, seed $2 failed; the end of $name.log:" >&2
    tail -n 5 "$name.log" >&2
    return 1
}

number() { # file, name
    sed -n "s/^  \"$2\": \([^,]*\),*\$/\1/p" "$1"
}

# Seed by seed, so that a first line of each kind is there early; the long ones last.
for seed in 1 2 3; do
    for kind in $runs; do [ "$kind" = lars ] || run "$kind" "$seed" || exit 1; done
done
case $runs in *lars) run lars 1 || exit 1 ;; esac

echo "| run | seed 1 | seed 2 | seed 3 | mean | to the first | bytes a step | of the first | steps skipped |"
echo "|---|---|---|---|---|---|---|---|---|"
for kind in $runs; do
    for seed in $(seeds_of "$kind"); do
        f=$out/$kind-$seed.json
        echo "$(number "$f" test_accuracy) $(number "$f" wire_bytes_steady) $(number "$f" steps_skipped)"
    done | awk -v title="$(title "$kind")" -v base="${dense:-}" '
        { accuracy[NR] = sprintf("%.2f", $1); mean += $1; bytes += $2; skipped += $3 }
        END {
            mean /= NR
            bytes /= NR
            for (i = NR + 1; i <= 3; i++) accuracy[i] = "-"
            if (base == "") base = mean " " bytes
            split(base, dense, " ")
            printf "| %s | %s | %s | %s | %.2f | %+.2f | %.3f MB | %.1f %% | %d |\n", title, accuracy[1],
                   accuracy[2], accuracy[3], mean, mean - dense[1], bytes / 1e6, 100 * bytes / dense[2], skipped
        }'
    [ "$kind" = "$base" ] && dense=$(for seed in $(seeds_of "$base"); do
        f=$out/$base-$seed.json
        echo "$(number "$f" test_accuracy) $(number "$f" wire_bytes_steady)"
    done | awk '{ mean += $1 / 3; bytes += $2 / 3 } END { printf "%.9g %.12g", mean, bytes }')
done
echo
echo "$ranks ranks, Fashion-MNIST, test accuracy in percent; bytes of all ranks on the wire, norms and vote included."
echo "Made by \`accuracy.sh $table\` with:"
for kind in $runs; do echo "    gf-run -n $ranks gf-train $(options "$kind") --seed N"; done
