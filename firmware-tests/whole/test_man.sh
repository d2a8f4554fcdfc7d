#!/bin/sh
# The man pages say what there is, and nothing else: each option of each tool, each key, each public function.
. firmware-tests/support/shell.sh
same_lines() { diff "$1" "$2" && [ -s "$1" ]; }

for tool in "$BUILD"/gf-*; do
    [ -x "$tool" ] && [ ! -d "$tool" ] || continue
    name=${tool##*/}; page=tools/${name#gf-}/$name.1
    "$tool" --help | sed -n 's/^  --\([a-z0-9-]*\).*/\1/p' | sort >"$scratch/helped"
    sed -n 's/^\.It Fl -\([a-z0-9-]*\).*/\1/p' "$page" 2>/dev/null | sort >"$scratch/paged"
    check "the_page_of_${name}_has_its_options" same_lines "$scratch/helped" "$scratch/paged"
done

"$BUILD/gf-check" --keys | awk -f firmware-tests/support/man_keys.awk >"$scratch/keys"
sed -n '/^\.Ss Keys/,/^\.El/p' config/gradientflow.cfg.5 | sed '1,2d;$d' >"$scratch/paged"
check "the_page_of_the_configuration_has_its_keys" same_lines "$scratch/keys" "$scratch/paged"
# The table is the source of defaults, and the header repeats each that is not 0, false, empty or a name.
defaults() { sed -E 's/ ([0-9.]*)e-0/ \1e-/; s/ ([0-9]+)\.0$/ \1/' | sort; }
"$BUILD/gf-check" --keys | awk -F ' [|] ' 'NR > 2 && $2 != "name" && $2 != "boolean" {
    gsub(/`/, ""); sub(/^[|] /, "", $1)
    if ($3 !~ /^(0|0\.0|0 B|empty|auto)$/) print $1, $3 }' | sed 's/^trace\.records/trace_records/' | defaults >"$scratch/keys"
awk -f firmware-tests/support/header_defaults.awk lib/configuration.h lib/schedule.h >"$scratch/said"
awk '{ print $1 }' "$scratch/keys" >"$scratch/names"
grep -E '^[a-z_.]+ [0-9]' "$scratch/said" | awk '{ print $1 }' | sort -u - "$scratch/names" >"$scratch/either"
awk 'NR == FNR { want[$1]; next } $1 in want' "$scratch/either" "$scratch/said" | defaults >"$scratch/paged"
check "the_header_has_the_defaults_of_the_table" same_lines "$scratch/keys" "$scratch/paged"
for file in cluster model; do
    "$BUILD/gf-plan" --keys $file | awk -f firmware-tests/support/man_keys.awk >"$scratch/keys"
    sed -n '/^\.Ss Keys/,/^\.El/p' tools/common/gf-$file.cfg.5 | sed '1,2d;$d' >"$scratch/paged"
    check "the_page_of_${file}s_has_their_keys" same_lines "$scratch/keys" "$scratch/paged"
done
sed -n 's/^ *{\.rank = "\([A-Z_]*\)".*/\1/p' drivers/identity.c | sort -u >"$scratch/names"
sed -n 's/^\.It \([A-Z_]*\) Ta .*/\1/p' config/gradientflow.cfg.5 | sort -u >"$scratch/paged"
check "and_the_launchers_that_are_read" same_lines "$scratch/names" "$scratch/paged"
sed -n '/ signs\[\] = {/,/^};/s/^ *{"\([A-Z_0-9]*\)".*/\1/p' drivers/identity.c |
    sort -u >"$scratch/names"
sed -n '/^\.Ss Launchers that are not/,/^\.S[hs] [^L]/s/^\.It Ev \([A-Z_0-9]*\).*/\1/p' \
    config/gradientflow.cfg.5 | sort -u >"$scratch/paged"
check "and_the_signs_of_those_that_are_not" same_lines "$scratch/names" "$scratch/paged"

# A prototype ends in ");" behind its name and "("; comments, types and bodies are taken out first.
headers="lib/gradientflow.h lib/advanced.h drivers/base/types.h lib/configuration.h lib/schedule.h config/config.h"
for header in $headers; do
    sed 's|/\*.*\*/||; \|/\*|,\|\*/|d' "$header" | grep -vE '^#|^typedef|^extern "C"' | tr '\n' ' ' |
        sed 's/ *{[^{}]*}/;/g' | tr ';' '\n' |
        sed -n 's/  */ /g; s/^ //; s/^\(.*[ *]gf_[a-z0-9_]*(.*)\)$/\1/p'
done | sort >"$scratch/declared"
page=lib/gradientflow.3
sed -n '/^\.Ss Calls/,/^\.Sh/s/^\.It Ft //p' $page |
    sed -E 's/^"([^"]*)" Fn /\1 Fn /; s/ Fn ([a-z0-9_]*) "/ \1(/; s/\* gf/*gf/; s/" "/, /g; s/"$/)/' |
    sort >"$scratch/listed"
check "there_are_many_functions" [ "$(wc -l <"$scratch/declared")" -gt 50 ]
check "the_page_of_the_library_has_their_prototypes" same_lines "$scratch/declared" "$scratch/listed"
# shellcheck disable=SC2086
sed -n 's/^ *\(GF_OK\|GF_FULL\|GF_AGAIN\|GF_ERR_[A-Z]*\) = .*/\1/p; s/^#define \(GF_NEED_[A-Z_]*\) .*/\1/p' $headers |
    sort >"$scratch/declared"
sed -n 's/^\.It Dv //p' $page | sort >"$scratch/listed"
check "and_each_status_and_need" same_lines "$scratch/declared" "$scratch/listed"
# shellcheck disable=SC2086
sed 's| */\*.*\*/||; \|/\*|,\|\*/|d; /^$/d' $headers >"$scratch/bare"
sed -n '/^\.Ss Structures/,/^\.Ed/p' $page | sed '1,2d;$d' >"$scratch/listed"
for name in $(sed -n 's/^struct \(.*\) {/\1/p' "$scratch/listed"); do
    sed -n "/^struct $name {/,/^}/p" "$scratch/bare"
done >"$scratch/declared"
check "and_structures_as_the_headers_have_them" same_lines "$scratch/declared" "$scratch/listed"
grep '^typedef' $page | sort >"$scratch/listed"
grep -Fxf "$scratch/listed" "$scratch/bare" | sort >"$scratch/declared"
check "and_types_of_functions" same_lines "$scratch/declared" "$scratch/listed"
# Each key is a member, by its own name or by that of the page's table.
"$BUILD/gf-check" --keys | sed -n 's/^| `\([a-z0-9_.]*\)`.*/\1/p' | while read -r key; do
    member=$(sed -n "s/^\.It $key Ta //p" $page)
    echo "    (void)config->${member:-$key};"
done | sed '1i#include "lib/gradientflow.h"\nvoid members(const struct gf_config *config)\n{
            $a}' >"$scratch/members.c"
check "and_how_a_key_becomes_a_member" "${CC:-gcc}" -std=c11 -fsyntax-only -I. -Ilib -Idrivers/base "$scratch/members.c"
check "of_all_keys" [ "$(grep -c void "$scratch/members.c")" -gt 70 ]

make -s help | sed 's/^  \([^ ]*\).*/\1/' | sort >"$scratch/helped"
sed -n 's/^\([^ :.$]*\):.*[ ]## .*/\1/p' Makefile firmware-tests/tests.mk lib/install.mk | sort >"$scratch/paged"
check "make_help_has_its_targets" same_lines "$scratch/helped" "$scratch/paged"

silent() { [ -z "$("$@" 2>&1)" ] || { "$@" 2>&1; return 1; }; }
roff_silent() { [ -z "$(groff -mandoc -ww -Tutf8 "$1" 2>&1 >/dev/null)" ]; }
for page in tools/*/*.[15] lib/*.3 config/*.5; do
    if command -v mandoc >/dev/null; then check "${page##*/}_is_well_formed" silent mandoc -T lint -W warning "$page"
    elif command -v groff >/dev/null; then check "${page##*/}_is_well_formed" roff_silent "$page"
    else skip "${page##*/}_is_well_formed" "there is neither mandoc nor groff"; fi
done
finish
