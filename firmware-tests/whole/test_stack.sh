#!/bin/sh
# How much stack a call takes: the library's own functions by the compiler's frames over the call graph (8 KiB at most
# below any public call), all that runs below a call by a painted stack, and who has too little is refused.
. firmware-tests/support/shell.sh
idx_data "$scratch/data" 60 || exit 1

if ! command -v python3 >/dev/null; then skip own_functions_stay_below_8_KiB "there is no python3"
elif ! ls "$BUILD"/lib/core/*.su >/dev/null 2>&1; then skip own_functions_stay_below_8_KiB "this build has no .su files"
else
    depth() {
        python3 firmware-tests/support/stack.py "$BUILD" >"$scratch/own"; code=$?
        head -n 1 "$scratch/own" | sed 's/^/# /'
        return $code
    }
    check own_functions_stay_below_8_KiB depth
    check and_all_public_calls_were_looked_at [ "$(grep -c . "$scratch/own")" -ge 50 ]
fi

used() { # of two ranks, the deepest
    timeout 100 "$BUILD/gf-run" -n 2 "$BUILD/firmware-tests/program_stack" "$@" >"$scratch/out" 2>&1 ||
        { cat "$scratch/out"; return 1; }
    bytes=$(sed -n 's/^.*stack //p' "$scratch/out" | sort -n | tail -n 1)
}
fits() { used "$@" && echo "# $bytes bytes of stack in use at the deepest" && [ "$bytes" -lt 40960 ]; }
check a_thread_with_a_painted_stack_uses_less_than_40_KiB fits
check a_thread_with_64_KiB_runs fits 65536

train() {
    ulimit -s "$1" &&
        timeout 100 "$BUILD/gf-train" --model linear --data "$scratch/data" --batch 12 --steps 2 >"$scratch/train" 2>&1
}
refused() { ! (train 48) && grep -q 'the stack may grow to 48 KiB; 64 KiB are needed' "$scratch/train"; }
runs() { (train 64) || { cat "$scratch/train"; return 1; }; }
check a_main_thread_with_48_KiB_is_refused refused
check a_main_thread_with_64_KiB_trains runs

# A dynamic UCX's constructors would end it before main(): tools/common/tool_stack.c comes first. The kernel puts
# arguments and environment on the stack, and up to 8 KiB at random below; ld.so takes 6,176 bytes. With less, any program ends by SIGSEGV.
told() {
    spare=$(head -c $(($1 * 1024 - 8192 - 6176 - 416)) /dev/zero | tr '\0' x)
    for tool in run train perf check plan trace; do for try in 1 2 3 4 5; do
        env -i spare="$spare" sh -c 'ulimit -s $0; exec "$@"' "$1" "$BUILD/gf-$tool" --version >"$scratch/told" 2>&1
        code=$?
        [ $code -eq 1 ] && grep -q "gf-$tool: the stack may grow to $1 KiB; 64 KiB are needed" "$scratch/told" ||
            { echo "# gf-$tool: exit $code"; return 1; }
    done; done
}
check tools_with_16_KiB_say_what_they_need told 16
check and_so_with_24_KiB_and_a_larger_environment told 24
finish
