/* Only who has the job's key joins; strangers by the thousands do not stop those.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/channel_hub.h"
#include "firmware-tests/support/open_files.h"
#include "firmware-tests/support/tcp_keys.h"
#include "firmware-tests/support/tcp_middle.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct middle middle;

/* The coordinator's end, and a member's, with these keys. */
static void coordinate(const char *key_file)
{
    hub.key_file = key_file;
    struct gf_channel_setup setup = hub_setup(true);
    hub_open(0, &setup);
}

static void join(uint32_t slot, const char *key_file)
{
    hub.key_file = key_file;
    hub_member(slot);
}

static void assert_refused(uint32_t slot, const char *text)
{
    HUB_UNTIL(heard[slot].status < 0);
    if (strstr(hub.ends[slot]->fault.text, text) == NULL)
        print_error("'%s'\n", hub.ends[slot]->fault.text);
    assert_int_equal(heard[slot].status, GF_ERR_MISMATCH);
    assert_non_null(strstr(hub.ends[slot]->fault.text, text));
}

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
    for (uint32_t slot = 0; slot < 2; slot++) {
        struct gf_fault fault = {0};
        hub_clear();
        hub.key_file = path;
        struct gf_channel_setup setup = hub_setup(slot == 0);
        gf_status status = hub_open_try(slot, &setup, &fault);
        assert_int_equal(status, (text == NULL) ? GF_OK : GF_ERR_CONFIG);
        if ((text != NULL) && (strstr(fault.text, text) == NULL))
            print_error("%s: '%s'\n", path, fault.text);
        assert_true((text == NULL) || (strstr(fault.text, text) != NULL));
        assert_true((text == NULL) || (strstr(fault.text, path) != NULL));
        hub_end();
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
    hub.key_file = key_a;
    struct gf_channel_setup setup = hub_setup(true);
    setup.bind = "0.0.0.0";
    hub_open(0, &setup);
    hub_member(1);
    HUB_UNTIL(heard[1].up == 1);
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
    coordinate(key_a);
    memory = hub.ends[0];
    assert_true(page_is_kept_out(memory));
    gf_channel_tcp.close(hub.ends[0]);
    hub.ends[0] = NULL;
    assert_false(page_is_kept_out(memory));
}

/* ---- who joins ---- */

/* A job with a key meets at a port, one without at a unix socket: a member also asks at the other
 * place, is not let in, and both ends hear why. */
TEST(a_key_that_one_process_of_a_loopback_job_has_is_named_on_both_sides)
{
    static const struct {
        const char *keys[2];
        bool insecure[2];
        const char *text;
    } rows[] = {
        {{key_a, ""}, {false, false}, "this process has no key_file, and this job wants one"},
        {{"", key_a}, {false, false}, "this process has a key_file, and the coordinator has none"},
        {{"", ""}, {true, false}, "the coordinator has rendezvous.insecure, and this process has"},
        {{"", ""}, {false, true}, "this process has rendezvous.insecure, and the coordinator has"},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        hub_clear();
        uint64_t since_ns = hub_now_ns;
        for (uint32_t end = 0; end < 2; end++) {
            hub.key_file = rows[i].keys[end];
            hub.insecure = rows[i].insecure[end];
            struct gf_channel_setup setup = hub_setup(end == 0);
            hub_open((end == 0) ? 0 : 5, &setup);
        }
        /* a process of this user says so, of the same job: to wait for another would not help */
        assert_refused(5, rows[i].text);
        assert_non_null(strstr(hub_logged, rows[i].text));
        assert_true(hub_now_ns - since_ns < 2 * HUB_SECOND);
        assert_int_equal(hub.ends[0]->refused_count, 1);
        assert_non_null(strstr(hub.ends[0]->refused_text, rows[i].text));
        assert_int_equal(heard[0].connected | heard[5].connected, 0);
        hub_end();
    }
}

static const struct key_case {
    const char *coordinator, *member; /* key files */
    const char *text;                 /* the member's fault, and the coordinator's log */
} keys[] = {
    {key_a, key_b, "did not prove that it has this job's key: its key_file has other bytes"},
    {key_a, "", "this process has no key_file, and this job wants one"},
    {"", key_a, "this process has a key_file, and the coordinator has none"},
};

TEST(keys_that_differ_are_named_on_both_sides)
{
    for (size_t i = 0; i < LENGTH(keys); i++) {
        hub_clear_open();
        coordinate(keys[i].coordinator);
        join(5, keys[i].member);
        assert_refused(5, keys[i].text);
        hub_close(5);
        HUB_UNTIL(strstr(hub_logged, keys[i].text) != NULL);
        assert_int_equal(heard[0].connected, 0);
        join(1, keys[i].coordinator); /* the job still takes its members */
        HUB_UNTIL(heard[1].up == 1);
        hub_end();
    }
}

/* NONCE says job and protocol to everybody, so whoever has no key hears how these differ; of the
 * library's version it hears nothing. */
TEST(without_the_key_no_more_is_told_than_the_nonce_says)
{
    static const struct {
        const char *name;
        uint32_t at; /* byte of the hello that is replaced */
        unsigned char value;
        const char *text;
    } rows[] = {
        {"job", 16, 1, "job id 4711 at the coordinator, 4609 at this process"},
        {"protocol", 4, 9, "protocol version 5 at the coordinator, 9 at this process"},
        {"version", 34, 1, "this process did not prove that it has this job's key"},
    };
    coordinate(key_a);
    for (uint32_t i = 0; i < LENGTH(rows); i++) {
        unsigned char hello[HELLO_FRAME];
        char text[GF_FRAME_REASON_BYTES];
        hello_make(hello, GF_HELLO_KEYED);
        hello[rows[i].at] = rows[i].value;
        int fd = stranger_at(hub.address);
        say(fd, hello, HELLO_FRAME);
        hear_refusal(fd, true, text);
        if (strstr(text, rows[i].text) == NULL) print_error("%s: '%s'\n", rows[i].name, text);
        assert_non_null(strstr(text, rows[i].text));
        assert_null(strstr(text, "library version"));
        assert_int_equal(hub.ends[0]->refused_count, i + 1);
        (void)close(fd);
    }
}

/* .. and a member of another job and key ends at once, with both. */
TEST(a_member_of_another_job_and_key_hears_which_job_is_there)
{
    coordinate(key_a);
    hub.key_file = key_b;
    struct gf_channel_setup setup = hub_setup(false);
    setup.job_id = 4712;
    hub_open(5, &setup);
    assert_refused(5, "job id 4711 at the coordinator, 4712 at this process");
}

/* Once it was met it may come back to where another job is meanwhile. */
TEST(a_coordinator_of_another_key_ends_nobody_who_was_in)
{
    hub.key_file = key_a;
    hub_join(1);
    hub_close(0);
    coordinate(key_b);
    HUB_UNTIL((heard[1].ended > 1) && (strstr(heard[1].text, "did not prove") != NULL));
    assert_int_equal(heard[1].end, GF_CHANNEL_BROKE);
    hub_close(0);
    coordinate(key_a);
    HUB_UNTIL(heard[1].up == 1);
}

/* ---- strangers ---- */

/* What an acceptor says is no proof of who dials, and one nonce serves one connection. */
TEST(a_nonce_sent_to_another_proves_nothing)
{
    unsigned char transcript[2][SAID];
    char text[GF_FRAME_REASON_BYTES];
    int fds[2];
    coordinate(key_a);
    for (int i = 0; i < 2; i++) fds[i] = stranger_meets(hub.address, key_a, transcript[i]);
    assert_memory_not_equal(transcript[0] + GF_FRAME_HEADER_BYTES,
                            transcript[1] + GF_FRAME_HEADER_BYTES, GF_AUTH_NONCE_BYTES);
    for (int i = 0; i < 2; i++) { /* each with the other's hello */
        say(fds[i], transcript[1 - i] + NONCE_FRAME, HELLO_FRAME);
        hear_refusal(fds[i], false, text);
        assert_non_null(strstr(text, "did not prove that it has this job's key"));
        (void)close(fds[i]);
    }
    assert_int_equal(heard[0].connected, 0);
}

/* What stranger number i does. False: he has gone. */
static bool misbehaves(int fd, uint32_t i, const char *key)
{
    static unsigned char noise[1 << 16];
    static unsigned char hello[HELLO_FRAME];
    memset(noise, 'N', sizeof noise);
    hello_make(hello, (key[0] != 0) ? GF_HELLO_KEYED : 0);
    switch (i % 9) {
    case 0: break;                               /* half-open */
    case 1: say(fd, hello, 50); break;           /* slow */
    case 2: say(fd, noise, sizeof noise); break; /* oversized */
    case 3:                                      /* without a key */
        hello_make(hello, 0);
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
    hub_clear_open();
    coordinate(key);
    uint32_t descriptors_before = open_files();
    size_t allocated_before = mallinfo2().uordblks;
    for (uint32_t i = 0; i < count; i++) {
        int *fd = &open_fds[opened++ % open_max];
        if (*fd >= 0) (void)close(*fd);
        *fd = stranger_at(hub.address);
        if (!misbehaves(*fd, i, key)) *fd = -1;
        hub_now_ns += 10 * HUB_MS;
        for (int t = 0; t < 2; t++) hub_turn();
        if (i % (count / 5) == count / 10) { /* ranks come in the middle of it */
            size_t allocated = mallinfo2().uordblks;
            uint32_t rank = 1 + i / (count / 5);
            join(rank, key);
            allocated_before += mallinfo2().uordblks - allocated; /* the test's own, for that end */
        }
    }
    HUB_UNTIL(heard[0].connected == 5);
    for (uint32_t i = 0; i < open_max; i++) {
        if (open_fds[i] >= 0) (void)close(open_fds[i]);
    }
    assert_int_equal(mallinfo2().uordblks, allocated_before);
    for (int t = 0; t < 100; t++) hub_turn();
    /* Ends of 5 connections on both sides, two epolls for each of the 5 members. */
    HUB_UNTIL(open_files() == descriptors_before + 20);
    assert_int_equal(heard[0].ended, 0);
    for (uint32_t rank = 1; rank < 6; rank++) {
        assert_int_equal(gf_channel_tcp.send(hub.ends[rank], 0, 1, "x", 1), GF_OK);
    }
    HUB_UNTIL(heard[0].frames == 5);
    hub_end();
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
        hub_clear();
        middle_open(&middle, hub.address);
        (void)snprintf(hub.address, sizeof hub.address, "%s", middle.address);
        join(1, key_a);
        int fd = -1;
        HUB_UNTIL((fd = accept4(middle.listen_fd, NULL, NULL, SOCK_NONBLOCK)) >= 0);
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
        HUB_UNTIL(accept4(middle.listen_fd, NULL, NULL, SOCK_NONBLOCK) >= 0); /* tried again */
        assert_int_equal(heard[1].connected, 0);
        assert_int_equal(heard[1].status, GF_OK);
        (void)close(fd);
        hub_end();
        middle_close(&middle);
    }
}

/* Slots are shared among addresses: who has most of them loses the oldest, whoever comes. */
TEST(one_address_pushes_out_its_own)
{
    static int fds[300];
    unsigned char transcript[SAID];
    unsigned char byte;
    uint32_t gone = 0;
    hub.connections_max = 16;
    coordinate(key_a);
    int other = stranger_from("127.0.0.2", hub.address); /* the oldest, and alone of its address */
    for (size_t i = 0; i < LENGTH(fds); i++) {
        fds[i] = stranger_at(hub.address);
        hub_turn();
    }
    for (int i = 0; i < 20; i++) hub_turn();
    for (size_t i = 0; i < LENGTH(fds); i++) {
        (void)recv(fds[i], transcript, NONCE_FRAME, MSG_DONTWAIT);
        bool ended = recv(fds[i], &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
        ended = ended || ((errno != EAGAIN) && (errno != EWOULDBLOCK));
        gone += ended;
        assert_int_equal(ended, i < gone); /* the oldest ones */
    }
    assert_true((gone > 200) && (gone < 240)); /* 8 + 64 slots */
    assert_int_equal(hear(other, transcript, NONCE_FRAME), NONCE_FRAME);
    hello_make(transcript + NONCE_FRAME,
               GF_HELLO_KEYED); /* a member after all, long after it came */
    hello_prove(transcript, key_a);
    hub_now_ns += 60 * HUB_SECOND;
    say(other, transcript + NONCE_FRAME, HELLO_FRAME);
    HUB_UNTIL(heard[0].connected == 1);
    for (size_t i = 0; i < LENGTH(fds); i++) (void)close(fds[i]);
    (void)close(other);
}

/* 512 ranks at once, of which none says its hello before all are there. */
TEST(as_many_ranks_as_a_job_has_come_at_once)
{
    enum { RANKS = 512 };
    static int fds[RANKS];
    static unsigned char transcript[RANKS][SAID];
    struct rlimit had;
    struct rlimit many;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &had), 0);
    many = had;
    if (many.rlim_cur < 2 * RANKS + 400) many.rlim_cur = 2 * RANKS + 400;
    if ((many.rlim_cur > many.rlim_max) || (setrlimit(RLIMIT_NOFILE, &many) != 0)) skip();
    hub.connections_max = 2 * RANKS + 16;
    coordinate(key_a);
    uint64_t since_ns = hub_now_ns;
    for (uint32_t r = 1; r < RANKS; r++) fds[r] = stranger_meets(hub.address, key_a, transcript[r]);
    for (uint32_t r = 1; r < RANKS; r++) say(fds[r], transcript[r] + NONCE_FRAME, HELLO_FRAME);
    for (uint32_t r = 1; r < RANKS; r++) {
        assert_int_equal(hear(fds[r], transcript[r], ANSWER_FRAME), ANSWER_FRAME);
        assert_int_equal(gf_frame_header_get(transcript[r]).kind, GF_FRAME_ANSWER);
    }
    assert_true(hub_now_ns - since_ns < HUB_SECOND);
    for (uint32_t r = 1; r < RANKS; r++) (void)close(fds[r]);
    hub_end();
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

TEST_EACH(hub_clear, hub_end)
TEST_AROUND(keys_setup, keys_teardown)
