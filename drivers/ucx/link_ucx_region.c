/* The exchange region and the way to peers.
 *
 * A region is memory that UCX takes from posix shared memory, so that a peer on the node gets it as
 * a plain pointer from ucp_rkey_ptr(). Whether it can is found out, not assumed: after each region
 * lies a canary, a number that its endpoint address names too, and a mapping counts only where the
 * canary is seen through it. A mapping outlives its owner's death; it ends with the peer's reset()
 * or close(). So a region stays for another epoch only where all who may still write there are of
 * it.
 *
 * An endpoint address is the head below, UCX's worker address, and the region's packed key. UCX
 * trusts what it is given, so the head carries a checksum, the epoch, the rank it is of, and UCX's
 * version (its addresses are not portable between releases). The checksum finds damage, not malice:
 * the control channel authenticates the frames that carry endpoint addresses. */
#include "drivers/ucx/link_ucx.h"

#include "drivers/clock.h"
#include "drivers/fnv.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ENDPOINT_MAGIC 0x55434647u /* "GFCU"; a host of the other byte order reads something else */
#define ENDPOINT_VERSION 2u
#define CANARY_ALIGN_BYTES 64u

struct endpoint_head {
    uint32_t magic;
    uint32_t version;
    uint32_t ucx_version;
    uint32_t rank;
    uint32_t epoch;
    uint32_t address_bytes;
    uint32_t rkey_bytes;  /* 0: no region */
    uint32_t offer_bytes; /* link_ucx_guard.c; 0: UCX does not listen */
    uint64_t region;      /* address in its owner */
    uint64_t region_bytes;
    uint64_t canary;
    uint64_t check; /* of all before, then address, key and offer */
};
_Static_assert(sizeof(struct endpoint_head) == 64, "no padding");

static uint32_t ucx_version(void)
{
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    ucp_get_version(&major, &minor, &release);
    return (major << 16) | (minor & 0xffffu);
}

static size_t canary_offset(size_t region_bytes)
{
    return (region_bytes + CANARY_ALIGN_BYTES - 1) / CANARY_ALIGN_BYTES * CANARY_ALIGN_BYTES;
}

/* ---- the region ---- */

/* Differs between regions that could be mistaken for each other: owner, epoch, time. */
static uint64_t canary_new(const struct gf_ucx *ucx)
{
    const uint64_t parts[] = {gf_clock_monotonic.now_ns(NULL), (uint64_t)getpid(), ucx->setup.rank,
                              ucx->setup.epoch, (uint64_t)(uintptr_t)ucx->link.region};
    return gf_fnv_bytes(GF_FNV_START, parts, sizeof parts);
}

static void region_mark(struct gf_ucx *ucx)
{
    struct gf_ucx_peer *own = &ucx->peers[ucx->setup.rank];
    own->mapped = ucx->link.region;
    own->region_bytes = ucx->setup.region_bytes;
    ucx->canary = canary_new(ucx);
    memcpy(ucx->link.region + canary_offset(ucx->setup.region_bytes), &ucx->canary,
           sizeof ucx->canary);
}

gf_status gf_ucx_region_take(struct gf_ucx *ucx)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
        .flags = UCP_MEM_MAP_ALLOCATE,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    ucp_mem_attr_t attributes = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    char text[120];
    ucs_status_t ucs;
    if (ucx->setup.region_bytes == 0) return GF_OK;
    if (ucx->memory != NULL) { /* it stays */
        memset(ucx->link.region, 0, ucx->mapped_bytes);
        region_mark(ucx);
        return GF_OK;
    }
    params.length = ucx->mapped_bytes;
    ucs = ucp_mem_map(ucx->context, &params, &ucx->memory);
    if (ucs != UCS_OK) {
        ucx->memory = NULL;
        if (gf_ucx_shm_check(ucx) != GF_OK) return GF_ERR_SYSTEM;
        return gf_ucx_fault(ucx, GF_ERR_SYSTEM, GF_RANK_NONE, "ucp_mem_map", ucs,
                            "no exchange region of %zu bytes over \"%s\"%s", ucx->mapped_bytes,
                            ucx->transports, gf_ucx_shm_text(ucx, text, sizeof text));
    }
    ucs = ucp_mem_query(ucx->memory, &attributes);
    if (ucs != UCS_OK)
        return gf_ucx_fault(ucx, GF_ERR_SYSTEM, GF_RANK_NONE, "ucp_mem_query", ucs,
                            "where is the exchange region?");
    ucx->link.region = attributes.address;
    if (!gf_ucx_any(ucx->transports, GF_UCX_SHARED)) ucx->link.private_bytes = ucx->mapped_bytes;
    /* Heeded where /sys/kernel/mm/transparent_hugepage/shmem_enabled (posix) or ../enabled
     * (elsewhere) is "advise". */
    if (ucx->setup.huge_pages) (void)madvise(ucx->link.region, ucx->mapped_bytes, MADV_HUGEPAGE);
    /* first touched by its owner: its NUMA node, no faults later */
    memset(ucx->link.region, 0, ucx->mapped_bytes);
    if (ucx->setup.huge_pages)
        gf_log_line(&ucx->setup.log, GF_LOG_INFO,
                    "link: huge pages were asked for, the exchange region has %s",
                    gf_ucx_pages_text(ucx->link.region, text, sizeof text));
    region_mark(ucx);
    return GF_OK;
}

void gf_ucx_region_give(struct gf_ucx *ucx)
{
    if (ucx->memory == NULL) return;
    (void)ucp_mem_unmap(ucx->context, ucx->memory);
    ucx->memory = NULL;
    ucx->link.region = NULL;
    ucx->peers[ucx->setup.rank] = (struct gf_ucx_peer){.endpoint = NULL};
}

/* ---- endpoint addresses ---- */

gf_status gf_ucx_endpoint(struct gf_link *link, void *endpoint_out, size_t *size_bytes_out)
{
    struct gf_ucx *ucx = gf_ucx_of(link);
    struct endpoint_head head = {.magic = ENDPOINT_MAGIC,
                                 .version = ENDPOINT_VERSION,
                                 .ucx_version = ucx_version(),
                                 .rank = ucx->setup.rank,
                                 .epoch = ucx->setup.epoch,
                                 .region = (uintptr_t)ucx->link.region,
                                 .region_bytes = ucx->setup.region_bytes,
                                 .canary = ucx->canary};
    unsigned char *endpoint = endpoint_out;
    ucp_address_t *address = NULL;
    void *rkey = NULL;
    size_t address_bytes = 0;
    size_t rkey_bytes = 0;
    size_t size_bytes;
    size_t offer_bytes = gf_ucx_guard_put(ucx, NULL, 0);
    ucs_status_t ucs;
    if (ucx->worker == NULL) return GF_ERR_STATE;
    ucs = ucp_worker_get_address(ucx->worker, &address, &address_bytes);
    if (ucs != UCS_OK)
        return gf_ucx_fault(ucx, GF_ERR_LINK, GF_RANK_NONE, "ucp_worker_get_address", ucs,
                            "no address of our own");
    if (ucx->memory != NULL) ucs = ucp_rkey_pack(ucx->context, ucx->memory, &rkey, &rkey_bytes);
    size_bytes = sizeof head + address_bytes + rkey_bytes + offer_bytes;
    if (ucs != UCS_OK) {
        (void)gf_ucx_fault(ucx, GF_ERR_LINK, GF_RANK_NONE, "ucp_rkey_pack", ucs,
                           "the exchange region has no key");
    } else if (size_bytes > GF_UCX_ENDPOINT_BYTES_MAX) {
        (void)gf_ucx_fault(
            ucx, GF_ERR_LINK, GF_RANK_NONE, "endpoint", UCS_OK,
            "address and key are %zu bytes, at most %u: name fewer transports or devices",
            size_bytes, GF_UCX_ENDPOINT_BYTES_MAX);
        ucs = UCS_ERR_EXCEEDS_LIMIT;
    } else {
        head.address_bytes = (uint32_t)address_bytes;
        head.rkey_bytes = (uint32_t)rkey_bytes;
        head.offer_bytes = (uint32_t)offer_bytes;
        memcpy(endpoint + sizeof head, address, address_bytes);
        if (rkey_bytes != 0) memcpy(endpoint + sizeof head + address_bytes, rkey, rkey_bytes);
        (void)gf_ucx_guard_put(ucx, endpoint + sizeof head + address_bytes + rkey_bytes,
                               offer_bytes);
        head.check = gf_fnv_bytes(GF_FNV_START, &head, offsetof(struct endpoint_head, check));
        head.check = gf_fnv_bytes(head.check, endpoint + sizeof head, size_bytes - sizeof head);
        memcpy(endpoint, &head, sizeof head);
        *size_bytes_out = size_bytes;
    }
    if (rkey != NULL) ucp_rkey_buffer_release(rkey);
    ucp_worker_release_address(ucx->worker, address);
    return (ucs == UCS_OK) ? GF_OK : GF_ERR_LINK;
}

static gf_status endpoint_read(struct gf_ucx *ucx, uint32_t peer, const unsigned char *endpoint,
                               size_t size_bytes, struct endpoint_head *head_out)
{
    struct endpoint_head head;
    uint64_t check;
    const char *wrong = NULL;
    if ((size_bytes < sizeof head) || (size_bytes > GF_UCX_ENDPOINT_BYTES_MAX))
        return gf_ucx_fault(ucx, GF_ERR_DATA, peer, "connect", UCS_OK,
                            "the endpoint of rank %u has %zu bytes, want %zu-%u", peer, size_bytes,
                            sizeof head, GF_UCX_ENDPOINT_BYTES_MAX);
    memcpy(&head, endpoint, sizeof head);
    check = gf_fnv_bytes(GF_FNV_START, &head, offsetof(struct endpoint_head, check));
    check = gf_fnv_bytes(check, endpoint + sizeof head, size_bytes - sizeof head);
    if ((head.magic == ENDPOINT_MAGIC) &&
        ((head.version != ENDPOINT_VERSION) || (head.ucx_version != ucx_version())))
        return gf_ucx_fault(
            ucx, GF_ERR_MISMATCH, peer, "connect", UCS_OK,
            "rank %u has endpoint version %u and UCX %u.%u, rank %u has %u and %u.%u", peer,
            head.version, head.ucx_version >> 16, head.ucx_version & 0xffffu, ucx->setup.rank,
            ENDPOINT_VERSION, ucx_version() >> 16, ucx_version() & 0xffffu);
    if (head.magic != ENDPOINT_MAGIC)
        wrong = "is none of this link, or of another byte order";
    else if (head.check != check)
        wrong = "is damaged (its checksum does not match)";
    else if (head.address_bytes == 0)
        wrong = "has no address";
    else if (sizeof head + (size_t)head.address_bytes + head.rkey_bytes + head.offer_bytes !=
             size_bytes)
        wrong = "contradicts its size";
    if (wrong != NULL)
        return gf_ucx_fault(ucx, GF_ERR_DATA, peer, "connect", UCS_OK, "the endpoint of rank %u %s",
                            peer, wrong);
    if ((head.rank != peer) || (head.epoch != ucx->setup.epoch))
        return gf_ucx_fault(
            ucx, GF_ERR_MISMATCH, peer, "connect", UCS_OK,
            "the endpoint of rank %u, epoch %u was given as that of rank %u, epoch %u", head.rank,
            head.epoch, peer, ucx->setup.epoch);
    *head_out = head;
    return GF_OK;
}

/* ---- peers ---- */

/* A peer whose memory cannot be reached is valid: mapped stays NULL. */
static void peer_map(struct gf_ucx *ucx, uint32_t rank, const struct endpoint_head *head,
                     const void *key)
{
    struct gf_ucx_peer *peer = &ucx->peers[rank];
    void *mapped = NULL;
    uint64_t canary = 0;
    if (ucp_ep_rkey_unpack(peer->endpoint, key, &peer->rkey) != UCS_OK) {
        peer->rkey = NULL;
        return;
    }
    if (ucp_rkey_ptr(peer->rkey, head->region, &mapped) != UCS_OK) return;
    memcpy(&canary, (const unsigned char *)mapped + canary_offset(head->region_bytes),
           sizeof canary);
    if (canary != head->canary) {
        gf_log_line(&ucx->setup.log, GF_LOG_WARN,
                    "link: UCX maps something else than the region of rank %u; not used", rank);
        return;
    }
    peer->mapped = mapped;
    peer->region_bytes = head->region_bytes;
}

/* An adapter, or UCX for it, sends again until its retries are used up (8 s over rc), and what it
 * had taken is lost. Where nobody hears of that, UCX ends the process over ud, and over rc a lost
 * message is waited for until the deadline. */
static void way_lost(void *user, ucp_ep_h endpoint, ucs_status_t status)
{
    struct gf_ucx *ucx = user;
    uint32_t peer = 0;
    while ((peer < ucx->setup.world) && (ucx->peers[peer].endpoint != endpoint)) peer++;
    if (ucx->ending || (peer == ucx->setup.world)) return;
    ucx->broken = gf_ucx_fault(ucx, GF_ERR_LINK, peer, "progress", status,
                               "rank %u no longer answers rank %u over devices \"%s\"", peer,
                               ucx->setup.rank, ucx->devices);
}

gf_status gf_ucx_connect(struct gf_link *link, uint32_t peer, const void *endpoint,
                         size_t size_bytes)
{
    struct gf_ucx *ucx = gf_ucx_of(link);
    const unsigned char *address = (const unsigned char *)endpoint + sizeof(struct endpoint_head);
    struct endpoint_head head = {0};
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    gf_status status;
    ucs_status_t ucs;
    if (peer >= ucx->setup.world)
        return gf_ucx_fault(ucx, GF_ERR_PARAM, GF_RANK_NONE, "connect", UCS_OK,
                            "rank %u in a world of %u", peer, ucx->setup.world);
    if (peer == ucx->setup.rank) return GF_OK;
    if ((ucx->worker == NULL) || (ucx->peers[peer].endpoint != NULL))
        return gf_ucx_fault(ucx, GF_ERR_STATE, peer, "connect", UCS_OK,
                            "rank %u is connected already, or a reset failed", peer);
    status = endpoint_read(ucx, peer, endpoint, size_bytes, &head);
    if (status == GF_OK)
        status = gf_ucx_guard_peer(ucx, peer, address + head.address_bytes + head.rkey_bytes,
                                   head.offer_bytes);
    if (status != GF_OK) return status;
    params.address = (const ucp_address_t *)address;
    if (gf_ucx_any(ucx->transports, GF_UCX_FABRIC))
        params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_handler = (ucp_err_handler_t){.cb = way_lost, .arg = ucx};
    ucs = ucp_ep_create(ucx->worker, &params, &ucx->peers[peer].endpoint);
    if (ucs != UCS_OK) {
        ucx->peers[peer].endpoint = NULL;
        return gf_ucx_fault(
            ucx, GF_ERR_LINK, peer, "ucp_ep_create", ucs,
            "no way to rank %u by transports \"%s\" on devices \"%s\"%s", peer, ucx->transports,
            ucx->devices,
            (ucs == UCS_ERR_SHMEM_SEGMENT)
                ? "; it is of this node, but its /proc/PID/fd is closed to "
                  "this process (capabilities, user namespace, hidepid?)"
            : (gf_ucx_any(ucx->transports, GF_UCX_FABRIC) &&
               !gf_ucx_any(ucx->transports, GF_UCX_UD))
                ? "; rc and dc connect over ud: name it too, or rc in place of rc_verbs"
                : "");
    }
    if (head.rkey_bytes != 0) peer_map(ucx, peer, &head, address + head.address_bytes);
    return GF_OK;
}

void gf_ucx_peers_forget(struct gf_ucx *ucx)
{
    for (uint32_t i = 0; i < ucx->setup.world; i++) {
        if (i == ucx->setup.rank) continue;
        if (ucx->peers[i].rkey != NULL) ucp_rkey_destroy(ucx->peers[i].rkey);
        memset(&ucx->peers[i], 0, sizeof ucx->peers[i]);
    }
}

void *gf_ucx_map(struct gf_link *link, uint32_t peer)
{
    const struct gf_ucx *ucx = gf_ucx_of(link);
    return (peer < ucx->setup.world) ? ucx->peers[peer].mapped : NULL;
}

void gf_ucx_flag_store(struct gf_link *link, uint32_t peer, size_t offset_bytes, uint64_t value)
{
    const struct gf_ucx *ucx = gf_ucx_of(link);
    const struct gf_ucx_peer *to = &ucx->peers[peer];
    GF_ASSERT((peer < ucx->setup.world) && (offset_bytes % sizeof value == 0) &&
              (offset_bytes < to->region_bytes));
    __atomic_store_n((uint64_t *)(void *)((unsigned char *)to->mapped + offset_bytes), value,
                     __ATOMIC_RELEASE);
}
