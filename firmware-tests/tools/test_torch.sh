#!/bin/sh
# tools/python with the real PyTorch: weights beside DDP's over Gloo and beside one process, what else DDP has, ends by
# exceptions, signals and kills, elastic jobs, launchers, the example. What ranks do is in torch_cases.py.
. firmware-tests/support/shell.sh
PATH=$PATH:/usr/bin
for python in /usr/bin/python3 python3; do
    "$python" -c 'import torch.distributed' 2>/dev/null && break
    python=
done
if [ -z "$python" ]; then
    skip "pytorch" "no python3 here imports torch (Debian's package python3-torch, make deps-test)"
    finish
fi
set -- "$BUILD"/libgradientflow.so.[0-9]*
GF_LIBRARY=$(cd "$BUILD" && pwd)/${1##*/}
PYTHONPATH=$PWD/tools/python
export GF_LIBRARY PYTHONPATH GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore
cases=$PWD/firmware-tests/tools/torch_cases.py
# ranks N CASE [ARGUMENT] [-- OPTION OF GF-RUN..]: its code; what it said is in $scratch/out
ranks() {
    n_=$1 case_=$2 argument_=
    shift 2
    if [ "${1:---}" != -- ]; then argument_=$1; shift; fi
    [ $# -eq 0 ] || shift
    mkdir -p "$scratch/$case_"
    # shellcheck disable=SC2086
    timeout -k 5 120 "$BUILD/gf-run" -n "$n_" "$@" "$python" "$cases" "$case_" "$scratch/$case_" $argument_ \
        >"$scratch/out" 2>&1
}
# The rows that ranks wrote, and one that all of them came to their end.
rows() {
    ranks "$@"; code=$?
    sed -n 's/^\[[0-9]*\] //; /^\(not \)\{0,1\}ok /p' "$scratch/out"
    failures=$((failures + $(grep -c '^\(\[[0-9]*\] \)\{0,1\}not ok ' "$scratch/out")))
    check "the_case_${2}_comes_to_its_end" eval "[ $code -eq ${wanted:-0} ] || { tail -n 30 '$scratch/out'; false; }"
}
rows 2 ddp
rows 3 three
rows 2 one
wanted=137 rows 2 ends
rows 2 exits
check "an_exit_was_told" said 'ok an_exit_in_the_middle_is_heard'

# ---- elastic ----
# ended N: so many ranks ended in the last step, all with the same parameters and moments
ended() {
    found_=$(sed -n "s/.*ended: \(.*\)/\1/p" "$scratch/out" | sed 's/came in [A-Za-z]*, //' | sort | uniq -c |
        awk '{ print $1 }')
    [ "$found_" = "$1" ] || { tail -n 30 "$scratch/out"; return 1; }
}
ranks 3 elastic 60 -- --elastic
check "of_three_ranks_two_go_on_with_the_same_moments" ended 2
rm -rf "$scratch/elastic"
ranks 2 elastic 40 -- --restart 1
check "a_rank_that_is_started_again_has_the_others_moments" ended 2
check "it_came_in" said 'came in True'

# ---- launchers ----
launched() { timeout -k 5 100 "$@" >"$scratch/out" 2>&1 && said 'met: 2 ranks, 3$'; }
# Debian's torchrun 1.13 fails with Python 3.11 unless it keeps a stream in a file.
torchrun() {
    "$python" -m torch.distributed.run -r 1 -t 1 --log_dir "$scratch/logs" --monitor_interval 0.1 \
        --nproc_per_node 2 "$@"
}
torchrun "$cases" launcher "$scratch" >"$scratch/out" 2>&1
check "torchrun_starts_them" said 'met: 2 ranks, 3$'
if command -v mpirun.openmpi >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    check "mpirun_starts_them" launched mpirun.openmpi --oversubscribe -n 2 "$python" "$cases" launcher "$scratch"
else
    skip "mpirun_starts_them" "no mpirun (Debian's package openmpi-bin, make deps-test)"
fi

# ---- the example, and with the line of DDP ----
check "the_example_has_40_lines" [ "$(wc -l <tools/example/fashion.py)" -le 40 ]
example() {
    (cd "$scratch" && torchrun "$1" "$2" >"$scratch/out" 2>&1 && cksum <fashion.pt) || tail -n 20 "$scratch/out" >&2
}
sed -n 's/^# With DDP: //p' tools/example/fashion.py >"$scratch/line"
sed "/^model = /{
    r $scratch/line
    d
}" tools/example/fashion.py >"$scratch/ddp.py"
images=$(cd "$images" && pwd)
ours=$(example "$PWD/tools/example/fashion.py" "$images")
check "the_example_ends" [ -n "$ours" ]
check "the_example_learns" said '[6-9][0-9]\.[0-9]* % of the test images'
check "one_changed_line_and_ddp_ends_with_the_same_bits" same "$ours" "$(example "$scratch/ddp.py" "$images")"
finish
