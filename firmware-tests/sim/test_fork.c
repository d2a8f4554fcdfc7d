/* What becomes of a context in a forked child. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/wipe_on_fork.h"
#include "firmware-tests/support/world_setups.h"
#include "lib/context.h"
#include "lib/core/arena.h"

#include <sys/wait.h>
#include <unistd.h>

static int child_says(gf_context *gf, gf_status expect)
{
    struct gf_request request = {{0}};
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bool good = (gf_step_begin(gf) == expect) && (gf_step_poll(gf) == expect) && (gf_step_wait(gf) == expect) &&
                    (gf_tensor_ready(gf, 0, 0) == expect) && (gf_barrier(gf, &request) == expect) &&
                    (gf_heartbeat(gf) == expect) && (gf_update(gf, 1.0f) == expect) &&
                    (gf_close_poll(gf) == expect) && (gf_close(gf) == expect) && (gf_close(gf) == expect);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

TEST(a_forked_child_is_refused_and_the_parent_goes_on)
{
    if (!kernel_wipes_on_fork()) {
        printf("skip: nothing here wipes memory on fork\n");
        skip();
    }
    struct world_setup setup = brief_setup(2);
    struct world_step step = {.order = WORLD_FORWARD};
    WORLD_OPEN(w, &setup);
    /* Asking takes no system call. */
    assert_true((w.ranks[1].gf->fork.mark != NULL) == (sysconf(_SC_PAGESIZE) == (long)GF_PAGE_BYTES));
    assert_int_equal(child_says(w.ranks[1].gf, GF_ERR_STATE), 0);
    world_step_ok(&w, &step);
    gf_abort(w.ranks[1].gf);
    world_step_run(&w, &step);
    assert_int_equal(child_says(w.ranks[1].gf, GF_ERR_STATE), 0); /* of a failed context too: nothing of it is the child's */
}
