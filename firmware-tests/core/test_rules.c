/* Each public function in each state of a context answers what gradientflow.h says, in a thread
 * whose floating point is hostile, which it gives back as it was. A function of the header that has
 * no row here, nor one in test_rules_arguments.c, fails the suite. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/hostile.h"
#include "firmware-tests/support/rules_context.h"
#include "firmware-tests/support/world_setups.h"

#include <sys/wait.h>
#include <unistd.h>

#define AT(data) ((gf_mem)(uintptr_t)(data))

static struct gf_request fresh;
static struct gf_stats stats;
static struct gf_trace_record record;
static float floats[64], number;

static int trace_put(void *user, const void *data, uint64_t size_bytes)
{
    (void)user;
    (void)data;
    (void)size_bytes;
    return 0;
}

static int close_context(void)
{
    gf_status status = gf_close(gf);
    if ((gf != NULL) && (status != GF_ERR_STATE)) rules_world.ranks[RULES_RANK].gf = NULL;
    return status;
}

/* Name; a gf_status, another VALUE, or a status where BARE of an optimizer; the answers by state,
 * in the order of the enum in rules_context.h, where the letters are explained; the call. T: the
 * other rank never does its part. */
#define CALLS(X)                                                                                 \
    X(abort, VALUE, "0000000000", (gf_abort(gf), 0))                                             \
    X(allgather, STATUS, "PS..S..XSS", gf_allgather(gf, AT(floats), 64, GF_TYPE_F32, &fresh))    \
    X(allreduce, STATUS, "PS..S..XSS", gf_allreduce(gf, AT(floats), 64, GF_TYPE_F32, &fresh))    \
    X(allreduce_by, STATUS, "PS..S..XSS",                                                        \
      gf_allreduce_by(gf, GF_REDUCTION_MAX, AT(floats), 64, GF_TYPE_F32, &fresh))                \
    X(barrier, STATUS, "PS..S..XSS", gf_barrier(gf, &fresh))                                     \
    X(broadcast, STATUS, "PS..S..XSS", gf_broadcast(gf, AT(floats), 64, GF_TYPE_F32, 0, &fresh)) \
    X(reduce_scatter, STATUS, "PS..S..XSS",                                                      \
      gf_reduce_scatter(gf, AT(floats), 64, GF_TYPE_F32, &fresh))                                \
    X(broadcast_weights, STATUS, "PSTSSTTXSS", gf_broadcast_weights(gf, 0))                      \
    X(request_poll, STATUS, "PPPAPPPXPS", gf_request_poll(gf, &rules_asked))                     \
    X(request_wait, STATUS, "PPPTPPPXPS", gf_request_wait(gf, &rules_asked))                     \
    X(request_wait_for, STATUS, "PPPAPPPXPS", gf_request_wait_for(gf, &rules_asked, 1000))       \
    X(exchange_take, VALUE, "0011111010", gf_exchange_take(gf, 64) != 0)                         \
    X(close, STATUS, "..T..TT.TS", close_context())                                              \
    X(close_poll, STATUS, "P.AXXAAXAS", gf_close_poll(gf))                                       \
    X(close_wait_for, STATUS, "P.AXXAAXAS", gf_close_wait_for(gf, 1000))                         \
    X(regroup_begin, STATUS, "PSSSSSSSSS", gf_regroup_begin(gf))                                 \
    X(regroup_wait_for, STATUS, "PSSSSSSXSS", gf_regroup_wait_for(gf, 1000))                     \
    X(regroup_due, VALUE, "0000000000", gf_regroup_due(gf))                                      \
    X(regroup_poll, STATUS, "PSSSSSSXSS", gf_regroup_poll(gf))                                   \
    X(regroup_wait, STATUS, "PSSSSSSXSS", gf_regroup_wait(gf))                                   \
    X(joiners, VALUE, "0000000000", gf_joiners(gf))                                              \
    X(leave, STATUS, "PS.....XSS", gf_leave(gf))                                                 \
    X(left, VALUE, "0000000000", gf_left(gf))                                                    \
    X(left_out, VALUE, "0000000000", gf_left_out(gf))                                            \
    X(rejoined, VALUE, "0000000000", gf_rejoined(gf))                                            \
    X(error_last, VALUE, "0000000000", gf_error_last(gf)->code)                                  \
    X(error_text, VALUE, "0000000000", gf_error_text(gf)[0] != '\0')                             \
    X(first_rank, VALUE, "0111111111", gf_first_rank(gf))                                        \
    X(first_world, VALUE, "0222222222", gf_first_world(gf))                                      \
    X(rank, VALUE, "0111111111", gf_rank(gf))                                                    \
    X(world, VALUE, "0222222222", gf_world(gf))                                                  \
    X(world_max, VALUE, "0222222222", gf_world_max(gf))                                          \
    X(gradient, VALUE, "0011111111", gf_gradient(gf, 0) != 0)                                    \
    X(gradient_f32, VALUE, "0011111111", gf_gradient_f32(gf, 0) != NULL)                         \
    X(gradient_bits16, VALUE, "0000000000", gf_gradient_bits16(gf, 0) != NULL)                   \
    X(weight, VALUE, "0111111111", gf_weight(gf, 0) != 0)                                        \
    X(weight_f32, VALUE, "0111111111", gf_weight_f32(gf, 0) != NULL)                             \
    X(weight_half, VALUE, "0111111111", gf_weight_half(gf, 0) != 0)                              \
    X(weight_bits16, VALUE, "0111111111", gf_weight_bits16(gf, 0) != NULL)                       \
    X(weights_common, VALUE, "0000011000", gf_weights_common(gf))                                \
    X(weights_written, STATUS, "PS..S..XSS", gf_weights_written(gf))                             \
    X(gradient_clip, STATUS, "PSSSS.SXSS", gf_gradient_clip(gf, &number))                        \
    X(gradient_norm, STATUS, "PSSSS.SXSS", gf_gradient_norm(gf, &number, &number))               \
    X(gradient_scale, VALUE, "1111111111", gf_gradient_scale(gf))                                \
    X(loss_scale, VALUE, "1111111111", gf_loss_scale(gf))                                        \
    X(rate, VALUE, "0111111111", gf_rate(gf, 0) * 4)                                             \
    X(heartbeat, STATUS, "P......X.S", gf_heartbeat(gf))                                         \
    X(metric, VALUE, "0000000000", gf_metric(gf, 0))                                             \
    X(open_poll, STATUS, "PA.....X.S", gf_open_poll(gf))                                         \
    X(open_wait, STATUS, "P......X.S", gf_open_wait(gf))                                         \
    X(open_wait_for, STATUS, "PA.....X.S", gf_open_wait_for(gf, 1000))                           \
    X(stats_read, STATUS, "P.........",                                                          \
      (stats.size_bytes = sizeof stats, gf_stats_read(gf, &stats)))                              \
    X(trace_read, VALUE, "1111111111", gf_trace_read(gf, &record, 1) <= 1)                       \
    X(trace_checkpoint, STATUS, "P.........", gf_trace_checkpoint(gf, 1, 2))                     \
    X(trace_write, STATUS, "P.........", gf_trace_write(gf, trace_put, NULL))                    \
    X(queue_follow, STATUS, "P...S..X.S", gf_queue_follow(gf, 0))                                \
    X(state_bytes, VALUE, "0111111110", gf_state_bytes(gf) > 0)                                  \
    X(state_save, STATUS, "PS.SSS.XSS", gf_state_save(gf, rules_state, rules_state_bytes))       \
    X(state_load, STATUS, "PS.SS..XSS", gf_state_load(gf, rules_state, rules_state_bytes))       \
    X(step_begin, STATUS, "PS.SS..XSS", gf_step_begin(gf))                                       \
    X(step_metric, STATUS, "PSSS.SSXSS", gf_step_metric(gf, 0, 1.0))                             \
    X(step_poll, STATUS, "PSSSA..XSS", gf_step_poll(gf))                                         \
    X(step_samples, STATUS, "PSSS.SSXSS", gf_step_samples(gf, 1))                                \
    X(step_skipped, VALUE, "0000001000", gf_step_skipped(gf))                                    \
    X(step_wait, STATUS, "PSSSS..XSS", gf_step_wait(gf))                                         \
    X(step_wait_for, STATUS, "PSSSS..XSS", gf_step_wait_for(gf, 1000))                           \
    X(steps, VALUE, "0000011000", gf_steps(gf))                                                  \
    X(tensor_copy, STATUS, "PSSS.SSXSS", gf_tensor_copy(gf, 1, floats, 0))                       \
    X(tensor_ready, STATUS, "PSSS.SSXSS", gf_tensor_ready(gf, 1, 0))                             \
    X(tensor_ready_event, STATUS, "PSSS.SSXSS", gf_tensor_ready_event(gf, 1, 0))                 \
    X(tensor_skip, STATUS, "PSSS.SSXSS", gf_tensor_skip(gf, 1))                                  \
    X(tensors_ready, STATUS, "PSSS.SSXSS", gf_tensors_ready(gf, 1, 2, 0))                        \
    X(update, STATUS, "PSSSS..XSS", gf_update(gf, 0.1f))                                         \
    X(updated, STATUS, "PSSSSSSXSS", gf_updated(gf))                                             \
    X(updated, BARE, "PSSSS..XSS", gf_updated(gf))
#define FUNCTION(name, kind, expect, expression) \
    static int kind##_##name(void)               \
    {                                            \
        return (int)(expression);                \
    }
#define ROW(name, kind, expect, expression) \
    {"gf_" #name, kind##_##name, expect, #kind[0] == 'B', #kind[0] == 'V'},
CALLS(FUNCTION)
static const struct call {
    const char *name;
    int (*call)(void);
    const char *expect;
    bool bare, is_value;
} calls[] = {CALLS(ROW)};

/* In a child where that is the state: what it answers there does not fit into an exit code as it
 * is. */
static int answer_of(const struct call *c, int which)
{
    int status = 0;
    int answer;
    bool kept = true;
    pid_t child = (which == RULES_FORKED) ? fork() : 0;
    assert_true(child >= 0);
    if (child > 0) {
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status) - 100;
    }
    rules_block();
    HOSTILE(&kept, answer = c->call());
    world_unblock(&rules_world);
    if (!kept) fail_msg("%s: the thread's floating point is not as it was", c->name);
    if (which == RULES_FORKED) _exit(100 + answer);
    return answer;
}

TEST(each_function_in_each_state)
{
    for (size_t i = 0; i < LENGTH(calls); i++) {
        const struct call *c = &calls[i];
        assert_int_equal(strlen(c->expect), RULES_STATES);
        for (int which = 0; which < RULES_STATES; which++) {
            bool has_log = !c->is_value && (which != RULES_NULL) && (which != RULES_FORKED);
            rules_make(which, c->bare);
            memset(&fresh, 0, sizeof fresh);
            rules_expect(c->name, rules_state_names[which], answer_of(c, which), c->expect[which],
                         has_log);
            rules_end();
        }
    }
}

/* The child is refused whatever its parent has, and the parent goes on. */
TEST(a_child_has_nothing_of_its_parents)
{
    const struct call begins = {.call = STATUS_step_begin};
    const struct world_step step = {.order = WORLD_FORWARD};
    rules_make(RULES_READY, true);
    assert_int_equal(answer_of(&begins, RULES_FORKED), GF_ERR_STATE);
    world_step_ok(&rules_world, &step);
    gf_abort(gf);
    world_step_run(&rules_world, &step);
    assert_int_equal(answer_of(&begins, RULES_FORKED), GF_ERR_STATE);
    rules_end();
}

/* A rank loads its data beside the others' join, and says so; and saves as they close. */
static gf_status beat_and_open(struct world *w, uint32_t rank, void *arg)
{
    gf_context *each = w->ranks[rank].gf;
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(gf_heartbeat(each), GF_OK);
    return gf_open_poll(each);
}

TEST(a_life_sign_ends_no_join)
{
    const struct world_step step = {.order = WORLD_FORWARD};
    rules_make(RULES_JOINING, true);
    world_run(&rules_world, beat_and_open, NULL);
    world_expect(&rules_world, GF_OK);
    world_step_ok(&rules_world, &step);
    rules_end();
}

TEST(a_life_sign_ends_no_close)
{
    rules_make(RULES_LEAVING, true);
    for (uint32_t i = 0; i < 200; i++) {
        assert_int_equal(gf_heartbeat(gf), GF_OK);
        assert_int_equal(gf_close_poll(gf), GF_AGAIN);
    }
    assert_string_equal(rules_world.ranks[RULES_RANK].log, "");
    rules_end();
}

/* ---- none is missing ---- */

static char *file_text(const char *path)
{
    char *text_of = calloc(1, 200000);
    FILE *file = fopen(path, "r");
    assert_non_null(text_of);
    if (file == NULL) skip(); /* not run from the top folder */
    assert_true(fread(text_of, 1, 199999, file) < 199999);
    (void)fclose(file);
    return text_of;
}

static bool has_row(const char *name, const char *arguments)
{
    char with[80];
    for (size_t i = 0; i < LENGTH(calls); i++)
        if (strcmp(calls[i].name, name) == 0) return true;
    (void)snprintf(with, sizeof with, "RULE(%s(", name);
    if (strstr(arguments, with) != NULL) return true;
    (void)snprintf(with, sizeof with, "    %s(", name); /* without an answer */
    return strstr(arguments, with) != NULL;
}

/* How many functions a header declares; each must have a row. */
static uint32_t header_check(const char *path, const char *arguments)
{
    char *header = file_text(path);
    uint32_t seen = 0;
    for (char *at = header, *end; (at = strstr(at, "/*")) != NULL;
         memset(at, ' ', (size_t)(end + 2 - at)))
        assert_non_null(end = strstr(at, "*/"));
    for (const char *at = header; (at = strstr(at, "gf_")) != NULL; at += 3) {
        char name[64];
        size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz_0123456789");
        if ((at[length] != '(') || (length >= sizeof name)) continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)length, at);
        if (!has_row(name, arguments)) print_error("%s has no row\n", name);
        assert_true(has_row(name, arguments));
        seen++;
    }
    free(header);
    return seen;
}

/* gradientflow.h and what it brings with it that was of it before. */
TEST(every_function_of_the_header_has_a_row)
{
    char *arguments = file_text("firmware-tests/core/test_rules_arguments.c");
    assert_true(header_check("lib/gradientflow.h", arguments) > 60);
    assert_int_equal(header_check("drivers/base/types.h", arguments), 5);
    assert_int_equal(header_check("lib/configuration.h", arguments), 4);
    free(arguments);
}
