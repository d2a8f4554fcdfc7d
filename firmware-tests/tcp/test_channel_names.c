/* A job of one user of one host, without a key: it meets at abstract unix sockets, and the kernel
 * says at both ends whose the other is. Rows with another user need root.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "drivers/tcp/socket.h"
#include "firmware-tests/support/stranger.h"
#include "firmware-tests/support/channel_hub.h"
#include "firmware-tests/support/tcp_keys.h"

#include <errno.h>
#include <poll.h>
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
    hub_end();
}

static void coordinate(void)
{
    struct gf_channel_setup setup = hub_setup(true);
    hub_open(0, &setup);
}

/* "@gradientflow-ADDRESS-JOB", of the job of these tests. */
static const char *job_name(void)
{
    static char name[GF_SOCKET_NAME_BYTES];
    (void)snprintf(name, sizeof name, "@gradientflow-%.21s-4711", hub.address);
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
    char names[4][STRANGER_NAME_BYTES];
    hub_join(2);
    assert_int_equal(stranger_ports(getpid(), ports, LENGTH(ports)), before);
    assert_int_equal(stranger_names(getpid(), names, LENGTH(names)), 1);
    assert_string_equal(names[0], job_name());
}

/* With a key, or where the job is told to be insecure, it is the port. */
TEST(a_key_is_at_the_port)
{
    struct stranger_port ports[8];
    for (int key = 0; key < 2; key++) {
        hub_clear();
        hub.insecure = (key == 0);
        uint32_t before = stranger_ports(getpid(), ports, LENGTH(ports));
        hub.key_file = key ? key_a : "";
        coordinate();
        assert_int_equal(stranger_ports(getpid(), ports, LENGTH(ports)), before + 1);
        hub_end();
    }
}

TEST(jobs_of_one_port_do_not_meet)
{
    hub_join(1);
    struct gf_channel_setup setup = hub_setup(true);
    setup.job_id = 4712;
    hub_open(5, &setup);
    for (int i = 0; i < 100; i++) hub_turn();
    assert_int_equal(heard[5].connected, 0);
}

/* Nothing but the address tells the jobs of bare starts apart: each is in the name. */
TEST(nor_do_jobs_of_one_id_at_two_addresses)
{
    char address[GF_TEXT_MAX];
    hub_join(1);
    struct gf_channel_setup setup = hub_setup(true);
    (void)snprintf(address, sizeof address, "127.0.0.2%s", strrchr(hub.address, ':'));
    setup.address = address;
    hub_open(4, &setup); /* the other job's coordinator finds its name free */
    setup.listens = false;
    setup.connections_max = 1;
    hub_open(5, &setup);
    HUB_UNTIL((heard[4].connected == 1) && (heard[5].connected == 1));
}

/* Two with another GF_JOB each, and two coordinators. */
TEST(a_rank_of_another_job_names_the_one_that_is_there)
{
    hub_clear();
    coordinate();
    struct gf_channel_setup setup = hub_setup(false);
    setup.job_id = 4712;
    hub_open(1, &setup);
    for (int i = 0; i < 20; i++) {
        hub_turn();
        hub_now_ns += HUB_SECOND / 2;
    }
    assert_non_null(strstr(heard[1].text, "; job 4711 is there: do GF_JOB or MASTER_ADDR differ?"));
    assert_int_equal(heard[1].end, GF_CHANNEL_BROKE);
}

/* Both are of this process: by name it is seen that it is another context. */
TEST(a_second_coordinator_says_that_there_are_two)
{
    for (int insecure = 0; insecure < 2; insecure++) {
        struct gf_fault fault = {0};
        hub_clear();
        hub.insecure = (insecure != 0);
        struct gf_channel_setup setup = hub_setup(true);
        coordinate();
        assert_int_equal(hub_open_try(1, &setup, &fault), GF_ERR_SYSTEM);
        assert_int_equal(fault.foreign_code, EADDRINUSE);
        assert_string_equal(fault.foreign_call, "bind");
        assert_non_null(strstr(fault.text, hub.address));
        assert_non_null(strstr(fault.text, insecure ? "or there are two coordinators"
                                                    : "another context of this process does: each "
                                                      "wants a rendezvous.address (or job.id)"));
        hub_end();
    }
}

/* As the coordinator of nobody that starts first. */
TEST(a_name_that_another_user_holds_ends_the_coordinator)
{
    struct gf_fault fault = {0};
    if (geteuid() != 0) skip();
    other_listens(job_name());
    struct gf_channel_setup setup = hub_setup(true);
    assert_int_equal(hub_open_try(0, &setup, &fault), GF_ERR_SYSTEM);
    assert_int_equal(fault.foreign_code, EADDRINUSE);
    assert_non_null(strstr(fault.text, "user 12345 listens there, this process is of user 0"));
    assert_non_null(strstr(fault.text, hub.address));
}

/* A member joins nobody of another user, names him, and comes in once its own coordinator is
 * there. */
TEST(a_joiner_waits_for_its_own_user)
{
    if (geteuid() != 0) skip();
    other_listens(job_name());
    hub_member(1);
    for (int i = 0; i < 1000; i++) hub_turn();
    assert_int_equal(heard[1].connected, 0);
    assert_int_equal(heard[1].end, GF_CHANNEL_BROKE);
    assert_non_null(strstr(heard[1].text, "user 12345 listens at @gradientflow-"));
    assert_non_null(strstr(heard[1].text, "this rank is of user 0"));
    (void)kill(other, SIGKILL);
    (void)waitpid(other, NULL, 0);
    other = 0;
    coordinate();
    HUB_UNTIL(heard[1].up == 1);
}

/* A process of another user takes this job's port, and refuses whoever asks there; it says so until
 * it is killed. */
static void other_refuses(void)
{
    int ready[2];
    char byte;
    struct gf_channel_setup setup = hub_setup(true);
    setup.insecure = true;
    assert_int_equal(pipe(ready), 0);
    other = fork();
    assert_true(other >= 0);
    if (other == 0) {
        struct gf_fault fault = {0};
        struct gf_channel_event event;
        setup.log.fn = NULL;
        other_user();
        if (hub_open_try(15, &setup, &fault) != GF_OK) _exit(8);
        (void)!write(ready[1], "", 1);
        for (uint64_t now_ns = hub_now_ns;; now_ns += HUB_MS) {
            struct pollfd wake = {.fd = gf_channel_tcp.wake_fd(hub.ends[15]), .events = POLLIN};
            (void)poll(&wake, 1, 100);
            (void)gf_channel_tcp.poll(hub.ends[15], now_ns, &event);
        }
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
}

/* What another user's process says at the port is told, and ends nothing. */
TEST(what_another_user_says_at_the_port_ends_nobody)
{
    if (geteuid() != 0) skip();
    other_refuses();
    hub_member(1);
    HUB_UNTIL(strstr(heard[1].text, "the coordinator has rendezvous.insecure") != NULL);
    assert_int_equal(heard[1].status, GF_OK);
    coordinate();
    HUB_UNTIL(heard[1].up == 1);
}

/* As user 12345: its status is 0 if it was told that it is of another user, 1 if it was hung up
 * on. early: it says its hello and closes, before the coordinator looks. */
static int visit(bool early)
{
    unsigned char hello[HELLO_FRAME];
    unsigned char refusal[REFUSAL_FRAME];
    int status = 0;
    const char *name = job_name();
    other = fork();
    assert_true(other >= 0);
    if (other == 0) {
        hello_make(hello, 0);
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
    if (!early) HUB_UNTIL((waitpid(other, &status, WNOHANG) == other) || (usleep(1000) != 0));
    other = 0;
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(a_process_of_another_user_does_not_come_in)
{
    if (geteuid() != 0) skip();
    coordinate();
    assert_int_equal(visit(false), 0);
    assert_int_equal(heard[0].connected, 0);
    assert_non_null(strstr(hub_logged, "user 12345 at the other end"));
    hub_member(1);
    HUB_UNTIL(heard[1].up == 1);
}

/* The kernel keeps whose a connection is, after its end too. */
TEST(nor_does_one_that_has_gone)
{
    if (geteuid() != 0) skip();
    coordinate();
    assert_int_equal(visit(true), 0);
    for (int i = 0; i < 100; i++) hub_turn();
    assert_int_equal(heard[0].connected, 0);
    hub_member(1);
    HUB_UNTIL(heard[1].up == 1);
}

/* Nor while strangers have taken all descriptors. */
TEST(nor_while_no_descriptor_is_left)
{
    struct rlimit had;
    if (geteuid() != 0) skip();
    coordinate();
    int next = dup(0);
    (void)close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &had), 0);
    struct rlimit one_left = {.rlim_cur = (rlim_t)next + 1, .rlim_max = had.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &one_left), 0);
    int status = visit(false);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &had), 0);
    assert_int_equal(status, 0);
    assert_int_equal(heard[0].connected, 0);
    hub_member(1);
    HUB_UNTIL(heard[1].up == 1);
}

/* The name of a coordinator that was killed is another user's by now, or nobody's: either says that
 * its process has ended, whatever he does with it. */
TEST(a_dead_coordinators_name_says_that_it_has_ended)
{
    for (int taken = 0; taken < 2; taken++) {
        if (taken && (geteuid() != 0)) break;
        hub_clear();
        hub_join(1);
        hub_close(0);
        if (taken) other_listens(job_name());
        HUB_UNTIL(heard[1].ended == 2);
        assert_int_equal(heard[1].end, GF_CHANNEL_DIED);
        other_end();
    }
}

TEST_EACH(hub_clear, other_end)
TEST_AROUND(keys_setup, keys_teardown)
