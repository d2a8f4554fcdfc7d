#!/bin/sh
# The library in somebody else's program: without libconfig, without UCX. The README's example: test_install.sh.
. firmware-tests/support/shell.sh

holds_no() { ! nm "$1" | grep -qE "$2"; }

"$BUILD/firmware-tests/program_embed" >"$scratch/out"
check "filled_by_hand_it_runs" same "0 1 2 3" "$(head -n 1 "$scratch/out")"
check "and_so_does_a_forked_child_over_a_network" same "0 1 2 3 GF_OK" "$(sed 1d "$scratch/out" | paste -sd' ')"
check "and_holds_no_libconfig" holds_no "$BUILD/firmware-tests/program_embed" " config_(init|read|lookup)"
check "but_ucx" sh -c "nm $BUILD/firmware-tests/program_embed | grep -q ' ucp_tag_send_nbx'"
check "with_drivers_of_its_own_it_runs" same "3 3" "$("$BUILD/firmware-tests/program_own_drivers")"
check "and_holds_no_ucx_sodium_or_libconfig" holds_no "$BUILD/firmware-tests/program_own_drivers" \
    " (ucp_|uct_|crypto_|sodium_|config_init)"

finish
