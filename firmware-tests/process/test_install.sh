#!/bin/sh
# What `make install` copies is enough: the README's example is built and run far from this repository with nothing but
# pkg-config's flags, and a staged copy knows nothing of where it was staged.
. firmware-tests/support/shell.sh
cc=${CC:-gcc} prefix=$scratch/prefix away=$scratch/away
same() { [ "$1" = "$2" ] || { echo "wanted <$1>, found <$2>"; return 1; }; }
install_to() {
    make -s --no-print-directory install BUILD="$BUILD" "$@" >"$scratch/log" 2>&1 && return
    cat "$scratch/log"
    return 1
}
flags() { PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config "$@" gradientflow; }

check "it_installs" install_to PREFIX="$prefix"
check "and_again_over_itself" install_to PREFIX="$prefix"
for file in bin/gf-run bin/gf-train bin/gf-check bin/gf-trace lib/libgradientflow.a include/gradientflow/gradientflow.h \
    share/gradientflow/local.cfg share/gradientflow/models/resnet50.cfg share/man/man1/gf-check.1 \
    share/man/man3/gradientflow.3 share/man/man3/gf_step_wait.3 share/man/man5/gradientflow.cfg.5; do
    check "there_is_$file" [ -s "$prefix/$file" ]
done
version=$(sed -n 's/^#define GF_VERSION_M[A-Z]* //p' lib/gradientflow.h | paste -sd.)
check "pkg_config_says_the_headers_version" same "$version" "$(flags --modversion)"

mkdir -p "$away/config"
cp "$prefix/share/gradientflow/local.cfg" "$away/config"
sed -n '/^<!-- example: appliance.c -->/,/^```$/p' README.md | sed '1,2d;$d' >"$away/appliance.c"
cd "$away" || exit 1
# The words of the flags are to be split.
# shellcheck disable=SC2046
check "the_readmes_example_compiles" "$cc" -std=c11 -Wall -Wextra -Wconversion -Werror $(flags --cflags) appliance.c \
    $(flags --static --libs) -o appliance
check "it_runs_alone" same "y = 3.00 x + 1.00" "$(./appliance)"
check "the_installed_gf_run_runs_it_on_three_ranks" same "y = 3.00 x + 1.00" "$("$prefix/bin/gf-run" -n 3 ./appliance)"
check "libc_alone_is_dynamic" sh -c '! ldd "$1" | grep -vqE "linux-vdso|ld-linux|lib(c|m|dl|rt|pthread)\.so"' sh ./appliance
for header in "$prefix"/include/gradientflow/*.h; do
    # shellcheck disable=SC2046
    check "$(basename "$header")_compiles_alone" "$cc" -std=c11 -fsyntax-only -x c $(flags --cflags) "$header"
done
cd - >/dev/null || exit 1

# The example that is installed, with its own Makefile, far from here.
cp -r "$prefix/share/gradientflow/example" "$scratch/example"
check "the_example_builds" env PKG_CONFIG_PATH="$prefix/lib/pkgconfig" \
    make -s -C "$scratch/example" CC="$cc" CFLAGS="-O2 -Wconversion -Werror"
"$prefix/bin/gf-run" -n 2 --merge "$scratch/example/appliance" "$prefix/share/gradientflow/local.cfg" | sort >"$scratch/log"
check "two_ranks_fit_a_sine" awk '/^rank [01] of 2: loss / && ($6 < 0.002) {n++} END {exit n != 2}' "$scratch/log"
check "one_does_too" sh -c '"$1" "$2" | grep -Eq "^rank 0 of 1: loss 0\.00[01]"' sh "$scratch/example/appliance" \
    "$prefix/share/gradientflow/local.cfg"
check "the_example_is_about_a_hundred_lines" [ "$(wc -l <tools/example/appliance.c)" -le 140 ]

# The tools find what was installed with them from anywhere, and GF_DATA_DIR is asked alone where it is set.
elsewhere() { (cd / && "$prefix/bin/gf-plan" --gpus 1 --modes ring) >"$scratch/log" 2>&1; }
check "the_planner_finds_its_files" elsewhere
train_elsewhere() { (cd / && "$prefix/bin/gf-train" --model linear --steps 2) >"$scratch/log" 2>&1; }
check "gf_train_finds_its_configuration" train_elsewhere
overridden() { ! (cd / && GF_DATA_DIR="$scratch/nowhere" "$prefix/bin/gf-plan" --gpus 1) >"$scratch/log" 2>&1; }
check "data_asked_for_elsewhere_is_looked_for_there" overridden
check "and_the_place_is_named" grep -q "$scratch/nowhere/" "$scratch/log"

check "it_stages" install_to DESTDIR="$scratch/stage" PREFIX=/opt/gf
check "a_staged_copy_is_for_its_prefix" grep -qx 'prefix=/opt/gf' "$scratch/stage/opt/gf/lib/pkgconfig/gradientflow.pc"
check "and_knows_no_stage" sh -c '! grep -q "$1" "$2"' sh "$scratch" "$scratch/stage/opt/gf/lib/pkgconfig/gradientflow.pc"
check "nothing_lies_beside_it" same opt "$(ls "$scratch/stage")"
fails() { ! install_to "$@" >/dev/null; }
check "a_relative_prefix_is_refused" fails PREFIX=here
check "and_why_is_said" grep -q "must be an absolute path" "$scratch/log"
finish
