/* Rank 0 lives on while another rank coordinates. It listens at the job's address as before, and
 * there a restarted rank comes: it is sent on to who coordinates. Each row runs by name, at the
 * port, and with a key. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/tcp_keys.h"
#include "firmware-tests/support/tcp_middle.h"

#include <unistd.h>

static char at[3][GF_CONTROL_ADDRESS_BYTES]; /* where each rank is to be met */
static const char *key;                      /* or empty */

static const struct kind {
    const char *name;
    bool insecure, keyed;
} kinds[] = {{"by_name", false, false}, {"at_the_port", true, false}, {"with_a_key", false, true}};

static struct gf_rendezvous_setup setup_of(uint32_t rank)
{
    struct gf_rendezvous_setup setup = keyed(rank, 3, key);
    setup.insecure = setup.insecure && (key[0] == '\0');
    return setup;
}

static void world_begin(const struct kind *kind)
{
    print_message("# %s\n", kind->name);
    begin();
    star.insecure = kind->insecure;
    key = kind->keyed ? key_a : "";
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct gf_rendezvous_setup setup = setup_of(rank);
        end_open(rank, &setup);
    }
    turns_connect(3);
    for (uint32_t rank = 0; rank < 3; rank++) gf_rendezvous_tcp.address(star.ends[rank], at[rank]);
}

/* Rank 2 dies, and rank 0 follows rank 1. */
static void rank_0_follows(void)
{
    tcp_world_end_close(&star, 2);
    UNTIL(seen[0].ended == 4);
    memset(seen, 0, sizeof seen);
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[0], now_ns, 1, at[1]), GF_AGAIN);
}

static void rank_1_coordinates(void)
{
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[1], now_ns, 1, at[1]), GF_OK);
    UNTIL((seen[0].connected == 2) && ((seen[1].connected & 1) != 0));
}

static void rank_2_comes_back(void)
{
    struct gf_rendezvous_setup setup = setup_of(2);
    setup.rejoin = true;
    end_open(2, &setup);
}

/* .. which is how most of what follows begins. */
static void world_led_by_rank_1(const struct kind *kind)
{
    world_begin(kind);
    rank_0_follows();
    rank_1_coordinates();
}

static void turns(uint32_t count, uint64_t pause_ns)
{
    for (uint32_t i = 0; i < count; i++) {
        turn();
        now_ns += pause_ns;
    }
}

/* It does not poll until it is put back. */
static struct gf_rendezvous *stopped(uint32_t rank)
{
    struct gf_rendezvous *end = star.ends[rank];
    star.ends[rank] = NULL;
    return end;
}

/* Turns of 50 ms, until the deadline of this rank. */
static void turns_until_it_fails(uint32_t rank)
{
    for (uint32_t i = 0; (i < 2000) && (seen[rank].status >= 0); i++) turns(1, SECOND / 20);
}

static void assert_told(const struct gf_rendezvous *end, const char *text)
{
    if (strstr(end->fault.text, text) == NULL) fail_msg("'%s' in: %s", text, end->fault.text);
}

TEST(a_restarted_rank_is_sent_on_to_who_coordinates)
{
    for (size_t i = 0; i < LENGTH(kinds); i++) {
        world_led_by_rank_1(&kinds[i]);
        rank_2_comes_back();
        UNTIL((seen[2].connected == 2) && (seen[1].connected == 5));
        assert_int_equal(gf_rendezvous_tcp.send(star.ends[2], 1, 9, "here", 4), GF_OK);
        UNTIL((seen[1].frames == 1) && (seen[1].last_from == 2));
        assert_int_equal(seen[0].refused | seen[0].ended, 0);
        world_end();
    }
}

/* Until rank 0 has met the coordinator it does not know who that will be; it may be rank 0. */
TEST(one_that_comes_before_that_is_known_waits_and_is_sent_on_then)
{
    for (size_t i = 0; i < LENGTH(kinds); i++) {
        world_begin(&kinds[i]);
        rank_0_follows();
        rank_2_comes_back();
        turns(100, 0);
        assert_int_equal(seen[2].connected, 0);
        rank_1_coordinates();
        UNTIL((seen[2].connected == 2) && (seen[1].connected == 5));
        world_end();
    }
}

/* Nobody is there, or nothing is said there: it asks at the job's address again, where rank 0
 * coordinates meanwhile. */
TEST(one_that_is_sent_to_a_dead_or_stopped_rank_asks_again)
{
    for (size_t i = 0; i < LENGTH(kinds) * 2; i++) {
        bool dies = (i % 2 == 0);
        world_led_by_rank_1(&kinds[i / 2]);
        struct gf_rendezvous *rank_1 = stopped(1);
        rank_2_comes_back();
        turns(100, 0);
        assert_int_equal(seen[2].connected, 0);
        if (dies) {
            star.ends[1] = rank_1;
            tcp_world_end_close(&star, 1);
        }
        assert_int_equal(gf_rendezvous_tcp.reform(star.ends[0], now_ns, 0, at[0]), GF_OK);
        uint64_t since_ns = now_ns;
        UNTIL((seen[2].connected == 1) && ((seen[0].connected & 4) != 0));
        assert_true(now_ns - since_ns < 3 * SECOND);
        if (!dies) star.ends[1] = rank_1;
        world_end();
    }
}

TEST(one_that_cannot_reach_who_coordinates_says_where_it_was_sent)
{
    char text[GF_TEXT_MAX];
    world_led_by_rank_1(&kinds[1]);
    struct gf_rendezvous *rank_1 = stopped(1);
    rank_2_comes_back();
    (void)snprintf(text, sizeof text, "a member said that it is at %s, and there: ", at[1]);
    turns_until_it_fails(2);
    assert_int_equal(seen[2].status, GF_ERR_TIMEOUT);
    assert_told(star.ends[2], text);
    star.ends[1] = rank_1;
}

/* It was sent to a stopped rank, and then refused at the job's address. */
TEST(a_refusal_is_told_with_the_address_where_it_was_heard)
{
    char text[GF_TEXT_MAX];
    struct gf_rendezvous_setup setup;
    world_led_by_rank_1(&kinds[2]);
    struct gf_rendezvous *rank_1 = stopped(1);
    rank_2_comes_back();
    turns(100, 0);
    struct gf_rendezvous *rank_2 = stopped(2);
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[0], now_ns, 0, at[0]), GF_OK);
    setup = setup_of(2);
    setup.rejoin = true;
    end_open(3, &setup);
    UNTIL(seen[3].connected == 1);
    star.ends[2] = rank_2;
    turns_until_it_fails(2);
    (void)snprintf(text, sizeof text, "the coordinator at %s refused rank 2 for ", at[0]);
    assert_told(rank_2, text);
    assert_told(rank_2, "member 2 is here already");
    star.ends[1] = rank_1;
}

/* It computes, and looks at its connections for a moment every few seconds. */
TEST(one_that_is_sent_to_a_rank_that_polls_seldom_comes_in)
{
    for (size_t i = 0; i < LENGTH(kinds); i++) {
        world_led_by_rank_1(&kinds[i]);
        rank_2_comes_back();
        for (int looks = 0; (looks < 9) && (seen[2].connected == 0); looks++) {
            struct gf_rendezvous *rank_1 = stopped(1);
            turns(100, 50 * MS);
            star.ends[1] = rank_1;
            turn();
        }
        assert_int_equal(seen[2].connected, 2);
        world_end();
    }
}

/* It was left out: it does not ask at its own listener. */
TEST(rank_0_that_was_left_out_finds_who_coordinates_at_the_jobs_address)
{
    for (size_t i = 0; i < LENGTH(kinds); i++) {
        world_led_by_rank_1(&kinds[i]);
        assert_int_equal(gf_rendezvous_tcp.reform(star.ends[0], now_ns, GF_RANK_NONE, ""),
                         GF_AGAIN);
        memset(seen, 0, sizeof seen);
        uint64_t since_ns = now_ns;
        UNTIL((seen[0].connected == 2) && ((seen[1].connected & 1) != 0));
        assert_true(now_ns - since_ns < 2 * SECOND);
        world_end();
    }
}

/* Its time to come in begins when it was left out, not with the job. */
TEST(one_that_was_left_out_looks_for_as_long_as_one_that_comes_back)
{
    world_begin(&kinds[0]);
    for (uint32_t rank = 1; rank < 3; rank++) tcp_world_end_close(&star, rank);
    now_ns += 50 * SECOND;
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[0], now_ns, GF_RANK_NONE, ""), GF_AGAIN);
    now_ns += 59 * SECOND;
    turn();
    assert_int_equal(seen[0].status, GF_AGAIN);
    now_ns += SECOND;
    turn();
    assert_int_equal(seen[0].status, GF_ERR_TIMEOUT);
    assert_told(star.ends[0], "times in 60.0 s, last: ");
}

/* Whoever it asks: it cannot come in, and need not understand where to go. */
TEST(one_of_another_job_or_version_hears_so_from_whoever_listens)
{
    for (size_t i = 1; i < LENGTH(kinds); i++) { /* by name it would not come here */
        world_led_by_rank_1(&kinds[i]);
        struct gf_rendezvous_setup setup = setup_of(2);
        setup.rejoin = true;
        setup.job_id = 4712;
        end_open(2, &setup);
        assert_refused(2, "job id 4711 at member 0, 4712 at member 2");
        assert_int_equal(seen[0].refused, 0);
        world_end();
    }
    unsigned char hello[HELLO_FRAME];
    char text[GF_FRAME_REASON_BYTES];
    world_led_by_rank_1(&kinds[1]);
    int fd = stranger_at(at[0]);
    hello_make(hello, 2, 3, 0);
    hello[GF_FRAME_HEADER_BYTES]++; /* its minor version */
    hello[GF_FRAME_HEADER_BYTES + 12] |= GF_HELLO_REJOINS;
    say(fd, hello, sizeof hello);
    hear_refusal(fd, true, text);
    assert_ptr_equal(strstr(text, "library version "), text);
    (void)close(fd);
}

/* The port of a rank that has ended may be another job's by now. */
TEST(one_that_is_sent_to_a_port_of_another_job_asks_again)
{
    world_led_by_rank_1(&kinds[1]);
    struct gf_rendezvous *rank_1 = stopped(1);
    rank_2_comes_back();
    turns(100, 0);
    star.ends[1] = rank_1;
    tcp_world_end_close(&star, 1);
    struct gf_rendezvous_setup setup = setup_of(0);
    setup.address = at[1];
    setup.job_id = 4712;
    end_open(3, &setup);
    turns(300, 3 * MS);
    assert_int_equal(seen[2].status, GF_AGAIN);
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[0], now_ns, 0, at[0]), GF_OK);
    UNTIL((seen[2].connected == 1) && ((seen[0].connected & 4) != 0));
}

/* It was started as if the job began. */
TEST(one_that_does_not_say_that_it_comes_back_is_refused_at_once)
{
    for (size_t i = 0; i < LENGTH(kinds); i++) {
        world_led_by_rank_1(&kinds[i]);
        struct gf_rendezvous_setup setup = setup_of(2);
        end_open(2, &setup);
        assert_refused(2, "the job runs, and member 1 coordinates it: a rank that comes back wants "
                          "rendezvous.rejoin (GF_REJOIN=1)");
        assert_int_equal(seen[0].refused, 0);
        world_end();
    }
}

/* .. and meets whoever took the job's address over from rank 0. */
TEST(one_that_does_not_say_that_it_comes_back_reads_what_it_wants)
{
    for (size_t i = 0; i < LENGTH(kinds); i++) {
        world_begin(&kinds[i]);
        tcp_world_end_close(&star, 2);
        tcp_world_end_close(&star, 0);
        UNTIL(seen[1].ended == 1);
        assert_int_equal(gf_rendezvous_tcp.reform(star.ends[1], now_ns, 1, at[1]), GF_OK);
        turn();
        struct gf_rendezvous_setup setup = setup_of(2);
        memset(&seen[2], 0, sizeof seen[2]);
        end_open(2, &setup);
        turns_until_it_fails(2);
        assert_int_equal(seen[2].status, GF_ERR_TIMEOUT);
        assert_told(star.ends[2],
                    "is rank 1, not rank 0: a rank that comes back wants GF_REJOIN=1");
        world_end();
    }
}

/* Rank 0 is dead. Rank 2 does not coordinate, and is the only one of its host (another address of this
 * machine): it listens at the job's port there, and a restarted rank may be told any of the hosts. */
TEST(the_port_of_the_job_leads_to_it_on_each_host_of_a_member)
{
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2"};
    char address[GF_TEXT_MAX];
    begin_open();
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct gf_rendezvous_setup setup = tcp_setup(&star, rank, 3);
        setup.bind = hosts[rank / 2];
        end_open(rank, &setup);
    }
    turns_connect(3);
    gf_rendezvous_tcp.address(star.ends[1], at[1]);
    tcp_world_end_close(&star, 0);
    UNTIL((seen[1].ended == 1) && (seen[2].ended == 1));
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[2], now_ns, 1, at[1]), GF_AGAIN);
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[1], now_ns, 1, at[1]), GF_OK);
    for (size_t i = 0; i < LENGTH(hosts); i++) {
        memset(seen, 0, sizeof seen);
        struct gf_rendezvous_setup setup = tcp_setup(&star, 0, 3);
        (void)snprintf(address, sizeof address, "%s%s", hosts[i], strrchr(star.address, ':'));
        setup.address = address;
        setup.rejoin = true;
        end_open(0, &setup);
        UNTIL((seen[0].connected == 2) && ((seen[1].connected & 1) != 0));
        tcp_world_end_close(&star, 0);
        UNTIL((seen[1].ended & 1) != 0);
    }
}

TEST_EACH(begin, world_end)
TEST_AROUND(keys_setup, keys_teardown)
