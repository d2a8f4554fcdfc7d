/* A link over UCX's tcp with link.encryption: the same bytes arrive, none of them can be read on
 * the way, and a byte that was changed there ends it with an error that says so. This program's own
 * send() and recv() stand for the wire. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/key_file.h"
#include "firmware-tests/support/ucx_ranks.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES 500000u
static const char secret_text[] = "a gradient that nobody else may read";
static bool seen;            /* the text, in what was sent */
static int64_t flip_in = -1; /* bytes that are received before one is changed */

static void see(const void *data, size_t bytes)
{
    if (memmem(data, bytes, secret_text, strlen(secret_text)) != NULL) seen = true;
}

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    see(data, bytes);
    return syscall(SYS_sendto, fd, data, bytes, flags, NULL, 0);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    for (size_t i = 0; i < message->msg_iovlen; i++)
        see(message->msg_iov[i].iov_base, message->msg_iov[i].iov_len);
    return syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    ssize_t got = syscall(SYS_recvfrom, fd, data, bytes, flags, NULL, NULL);
    if ((got <= 0) || (flip_in < 0) || (bytes < 100)) return got;
    if (flip_in < got) ((unsigned char *)data)[flip_in] ^= 0x10;
    flip_in = (flip_in < got) ? -1 : flip_in - got;
    return got;
}

/* ---- ranks ---- */

static unsigned char out[BYTES], in[BYTES];

static void talk(struct ranks_one *one, uint32_t number)
{
    uint32_t peer = 1 - one->rank;
    for (size_t i = 0; i < BYTES; i++) out[i] = (unsigned char)secret_text[i % sizeof secret_text];
    for (uint32_t size = 0; size < 3; size++) {
        const size_t bytes = (size == 0) ? 100 : (size == 1) ? 20000 : BYTES;
        memset(in, 0, sizeof in);
        ranks_recv(one, 0, peer, ranks_tag(10 * number + size), in, bytes);
        ranks_send(one, 1, peer, ranks_tag(10 * number + size), out, bytes);
        RANK_CHECK(one, (ranks_end(one, 0) == GF_OK) && (ranks_end(one, 1) == GF_OK));
        RANK_CHECK(one, memcmp(in, out, bytes) == 0);
    }
}

static void open_encrypted(struct ranks_one *one, bool encryption)
{
    ranks_setup(one, "tcp");
    one->setup.key_file = key_path;
    one->setup.encryption = encryption;
    ranks_open(one);
}

static void talk_body(struct ranks_one *one)
{
    const bool encryption = one->arg != NULL;
    open_encrypted(one, encryption);
    for (uint32_t i = 0; i < 5; i++) talk(one, i);
    ranks_meet(one);
    RANK_CHECK(one, one->link->driver->reset(one->link, 2) == GF_OK); /* new keys */
    ranks_connect(one);
    talk(one, 5);
    RANK_CHECK(one, seen == !encryption);
}

TEST(ranks_talk_and_nobody_reads_it)
{
    ranks_run(2, 0, talk_body, "encrypted");
    ranks_run(2, 0, talk_body, NULL); /* and without it everybody does */
}

static void flip_body(struct ranks_one *one)
{
    gf_status status = GF_AGAIN;
    open_encrypted(one, true);
    talk(one, 0);
    ranks_meet(one);
    if (one->rank == 0) {
        ranks_send(one, 0, 1, ranks_tag(99), out, BYTES);
        (void)ranks_end(one, 0);
    } else {
        memset(in, 0, sizeof in);
        flip_in = 100000;
        ranks_recv(one, 0, 0, ranks_tag(99), in, BYTES);
        for (uint32_t i = 0; (i < 100000000) && (status >= 0); i++)
            status = one->link->driver->progress(one->link);
        RANK_CHECK(one, status == GF_ERR_LINK);
        RANK_CHECK(one, (one->link->fault.code == GF_ERR_LINK) && (one->link->fault.peer == 0));
        RANK_CHECK(one, strstr(one->link->fault.text, "changed on its way") != NULL);
        one->link->driver->drop(one->link);
        RANK_CHECK(one, one->link->driver->test(one->link, one->reqs[0]) == GF_ERR_ABORTED);
        for (size_t i = 0; i < BYTES; i++) RANK_CHECK(one, (in[i] == 0) || (in[i] == out[i]));
    }
    ranks_meet(one);
}

TEST(a_byte_that_was_changed_ends_it_by_name)
{
    ranks_run(2, 0, flip_body, NULL);
}

TEST_AROUND(key_file_make, key_file_remove)
