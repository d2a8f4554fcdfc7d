/* Ranks of one node need no network, and should not listen on one. Each rank says with its offer
 * where it is and whether its link has a network open. Once all are here, the coordinator knows:
 * where some link is not as it should be, it asks all of them for their endpoints again (LINK),
 * with a network or without: once, and once more where another process comes in for one that was
 * rejected. */
#include "lib/membership/members_state.h"

bool gf_members_links_fit(struct gf_members *members)
{
    bool known = false, several = false;
    uint32_t networks = 0;
    if (members->link_due) return false;
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        const struct member_said *said = &gf_members_of(members, rank)->said;
        known = known || (said->node != 0);
        several = several || (said->node != gf_members_of(members, 0)->said.node);
        networks += (said->network != 0) ? 1 : 0;
    }
    if (!known || (networks == (several ? members->setup.world : 0))) return true;
    members->link_network = several;
    members->link_due = ((members->setup.offer.network != 0) != several);
    gf_members_at(members, 0)->said.network = several ? 1 : 0;
    for (uint32_t rank = 1; rank < members->setup.world; rank++) {
        /* from its next endpoint on */
        gf_members_at(members, rank)->said.network = several ? 1 : 0;
        gf_members_at(members, rank)->state = MEMBER_OFFERED;
        gf_members_at(members, rank)->said.endpoint_have = 0;
        gf_members_owe(members, rank, MEMBERS_LINK);
    }
    return false;
}

void gf_members_endpoint_again(struct gf_members *members)
{
    struct member *coordinator = gf_members_at(members, 0);
    coordinator->said.endpoint_rank = coordinator->said.endpoint_at = 0;
    gf_members_owe(members, 0, MEMBERS_ENDPOINTS);
}

bool gf_members_link_take(struct gf_members *members, struct gf_get *get)
{
    members->link_network = gf_get_u32(get) != 0;
    if (get->bad || (members->state != MEMBERS_JOINING)) return false;
    members->link_due = (members->link_network != (members->setup.offer.network != 0));
    if (!members->link_due) gf_members_endpoint_again(members);
    return true;
}

bool gf_members_link_due(const struct gf_members *members, bool *network_out)
{
    *network_out = members->link_network;
    return members->link_due && (members->state == MEMBERS_JOINING);
}

void gf_members_link_renewed(struct gf_members *members, const void *endpoint,
                             size_t endpoint_bytes)
{
    uint32_t rank = members->setup.rank;
    GF_ASSERT(GF_CONTROL_ADDRESS_BYTES + endpoint_bytes <= members->setup.endpoint_bytes_max);
    if (endpoint_bytes > 0)
        memcpy(members_endpoint_at(members, rank) + GF_CONTROL_ADDRESS_BYTES, endpoint,
               endpoint_bytes);
    gf_members_at(members, rank)->said.endpoint_bytes =
        (uint32_t)(GF_CONTROL_ADDRESS_BYTES + endpoint_bytes);
    members->setup.offer.network = members->link_network ? 1 : 0;
    members->link_due = false;
    if (members_coordinates(members))
        gf_members_join_full(members);
    else
        gf_members_endpoint_again(members);
}
