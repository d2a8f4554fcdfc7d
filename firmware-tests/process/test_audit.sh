#!/bin/sh
# The audit passes the library, and fails an archive that does what it must not: a check that cannot fail is none.
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
finish
