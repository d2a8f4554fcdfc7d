#!/bin/sh
# gf-perf --device cuda on the CUDA driver without a GPU: rows of nccl-tests' columns, each value checked, 1 to 4 ranks
# on one GPU and two; beside NCCL by a double of its library (fake_nccl.c), which shows that the calls are made as
# nccl.h has them and nothing else; and by the real library, where there is one, which finds no GPU.
. firmware-tests/support/shell.sh
export LC_ALL=C
need_cuda gf_perf_on_cuda
# perf RANKS OPTION..
perf() {
    ranks=$1; shift
    timeout 100 "$BUILD/gf-run" -n "$ranks" "$BUILD/gf-perf" --device cuda \
        --set device.library="$fake" $more -n 2 -w 0 "$@" >"$scratch/out" 2>"$scratch/err" ||
        { cat "$scratch/out" "$scratch/err"; return 1; }
}
columns='NF {print NF, $1, $3, $4, $5, $9 + $13}'
rows() { grep -v '^#' "$scratch/out" | awk "$columns"; }
nccl_rows() { sed -n 's/^# NCCL  *\([0-9]\)/\1/p' "$scratch/out" | awk "$columns"; }
more=
check two_ranks_are_measured perf 2 -b 4K -e 16K --nccl "${fake%/*}/libnccl.so.2" --json "$scratch/json"
check with_the_columns_of_nccl_tests [ "$(rows | xargs)" = "13 4096 float sum -1 0 13 16384 float sum -1 0" ]
check from_device_to_device said "^# on a GPU a rank, Fake 0, from device to device"
check by_direct said "^# by direct"
check beside_NCCL said "^# NCCL: 2.99.1"
check in_the_same_columns [ "$(nccl_rows | xargs)" = "13 4096 float sum -1 0 13 16384 float sum -1 0" ]
check nothing_was_wrong grep -qx '# Out of bounds values : 0 OK' "$scratch/out"
check all_of_it_as_JSON python3 -c 'import json, sys
found = json.load(open(sys.argv[1]))
assert found["header"]["nccl"] == "2.99.1" and found["header"]["path"] == "from device to device"
assert [(r["wrong"], r["nccl_wrong"], r["nccl_us"] > 0) for r in found["rows"]] == [(0, 0, True)] * 2' "$scratch/json"
check bf16_too perf 2 -d bfloat16 -b 4K -e 4K --nccl "${fake%/*}/libnccl.so.2"
check likewise [ "$(rows)" = "13 4096 bfloat16 sum -1 0" ]
check one_rank_without_a_libnccl perf 1 -b 4 -e 4K -f 1024 --nccl /nowhere
check is_said said "^# NCCL: skipped: no libnccl"
check half_alone perf 1 -d half -b 4K -e 4K --nccl /nowhere
check four_ranks_on_two_GPUs perf 4 -b 100 -e 100 --nccl "${fake%/*}/libnccl.so.2"
check are_no_case_for_NCCL said "^# NCCL: skipped: NCCL wants a GPU a rank; ranks 0 and 2 have the same"
more="--set device.ordinal=0 --set device.shared=true"
check two_ranks_on_one_GPU perf 2 -b 4K -e 4K --nccl "${fake%/*}/libnccl.so.2"
check neither said "^# NCCL: skipped: NCCL wants a GPU a rank; ranks 0 and 1 have the same"
more="--set exchange.algorithm=ring"
check through_host_memory perf 2 -b 4K -e 4K --nccl /nowhere
check that_is_said_too said "through host memory"
more=
export GF_FAKE_NCCL_FAILS=1
check NCCL_that_cannot_connect perf 2 -b 4K -e 4K --nccl "${fake%/*}/libnccl.so.2"
check says_why said "^# NCCL: ncclCommInitRank failed: invalid usage"
unset GF_FAKE_NCCL_FAILS
cuda=$(for d in "${CUDA_HOME:-/usr/local/cuda}" /usr; do [ ! -r "$d/include/nccl.h" ] || echo "$d"; done | head -n 1)
if [ -n "$cuda" ]; then
    cat >"$scratch/nccl.c" <<'END'
#include <nccl.h>
#include "tools/perf/perf_nccl.h"
_Static_assert((sizeof(ncclUniqueId) == sizeof(struct perf_nccl_id)) && (sizeof(ncclResult_t) == sizeof(int)) &&
               (sizeof(ncclDataType_t) == sizeof(int)) && (sizeof(ncclRedOp_t) == sizeof(int)), "as they are passed");
_Static_assert((ncclFloat32 == 7) && (ncclFloat16 == 6) && (ncclBfloat16 == 9) && (ncclSum == 0) && (ncclSuccess == 0),
               "as they are numbered");
END
    check its_header_has_the_same_types ${CC:-cc} -std=gnu11 -D_GNU_SOURCE -I. -Ilib -Idrivers/base \
        -isystem "$cuda/include" -fsyntax-only "$scratch/nccl.c"
else
    skip its_header_has_the_same_types "no nccl.h"
fi
real=$(find ${cuda:+"$cuda/lib64" "$cuda/lib"} /usr/lib/x86_64-linux-gnu -maxdepth 1 -name libnccl.so.2 \
    2>/dev/null | head -n 1)
if [ -n "$real" ]; then
    check the_real_NCCL_is_loaded perf 2 -b 4K -e 4K --nccl "$real"
    check and_finds_no_GPU said "^# NCCL: ncclCommInitRank failed: unhandled cuda error"
else
    skip the_real_NCCL_is_loaded "no libnccl"
fi
refused other_operations_are_refused "leave --op" "$BUILD/gf-perf" --device cuda --op barrier
refused sparse_steps_too "times plain sums" "$BUILD/gf-perf" --device cuda --set sparse.enabled=true
refused NCCL_without_a_GPU "needs --device cuda" "$BUILD/gf-perf" --nccl x
refused a_driver_that_is_not_there_is_named "/nowhere" "$BUILD/gf-perf" --device cuda --set device.library=/nowhere
finish
