/* The memory of a node: who maps whose, and when a rank keeps its own from one generation to the
 * next.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/node_ranks.h"
#include "firmware-tests/support/open_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION ((size_t)1 << 20)
#define REQS 32u

static struct node_rank ranks[NODE_RANKS];
static unsigned char data[NODE_RANKS][2][1u << 20]; /* outside of every region */

TEST(each_rank_maps_the_regions_of_all_others)
{
    uint32_t fds = open_files();
    node_ranks_open(ranks, 5, REGION, REQS);
    for (uint32_t r = 0; r < 5; r++)
        for (uint32_t peer = 0; peer < 5; peer++) {
            unsigned char *at = gf_node_map(ranks[r].node, peer);
            assert_non_null(at);
            assert_true((r == peer) ? (at == ranks[r].link.region)
                                    : (at != ranks[peer].link.region));
            at[r] = (unsigned char)(100 + r);
            if (r != peer) gf_node_flag_store(ranks[r].node, peer, 64 + 8 * r, 1000 + r);
        }
    for (uint32_t r = 0; r < 5; r++)
        for (uint32_t peer = 0; peer < 5; peer++) {
            assert_int_equal(ranks[r].link.region[peer], 100 + peer);
            assert_true((r == peer) ||
                        (gf_flag_load(&ranks[r].link, 64 + 8 * peer) == 1000 + peer));
        }
    assert_int_equal(open_files(),
                     fds + 2 * 5); /* a memfd and a socket each, and none of the others' */
    assert_true((ranks[0].link.node != 0) && (ranks[0].link.node == ranks[4].link.node));
    assert_int_equal(ranks[0].link.private_bytes, 0);
    assert_int_equal(ranks[0].node->memory_bytes, REGION + gf_node_bytes(&ranks[0].setup));
    node_ranks_close(ranks, 5);
    assert_int_equal(open_files(), fds);
}

TEST(nobody_takes_bytes_away_that_somebody_has_mapped)
{
    int fd;
    node_ranks_open(ranks, 2, REGION, REQS);
    fd = ranks[0].node->memory_fd;
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, (off_t)ranks[0].node->memory_bytes * 2), -1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
                     F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    node_ranks_close(ranks, 2);
}

/* A job that shares nothing: memory of each process alone, and no socket. */
TEST(what_is_not_to_be_shared_is_not)
{
    node_ranks_begin(ranks, 2, REGION, REQS);
    for (uint32_t r = 0; r < 2; r++) {
        ranks[r].setup.private_memory = true;
        assert_int_equal(node_rank_open(&ranks[r]), GF_OK);
        assert_true((ranks[r].link.node != 0) && (ranks[r].link.node != ranks[1 - r].link.node));
        assert_true(ranks[r].link.private_bytes >= REGION);
        assert_int_equal(gf_node_wake_fd(ranks[r].node), -1);
        ranks[r].link.region[REGION - 1] = 1;
    }
    assert_true(node_ranks_connect(ranks, 2));
    assert_false(gf_node_has(ranks[0].node, 1));
    assert_null(gf_node_map(ranks[0].node, 1));
    assert_non_null(gf_node_map(ranks[0].node, 0));
    for (uint32_t r = 0; r < 2; r++) /* what was measured is what it takes */
        assert_int_equal(ranks[r].node->memory_bytes, REGION + gf_node_bytes(&ranks[r].setup));
    assert_true(gf_node_bytes(&ranks[0].setup) < 65536);
    node_ranks_close(ranks, 2);
}

/* Whoever reads a peer's region takes it for as large as its own. */
TEST(regions_of_two_sizes_are_not_shared)
{
    node_ranks_begin(ranks, 3, REGION, REQS);
    ranks[2].setup.region_bytes = REGION / 2;
    for (uint32_t r = 0; r < 3; r++) assert_int_equal(node_rank_open(&ranks[r]), GF_OK);
    assert_true(ranks[0].link.node == ranks[1].link.node);
    assert_true(ranks[0].link.node != ranks[2].link.node); /* so the job opens a network */
    assert_true(node_ranks_connect(ranks, 3));
    assert_non_null(gf_node_map(ranks[0].node, 1));
    assert_non_null(gf_node_map(ranks[1].node, 0));
    for (uint32_t r = 0; r < 2; r++) {
        assert_null(gf_node_map(ranks[r].node, 2));
        assert_null(gf_node_map(ranks[2].node, r));
        assert_non_null(strstr(ranks[r].log, "differ in size"));
    }
    node_ranks_close(ranks, 3);
}

/* Rank 0 is not done yet as rank 1 is reset. */
TEST(a_reset_takes_other_memory)
{
    node_ranks_open(ranks, 2, REGION, REQS);
    for (uint32_t generation = 2; generation < 6; generation++) {
        unsigned char *theirs = gf_node_map(ranks[0].node, 1);
        uint64_t canary = ranks[1].node->canary;
        void *kept =
            mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ranks[1].node->memory_fd, 0);
        theirs[0] = 7;
        node_send(ranks, 0, 1, 5, data[0][0], 100, 0);
        node_send(ranks, 0, 1, 6, data[0][0], 100000, 1);
        node_recv(ranks, 1, 0, 9, data[1][0], 10, 0);
        for (uint32_t r = 2; r-- > 0;) {
            assert_int_equal(gf_node_reset(ranks[r].node, generation, r, 2, true), GF_OK);
            assert_int_equal(ranks[r].link.region[0], 0);
            assert_null(gf_node_map(ranks[r].node, 1 - r));
        }
        assert_int_equal(node_test(ranks, 0, 0), GF_OK);
        assert_int_equal(node_test(ranks, 0, 1), GF_ERR_ABORTED);
        assert_int_equal(node_test(ranks, 1, 0), GF_ERR_ABORTED);
        assert_true(canary != ranks[1].node->canary);
        ((volatile unsigned char *)kept)[1] = 9; /* an excluded rank that still writes */
        assert_int_equal(ranks[1].link.region[1], 0);
        (void)munmap(kept, 4096);
        assert_true(node_ranks_connect(ranks, 2));
        node_recv(ranks, 1, 0, 5, data[1][0], 50, 0);
        node_send(ranks, 0, 1, 5, data[0][0], 50, 0);
        assert_int_equal(node_ranks_end(ranks, 2, 1, 0), GF_OK);
    }
    node_ranks_close(ranks, 2);
}

static ino_t memory_of(const struct node_rank *one)
{
    struct stat at;
    assert_int_equal(fstat(one->node->memory_fd, &at), 0);
    return at.st_ino;
}

/* Of rank 0, which goes on with rank 1. What became of rank 2 decides. */
TEST(memory_stays_where_nobody_else_can_write_there_any_more)
{
    static const struct {
        bool first_quiesces;
        bool last_quiesces;
        bool last_ends;
        bool may_keep;
        bool stays;
        bool drops; /* the first forgets who had its memory */
    } rows[] = {{true, true, false, true, true, false},   {true, false, true, true, true, false},
                {true, false, false, true, false, false}, {false, false, true, true, false, false},
                {false, true, false, true, false, false}, {true, true, false, false, false, false},
                {true, false, true, false, false, false}, {true, false, false, true, false, true},
                {true, true, false, true, false, true}};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        node_ranks_open(ranks, 3, REGION, REQS);
        const ino_t before = memory_of(&ranks[0]);
        unsigned char *theirs = gf_node_map(ranks[2].node, 0);
        unsigned char *late = theirs + REGION / 2;
        memset(theirs, 7, REGION);
        node_send(ranks, 1, 0, 5, data[1][0], 100, 0);
        (void)gf_node_progress(ranks[0].node);
        if (rows[i].drops) gf_node_drop(ranks[0].node);
        gf_node_quiesce(ranks[0].node);
        assert_null(gf_node_map(ranks[0].node, 1));
        if (rows[i].first_quiesces) gf_node_quiesce(ranks[1].node);
        if (rows[i].last_quiesces) gf_node_quiesce(ranks[2].node);
        if (rows[i].last_ends) node_rank_close(&ranks[2]);
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(gf_node_reset(ranks[r].node, 2, r, 2, rows[i].may_keep), GF_OK);
        if ((memory_of(&ranks[0]) == before) != rows[i].stays) fail_msg("row %zu", i);
        if (!rows[i].last_quiesces && !rows[i].last_ends) *late = 9; /* it wakes up */
        assert_int_equal(ranks[0].link.region[0], 0);
        assert_memory_equal(ranks[0].link.region, ranks[0].link.region + 1, REGION - 1);
        assert_true(node_ranks_connect(ranks, 2));
        node_recv(ranks, 0, 1, 6, data[0][0], 50, 0);
        node_send(ranks, 1, 0, 6, data[1][0], 50, 0);
        assert_int_equal(node_ranks_end(ranks, 2, 0, 0), GF_OK);
        node_ranks_close(ranks, rows[i].last_ends ? 2 : 3);
    }
}

/* Of three ranks the first leaves and comes back as the last. */
TEST(a_reset_gives_each_its_rank_of_the_next_generation)
{
    node_ranks_open(ranks, 3, REGION, REQS);
    for (uint32_t generation = 2; generation < 8; generation++) {
        const uint32_t world = (generation % 2 == 0) ? 2 : 3;
        struct node_rank first = ranks[0];
        gf_node_drop(first.node);
        for (uint32_t r = 0; r < 2; r++) ranks[r] = ranks[r + 1];
        ranks[2] = first;
        for (uint32_t r = 0; r < 3; r++) ranks[r].node->link = &ranks[r].link;
        for (uint32_t r = 0; r < world; r++) {
            assert_int_equal(gf_node_reset(ranks[r].node, generation, r, world, true), GF_OK);
            assert_ptr_equal(gf_node_map(ranks[r].node, r), ranks[r].link.region);
        }
        assert_true(node_ranks_connect(ranks, world));
        for (uint32_t r = 0; r < world; r++)
            for (uint32_t peer = 0; peer < 3; peer++)
                assert_int_equal(gf_node_map(ranks[r].node, peer) != NULL, peer < world);
        node_recv(ranks, 1, 0, 5, data[1][0], 50, 0);
        node_send(ranks, 0, 1, 5, data[0][0], 50, 0);
        assert_int_equal(node_ranks_end(ranks, world, 1, 0), GF_OK);
    }
    node_ranks_close(ranks, 3);
}

/* The socket of a process that was killed is closed, that of one that is stopped is not. */
TEST(memory_stays_if_its_last_user_was_killed_and_not_if_it_is_stopped)
{
    static const int by[] = {SIGKILL, SIGSTOP};
    for (size_t i = 0; i < LENGTH(by); i++) {
        pid_t child;
        int status;
        int pipes[2][2];
        node_ranks_begin(ranks, 2, REGION, REQS);
        assert_int_equal(pipe(pipes[0]) | pipe(pipes[1]), 0);
        NODE_CHILD(child)
        {
            (void)alarm(60);
            (void)node_meet(&ranks[1], pipes);
            for (;;) (void)pause();
        }
        (void)alarm(60);
        assert_int_equal(node_meet(&ranks[0], pipes), GF_OK);
        const ino_t before = memory_of(&ranks[0]);
        (void)kill(child, by[i]);
        assert_int_equal(waitpid(child, &status, WUNTRACED), child);
        gf_node_quiesce(ranks[0].node);
        assert_int_equal(gf_node_reset(ranks[0].node, 2, 0, 1, true), GF_OK);
        assert_int_equal(memory_of(&ranks[0]) == before, by[i] == SIGKILL);
        if (by[i] == SIGSTOP) {
            (void)kill(child, SIGKILL);
            assert_int_equal(node_child_ended(child), 1000 + SIGKILL);
        }
        (void)alarm(0);
        node_rank_close(&ranks[0]);
        node_pipes_close(pipes);
    }
}

TEST(a_forked_child_closes_the_socket)
{
    pid_t child;
    node_ranks_open(ranks, 2, REGION, REQS);
    NODE_CHILD(child)
    {
        _exit(fcntl(ranks[0].node->socket_fd, F_GETFD) != -1 ||
              fcntl(ranks[0].node->memory_fd, F_GETFD) != -1);
    }
    assert_int_equal(node_child_ended(child), 0);
    assert_true(fcntl(ranks[0].node->socket_fd, F_GETFD) != -1);
    node_ranks_close(ranks, 2);
}

/* Nothing in any file system, with a rank alive and after it was killed. */
TEST(nothing_is_left_by_name)
{
    struct dirent *entry;
    DIR *folder;
    node_ranks_open(ranks, 2, REGION, REQS);
    folder = opendir("/dev/shm");
    while ((folder != NULL) && ((entry = readdir(folder)) != NULL))
        assert_null(strstr(entry->d_name, "gradientflow"));
    if (folder != NULL) (void)closedir(folder);
    node_ranks_close(ranks, 2);
}
