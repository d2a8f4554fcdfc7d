/* The memory and the messages of a node: ranks in one thread, and in processes where one of them is
 * killed, is another user's, or may open few files.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/node_ranks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REGION ((size_t)1 << 20)
#define REQS 32u

static struct node_rank ranks[NODE_RANKS];
static unsigned char data[NODE_RANKS][2][1u << 20]; /* outside of every region */

static void fill(unsigned char *to, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)((i * 2654435761u + seed * 40503u) >> 11);
}

static bool filled(const unsigned char *from, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (from[i] != (unsigned char)((i * 2654435761u + seed * 40503u) >> 11)) return false;
    return true;
}

static void post_send(uint32_t from, uint32_t to, uint64_t tag, const void *at, size_t bytes,
                      uint32_t req)
{
    assert_int_equal(
        gf_node_send_post(ranks[from].node, to, tag, at, bytes, &ranks[from].reqs[req]), GF_OK);
}

static void post_recv(uint32_t to, uint32_t from, uint64_t tag, void *at, size_t bytes,
                      uint32_t req)
{
    assert_int_equal(gf_node_recv_post(ranks[to].node, from, tag, at, bytes, &ranks[to].reqs[req]),
                     GF_OK);
}

static gf_status test(uint32_t rank, uint32_t req)
{
    return gf_node_test(ranks[rank].node, &ranks[rank].reqs[req]);
}

static void progress(uint32_t world)
{
    for (int i = 0; i < 100; i++)
        for (uint32_t r = 0; r < world; r++) (void)gf_node_progress(ranks[r].node);
}

static uint32_t fds_open(void)
{
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder) != NULL) count++;
    (void)closedir(folder);
    return count;
}

/* ---- memory ---- */

TEST(each_rank_maps_the_regions_of_all_others)
{
    uint32_t fds = fds_open();
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
    assert_int_equal(fds_open(),
                     fds + 2 * 5); /* a memfd and a socket each, and none of the others' */
    assert_true((ranks[0].link.node != 0) && (ranks[0].link.node == ranks[4].link.node));
    assert_int_equal(ranks[0].link.private_bytes, 0);
    assert_int_equal(ranks[0].node->memory_bytes, REGION + gf_node_bytes(&ranks[0].setup));
    node_ranks_close(ranks, 5);
    assert_int_equal(fds_open(), fds);
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
        post_send(0, 1, 5, data[0][0], 100, 0);
        post_send(0, 1, 6, data[0][0], 100000, 1);
        post_recv(1, 0, 9, data[1][0], 10, 0);
        for (uint32_t r = 2; r-- > 0;) {
            assert_int_equal(gf_node_reset(ranks[r].node, generation, r, 2, true), GF_OK);
            assert_int_equal(ranks[r].link.region[0], 0);
            assert_null(gf_node_map(ranks[r].node, 1 - r));
        }
        assert_int_equal(test(0, 0), GF_OK);
        assert_int_equal(test(0, 1), GF_ERR_ABORTED);
        assert_int_equal(test(1, 0), GF_ERR_ABORTED);
        assert_true(canary != ranks[1].node->canary);
        ((volatile unsigned char *)kept)[1] = 9; /* an excluded rank that still writes */
        assert_int_equal(ranks[1].link.region[1], 0);
        (void)munmap(kept, 4096);
        assert_true(node_ranks_connect(ranks, 2));
        post_recv(1, 0, 5, data[1][0], 50, 0);
        post_send(0, 1, 5, data[0][0], 50, 0);
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
        post_send(1, 0, 5, data[1][0], 100, 0);
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
        post_recv(0, 1, 6, data[0][0], 50, 0);
        post_send(1, 0, 6, data[1][0], 50, 0);
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
        post_recv(1, 0, 5, data[1][0], 50, 0);
        post_send(0, 1, 5, data[0][0], 50, 0);
        assert_int_equal(node_ranks_end(ranks, world, 1, 0), GF_OK);
    }
    node_ranks_close(ranks, 3);
}

/* ---- who is of this node ---- */

/* An offer as it was, with something changed. */
static gf_status connect_with(uint32_t rank, uint32_t peer, const struct node_offer *offer)
{
    gf_status status = GF_AGAIN;
    for (int tries = 0; (tries < 100000) && (status == GF_AGAIN); tries++) {
        status = gf_node_connect(ranks[rank].node, peer, (const unsigned char *)offer,
                                 sizeof *offer, node_now_ns());
        gf_node_serve(ranks[peer].node);
    }
    return status;
}

static void two_open(struct node_offer *offer)
{
    node_ranks_begin(ranks, 2, REGION, REQS);
    for (uint32_t r = 0; r < 2; r++) assert_int_equal(node_rank_open(&ranks[r]), GF_OK);
    gf_node_offer_put(ranks[1].node, (unsigned char *)offer);
}

TEST(another_node_or_generation_or_rank_is_told)
{
    struct node_offer offer;
    struct node_offer changed;
    two_open(&offer);
    changed = offer;
    changed.node ^= 2;
    assert_int_equal(connect_with(0, 1, &changed), GF_ERR_PEER);
    assert_int_equal(ranks[0].link.fault.code, GF_OK);
    assert_string_equal(ranks[0].log, "");
    changed = offer;
    changed.generation++;
    assert_int_equal(connect_with(0, 1, &changed), GF_ERR_MISMATCH);
    assert_int_equal(ranks[0].link.fault.peer, 1);
    changed = offer;
    changed.rank = 0;
    assert_int_equal(connect_with(0, 1, &changed), GF_ERR_MISMATCH);
    changed = offer;
    changed.entries++;
    assert_int_equal(connect_with(0, 1, &changed), GF_ERR_MISMATCH);
    changed = offer;
    changed.magic = __builtin_bswap32(changed.magic);
    assert_int_equal(connect_with(0, 1, &changed), GF_ERR_DATA);
    assert_int_equal(
        gf_node_connect(ranks[0].node, 1, (unsigned char *)&offer, sizeof offer - 1, 0),
        GF_ERR_DATA);
    assert_int_equal(gf_node_connect(ranks[0].node, 0, NULL, 0, 0), GF_OK);
    node_ranks_close(ranks, 2);
}

/* Who does not have the nonce is not answered; nobody waits for him but who asked, and that until
 * its deadline. */
TEST(a_wrong_nonce_is_not_answered)
{
    struct node_offer offer;
    two_open(&offer);
    offer.nonce[3] ^= 1;
    for (int tries = 0; tries < 1000; tries++) {
        assert_int_equal(
            gf_node_connect(ranks[0].node, 1, (unsigned char *)&offer, sizeof offer, node_now_ns()),
            GF_AGAIN);
        gf_node_serve(ranks[1].node);
    }
    assert_int_equal(ranks[1].node->pair_count, 0);
    node_ranks_close(ranks, 2);
}

TEST(memory_with_another_canary_is_refused_at_both_ends)
{
    struct node_offer offer;
    struct node_offer own;
    two_open(&offer);
    gf_node_offer_put(ranks[0].node, (unsigned char *)&own);
    offer.canary ^= 1;
    assert_int_equal(connect_with(0, 1, &offer), GF_ERR_PEER);
    assert_non_null(strstr(ranks[0].log, "rank 0 and rank 1 of one node share no memory"));
    assert_int_equal(connect_with(1, 0, &own), GF_ERR_PEER);
    assert_non_null(strstr(ranks[1].log, "it refuses"));
    assert_false(gf_node_has(ranks[0].node, 1) || gf_node_has(ranks[1].node, 0));
    node_ranks_close(ranks, 2);
}

/* The other has mapped ours before we refuse its memory. */
TEST(a_refusal_reaches_who_has_mapped_already)
{
    struct node_offer offer;
    struct node_offer own;
    two_open(&offer);
    gf_node_offer_put(ranks[0].node, (unsigned char *)&own);
    for (int tries = 0; tries < 10; tries++) {
        assert_int_equal(
            gf_node_connect(ranks[1].node, 0, (unsigned char *)&own, sizeof own, node_now_ns()),
            GF_AGAIN);
        gf_node_serve(ranks[0].node);
    }
    assert_int_equal(ranks[1].node->peers[0].state, NODE_PEER_MAPPED);
    offer.memory_bytes += 4096;
    assert_int_equal(connect_with(0, 1, &offer), GF_ERR_PEER);
    assert_int_equal(connect_with(1, 0, &own), GF_ERR_PEER);
    assert_null(gf_node_map(ranks[1].node, 0));
    assert_int_equal(ranks[0].node->unanswered, 0);
    node_ranks_close(ranks, 2);
}

TEST(damaged_offers_are_refused_or_ignored)
{
    struct node_offer offer;
    uint32_t seed = 1;
    two_open(&offer);
    for (uint32_t round = 0; round < 3000; round++) {
        struct node_offer changed = offer;
        unsigned char *bytes = (unsigned char *)&changed;
        for (uint32_t i = 0; i <= round % 4; i++) {
            seed = seed * 1664525u + 1013904223u;
            bytes[(seed >> 8) % sizeof changed] ^= (unsigned char)(1u << (seed >> 29));
        }
        (void)gf_node_connect(ranks[0].node, 1, bytes, sizeof changed, node_now_ns());
        gf_node_serve(ranks[1].node);
        if (round % 16 != 15) continue;
        /* one answer a peer and generation */
        assert_int_equal(gf_node_reset(ranks[0].node, 1, 0, 2, true), GF_OK);
        assert_int_equal(gf_node_reset(ranks[1].node, 1, 1, 2, true), GF_OK);
        gf_node_offer_put(ranks[1].node, (unsigned char *)&offer);
    }
    node_ranks_close(ranks, 2);
}

/* Anybody may write into the socket. */
TEST(words_of_strangers_are_ignored_and_their_descriptors_closed)
{
    struct node_word word = {.kind = NODE_WORD_GIVE, .from = 1, .generation = 1};
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } carried = {.bytes = {0}};
    struct iovec bytes = {.iov_base = &word, .iov_len = sizeof word};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    int four[4];
    uint32_t before;
    node_ranks_open(ranks, 2, REGION, REQS);
    memcpy(to.sun_path, ranks[0].node->name, NODE_NAME_BYTES);
    before = fds_open();
    for (uint32_t count = 0; count <= 4; count++)
        for (int nonce = 0; nonce < 4; nonce++) {
            struct msghdr message = {
                .msg_name = &to,
                .msg_iov = &bytes,
                .msg_iovlen = 1,
                .msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
                                           strlen(ranks[0].node->name + 1) + 1),
                .msg_control = (count > 0) ? carried.bytes : NULL,
                .msg_controllen = (count > 0) ? CMSG_SPACE(count * sizeof(int)) : 0};
            for (uint32_t i = 0; i < 4; i++) four[i] = fd;
            carried.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(count * sizeof(int)),
                                            .cmsg_level = SOL_SOCKET,
                                            .cmsg_type = SCM_RIGHTS};
            memcpy(CMSG_DATA(&carried.head), four, count * sizeof(int));
            memset(word.nonce, 0, sizeof word.nonce);
            if (nonce % 2 != 0) memcpy(word.nonce, ranks[0].node->nonce, sizeof word.nonce);
            word.of = (nonce < 2) ? NODE_WORD_MEMORY : NODE_WORD_DEVICE;
            assert_true(sendmsg(fd, &message, MSG_DONTWAIT) > 0);
            gf_node_serve(ranks[0].node);
            assert_int_equal(fds_open(), before);
        }
    for (uint32_t i = 0; i < 1000; i++) {
        unsigned char noise[2 * sizeof word];
        fill(noise, sizeof noise, i);
        (void)sendto(fd, noise, i % sizeof noise, MSG_DONTWAIT, (struct sockaddr *)&to,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
                                 strlen(ranks[0].node->name + 1) + 1));
        gf_node_serve(ranks[0].node);
    }
    assert_true(gf_node_has(ranks[0].node, 1));
    (void)close(fd);
    node_ranks_close(ranks, 2);
}

/* ---- memory of devices ---- */

static gf_status device_pull(uint32_t rank, uint32_t peer, int tries, int *fd_out)
{
    gf_status status = GF_AGAIN;
    for (; (tries > 0) && (status == GF_AGAIN); tries--) {
        status = gf_node_device_pull(ranks[rank].node, peer, node_now_ns(), fd_out);
        for (uint32_t r = 0; r < 3; r++)
            if (ranks[r].node != NULL) (void)gf_node_progress(ranks[r].node);
        if (ranks[peer].node != NULL) gf_node_serve(ranks[peer].node); /* also who gives none */
    }
    return status;
}

TEST(descriptors_of_device_memory_go_the_same_way)
{
    uint32_t fds = fds_open();
    struct stat want[3];
    node_ranks_open(ranks, 3, REGION, REQS);
    for (uint32_t r = 0; r < 2; r++) {
        int fd = memfd_create("device", 0);
        assert_true((fd >= 0) && (fstat(fd, &want[r]) == 0));
        gf_node_device_offer(ranks[r].node, fd);
    }
    for (uint32_t time = 0; time < 2; time++) /* as often as somebody asks */
        for (uint32_t rank = 0; rank < 3; rank++)
            for (uint32_t peer = 0; peer < 3; peer++) {
                struct stat got;
                int fd = -1;
                if (peer == rank) continue;
                assert_int_equal(device_pull(rank, peer, 100000, &fd),
                                 (peer == 2) ? GF_ERR_PEER : GF_OK);
                if (peer == 2) continue; /* it gives none */
                assert_int_equal(fstat(fd, &got), 0);
                assert_int_equal(got.st_ino, want[peer].st_ino);
                assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
                (void)close(fd);
            }
    assert_int_equal(fds_open(), fds + 2 * 3 + 2);
    gf_node_device_offer(ranks[0].node, -1);
    assert_int_equal(device_pull(1, 0, 100000, &(int){0}), GF_ERR_PEER);
    for (uint32_t r = 0; r < 3; r++) gf_node_drop(ranks[r].node);
    assert_int_equal(fds_open(), fds + 2 * 3); /* nor does a generation keep one */
    node_ranks_close(ranks, 3);
}

TEST(without_the_nonce_there_is_none_and_of_who_has_ended_neither)
{
    int fd = -1;
    node_ranks_open(ranks, 2, REGION, REQS);
    ranks[2].node = NULL;
    gf_node_device_offer(ranks[1].node, memfd_create("device", 0));
    node_pair_of(ranks[0].node, 1)->nonce[3] ^= 1;
    assert_int_equal(device_pull(0, 1, 1000, &fd), GF_AGAIN);
    node_rank_close(&ranks[1]);
    (void)usleep(20000); /* it asks again */
    assert_int_equal(device_pull(0, 1, 100000, &fd), GF_ERR_PEER);
    assert_int_equal(fd, -1);
    node_rank_close(&ranks[0]);
}

TEST(who_sleeps_hears_that_it_is_asked_for_its_devices_memory)
{
    int fd = -1;
    node_ranks_open(ranks, 2, REGION, REQS);
    ranks[2].node = NULL;
    gf_node_device_offer(ranks[1].node, memfd_create("device", 0));
    while (!gf_node_arm(ranks[1].node)) (void)gf_node_progress(ranks[1].node);
    struct pollfd wakes = {.fd = gf_node_wake_fd(ranks[1].node), .events = POLLIN};
    assert_int_equal(poll(&wakes, 1, 0), 0);
    assert_int_equal(gf_node_device_pull(ranks[0].node, 1, node_now_ns(), &fd), GF_AGAIN);
    assert_int_equal(poll(&wakes, 1, 0), 1);
    (void)gf_node_progress(ranks[1].node);
    assert_int_equal(gf_node_device_pull(ranks[0].node, 1, node_now_ns(), &fd), GF_OK);
    (void)close(fd);
    node_ranks_close(ranks, 2);
}

/* In a child: what it found is its exit code. */
#define IN_CHILD(child) \
    fflush(NULL);       \
    child = fork();     \
    if (child == 0)
static int child_ended(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(another_user_gets_no_memory)
{
    struct node_offer offer;
    int answer[2];
    pid_t child;
    char bit = 0;
    if (geteuid() != 0) skip();
    assert_int_equal(pipe(answer), 0);
    node_ranks_begin(ranks, 2, REGION, REQS);
    assert_int_equal(node_rank_open(&ranks[1]), GF_OK);
    gf_node_offer_put(ranks[1].node, (unsigned char *)&offer);
    IN_CHILD(child)
    {
        if (setgid(12345) != 0 || setuid(12345) != 0) _exit(2);
        if (node_rank_open(&ranks[0]) != GF_OK) _exit(3);
        if (connect_with(0, 1, &offer) != GF_ERR_PEER)
            _exit(4); /* says so at once: its user is part of the node */
        offer.node = ranks[0].node->host;
        for (int i = 0; i < 100; i++) {
            if (gf_node_connect(ranks[0].node, 1, (unsigned char *)&offer, sizeof offer,
                                node_now_ns()) != GF_AGAIN)
                _exit(5);
            (void)usleep(1000);
        }
        (void)!write(answer[1], &bit, 1);
        _exit(0);
    }
    (void)fcntl(answer[0], F_SETFL, O_NONBLOCK);
    while (read(answer[0], &bit, 1) != 1 && waitpid(child, NULL, WNOHANG | WNOWAIT) == 0)
        gf_node_serve(ranks[1].node);
    assert_int_equal(child_ended(child), 0);
    assert_int_equal(ranks[1].node->pair_count, 0);
    (void)close(answer[0]);
    (void)close(answer[1]);
    node_rank_close(&ranks[1]);
}

TEST(the_user_that_stands_for_others_shares_nothing)
{
    pid_t child;
    if (geteuid() != 0) skip();
    IN_CHILD(child)
    {
        node_ranks_begin(ranks, 2, REGION, REQS);
        if (setuid(65534) != 0) _exit(2);
        if (node_rank_open(&ranks[0]) != GF_OK) _exit(3);
        if (gf_node_wake_fd(ranks[0].node) != -1) _exit(4);
        _exit(strstr(ranks[0].log, "stands for all users") == NULL);
    }
    assert_int_equal(child_ended(child), 0);
}

/* ---- limits ---- */

static void limited(int what, rlim_t most, const char *text)
{
    pid_t child;
    IN_CHILD(child)
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
    assert_int_equal(child_ended(child), 0);
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
        IN_CHILD(child)
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
        assert_int_equal(child_ended(child), 0);
    }
}

/* A process that may map one more, and not all: it is known at open, not when they are
 * connected. */
TEST(a_mapping_that_would_be_refused_later_is_known_at_open)
{
    pid_t child;
    IN_CHILD(child)
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
    int ended = child_ended(child);
    if (ended == 100) skip();
    assert_int_equal(ended, 0);
}

/* .. and what is set as soon as they are open refuses nothing: their places are taken. */
TEST(a_limit_that_is_set_after_open_refuses_no_mapping)
{
    pid_t child;
    IN_CHILD(child)
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
    assert_int_equal(child_ended(child), 0);
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
    for (uint32_t rank = 0; rank < MANY; rank++) assert_int_equal(child_ended(children[rank]), 0);
    (void)munmap(offers, sizeof *offers + 4096);
}

TEST(a_forked_child_closes_the_socket)
{
    pid_t child;
    node_ranks_open(ranks, 2, REGION, REQS);
    IN_CHILD(child)
    {
        _exit(fcntl(ranks[0].node->socket_fd, F_GETFD) != -1 ||
              fcntl(ranks[0].node->memory_fd, F_GETFD) != -1);
    }
    assert_int_equal(child_ended(child), 0);
    assert_true(fcntl(ranks[0].node->socket_fd, F_GETFD) != -1);
    node_ranks_close(ranks, 2);
}

/* ---- messages ---- */

static const size_t sizes[] = {0, 1, 8, 32, 33, 4096, 8256, 8257, 65536, 300000, 1u << 20};
#define SIZES ((uint32_t)LENGTH(sizes))

/* Where the bytes lie: 1: in the region, at the sender; 2: at the receiver. */
static void all_sizes(uint32_t where, bool receive_first)
{
    unsigned char *from = ((where & 1) != 0) ? ranks[0].link.region : data[0][0];
    unsigned char *to = ((where & 2) != 0) ? ranks[1].link.region : data[1][1];
    for (uint32_t i = 0; i < SIZES; i++) {
        fill(from, sizes[i], i);
        memset(to, 0, sizes[i]);
        if (receive_first) post_recv(1, 0, i, to, sizes[i], 1);
        if (receive_first) progress(2);
        post_send(0, 1, i, from, sizes[i], 0);
        if (!receive_first) progress(2);
        if (!receive_first) post_recv(1, 0, i, to, sizes[i], 1);
        assert_int_equal(node_ranks_end(ranks, 2, 1, 1), GF_OK);
        assert_int_equal(node_ranks_end(ranks, 2, 0, 0), GF_OK);
        assert_true(filled(to, sizes[i], i));
    }
}

TEST(messages_of_all_sizes_arrive)
{
    node_ranks_open(ranks, 2, REGION, REQS);
    for (int round = 0; round < 50; round++)
        for (uint32_t where = 0; where < 4; where++) all_sizes(where, (round & 1) == 0);
    assert_int_equal(ranks[0].node->requests_under_way + ranks[1].node->requests_under_way, 0);
    node_ranks_close(ranks, 2);
}

/* All that a rank may have under way, to several, and nobody asks for it; then in reverse order. */
TEST(messages_nobody_has_asked_for_hold_up_no_other)
{
    uint32_t rounds = 20;
    node_ranks_open(ranks, 3, REGION, REQS);
    for (uint32_t round = 0; round < rounds; round++) {
        static const size_t each[] = {8, 500, 8000, 20000, 16};
        for (uint32_t i = 0; i < REQS - 1; i++) {
            fill(data[0][0] + i * 20000, each[i % 5], i);
            post_send(0, 1, i, data[0][0] + i * 20000, each[i % 5], i);
        }
        progress(3);
        fill(ranks[0].link.region, 100000, 77);
        post_send(0, 1, 1000, ranks[0].link.region, 100000,
                  REQS - 1); /* the last one that there is a request for */
        post_recv(1, 0, 1000, data[1][0], 100000, 0);
        assert_int_equal(node_ranks_end(ranks, 3, 1, 0), GF_OK);
        assert_true(filled(data[1][0], 100000, 77));
        assert_int_equal(node_ranks_end(ranks, 3, 0, REQS - 1), GF_OK);
        for (uint32_t j = REQS - 1; j > 0; j--) {
            uint32_t i = j - 1;
            post_recv(1, 0, i, data[1][0], each[i % 5], 0);
            assert_int_equal(node_ranks_end(ranks, 3, 1, 0), GF_OK);
            assert_true(filled(data[1][0], each[i % 5], i));
            assert_int_equal(node_ranks_end(ranks, 3, 0, i), GF_OK);
        }
    }
    assert_int_equal(ranks[0].node->requests_under_way, 0);
    node_ranks_close(ranks, 3);
}

/* Small sends end before anybody asks; not for ever, or they would need room for ever. */
TEST(small_sends_that_nobody_takes_end_up_under_way)
{
    uint32_t ended = 0;
    node_ranks_open(ranks, 2, REGION, REQS);
    for (uint32_t i = 0; i < NODE_DETACHED_MAX; i++) {
        post_send(0, 1, i, &i, sizeof i, 0);
        ended += (test(0, 0) == GF_OK);
    }
    assert_int_equal(ended, NODE_DETACHED_MAX);
    for (uint32_t i = 0; i < REQS; i++) post_send(0, 1, 1000 + i, &i, sizeof i, i);
    progress(2);
    for (uint32_t i = 0; i < REQS; i++) assert_int_equal(test(0, i), GF_AGAIN);
    assert_int_equal(gf_node_send_post(ranks[0].node, 1, 5000, data[0][0], 1, &ranks[0].reqs[REQS]),
                     GF_FULL);
    for (uint32_t i = REQS; i > 0; i--) {
        uint32_t got = 99;
        post_recv(1, 0, 1000 + i - 1, &got, sizeof got, 0);
        assert_int_equal(node_ranks_end(ranks, 2, 1, 0), GF_OK);
        assert_int_equal(got, i - 1);
        assert_int_equal(test(0, i - 1), GF_OK);
    }
    for (uint32_t i = NODE_DETACHED_MAX; i > 0; i--) {
        uint32_t got = 0;
        post_recv(1, 0, i - 1, &got, sizeof got, 0);
        assert_int_equal(node_ranks_end(ranks, 2, 1, 0), GF_OK);
        assert_int_equal(got, i - 1);
    }
    node_ranks_close(ranks, 2);
}

TEST(the_bounds_of_posting_hold)
{
    node_ranks_open(ranks, 2, REGION, 3);
    for (uint32_t i = 0; i < 3; i++) post_recv(0, 1, i, data[0][0], 8, i);
    assert_int_equal(gf_node_recv_post(ranks[0].node, 1, 9, data[0][0], 8, &ranks[0].reqs[9]),
                     GF_FULL);
    assert_int_equal(gf_node_send_post(ranks[0].node, 1, 9, data[0][0], 8, &ranks[0].reqs[9]),
                     GF_FULL);
    gf_node_cancel(ranks[0].node, &ranks[0].reqs[1]);
    assert_int_equal(test(0, 1), GF_ERR_ABORTED);
    post_send(0, 1, 9, data[0][0], 8, 9);
    gf_node_cancel(ranks[0].node, &ranks[0].reqs[9]);
    assert_int_equal(test(0, 9), GF_OK);
    node_ranks_close(ranks, 2);
}

static void mismatch(size_t sent_bytes, size_t expected_bytes, bool receive_first)
{
    node_ranks_open(ranks, 2, REGION, REQS);
    if (receive_first) post_recv(0, 1, 4, data[0][0], expected_bytes, 0);
    post_send(1, 0, 4, data[1][0], sent_bytes, 0);
    progress(2);
    if (!receive_first) post_recv(0, 1, 4, data[0][0], expected_bytes, 0);
    assert_int_equal(node_ranks_end(ranks, 2, 0, 0), GF_ERR_MISMATCH);
    assert_int_equal(node_ranks_end(ranks, 2, 1, 0), GF_OK);
    assert_non_null(strstr(ranks[0].link.fault.text, "rank 1 sent "));
    assert_int_equal(ranks[0].link.fault.peer, 1);
    node_ranks_close(ranks, 2);
}

TEST(another_size_is_named)
{
    static const size_t cases[] = {0, 8, 16, 5000, 70000};
    for (size_t a = 0; a < LENGTH(cases); a++)
        for (size_t b = 0; b < LENGTH(cases); b++)
            if (a != b) mismatch(cases[a], cases[b], ((a + b) & 1) != 0);
}

/* The sender gives a message up and writes where it lay: the receiver must not take it for the
 * message. */
TEST(a_send_that_was_cancelled_never_was)
{
    static const size_t cases[] = {9000, 70000, 300000};
    node_ranks_open(ranks, 2, REGION, REQS);
    for (uint32_t i = 0; i < 2 * LENGTH(cases); i++) {
        size_t bytes = cases[i / 2];
        unsigned char *from = ((i & 1) != 0) ? ranks[0].link.region : data[0][0];
        fill(from, bytes, 3);
        post_send(0, 1, 50, from, bytes, 0);
        progress(2);
        assert_int_equal(test(0, 0), GF_AGAIN);
        gf_node_cancel(ranks[0].node, &ranks[0].reqs[0]);
        assert_int_equal(test(0, 0), GF_ERR_ABORTED);
        memset(from, 0, bytes);
        post_recv(1, 0, 50, data[1][0], bytes, 0);
        progress(2);
        assert_int_equal(test(1, 0), GF_AGAIN);
        fill(from, bytes, 4);
        post_send(0, 1, 50, from, bytes, 1); /* the same again */
        assert_int_equal(node_ranks_end(ranks, 2, 1, 0), GF_OK);
        assert_true(filled(data[1][0], bytes, 4));
        assert_int_equal(node_ranks_end(ranks, 2, 0, 1), GF_OK);
    }
    node_ranks_close(ranks, 2);
}

/* .. of whatever size it was. */
TEST(nor_does_its_size_matter)
{
    node_ranks_open(ranks, 2, REGION, REQS);
    post_send(0, 1, 50, data[0][0], 70000, 0);
    progress(2);
    gf_node_cancel(ranks[0].node, &ranks[0].reqs[0]);
    post_recv(1, 0, 50, data[1][0], 20000, 0);
    progress(2);
    assert_int_equal(test(1, 0), GF_AGAIN);
    post_send(0, 1, 50, data[0][0], 20000, 1);
    assert_int_equal(node_ranks_end(ranks, 2, 1, 0), GF_OK);
    assert_int_equal(ranks[1].link.fault.code, GF_OK);
    node_ranks_close(ranks, 2);
}

TEST(a_receive_is_cancelled_while_its_pieces_come)
{
    node_ranks_open(ranks, 2, REGION, REQS);
    post_recv(1, 0, 7, data[1][0], 1u << 20, 0);
    post_send(0, 1, 7, data[0][0], 1u << 20, 0);
    (void)gf_node_progress(ranks[1].node);
    gf_node_cancel(ranks[1].node, &ranks[1].reqs[0]);
    assert_int_equal(test(1, 0), GF_ERR_ABORTED);
    assert_int_equal(node_ranks_end(ranks, 2, 0, 0),
                     GF_OK); /* the sender hears that it is done with */
    assert_int_equal(ranks[0].node->free_pieces, NODE_PIECES);
    all_sizes(0, true);
    node_ranks_close(ranks, 2);
}

TEST(what_was_sent_before_close_arrives)
{
    node_ranks_open(ranks, 2, REGION, REQS);
    fill(data[0][0], 5000, 9);
    post_send(0, 1, 1, data[0][0], 5000, 0);
    assert_int_equal(test(0, 0), GF_OK);
    node_rank_close(&ranks[0]);
    post_recv(1, 0, 1, data[1][0], 5000, 0);
    for (int i = 0; i < 10; i++) (void)gf_node_progress(ranks[1].node);
    assert_int_equal(test(1, 0), GF_OK);
    assert_true(filled(data[1][0], 5000, 9));
    node_rank_close(&ranks[1]);
}

/* Whatever lies in a peer's memory: an error, or nothing; never a byte outside. */
TEST(a_peer_that_writes_nonsense_is_an_error)
{
    uint32_t seed = 7;
    uint32_t broken = 0;
    for (uint32_t round = 0; round < 300; round++) {
        unsigned char *table;
        size_t bytes;
        node_ranks_open(ranks, 2, 65536, REQS);
        table = gf_node_map(ranks[1].node, 0);
        bytes = ranks[0].node->plan.bytes - ranks[0].node->plan.bell_at;
        table += ranks[0].node->plan.bell_at;
        for (uint32_t i = 0; i < 8; i++) {
            post_send(0, 1, i, data[0][0], 10u << (2 * i), i);
            post_recv(1, 0, i, data[1][0], 10u << (2 * i), i);
        }
        for (uint32_t i = 0; i < 2000; i++) {
            seed = seed * 1664525u + 1013904223u;
            table[(seed >> 4) % ((i & 1) != 0 ? bytes : 20000)] = (unsigned char)(seed >> 24);
            if ((i & 31) != 0) continue;
            (void)gf_node_progress(ranks[0].node);
            (void)gf_node_progress(ranks[1].node);
            if (ranks[1].link.failed < 0) break;
        }
        broken += (ranks[0].link.failed != GF_OK) || (ranks[1].link.failed != GF_OK);
        for (uint32_t i = 0; i < 8; i++) {
            gf_node_cancel(ranks[0].node, &ranks[0].reqs[i]);
            gf_node_cancel(ranks[1].node, &ranks[1].reqs[i]);
        }
        node_ranks_close(ranks, 2);
    }
    assert_true(broken > 30);
}

/* ---- processes ---- */

/* Both open before the fork; the child goes on as rank 1, the parent as rank 0. The child's socket
 * is closed in it. */
TEST(a_peer_that_is_killed_leaves_what_it_had_announced)
{
    for (uint32_t round = 0; round < 20; round++) {
        uint32_t *go = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pid_t child;
        node_ranks_open(ranks, 2, REGION, REQS);
        fill(ranks[1].link.region, REGION, 5);
        IN_CHILD(child)
        {
            fill(data[1][0], 1u << 20, 6);
            post_send(1, 0, 1, ranks[1].link.region, 300000, 0);
            post_send(1, 0, 2, data[1][0], 1u << 20, 1);
            post_send(1, 0, 3, data[1][0], 8, 2);
            __atomic_store_n(go, 1, __ATOMIC_RELEASE);
            for (;;) (void)gf_node_progress(ranks[1].node);
        }
        while (__atomic_load_n(go, __ATOMIC_ACQUIRE) == 0) {
        }
        post_recv(0, 1, 2, data[0][0], 1u << 20, 0);
        for (uint32_t i = 0; i < round * 10; i++) (void)gf_node_progress(ranks[0].node);
        (void)kill(child, SIGKILL);
        assert_int_equal(child_ended(child), 1000 + SIGKILL);
        post_recv(0, 1, 1, data[0][1], 300000, 1);
        post_recv(0, 1, 3, &data[0][1][400000], 8, 2);
        post_recv(0, 1, 4, &data[0][1][500000], 8, 3);
        for (uint32_t i = 0; i < 1000; i++) (void)gf_node_progress(ranks[0].node);
        assert_int_equal(test(0, 1), GF_OK);
        assert_true(filled(data[0][1], 300000, 5));
        assert_int_equal(test(0, 2), GF_OK);
        assert_int_equal(test(0, 3), GF_AGAIN); /* it never comes */
        gf_node_drop(ranks[0].node);
        for (uint32_t i = 0; i < 4; i++) assert_true(test(0, i) != GF_AGAIN);
        assert_int_equal(ranks[0].node->requests_under_way, 0);
        node_ranks_close(ranks, 2);
        (void)munmap(go, 4096);
    }
}

/* Opens this one of two processes, which tell each other their offers, and connects it. */
static gf_status met(struct node_rank *one, int pipes[2][2])
{
    const uint32_t own = one->rank;
    const uint32_t peer = 1 - own;
    const size_t bytes = sizeof one->offer;
    unsigned char theirs[GF_NODE_OFFER_BYTES];
    gf_status status = node_rank_open(one);
    if (status != GF_OK) return status;
    gf_node_offer_put(one->node, one->offer);
    if ((write(pipes[own][1], one->offer, bytes) != (ssize_t)bytes) ||
        (read(pipes[peer][0], theirs, bytes) != (ssize_t)bytes))
        return GF_ERR_SYSTEM;
    do status = gf_node_connect(one->node, peer, theirs, bytes, node_now_ns());
    while (status == GF_AGAIN);
    return status;
}

static void pipes_close(int pipes[2][2])
{
    for (int i = 0; i < 4; i++) (void)close(pipes[i / 2][i % 2]);
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
        IN_CHILD(child)
        {
            (void)alarm(60);
            (void)met(&ranks[1], pipes);
            for (;;) (void)pause();
        }
        (void)alarm(60);
        assert_int_equal(met(&ranks[0], pipes), GF_OK);
        const ino_t before = memory_of(&ranks[0]);
        (void)kill(child, by[i]);
        assert_int_equal(waitpid(child, &status, WUNTRACED), child);
        gf_node_quiesce(ranks[0].node);
        assert_int_equal(gf_node_reset(ranks[0].node, 2, 0, 1, true), GF_OK);
        assert_int_equal(memory_of(&ranks[0]) == before, by[i] == SIGKILL);
        if (by[i] == SIGSTOP) {
            (void)kill(child, SIGKILL);
            assert_int_equal(child_ended(child), 1000 + SIGKILL);
        }
        (void)alarm(0);
        node_rank_close(&ranks[0]);
        pipes_close(pipes);
    }
}

/* A rank that sleeps is woken by what comes for it, and by what it waits for at the receiver. */
TEST(a_sleeper_is_woken)
{
    pid_t child;
    node_ranks_begin(ranks, 2, REGION, REQS);
    int pipes[2][2];
    assert_int_equal(pipe(pipes[0]) | pipe(pipes[1]), 0);
    fflush(NULL);
    child = fork();
    uint32_t own = (child == 0) ? 1 : 0;
    uint32_t peer = 1 - own;
    struct node_rank *one = &ranks[own];
    bool right = true;
    (void)alarm(60);
    gf_status status = met(one, pipes);
    uint32_t sleeps = 0;
    uint32_t late = 0;
    for (uint32_t i = 0; (i < 2000) && right && (status == GF_OK); i++) {
        static const size_t each[] = {8, 6000, 70000, 200000};
        size_t bytes = each[i % 4];
        unsigned char *from = ((i & 4) != 0) ? one->link.region : data[own][0];
        bool sends = (i & 1) == own;
        if (sends) fill(from, bytes, i);
        if (sends)
            status = gf_node_send_post(one->node, peer, i, from, bytes, &one->reqs[0]);
        else
            status = gf_node_recv_post(one->node, peer, i, data[own][1], bytes, &one->reqs[0]);
        while ((status == GF_OK) && (gf_node_test(one->node, &one->reqs[0]) == GF_AGAIN)) {
            struct pollfd fd = {.fd = gf_node_wake_fd(one->node), .events = POLLIN};
            if (gf_node_progress(one->node) || !gf_node_arm(one->node)) continue;
            sleeps++;
            late += (poll(&fd, 1, 2000) != 1);
        }
        right = right && (sends || filled(data[own][1], bytes, i)) && (late == 0);
    }
    (void)gf_node_progress(one->node);
    if (child != 0) {
        assert_int_equal(child_ended(child), 0);
        assert_true(right && (status == GF_OK) && (sleeps > 100));
        node_rank_close(one);
        pipes_close(pipes);
        (void)alarm(0);
        return;
    }
    gf_node_close(one->node);
    _exit((right && (status == GF_OK)) ? 0 : 1);
}

/* ---- flags ---- */

#define FLAG_AT 0u
#define SLEEP_AT 64u

static bool flag_is(const struct gf_link *link, uint64_t value)
{
    return gf_flag_load(link, FLAG_AT) == value;
}

/* Rank 1 sleeps until a flag says `round`; false: a sleep ran out. */
static bool flag_sleep(struct gf_link *link, uint64_t round)
{
    while (!flag_is(link, round)) {
        uint64_t begin_ns = node_now_ns();
        gf_flag_arm(link, SLEEP_AT);
        if (!flag_is(link, round)) gf_flag_sleep(link, SLEEP_AT, UINT64_C(20000000000));
        if (node_now_ns() - begin_ns > UINT64_C(19000000000)) return false;
    }
    return true;
}

/* Rank 0 sets the flag at once, where that races with the announcement, or while rank 1 sleeps. */
TEST(a_flag_ends_a_sleep)
{
    const struct timespec pause = {.tv_nsec = 3000000};
    pid_t child;
    node_ranks_open(ranks, 2, REGION, REQS);
    IN_CHILD(child)
    {
        bool right = true;
        for (uint64_t round = 1; right && (round <= 200); round++) {
            right = flag_sleep(&ranks[1].link, round);
            gf_node_flag_store(ranks[1].node, 0, FLAG_AT, round);
        }
        _exit(right ? 0 : 1);
    }
    (void)alarm(60);
    for (uint64_t round = 1; round <= 200; round++) {
        if (round % 10 == 0) (void)nanosleep(&pause, NULL);
        gf_node_flag_store(ranks[0].node, 1, FLAG_AT, round);
        gf_flag_wake(gf_node_map(ranks[0].node, 1), SLEEP_AT);
        while (!flag_is(&ranks[0].link, round)) (void)sched_yield();
    }
    assert_int_equal(child_ended(child), 0);
    (void)alarm(0);
    node_ranks_close(ranks, 2);
}

TEST(a_sleep_that_nobody_ends_times_out_and_takes_its_announcement_back)
{
    struct gf_link *link = &ranks[0].link;
    uint64_t begin_ns;
    node_ranks_open(ranks, 2, REGION, REQS);
    begin_ns = node_now_ns();
    /* not announced, or taken back by a waker: no sleep */
    gf_flag_sleep(link, SLEEP_AT, UINT64_C(20000000000));
    gf_flag_arm(link, SLEEP_AT);
    gf_flag_sleep(link, SLEEP_AT, UINT64_C(20000000)); /* nobody wakes it */
    assert_true(node_now_ns() - begin_ns >= UINT64_C(20000000));
    assert_true(node_now_ns() - begin_ns < UINT64_C(10000000000));
    assert_int_equal(gf_flag_load(link, SLEEP_AT), 0);
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
