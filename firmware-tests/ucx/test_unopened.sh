#!/bin/sh
# What linking the library does to a program that opens no context: nothing. And what opening UCX does to it: its
# constructors run then, once.
. firmware-tests/support/shell.sh
linked=$BUILD/firmware-tests/program_unopened
cc() { ${CC:-gcc} -O1 -g -D_GNU_SOURCE -I. -Ilib -Idrivers/base firmware-tests/ucx/program_unopened.c "$@"; }
functions() { "$@" >"$scratch/out" || { cat "$scratch/out"; return 1; }; }
same_functions() { functions "$@" && diff "$scratch/alone.out" "$scratch/out"; }
madvise_of() { grep '^madvise:' "$1"; } # no sanitizer has one of its own
# patched PROGRAM..: libc's madvise is another, and all that the program asks of itself holds
patched() { functions "$@" && [ "$(madvise_of "$scratch/alone.out")" != "$(madvise_of "$scratch/out")" ]; }
flags() { env -u MAKEFLAGS -u MFLAGS make -s --no-print-directory GF_QUIET=1 AS_BUILT=1 BUILD="$BUILD" flags; }

check "without_the_library_it_runs" cc -DALONE -o "$scratch/alone" -ldl -pthread
"$scratch/alone" >"$scratch/alone.out"
if ldd "$linked" | grep -q libucs; then
    skip "linked_it_changes_nothing_of_libc" "a dynamic UCX runs its constructors when it is loaded"
    check "it_takes_no_signal_and_leaves_the_environment" functions "$linked"
    finish
fi
check "linked_it_changes_nothing_of_libc" same_functions "$linked"
echo 'int main(void) { return 0; }' >"$scratch/empty.c"
tsan_works() { ${CC:-gcc} -fsanitize=thread "$scratch/empty.c" -o "$scratch/empty" 2>/dev/null && "$scratch/empty"; }
tsan=
if nm "$BUILD/libgradientflow.a" | grep -q '__[atu]*san_'; then
    skip "under_tsan_threads_end" "this library has a sanitizer"
elif ! tsan_works; then
    skip "under_tsan_threads_end" "-fsanitize=thread does not work here"
else
    tsan=$scratch/tsan
    # Words, and no quotes.
    # shellcheck disable=SC2046
    check "with_fsanitize_thread_it_links" cc -fsanitize=thread -o "$tsan" $(flags)
    check "under_tsan_threads_end" same_functions "$tsan"
fi
if ! nm "$linked" | grep -q ucp_global_init; then
    skip "nothing_of_ucx_runs_before_main" "no UCX in this build"; finish
fi
early() { ! readelf -SW "$BUILD/drivers/ucx/with_ucx.o" | grep -E '\.(preinit_array|init_array|ctors)'; }
check "two_threads_that_open_ucx_start_it_once" patched "$linked" ucx
# What the user set stays: 11 is SIGSEGV.
asked() { UCX_HANDLE_ERRORS=bt "$linked" ucx >"$scratch/out"; grep -q 'signal 11 has' "$scratch/out"; }
if nm "$linked" | grep -q '__[atu]*san_'; then
    skip "nothing_of_ucx_runs_before_main" "a sanitizer has constructors"
    skip "handlers_that_the_user_asks_for_are_there" "a sanitizer has handlers"
else
    check "nothing_of_ucx_runs_before_main" early
    check "handlers_that_the_user_asks_for_are_there" asked
fi
export UCX_MEM_EVENTS=n
check "without_events_it_leaves_libc_alone" same_functions "$linked" ucx
[ -z "$tsan" ] || check "then_it_opens_under_tsan_too" functions env TSAN_OPTIONS=report_bugs=0 "$tsan" ucx
finish
