#!/bin/sh
# What `make install` copies is enough, wherever it is moved: the README's example is built and run far from here with
# pkg-config's flags or CMake's, against the archive and the shared library. `make uninstall` leaves nothing.
. firmware-tests/support/shell.sh
cc=${CC:-gcc} prefix=$scratch/prefix away=$scratch/away
install_to() {
    make -s --no-print-directory install BUILD="$BUILD" "$@" >"$scratch/log" 2>&1 && return
    cat "$scratch/log"
    return 1
}
flags() { PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config "$@" gradientflow; }

anew() { make -n BUILD="$BUILD" "$@" all | grep -c -e ' -c '; }
check "nothing_is_made_anew_with_the_same_flags" same 0 "$(anew)"
check "all_is_with_others" [ "$(anew CFLAGS="${CFLAGS:-} -O1 -g0")" -gt 100 ]
check "it_installs" install_to DESTDIR="$scratch/stage" PREFIX=/opt/gf
check "and_again_over_itself" install_to DESTDIR="$scratch/stage" PREFIX=/opt/gf
if [ -e "$BUILD/shared/link_ucx_start.o" ]; then
    check "another_ucx_makes_the_shared_library_anew" \
        sh -c 'make -n BUILD="$1" UCX_VERSION=0 shared | grep -q -e "-o .*/shared/link_ucx_start.o$"' sh "$BUILD"
fi
mkdir "$scratch/before" && ln -s /bin/true "$scratch/nvcc"
echo "$scratch/nvcc undefined " >"$scratch/before/nvcc.used"
finds_nvcc() { PATH=/usr/bin:/bin GF_QUIET='' make -n BUILD="$scratch/before" shared 2>&1 | grep -q "gpu kernels 1"; }
check "sudo_make_install_finds_the_nvcc_of_the_build" finds_nvcc
check "nothing_lies_beside_it" same opt "$(ls "$scratch/stage")"
mv "$scratch/stage/opt/gf" "$prefix"
check "no_file_knows_its_place" \
    sh -c '! grep -rq -e "$1" -e /opt/gf "$2/lib/pkgconfig" "$2/lib/cmake"' sh "$scratch" "$prefix"
version=$(sed -n 's/^#define GF_VERSION_M[A-Z]* //p' lib/gradientflow.h | paste -sd.)
for file in bin/gf-run bin/gf-train bin/gf-check bin/gf-trace bin/gf-coordinator \
    lib/libgradientflow.a include/gradientflow/gradientflow.h \
    share/gradientflow/local.cfg share/gradientflow/cluster.cfg share/gradientflow/fabric.cfg \
    share/gradientflow/own.cfg share/gradientflow/own_cluster.cfg \
    share/gradientflow/models/resnet50.cfg share/man/man1/gf-check.1 \
    lib/libgradientflow.so.$version include/gradientflow/schedule.h share/doc/gradientflow/LICENSE \
    share/doc/gradientflow/VERSION share/doc/gradientflow/README.md share/doc/gradientflow/RECIPE.md \
    share/doc/gradientflow/RECIPE_MORE.md share/doc/gradientflow/example/elastic.c \
    share/doc/gradientflow/example/checkpoint.h \
    share/doc/gradientflow/example/language.c share/gradientflow/python/gradientflow.py \
    share/gradientflow/job.sbatch share/gradientflow/gf-coordinator.service \
    share/gradientflow/coordinator.yaml \
    share/doc/gradientflow/RESTARTS.md share/man/man1/gf-coordinator.1 \
    share/doc/gradientflow/PYTORCH.md share/doc/gradientflow/example/fashion.py \
    share/man/man3/gradientflow.3 share/man/man3/gf_step_wait.3 share/man/man5/gradientflow.cfg.5 \
    share/man/man5/gf-cluster.cfg.5 share/man/man5/gf-model.cfg.5 share/gradientflow/clusters/h200.cfg; do
    check "there_is_$file" [ -s "$prefix/$file" ]
done
for picture in $(sed -n 's/^!\[.*](\(.*\))$/\1/p' "$prefix/share/doc/gradientflow/README.md"); do
    check "the_readme_shows_$picture" [ -s "$prefix/share/doc/gradientflow/$picture" ]
done
check "pkg_config_says_the_headers_version" same "$version" "$(flags --modversion)"
python_to() { # the module finds the library of its prefix
    (cd / && PYTHONPATH=$(flags --variable=pythondir) GF_LIBRARY='' PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -c \
        'import gradientflow, os; print(os.path.realpath(gradientflow.library()._name))')
}
if /usr/bin/python3 -c 'import torch' 2>/dev/null; then
    beside=$(realpath "$prefix/lib/libgradientflow.so.$version")
    check "the_module_finds_the_library_beside_it" same "$beside" "$(python_to)"
else
    skip "the_module_finds_the_library_beside_it" "no PyTorch here (Debian's package python3-torch)"
fi

mkdir -p "$away/config"
cp "$prefix/share/gradientflow/local.cfg" "$away/config"
sed -n '/^<!-- example: line.c -->/,/^```$/p' README.md | sed '1,2d;$d' >"$away/line.c"
named=$(sed -n 's/^<!-- example: \(.*\) -->$/\1/p' README.md)
check_not "the_readmes_example_has_a_name_of_its_own" [ -e "$prefix/share/doc/gradientflow/example/$named" ]
cd "$away" || exit 1
# The words of the flags are to be split.
# shellcheck disable=SC2046
check "the_readmes_example_compiles" "$cc" -std=c11 -Wall -Wextra -Wconversion -Werror $(flags --cflags) line.c \
    $(flags --static --libs) -o line
check "it_runs_alone" same "y = 3.00 x + 1.00" "$(./line)"
refused "what_it_cannot_do_it_says" "environment GF_RANK='x': expected a rank" env GF_RANK=x GF_WORLD=2 ./line
check "the_installed_gf_run_runs_it_on_three_ranks" same "y = 3.00 x + 1.00" "$("$prefix/bin/gf-run" -n 3 ./line)"
echo 'loss_scale = { enabled = true; };' >>config/local.cfg
sed -i 's/^exchange = {/& average = "samples";/' config/local.cfg
check "so_it_does_with_a_files_scales" same "y = 3.00 x + 1.00" "$("$prefix/bin/gf-run" -n 3 ./line)"
# shellcheck disable=SC2046
check "the_installed_example_compiles" "$cc" -std=c11 -Wall -Wextra -Werror $(flags --cflags) \
    "$prefix/share/doc/gradientflow/example/appliance.c" $(flags --static --libs) -o example
losses() { timeout 100 "$prefix/bin/gf-run" -n 2 ./example "$1" | sed -n 's/^.*loss //p' | sort -u; }
scaled=$(losses config/local.cfg)
cp "$prefix/share/gradientflow/local.cfg" config
# shellcheck disable=SC2046
check "that_of_mixed_precision_compiles" "$cc" -std=c11 -Wall -Wextra -Werror $(flags --cflags) \
    "$prefix/share/doc/gradientflow/example/half.c" $(flags --static --libs) -o half
check "its_two_ranks_find_the_line" same 2 "$(timeout 100 "$prefix/bin/gf-run" -n 2 ./half | grep -c "rank [01]: y = 3.0 x + 1.0")"
check "a_files_scales_change_no_loss_of_it" same "$(losses config/local.cfg)" "${scaled:-none}"
if echo | "$cc" -x c++ -fsyntax-only - 2>/dev/null; then
    # shellcheck disable=SC2046
    check "it_is_c++_too" "$cc" -std=c++20 -x c++ -Wall -Werror $(flags --cflags) line.c -x none \
        $(flags --static --libs) -o appliance_cxx
    check "which_runs" same "y = 3.00 x + 1.00" "$(./appliance_cxx)"
    # No call has a structure's name, so C++ needs no "struct" before one.
    { echo '#include <gradientflow/config.h>'; echo 'int main() {'
        sed -n 's/^struct \(gf_[a-z0-9_]*\) {$/\1 *\1_of = nullptr; (void)\1_of;/p' \
            "$prefix"/include/gradientflow/gradientflow.h "$prefix"/include/gradientflow/advanced.h \
            "$prefix"/include/gradientflow/types.h \
            "$prefix"/include/gradientflow/configuration.h "$prefix"/include/gradientflow/schedule.h
        echo 'return gf_stats_of != nullptr; }'; } >structs.cc
    # shellcheck disable=SC2046
    check "its_structures_are_types_of_c++" "$cc" -std=c++20 -Wall -Werror $(flags --cflags) -fsyntax-only structs.cc
else skip "it_is_c++_too" "no C++ compiler"; fi
# shellcheck disable=SC2046
check "a_static_libc_is_enough" sh -c '"$@" 2>"$0" || { cat "$0"; exit 1; }' "$scratch/log" "$cc" -std=c11 -static-pie \
    $(flags --cflags) line.c $(flags --static --libs) -o appliance_static
check "and_it_runs" same "y = 3.00 x + 1.00" "$(./appliance_static)"
check "libc_alone_is_dynamic" sh -c '! ldd "$1" | grep -vqE "linux-vdso|ld-linux|lib(c|m|dl|rt|pthread)\.so"' sh ./line
for header in "$prefix"/include/gradientflow/*.h; do
    # shellcheck disable=SC2046
    check "$(basename "$header")_compiles_alone" "$cc" -std=c11 -fsyntax-only -x c $(flags --cflags) "$header"
done
sed -n 's/^\.In \([^ ]*\)$/#include <\1>/p' "$prefix/share/man/man3/gradientflow.3" >includes.c
# shellcheck disable=SC2046
check "what_the_page_includes_is_there" "$cc" -std=c11 -fsyntax-only $(flags --cflags) includes.c
# shellcheck disable=SC2046
check "it_links_with_the_shared_library" "$cc" -std=c11 $(flags --cflags) line.c \
    $(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --libs gradientflow-shared) -o shared
check "which_it_needs" sh -c 'ldd shared | grep -qF "libgradientflow.so.$1 "' sh "$version"
check "and_runs_with" same "y = 3.00 x + 1.00" "$(LD_LIBRARY_PATH=$prefix/lib ./shared)"
check "it_exports_gf_alone" sh -c \
    '! nm -D --defined-only "$1" | grep -v GRADIENTFLOW_0$ | grep -qvE " gf_[a-z0-9_]*@"' sh "$prefix/lib/libgradientflow.so"
if command -v cmake >/dev/null; then
    cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.13)
project(appliance C)
find_package(gradientflow REQUIRED)
add_executable(with_archive line.c)
target_link_libraries(with_archive gradientflow::gradientflow)
add_executable(with_shared line.c)
target_link_libraries(with_shared gradientflow::shared)
END
    with_cmake() {
        (cmake -B cmade -DCMAKE_PREFIX_PATH="$prefix" && make -s -C cmade) >"$scratch/log" 2>&1 && return
        cat "$scratch/log"
        return 1
    }
    check "cmake_finds_it" with_cmake
    check "what_cmake_links_statically_runs" same "y = 3.00 x + 1.00" "$(cmade/with_archive)"
    check "and_dynamically" same "y = 3.00 x + 1.00" "$(cmade/with_shared)"
else skip "cmake_finds_it" "cmake is not installed"; fi
cd - >/dev/null || exit 1

# The example that is installed, with its own Makefile, far from here.
cp -r "$prefix/share/doc/gradientflow/example" "$scratch/example"
check "the_example_builds" env PKG_CONFIG_PATH="$prefix/lib/pkgconfig" \
    make -s -C "$scratch/example" CC="$cc" CFLAGS="-O2 -Wconversion -Werror"
"$prefix/bin/gf-run" -n 2 --merge "$scratch/example/appliance" "$prefix/share/gradientflow/local.cfg" | sort >"$scratch/log"
check "two_ranks_fit_a_sine" awk '/^rank [01] of 2: loss / && ($6 < 0.002) {n++} END {exit n != 2}' "$scratch/log"
check "one_does_too" sh -c '"$1" "$2" | grep -Eq "^rank 0 of 1: loss 0\.00[01]"' sh "$scratch/example/appliance" \
    "$prefix/share/gradientflow/local.cfg"

# The tools find what was installed with them from anywhere, and GF_DATA_DIR is asked alone where it is set.
elsewhere() { (cd / && "$prefix/bin/gf-plan" --gpus 1 --modes ring) >"$scratch/log" 2>&1; }
check "the_planner_finds_its_files" elsewhere
train_elsewhere() { (cd / && "$prefix/bin/gf-train" --model linear --steps 2) >"$scratch/log" 2>&1; }
check "gf_train_finds_its_configuration" train_elsewhere
overridden() { ! (cd / && GF_DATA_DIR="$scratch/nowhere" "$prefix/bin/gf-plan" --gpus 1) >"$scratch/log" 2>&1; }
check "data_asked_for_elsewhere_is_looked_for_there" overridden
check "and_the_place_is_named" grep -q "$scratch/nowhere/" "$scratch/log"

# What lies there, but for OpenBLAS in gf-train; debug data is apart, and found by gdb.
bytes() { find "$@" -type f -printf '%s\n' | awk '{ all += $1 } END { printf "%.0f", all }'; }
rest=$(bytes "$prefix" ! -path "$prefix/bin/gf-train")
check "all_but_gf_train_is_under_15_MB" [ "$rest" -lt 15000000 ]
echo "# installed: $rest bytes, and gf-train $(bytes "$prefix/bin/gf-train")"
debug_to() { make -s --no-print-directory install-debug BUILD="$BUILD" "$@"; }
check "debug_data_is_installed_beside_it" debug_to DESTDIR="$scratch/stage" PREFIX=/opt/gf
has_debug_data() { readelf -S "$1" | grep -q debug_info; }
check "and_has_what_was_taken_out" has_debug_data "$scratch/stage/opt/gf/bin/.debug/gf-run.debug"
check_not "of_the_program" has_debug_data "$prefix/bin/gf-run"
for file in bin/gf-run bin/gf-plan "lib/libgradientflow.so.$version"; do
    check "$(basename "$file")_names_it" sh -c \
        'readelf -p .gnu_debuglink "$1" | grep -qF "$(basename "$1").debug"' sh "$prefix/$file"
done
check "it_installs_again" install_to DESTDIR="$scratch/stage" PREFIX=/opt/gf
uninstalls() {
    make -s --no-print-directory uninstall BUILD="$BUILD" PREFIX=/opt/gf \
        DESTDIR="$(realpath --relative-to=. "$scratch/stage")"
}
touch "$scratch/stage/opt/gf/bin/foreign"
check "it_uninstalls" uninstalls
check "what_is_not_its_own_stays_alone" same "./bin/foreign" "$(cd "$scratch/stage/opt/gf" && find . ! -type d)"
fails() { ! install_to "$@" >/dev/null; }
check "a_relative_prefix_is_refused" fails PREFIX=here
check "and_why_is_said" grep -q "must be an absolute path" "$scratch/log"
finish
