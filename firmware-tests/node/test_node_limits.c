/* What a host refuses a rank of a node: limits, signals, calls, mappings and descriptors.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/node_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REGION ((size_t)1 << 20)
#define REQS 32u

static struct node_rank ranks[NODE_RANKS];

static void limited(int what, rlim_t most, const char *text)
{
    pid_t child;
    NODE_CHILD(child)
    {
        const struct rlimit limit = {most, most};
        node_ranks_begin(ranks, 2, (size_t)64 << 20, REQS);
        if (setrlimit((__rlimit_resource_t)what, &limit) != 0) _exit(2);
        if (node_rank_open(&ranks[0]) != GF_ERR_SYSTEM) _exit(3);
        if (strstr(ranks[0].link.fault.text, text) == NULL) {
            fprintf(stderr, "%s\n", ranks[0].link.fault.text);
            _exit(4);
        }
        _exit(0);
    }
    assert_int_equal(node_child_ended(child), 0);
}

TEST(limits_are_told_before_memory_is_taken)
{
    char text[200];
    limited(RLIMIT_FSIZE, 1 << 20, "ulimit -f");
#ifndef __SANITIZE_ADDRESS__ /* whose allocator would end the process: it maps memory, too */
    limited(RLIMIT_AS, 64 << 20, "ulimit -v");
#endif
    assert_string_equal(gf_node_limits_text(1u << 20, true, text, sizeof text), "");
    assert_non_null(strstr(gf_node_limits_text((size_t)1 << 45, false, text, sizeof text), "MiB"));
    node_ranks_begin(ranks, 2, (size_t)1 << 45, REQS);
    assert_int_equal(node_rank_open(&ranks[0]), GF_ERR_SYSTEM);
    assert_non_null(strstr(ranks[0].link.fault.text, "an exchange region of 35184"));
    free(ranks[0].state);
}

/* As Linux 6.1 does under a timer: a call that takes longer than the timer, or in which it rings,
 * is ended and what it had taken is given back. */
static struct {
    off_t longest;  /* of a call that ends in time; 0: any */
    uint32_t every; /* a signal comes in each so many'th; 0: in none */
    uint32_t calls;
} signals;

int fallocate(int fd, int mode, off_t offset, off_t length)
{
    const bool rings = (signals.every > 0) && (++signals.calls % signals.every == 0);
    if (rings || ((signals.longest > 0) && (length > signals.longest))) {
        errno = EINTR;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

TEST(a_signal_while_memory_is_taken_ends_nothing)
{
    static const struct {
        off_t longest;
        uint32_t every;
        bool huge;
        gf_status status;
    } rows[] = {{10 << 20, 0, false, GF_OK}, {0, 2, false, GF_OK},
                {8192, 0, false, GF_OK},     {8192, 3, false, GF_OK},
                {10 << 20, 2, true, GF_OK},  {1, 0, false, GF_ERR_SYSTEM},
                {0, 1, false, GF_ERR_SYSTEM}};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        node_ranks_begin(ranks, 2, (size_t)64 << 20, REQS);
        ranks[0].setup.huge_pages = rows[i].huge;
        signals.longest = rows[i].longest;
        signals.every = rows[i].every;
        assert_int_equal(node_rank_open(&ranks[0]), rows[i].status);
        if (rows[i].status == GF_OK) {
            assert_true(ranks[0].node->shared);
            assert_int_equal(gf_node_reset(ranks[0].node, 2, 0, 2, false),
                             GF_OK); /* the next generation */
            node_rank_close(&ranks[0]);
        } else {
            if (strstr(ranks[0].link.fault.text, "fallocate: Interrupted system call") == NULL)
                fail_msg("row %zu: %s", i, ranks[0].link.fault.text);
            free(ranks[0].state);
        }
        memset(&signals, 0, sizeof signals);
    }
}

/* The host says EPERM to this call from here on, where its argument has this bit. */
static bool call_refuse(unsigned call, unsigned argument, unsigned bit)
{
    const unsigned at = (unsigned)(offsetof(struct seccomp_data, args) + 8 * argument);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at), /* its low half, of a little-endian host */
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bit, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog program = {.len = LENGTH(filter), .filter = filter};
    return (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) &&
           (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Where the host refuses a part of it, as containers do, the rank says so in one line and is alone
 * on its node: the network's. */
TEST(what_a_host_refuses_shares_nothing)
{
    static const struct {
        unsigned call, argument, bit;
        const char *text;
    } rows[] = {{SYS_memfd_create, 1, ~0u, "memfd_create() is refused"},
                {SYS_mmap, 3, MAP_SHARED, "mmap() is refused"},
                {SYS_socket, 0, AF_UNIX, "it has no unix socket"},
                {SYS_sendmsg, 0, ~0u, "descriptors cannot be passed"}};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        pid_t child;
        NODE_CHILD(child)
        {
            node_ranks_begin(ranks, 2, REGION, REQS);
            if (!call_refuse(rows[i].call, rows[i].argument, rows[i].bit)) _exit(2);
            if (node_rank_open(&ranks[0]) != GF_OK) _exit(3);
            ranks[0].link.region[REGION - 1] = 1;
            if ((ranks[0].link.node != ranks[0].node->alone) || ranks[0].node->shared) _exit(4);
            if (strstr(ranks[0].log, rows[i].text) == NULL) {
                fprintf(stderr, "%s\n", ranks[0].log);
                _exit(5);
            }
            _exit(0);
        }
        assert_int_equal(node_child_ended(child), 0);
    }
}

/* A process that may map one more, and not all: it is known at open, not when they are
 * connected. */
TEST(a_mapping_that_would_be_refused_later_is_known_at_open)
{
    pid_t child;
    NODE_CHILD(child)
    {
        static void *one[1u << 17];
        const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
        size_t count = 0;
        node_ranks_begin(ranks, 1, 4096, REQS);
        ranks[0].setup.world = ranks[0].setup.ranks_max = 64;
        while (count < LENGTH(one)) { /* neighbours differ, so that none is joined */
            void *at = mmap(NULL, page_bytes, (count % 2) ? PROT_READ : PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (at == MAP_FAILED) break;
            one[count++] = at;
        }
        if (count == LENGTH(one)) _exit(100); /* this host has no such limit */
        for (uint32_t spare = 20; spare <= 200; spare += 180) {
            for (uint32_t i = 0; i < spare; i++) (void)munmap(one[--count], page_bytes);
            if (node_rank_open(&ranks[0]) != GF_OK) _exit(2);
            if ((ranks[0].link.node == ranks[0].node->alone) != (spare < 64)) _exit(3);
            node_rank_close(&ranks[0]);
        }
        _exit(0);
    }
    int ended = node_child_ended(child);
    if (ended == 100) skip();
    assert_int_equal(ended, 0);
}

/* .. and what is set as soon as they are open refuses nothing: their places are taken. */
TEST(a_limit_that_is_set_after_open_refuses_no_mapping)
{
    pid_t child;
    NODE_CHILD(child)
    {
        struct rlimit limit = {0, 0};
        unsigned long pages;
        node_ranks_begin(ranks, 3, REGION, REQS);
        for (uint32_t r = 0; r < 3; r++)
            if (node_rank_open(&ranks[r]) != GF_OK) _exit(2);
        FILE *statm = fopen("/proc/self/statm", "r");
        if ((statm == NULL) || (fscanf(statm, "%lu", &pages) != 1)) _exit(3);
        limit.rlim_cur = limit.rlim_max = pages * (rlim_t)sysconf(_SC_PAGESIZE);
        if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(4);
        if (!node_ranks_connect(ranks, 3)) _exit(5);
        for (uint32_t r = 0; r < 3; r++)
            if (!gf_node_has(ranks[r].node, (r + 1) % 3)) _exit(6);
        _exit(0);
    }
    assert_int_equal(node_child_ended(child), 0);
}

TEST(many_ranks_connect_with_few_descriptors)
{
    enum { MANY = 64 };
    struct node_offer(*offers)[MANY] = mmap(NULL, sizeof *offers + 4096, PROT_READ | PROT_WRITE,
                                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint32_t *there = (uint32_t *)(void *)((char *)offers + sizeof *offers);
    pid_t children[MANY];
    fflush(NULL);
    for (uint32_t rank = 0; rank < MANY; rank++) {
        if ((children[rank] = fork()) != 0) continue;
        const struct rlimit few = {20, 20};
        struct node_rank *one = &ranks[0];
        uint32_t up = 0;
        (void)alarm(100);
        (void)setrlimit(RLIMIT_NOFILE, &few);
        node_ranks_begin(ranks, 1, 4096, REQS);
        one->setup.rank = rank;
        one->setup.world = one->setup.ranks_max = MANY;
        if (node_rank_open(one) != GF_OK) _exit(2);
        gf_node_offer_put(one->node, (unsigned char *)&(*offers)[rank]);
        (void)__atomic_add_fetch(&there[0], 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&there[0], __ATOMIC_SEQ_CST) < MANY) (void)usleep(1000);
        while (up < MANY) {
            up = 0;
            for (uint32_t peer = 0; peer < MANY; peer++) {
                gf_status status =
                    gf_node_connect(one->node, peer, (unsigned char *)&(*offers)[peer],
                                    sizeof(*offers)[peer], node_now_ns());
                if (status < 0) _exit(3);
                up += (status == GF_OK);
            }
            if ((up < MANY) && gf_node_arm(one->node))
                (void)poll(&(struct pollfd){.fd = gf_node_wake_fd(one->node), .events = POLLIN}, 1,
                           10);
            (void)gf_node_progress(one->node);
        }
        (void)__atomic_add_fetch(&there[1], 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&there[1], __ATOMIC_SEQ_CST) < MANY) (void)usleep(1000);
        gf_node_close(one->node);
        _exit(0);
    }
    for (uint32_t rank = 0; rank < MANY; rank++)
        assert_int_equal(node_child_ended(children[rank]), 0);
    (void)munmap(offers, sizeof *offers + 4096);
}
