/* UCC's allreduce: cc -O3 bench_ucc.c -lucc; options in bench_peer.h, and -w WORLD -r RANK -d
 * FOLDER (empty, shared), -y where cores are shared. Requests are persistent, as a trainer would
 * keep them. */
#include <fcntl.h>
#include <sched.h>

#include <ucc/api/ucc.h>

#include "firmware-tests/bench/bench_peer.h"

#define REQUESTS_MAX 4096

static struct request {
    void *data;
    size_t elem_count;
    ucc_coll_req_h handle;
} kept[REQUESTS_MAX];
static int kept_count;
static int world = 1, rank, yields;
static const char *folder = ".";
static ucc_context_h context;
static ucc_team_h team;

static void own_option(int letter, const char *value)
{
    switch (letter) {
    case 'w': world = atoi(value); break;
    case 'r': rank = atoi(value); break;
    case 'd': folder = value; break;
    case 'y': yields = 1; break;
    }
}

static void need(ucc_status_t status, const char *call)
{
    if (status == UCC_OK) return;
    fprintf(stderr, "rank %d: %s: %s\n", rank, call, ucc_status_string(status));
    exit(1);
}

/* ---- before there is a team: ranks leave files for each other, which appear whole ---- */

struct gather {
    char *into;
    size_t bytes;
    int number;
};

static void path_of(char *path_out, size_t room, int number, int whose)
{
    snprintf(path_out, room, "%s/%d.%d", folder, number, whose);
}

static ucc_status_t gather_post(void *own, void *into, size_t bytes, void *info, void **request_out)
{
    static int number;
    struct gather *gather = malloc(sizeof *gather);
    char path[512];
    char hidden[520];
    FILE *file;
    (void)info;
    if (gather == NULL) return UCC_ERR_NO_MEMORY;
    *gather = (struct gather){into, bytes, number++};
    path_of(path, sizeof path, gather->number, rank);
    snprintf(hidden, sizeof hidden, "%s.new", path);
    file = fopen(hidden, "w");
    if ((file == NULL) || (fwrite(own, 1, bytes, file) != bytes) || (fclose(file) != 0) ||
        (rename(hidden, path) != 0))
        return UCC_ERR_NO_MESSAGE;
    *request_out = gather;
    return UCC_OK;
}

static ucc_status_t gather_test(void *request)
{
    const struct gather *gather = request;
    for (int whose = 0; whose < world; whose++) {
        char path[512];
        FILE *file;
        size_t came;
        path_of(path, sizeof path, gather->number, whose);
        if ((file = fopen(path, "r")) == NULL) return UCC_INPROGRESS;
        came = fread(gather->into + (size_t)whose * gather->bytes, 1, gather->bytes, file);
        fclose(file);
        if (came != gather->bytes) return UCC_ERR_NO_MESSAGE;
    }
    return UCC_OK;
}

static ucc_status_t gather_free(void *request)
{
    free(request);
    return UCC_OK;
}

static void ucc_begin(void)
{
    ucc_oob_coll_t gather = {.allgather = gather_post,
                             .req_test = gather_test,
                             .req_free = gather_free,
                             .n_oob_eps = (uint32_t)world,
                             .oob_ep = (uint32_t)rank};
    ucc_lib_params_t of_library = {.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE,
                                   .thread_mode = UCC_THREAD_SINGLE};
    ucc_context_params_t of_context = {.mask = UCC_CONTEXT_PARAM_FIELD_OOB, .oob = gather};
    ucc_team_params_t of_team = {.mask = UCC_TEAM_PARAM_FIELD_OOB | UCC_TEAM_PARAM_FIELD_EP |
                                         UCC_TEAM_PARAM_FIELD_EP_RANGE,
                                 .oob = gather,
                                 .ep = (uint64_t)rank,
                                 .ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG};
    ucc_lib_config_h library_config;
    ucc_context_config_h context_config;
    ucc_lib_h library;
    ucc_status_t status;
    need(ucc_lib_config_read(NULL, NULL, &library_config), "ucc_lib_config_read");
    need(ucc_init(&of_library, library_config, &library), "ucc_init");
    ucc_lib_config_release(library_config);
    need(ucc_context_config_read(library, NULL, &context_config), "ucc_context_config_read");
    need(ucc_context_create(library, &of_context, context_config, &context), "ucc_context_create");
    ucc_context_config_release(context_config);
    need(ucc_team_create_post(&context, 1, &of_team, &team), "ucc_team_create_post");
    while ((status = ucc_team_create_test(team)) == UCC_INPROGRESS)
        (void)ucc_context_progress(context);
    need(status, "ucc_team_create_test");
}

/* ---- operations ---- */

static void run(ucc_coll_req_h handle)
{
    ucc_status_t status;
    need(ucc_collective_post(handle), "ucc_collective_post");
    while ((status = ucc_collective_test(handle)) == UCC_INPROGRESS) {
        (void)ucc_context_progress(context);
        if (yields) (void)sched_yield();
    }
    need(status, "ucc_collective_test");
}

static ucc_coll_req_h made(void *data, size_t elem_count, ucc_coll_type_t type, ucc_datatype_t of,
                           ucc_reduction_op_t how)
{
    ucc_coll_args_t args = {.mask = UCC_COLL_ARGS_FIELD_FLAGS,
                            .coll_type = type,
                            .op = how,
                            .flags = UCC_COLL_ARGS_FLAG_IN_PLACE | UCC_COLL_ARGS_FLAG_PERSISTENT};
    ucc_coll_req_h handle;
    args.dst.info = args.src.info =
        (ucc_coll_buffer_info_t){data, elem_count, of, UCC_MEMORY_TYPE_HOST};
    need(ucc_collective_init(&args, &handle, team), "ucc_collective_init");
    return handle;
}

static void ucc_sum(struct bench_peer *peer, size_t first, size_t elem_count)
{
    float *data = peer->data + first;
    static int last;
    /* tensors come in turn */
    for (int turn = 0; turn < kept_count; turn++, last = (last + 1) % kept_count)
        if ((kept[last].data == data) && (kept[last].elem_count == elem_count))
            return run(kept[last].handle);
    if (kept_count == REQUESTS_MAX) need(UCC_ERR_NO_RESOURCE, "requests");
    kept[kept_count] = (struct request){
        data, elem_count,
        made(data, elem_count, UCC_COLL_TYPE_ALLREDUCE, UCC_DT_FLOAT32, UCC_OP_SUM)};
    run(kept[kept_count++].handle);
}

static void ucc_barrier(struct bench_peer *peer)
{
    static ucc_coll_req_h handle;
    (void)peer;
    if (handle == NULL) handle = made(NULL, 0, UCC_COLL_TYPE_BARRIER, UCC_DT_FLOAT32, UCC_OP_SUM);
    run(handle);
}

static double ucc_greatest(struct bench_peer *peer, double value)
{
    static ucc_coll_req_h handle;
    static double most;
    (void)peer;
    if (handle == NULL)
        handle = made(&most, 1, UCC_COLL_TYPE_ALLREDUCE, UCC_DT_FLOAT64, UCC_OP_MAX);
    most = value;
    run(handle);
    return most;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    struct bench_peer peer = {.sum = ucc_sum, .barrier = ucc_barrier, .greatest = ucc_greatest};
    int code;
    if (bench_options(&bench, argc, argv, "w:r:d:y", own_option) != 0) return 2;
    ucc_begin();
    peer.data = malloc(bench.elems_max * sizeof(float)); /* from the heap, as MPI's */
    peer.rank = rank;
    peer.world = world;
    code = (peer.data == NULL) ? 1 : bench_run(&peer, &bench);
    ucc_barrier(&peer); /* nobody leaves while another still reads */
    return code;
}
