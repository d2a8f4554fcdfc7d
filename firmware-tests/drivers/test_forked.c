/* What is the process's: threads open and close while another one forks. */
#include "firmware-tests/support/suite.h"
#include "drivers/base/forked.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKS 40u
#define EACH 8u

static _Atomic bool ends;
static uint32_t closed; /* in a child, by that which stays open */

static void count(struct gf_forked *forked)
{
    (void)forked;
    closed++;
}

static void nothing(struct gf_forked *forked)
{
    (void)forked;
}

static void *open_and_close(void *arg)
{
    struct gf_forked some[EACH];
    (void)arg;
    while (!atomic_load(&ends)) {
        for (uint32_t i = 0; i < EACH; i++) {
            some[i].close = nothing;
            gf_forked_add(&some[i]);
        }
        for (uint32_t i = 0; i < EACH; i++) gf_forked_remove(&some[i]);
    }
    return NULL;
}

/* The list is whole, the lock is free, and the next child finds nothing left. */
static int child(uint32_t forks)
{
    struct gf_forked own = {.close = nothing};
    (void)alarm(10);
    gf_forked_add(&own);
    gf_forked_remove(&own);
    return ((closed == 1) && (gf_forks == forks + 1)) ? 0 : 1;
}

TEST(threads_open_and_close_while_another_one_forks)
{
    struct gf_forked stays = {.close = count};
    pthread_t threads[2];
    uint32_t forks = gf_forks;
    (void)alarm(60);
    atomic_store(&ends, false);
    gf_forked_add(&stays);
    for (uint32_t t = 0; t < 2; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, open_and_close, NULL), 0);
    for (uint32_t i = 0; i < FORKS; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) _exit(child(forks));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    atomic_store(&ends, true);
    for (uint32_t t = 0; t < 2; t++) assert_int_equal(pthread_join(threads[t], NULL), 0);
    gf_forked_remove(&stays);
    assert_int_equal(closed, 0);
    assert_int_equal(gf_forks, forks);
    (void)alarm(0);
}
