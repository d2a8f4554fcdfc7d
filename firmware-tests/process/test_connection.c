/* Connections of UCX's tcp, without UCX: what passes before both ends have proven themselves, and
 * after that, encrypted or not. */
#include "firmware-tests/process/connection_pair.h"

#include <sys/resource.h>
#include <sys/wait.h>

#define HELLO_BYTES 76u
#define ANSWER_BYTES 64u

static const char secret_text[] = "a gradient that nobody else may read";

static void ms_pass(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static bool all_sent(int fd, const unsigned char *data, size_t bytes, int other, unsigned char *in,
                     size_t *in_bytes)
{
    size_t sent = 0;
    for (int turns = 0; (turns < 100000) && ((sent < bytes) || (*in_bytes < bytes)); turns++) {
        size_t piece = (turns % 3 == 0) ? bytes - sent : (bytes - sent + 1) / 2;
        ssize_t n = (sent < bytes) ? ucx_send(fd, data + sent, piece, 0) : 0;
        if ((n < 0) && (errno != EAGAIN)) return false;
        if (n > 0) sent += (size_t)n;
        n = ucx_recv(other, in + *in_bytes, (turns % 5 == 0) ? 7 : bytes - *in_bytes, MSG_DONTWAIT);
        if (n > 0) *in_bytes += (size_t)n;
    }
    return (sent == bytes) && (*in_bytes == bytes);
}

static void both_talk(void)
{
    static unsigned char out[300000];
    static unsigned char in[300000];
    size_t sizes[] = {16385, 1, sizeof secret_text, 16384, sizeof out};
    for (size_t s = 0; s < LENGTH(sizes); s++) {
        for (size_t i = 0; i < sizeof out; i++)
            out[i] = (unsigned char)(secret_text[i % sizeof secret_text] + (int)s);
        for (int back = 0; back < 2; back++) {
            size_t got = 0;
            memset(in, 0, sizeof in);
            int from = back ? listener.fd : caller.fd;
            int to = back ? caller.fd : listener.fd;
            assert_true(all_sent(from, out, sizes[s], to, in, &got));
            assert_memory_equal(in, out, sizes[s]);
        }
    }
}

static bool on_the_wire(const char *text)
{
    return memmem(wire, wire_bytes, text, strlen(text)) != NULL;
}

TEST(both_prove_themselves_and_then_talk)
{
    for (int kind = 0; kind < 3; kind++) { /* without a key, with one, encrypted */
        struct gf_fault fault = {.code = GF_OK};
        pair_open((kind > 0) ? key_path : "", kind == 2);
        call();
        assert_int_equal(ucx_send(caller.fd, "UCX's", 5, 0), 5); /* held */
        assert_int_equal(caller_waits(&fault), GF_OK);
        assert_true(listener.fd >= 0);
        char word[8] = "";
        for (int ms = 0;
             (ms < 1000) && (ucx_recv(listener.fd, word, sizeof word, MSG_DONTWAIT) < 0); ms++)
            ms_pass();
        assert_string_equal(word, "UCX's");
        both_talk();
        assert_int_equal(on_the_wire("a gradient that nobody"), kind < 2);
        assert_int_equal(on_the_wire("UCX's"), kind < 2);
        pair_close();
    }
}

/* Somebody has the port of a rank: he reads the hello, and says what he likes. */
TEST(nothing_leaves_for_a_listener_that_proves_nothing)
{
    for (int says = 0; says < 3; says++) { /* noise, the hello itself, the end */
        unsigned char heard[512];
        struct gf_fault fault = {.code = GF_OK};
        pair_open(key_path, says == 1);
        call();
        assert_int_equal(ucx_send(caller.fd, secret_text, sizeof secret_text, 0),
                         sizeof secret_text);
        (void)gf_proofs_progress(&caller.proofs, 0, &fault);
        int taken = __real_accept(listen_fd, NULL, NULL);
        for (int ms = 0; (taken < 0) && (ms < 1000); ms++) {
            (void)gf_proofs_progress(&caller.proofs, 0, &fault);
            ms_pass();
            taken = __real_accept(listen_fd, NULL, NULL);
        }
        assert_int_equal(ucx_recv(taken, heard, sizeof heard, 0), HELLO_BYTES);
        if (says < 2)
            assert_int_equal(ucx_send(taken, (says == 0) ? wire : heard, ANSWER_BYTES, 0),
                             ANSWER_BYTES);
        else
            assert_int_equal(shutdown(taken, SHUT_RDWR), 0);
        listener.fd = taken;
        assert_int_equal(caller_waits(&fault), GF_ERR_LINK);
        assert_int_equal(fault.peer, 1);
        assert_non_null(
            strstr(fault.text, (says < 2) ? "did not prove that it is of this job" : "ended"));
        assert_false(on_the_wire(secret_text));
        /* UCX sees a silent connection. */
        assert_int_equal(ucx_send(caller.fd, secret_text, sizeof secret_text, 0),
                         sizeof secret_text);
        assert_int_equal(ucx_recv(caller.fd, heard, sizeof heard, 0), -1);
        assert_int_equal(errno, EAGAIN);
        pair_close();
    }
}

/* From the same port as before, with all that the caller said then. */
TEST(a_conversation_cannot_be_repeated)
{
    for (int encryption = 0; encryption < 2; encryption++) {
        struct gf_fault fault = {.code = GF_OK};
        unsigned char said[256];
        unsigned char heard[64];
        const struct linger at_once = {.l_onoff = 1};
        struct sockaddr_in from;
        socklen_t bytes = sizeof from;
        const int on = 1;
        size_t said_bytes = 0;
        pair_open(key_path, encryption != 0);
        call();
        assert_int_equal(ucx_send(caller.fd, "UCX's", 5, 0), 5);
        assert_int_equal(getsockname(caller.fd, (struct sockaddr *)&from, &bytes), 0);
        assert_int_equal(caller_waits(&fault), GF_OK);
        memcpy(said, wire, HELLO_BYTES); /* then came the answer, which is the listener's */
        said_bytes = wire_bytes - ANSWER_BYTES;
        memcpy(said + HELLO_BYTES, wire + HELLO_BYTES + ANSWER_BYTES, said_bytes - HELLO_BYTES);
        for (int ms = 0; (ms < 1000) && (ucx_recv(listener.fd, heard, 5, MSG_DONTWAIT) != 5); ms++)
            ms_pass();
        assert_int_equal(setsockopt(listener.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once),
                         0);
        assert_int_equal(close(listener.fd), 0);
        assert_int_equal(close(caller.fd), 0);
        caller.fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(setsockopt(caller.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
        assert_int_equal(bind(caller.fd, (struct sockaddr *)&from, sizeof from), 0);
        assert_int_equal(__real_connect(caller.fd, (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(__real_send(caller.fd, said, HELLO_BYTES, 0), HELLO_BYTES);
        for (int ms = 0; ((listener.fd = accept(listen_fd, NULL, NULL)) < 0) && (ms < 1000); ms++)
            ms_pass();
        assert_true(listener.fd >= 0); /* so far it fits */
        assert_int_equal(__real_recv(caller.fd, heard, sizeof heard, 0), ANSWER_BYTES);
        (void)__real_send(caller.fd, said + HELLO_BYTES, said_bytes - HELLO_BYTES, MSG_NOSIGNAL);
        ssize_t got = -1;
        for (int ms = 0; (got < 0) && (ms < 1000); ms++) {
            got = ucx_recv(listener.fd, heard, sizeof heard, MSG_DONTWAIT);
            ms_pass();
        }
        assert_int_equal(got, 0); /* it has ended, and UCX has seen nothing */
        assert_int_equal(gf_proofs_progress(&listener.proofs, 0, &fault), GF_ERR_LINK);
        assert_non_null(strstr(fault.text, "second proof"));
        pair_close();
    }
}

TEST(a_flipped_byte_ends_an_encrypted_connection)
{
    static unsigned char in[40000];
    static unsigned char out[40000];
    const int64_t places[] = {0, 3, 4, 100, 16387, 16388, 16403, 16404, 16408, 39999};
    for (size_t p = 0; p < LENGTH(places); p++) {
        struct gf_fault fault = {.code = GF_OK};
        size_t got = 0;
        pair_open(key_path, true);
        call();
        assert_int_equal(caller_waits(&fault), GF_OK);
        (void)ucx_recv(listener.fd, in, sizeof in, MSG_DONTWAIT); /* its second proof */
        memset(out, 0x5a, sizeof out);
        memset(in, 0x5a, sizeof in);
        assert_int_equal(listener.proofs.conns[0].state, GF_CONN_OPEN);
        flip_in = places[p];
        (void)all_sent(caller.fd, out, sizeof out, listener.fd, in, &got);
        assert_true(got < sizeof out);
        for (size_t i = 0; i < got; i++) assert_int_equal(in[i], 0x5a);
        assert_int_equal(gf_proofs_progress(&listener.proofs, 0, &fault), GF_ERR_LINK);
        assert_non_null(strstr(fault.text, "changed on its way"));
        pair_close();
    }
}

static uint32_t complaints;

static void hear(void *user, gf_log_level level, const char *text)
{
    (void)user;
    complaints +=
        (level == GF_LOG_ERROR) && (strcmp(text, "link: accept: no file descriptor left") == 0);
}

/* UCX hears of none of it, and the caller waits. */
TEST(a_lack_of_descriptors_is_said_and_passes)
{
    struct gf_fault fault = {.code = GF_OK};
    struct rlimit had;
    struct rlimit none;
    pair_open("", false);
    listener.proofs.log.fn = hear;
    complaints = 0;
    call();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &had), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = had.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int ms = 0; (ms < 2000) && (complaints == 0); ms++) {
        (void)gf_proofs_progress(&caller.proofs, 0, &fault);
        assert_int_equal(accept(listen_fd, NULL, NULL), -1);
        ms_pass();
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &had), 0);
    assert_int_not_equal(complaints, 0);
    assert_int_equal(caller_waits(&fault), GF_OK);
    assert_true(listener.fd >= 0);
    pair_close();
}

/* A thread of the program forks while another one is in here: what the child closes must not wait
 * for that one. */
TEST(a_forked_child_waits_for_nobodys_lock)
{
    int status = 0;
    pair_open("", false);
    gf_proofs_lock();
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(5);
        _exit(__wrap_close(dup(listen_fd)) + !gf_proofs_orphaned());
    }
    gf_proofs_unlock();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_false(gf_proofs_orphaned());
    pair_close();
}

TEST_AROUND(key_file_make, key_file_remove)
