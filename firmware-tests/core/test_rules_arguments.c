/* Each wrong argument is refused as gradientflow.h says, with words that name it: the call, the
 * answer by the letters of rules_context.h, the words. NULL: there is no log, or nothing to say. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/hostile.h"
#include "firmware-tests/support/rules_context.h"
#include "firmware-tests/support/world_setups.h"

#include <unistd.h>

static struct gf_footprint need;
static struct gf_stats stats;
static struct gf_trace_record record;
static struct gf_request fresh;
static float floats[64], factor;
static char text[256];
#define AT(data) ((gf_mem)(uintptr_t)(data))

static void rule(const char *call, int answer, char expect, const char *words)
{
    rules_expect(call, "", answer, expect, words != NULL);
    if (words != NULL) world_expect_log(&rules_world, RULES_RANK, words);
    if (rules_world.ranks != NULL) world_log_clear(&rules_world);
}
#define RULE(call, expect, words)             \
    do {                                      \
        int answer = 0;                       \
        bool kept = true;                     \
        HOSTILE(&kept, answer = (int)(call)); \
        assert_true(kept);                    \
        rule(#call, answer, expect, words);   \
    } while (0)

/* How many elements that block has. */
static uint64_t block_of(uint64_t elem_count, uint32_t world, uint32_t rank)
{
    uint64_t first;
    uint64_t count;
    gf_block(elem_count, world, rank, &first, &count);
    assert_true(first + count <= elem_count);
    return count;
}

TEST(names_are_never_null)
{
    RULE(gf_status_name((gf_status)99) != NULL, '1', NULL);
    RULE(gf_operation_name((gf_operation)99) != NULL, '1', NULL);
    RULE(gf_algorithm_name((gf_algorithm)99) != NULL, '1', NULL);
    RULE(gf_path_name((gf_path)99) != NULL, '1', NULL);
    RULE(gf_type_size_bytes((gf_type)99), '0', NULL);
    RULE(gf_type_size_bytes(GF_TYPE_BF16), '2', NULL);
    int ends[2];
    int kept = dup(STDERR_FILENO);
    char said[64] = "";
    assert_true((kept >= 0) && (pipe(ends) == 0) &&
                (dup2(ends[1], STDERR_FILENO) == STDERR_FILENO));
    gf_log_stderr(NULL, GF_LOG_DEBUG, "nothing"); /* not without GF_DEBUG */
    gf_log_stderr(NULL, GF_LOG_WARN, "a");
    gf_log_stderr((void *)(uintptr_t) "me", GF_LOG_ERROR, "b");
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    assert_true(read(ends[0], said, sizeof said - 1) > 0);
    assert_string_equal(said, "warning: a\nme: error: b\n");
    close(ends[0]), close(ends[1]), close(kept);
    RULE(block_of(10, 4, 3), '1', NULL);
    RULE(block_of(10, 4, 4), '0', NULL);
    RULE(block_of(10, 0, 0), '0', NULL);
}

TEST(configurations_and_memory)
{
    struct gf_tensor tensors[3];
    struct gf_config config;
    struct gf_config wrong;
    gf_context *none = NULL;
    unsigned char *room;
    memcpy(tensors, brief, sizeof tensors);
    rules_make(RULES_READY, false);
    config = wrong = rules_world.ranks[RULES_RANK].config;
    RULE(gf_measure(&config, brief, 3, &need), '.', NULL);
    RULE(gf_measure(NULL, brief, 3, &need), 'P', NULL);
    RULE(gf_measure(&config, NULL, 3, &need), 'P', "3 tensors; allowed are 1 to 16384");
    RULE(gf_measure(&config, brief, 0, &need), 'P', "0 tensors; allowed are 1");
    RULE(gf_measure(&config, brief, GF_TENSORS_MAX + 1, &need), 'P', "16385 tensors");
    RULE(gf_measure(&config, brief, 3, NULL), 'P', NULL);
    tensors[1].type = (gf_type)7;
    RULE(gf_measure(&config, tensors, 3, &need), 'P', "type is 7");
    tensors[1] = (struct gf_tensor){.name = NULL, .elem_count = 4};
    RULE(gf_measure(&config, tensors, 3, &need), '.', NULL);
    tensors[1] = (struct gf_tensor){.name = "huge", .elem_count = UINT64_MAX / 4};
    RULE(gf_measure(&config, tensors, 3, &need), 'P', "all tensors together may have 2^37");
    tensors[1] = (struct gf_tensor){.name = "flags", .elem_count = 4, .flags = 0x80};
    RULE(gf_measure(&config, tensors, 3, &need), 'P', "unknown flags 0x80");
    wrong.size_bytes = 12;
    RULE(gf_measure(&wrong, brief, 3, &need), 'C', "size_bytes = 12");
    RULE(gf_config_effective(&wrong, &wrong, text), 'C', NULL);
    wrong.size_bytes = 0;
    wrong.rate.base_rate = NAN;
    RULE(gf_config_effective(&wrong, &wrong, text), 'C', NULL);
    assert_non_null(strstr(text, "rate.base = nan"));
    RULE(gf_config_effective(&config, &wrong, text), '.', NULL);
    /* what a program needs of a file: the line names the key */
    wrong = (struct gf_config){0};
    RULE(gf_config_need(&wrong, 0, text), '.', NULL);
    RULE(gf_config_need(&wrong, GF_NEED_OWN_OPTIMIZER | GF_NEED_NO_LOSS_SCALE, text), '.', NULL);
    RULE(gf_config_need(&wrong, GF_NEED_OPTIMIZER, text), 'C', NULL);
    assert_non_null(strstr(text, "optimizer.kind = none: "));
    RULE(gf_config_need(&wrong, GF_NEED_HALF_WEIGHTS, text), 'C', NULL);
    assert_non_null(strstr(text, "optimizer.half_weights = fp32: "));
    wrong.optimizer.kind = GF_OPTIMIZER_SGD;
    wrong.loss_scale.enabled = true;
    RULE(gf_config_need(&wrong, GF_NEED_OPTIMIZER, text), '.', NULL);
    RULE(gf_config_need(&wrong, GF_NEED_OWN_OPTIMIZER, text), 'C', NULL);
    assert_non_null(strstr(text, "leave the group optimizer out, as own.cfg"));
    RULE(gf_config_need(&wrong, GF_NEED_NO_LOSS_SCALE, text), 'C', NULL);
    assert_non_null(strstr(text, "loss_scale.enabled = true: "));
    RULE(gf_config_need(&wrong, GF_NEED_DENSE, text), '.', NULL);
    wrong.sparse.enabled = true;
    RULE(gf_config_need(&wrong, GF_NEED_DENSE, text), 'C', NULL);
    assert_non_null(strstr(text, "sparse.enabled = true: "));
    RULE(gf_config_need(&wrong, GF_NEED_RATE, text), 'C', NULL);
    assert_non_null(strstr(text, "rate.base is not set: "));
    wrong.rate.base_rate = 0.1f;
    RULE(gf_config_need(&wrong, GF_NEED_RATE, text), '.', NULL);
    RULE(gf_config_need(NULL, 0, text), 'P', NULL);
    wrong = config;
    RULE(gf_config_hash(&wrong) == gf_config_hash(&wrong), '1', NULL);
    RULE(gf_config_summary(&wrong, text, 8) == text, '1', NULL);
    assert_true(strlen(text) < 8);

    room = malloc(need.control_bytes + 64);
    assert_non_null(room);
    room += 64 - (uintptr_t)room % 64;
    RULE(gf_open(&config, brief, 3, NULL, need.control_bytes, &none), 'P', "aligned to 64");
    RULE(gf_open(&config, brief, 3, room + 8, need.control_bytes - 8, &none), 'P', "aligned to 64");
    RULE(gf_open(&config, brief, 3, room, need.control_bytes - 1, &none), 'R',
         "gf_measure() asked for");
    RULE(gf_open(&config, brief, 3, room, need.control_bytes, NULL), 'P', NULL);
    assert_null(none);
    RULE(gf_step_begin((gf_context *)(void *)room), 'P', NULL); /* memory that is no context */
    rules_end();
}

/* What config.job, state_extra and pool_order may be. */
TEST(configurations_of_a_job)
{
    static float moments[8];
    static const uint32_t twice[] = {0, 1, 1};
    static const uint32_t beyond[] = {0, 1, 3};
    static const uint32_t order[] = {2, 0, 1};
    struct gf_state_extra extra = {.name = "moments", .data = moments, .bytes = sizeof moments};
    struct gf_config config;
    struct gf_tensor tensors[3];
    memcpy(tensors, brief, sizeof tensors);
    rules_make(RULES_READY, false);
    config = rules_world.ranks[RULES_RANK].config;
    config.job.rank = config.job.world;
    RULE(gf_measure(&config, brief, 3, &need), 'C', "job.rank = 2");
    config.job.rank = 0;
    config.job.world_max = 1;
    RULE(gf_measure(&config, brief, 3, &need), 'C', "job.world_max = 1");
    config.job.world_max = 0;
    memset(config.rendezvous.key_file, 'x', sizeof config.rendezvous.key_file); /* no NUL */
    RULE(gf_measure(&config, brief, 3, &need), 'C', "rendezvous.key_file");
    memset(config.rendezvous.key_file, 0, sizeof config.rendezvous.key_file);

    config.state_extra_count = 1;
    RULE(gf_measure(&config, brief, 3, &need), 'P', "state_extra[0] of 1: no name");
    config.state_extra = &extra;
    RULE(gf_measure(&config, brief, 3, &need), '.', NULL);
    config.state_extra_count = GF_STATE_EXTRA_MAX + 1;
    RULE(gf_measure(&config, brief, 3, &need), 'P', "state_extra_count = 65537; allowed are 65536");
    config.state_extra_count = 1;
    extra.bytes = 15; /* any size on any address */
    extra.data = (char *)moments + 1;
    RULE(gf_measure(&config, brief, 3, &need), '.', NULL);
    extra.data = NULL;
    RULE(gf_measure(&config, brief, 3, &need), 'P', "an address unless it has no bytes");
    extra.data = moments;
    extra.bytes = UINT64_MAX;
    RULE(gf_measure(&config, brief, 3, &need), 'P', "state_extra[0] of 1: moments, 184467440737");
    extra.data = NULL;
    extra.bytes = 0;
    RULE(gf_measure(&config, brief, 3, &need), '.', NULL);
    extra.name = NULL;
    RULE(gf_measure(&config, brief, 3, &need), 'P', "no name");
    config.state_extra_count = 0;

    config.pool_order = order;
    RULE(gf_measure(&config, brief, 3, &need), '.', NULL);
    config.pool_order = twice;
    RULE(gf_measure(&config, brief, 3, &need), 'P', "names a tensor twice");
    config.pool_order = beyond;
    RULE(gf_measure(&config, brief, 3, &need), 'P', "pool_order[2] = 3 of 3 tensors");
    config.pool_order = order;
    tensors[1].type = GF_TYPE_BF16;
    RULE(gf_measure(&config, tensors, 3, &need), 'P', "with pool_order all have one");
    config.sparse.enabled = true;
    RULE(gf_measure(&config, brief, 3, &need), 'C', "pool_order and sparse.enabled");
    rules_end();
}

TEST(arguments_of_a_step)
{
    const struct world_step step = {.order = WORLD_FORWARD};
    rules_make(RULES_IN_STEP, false);
    RULE(gf_gradient(gf, 3) != 0, '0', NULL);
    RULE(gf_weight(gf, GF_TENSOR_NONE) != 0, '0', NULL);
    RULE(gf_weight_half(gf, 3) != 0, '0', NULL);
    RULE(gf_tensor_ready(gf, 3, 0), 'P', "tensor 3 of 3");
    RULE(gf_tensor_ready(gf, 0, 0), 'S', "was declared before");
    RULE(gf_tensor_skip(gf, GF_TENSOR_NONE), 'P', "tensor 4294967295 of 3");
    RULE(gf_tensor_skip(gf, 0), 'S', "was declared before");
    RULE(gf_tensors_ready(gf, 1, 0, 0), 'P', "tensor 1 of 3, and 0 on");
    RULE(gf_tensors_ready(gf, 1, 3, 0), 'P', "tensor 1 of 3, and 3 on");
    RULE(gf_tensors_ready(gf, 2, UINT32_MAX, 0), 'P', "tensor 2 of 3");
    RULE(gf_tensors_ready(gf, 0, 3, 0), 'S', "was declared before");
    RULE(gf_step_metric(gf, GF_METRICS, 1.0), 'P', "metric 4 of 4");
    RULE(gf_step_metric(gf, 0, NAN), '.', NULL);
    RULE(gf_metric(gf, GF_METRICS), '0', NULL);
    RULE(gf_step_metric(gf, 1, -INFINITY), '.', NULL);
    RULE(gf_step_samples(gf, 0), '.', NULL);
    RULE(gf_step_samples(gf, UINT64_MAX / GF_WORLD_MAX + 1), 'P',
         "the sum over all ranks would not fit");
    RULE(gf_tensor_copy(gf, 3, floats, 0), 'P', "tensor 3 of 3");
    RULE(gf_tensor_copy(gf, 0, floats, 0), 'S', "was declared before");
    RULE(gf_tensor_copy(gf, 1, NULL, 0), 'P', "tensor 1 \"b\" from NULL");
    RULE(gf_tensor_ready_event(gf, 1, 1), 'P', "tensor 1 \"b\": the host has no events");
    RULE(gf_tensor_ready(gf, 1, 7), 'P', "the host has no streams");
    RULE(gf_tensors_ready(gf, 1, 2, 7), 'P', "the host has no streams");
    RULE(gf_tensor_ready(gf, 2, 0), '.', NULL);
    /* neither is now */
    RULE(gf_tensors_ready(gf, 1, 2, 0), 'S', "tensor 2 \"c\" was declared before");
    RULE(gf_step_wait(gf), 'S', "tensor 1 \"b\" was not declared");
    /* requests around a step: not inside .. */
    RULE(gf_barrier(gf, &fresh), 'S', "inside of a step");
    RULE(gf_tensors_ready(gf, 1, 1, 0), '.', NULL);
    RULE(gf_step_metric(gf, 0, 1.0), 'S', "not between gf_step_begin() and the last");
    RULE(gf_step_samples(gf, 1), 'S', "not between gf_step_begin() and the last");
    RULE(gf_step_begin(gf), 'S', "step 1 is not whole (");
    RULE(gf_step_begin(gf), 'S', "tensors were declared ready); gf_step_wait() ends it");
    rules_end();

    rules_make(RULES_ASKED, false);
    /* .. and no step while one is under way */
    RULE(gf_step_begin(gf), 'S', "requests are under way");
    rules_end();

    rules_make(RULES_READY, false);
    world_step_run(&rules_world, &step);
    RULE(gf_update(gf, NAN), 'P', "learning rate nan");
    RULE(gf_update(gf, INFINITY), 'P', "learning rate inf");
    RULE(gf_update(gf, -0.1f), 'P', "learning rate -0.1");
    RULE(gf_gradient_norm(gf, NULL, NULL), '.', NULL);
    RULE(gf_gradient_clip(gf, NULL), '.', NULL);
    RULE((gf_gradient_norm(gf, NULL, &factor), factor), '1', NULL); /* they are scaled */
    RULE(gf_queue_follow(gf, 7), 'P', "the host has no streams");
    RULE(gf_step_samples(gf, 1), 'S', "step");
    RULE(gf_update(gf, 0.0f), '.', NULL);
    RULE(gf_update(gf, 0.1f), 'S', "applied before");
    RULE(gf_rate(gf, UINT64_MAX) > 0.0f, '1', NULL);
    rules_end();

    rules_make(RULES_READY, true);
    world_step_run(&rules_world, &step);
    RULE(gf_update(gf, 0.1f), 'S', "optimizer.kind is none");
    RULE(gf_updated(gf), '.', NULL);
    RULE(gf_updated(gf), 'S', "applied before");
    RULE(gf_weight(gf, 0), '0', NULL);
    RULE(gf_weight_half(gf, 0), '0', NULL);
    rules_end();
}

TEST(arguments_of_requests)
{
    static struct gf_request many[GF_REQUESTS_MAX + 1];
    rules_make(RULES_READY, false);
    RULE(gf_allreduce(gf, AT(floats), 64, GF_TYPE_F32, NULL), 'P', "no request");
    RULE(gf_allreduce(gf, 0, 64, GF_TYPE_F32, &fresh), 'P', "no data");
    RULE(gf_allreduce(gf, AT(floats), 64, GF_TYPE_COUNT, &fresh), 'P', "type is 3");
    RULE(gf_allreduce(gf, AT(floats), UINT64_MAX, GF_TYPE_F32, &fresh), 'P', "too many elements");
    RULE(gf_allreduce_by(gf, GF_REDUCTION_COUNT, AT(floats), 64, GF_TYPE_F32, &fresh), 'P',
         "reduction is 3");
    RULE(gf_broadcast(gf, AT(floats), 64, GF_TYPE_F32, 2, &fresh), 'P', "root 2 of 2");
    RULE(gf_reduce_scatter(gf, 0, 64, GF_TYPE_F32, &fresh), 'P', "no data");
    RULE(gf_allgather(gf, 0, 64, GF_TYPE_F32, &fresh), 'P', "no data");
    RULE(gf_barrier(gf, NULL), 'P', "no request");
    RULE(gf_broadcast_weights(gf, 2), 'P', "root 2 of 2");
    RULE(gf_request_poll(gf, NULL), 'P', "no such request");
    RULE(gf_request_wait(gf, &fresh), 'P', "no such request");
    memset(many, 0, sizeof many);
    for (uint32_t i = 0; i < GF_REQUESTS_MAX; i++)
        RULE(gf_allreduce(gf, 0, 0, GF_TYPE_F32, &many[i]), '.', NULL);
    RULE(gf_barrier(gf, &many[GF_REQUESTS_MAX]), 'F', NULL);
    /* it is the library's until it ends */
    RULE(gf_barrier(gf, &many[0]), 'P', "this request is under way");
    /* all end, and none is asked for */
    for (uint32_t i = 0; i < 9999; i++) RULE(gf_heartbeat(gf), '.', NULL);
    RULE(gf_broadcast_weights(gf, 0), 'S', "8 requests have ended that nobody has asked for");
    /* nothing was posted */
    RULE(gf_request_poll(gf, &many[GF_REQUESTS_MAX]), 'P', "no such request");
    RULE(gf_exchange_take(gf, 0), '0', NULL);
    RULE(gf_exchange_take(gf, UINT64_MAX), '0', NULL);
    RULE(gf_exchange_take(gf, 4097), '0', NULL);
    RULE(gf_exchange_take(gf, 4096) != 0, '1', NULL);
    RULE(gf_exchange_take(gf, 1), '0', NULL);
    rules_end();
}

TEST(arguments_of_states_regroups_and_statistics)
{
    rules_make(RULES_READY, false);
    RULE(gf_state_save(gf, NULL, rules_state_bytes), 'P', "at (nil)");
    RULE(gf_state_save(gf, rules_state, rules_state_bytes - 1), 'P', "gf_state_bytes() says");
    RULE(gf_state_save(gf, rules_state, rules_state_bytes + 8), 'P', "gf_state_bytes() says");
    RULE(gf_state_load(gf, NULL, rules_state_bytes), 'P', "aligned to 8");
    RULE(gf_state_load(gf, (char *)rules_state + 4, rules_state_bytes), 'P', "aligned to 8");
    RULE(gf_state_load(gf, rules_state, 7), 'D', "7 bytes; a state has");
    rules_state[rules_state_bytes / 16] ^= 1;
    RULE(gf_state_load(gf, rules_state, rules_state_bytes), 'D', "the state is corrupt");
    memset(rules_state, 0, sizeof rules_state);
    RULE(gf_state_load(gf, rules_state, rules_state_bytes), 'D', "this is no state");
    RULE(gf_regroup_begin(gf), 'S', "nothing has failed, and nobody waits or leaves");
    RULE(gf_stats_read(gf, NULL), 'P', "size_bytes = 0");
    stats.size_bytes = 0;
    RULE(gf_stats_read(gf, &stats), 'P', "size_bytes = 0");
    stats.size_bytes = sizeof stats + 8;
    RULE(gf_stats_read(gf, &stats), 'P', "allowed are");
    stats.size_bytes = offsetof(struct gf_stats, wait_ns); /* an older caller's */
    RULE(gf_stats_read(gf, &stats), '.', NULL);
    RULE(gf_struct_bytes("gf_tensor") == sizeof(struct gf_tensor), '1', NULL);
    RULE(gf_struct_bytes("gf_stats") == sizeof stats, '1', NULL);
    RULE(gf_struct_bytes("gf_tensors"), '0', NULL);
    RULE(gf_struct_bytes(NULL), '0', NULL);
    RULE(gf_trace_read(gf, NULL, 4), '0', NULL);
    RULE(gf_trace_read(gf, &record, 0), '0', NULL);
    RULE(gf_trace_write(gf, NULL, NULL), 'P', NULL);
    RULE(gf_trace_checkpoint(gf, 2, 1), 'P', NULL);
    /* all of these were refused, and nothing has failed */
    RULE(gf_error_last(gf)->code, '.', NULL);
    RULE(gf_close(NULL), '.', NULL);
    rules_end();
}
