#!/bin/sh
# gf-train --device cuda with each call of the CUDA driver library failing once, at the first, second, fourth .. time that it
# is made: a failure ends the run with the CUresult's name in one line a rank, one that comes while closing is said, and a run
# that goes on ends with the weights of an undisturbed one. Nothing hangs, and nothing is left on the device.
# suite: long
. firmware-tests/support/shell.sh
need_cuda cuda_train_failures
check "a_few_images_are_there" idx_data "$scratch/data" 32
train="$BUILD/gf-train --data $scratch/data --model linear --batch 2 --steps 1 --device cuda --set device.library=$fake"
one="timeout 100 $train --dump-weights"
two="timeout 100 $BUILD/gf-run -n 2 $train --dump-weights"
export GF_FAKE_CUDA_MET="$scratch/met"
$one "$scratch/want" >"$scratch/log" 2>&1 || cat "$scratch/log"

named() { grep -qE "^(\[[01]\] )?$1.*CUDA_ERROR_(INVALID_HANDLE \(400\)|LAUNCH_FAILED \(719\))" "$scratch/log"; }
# run_with CALL TIME CURESULT COMMAND..: 0 if the failure was met and all is as it must be; 2 if it was not met
run_with() {
    call=$1 time=$2 result=$3; shift 3
    rm -f "$scratch/met" "$scratch/got"
    GF_FAKE_CUDA_FAIL=$call:$time:$result "$@" "$scratch/got" >"$scratch/log" 2>&1; code=$?
    [ -e "$scratch/met" ] || return 2
    case $code in
    0) cmp -s "$scratch/want" "$scratch/got" || { echo "time $time, $result: other weights"; return 1; }
        case $call in
        cuDeviceGetName | cuDeviceGetUuid | cuDeviceGetPCIBusId) return 0 ;; # for a log line
        cuPointerGetAttribute) return 0 ;; # of what nothing is told is the host's
        cuStreamQuery | cuCtxRecordEvent | cuCtxPushCurrent | cuCtxPopCurrent) return 0 ;; # while closing, or for a log line
        cuMemHostRegister) named "warning: device" && return 0 ;; # then it is staged
        cuMem*port*) named "" && return 0 ;; # then the ranks go another way
        cuMemGetA* | cuMemCreate | cuMemAddressReserve | cuMemMap | cuMemSetAccess) named "" && return 0 ;; # or as $before
        *) named "warning: closing:" && return 0 ;;
        esac
        echo "time $time, $result: nothing was said"; cat "$scratch/log"; return 1 ;;
    1) named "error: rank" && return 0
        echo "time $time, $result: not named"; cat "$scratch/log"; return 1 ;;
    *) echo "time $time, $result: exit $code"; cat "$scratch/log"; return 1 ;;
    esac
}
# each_time CALL COMMAND..: the failure moves on until a run ends without it
each_time() {
    name=$1; shift
    at=1 gives=400
    while run_with "$name" $at $gives "$@"; do
        at=$((at * 2)) gives=$((400 + 719 - gives)) # 719 stays until the context is given up, as on a GPU
    done
    [ -e "$scratch/met" ] && return 1
    [ $at -gt 1 ] || [ "$(echo "$never" | grep -cx "$name")" -eq 1 ] || { echo "$name is not called"; return 1; }
}
# Asked for only where another call failed.
never='cuGetErrorName
cuMemGetInfo'
before=GF_FAKE_CUDA_NO_DESCRIPTORS=1 # memory as it is taken where cuMemCreate() has no descriptors
for made in $(grep '^    X(' firmware-tests/cuda/fake_cuda_calls.h | grep -o 'cu[A-Za-z0-9]*'); do
    case $made in
    cuMemAlloc | cuMemFree) check "$made" each_time "$made" env $before $one ;;
    cuMemHostAlloc | cuMemFreeHost) check "$made" each_time "$made" env GF_FAKE_CUDA_NO_REGISTER=1000 $one ;;
    cuMem*port*) check "$made" each_time "$made" $two ;;
    *) check "$made" each_time "$made" $one ;;
    esac
done
finish
