/* Any MPI's allreduce: mpicc -O3 bench_mpi.c; options in bench_peer.h. */
#include <mpi.h>

#include "firmware-tests/bench/bench_peer.h"

static void mpi_sum(struct bench_peer *peer, size_t first, size_t elem_count)
{
    MPI_Allreduce(MPI_IN_PLACE, peer->data + first, (int)elem_count, MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
}

static void mpi_barrier(struct bench_peer *peer)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static double mpi_greatest(struct bench_peer *peer, double value)
{
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    struct bench_peer peer = {.sum = mpi_sum, .barrier = mpi_barrier, .greatest = mpi_greatest};
    int code;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.world);
    code = bench_options(&bench, argc, argv, "", NULL);
    if (code == 0) {
        /* From the heap, so that what users do with its settings applies. */
        peer.data = malloc(bench.elems_max * sizeof(float));
        code = (peer.data == NULL) ? 1 : bench_run(&peer, &bench);
        free(peer.data);
    }
    MPI_Finalize();
    return code != 0;
}
