#!/bin/sh
# Each header that is installed compiles alone, as C and as C++ of several years, with the warnings that people switch
# on; and what it declares has C's names in C++, too: a program links.
. firmware-tests/support/shell.sh
include=$BUILD/include
headers=$(cd "$include/gradientflow" && echo *.h)
# tried NAME COMMAND..: a row for each header. One command compiles all, each by itself; one at a time where that fails.
tried() {
    of=$1; shift
    if ! command -v "$1" >/dev/null; then skip "alone_as_$of" "there is no $1"; return; fi
    case $of in *++*) ending=cc ;; *) ending=c ;; esac
    sources=
    for header in $headers; do
        echo "#include <gradientflow/$header>" >"$scratch/${header%.h}.$ending"
        sources="$sources $scratch/${header%.h}.$ending"
    done
    # shellcheck disable=SC2086
    "$@" -Wall -Wextra -pedantic -Werror -fsyntax-only -I"$include" $sources 2>/dev/null && all=true || all=false
    for header in $headers; do
        if $all; then ok "${header}_alone_as_$of"
        else
            check "${header}_alone_as_$of" \
                "$@" -Wall -Wextra -pedantic -Werror -fsyntax-only -I"$include" "$scratch/${header%.h}.$ending"
        fi
    done
}
check "there_are_headers" [ "$(echo "$headers" | wc -w)" -ge 12 ]
for year in 11 17 2x; do tried "c$year" gcc -std=c$year; done
for year in 11 20; do tried "c++$year" g++ -std=c++$year; done
tried "c11_by_clang" clang -std=c11
for year in 11 20; do tried "c++${year}_by_clang" clang -x c++ -std=c++$year; done

# A whole program, the README's, with all warnings that a compiler has but those about layout,
# declarations in the middle and pointers that are counted up.
sed -n '/^<!-- example: line.c -->/,/^```$/p' README.md | sed '1,2d;$d' >"$scratch/line.c"
quiet='-Wno-padded -Wno-declaration-after-statement -Wno-unknown-warning-option -Wno-unsafe-buffer-usage'
if command -v clang >/dev/null; then
    # The words of the flags are to be split.
    # shellcheck disable=SC2086
    check "a_program_by_clang_with_all_warnings" \
        clang -std=c11 -Weverything $quiet -Werror -fsyntax-only -I"$include" "$scratch/line.c"
else skip "a_program_by_clang_with_all_warnings" "there is no clang"; fi
check "a_program_in_c++_without_casts" g++ -std=c++20 -x c++ -Wall -Wextra -Wconversion -Wshadow \
    -Wno-missing-field-initializers -Werror -fsyntax-only -I"$include" "$scratch/line.c"

# Every function and every table that a header names and the library has, by its address.
names=$(nm --defined-only "$BUILD/libgradientflow.a" 2>/dev/null | awk 'NF == 3 && $2 ~ /[A-Z]/ { print $3 }' | sort -u)
(cd "$include/gradientflow" && cat ./*.h) | sed 's|/\*.*\*/||' | grep -oE '\<gf_[a-z0-9_]+' | sort -u >"$scratch/said"
echo "$names" | comm -12 - "$scratch/said" >"$scratch/both"
{
    for header in $headers; do echo "#include <gradientflow/$header>"; done
    echo 'extern const void *const all[];'
    echo 'const void *const all[] = {'
    sed 's/.*/(const void *)\&&,/' "$scratch/both"
    echo 'nullptr};'
    echo 'int main() { return all[0] == nullptr; }'
} >"$scratch/all.cc"
linked() {
    [ "$(wc -l <"$scratch/both")" -ge 90 ] || { cat "$scratch/both"; return 1; }
    clang -x c++ -std=c++11 -c -I"$include" "$scratch/all.cc" -o "$scratch/all.o" || return 1
    nm -u "$scratch/all.o" | awk '{ print $2 }' | grep '^gf_' | sort | diff - "$scratch/both"
}
if command -v clang >/dev/null; then check "what_they_declare_has_c's_names_in_c++" linked
else skip "what_they_declare_has_c's_names_in_c++" "there is no clang"; fi
finish
