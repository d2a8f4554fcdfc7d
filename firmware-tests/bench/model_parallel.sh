#!/bin/sh
# What data and model parallelism move for one fully connected layer (fc1 of the demo's network, 3136 to 512), batch by
# batch, beside FireCaffe's W (its weights) and D (what enters it): a table in Markdown for 2 and for 4 ranks. Bytes are
# what all ranks sent in a step, as the library counts them; ring. 128 images of the test set make the runs short.
. firmware-tests/support/shell.sh
full=/usr/share/datasets/fashion-mnist
idx_data "$scratch/data" 128 && ln -sf $full/train-images-idx3-ubyte.gz $full/train-labels-idx1-ubyte.gz "$scratch/data"

number() { sed -n "s/^  \"$2\": \([^,]*\),*\$/\1/p" "$scratch/$1.json"; }
job() { # NAME RANKS BATCH OPTION..
    name=$1 ranks=$2 batch=$3; shift 3
    "$BUILD/gf-run" -n "$ranks" "$BUILD/gf-train" --data "$scratch/data" --model cnn --algorithm ring --steps 2 \
        --batch "$batch" --json "$scratch/$name.json" "$@" >"$scratch/log" 2>&1 && return
    tail -n 3 "$scratch/log" >&2
    exit 1
}
for ranks in ${RANKS:-2 4}; do
    echo "| $ranks ranks, batch | W | D | data parallel | model parallel | model / data | D / W | (D + out) / W |"
    echo "|---|---|---|---|---|---|---|---|"
    for batch in ${BATCHES:-128 256 384 432 440 448 512 640}; do
        job data "$ranks" "$batch"
        job model "$ranks" "$batch" --split fc1
        echo "$batch $(number data wire_bytes) $(number model wire_bytes) $(number model split_bytes)"
    done >"$scratch/rows"
    awk '{
        weights = (3136 + 1) * 512 * 4
        inputs = 3136 * 4 * $1; outputs = 512 * 4 * $1
        rest = $3 - $4 # what the other layers, votes and the like moved
        data = ($2 - rest) / 2; model = $4 / 2
        printf "| %d | %.3f MB | %.3f MB | %.3f MB | %.3f MB | %.3f | %.3f | %.3f |\n", $1, weights / 1e6, inputs / 1e6,
               data / 1e6, model / 1e6, model / data, inputs / weights, (inputs + outputs) / weights
        if (before != "" && before < 1 && model / data >= 1)
            crossing = batch + ($1 - batch) * (1 - before) / (model / data - before)
        before = model / data; batch = $1
    } END {
        printf "\nCrossing measured at a batch of %s; W = D at %.1f, W = D + out at %.1f.\n\n",
               crossing ? sprintf("%.1f", crossing) : "none of these", (3136 + 1) * 512 / 3136,
               (3136 + 1) * 512 / (3136 + 512)
    }' "$scratch/rows"
done
