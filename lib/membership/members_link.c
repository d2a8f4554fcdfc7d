/* Ranks of one node need no network, and should not listen on one. Each rank says with its offer where it is and
 * whether its link has a network open. Once all are here, the coordinator knows: where some link is not as it should
 * be, it asks all of them for their endpoints again (LINK), with a network or without. At most once an epoch. */
#include "lib/membership/members_state.h"

bool gf_members_links_fit(struct gf_members *members)
{
    uint32_t wanted = members->nodes_several ? members->setup.world : 0;
    if (members->link_asked) return !members->link_due;
    if (!members->nodes_known || (members->network_count == wanted)) return true;
    members->link_asked = true;
    members->link_network = members->nodes_several;
    members->link_due = ((members->setup.offer.network != 0) != members->nodes_several);
    for (uint32_t rank = 1; rank < members->setup.world; rank++) {
        members_at(members, rank)->state = MEMBER_OFFERED;
        members_at(members, rank)->said.endpoint_have = 0;
        gf_members_owe(members, rank, MEMBERS_LINK);
    }
    return false;
}

static void endpoint_again(struct gf_members *members)
{
    struct member *coordinator = members_at(members, 0);
    coordinator->said.endpoint_rank = coordinator->said.endpoint_at = 0;
    gf_members_owe(members, 0, MEMBERS_ENDPOINTS);
}

bool gf_members_link_take(struct gf_members *members, struct gf_get *get)
{
    members->link_network = gf_get_u32(get) != 0;
    if (get->bad || (members->state != MEMBERS_JOINING)) return false;
    members->link_due = (members->link_network != (members->setup.offer.network != 0));
    if (!members->link_due) endpoint_again(members);
    return true;
}

bool gf_members_link_due(const struct gf_members *members, bool *network_out)
{
    *network_out = members->link_network;
    return members->link_due && (members->state == MEMBERS_JOINING);
}

void gf_members_link_renewed(struct gf_members *members, const void *endpoint, size_t endpoint_bytes)
{
    uint32_t rank = members->setup.rank;
    GF_ASSERT(GF_CONTROL_ADDRESS_BYTES + endpoint_bytes <= members->setup.endpoint_bytes_max);
    if (endpoint_bytes > 0)
        memcpy(members_endpoint_at(members, rank) + GF_CONTROL_ADDRESS_BYTES, endpoint, endpoint_bytes);
    members_at(members, rank)->said.endpoint_bytes = (uint32_t)(GF_CONTROL_ADDRESS_BYTES + endpoint_bytes);
    members->setup.offer.network = members->link_network ? 1 : 0;
    members->link_due = false;
    if (members_coordinates(members)) gf_members_join_full(members);
    else endpoint_again(members);
}
