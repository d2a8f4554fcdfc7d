/* Ranks as processes, each with a link over UCX. The parent forks before UCX is touched and never
 * opens a link. */
#ifndef UCX_RANKS_H
#define UCX_RANKS_H

#include "drivers/link.h"

#define RANKS_MAX 3u
#define RANKS_REQS 64u
#define RANKS_MESSAGE_MAX ((size_t)1 << 20)

struct ranks_one {
    uint32_t rank, world, killed; /* killed: a bit each */
    int to[RANKS_MAX]; /* a socket to each other rank, for endpoints and for taking turns */
    const void *arg;   /* the test's row */
    struct gf_link_setup setup;
    struct gf_link *link;
    void *state;
    struct gf_req *reqs[RANKS_REQS];
    char log[8192]; /* all lines so far */
};

/* Ends this rank, and with it the test, where the condition does not hold. */
#define RANK_CHECK(one, condition)                                         \
    do {                                                                   \
        if (!(condition)) ranks_fail(one, __FILE__, __LINE__, #condition); \
    } while (0)
_Noreturn void ranks_fail(struct ranks_one *one, const char *file, int line, const char *what);

/* Runs body in `world` processes, and closes the link that it leaves open. Each must end by itself
 * with 0 within a time bound; a rank whose bit is set in killed must die of SIGKILL instead. Fails
 * the cmocka test otherwise. */
void ranks_run(uint32_t world, uint32_t killed, void (*body)(struct ranks_one *one),
               const void *arg);

/* The same over tcp, and with the memory of a node to choose as well: arg is the transports, "tcp"
 * or "node,tcp". */
void ranks_run_each(uint32_t world, uint32_t killed, void (*body)(struct ranks_one *one));

/* RANKS_TEST(name, world, killed) { .. }: a test whose body runs in each rank, as `one`, with
 * ranks_run_each(). */
#define RANKS_TEST(name, world, killed)             \
    static void name##_body(struct ranks_one *one); \
    TEST(name)                                      \
    {                                               \
        ranks_run_each(world, killed, name##_body); \
    }                                               \
    static void name##_body(struct ranks_one *one)

/* A tag as long as tags get. */
static inline uint64_t ranks_tag(uint32_t move)
{
    return gf_tag_message(gf_tag(1, 4095, 32767), move);
}

/* setup with transports and a region of 64 KiB; devices lo. Without "node," nothing is shared. */
void ranks_setup(struct ranks_one *one, const char *transports);
gf_status ranks_open_try(struct ranks_one *one, struct gf_fault *fault_out);
void ranks_open(struct ranks_one *one);  /* and connects all to all */
void ranks_begin(struct ranks_one *one); /* both, with the transports of arg */
/* of two; the peer's endpoint */
const void *ranks_begin_apart(struct ranks_one *one, size_t *size_bytes_out);
void ranks_connect(struct ranks_one *one);
gf_status ranks_connect_one(struct ranks_one *one, uint32_t peer, const void *endpoint,
                            size_t size_bytes);
/* A large message each way with each peer, as the library's warm-up has: until then UCX is still
 * setting up, and aborts if a peer that it is setting up with ends. */
void ranks_warm(struct ranks_one *one);
void ranks_endpoint_swap(struct ranks_one *one, uint32_t peer, void *endpoint_out,
                         size_t *size_bytes_out);
void ranks_close(struct ranks_one *one);

/* a barrier outside of the link, which is progressed meanwhile */
void ranks_meet(struct ranks_one *one);
void ranks_progress(struct ranks_one *one);
gf_status ranks_end(struct ranks_one *one, uint32_t req); /* progress until it has ended */
void ranks_send(struct ranks_one *one, uint32_t req, uint32_t to, uint64_t tag, const void *data,
                size_t size_bytes);
void ranks_recv(struct ranks_one *one, uint32_t req, uint32_t from, uint64_t tag, void *data,
                size_t size_bytes);

/* Bytes that depend on the seed and the place. */
void ranks_fill(void *data, size_t size_bytes, uint64_t seed);
bool ranks_filled(const void *data, size_t size_bytes, uint64_t seed);

#endif
