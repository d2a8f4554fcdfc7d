# What shell tests share: run from the repository root with BUILD set. Prints a line a check; run.sh counts them.
BUILD=${BUILD:-build}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
failures=0
ok() { echo "ok $1"; }
not_ok() { echo "not ok $1: $2"; failures=$((failures + 1)); }
skip() { echo "skip $1: $2"; }
# check NAME COMMAND..: the command must succeed. check_not: must fail (and not by a signal or a timeout).
check() {
    name=$1; shift
    if "$@"; then ok "$name"; else not_ok "$name" "exit $? of: $*"; fi
}
check_not() {
    name=$1; shift
    "$@"; code=$?
    if [ $code -eq 0 ]; then not_ok "$name" "succeeded: $*"
    elif [ $code -ge 124 ]; then not_ok "$name" "exit $code (timeout or signal) of: $*"
    else ok "$name"; fi
}
# idx_data FOLDER COUNT: a data set of the first COUNT < 256 images and labels of Fashion-MNIST
idx_data() {
    octal=$(printf '%03o' "$2")
    mkdir "$1" || return 1
    for part in train t10k; do
        idx_part $part-images-idx3-ubyte.gz "\\0\\0\\010\\003\\0\\0\\0\\$octal\\0\\0\\0\\034\\0\\0\\0\\034" $(($2 * 784)) "$1"
        idx_part $part-labels-idx1-ubyte.gz "\\0\\0\\010\\001\\0\\0\\0\\$octal" "$2" "$1"
    done
}
# idx_part NAME HEADER BYTES FOLDER: behind a header of its own
idx_part() {
    { printf "$2"; zcat "/usr/share/datasets/fashion-mnist/$1" | tail -c +$(($(printf "$2" | wc -c) + 1)) | head -c "$3"; } | gzip -1 >"$4/$1"
}
finish() { exit $((failures > 0)); }
