#!/bin/sh
# The audit passes the library, and fails an archive that does what it must not; and run.sh fails a suite that does not
# come to its end: a check that cannot fail is none.
. firmware-tests/support/shell.sh
audit() { sh firmware-tests/support/audit.sh "$@" >"$scratch/out" 2>&1; }

check "the_library_passes" audit "$BUILD/libgradientflow.a"
for symbol in malloc free pthread_create sigaction printf abort mmap exit; do
    printf 'void %s(void); void caller(void); void caller(void) { %s(); }\n' "$symbol" "$symbol" >"$scratch/bad.c"
    ${CC:-gcc} -fno-builtin -w -c "$scratch/bad.c" -o "$scratch/bad.o" && rm -f "$scratch/bad.a" &&
        ar rcs "$scratch/bad.a" "$scratch/bad.o"
    check_not "an_archive_that_calls_${symbol}_fails" audit "$scratch/bad.a"
    check "and_${symbol}_is_named" grep -q "bad.o: $symbol" "$scratch/out"
    mv "$scratch/bad.o" "$scratch/config_bad.o" && rm -f "$scratch/bad.a" && ar rcs "$scratch/bad.a" "$scratch/config_bad.o"
    check "in_config_${symbol}_is_valid" audit "$scratch/bad.a"
done
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
