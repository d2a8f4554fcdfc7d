/* A job of one user of one host, without a key: it meets at abstract unix sockets, and the kernel
 * says at both ends whose the other is. Rows with another user need root. */
#include "firmware-tests/support/suite.h"
#include "drivers/tcp/rendezvous_socket.h"
#include "firmware-tests/support/stranger.h"
#include "firmware-tests/support/tcp_keys.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define OTHER 12345

static pid_t other;

static void other_end(void)
{
    if (other > 0) {
        (void)kill(other, SIGKILL);
        (void)waitpid(other, NULL, 0);
    }
    other = 0;
    world_end();
}

/* "@gradientflow-ADDRESS-JOB", of the job of these tests; with a rank: that of the rank. */
static const char *name_of(int rank)
{
    static char name[GF_SOCKET_NAME_BYTES];
    (void)snprintf(name, sizeof name,
                   (rank < 0) ? "@gradientflow-%.21s-4711" : "@gradientflow-%.21s-4711-%d",
                   star.address, rank);
    return name;
}

static void other_user(void)
{
    if ((setgid(OTHER) != 0) || (setuid(OTHER) != 0)) _exit(9);
}

/* A process of another user listens at this name, and says nothing. */
static void other_listens(const char *name)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    other = fork();
    assert_true(other >= 0);
    if (other == 0) {
        struct gf_fault fault = {0};
        other_user();
        if (gf_socket_name_listen(name, &fault) < 0) _exit(8);
        (void)!write(ready[1], "", 1);
        for (;;) (void)pause();
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
}

TEST(a_job_listens_at_no_port)
{
    struct stranger_port ports[4];
    uint32_t before = stranger_ports(getpid(), ports, LENGTH(ports));
    char own[GF_CONTROL_ADDRESS_BYTES];
    turns_open(3);
    assert_int_equal(stranger_ports(getpid(), ports, LENGTH(ports)), before);
    for (uint32_t rank = 0; rank < 3; rank++) {
        gf_rendezvous_tcp.address(star.ends[rank], own);
        assert_string_equal(own, name_of((rank == 0) ? -1 : (int)rank));
    }
}

/* With a key, or where the job is told to be insecure, it is the port. */
TEST(a_key_is_at_the_port)
{
    struct stranger_port ports[8];
    for (int key = 0; key < 2; key++) {
        begin();
        star.insecure = (key == 0);
        uint32_t before = stranger_ports(getpid(), ports, LENGTH(ports));
        keyed_open(0, 0, 2, key ? key_a : "");
        assert_int_equal(stranger_ports(getpid(), ports, LENGTH(ports)), before + 1);
        tcp_world_close(&star);
    }
}

TEST(jobs_of_one_port_do_not_meet)
{
    struct gf_rendezvous_setup setup = tcp_setup(&star, 0, 2);
    turns_open(2);
    setup.job_id = 4712;
    end_open(5, &setup);
    for (int i = 0; i < 100; i++) turn();
    assert_int_equal(seen[5].connected | seen[0].refused, 0);
}

/* Nothing but the address tells the jobs of bare starts apart: each is in the name. */
TEST(nor_do_jobs_of_one_id_at_two_addresses)
{
    char address[GF_TEXT_MAX];
    struct gf_rendezvous_setup setup = tcp_setup(&star, 0, 2);
    turns_open(2);
    (void)snprintf(address, sizeof address, "127.0.0.2%s", strrchr(star.address, ':'));
    setup.address = address;
    end_open(4, &setup); /* the other job's rank 0 finds its name free */
    setup.rank = 1;
    end_open(5, &setup);
    UNTIL((seen[4].connected == 2) && (seen[5].connected == 1));
    assert_int_equal(seen[0].refused, 0);
}

/* Two ranks with another GF_JOB each, and two that both say that they are rank 0. */
TEST(a_rank_of_another_job_names_the_one_that_is_there)
{
    begin();
    struct gf_rendezvous_setup setup = tcp_setup(&star, 1, 2);
    end_join(0, 0, 2);
    setup.job_id = 4712;
    end_open(1, &setup);
    for (int half = 0; half < 2; half++) {
        turn();
        now_ns += 30 * SECOND;
    }
    turn();
    assert_int_equal(seen[1].status, GF_ERR_TIMEOUT);
    assert_non_null(strstr(star.ends[1]->fault.text, "rank 1 of job 4712 did not meet rank 0 at"));
    assert_non_null(strstr(star.ends[1]->fault.text, "and job 4711 is there: is GF_JOB the same"));
}

/* Both are of this process: by name it is seen that it is another context. */
TEST(a_second_rank_0_says_that_there_are_two)
{
    for (int insecure = 0; insecure < 2; insecure++) {
        struct gf_fault fault = {0};
        begin();
        star.insecure = (insecure != 0);
        struct gf_rendezvous_setup setup = tcp_setup(&star, 0, 2);
        end_join(0, 0, 2);
        assert_int_equal(tcp_world_end_open(&star, 1, &setup, now_ns, &fault), GF_ERR_SYSTEM);
        assert_non_null(strstr(fault.text, insecure ? "another job or context has that port: set "
                                                      "GF_ADDRESS, or there are two ranks 0"
                                                    : "another context of this process does: each "
                                                      "wants a rendezvous.address (or job.id)"));
        tcp_world_close(&star);
    }
}

/* As rank 0 of nobody that starts first. */
TEST(a_name_that_another_user_holds_ends_rank_0)
{
    struct gf_fault fault = {0};
    if (geteuid() != 0) skip();
    other_listens(name_of(-1));
    struct gf_rendezvous_setup setup = tcp_setup(&star, 0, 2);
    assert_int_equal(tcp_world_end_open(&star, 0, &setup, now_ns, &fault), GF_ERR_SYSTEM);
    assert_int_equal(fault.foreign_code, EADDRINUSE);
    assert_non_null(strstr(fault.text, "user 12345 listens there, this rank is of user 0"));
    assert_non_null(strstr(fault.text, star.address));
}

/* A rank joins nobody of another user, and comes in once its own rank 0 is there. */
TEST(a_joiner_waits_for_its_own_user)
{
    if (geteuid() != 0) skip();
    other_listens(name_of(-1));
    end_join(1, 1, 2);
    now_ns += 59 * SECOND;
    for (int i = 0; i < 1000; i++) turn();
    assert_int_equal(seen[1].status, GF_AGAIN);
    (void)kill(other, SIGKILL);
    (void)waitpid(other, NULL, 0);
    other = 0;
    end_join(0, 0, 2);
    turns_connect(2);
}

TEST(and_names_him_at_the_deadline)
{
    if (geteuid() != 0) skip();
    other_listens(name_of(-1));
    end_join(1, 1, 2);
    turn();
    now_ns += 60 * SECOND;
    turn();
    assert_int_equal(seen[1].status, GF_ERR_TIMEOUT);
    assert_non_null(strstr(star.ends[1]->fault.text, "user 12345 listens at @gradientflow-"));
    assert_non_null(strstr(star.ends[1]->fault.text, "this rank is of user 0"));
}

/* As user 12345: its status is 0 if it was told that it is of another user, 1 if it was hung up
 * on. early: it says its hello and closes, before the coordinator looks. */
static int visit(bool early)
{
    unsigned char hello[HELLO_FRAME];
    unsigned char refusal[REFUSAL_FRAME];
    int status = 0;
    const char *name = name_of(-1);
    other = fork();
    assert_true(other >= 0);
    if (other == 0) {
        hello_make(hello, 1, 2, 0);
        other_user();
        /* it asks nobody whose the socket is */
        int fd = stranger_named(name);
        if (fd < 0) _exit(8);
        /* whoever has no descriptor to spare may have refused and closed before it */
        (void)send(fd, hello, sizeof hello, MSG_NOSIGNAL);
        if (early) _exit(0);
        if (recv(fd, refusal, sizeof refusal, MSG_WAITALL) != (ssize_t)sizeof refusal) _exit(1);
        _exit((strstr((const char *)refusal + GF_FRAME_HEADER_BYTES + 4,
                      "user 12345 at the other end, this job is of user 0") != NULL)
                  ? 0
                  : 6);
    }
    if (early) assert_int_equal(waitpid(other, &status, 0), other);
    if (!early) UNTIL((waitpid(other, &status, WNOHANG) == other) || (usleep(1000) != 0));
    other = 0;
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(a_process_of_another_user_does_not_come_in)
{
    if (geteuid() != 0) skip();
    end_join(0, 0, 2);
    assert_int_equal(visit(false), 0);
    assert_int_equal(seen[0].connected, 0);
    assert_true(seen[0].refused != 0); /* told, should nobody better come */
    end_join(1, 1, 2);
    turns_connect(2);
}

/* The kernel keeps whose a connection is, after its end too. */
TEST(nor_does_one_that_has_gone)
{
    if (geteuid() != 0) skip();
    end_join(0, 0, 2);
    assert_int_equal(visit(true), 0);
    for (int i = 0; i < 100; i++) turn();
    assert_int_equal(seen[0].connected, 0);
    end_join(1, 1, 2);
    turns_connect(2);
}

/* Nor while strangers have taken all descriptors. */
TEST(nor_while_no_descriptor_is_left)
{
    struct rlimit had;
    if (geteuid() != 0) skip();
    end_join(0, 0, 2);
    int next = dup(0);
    (void)close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &had), 0);
    struct rlimit one_left = {.rlim_cur = (rlim_t)next + 1, .rlim_max = had.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &one_left), 0);
    int status = visit(false);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &had), 0);
    assert_int_equal(status, 0);
    assert_int_equal(seen[0].connected, 0);
    end_join(1, 1, 2);
    turns_connect(2);
}

/* The way to the others is asked of the kernel with a socket: that there is none to be had says
 * nothing of routes. */
TEST(a_host_without_descriptors_is_no_host_without_a_route)
{
    static const struct gf_data_taker taker;
    unsigned char secret[GF_DATA_SECRET_BYTES];
    struct gf_place place;
    struct rlimit had;
    turns_open(2);
    int next = dup(0);
    (void)close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &had), 0);
    struct rlimit none_left = {.rlim_cur = (rlim_t)next, .rlim_max = had.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none_left), 0);
    gf_status status = gf_rendezvous_tcp.data_begin(star.ends[1], 1, &taker, secret, &place);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &had), 0);
    assert_int_equal(status, GF_ERR_SYSTEM);
    assert_int_equal(star.ends[1]->fault.foreign_code, EMFILE);
    assert_non_null(strstr(star.ends[1]->fault.text, "cannot look for its way to rendezvous."));
}

/* In a view change the name of a rank that died is another user's by now, or nobody's: either says
 * at once that the rank has ended, whatever he does with it. */
TEST(a_dead_coordinators_name_costs_no_wait)
{
    for (int taken = 0; taken < 2; taken++) {
        char at[GF_CONTROL_ADDRESS_BYTES];
        if (taken && (geteuid() != 0)) break;
        world_clear();
        turns_open(3);
        gf_rendezvous_tcp.address(star.ends[1], at);
        tcp_world_end_close(&star, 0);
        UNTIL(seen[2].ended == 1);
        tcp_world_end_close(&star, 1);
        if (taken) other_listens(at);
        uint64_t since_ns = now_ns;
        assert_int_equal(gf_rendezvous_tcp.reform(star.ends[2], now_ns, 1, at), GF_AGAIN);
        UNTIL(seen[2].ended == 3);
        assert_string_equal(seen[2].text, "connection refused");
        assert_true(now_ns - since_ns < SECOND / 5);
        other_end();
    }
}

/* Another coordinates, and takes the job's name over: who comes back finds it there. */
TEST(a_restarted_rank_finds_the_job_by_its_name)
{
    char at[GF_CONTROL_ADDRESS_BYTES];
    turns_open(3);
    gf_rendezvous_tcp.address(star.ends[1], at);
    tcp_world_end_close(&star, 0);
    UNTIL((seen[1].ended == 1) && (seen[2].ended == 1));
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[1], now_ns, 1, at), GF_OK);
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[2], now_ns, 1, at), GF_AGAIN);
    seen[1].connected = seen[2].connected = 0;
    UNTIL((seen[1].connected == 4) && (seen[2].connected == 2));
    struct gf_rendezvous_setup setup = tcp_setup(&star, 0, 3);
    memset(&seen[0], 0, sizeof seen[0]);
    setup.rejoin = true;
    end_open(0, &setup);
    UNTIL((seen[0].connected == 2) && (seen[1].connected == 5));
}

TEST_EACH(world_clear, other_end)
TEST_AROUND(keys_setup, keys_teardown)
