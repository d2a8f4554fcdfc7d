# shellcheck shell=sh disable=SC2059
# The first images and labels of the demo's data set, as a data set: programs start in no time.
# idx_part FOLDER train|t10k COUNT
idx_part() {
    idx_from=/usr/share/datasets/fashion-mnist/$2
    idx_count=$(printf '\\%03o' 0 0 $(($3 / 256)) $(($3 % 256)))
    { printf "\\000\\000\\010\\003$idx_count\\000\\000\\000\\034\\000\\000\\000\\034"
        gzip -dc "$idx_from-images-idx3-ubyte.gz" | tail -c +17 | head -c $(($3 * 784)); } 2>/dev/null |
        gzip -1 >"$1/$2-images-idx3-ubyte.gz"
    { printf "\\000\\000\\010\\001$idx_count"
        gzip -dc "$idx_from-labels-idx1-ubyte.gz" | tail -c +9 | head -c "$3"; } 2>/dev/null |
        gzip -1 >"$1/$2-labels-idx1-ubyte.gz"
}
# idx_data FOLDER COUNT [TESTED]: both parts, in a new folder
idx_data() { mkdir "$1" && idx_part "$1" train "$2" && idx_part "$1" t10k "${3:-$2}"; }
