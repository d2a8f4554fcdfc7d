/* What keeps strangers out of UCX. A link begins with the node's memory alone, so that UCX listens
 * nowhere; only when the join has shown ranks of several nodes is the network opened. There UCX's
 * tcp takes proven connections alone (connection_proof.c); other networks are the operator's to
 * protect. */
#include "drivers/ucx/link_ucx.h"

#include "drivers/clock.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

gf_status gf_ucx_guard_network(struct gf_ucx *ucx, bool on)
{
    size_t name_bytes = 0;
    const char *fabric;
    ucx->link.network = on;
    fabric = gf_ucx_find(ucx->setup.transports, GF_UCX_FABRIC, &name_bytes);
    if (!on || !ucx->proofs.keyed || ucx->setup.trusted_fabric || (fabric == NULL)) return GF_OK;
    return gf_ucx_refuse(ucx, GF_ERR_CONFIG,
                         "transports \"%s\" with a key_file: over \"%.*s\" nobody proves the key; "
                         "if the fabric keeps "
                         "strangers out (P_Key, isolation), say so: link.trusted_fabric = true",
                         ucx->setup.transports, (int)name_bytes, fabric);
}

gf_status gf_ucx_guard_open(struct gf_ucx *ucx)
{
    const struct gf_link_setup *setup = &ucx->setup;
    gf_status status =
        gf_proofs_open(&ucx->proofs, setup, ucx->link.counts + setup->world, &ucx->link.fault);
    if (status != GF_OK) return status;
    if (setup->encryption && (!ucx->proofs.keyed || gf_ucx_any(setup->transports, GF_UCX_FABRIC)))
        return gf_ucx_refuse(
            ucx, GF_ERR_CONFIG,
            "link.encryption: it is tcp that is encrypted, with a rendezvous.key_file; found "
            "transports \"%s\", %s key_file",
            setup->transports, ucx->proofs.keyed ? "a" : "no");
    return GF_OK;
}

/* Without --wrap in the link of this program, or in an object that was opened by dlopen(), UCX's
 * calls went past us: nothing was seen to listen. */
#if GF_UCX_DYNAMIC
#define REMEDY                                                    \
    "UCX's libraries (UCX_DYNAMIC=1) do not find " GF_PROOF_CALLS \
    " in this program, but in libc: "                             \
    "link libgradientflow.a into the program itself, or keep the job on one node"
#else
#define REMEDY \
    "link this program as gradientflow.pc says (static UCX, -Wl,--wrap for " GF_PROOF_CALLS ")"
#endif
gf_status gf_ucx_guard_check(struct gf_ucx *ucx)
{
    if (!gf_ucx_any(ucx->setup.transports, GF_UCX_TCP) || (ucx->proofs.own.listener_count > 0))
        return GF_OK;
    if (!ucx->proofs.keyed) {
        gf_log_line(&ucx->setup.log, GF_LOG_WARN,
                    "link: UCX's tcp answers whoever connects: " REMEDY);
        return GF_OK;
    }
    return gf_ucx_refuse(ucx, GF_ERR_CONFIG,
                         "a key_file, and UCX's tcp would answer whoever connects: " REMEDY);
}

/* Connections that UCX has given up, or would if it knew. */
gf_status gf_ucx_guard_progress(struct gf_ucx *ucx)
{
    struct gf_fault fault = {.code = GF_OK};
    gf_status status = gf_proofs_progress(&ucx->proofs, gf_clock_monotonic.now_ns(NULL), &fault);
    if (status == GF_OK) return GF_OK;
    return gf_ucx_fault(ucx, status, fault.peer, fault.foreign_call, UCS_OK, "%.200s", fault.text);
}

/* Bytes of an offer with its listeners; without tcp there is none. */
static size_t offer_bytes(uint32_t listener_count)
{
    return offsetof(struct gf_proof_offer, listeners) + listener_count * sizeof(struct gf_place);
}

size_t gf_ucx_guard_put(const struct gf_ucx *ucx, unsigned char *out, size_t room)
{
    const struct gf_proof_offer *own = &ucx->proofs.own;
    size_t bytes = offer_bytes(own->listener_count);
    if (!gf_ucx_any(ucx->setup.transports, GF_UCX_TCP)) return 0;
    if (bytes <= room) memcpy(out, own, bytes);
    return bytes;
}

gf_status gf_ucx_guard_peer(struct gf_ucx *ucx, uint32_t peer, const unsigned char *offer,
                            size_t bytes)
{
    struct gf_proof_offer theirs = {0};
    bool guarded = ucx->proofs.own.listener_count > 0;
    if (bytes == 0) return GF_OK;
    if ((bytes >= offer_bytes(0)) && (bytes <= sizeof theirs)) memcpy(&theirs, offer, bytes);
    if ((theirs.listener_count > GF_PROOF_LISTENERS_MAX) ||
        (bytes != offer_bytes(theirs.listener_count)))
        return gf_ucx_fault(ucx, GF_ERR_DATA, peer, "connect", UCS_OK,
                            "rank %u says in %zu bytes where UCX listens there", peer, bytes);
    if (gf_ucx_any(ucx->setup.transports, GF_UCX_TCP) && (guarded != (theirs.listener_count > 0)))
        return gf_ucx_fault(ucx, GF_ERR_MISMATCH, peer, "connect", UCS_OK,
                            "rank %u checks who connects to UCX's tcp, rank %u does not: link all "
                            "programs as gradientflow.pc says",
                            guarded ? ucx->setup.rank : peer, guarded ? peer : ucx->setup.rank);
    gf_proofs_peer(&ucx->proofs, peer, &theirs);
    return GF_OK;
}
