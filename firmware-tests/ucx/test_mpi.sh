#!/bin/sh
# A program's own UCX beside the library's: Debian's MPICH and Open MPI bring one along, with symbols of the same names.
# With the flags that pkg-config (MPICH) and `make flags` (Open MPI) give, and nothing more, MPI starts, and MPI's messages
# and the library's go over a UCX each.
. firmware-tests/support/shell.sh
cc=${CC:-gcc}
given() { echo "${MAKEFLAGS:-}" | tr ' ' '\n' | sed -n "s/^$1=//p"; } # of make check-ucx
dynamic=$(given UCX_DYNAMIC) prefix=$(given UCX_PREFIX)
unset GF_QUIET MAKEFLAGS MAKELEVEL # as by hand
make() { command make UCX_PREFIX="$prefix" "$@"; }
export GF_DEBUG=info OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR="$scratch"

if [ "${dynamic:-0}" = 1 ] || [ ! -e "$BUILD/drivers/ucx/with_ucx.o" ]; then
    skip "ucx_lies_in_the_archive" "this build has no UCX, or finds it at run time"
    finish
fi

# ---- what the archive shows, and what a program is linked with ----
globals() { # FILE: what others would meet of it
    nm --defined-only --extern-only "$1" 2>/dev/null | awk 'NF == 3 { print $3 }'
}
ours_alone() { # nothing of UCX's, verbs' or libnl's: gf_ alone
    ! globals "$1" | grep -vE '^_*gf_' || { echo "in $1"; return 1; }
}
check "the_archive_shows_no_symbol_of_ucx" ours_alone "$BUILD/libgradientflow.a"
check "driver_and_ucx_show_one" same gf_link_ucx "$(globals "$BUILD/drivers/ucx/with_ucx.o")"
check "ucx_is_in_there" sh -c 'nm "$1" | grep -q " t ucp_tag_send_nbx$"' sh "$BUILD/drivers/ucx/with_ucx.o"
check "nothing_of_it_is_wanted_from_outside" sh -c \
    '! nm -u "$1" | grep -E " (uc[pmst]_|ibv_|nl_|rtnl_|gf_.*ucx)"' sh "$BUILD/drivers/ucx/with_ucx.o"
made=$(make -s BUILD="$BUILD" flags)
installs() {
    make -s --no-print-directory install BUILD="$BUILD" DESTDIR="$scratch/stage" PREFIX=/gf >"$scratch/log" 2>&1 ||
        { cat "$scratch/log"; return 1; }
}
check "it_installs" installs
packed=$(PKG_CONFIG_PATH=$scratch/stage/gf/lib/pkgconfig pkg-config --cflags --static --libs gradientflow)
plain() { # no call is led elsewhere, and UCX is not named
    ! echo "$1" | grep -E -- '--wrap|--defsym|uc[pmst]([^a-z]|$)|ibverbs|mlx'
}
check "the_flags_name_no_ucx" plain "$made"
check "nor_do_pkg_configs" plain "$packed"
check "nor_cmakes" plain "$(grep LIBRARIES "$scratch/stage/gf/lib/cmake/gradientflow/gradientflow-config.cmake")"

# ---- the example, started and ended by MPI ----
cat >"$scratch/main.c" <<'END'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int appliance(int argc, char **argv);
static int sums(int world) /* by MPI: small and large */
{
    static int mine[200000], all[200000];
    for (int i = 0; i < 200000; i++) mine[i] = i;
    MPI_Allreduce(mine, all, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(mine, all, 200000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < 200000; i++)
        if (all[i] != world * i) return 0;
    return 1;
}
int main(int argc, char **argv)
{
    char text[16];
    int rank, world, failed;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    snprintf(text, sizeof text, "%d", rank);
    setenv("GF_RANK", text, 1);
    snprintf(text, sizeof text, "%d", world);
    setenv("GF_WORLD", text, 1);
    failed = !sums(world) || (appliance(argc, argv) != 0) || !sums(world);
    printf("rank %d of MPI's %d: %s\n", rank, world, failed ? "failed" : "whole");
    MPI_Finalize();
    return failed;
}
END
cp tools/example/appliance.c "$scratch"
sed -i 's/^int main(/int appliance(/' "$scratch/appliance.c"
port=$(awk -v seed="$$" 'BEGIN { srand(seed); print 10000 + int(rand() * 9000) }')
for driver in tcp ucx; do
    echo "rendezvous = { address = \"127.0.0.1:$port\"; insecure = true; join_timeout = \"30 s\"; };
        link = { driver = \"$driver\"; devices = \"lo\"; private_memory = true;
                 $([ $driver = tcp ] || echo 'transports = "tcp";') };" >"$scratch/$driver.cfg"
    port=$((port + 1))
done
links() { # NAME FLAGS
    # The words of the flags are to be split.
    # shellcheck disable=SC2086
    OMPI_CC=$cc MPICH_CC=$cc "mpicc.$1" -w -std=gnu11 "$scratch/main.c" "$scratch/appliance.c" \
        -o "$scratch/with_$1" $2 >"$scratch/log" 2>&1 || { cat "$scratch/log"; return 1; }
}
starts() { # NAME CONFIGURATION: two ranks, all of MPI's words and the library's
    case $1 in openmpi) more="--oversubscribe --mca btl self,vader" ;; *) more= ;; esac
    # shellcheck disable=SC2086
    timeout -k 5 100 "mpirun.$1" $more -n 2 "$scratch/with_$1" "$scratch/$2.cfg" >"$scratch/out" 2>&1 &&
        [ "$(grep -c "^rank [01] of MPI's 2: whole" "$scratch/out")" -eq 2 ] &&
        [ "$(grep -c '^rank [01] of 2: loss 0\.0' "$scratch/out")" -eq 2 ] &&
        [ "$(grep -c "of 2: open over $2" "$scratch/out")" -eq 2 ] || { tail -n 20 "$scratch/out"; return 1; }
}
for mpi in mpich openmpi; do
    if ! command -v mpicc.$mpi >/dev/null || ! command -v mpirun.$mpi >/dev/null; then
        skip "${mpi}_starts_beside_it" "not installed: $mpi with its headers (lib$mpi-dev)"
        continue
    fi
    case $mpi in mpich) flags=$packed ;; *) flags=$made ;; esac
    check "${mpi}_links_with_these_flags" links $mpi "$flags"
    check "${mpi}_starts_beside_it" starts $mpi tcp
    check "${mpi}_starts_beside_it_over_ucx" starts $mpi ucx
done
finish
