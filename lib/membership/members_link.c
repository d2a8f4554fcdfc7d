/* Ranks of one node need no network, and should not listen on one. Each rank says with its offer
 * where it is and whether its link has a network open. Once all are here, the coordinator knows:
 * where some link is not as it should be, it asks all of them for their endpoints again (LINK), of
 * that network or of none: once, and once more where another process comes in for one that was
 * rejected. */
#include "lib/membership/members_state.h"

/* The fabric if all can, and if the job does not go over sockets already: what it goes over does
 * not change while it lives. */
static gf_network network_of(struct gf_members *members)
{
    gf_network network = GF_NETWORK_FABRIC;
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        const struct member *member = gf_members_of(members, rank);
        if ((member->said.fabric != GF_FABRIC_FOUND) || (member->said.network == GF_NETWORK_LINK))
            network = GF_NETWORK_LINK;
    }
    return network;
}

/* Where a fabric might have been expected. */
static void sockets_tell(struct gf_members *members)
{
    uint32_t without = GF_RANK_NONE;
    uint32_t able = 0;
    uint32_t unbuilt = 0;
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        uint32_t fabric = gf_members_of(members, rank)->said.fabric;
        if (fabric == GF_FABRIC_UNBUILT) unbuilt++;
        if (fabric == GF_FABRIC_FOUND)
            able++;
        else if (without == GF_RANK_NONE)
            without = rank;
    }
    if (unbuilt == members->setup.world)
        gf_log_line(&members->setup.log, GF_LOG_WARN,
                    "sockets between nodes: all hosts have an active InfiniBand port, but this "
                    "program has not UCX's part for it: build it with make UCX_IB=1, or with "
                    "make UCX_DYNAMIC=1 (link.driver = \"tcp\" asks for sockets)");
    else if ((able > 0) && (without != GF_RANK_NONE))
        gf_log_line(&members->setup.log, GF_LOG_WARN,
                    "sockets between nodes: rank %u cannot use the fabric (its log says why)",
                    without);
}

bool gf_members_links_fit(struct gf_members *members)
{
    gf_network network = GF_NETWORK_NONE;
    bool known = false;
    bool several = false;
    bool fit = true;
    if (members->link_due) return false;
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        const struct member *member = gf_members_of(members, rank);
        known = known || (member->said.node != 0);
        several = several || (member->said.node != gf_members_of(members, 0)->said.node);
    }
    if (!known) return true;
    if (several) network = network_of(members);
    for (uint32_t rank = 0; rank < members->setup.world; rank++)
        if (gf_members_of(members, rank)->said.network != network) fit = false;
    if (fit) return true;
    members->link_network = network;
    members->link_due = members->setup.offer.network != network;
    if (members->link_due && (network == GF_NETWORK_LINK)) sockets_tell(members);
    gf_members_at(members, 0)->said.network = network;
    for (uint32_t rank = 1; rank < members->setup.world; rank++) {
        /* from its next endpoint on */
        gf_members_at(members, rank)->said.network = network;
        gf_members_at(members, rank)->state = MEMBER_OFFERED;
        gf_members_at(members, rank)->said.endpoint_have = 0;
        gf_members_owe(members, rank, MEMBERS_LINK);
    }
    return false;
}

bool gf_members_link_take(struct gf_members *members, struct gf_get *get)
{
    uint32_t network = gf_get_u32(get);
    if (get->bad || (network > GF_NETWORK_FABRIC) || (members->state != MEMBERS_JOINING))
        return false;
    if ((network == GF_NETWORK_FABRIC) && (members->setup.offer.fabric != GF_FABRIC_FOUND))
        return false;
    members->link_network = network;
    members->link_due = network != members->setup.offer.network;
    if (!members->link_due) gf_members_endpoint_again(members);
    return true;
}

bool gf_members_link_due(const struct gf_members *members, uint32_t *network_out)
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
    members->setup.offer.network = members->link_network;
    members->link_due = false;
    if (members_coordinates(members))
        gf_members_join_full(members);
    else
        gf_members_endpoint_again(members);
}
