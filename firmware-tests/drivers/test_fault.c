/* Faults and log lines, and what a broken invariant does: one line on stderr, then a trap. */
#include "firmware-tests/support/suite.h"
#include "drivers/base/fault.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(a_broken_invariant_says_so_and_traps)
{
    char text[300] = "";
    int ends[2];
    int status;
    pid_t child;
    ssize_t length;
    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGILL, SIG_DFL); /* whatever a sanitizer made of it */
        (void)signal(SIGTRAP, SIG_DFL);
        (void)dup2(ends[1], STDERR_FILENO);
        GF_ASSERT(1 + 1 == 3);
        _exit(0);
    }
    assert_int_equal(close(ends[1]), 0);
    length = read(ends[0], text, sizeof text - 1);
    assert_true(length > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(close(ends[0]), 0);
    assert_true(WIFSIGNALED(status));
    assert_non_null(strstr(text, "broken invariant at firmware-tests/drivers/test_fault.c:"));
    assert_non_null(strstr(text, "1 + 1 == 3\n"));
}

TEST(the_first_fault_sticks)
{
    struct gf_fault fault = {.code = GF_OK};
    assert_int_equal(gf_fault_set(&fault, GF_ERR_LINK, 3, "call", -7, "first %d", 1), GF_ERR_LINK);
    assert_int_equal(gf_fault_set(&fault, GF_ERR_SYSTEM, 4, "other", 5, "second"), GF_ERR_SYSTEM);
    assert_int_equal(fault.code, GF_ERR_LINK);
    assert_int_equal(fault.peer, 3);
    assert_int_equal(fault.foreign_code, -7);
    assert_string_equal(fault.foreign_call, "call");
    assert_string_equal(fault.text, "first 1");
    assert_int_equal(gf_fault_set(NULL, GF_ERR_LINK, 0, "call", 0, "nobody asks"), GF_ERR_LINK);
}

static void keep(void *user, gf_log_level level, const char *text)
{
    assert_int_equal(level, GF_LOG_WARN);
    (void)strncpy(user, text, 499);
}

TEST(a_log_line_is_one_line_of_bounded_length)
{
    char kept[500] = "";
    char longer[600];
    const struct gf_log log = {keep, kept};
    const struct gf_log silent = {NULL, NULL};
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    gf_log_line(&log, GF_LOG_WARN, "%s", longer);
    assert_int_equal(strlen(kept), 399);
    gf_log_line(&silent, GF_LOG_WARN, "%s", longer);
    gf_log_line(NULL, GF_LOG_WARN, "%s", longer);
}
