# What shell tests share: run from the repository root with BUILD set. Prints a line a check; run.sh counts them.
BUILD=${BUILD:-build}
images=$BUILD/images # 4,096 to train on, 1,024 to test with: read in no time
small="--data $images --model linear" # of gf-train
. firmware-tests/support/idx.sh
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
# refused NAME TEXT COMMAND..: it fails by itself within 100 s, and what it says on stderr ($scratch/out) matches TEXT
refused() {
    name_=$1 text_=$2; shift 2
    timeout -k 5 100 "$@" 2>"$scratch/out" >"$scratch/told"; code_=$?
    if [ $code_ -eq 0 ] || [ $code_ -ge 124 ]; then not_ok "$name_" "exit $code_: $(tail -n 2 "$scratch/out")"
    elif grep -Eq -- "$text_" "$scratch/out"; then ok "$name_"
    else not_ok "$name_" "does not say \"$text_\": $(tail -n 2 "$scratch/out")"; fi
}
said() { grep -Eq -- "$1" "$scratch/out" || { tail -n 30 "$scratch/out"; return 1; }; } # a line matches
same() { [ "$1" = "$2" ] || { echo "wanted <$1>, found <$2>"; return 1; }; }
finish() { exit $((failures > 0)); }
# A job that trains until its test lets it end, on any machine: $held is gf-train, which takes its
# time over a step while $GF_HOLD is there (control/program_held_train.c). hold [STEP]: from there on
held=$BUILD/firmware-tests/program_held_train
hold() { export GF_HOLD="$scratch/hold" GF_HOLD_FROM="${1:-1}"; : >"$GF_HOLD"; }
let_end() { rm -f "$scratch/hold"; }
# await SECONDS COMMAND..: until it succeeds; it fails if it has not by then
await() {
    await_=$(($(date +%s) + $1)); shift
    until "$@"; do [ "$(date +%s)" -le $await_ ] || { echo "not in time: $*"; return 1; }; sleep 0.02; done
}
step_of() { od -An -tu8 -j40 -N8 "$1" 2>/dev/null | tr -d ' '; } # of a checkpoint
# need_cuda NAME: $fake is the CUDA driver without a GPU; a build without it, or without kernels, skips NAME, and that is all
need_cuda() {
    fake=$(cd "$BUILD" && pwd)/firmware-tests/fake/libcuda.so.1
    if [ ! -r "$fake" ]; then skip "$1" "no cuda.h in this build"
    elif [ ! -e "$BUILD/ops/element/cuda/gf_kernels.fatbin" ]; then skip "$1" "no nvcc in this build"
    else return; fi
    finish
}
