#!/bin/sh
# The audit passes the library, and fails an archive that takes what is not listed for its objects; and run.sh fails a suite
# that does not come to its end: a check that cannot fail is none.
. firmware-tests/support/shell.sh
audit() { sh firmware-tests/support/audit.sh "$@" >"$scratch/out" 2>&1; }
# archive ROWS: $scratch/bad.a of an object for each row "OBJECT SYMBOL", which calls the symbol
archive() {
    rm -rf "$scratch/bad.a" "$scratch/objects"; mkdir "$scratch/objects"
    echo "$1" | while read -r object symbol; do
        printf '.globl caller_%s\ncaller_%s: .quad %s\n' "$symbol" "$symbol" "$symbol" >"$scratch/bad.s"
        as "$scratch/bad.s" -o "$scratch/objects/$object" && ar rcs "$scratch/bad.a" "$scratch/objects/$object"
    done
}

audited=$BUILD/libgradientflow.a
check "the_library_passes" audit "$audited"
archive "bad.o free"
check_not "an_archive_that_calls_free_fails" audit "$scratch/bad.a"
symbols="malloc free pthread_create sigaction printf fprintf abort mmap exit setenv getenv dlopen qsort \
    pthread_atfork syscall rand a_name_that_nobody_has_heard_of"
archive "$(for symbol in $symbols; do echo "bad_$symbol.o $symbol"; done)"
audit "$scratch/bad.a"
for symbol in $symbols; do check "${symbol}_is_named" grep -q "bad_$symbol.o: $symbol\$" "$scratch/out"; done
# What is listed is valid in the objects that it is listed for, and in no other.
archive "any.o memcpy
any_other.o __memcpy_chk
config_any.o malloc
node_memory.o mmap64
gpu_cuda_load.o dlopen
link_ucx_any.o ucp_any"
check "what_is_listed_is_valid_there" audit "$scratch/bad.a"
rows="config_any.o pthread_create
node_memory.o malloc
gpu_cuda.o dlopen
aconfig_any.o malloc
link_tcp.o ucp_any"
archive "$rows"
audit "$scratch/bad.a"
while read -r object symbol; do
    check "in_${object}_${symbol}_fails" grep -q "^$object: $symbol\$" "$scratch/out"
done <<ROWS
$rows
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
check "one_that_hangs" same "2 passed, 1 failed, 0 skipped: 1" "$(told 'echo ok this; exec sleep 60' 3)"
check "one_that_says_nothing" same "1 passed, 1 failed, 0 skipped: 1" "$(told :)"
check "one_whose_count_the_disk_has_no_room_for" same "1 passed, 1 failed, 0 skipped: 1" \
    "$(told "echo ok this; ln -s /dev/null $scratch/logs/suite.sh.count")"
finish
