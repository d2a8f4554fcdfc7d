/* Who is of a node: offers that are another's, damaged or a stranger's; users; the memory of
 * devices.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/node_ranks.h"
#include "firmware-tests/support/open_files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION ((size_t)1 << 20)
#define REQS 32u

static struct node_rank ranks[NODE_RANKS];

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
    struct node_datagram word = {.kind = NODE_DATAGRAM_GIVE, .from = 1, .generation = 1};
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
    before = open_files();
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
            word.of = (nonce < 2) ? NODE_DATAGRAM_MEMORY : NODE_DATAGRAM_DEVICE;
            assert_true(sendmsg(fd, &message, MSG_DONTWAIT) > 0);
            gf_node_serve(ranks[0].node);
            assert_int_equal(open_files(), before);
        }
    for (uint32_t i = 0; i < 1000; i++) {
        unsigned char noise[2 * sizeof word];
        node_fill(noise, sizeof noise, i);
        (void)sendto(fd, noise, i % sizeof noise, MSG_DONTWAIT, (struct sockaddr *)&to,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
                                 strlen(ranks[0].node->name + 1) + 1));
        gf_node_serve(ranks[0].node);
    }
    assert_true(gf_node_has(ranks[0].node, 1));
    (void)close(fd);
    node_ranks_close(ranks, 2);
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
    NODE_CHILD(child)
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
    assert_int_equal(node_child_ended(child), 0);
    assert_int_equal(ranks[1].node->pair_count, 0);
    (void)close(answer[0]);
    (void)close(answer[1]);
    node_rank_close(&ranks[1]);
}

TEST(the_user_that_stands_for_others_shares_nothing)
{
    pid_t child;
    if (geteuid() != 0) skip();
    NODE_CHILD(child)
    {
        node_ranks_begin(ranks, 2, REGION, REQS);
        if (setuid(65534) != 0) _exit(2);
        if (node_rank_open(&ranks[0]) != GF_OK) _exit(3);
        if (gf_node_wake_fd(ranks[0].node) != -1) _exit(4);
        _exit(strstr(ranks[0].log, "stands for all users") == NULL);
    }
    assert_int_equal(node_child_ended(child), 0);
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
    uint32_t fds = open_files();
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
    assert_int_equal(open_files(), fds + 2 * 3 + 2);
    gf_node_device_offer(ranks[0].node, -1);
    assert_int_equal(device_pull(1, 0, 100000, &(int){0}), GF_ERR_PEER);
    for (uint32_t r = 0; r < 3; r++) gf_node_drop(ranks[r].node);
    assert_int_equal(open_files(), fds + 2 * 3); /* nor does a generation keep one */
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
