#!/bin/sh
# A program that was linked without --wrap: what the suites of strangers guard against is real, and a key_file
# refuses it.
. firmware-tests/support/shell.sh
program=$BUILD/firmware-tests/program_unguarded
if [ ! -x "$program" ]; then
    for name in a_stranger_writes_where_nothing_guards a_key_file_refuses_such_a_link; do skip "$name" "built without UCX"; done
    exit 0
fi
head -c 32 /dev/urandom >"$scratch/key"
chmod 600 "$scratch/key"
says() { timeout 60 "$program" ${2:+"$2"} >"$scratch/out" 2>&1; grep -q "$1" "$scratch/out" || { cat "$scratch/out"; return 1; }; }
check a_stranger_writes_where_nothing_guards says '^written$'
check a_key_file_refuses_such_a_link says '^refused: a key_file.*wrap for listen, accept' "$scratch/key"
finish
