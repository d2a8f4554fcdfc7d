/* Where ranks are decides whether their links have a network: the join says so, and endpoints come
 * again. */
#include "firmware-tests/support/suite.h"
#include "lib/membership/members_state.h"
#include "firmware-tests/support/members_world.h"

#define RANKS 4u

/* LINK and FABRIC are what ranks have open, and who can open the fabric is a bit for each rank. */
enum { NONE = GF_NETWORK_NONE, LINK = GF_NETWORK_LINK, FABRIC = GF_NETWORK_FABRIC };
#define UNBUILT GF_FABRIC_UNBUILT
static const struct link_case {
    const char *name;
    uint64_t nodes[RANKS];
    uint32_t network[RANKS], expect; /* of each rank in the end */
    uint32_t renewed;                /* a bit for each rank that was asked for another link */
    uint32_t able;
    gf_fabric otherwise; /* of who is not able */
    const char *warned;  /* of rank 0's one warning; NULL: there is none */
} cases[] = {
    {"nobody_knows", {0}, {0}, NONE, 0x0, 0x0, 0, NULL},
    {"one_node", {7, 7, 7, 7}, {0}, NONE, 0x0, 0x0, 0, NULL},
    {"one_node_that_were_two", {7, 7, 7, 7}, {LINK, LINK, LINK, LINK}, NONE, 0xf, 0x0, 0, NULL},
    {"one_node_one_was_of_two", {7, 7, 7, 7}, {0, 0, LINK, 0}, NONE, 0x4, 0x0, 0, NULL},
    {"two_nodes", {7, 7, 9, 9}, {0}, LINK, 0xf, 0x0, 0, NULL},
    {"two_nodes_as_before", {7, 7, 9, 9}, {LINK, LINK, LINK, LINK}, LINK, 0x0, 0x0, 0, NULL},
    {"two_nodes_and_somebody_new", {7, 7, 9, 9}, {LINK, LINK, LINK, 0}, LINK, 0x8, 0x0, 0, NULL},
    {"the_first_alone", {7, 9, 9, 9}, {0}, LINK, 0xf, 0x0, 0, NULL},
    {"somebody_who_does_not_know", {7, 7, 0, 7}, {0, 0, LINK, 0}, LINK, 0xb, 0x0, 0, NULL},
    {"all_have_a_fabric", {7, 7, 9, 9}, {0}, FABRIC, 0xf, 0xf, 0, NULL},
    {"one_node_needs_no_fabric", {7, 7, 7, 7}, {0}, NONE, 0x0, 0xf, 0, NULL},
    {"one_has_none", {7, 7, 9, 9}, {0}, LINK, 0xf, 0xb, 0, "rank 2 cannot use the fabric"},
    {"the_first_has_none", {7, 7, 9, 9}, {0}, LINK, 0xf, 0xe, 0, "rank 0 cannot use the fabric"},
    {"all_lack_a_part", {7, 7, 9, 9}, {0}, LINK, 0xf, 0x0, UNBUILT, "make UCX_IB=1"},
    {"on_one_node", {7, 7, 7, 7}, {0}, NONE, 0x0, 0x0, UNBUILT, NULL},
    {"with_sockets_already", {7, 7, 9, 9}, {LINK, LINK, LINK, 0}, LINK, 0x8, 0x0, UNBUILT, NULL},
    {"some_have_it", {7, 7, 9, 9}, {0}, LINK, 0xf, 0x5, UNBUILT, "rank 1 cannot use the fabric"},
    {"sockets_stay", {7, 7, 9, 9}, {LINK, LINK, LINK, 0}, LINK, 0x8, 0xf, 0, NULL},
    {"the_fabric_stays", {7, 7, 9, 9}, {FABRIC, FABRIC, FABRIC, 0}, FABRIC, 0x8, 0xf, 0, NULL},
};

static struct log_heard {
    uint32_t warnings;
    char text[401];
} heard;

static void log_take(void *user, gf_log_level level, const char *line)
{
    struct log_heard *to = user;
    if (level != GF_LOG_WARN) return;
    to->warnings++;
    (void)snprintf(to->text, sizeof to->text, "%s", line);
}

static void case_run(const struct link_case *c, bool over_tcp, uint32_t room_every)
{
    static unsigned char endpoint[ENDPOINT_MAX];
    uint32_t renewed = 0;
    members_world_begin(RANKS, over_tcp, room_every);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct gf_offer offer = offer_of(RANKS);
        offer.node = c->nodes[rank];
        offer.network = c->network[rank];
        offer.fabric = ((c->able >> rank) & 1) ? GF_FABRIC_FOUND : c->otherwise;
        rank_open(rank, &offer);
    }
    heard = (struct log_heard){.warnings = 0};
    world.ranks[0].members->setup.log = (struct gf_log){.fn = log_take, .user = &heard};
    for (uint32_t rank = 1; (rank < RANKS) && !over_tcp; rank++) fake_connect(&fake, rank);
    for (uint32_t turn = 0; !members_world_progress(GF_OK); turn++) {
        assert_true(turn < 100000);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            uint32_t network = c->expect + 1;
            if ((turn % 7 < rank) || !gf_members_link_due(world.ranks[rank].members, &network))
                continue;
            assert_int_equal(network, c->expect);
            renewed |= 1u << rank;
            memset(endpoint, (int)(100 + rank), sizeof endpoint);
            gf_members_link_renewed(world.ranks[rank].members, endpoint, ENDPOINT_MAX - rank);
        }
    }
    assert_int_equal(heard.warnings, c->warned != NULL);
    if (c->warned != NULL) assert_non_null(strstr(heard.text, c->warned));
    if (renewed != c->renewed) print_error("%s\n", c->name);
    assert_int_equal(renewed, c->renewed);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (uint32_t of = 0; of < RANKS; of++) {
            size_t bytes = 0;
            const unsigned char *at = gf_members_endpoint(world.ranks[rank].members, of, &bytes);
            if (((renewed >> of) & 1) == 0) continue;
            assert_int_equal(bytes, ENDPOINT_MAX - of);
            assert_true((at[0] == 100 + of) && (at[bytes - 1] == 100 + of));
        }
    }
    members_world_end();
}

TEST(links_have_a_network_where_ranks_are_of_several_nodes)
{
    for (size_t i = 0; i < LENGTH(cases); i++) {
        case_run(&cases[i], false, 0);
        case_run(&cases[i], false, 3);
        case_run(&cases[i], true, 0);
    }
}

TEST(who_cannot_use_the_fabric_of_the_job_is_refused)
{
    char text[240] = "";
    struct gf_offer offer = offer_of(2);
    offer.network = GF_NETWORK_FABRIC;
    offer.fabric = 1;
    members_world_begin(2, false, 0);
    rank_open(0, &offer);
    assert_false(gf_members_offer_difference(world.ranks[0].members, &offer, 1, text, sizeof text));
    offer.fabric = 0;
    assert_true(gf_members_offer_difference(world.ranks[0].members, &offer, 1, text, sizeof text));
    assert_non_null(strstr(text, "a fabric, which rank 1 cannot use"));
    rank_open(1, &offer);
    members_world_end();
}

TEST(a_word_about_links_after_the_join_is_none)
{
    static const unsigned char yes[4] = {1};
    uint32_t network;
    members_world_open(2, false, 0);
    members_world_until(GF_OK);
    struct gf_rendezvous *end = &fake.ends[0].base;
    assert_int_equal(end->driver->send(end, 1, MEMBERS_LINK, yes, sizeof yes), GF_OK);
    (void)members_world_progress(GF_OK);
    assert_false(gf_members_link_due(world.ranks[1].members, &network));
    assert_int_equal(gf_members_error(world.ranks[1].members)->code, GF_ERR_PEER);
}

TEST_EACH(NULL, members_world_end)
