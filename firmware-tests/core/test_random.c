/* A host that gives no random numbers, as a filter of system calls does: an error that says so
 * where the library is opened, and nothing at all afterwards.
 * suite: slow */
#include "firmware-tests/support/suite.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradientflow.h"
#include "drivers/tcp/auth.h"

enum { RIGHT, NO_FILTER, WRONG };

/* Refuses the call by EPERM from here on, in this process. */
static bool call_refuse(unsigned call)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog program = {.len = LENGTH(filter), .filter = filter};
    return (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) &&
           (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* In a child, as the filter stays. */
static void child_expect(int (*run)(void))
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(run());
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status)) fail_msg("the process ended by signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) == NO_FILTER) skip();
    assert_int_equal(WEXITSTATUS(status), RIGHT);
}

static char said[4096];

static void log_keep(void *user, gf_log_level level, const char *text)
{
    (void)user;
    (void)level;
    (void)snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", text);
}

static int open_without(void)
{
    static _Alignas(64) unsigned char memory[64 << 20];
    const struct gf_tensor one = {.name = "w", .elem_count = 10};
    struct gf_config config = {.job = {.rank = 0, .world = 2, .ignore_environment = true},
                               .rendezvous = {.address = "127.0.0.1:18571"},
                               .log = log_keep};
    gf_context *gf = NULL;
    if (!call_refuse(SYS_getrandom)) return NO_FILTER;
    gf_status status = gf_open(&config, &one, 1, memory, sizeof memory, &gf);
    bool told = strstr(said, "keys and nonces cannot be drawn: getrandom() says Operation not "
                             "permitted") != NULL;
    if ((status == GF_ERR_SYSTEM) && told) return RIGHT;
    (void)fprintf(stderr, "status %d, log:\n%s", (int)status, said);
    return WRONG;
}

TEST(a_host_without_random_numbers_is_an_error_that_says_so)
{
    child_expect(open_without);
}

static int nonces_without(void)
{
    static unsigned char nonces[64][GF_AUTH_NONCE_BYTES];
    struct gf_auth_source source;
    struct gf_auth_source other;
    struct gf_fault fault = {0};
    if ((gf_auth_source_begin(&source, &fault) != GF_OK) ||
        (gf_auth_source_begin(&other, &fault) != GF_OK))
        return WRONG;
    if (!call_refuse(SYS_getrandom)) return NO_FILTER;
    for (uint32_t i = 0; i < 64; i++) gf_auth_nonce((i % 2 == 0) ? &source : &other, nonces[i]);
    for (uint32_t i = 0; i < 64; i++)
        for (uint32_t k = 0; k < i; k++)
            if (memcmp(nonces[i], nonces[k], sizeof nonces[0]) == 0) return WRONG;
    return RIGHT;
}

TEST(what_is_drawn_later_ends_no_process_and_is_never_the_same)
{
    child_expect(nonces_without);
}
