/* What ranks of a new world learn from each other (train_elastic.c): of one that was in the world
 * before, though the rank that leads may have only just come in. The other ranks' parts of each sum
 * are constants here. */
#include "firmware-tests/support/suite.h"

#include "tools/train/train_loop.h"
#include "tools/train/train_ranks.h"

#define HASH UINT64_C(0x1122334455667788)

static struct others {
    float root;        /* the lowest rank among the others that has the job's values */
    uint64_t words[4]; /* what the others add */
} others;

static gf_status min_fake(gf_mem data)
{
    float *root = (float *)(uintptr_t)data;
    if (others.root < *root) *root = others.root;
    return GF_OK;
}

static gf_status sum_fake(uint64_t *words)
{
    for (int i = 0; i < 4; i++) words[i] += others.words[i];
    return GF_OK;
}

/* The file itself, with these in place of what goes over the network. */
#define gf_allreduce_by(gf, reduction, data, count, type, request) ((void)(request), min_fake(data))
#define gf_request_wait(gf, request) ((void)(request), GF_OK)
#define ranks_sum_u64(gf, words, count) sum_fake(words)
#define train_same_hash(train) HASH
#define train_leave_on_signal meet_leave_on_signal
#define train_shrink meet_shrink
#define train_admit meet_admit
#define train_joiner meet_joiner
#define train_finish meet_finish
#define train_save meet_save
#define ranks_sum(gf, data, count) ((void)(data), GF_OK)
void meet_leave_on_signal(void);
gf_status meet_shrink(struct train *train, gf_status status);
gf_status meet_admit(struct train *train);
gf_status meet_joiner(struct train *train);
gf_status meet_finish(struct train *train);
gf_status meet_save(struct train *train, uint64_t step);
#include "tools/train/train_elastic.c"

#define ranks_gather_u64(gf, value, limbs, values) ((void)(values), GF_OK)
#define train_weights_hash(train) HASH
#define train_share_first meet_share_first
#define train_plan meet_plan
#define train_layout meet_layout
#define train_checkpoint_begin meet_checkpoint_begin
#define train_resume meet_resume
#define train_steps meet_steps
#define train_test meet_test
#define train_end meet_end
#include "tools/train/train_loop.c"

static const struct meet_case {
    const char *name;
    uint32_t rank;
    bool joins;
    float others_root;
    uint64_t others_first, own_first; /* step_first that they bring along */
} cases[] = {
    {"rank_0_of_the_world_before_tells", 0, false, 1, 0, 7},
    {"who_comes_in_as_rank_0_learns_from_rank_1", 0, true, 1, 7, 0},
    {"and_rank_1_tells_where_rank_0_has_come_in", 1, false, 2, 0, 7},
    {"who_comes_in_as_another_learns_from_rank_0", 2, true, 0, 7, 0},
};

TEST(who_comes_in_tells_nothing)
{
    for (size_t i = 0; i < LENGTH(cases); i++) {
        const struct meet_case *c = &cases[i];
        static struct train train;
        double loss = 2.5;
        train = (struct train){
            .rank = c->rank, .world = 3, .joins = c->joins, .step_first = c->own_first};
        train.checkpoint.id = 9 * c->own_first;
        if (!c->joins) train.result.loss_first = loss;
        others = (struct others){.root = c->others_root};
        if (c->others_first != 0) {
            others.words[0] = c->others_first;
            others.words[1] = 9 * c->others_first;
            memcpy(&others.words[2], &loss, sizeof loss);
            others.words[3] = HASH;
        }
        print_message("%s\n", c->name);
        assert_int_equal(meet(&train), GF_OK);
        assert_int_equal(train.step_first, 7);
        assert_int_equal(train.checkpoint.id, 63);
        assert_true(train.result.loss_first == loss);
        assert_false(train.joins);
    }
}

/* The others were started with other options. */
TEST(who_comes_in_with_other_options_is_refused)
{
    static struct train train;
    train = (struct train){.rank = 0, .world = 3, .joins = true};
    others = (struct others){.root = 1, .words = {7, 63, 0, HASH + 1}};
    assert_int_equal(meet(&train), GF_ERR_MISMATCH);
    assert_true(train.joins && (train.step_first == 0) &&
                (strstr(train.checkpoint.error, "other options") != NULL));
}

/* Rank 0 came in late, to the last 10 of 100 steps, and took a second for each. */
TEST(what_took_how_long_is_of_the_steps_that_were_made_here)
{
    float seconds[100] = {0};
    float sorted[100];
    uint64_t bytes[100] = {0};
    const struct train_options options = {.batch = 4, .model = &net_linear};
    static const struct gf_config config;
    static struct train train;
    for (int i = 0; i < 10; i++) seconds[i] = 1;
    train = (struct train){.world = 2,
                           .options = &options,
                           .config = &config,
                           .step_count = 100,
                           .series_max = 100,
                           .loop_first = 90,
                           .step_seconds = seconds,
                           .exchange_seconds = seconds,
                           .sorted = sorted,
                           .step_bytes = bytes};
    others = (struct others){.root = 1};
    assert_int_equal(meet_end(&train), GF_OK);
    assert_int_equal(train.result.images, 400);
    assert_int_equal(train.result.images_timed, 40);
    assert_true(train.result.step_seconds == 1);
}
