/* Each call of UCX that the driver makes fails once, in a link that is opened, connected, used,
 * reset and closed, and so does each request while it is under way: the link says so by name, the
 * peer goes on, nothing is left open. program_ucx_faults.c meets the calls on the way to UCX.
 * suite: slow */
#include "firmware-tests/support/open_files.h"
#include "firmware-tests/support/suite.h"
#include "firmware-tests/ucx/ucx_faults.h"
#include "firmware-tests/support/ucx_ranks.h"

#include "drivers/base/clock.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES 100000u
#define CALLS_MAX 400u
#define QUIET_NS UINT64_C(20000000)

/* ---- the life of a link ---- */

static struct shared {
    uint32_t failed; /* the life in which a rank has failed */
    uint32_t met;    /* .. in which the call was met */
    uint32_t here[2];
    uint32_t said[2]; /* times that an endpoint was told */
    size_t endpoint_bytes[2];
    unsigned char endpoint[2][2048];
} * shared;

static uint32_t get(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
static void put(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Waits for the other rank outside of the link. */
static void meet(struct ranks_one *one)
{
    put(&shared->here[one->rank], shared->here[one->rank] + 1);
    while (get(&shared->here[1 - one->rank]) < shared->here[one->rank]) (void)sched_yield();
}

static gf_status moved(struct ranks_one *one, uint32_t life)
{
    bool moved = one->link->driver->progress(one->link);
    if (get(&shared->failed) == life) return GF_ERR_PEER;
    (void)sched_yield();
    if (one->link->failed != GF_OK) return one->link->failed;
    return moved ? GF_OK : GF_AGAIN;
}

static gf_status connect_both(struct ranks_one *one, uint32_t life, uint32_t times)
{
    uint32_t peer = 1 - one->rank;
    size_t *bytes = &shared->endpoint_bytes[one->rank];
    gf_status status = one->link->driver->endpoint(one->link, shared->endpoint[one->rank], bytes);
    if (status < 0) return status;
    put(&shared->said[one->rank], times);
    while ((status >= 0) && (get(&shared->said[peer]) < times)) status = moved(one, life);
    if (status < 0) return status;
    do {
        status = one->link->driver->connect(one->link, peer, shared->endpoint[peer],
                                            shared->endpoint_bytes[peer]);
        if ((status == GF_AGAIN) && (moved(one, life) < 0)) return GF_ERR_PEER;
    } while (status == GF_AGAIN);
    return status;
}

static gf_status talk(struct ranks_one *one, uint32_t life, uint32_t number)
{
    static unsigned char out[BYTES];
    static unsigned char in[BYTES];
    static const size_t sizes[] = {8, BYTES};
    const struct gf_link_driver *driver = one->link->driver;
    uint32_t peer = 1 - one->rank;
    for (uint32_t s = 0; s < LENGTH(sizes); s++) {
        gf_status status;
        gf_status ends[2] = {GF_AGAIN, GF_AGAIN};
        uint64_t tag = ranks_tag(2 * number + s);
        ranks_fill(out, sizes[s], one->rank + number);
        status =
            driver->recv_post(one->link, peer, tag, (gf_mem)(uintptr_t)in, sizes[s], one->reqs[0]);
        if (status < 0) return status;
        status =
            driver->send_post(one->link, peer, tag, (gf_mem)(uintptr_t)out, sizes[s], one->reqs[1]);
        if (status < 0) return status;
        while ((ends[0] == GF_AGAIN) || (ends[1] == GF_AGAIN)) {
            if ((status = moved(one, life)) < 0) return status;
            for (int i = 0; i < 2; i++)
                if ((ends[i] = driver->test(one->link, one->reqs[i])) < 0) return ends[i];
        }
        RANK_CHECK(one, ranks_filled(in, sizes[s], peer + number));
    }
    if (number == 1) (void)driver->arm(one->link);
    return one->link->failed;
}

static gf_status used(struct ranks_one *one, uint32_t life)
{
    gf_status status;
    for (uint32_t times = 1; times <= 2; times++) {
        if ((status = connect_both(one, life, 2 * life + times)) < 0) return status;
        if ((status = talk(one, life, times)) < 0) return status;
        if ((status = talk(one, life, times + 4)) < 0) return status;
        if ((times == 1) &&
            ((status = one->link->driver->reset(one->link, 2, one->rank, one->world)) < 0))
            return status;
    }
    return GF_OK;
}

/* What is under way ends: UCX's tcp aborts (an assertion in tcp_ep.c) where a worker ends while it
 * writes to a peer. */
static void wait_quiet(struct ranks_one *one)
{
    uint64_t quiet_ns = gf_clock_monotonic.now_ns(NULL);
    put(&shared->here[one->rank], shared->here[one->rank] + 1);
    while (gf_clock_monotonic.now_ns(NULL) - quiet_ns < QUIET_NS) {
        bool met = get(&shared->here[1 - one->rank]) >= shared->here[one->rank];
        bool moved = false;
        if (one->link != NULL) moved = one->link->driver->progress(one->link);
        if (!met || moved) quiet_ns = gf_clock_monotonic.now_ns(NULL);
        (void)sched_yield();
    }
}

static void life_run(struct ranks_one *one, uint32_t life)
{
    struct gf_fault fault = {.code = GF_OK};
    uint32_t files = open_files();
    gf_status status;
    one->log[0] = '\0';
    one->link = NULL;
    ranks_setup(one, one->arg);
    ucx_faults_met = NULL;
    meet(one);
    ucx_faults_countdown = (one->rank == 0) ? life : 0;
    status = ranks_open_try(one, &fault);
    if (status >= 0) {
        status = used(one, life);
        fault = one->link->fault;
    }
    if ((status < 0) && (get(&shared->failed) != life)) put(&shared->failed, life);
    ucx_faults_countdown = 0;
    wait_quiet(one);
    if ((one->link != NULL) && (status < 0)) one->link->driver->drop(one->link);
    if (one->link != NULL) one->link->driver->close(one->link);
    if ((one->rank == 0) && (status < 0) && (status != GF_ERR_PEER)) {
        RANK_CHECK(one, (ucx_faults_met != NULL) && (fault.code < 0) && (fault.text[0] != '\0'));
        RANK_CHECK(one, (fault.code == status) || (status == GF_ERR_LINK));
    }
    if ((one->rank == 0) && (ucx_faults_met != NULL)) put(&shared->met, life);
    meet(one);
    if ((getenv("CALLS") != NULL) && (one->rank == 0))
        fprintf(stderr, "%u %s: %s: %s\n", life, ucx_faults_met, fault.foreign_call, fault.text);
    RANK_CHECK(one, open_files() == files);
    for (uint32_t i = 0; i < RANKS_REQS; i++) free((void *)one->reqs[i]);
    free(one->state);
    one->link = NULL;
}

static void lives_body(struct ranks_one *one)
{
    uint32_t life = 0;
    do RANK_CHECK(one, ++life < CALLS_MAX);
    while ((life_run(one, life), meet(one), get(&shared->met) == life));
    /* with UCX 1.13 52, and 17 where messages are the node's; 47 and 13 with a dynamic one */
    RANK_CHECK(one, life > ((strcmp(one->arg, "tcp") == 0) ? 30u : 10u));
}

TEST(each_call_of_ucx_fails_once)
{
    static const char *const transports[] = {"tcp", "node,tcp"};
    for (size_t i = 0; i < LENGTH(transports); i++) {
        shared =
            mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(shared, MAP_FAILED);
        ranks_run(2, 0, lives_body, transports[i]);
        (void)munmap(shared, sizeof *shared);
    }
}
