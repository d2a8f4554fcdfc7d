/* Reaching peers over UCX: endpoint addresses and connecting.
 *
 * An endpoint address is the head below, followed by UCX's worker address. UCX trusts what it is
 * given, so the head carries a checksum, the generation, the rank whose address it is, and UCX's
 * version (its addresses are not portable between releases). The checksum finds damage, not
 * malice: the control channel authenticates the frames that carry endpoint addresses. */
#include "drivers/ucx/link_ucx.h"

#include "drivers/base/fnv.h"

#include <string.h>

#define ENDPOINT_MAGIC \
    0x55434647u /* "GFCU"; a host of the other byte order reads something else \
                                    */
#define ENDPOINT_VERSION 4u

struct endpoint_head {
    uint32_t magic;
    uint32_t version;
    uint32_t ucx_version;
    uint32_t rank;
    uint32_t generation;
    uint32_t address_bytes;
    uint64_t check; /* of all before, then of what follows */
};
_Static_assert(sizeof(struct endpoint_head) == 32, "no padding");

static uint32_t ucx_version(void)
{
    unsigned major = 0, minor = 0, release = 0;
    ucp_get_version(&major, &minor, &release);
    return (major << 16) | (minor & 0xffffu);
}

static uint64_t endpoint_check(const struct endpoint_head *head, const unsigned char *rest,
                               size_t rest_bytes)
{
    uint64_t check = gf_fnv_bytes(GF_FNV_START, head, offsetof(struct endpoint_head, check));
    return gf_fnv_bytes(check, rest, rest_bytes);
}

/* ---- endpoint addresses ---- */

gf_status gf_ucx_endpoint(struct gf_link *link, void *endpoint_out, size_t *size_bytes_out)
{
    struct gf_ucx *ucx = gf_ucx_of(link);
    struct endpoint_head head = {.magic = ENDPOINT_MAGIC,
                                 .version = ENDPOINT_VERSION,
                                 .ucx_version = ucx_version(),
                                 .rank = ucx->setup.rank,
                                 .generation = ucx->setup.generation};
    unsigned char *rest = (unsigned char *)endpoint_out + sizeof head;
    ucp_address_t *address = NULL;
    size_t address_bytes = 0;
    ucs_status_t ucs;
    if (!ucx->is_open) return GF_ERR_STATE;
    ucs = ucp_worker_get_address(ucx->worker, &address, &address_bytes);
    if (ucs != UCS_OK)
        return gf_ucx_fault(ucx, GF_ERR_LINK, GF_RANK_NONE, "ucp_worker_get_address", ucs,
                            "no address of our own");
    if (sizeof head + address_bytes > GF_UCX_ENDPOINT_BYTES_MAX) {
        ucp_worker_release_address(ucx->worker, address);
        return gf_ucx_fault(
            ucx, GF_ERR_LINK, GF_RANK_NONE, "endpoint", UCS_OK,
            "an address is %zu bytes, at most %zu: name fewer transports or devices", address_bytes,
            GF_UCX_ENDPOINT_BYTES_MAX - sizeof head);
    }
    memcpy(rest, address, address_bytes);
    ucp_worker_release_address(ucx->worker, address);
    head.address_bytes = (uint32_t)address_bytes;
    head.check = endpoint_check(&head, rest, address_bytes);
    memcpy(endpoint_out, &head, sizeof head);
    *size_bytes_out = sizeof head + address_bytes;
    return GF_OK;
}

static gf_status endpoint_read(struct gf_ucx *ucx, uint32_t peer, const unsigned char *endpoint,
                               size_t size_bytes, struct endpoint_head *head_out)
{
    struct endpoint_head head;
    const char *wrong = NULL;
    if ((size_bytes < sizeof head) || (size_bytes > GF_UCX_ENDPOINT_BYTES_MAX))
        return gf_ucx_fault(ucx, GF_ERR_DATA, peer, "connect", UCS_OK,
                            "the endpoint of rank %u has %zu bytes, want %zu-%u", peer, size_bytes,
                            sizeof head, GF_UCX_ENDPOINT_BYTES_MAX);
    memcpy(&head, endpoint, sizeof head);
    if ((head.magic == ENDPOINT_MAGIC) &&
        ((head.version != ENDPOINT_VERSION) || (head.ucx_version != ucx_version())))
        return gf_ucx_fault(
            ucx, GF_ERR_MISMATCH, peer, "connect", UCS_OK,
            "rank %u has endpoint version %u and UCX %u.%u, rank %u has %u and %u.%u", peer,
            head.version, head.ucx_version >> 16, head.ucx_version & 0xffffu, ucx->setup.rank,
            ENDPOINT_VERSION, ucx_version() >> 16, ucx_version() & 0xffffu);
    if (head.magic != ENDPOINT_MAGIC)
        wrong = "is none of this link, or of another byte order";
    else if (head.check != endpoint_check(&head, endpoint + sizeof head, size_bytes - sizeof head))
        wrong = "is damaged (its checksum does not match)";
    else if (sizeof head + (size_t)head.address_bytes != size_bytes)
        wrong = "contradicts its size";
    if (wrong != NULL)
        return gf_ucx_fault(ucx, GF_ERR_DATA, peer, "connect", UCS_OK, "the endpoint of rank %u %s",
                            peer, wrong);
    if ((head.rank != peer) || (head.generation != ucx->setup.generation))
        return gf_ucx_fault(
            ucx, GF_ERR_MISMATCH, peer, "connect", UCS_OK,
            "the endpoint of rank %u, generation %u was given as that of rank %u, generation %u",
            head.rank, head.generation, peer, ucx->setup.generation);
    *head_out = head;
    return GF_OK;
}

/* ---- peers ---- */

#define WAY_LOST "rank %u no longer answers rank %u over devices \"%s\""

/* An adapter, or UCX for it, retransmits until its retries are used up (8 s over rc); then what it
 * had taken is lost. Without a handler UCX ends the process over ud, and over rc a lost message is
 * awaited until the deadline. */
static void endpoint_lost(void *user, ucp_ep_h endpoint, ucs_status_t status)
{
    struct gf_ucx *ucx = user;
    uint32_t peer = 0;
    while ((peer < ucx->setup.world) && (ucx->endpoints[peer] != endpoint)) peer++;
    if (ucx->ending || (peer == ucx->setup.world)) return;
    if (ucx->lost_count < GF_UCX_LOST_MAX) {
        ucx->lost[ucx->lost_count].peer = peer;
        ucx->lost[ucx->lost_count++].status = status;
    }
    ucx->link.failed = gf_ucx_fault(ucx, GF_ERR_LINK, peer, "progress", status, WAY_LOST, peer,
                                    ucx->setup.rank, ucx->devices);
}

/* Over tcp UCX has no handler here, and over shared memory nothing is ever lost. */
bool gf_ucx_edge_is_broken(struct gf_link *link, uint32_t peer, struct gf_fault *fault_out)
{
    struct gf_ucx *ucx = gf_ucx_of(link);
    fault_out->code = GF_OK;
    for (uint32_t i = 0; i < ucx->lost_count; i++) {
        if (ucx->lost[i].peer != peer) continue;
        (void)gf_fault_set(fault_out, GF_ERR_LINK, peer, "progress", ucx->lost[i].status,
                           WAY_LOST " (%s)", peer, ucx->setup.rank, ucx->devices,
                           ucs_status_string(ucx->lost[i].status));
        return true;
    }
    return false;
}

/* By the network. */
static gf_status network_connect(struct gf_ucx *ucx, uint32_t peer, const unsigned char *address)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                              .address = (const ucp_address_t *)address,
                              .err_handler = {.cb = endpoint_lost, .arg = ucx}};
    const char *transports = ucx->setup.transports;
    ucs_status_t ucs;
    if (gf_ucx_any(transports, GF_UCX_FABRIC)) params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
    ucs = ucp_ep_create(ucx->worker, &params, &ucx->endpoints[peer]);
    if (ucs == UCS_OK) return GF_OK;
    ucx->endpoints[peer] = NULL;
    return gf_ucx_fault(
        ucx, GF_ERR_LINK, peer, "ucp_ep_create", ucs,
        "no way to rank %u by transports \"%s\" on devices \"%s\"%s", peer, transports,
        ucx->devices,
        (gf_ucx_any(transports, GF_UCX_FABRIC) && !gf_ucx_any(transports, GF_UCX_UD))
            ? "; rc and dc connect over ud: name it too, or rc in place of rc_verbs"
            : "");
}

gf_status gf_ucx_connect(struct gf_link *link, uint32_t peer, const void *endpoint,
                         size_t size_bytes)
{
    struct gf_ucx *ucx = gf_ucx_of(link);
    struct endpoint_head head = {0};
    gf_status status;
    if (peer >= ucx->setup.world)
        return gf_ucx_fault(ucx, GF_ERR_PARAM, GF_RANK_NONE, "connect", UCS_OK,
                            "rank %u in a world of %u", peer, ucx->setup.world);
    if (peer == ucx->setup.rank) return GF_OK;
    if (!ucx->is_open)
        return gf_ucx_fault(ucx, GF_ERR_STATE, peer, "connect", UCS_OK, "rank %u: a reset failed",
                            peer);
    if (ucx->endpoints[peer] != NULL) return GF_OK;
    status = endpoint_read(ucx, peer, endpoint, size_bytes, &head);
    if (status != GF_OK) return status;
    return network_connect(ucx, peer, (const unsigned char *)endpoint + sizeof head);
}

void gf_ucx_peers_forget(struct gf_ucx *ucx)
{
    memset(ucx->endpoints, 0, ucx->setup.ranks_max * sizeof ucx->endpoints[0]);
}
