/* Schedules by which a membership protocol may break, replayed: those of counterexamples that the
 * model finds where a rule of the protocol is left out. What comes is told in the model's words:
 * epoch 0 is the first, members are a bit each. All commits are held against the log's rules,
 * too. */
#include "firmware-tests/support/suite.h"
#include "lib/membership/members_state.h"
#include "firmware-tests/support/views_world.h"

static void sender_stops(void)
{
    views_stop(views.when.from, true);
}
static void sender_reaches_no_other(void)
{
    views_cut(1u << views.when.from, true);
    gf_sim_partition(views.sim, views.when.from, views.when.to, false);
    views_crash(views.when.from);
}

static bool begun(uint32_t rank, uint32_t epoch)
{
    return views_epoch(rank) >= epoch;
}

TEST(a_commit_that_reached_one_member_stands)
{
    views_open(5, false);
    views_when(0, 1, MEMBERS_COMMIT, views_sender_crashes);
    views_crash(4);
    views_until(views_done, 60 * SECOND);
    assert_null(views.when.then);
    EXPECT("0 promises view 1 of epoch 0, accepted 0", "0 proposes 15 in view 1", "0 crashes",
           "1 begins epoch 1: members 15", "1 begins epoch 2: members 14");
    EXPECT("0 crashes", "2 begins epoch 1: members 15", "2 begins epoch 2: members 14");
    views_close();
}

TEST(the_proposal_of_a_dead_coordinator_is_taken_where_one_accepted_it)
{
    views_open(5, false);
    views_when(0, 1, MEMBERS_PREPARE, views_sender_crashes);
    views_crash(4);
    views_until(views_done, 60 * SECOND);
    EXPECT("0 proposes 15 in view 1", "0 crashes", "1 accepts view 1", "1 proposes 15 in view 2",
           "1 begins epoch 1: members 15", "1 begins epoch 2: members 14");
    views_close();
}

TEST(where_nobody_did_it_is_forgotten)
{
    views_open(5, false);
    views_crash(4);
    views_stop(0, true);
    views_change(0x0e);
    views_until(views_done, 60 * SECOND);
    EXPECT("0 stops", "1 promises view 1 of epoch 0, accepted 0", "1 proposes 14 in view 2",
           "2 begins epoch 1: members 14");
    views_stop(0, false);
    views_until(views_done, 60 * SECOND);
    EXPECT("2 begins epoch 1: members 14", "0 goes on", "0 is out");
    views_expect_out(0);
    views_close();
}

/* Two accepted proposals: rank 6 that of view 1, rank 5 that of view 2. */
TEST(of_two_proposals_that_of_the_highest_view_is_taken)
{
    views_open(7, false);
    gf_sim_partition(views.sim, 1, 6, true);
    views_when(0, 6, MEMBERS_PREPARE, sender_reaches_no_other);
    views_change(0x7f);
    views_for(SECOND);
    assert_null(views.when.then);
    views_when(1, 5, MEMBERS_PREPARE, sender_reaches_no_other);
    views_until(views_done, 120 * SECOND);
    assert_null(views.when.then);
    EXPECT("0 proposes 127 in view 1", "0 crashes", "6 accepts view 1", "1 proposes 62 in view 2",
           "1 crashes", "5 accepts view 2", "2 proposes 62 in view 3",
           "2 begins epoch 1: members 62", "2 begins epoch 2: members 60");
    views_close();
}

/* The one of view 1 stops with a quorum of ACCEPT under way to it, that of view 2 takes its
 * proposal. */
TEST(two_coordinators_in_different_views_do_not_commit_two_lists)
{
    views_open(4, false);
    views_when(0, 3, MEMBERS_PREPARE, sender_stops);
    views_change(0x0f);
    views_for(100 * SECOND);
    assert_null(views.when.then);
    EXPECT("0 proposes 15 in view 1", "0 stops", "1 accepts view 1", "1 proposes 15 in view 2",
           "1 begins epoch 1: members 15", "1 begins epoch 2: members 14");
    assert_int_equal(views.ranks[0].members->view.state, VIEW_PROPOSED); /* of view 1, still */
    views_stop(0, false);
    views_until(views_done, 120 * SECOND);
    views_expect_out(0);
    views_close();
}

TEST(a_new_incarnation_counts_in_no_quorum)
{
    for (uint32_t row = 0; row < 2; row++) {
        views_open(3, false);
        views_stop(1, true);
        views_crash(2);
        views_for(SECOND);
        views_start(2);
        views_for(2 * SECOND);
        assert_int_equal(gf_members_waiting(views.ranks[0].members), 1);
        assert_false(begun(0, 1));
        if (row == 0) { /* two of three are connected, one of them is new */
            views_for(20 * SECOND);
            EXPECT("2 starts", "0 is out");
            views_expect_out(0);
            assert_false(begun(2, 1));
        } else {
            views_stop(1, false);
            views_until(views_done, 60 * SECOND);
            EXPECT("2 starts", "1 goes on", "0 proposes 7 in view 1",
                   "2 begins epoch 1: members 7");
        }
        views_close();
    }
}

/* Regions stay only then. */
TEST(that_all_who_went_have_ended_is_known_from_a_list_alone)
{
    static const struct {
        bool told, stops, again, expected;
        const char *what;
    } rows[] = {
        {false, false, false, false, "nobody names it"},
        {true, false, false, true, "it is named"},
        {true, true, false, false, "another is stopped"},
        {true, false, true, false, "a new process of it comes in at once"},
    };
    for (uint32_t row = 0; row < LENGTH(rows); row++) {
        views_open(4, rows[row].told);
        if (rows[row].stops) views_stop(3, true);
        views_crash(2);
        if (rows[row].again) views_start(2);
        views_for(40 * SECOND);
        if (!begun(0, 1) || (views.ranks[0].left_ended != rows[row].expected))
            fail_msg("%s", rows[row].what);
        views_close();
    }
}

/* Nobody else can decide where each other member id waits to come in. */
TEST(everybody_is_here_or_waits)
{
    views_open(2, true);
    views_crash(0);
    views_start(0); /* before anybody is told that its process has ended */
    views_until(views_done, 60 * SECOND);
    EXPECT("0 starts", "1 begins epoch 1: members 3", "0 begins epoch 1: members 3");
    views_close();
}

TEST(exactly_half_goes_on_with_the_lowest_id_alone)
{
    for (uint32_t row = 0; row < 3; row++) {
        static const uint64_t sides[] = {0x3, 0x9, 0x5};
        uint64_t side = sides[row];
        uint32_t lost = (row == 0) ? 2 : 1;
        views_open(4, false);
        views_cut(side, true);
        views_change(0x0f);
        views_for(100 * SECOND);
        assert_true(begun(0, 1) && (views_members(0) == side));
        views_cut(side, false);
        views_until(views_done, 60 * SECOND);
        views_expect_out(lost);
        assert_false(begun(lost, 1));
        assert_true(begun(0, 1) && (views_members(0) == side));
        views_close();
    }
}

/* With a quorum of promises, of a proposal, of a commit: the others go on without it, and it never
 * without them. */
TEST(a_stopped_coordinator_comes_back_with_an_old_view)
{
    static const members_frame stops_at[] = {MEMBERS_START_VIEW, MEMBERS_PREPARE, MEMBERS_COMMIT};
    for (size_t row = 0; row < LENGTH(stops_at); row++) {
        views_open(5, false);
        views_when(0, 3, stops_at[row], sender_stops);
        if (row == 0) views_stop(0, true);
        views_change(0x1f);
        views_for(100 * SECOND);
        for (uint32_t rank = 1; rank < 5; rank++)
            assert_true(begun(rank, 1) && (views_members(rank) == 0x1e));
        assert_true((row == 0) || (views.when.then == NULL));
        views_stop(0, false);
        views_until(views_done, 120 * SECOND);
        views_expect_out(0);
        assert_int_equal(begun(0, 1), row == 2);
        for (uint32_t rank = 1; rank < 5; rank++) assert_true(views_members(rank) == 0x1e);
        views_close();
    }
}

TEST(a_rank_that_is_left_goes_on_where_the_end_of_the_others_is_named)
{
    for (uint32_t size = 2; size <= 5; size++) {
        for (uint32_t told = 0; told < 2; told++) {
            uint32_t last = size - 1;
            views_open(size, told != 0);
            for (uint32_t rank = 0; rank < last; rank++) views_crash(rank);
            views_for(SECOND);
            if (told == 0)
                views_expect_out(last);
            else
                assert_true(begun(last, 1) && (views_members(last) == UINT64_C(1) << last));
            views_close();
        }
    }
}

/* What decided may have died: more than half of those that have not ended is not enough. */
TEST(more_than_half_of_the_rest_is_no_quorum)
{
    views_open(5, true);
    views_cut(0x07, true);
    views_change(0x1f);
    views_for(10 * SECOND);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_true(begun(rank, 1) && (views_members(rank) == 0x07));
    views_stop(2, true);
    views_crash(0);
    views_crash(1);
    views_for(200 * SECOND);
    /* 2 is not on the list: they look for it until their callers' deadline */
    for (uint32_t rank = 3; rank < 5; rank++)
        assert_true(!begun(rank, 1) && (views.ranks[rank].state == VIEWS_CHANGES));
    views_close();
}

/* The counterexample that SPIN keeps: each is told that the other has ended. The log of commits
 * sees it. */
TEST(a_list_of_the_ended_that_lies_splits_the_job)
{
    views_open(2, true);
    views.lies = true;
    views_cut(0x1, true);
    views_change(0x3);
    views_for(60 * SECOND);
    EXPECT("0 begins epoch 1: members 1");
    EXPECT("1 begins epoch 1: members 2");
    assert_non_null(strstr(views.log.error, "epoch 2"));
    views_close();
}
