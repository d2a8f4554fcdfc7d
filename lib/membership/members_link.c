/* Ranks of one node need no network, and should not listen on one. Each rank says with its offer where it is and
 * whether its link has a network open. Once all are here, the coordinator knows: where some link is not as it should
 * be, it asks all of them for their endpoints again (LINK), with a network or without. At most once an epoch. */
#include "lib/membership/members_state.h"

bool gf_members_links_fit(struct gf_members *members)
{
    struct members_peer *own = &members->peers[members->setup.rank];
    bool known = false, several = false, fit = true;
    own->node = members->setup.offer.node;
    own->network = members->setup.offer.network != 0;
    if (members->link_asked) return !members->link_due;
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        known = known || (members->peers[rank].node != 0);
        several = several || (members->peers[rank].node != own->node);
    }
    for (uint32_t rank = 0; rank < members->setup.world; rank++)
        fit = fit && (members->peers[rank].network == several);
    if (!known || fit) return true;
    members->link_asked = true;
    members->link_network = several;
    members->link_due = (own->network != several);
    for (uint32_t rank = 1; rank < members->setup.world; rank++) {
        members->peers[rank].offered = false;
        members->peers[rank].endpoint_have = 0;
        gf_members_owe(members, rank, MEMBERS_LINK);
    }
    return false;
}

static void endpoint_again(struct gf_members *members)
{
    members->peers[0].endpoint_rank = members->peers[0].endpoint_at = 0;
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
    unsigned char *own = members->endpoints + members->setup.rank * members->setup.endpoint_bytes_max;
    GF_ASSERT(GF_CONTROL_ADDRESS_BYTES + endpoint_bytes <= members->setup.endpoint_bytes_max);
    if (endpoint_bytes > 0) memcpy(own + GF_CONTROL_ADDRESS_BYTES, endpoint, endpoint_bytes);
    members->peers[members->setup.rank].endpoint_bytes = (uint32_t)(GF_CONTROL_ADDRESS_BYTES + endpoint_bytes);
    members->setup.offer.network = members->link_network ? 1 : 0;
    members->link_due = false;
    if (members_coordinates(members)) gf_members_join_full(members);
    else endpoint_again(members);
}
