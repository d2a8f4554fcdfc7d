#!/bin/sh
# The audit passes the library, and fails an archive that takes what is not listed for its objects; and run.sh fails a suite
# that does not come to its end: a check that cannot fail is none.
. firmware-tests/support/shell.sh
audit() { sh firmware-tests/support/audit.sh "$@" >"$scratch/out" 2>&1; }
# archive OBJECT SYMBOL: $scratch/bad.a, whose one object calls the symbol
archive() {
    printf 'void %s(void); void caller(void); void caller(void) { %s(); }\n' "$2" "$2" >"$scratch/bad.c"
    ${CC:-gcc} -fno-builtin -w -c "$scratch/bad.c" -o "$scratch/$1" && rm -f "$scratch/bad.a" && ar rcs "$scratch/bad.a" "$scratch/$1"
}

audited=$BUILD/libgradientflow.a
check "the_library_passes" audit "$audited"
for symbol in malloc free pthread_create sigaction printf fprintf abort mmap exit setenv getenv dlopen qsort \
    pthread_atfork syscall rand a_name_that_nobody_has_heard_of; do
    archive bad.o $symbol
    check_not "an_archive_that_calls_${symbol}_fails" audit "$scratch/bad.a"
    check "and_${symbol}_is_named" grep -q "bad.o: $symbol\$" "$scratch/out"
done
# What is listed is valid in the objects that it is listed for.
while read -r object symbol; do
    archive "$object" "$symbol"
    check "in_${object}_${symbol}_is_valid" audit "$scratch/bad.a"
done <<ROWS
any.o memcpy
any.o __memcpy_chk
config_any.o malloc
node_memory.o mmap64
gpu_cuda_load.o dlopen
link_ucx_any.o ucp_any
ROWS
while read -r object symbol; do
    archive "$object" "$symbol"
    check_not "in_${object}_${symbol}_fails" audit "$scratch/bad.a"
done <<ROWS
config_any.o pthread_create
node_memory.o malloc
gpu_cuda.o dlopen
aconfig_any.o malloc
link_tcp.o ucp_any
ROWS
if ar t "$audited" | grep -qE '^(link|with)_ucx.o' && ar t "$audited" | grep -q '^gpu_cuda.o'; then
    check "nothing_is_listed_that_nobody_takes" env UNUSED=1 sh firmware-tests/support/audit.sh "$audited"
else
    skip "nothing_is_listed_that_nobody_takes" "a build without UCX or CUDA lacks their objects"
fi
{ cat firmware-tests/support/audit_allowed; echo 'clock.o: nanosleep'; } >"$scratch/allowed"
check_not "a_symbol_that_nobody_takes_is_named" env UNUSED=1 sh firmware-tests/support/audit.sh "$audited" "$scratch/allowed"
check_not "a_missing_archive_fails" audit "$scratch/none.a"

# ---- nor may a suite that does not come to its end pass for one that did ----
# told SUITE'S BODY: the closing line of run.sh for that suite and one that passes
told() {
    echo "$1" >"$scratch/suite.sh"; echo 'echo ok that' >"$scratch/good.sh"
    BUILD=$scratch LIMIT=${2:-20} sh firmware-tests/support/run.sh "$scratch/suite.sh" "$scratch/good.sh" \
        >"$scratch/out" 2>&1
    code_=$?
    echo "$(tail -n 1 "$scratch/out"): $code_"
}
check "a_suite_that_passes" same "2 passed, 0 failed, 0 skipped: 0" "$(told 'echo ok this')"
check "one_that_fails" same "2 passed, 1 failed, 0 skipped: 1" "$(told 'echo ok this; echo not ok other: why')"
check "one_that_exits" same "2 passed, 1 failed, 0 skipped: 1" "$(told 'echo ok this; exit 3')"
check "one_that_crashes" same "2 passed, 1 failed, 0 skipped: 1" "$(told 'echo ok this; kill -SEGV $$')"
check "one_that_is_killed" same "2 passed, 1 failed, 0 skipped: 1" "$(told 'echo ok this; kill -KILL $$')"
check "one_that_hangs" same "2 passed, 1 failed, 0 skipped: 1" "$(told 'echo ok this; exec sleep 20' 1)"
check "one_that_says_nothing" same "1 passed, 1 failed, 0 skipped: 1" "$(told :)"
check "one_whose_count_the_disk_has_no_room_for" same "1 passed, 1 failed, 0 skipped: 1" \
    "$(told "echo ok this; ln -s /dev/null $scratch/logs/suite.sh.count")"
finish
