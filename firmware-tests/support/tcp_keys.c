/* Keys on disk, and the words of the handshake as a stranger may say them. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/tcp_keys.h"
#include "firmware-tests/support/tcp_middle.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

char key_folder[] = "/tmp/gf-test-auth-XXXXXX";
char key_a[64], key_b[64];

const char *file_make(const char *name, char fill, size_t bytes, mode_t mode)
{
    static char path[64];
    char data[5000];
    (void)snprintf(path, sizeof path, "%s/%s", key_folder, name);
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true((fd >= 0) && (bytes <= sizeof data));
    memset(data, fill, sizeof data);
    assert_int_equal(write(fd, data, bytes), bytes);
    assert_int_equal(fchmod(fd, mode), 0);
    (void)close(fd);
    return path;
}

int keys_setup(void **state)
{
    if (mkdtemp(key_folder) == NULL) return -1;
    (void)snprintf(key_a, sizeof key_a, "%s", file_make("a", 'a', 32, 0600));
    (void)snprintf(key_b, sizeof key_b, "%s", file_make("b", 'b', 32, 0600));
    return 0;
}

int keys_teardown(void **state)
{
    DIR *dir = opendir(key_folder);
    for (struct dirent *entry; (dir != NULL) && ((entry = readdir(dir)) != NULL);) {
        if (entry->d_name[0] != '.') (void)unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir != NULL) (void)closedir(dir);
    return rmdir(key_folder);
}

void hello_make(unsigned char *out, uint32_t flags)
{
    stranger_hello(out, 4711, GF_RANK_NONE, 0, flags);
}

void hello_prove(unsigned char *said, const char *key_file)
{
    struct gf_auth auth;
    struct gf_fault fault = {0};
    assert_int_equal(gf_auth_open(&auth, key_file, &fault), GF_OK);
    gf_auth_prove(&auth, said, SAID - GF_AUTH_PROOF_BYTES, said + SAID - GF_AUTH_PROOF_BYTES);
}

void say(int fd, const void *data, size_t bytes)
{
    stranger_say(fd, data, bytes);
}

int stranger_greets(const char *at)
{
    unsigned char hello[HELLO_FRAME];
    int fd = stranger_at(at);
    hello_make(hello, GF_HELLO_KEYED);
    say(fd, hello, sizeof hello);
    return fd;
}

int stranger_meets(const char *at, const char *prover, unsigned char *said)
{
    int fd = stranger_at(at);
    assert_int_equal(hear(fd, said, NONCE_FRAME), NONCE_FRAME);
    assert_int_equal(gf_frame_header_get(said).kind, GF_FRAME_NONCE);
    hello_make(said + NONCE_FRAME, GF_HELLO_KEYED);
    if (prover != NULL) hello_prove(said, prover);
    return fd;
}

size_t hear(int fd, unsigned char *out, size_t bytes)
{
    size_t have = 0;
    for (int i = 0; (i < HUB_TURNS_MAX) && (have < bytes); i++) {
        hub_turn();
        ssize_t got = recv(fd, out + have, bytes - have, MSG_DONTWAIT);
        if ((got == 0) || ((got < 0) && (errno != EAGAIN))) break;
        if (got > 0) have += (size_t)got;
    }
    return have;
}

void hear_refusal(int fd, bool nonce_first, char text_out[GF_FRAME_REASON_BYTES])
{
    unsigned char nonce[NONCE_FRAME];
    unsigned char refusal[REFUSAL_FRAME];
    struct gf_get get = {.at = refusal + GF_FRAME_HEADER_BYTES + 4, .left = GF_FRAME_REASON_BYTES};
    text_out[0] = 0;
    if (nonce_first) (void)hear(fd, nonce, sizeof nonce);
    if (hear(fd, refusal, sizeof refusal) != sizeof refusal) return;
    assert_int_equal(gf_frame_header_get(refusal).kind, GF_FRAME_REFUSAL);
    gf_get_text(&get, text_out, GF_FRAME_REASON_BYTES);
}
