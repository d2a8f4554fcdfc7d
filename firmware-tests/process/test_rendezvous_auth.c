/* Only who has the job's key joins; strangers by the thousands do not stop those. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/tcp_keys.h"
#include "firmware-tests/support/tcp_middle.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct middle middle;

/* ---- the key file ---- */

static const struct file_case {
    const char *name;
    size_t bytes;
    mode_t mode;
    const char *text; /* of the refusal; NULL: opens */
} files[] = {
    {"smallest", 32, 0600, NULL},
    {"largest", 4096, 0600, NULL},
    {"read_only", 32, 0400, NULL},
    {"empty", 0, 0600, "expected 32 to 4096 bytes, found 0"},
    {"too_small", 31, 0600, "expected 32 to 4096 bytes, found 31"},
    {"too_large", 4097, 0600, "expected 32 to 4096 bytes, found 4097"},
    {"group_reads", 32, 0640, "with mode 0600 or 0400, found a file with mode 0640"},
    {"all_read", 32, 0604, "found a file with mode 0604"},
    {"group_writes", 32, 0620, "found a file with mode 0620"},
    {"a_program", 32, 0700, "found a file with mode 0700"},
};

static void key_open_check(const char *path, const char *text)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct gf_fault fault = {0};
        begin();
        struct gf_rendezvous_setup setup = keyed(rank, 2, path);
        gf_status status = tcp_world_end_open(&star, rank, &setup, now_ns, &fault);
        assert_int_equal(status, (text == NULL) ? GF_OK : GF_ERR_CONFIG);
        if ((text != NULL) && (strstr(fault.text, text) == NULL))
            print_error("%s: '%s'\n", path, fault.text);
        assert_true((text == NULL) || (strstr(fault.text, text) != NULL));
        assert_true((text == NULL) || (strstr(fault.text, path) != NULL));
        tcp_world_close(&star);
    }
}

TEST(a_key_file_is_private_and_of_a_valid_size)
{
    char path[96];
    for (size_t i = 0; i < LENGTH(files); i++) {
        key_open_check(file_make(files[i].name, 'k', files[i].bytes, files[i].mode), files[i].text);
    }
    key_open_check(key_folder, "found a folder with mode 0700");
    key_open_check("/nonexistent/key", "No such file");
    (void)snprintf(path, sizeof path, "%s/pipe", key_folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    key_open_check(path, "found no regular file"); /* and is not waited for */
    /* A link is judged by what it leads to, as secrets are mounted by some. */
    (void)snprintf(path, sizeof path, "%s/link", key_folder);
    assert_int_equal(symlink("a", path), 0);
    key_open_check(path, NULL);
    (void)unlink(path);
    assert_int_equal(symlink("all_read", path), 0);
    key_open_check(path, "found a file with mode 0604");
}

TEST(a_key_file_of_another_user_is_refused)
{
    char path[64];
    char text[64];
    if (geteuid() != 0) skip();
    (void)snprintf(path, sizeof path, "%s", file_make("foreign", 'a', 32, 0600));
    assert_int_equal(chown(path, 12345, 12345), 0);
    (void)snprintf(text, sizeof text, "mode 0600 of user 12345");
    key_open_check(path, text);
}

TEST(a_key_allows_an_address_beyond_loopback)
{
    struct gf_rendezvous_setup setup = keyed(0, 2, key_a);
    setup.bind = "0.0.0.0";
    end_open(0, &setup);
    keyed_open(1, 1, 2, key_a);
    turns_connect(2);
}

/* Is the page kept out of a core? */
static bool page_is_kept_out(const void *address)
{
    char line[400];
    bool inside = false;
    bool kept_out = false;
    FILE *maps = fopen("/proc/self/smaps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long first;
        unsigned long last;
        if (sscanf(line, "%lx-%lx ", &first, &last) == 2)
            inside = (first <= (uintptr_t)address) && ((uintptr_t)address < last);
        else if (inside && (strncmp(line, "VmFlags:", 8) == 0))
            kept_out = strstr(line, " dd") != NULL;
    }
    (void)fclose(maps);
    return kept_out;
}

TEST(a_core_holds_no_key)
{
    const void *memory;
    keyed_open(0, 0, 2, key_a);
    memory = star.ends[0];
    assert_true(page_is_kept_out(memory));
    gf_rendezvous_tcp.close(star.ends[0]);
    star.ends[0] = NULL;
    assert_false(page_is_kept_out(memory));
}

/* ---- who joins ---- */

/* A job with a key meets at a port, one without at a unix socket: each rank also asks at the other
 * place, is not let in, and both ends hear why. */
TEST(a_key_that_one_rank_of_a_loopback_job_has_is_named_on_both_sides)
{
    static const struct {
        const char *keys[2];
        bool insecure[2];
        const char *text;
    } rows[] = {
        {{key_a, ""}, {false, false}, "rank 1 has no key_file, this job wants one"},
        {{"", key_a}, {false, false}, "rank 1 has a key_file, rank 0 has none"},
        {{"", ""}, {true, false}, "rank 0 has rendezvous.insecure, rank 1 has not"},
        {{"", ""}, {false, true}, "rank 1 has rendezvous.insecure, rank 0 has not"},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        uint64_t since_ns;
        begin();
        since_ns = now_ns;
        for (uint32_t rank = 0; rank < 2; rank++) {
            struct gf_rendezvous_setup setup = keyed(rank, 2, rows[i].keys[rank]);
            setup.insecure = rows[i].insecure[rank];
            end_open((rank == 0) ? 0 : 5, &setup);
        }
        UNTIL(strstr(seen[0].text, rows[i].text) != NULL);
        assert_true(now_ns - since_ns < 2 * SECOND);
        for (int n = 0; n < 100; n++) turn();
        assert_int_equal(seen[5].status, GF_AGAIN); /* what came so proves nothing */
        assert_int_equal(seen[0].status, GF_AGAIN);
        assert_int_equal(seen[0].connected | seen[5].connected, 0);
        now_ns += 60 * SECOND;
        UNTIL(seen[5].status < 0);
        assert_int_equal(seen[5].status, GF_ERR_MISMATCH);
        assert_non_null(strstr(star.ends[5]->fault.text, rows[i].text));
        tcp_world_close(&star);
    }
}

static const struct key_case {
    const char *name;
    const char *coordinator, *rank; /* key files */
    const char *rank_text;          /* the rank's fault */
    const char *log_text;           /* the coordinator's */
    uint32_t refused;               /* events: only what is believed may end the job */
} keys[] = {
    {"another_key", key_a, key_b,
     "did not prove that it has this job's key: its key_file has other bytes",
     "rank 1 did not prove that it has this job's key", 0},
    {"no_key", key_a, "", "rank 1 has no key_file, this job wants one", "rank 1 has no key_file",
     0},
    {"a_key_too_many", "", key_a, "rank 1 has a key_file, rank 0 has none", "rank 1 has a key_file",
     1},
};

TEST(keys_that_differ_are_named_on_both_sides)
{
    for (size_t i = 0; i < LENGTH(keys); i++) {
        begin_open();
        keyed_open(0, 0, 2, keys[i].coordinator);
        keyed_open(5, 1, 2, keys[i].rank);
        assert_refused(5, keys[i].rank_text);
        tcp_world_end_close(&star, 5);
        UNTIL(strstr(logged, keys[i].log_text) != NULL);
        assert_int_equal(seen[0].refused, keys[i].refused);
        assert_int_equal(seen[0].connected, 0);
        keyed_open(1, 1, 2, keys[i].coordinator); /* the job still takes its ranks */
        turns_connect(2);
        tcp_world_close(&star);
    }
}

TEST(what_a_rank_with_the_key_says_is_believed)
{
    keyed_open(0, 0, 3, key_a);
    keyed_open(1, 1, 4, key_a);
    assert_refused(1, "world 3 at rank 0, 4 at rank 1");
    UNTIL(seen[0].refused == 1);
    assert_non_null(strstr(seen[0].text, "world 3 at rank 0, 4 at rank 1"));
    keyed_open(2, 2, 3, key_a);
    UNTIL(seen[0].connected == 4);
    keyed_open(3, 2, 3, key_a);
    assert_refused(3, "rank 2 is here already");
    assert_int_equal(seen[0].ended, 0);
}

/* ---- strangers ---- */

/* What an acceptor says is no proof of who dials, and one nonce serves one connection. */
TEST(a_nonce_sent_to_another_proves_nothing)
{
    unsigned char said[2][SAID];
    char text[GF_FRAME_REASON_BYTES];
    int fds[2];
    keyed_open(0, 0, 2, key_a);
    for (int i = 0; i < 2; i++) fds[i] = stranger_meets(star.address, 1, 2, key_a, said[i]);
    assert_memory_not_equal(said[0] + GF_FRAME_HEADER_BYTES, said[1] + GF_FRAME_HEADER_BYTES,
                            GF_AUTH_NONCE_BYTES);
    for (int i = 0; i < 2; i++) { /* each with the other's hello */
        say(fds[i], said[1 - i] + NONCE_FRAME, HELLO_FRAME);
        hear_refusal(fds[i], false, text);
        assert_non_null(strstr(text, "did not prove that it has this job's key"));
        (void)close(fds[i]);
    }
    assert_int_equal(seen[0].connected | seen[0].refused, 0);
}

static uint32_t descriptors(void)
{
    uint32_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir) != NULL) count++;
    (void)closedir(dir);
    return count;
}

/* What stranger number i does. False: he has gone. */
static bool misbehaves(int fd, uint32_t i, const char *key)
{
    static unsigned char noise[1 << 16];
    static unsigned char hello[HELLO_FRAME];
    memset(noise, 'N', sizeof noise);
    hello_make(hello, 1 + i % 5, 6, key[0] != 0);
    switch (i % 9) {
    case 0: break;                               /* half-open */
    case 1: say(fd, hello, 50); break;           /* slow */
    case 2: say(fd, noise, sizeof noise); break; /* oversized */
    case 3:                                      /* without a key */
        hello_make(hello, 1 + i % 5, 6, 0);
        if (key[0] != 0) say(fd, hello, sizeof hello);
        break;
    case 4: say(fd, hello, (key[0] != 0) ? sizeof hello : 20); break; /* a proof that is none */
    case 5: say(fd, "GET / HTTP/1.1\r\n\r\nHost: gradient\r\n\r\n", 36); break;
    case 6: /* a size beyond all bounds */
        memset(hello + 12, 0xff, 4);
        say(fd, hello, sizeof hello);
        break;
    case 7: /* of another job */
        hello[16] ^= 1;
        say(fd, hello, sizeof hello);
        break;
    case 8: /* does not wait for the answer */
        if (key[0] != 0) say(fd, hello, sizeof hello);
        (void)close(fd);
        return false;
    }
    return true;
}

static void strangers_come(const char *key, uint32_t count)
{
    int open_fds[150];
    uint32_t opened = 0;
    const uint32_t open_max = LENGTH(open_fds);
    memset(open_fds, -1, sizeof open_fds);
    begin_open();
    keyed_open(0, 0, 6, key);
    uint32_t descriptors_before = descriptors();
    size_t allocated_before = mallinfo2().uordblks;
    for (uint32_t i = 0; i < count; i++) {
        int *fd = &open_fds[opened++ % open_max];
        if (*fd >= 0) (void)close(*fd);
        *fd = stranger_at(star.address);
        if (!misbehaves(*fd, i, key)) *fd = -1;
        now_ns += 10 * MS;
        for (int t = 0; t < 2; t++) turn();
        if (i % (count / 5) == count / 10) { /* ranks come in the middle of it */
            size_t allocated = mallinfo2().uordblks;
            uint32_t rank = 1 + i / (count / 5);
            keyed_open(rank, rank, 6, key);
            allocated_before += mallinfo2().uordblks - allocated; /* the test's own, for that end */
        }
    }
    UNTIL(seen[0].connected == 0x3e);
    for (uint32_t i = 0; i < open_max; i++) {
        if (open_fds[i] >= 0) (void)close(open_fds[i]);
    }
    assert_int_equal(mallinfo2().uordblks, allocated_before);
    for (int t = 0; t < 100; t++) turn();
    /* Ends of 5 connections on both sides, two epolls for each of the 5 ranks, and where it would
     * listen itself. */
    UNTIL(descriptors() == descriptors_before + 25);
    assert_int_equal(seen[0].refused, 0);
    assert_int_equal(seen[0].ended, 0);
    for (uint32_t rank = 1; rank < 6; rank++) {
        assert_int_equal(gf_rendezvous_tcp.send(star.ends[rank], 0, 1, "x", 1), GF_OK);
    }
    UNTIL(seen[0].frames == 5);
    tcp_world_close(&star);
}

TEST(thousands_of_strangers_do_not_stop_a_job)
{
    strangers_come(key_a, 5000);
    strangers_come("", 500);
}

/* Something else listens at the address, and has no key: it ends a try, and no rank. */
TEST(an_impostor_is_no_coordinator)
{
    for (int answers = 0; answers < 2; answers++) {
        unsigned char nonce[NONCE_FRAME] = {0};
        unsigned char hello[HELLO_FRAME];
        unsigned char answer[ANSWER_FRAME + GF_AUTH_MAC_BYTES] = {0};
        begin();
        middle_open(&middle, star.address);
        (void)snprintf(star.address, sizeof star.address, "%s", middle.address);
        keyed_open(1, 1, 2, key_a);
        int fd = -1;
        UNTIL((fd = accept4(middle.listen_fd, NULL, NULL, SOCK_NONBLOCK)) >= 0);
        gf_frame_header_put(&(struct gf_put){nonce, sizeof nonce}, GF_FRAME_NONCE,
                            GF_FRAME_NONCE_BYTES, 4711, 0);
        say(fd, nonce, sizeof nonce);
        assert_int_equal(hear(fd, hello, sizeof hello), sizeof hello);
        if (answers) { /* "come in" */
            gf_frame_header_put(&(struct gf_put){answer, sizeof answer}, GF_FRAME_ANSWER, 0, 4711,
                                0);
            say(fd, answer, sizeof answer);
            assert_int_equal(hear(fd, nonce, 1), 0); /* hung up on */
        }
        UNTIL(accept4(middle.listen_fd, NULL, NULL, SOCK_NONBLOCK) >= 0); /* tried again */
        assert_int_equal(seen[1].connected, 0);
        assert_int_equal(seen[1].status, GF_AGAIN);
        (void)close(fd);
        tcp_world_close(&star);
        middle_close(&middle);
    }
}

/* Slots are shared among addresses: who has most of them loses the oldest, whoever comes. */
TEST(one_address_pushes_out_its_own)
{
    static int fds[300];
    unsigned char said[SAID];
    unsigned char byte;
    uint32_t gone = 0;
    keyed_open(0, 0, 8, key_a);
    int other = stranger_from("127.0.0.2", star.address); /* the oldest, and alone of its address */
    for (size_t i = 0; i < LENGTH(fds); i++) {
        fds[i] = stranger_at(star.address);
        turn();
    }
    for (int i = 0; i < 20; i++) turn();
    for (size_t i = 0; i < LENGTH(fds); i++) {
        (void)recv(fds[i], said, NONCE_FRAME, MSG_DONTWAIT);
        bool ended = recv(fds[i], &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
        ended = ended || ((errno != EAGAIN) && (errno != EWOULDBLOCK));
        gone += ended;
        assert_int_equal(ended, i < gone); /* the oldest ones */
    }
    assert_true((gone > 200) && (gone < 240)); /* 8 + 64 slots */
    assert_int_equal(hear(other, said, NONCE_FRAME), NONCE_FRAME);
    hello_make(said + NONCE_FRAME, 1, 8, 1); /* a rank after all, long after it came */
    hello_prove(said, key_a);
    now_ns += 60 * SECOND;
    say(other, said + NONCE_FRAME, HELLO_FRAME);
    UNTIL(seen[0].connected == 2);
    for (size_t i = 0; i < LENGTH(fds); i++) (void)close(fds[i]);
    (void)close(other);
}

/* 512 ranks at once, of which none says its hello before all are there. */
TEST(as_many_ranks_as_a_job_has_come_at_once)
{
    enum { RANKS = 512 };
    static int fds[RANKS];
    static unsigned char said[RANKS][SAID];
    struct rlimit had;
    struct rlimit many;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &had), 0);
    many = had;
    if (many.rlim_cur < 2 * RANKS + 400) many.rlim_cur = 2 * RANKS + 400;
    if ((many.rlim_cur > many.rlim_max) || (setrlimit(RLIMIT_NOFILE, &many) != 0)) skip();
    keyed_open(0, 0, RANKS, key_a);
    uint64_t since_ns = now_ns;
    for (uint32_t r = 1; r < RANKS; r++)
        fds[r] = stranger_meets(star.address, r, RANKS, key_a, said[r]);
    for (uint32_t r = 1; r < RANKS; r++) say(fds[r], said[r] + NONCE_FRAME, HELLO_FRAME);
    for (uint32_t r = 1; r < RANKS; r++) {
        assert_int_equal(hear(fds[r], said[r], ANSWER_FRAME), ANSWER_FRAME);
        assert_int_equal(gf_frame_header_get(said[r]).kind, GF_FRAME_ANSWER);
    }
    assert_true(now_ns - since_ns < SECOND);
    for (uint32_t r = 1; r < RANKS; r++) (void)close(fds[r]);
    tcp_world_close(&star);
    (void)setrlimit(RLIMIT_NOFILE, &had);
}

/* Neither a proof nor a frame can be sent back to whom it came from: both sides say the same bytes,
 * each with a key of its own. */
TEST(what_one_side_proves_or_signs_does_not_fit_the_other)
{
    const struct gf_auth auth = {.on = true, .key = {1, 2, 3}};
    unsigned char proof[GF_AUTH_PROOF_BYTES];
    unsigned char MAC[GF_AUTH_MAC_BYTES];
    struct gf_auth_mac to_rank;
    struct gf_auth_mac to_coordinator;
    struct gf_auth_mac again;
    gf_auth_prove(&auth, "said", 4, proof);
    assert_true(gf_auth_proof_fits(&auth, "said", 4, proof));
    assert_false(gf_auth_proof_fits(&auth, "sand", 4, proof));
    gf_auth_macs(&auth, "said", 4, &to_rank, &to_coordinator);
    again = to_rank;
    gf_auth_mac_put(&to_rank, "frame", 5, NULL, 0, MAC);
    assert_false(gf_auth_mac_fits(&to_coordinator, "frame", 5, MAC));
    assert_true(gf_auth_mac_fits(&again, "frame", 5, MAC));
    assert_false(gf_auth_mac_fits(&again, "frame", 5, MAC)); /* once */
}

TEST_EACH(begin, world_end)
TEST_AROUND(keys_setup, keys_teardown)
