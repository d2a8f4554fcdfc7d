#!/bin/sh
# The README's table of keys is the one that the programs work with.
. firmware-tests/support/shell.sh
"$BUILD/gf-check" --keys >"$scratch/keys" || not_ok "gf_check_prints_its_keys" "exit $?"
sed -n '/^<!-- keys: /,/^<!-- end of keys -->/p' README.md | sed '1d;$d' >"$scratch/readme"
check "the_table_of_keys_is_long" [ "$(wc -l <"$scratch/keys")" -gt 30 ]
check "the_table_of_keys_is_that_of_gf_check" diff "$scratch/keys" "$scratch/readme"
for folder in lib ops drivers config firmware-tests tools; do
    check "there_is_a_readme_in_$folder" [ -s "$folder/README.md" ]
done
finish
