/* See gpu_program.h. Device memory of another process: exported here, imported there and the other
 * way round, read by a copy and by kernels as ranks of a node do. The second process is forked
 * before CUDA is begun, which no child may go on with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "firmware-tests/cuda/gpu_program.h"
#include "ops/element/cuda/ops_cuda.h"

#define ARENA_BYTES (UINT64_C(2) << 20)
#define ELEMS 70997u
#define BLOCKS 20u /* device.multiprocessors */
/* In an arena, from which place on: what the other process reads, and what is made of it. */
enum { AT_OWN = 0, AT_COPY = 512 << 10, AT_SUM = 1024 << 10 };

extern const struct gf_gpu_driver gf_gpu_cuda;
static float own[ELEMS], theirs[ELEMS], got[ELEMS];
static int to_other = -1;
static pid_t child;

static void peer_fail(const char *who, const char *what)
{
    fprintf(stderr, "gpu-check: memory of another process: %s: %s\n", who, what);
    exit(1);
}

static float value_of(bool is_child, uint32_t i)
{
    return (float)(i % 1021u) * 0.25f + (is_child ? 1000.0f : 0.125f);
}

/* A message, and beside it a descriptor. */
static void tell(const void *message, size_t bytes, int descriptor)
{
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (descriptor >= 0) {
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
    }
    if (sendmsg(to_other, &header, MSG_NOSIGNAL) != (ssize_t)bytes)
        peer_fail("the other process", "it has ended");
}

static int hear(void *message, size_t bytes)
{
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {.iov_base = message, .iov_len = bytes};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof control};
    int descriptor = -1;
    if (recvmsg(to_other, &header, MSG_WAITALL) != (ssize_t)bytes)
        peer_fail("the other process", "it has ended, or said nothing for 60 s");
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    if (rights != NULL) memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
    return descriptor;
}

static void compare(const char *who, const char *what, uint64_t at, const float *want)
{
    char text[128];
    gpu_download(got, gpu_program.gpu->arena + at, sizeof got);
    for (uint32_t i = 0; i < ELEMS; i++) {
        if (memcmp(&got[i], &want[i], sizeof got[i]) == 0) continue;
        (void)snprintf(text, sizeof text, "%s: element %u is %g, not %g", what, i, (double)got[i],
                       (double)want[i]);
        peer_fail(who, text);
    }
}

/* What the other process has at `base`: by a copy engine, by copy_n, and added to this one's. */
static void read_theirs(const char *who, gf_mem base, bool is_child)
{
    const gf_mem arena = gpu_program.gpu->arena;
    const gf_mem mine = arena + AT_OWN;
    const gf_mem copied = arena + AT_COPY;
    const gf_mem summed = arena + AT_SUM;
    const gf_mem far = base + AT_OWN;
    const uint64_t bytes = sizeof own;
    /* in the order of the ranks: the first process's are added first */
    const gf_mem src[2] = {is_child ? far : mine, is_child ? mine : far};
    struct gf_queue queue = gpu_program.queue;
    static float sums[ELEMS];
    queue.blocks_max = BLOCKS;
    queue.block_threads = GF_GPU_CHANNEL_THREADS;
    for (uint32_t i = 0; i < ELEMS; i++) sums[i] = value_of(false, i) + value_of(true, i);
    gpu_must(gf_gpu_cuda.copy(&queue, copied, far, bytes));
    compare(who, "a copy of it", AT_COPY, theirs);
    gpu_must(gf_gpu_cuda.zero(&queue, copied, bytes));
    gpu_must(gf_element_ops_cuda.copy_n(&queue, &copied, &far, &bytes, 1));
    compare(who, "a kernel's copy of it", AT_COPY, theirs);
    gpu_must(
        gf_element_ops_cuda.sum_n(&queue, &summed, 1, src, 2, GF_TYPE_F32, ELEMS, 0, NULL, NULL));
    compare(who, "a sum with it", AT_SUM, sums);
}

static void process_run(bool is_child)
{
    const char *who = is_child ? "the second process" : "the first process";
    unsigned char handle[GF_GPU_HANDLE_BYTES];
    unsigned char other[GF_GPU_HANDLE_BYTES];
    const struct timeval wait = {.tv_sec = 60};
    char word = 0;
    int descriptor = -1;
    gf_mem base;
    (void)setsockopt(to_other, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    gpu_open(ARENA_BYTES, ARENA_BYTES);
    for (uint32_t i = 0; i < ELEMS; i++) {
        own[i] = value_of(is_child, i);
        theirs[i] = value_of(!is_child, i);
    }
    gpu_upload(gpu_program.gpu->arena + AT_OWN, own, sizeof own);
    if (!gpu_program.gpu->exports)
        peer_fail(who, "this driver's memory cannot be exported: ranks go through host memory");
    gpu_must(gf_gpu_cuda.export_arena(gpu_program.gpu, handle, &descriptor));
    tell(handle, sizeof handle, descriptor);
    (void)close(descriptor);
    descriptor = hear(other, sizeof other);
    gpu_must(gf_gpu_cuda.import_arena(gpu_program.gpu, other, descriptor, &base));
    (void)close(descriptor);
    read_theirs(who, base, is_child);
    gf_gpu_cuda.give_back(gpu_program.gpu, other, base);
    tell(&word, sizeof word, -1); /* the other may take its memory away now */
    (void)hear(&word, sizeof word);
    gpu_close();
}

void gpu_peer_fork(void)
{
    int pair[2];
    if ((socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) || ((child = fork()) < 0)) {
        perror("gpu-check: a second process");
        exit(1);
    }
    to_other = pair[(child == 0) ? 1 : 0];
    (void)close(pair[(child == 0) ? 0 : 1]);
    if (child > 0) return;
    char word;
    gpu_json_forget();
    if (read(to_other, &word, sizeof word) != sizeof word) _exit(0); /* it was not needed */
    process_run(true);
    exit(0);
}

void gpu_peer_check(void)
{
    int status = 0;
    const char word = 0;
    tell(&word, sizeof word, -1);
    process_run(false);
    if ((waitpid(child, &status, 0) != child) || (status != 0))
        peer_fail("the second process", "it has failed");
    printf("gpu-check: device memory of another process: by copies, by copy_n and by sum_n of %u "
           "blocks, the host's bytes in both\n",
           BLOCKS);
    gpu_json_row("\"op\":\"another process\",\"same\":true,\"times\":%u", 6u);
}
