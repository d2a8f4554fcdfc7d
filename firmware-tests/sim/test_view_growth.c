/* Processes that come in while whoever invited them leaves or dies: who tells them, and who waits
 * for them. In the model's words, as test_view_schedules. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/views_world.h"

static void sender_crashes_and_4_starts_again(void)
{
    views_crash(views.when.from);
    views_crash(4);
    views_start(4);
}
static void sender_stops_and_receiver_crashes(void)
{
    views_stop(views.when.from, true);
    views_crash(views.when.to);
}

/* The dead coordinator had invited 3 and 4, without whom the others are no quorum. The next one
 * tells the processes that were meant, and no other of their ids. */
TEST(processes_that_a_dead_coordinator_invited_hear_of_the_next_one)
{
    for (uint32_t again = 0; again < 2; again++) {
        views_open(5, false);
        views_crash(3);
        views_crash(4);
        views_until(views_done, 60 * SECOND);
        views_start(3);
        views_start(4);
        views_for(SECOND);
        views_when(0, 1, MEMBERS_PREPARE,
                   (again == 0) ? views_sender_crashes : sender_crashes_and_4_starts_again);
        views_change(0x07);
        views_until(views_done, 60 * SECOND);
        assert_null(views.when.then);
        EXPECT("0 proposes 31 in view 1", "0 crashes", "1 accepts view 1",
               "1 proposes 31 in view 2", "1 begins epoch 2: members 31",
               "1 begins epoch 3: members 30");
        EXPECT("0 crashes", "3 begins epoch 2: members 31", "3 begins epoch 3: members 30");
        EXPECT("0 crashes", "4 begins epoch 3: members 30");
        for (uint32_t i = 0; (again != 0) && (i < views.line_count); i++)
            assert_string_not_equal(views.lines[i], "4 begins epoch 2: members 31");
        views_close();
    }
}

/* The dead coordinator had let 1 come back, which the others know as dead and at an address that it
 * had before. Nobody asks that, and without 1 they are no quorum. */
TEST(a_process_that_comes_back_is_awaited_where_its_inviter_died)
{
    views_open(4, true);
    views_crash(1);
    views_until(views_done, 60 * SECOND);
    views.told = false;
    views_start(1);
    views_for(SECOND);
    views_stop(1, true);
    views_when(0, 2, MEMBERS_PREPARE, views_sender_crashes);
    views_change(0x0d);
    views_for(SECOND);
    views_stop(1, false);
    views_for(SECOND); /* a rank that does not answer would cost 15 */
    EXPECT("0 proposes 15 in view 1", "0 crashes", "2 proposes 15 in view 2",
           "2 begins epoch 2: members 15", "2 begins epoch 3: members 14");
    EXPECT("0 crashes", "1 begins epoch 3: members 14");
    views_close();
}

/* 0 leaves, and has let 3 come in. */
static void leave_and_invite(void)
{
    views_open(4, false);
    views_crash(3);
    views_until(views_done, 60 * SECOND);
    views_start(3);
    views_for(SECOND);
    views.leaves = 0x1;
}

/* .. but dies as it proposes; 3 does not reach the next coordinator. */
static void leave_invite_and_die(void)
{
    leave_and_invite();
    gf_sim_partition(views.sim, 1, 3, true);
    views_when(0, 1, MEMBERS_PREPARE, views_sender_crashes);
    views_change(0x07);
    views_for(SECOND);
    EXPECT("0 proposes 14 in view 1", "0 crashes", "1 begins epoch 2: members 14");
    assert_int_equal(views.ranks[1].state, VIEWS_JOINS);
}

TEST(a_coordinator_that_leaves_tells_those_that_come_in)
{
    leave_and_invite();
    views_change(0x07);
    views_until(views_done, 60 * SECOND);
    EXPECT("0 proposes 14 in view 1", "0 has left", "3 begins epoch 2: members 14");
    assert_int_equal(views_epoch(1), 2);
    views_close();
}

TEST(who_was_invited_by_a_dead_one_is_told_while_the_others_join)
{
    leave_invite_and_die();
    gf_sim_partition(views.sim, 1, 3, false);
    views_until(views_done, 60 * SECOND);
    EXPECT("1 begins epoch 2: members 14", "3 begins epoch 2: members 14");
    assert_int_equal(views_epoch(1), 2);
    views_close();
}

TEST(who_was_invited_comes_as_the_epoch_fails)
{
    const struct gf_error error = {
        .code = GF_ERR_LINK, .peer = 1, .tensor = GF_TENSOR_NONE, .text = "no link"};
    leave_invite_and_die();
    views_stop(1, true);
    gf_members_tell(views.ranks[2].members, &error);
    views_crash(2);
    gf_sim_partition(views.sim, 1, 3, false);
    views_for(SECOND);
    views_stop(1, false); /* it hears all that at once */
    views_until(views_done, 60 * SECOND);
    EXPECT("1 goes on", "3 begins epoch 2: members 14", "1 begins epoch 3: members 10");
    views_close();
}

TEST(who_was_invited_comes_as_a_view_fails)
{
    leave_invite_and_die();
    /* of another epoch: 3 did not come to that */
    views_when(1, 2, MEMBERS_PREPARE, sender_stops_and_receiver_crashes);
    views_for(30 * SECOND);
    assert_null(views.when.then);
    gf_sim_partition(views.sim, 1, 3, false);
    views_for(SECOND);
    views_stop(1, false);
    views_until(views_done, 60 * SECOND);
    EXPECT("1 proposes 6 in view 1", "1 goes on", "3 begins epoch 2: members 14",
           "1 begins epoch 3: members 6", "3 is left out", "3 begins epoch 4: members 10");
    views_close();
}

/* Two processes of one member id are never both of an epoch. */
TEST(a_commit_is_of_the_process_that_it_names)
{
    static const struct {
        const char *name;
        bool joins, has;
        uint32_t took, after;
        bool mine;
    } rows[] = {
        {"a_member_that_stays", false, true, 0, 1, true},
        {"one_that_is_left_out", false, false, 0, 1, false},
        {"one_whose_id_went_to_another_process", false, true, 9, 1, false},
        {"one_that_the_job_went_on_without", false, true, 0, 2, false},
        {"one_that_comes_in", true, true, 7, 4, true},
        {"one_whose_turn_another_took", true, true, 9, 4, false},
        {"one_that_comes_and_is_not_named", true, true, 0, 4, false},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        static struct gf_members members = {.member_id = 1, .incarnation = 7};
        struct members_list list = {.epoch = 3 + rows[i].after,
                                    .taken = {1},
                                    .incarnation = {rows[i].took},
                                    .taken_count = (rows[i].took != 0) ? 1 : 0};
        if (rows[i].has) gf_view_add(list.bits, 1);
        members.setup.joins = rows[i].joins;
        members.view.epoch.epoch = rows[i].joins ? 0 : 3;
        if (gf_view_list_is_mine(&members, &list) != rows[i].mine) fail_msg("%s", rows[i].name);
    }
}
