#!/bin/sh
# The library in somebody else's program: without libconfig, without UCX, and the README's example as it stands.
. firmware-tests/support/shell.sh
cc=${CC:-gcc}

same() { [ "$1" = "$2" ] || { echo "wanted <$1>, found <$2>"; return 1; }; }
# What the loader is asked for beside the C library's own parts.
holds_no_other_library() { ! ldd "$1" | grep -vqE 'linux-vdso|ld-linux|lib(c|m|dl|rt|pthread)\.so'; }
holds_no() { ! nm "$1" | grep -qE "$2"; }

check "filled_by_hand_it_runs" same "0 1 2 3" "$("$BUILD/firmware-tests/program_embed")"
check "and_holds_no_libconfig" holds_no "$BUILD/firmware-tests/program_embed" " config_(init|read|lookup)"
check "but_ucx" sh -c "nm $BUILD/firmware-tests/program_embed | grep -q ' ucp_tag_send_nbx'"
check "with_drivers_of_its_own_it_runs" same "3 3" "$("$BUILD/firmware-tests/program_own_drivers")"
check "and_holds_no_ucx_sodium_or_libconfig" holds_no "$BUILD/firmware-tests/program_own_drivers" \
    " (ucp_|uct_|crypto_|sodium_|config_init)"

sed -n '/^<!-- example: appliance.c -->/,/^```$/p' README.md | sed '1,2d;$d' >"$scratch/appliance.c"
check "the_readme_has_an_example" [ "$(wc -l <"$scratch/appliance.c")" -gt 30 ]
# The words of the flags are to be split.
# shellcheck disable=SC2046
check "it_compiles_without_a_warning" "$cc" -std=c11 -Wall -Wextra -Wconversion -Werror "$scratch/appliance.c" \
    $(make -s --no-print-directory flags BUILD="$BUILD") -o "$scratch/appliance"
check "it_runs_alone" same "y = 3.00 x + 1.00" "$("$scratch/appliance")"
check "it_runs_on_three_ranks" same "y = 3.00 x + 1.00" "$("$BUILD/gf-run" -n 3 "$scratch/appliance")"
check "libc_alone_is_dynamic" holds_no_other_library "$scratch/appliance"
finish
