/* What moves data: sends, their waiting, receives, completions. */
#include "firmware-tests/ucx/verbs_fabric.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum outcome {
    DONE,
    NOT_READY /* no buffer is posted */,
    SILENT /* nothing answers */,
    REFUSED /* by the key */
};

/* ---- where a send comes from ---- */

/* iov_out[FABRIC_SGES]; the number of its entries, or -1: a key does not cover what is sent. */
static int source_of(const struct ibv_send_wr *wr, uint32_t access, struct iovec *iov_out,
                     size_t *bytes_out)
{
    *bytes_out = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        if (!(wr->send_flags & IBV_SEND_INLINE) && (sge->length > 0) &&
            (fabric_key_find(sge->lkey, getpid(), sge->addr, sge->length, access) == NULL))
            return -1;
        iov_out[i] = (struct iovec){(void *)(uintptr_t)sge->addr, sge->length};
        *bytes_out += sge->length;
    }
    return wr->num_sge;
}

static bool answers(int32_t pid)
{
    char byte;
    struct iovec own = {&byte, 1};
    struct iovec other = {NULL, 1};
    return (process_vm_readv(pid, &own, 1, &other, 1, 0) == 1) || (errno == EFAULT);
}

/* ---- the port ---- */

static bool ports_up(const struct fabric_qp *to)
{
    return !fabric->port_down[fabric_host] && !fabric->port_down[to->host];
}

/* Faults that come with this send, or end by themselves. */
static void faults_now(struct verbs_qp *qp, bool sends)
{
    static uint64_t down_ns;
    struct ibv_async_event event = {.element.port_num = 1, .event_type = IBV_EVENT_PORT_ERR};
    if (sends && (fabric_faults.port_down > 0) &&
        (fabric_counts.sends == fabric_faults.port_down) && (down_ns == 0)) {
        fabric->port_down[fabric_host] = 1;
        down_ns = fabric_now_ns();
        verbs_event(qp->base.context, event);
    }
    if ((fabric_faults.port_up > 0) && fabric->port_down[fabric_host] && (down_ns > 0) &&
        (fabric_now_ns() - down_ns > fabric_faults.port_up * UINT64_C(1000000))) {
        fabric->port_down[fabric_host] = 0;
        event.event_type = IBV_EVENT_PORT_ACTIVE;
        verbs_event(qp->base.context, event);
    }
    if (sends && (fabric_faults.qp_error > 0) && (qp->shared->type == IBV_QPT_RC) &&
        (fabric_counts.sends >= fabric_faults.qp_error) && (qp->shared->state == IBV_QPS_RTS)) {
        event = (struct ibv_async_event){.element.qp = &qp->base, .event_type = IBV_EVENT_QP_FATAL};
        fabric_faults.qp_error = 0;
        verbs_qp_fail(qp, IBV_WC_WR_FLUSH_ERR);
        verbs_event(qp->base.context, event);
    }
}

/* ---- a message ---- */

/* What a datagram has in front: the addresses, where they are global ones. */
static void head_write(unsigned char *head_out, const struct ibv_ah_attr *to)
{
    memset(head_out, 0, FABRIC_GRH_BYTES);
    head_out[0] = 0x60;
    head_out[6] = 0x1b;
    head_out[7] = to->grh.hop_limit;
    if (to->is_global) memcpy(head_out + 24, to->grh.dgid.raw, 16);
}

static enum outcome message_send(struct verbs_qp *qp, const struct ibv_send_wr *wr)
{
    bool datagram = qp->shared->type == IBV_QPT_UD;
    const struct verbs_ah *ah = datagram ? (const struct verbs_ah *)wr->wr.ud.ah : NULL;
    uint32_t number = datagram ? wr->wr.ud.remote_qpn : qp->shared->dest;
    struct fabric_qp *to = &fabric->qps[number % FABRIC_QPS];
    struct fabric_rq *rq = &fabric->rqs[to->rq];
    const struct fabric_buffer *buffer = &rq->ring[rq->head % FABRIC_RING];
    struct ibv_wc wc = {.status = IBV_WC_SUCCESS,
                        .opcode = IBV_WC_RECV,
                        .qp_num = number,
                        .src_qp = qp->base.qp_num};
    unsigned char head[FABRIC_GRH_BYTES];
    struct iovec from[FABRIC_SGES + 1];
    struct iovec into;
    size_t bytes;
    int parts = source_of(wr, 0, from + 1, &bytes);
    if (parts < 0) return REFUSED;
    if ((to->pid == 0) || (to->type != qp->shared->type) || !ports_up(to)) return SILENT;
    if ((to->state != IBV_QPS_RTR) && (to->state != IBV_QPS_RTS)) return SILENT;
    if (datagram && (wr->wr.ud.remote_qkey != to->qkey)) return SILENT;
    if (datagram && !fabric_ethernet && (ah->attr.dlid != to->host)) return SILENT;
    if (rq->head == rq->tail) return answers(to->pid) ? NOT_READY : SILENT;
    if (fabric_key_find(buffer->key, to->pid, buffer->start, buffer->bytes,
                        IBV_ACCESS_LOCAL_WRITE) == NULL) {
        /* UCX 1.13 frees these before the queue pair: a card loses what comes then */
        if (datagram) return SILENT;
        fabric_die("a posted buffer is not registered");
    }
    if (bytes + (datagram ? FABRIC_GRH_BYTES : 0) > buffer->bytes)
        fabric_die("%zu bytes for a buffer of %u", bytes, buffer->bytes);
    if (datagram) {
        head_write(head, &ah->attr);
        from[0] = (struct iovec){head, sizeof head};
        bytes += sizeof head;
        parts++;
        if (ah->attr.is_global) wc.wc_flags = IBV_WC_GRH;
    }
    into = (struct iovec){(void *)(uintptr_t)buffer->start, bytes};
    if (bytes > 0) {
        ssize_t written = process_vm_writev(to->pid, datagram ? from : from + 1,
                                            (unsigned long)parts, &into, 1, 0);
        if ((written < 0) && ((errno == ESRCH) || (datagram && (errno == EFAULT)))) return SILENT;
        if (written != (ssize_t)bytes)
            fabric_die("process_vm_writev: %zd of %zu: %m", written, bytes);
    }
    wc.wr_id = buffer->wr_id;
    wc.byte_len = (uint32_t)bytes;
    wc.slid = (uint16_t)fabric_host;
    rq->head++;
    fabric_complete(&fabric->cqs[to->recv_cq], &wc, (wr->send_flags & IBV_SEND_SOLICITED) != 0);
    return DONE;
}

/* The lock is given up for the copy, which may be long. */
static enum outcome memory_move(struct verbs_qp *qp, const struct ibv_send_wr *wr)
{
    bool reads = wr->opcode == IBV_WR_RDMA_READ;
    const struct fabric_qp *to = &fabric->qps[qp->shared->dest % FABRIC_QPS];
    int32_t pid = to->pid;
    struct iovec own[FABRIC_SGES];
    struct iovec other;
    size_t bytes;
    ssize_t moved;
    int parts = source_of(wr, reads ? IBV_ACCESS_LOCAL_WRITE : 0, own, &bytes);
    if (parts < 0) return REFUSED;
    if ((pid == 0) || (to->state == IBV_QPS_ERR) || !ports_up(to) || !answers(pid)) return SILENT;
    if (bytes == 0) return DONE;
    if (fabric_key_find(wr->wr.rdma.rkey, pid, wr->wr.rdma.remote_addr, bytes,
                        reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE) == NULL)
        return REFUSED;
    other = (struct iovec){(void *)(uintptr_t)wr->wr.rdma.remote_addr, bytes};
    fabric_leave();
    moved = (reads ? process_vm_readv : process_vm_writev)(pid, own, (unsigned long)parts, &other,
                                                           1, 0);
    fabric_enter();
    if ((moved < 0) && (errno == ESRCH)) return SILENT;
    if (moved != (ssize_t)bytes)
        fabric_die("process_vm_%s: %zd of %zu: %m", reads ? "readv" : "writev", moved, bytes);
    if (reads)
        fabric_counts.reads++;
    else
        fabric_counts.writes++;
    return DONE;
}

/* ---- how a send ends ---- */

static void send_ended(struct verbs_qp *qp, const struct ibv_send_wr *wr, enum ibv_wc_status status)
{
    static const enum ibv_wc_opcode opcodes[] = {[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
                                                 [IBV_WR_SEND] = IBV_WC_SEND,
                                                 [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ};
    struct ibv_wc wc = {.wr_id = wr->wr_id,
                        .status = status,
                        .opcode = opcodes[wr->opcode],
                        .qp_num = qp->base.qp_num};
    if (status != IBV_WC_SUCCESS) fabric_counts.failed++;
    if ((status != IBV_WC_SUCCESS) || qp->signal_all || (wr->send_flags & IBV_SEND_SIGNALED))
        fabric_complete(((struct verbs_cq *)qp->base.send_cq)->shared, &wc, false);
}

void verbs_qp_fail(struct verbs_qp *qp, enum ibv_wc_status status)
{
    struct ibv_async_event event = {.element.qp = &qp->base,
                                    .event_type = IBV_EVENT_QP_LAST_WQE_REACHED};
    if (qp->shared->state == IBV_QPS_ERR) return;
    qp->shared->state = IBV_QPS_ERR; /* the caller's copy changes by its own calls alone */
    for (; qp->waiting_head != qp->waiting_tail; qp->waiting_head++) {
        send_ended(qp, &qp->waiting[qp->waiting_head % qp->waiting_max].wr, status);
        status = IBV_WC_WR_FLUSH_ERR;
    }
    if (qp->base.srq != NULL) verbs_event(qp->base.context, event);
}

/* How long an adapter sends again before it gives up: 4.096 us times two to the timeout, for each
 * try. */
static uint64_t patience_ns(const struct verbs_qp *qp)
{
    return (UINT64_C(4096) << qp->attr.timeout) * (qp->attr.retry_cnt + UINT64_C(1));
}

static enum outcome send_try(struct verbs_qp *qp, const struct ibv_send_wr *wr)
{
    if (wr->opcode == IBV_WR_SEND) return message_send(qp, wr);
    if ((wr->opcode == IBV_WR_RDMA_READ) || (wr->opcode == IBV_WR_RDMA_WRITE))
        return memory_move(qp, wr);
    fabric_die("opcode %d of a send", (int)wr->opcode);
}

static void waiting_add(struct verbs_qp *qp, const struct ibv_send_wr *wr)
{
    struct verbs_waiting *entry = &qp->waiting[qp->waiting_tail % qp->waiting_max];
    size_t used = 0;
    if (qp->waiting_tail - qp->waiting_head == qp->waiting_max)
        fabric_die("a send queue of %u overflows", qp->waiting_max);
    entry->wr = *wr;
    entry->silent_ns = 0;
    entry->wr.sg_list = entry->sges;
    for (int i = 0; i < wr->num_sge; i++) {
        entry->sges[i] = wr->sg_list[i];
        if (!(wr->send_flags & IBV_SEND_INLINE)) continue;
        memcpy(entry->inlined + used, (const void *)(uintptr_t)wr->sg_list[i].addr,
               wr->sg_list[i].length);
        entry->sges[i].addr = (uintptr_t)(entry->inlined + used);
        used += wr->sg_list[i].length;
    }
    qp->waiting_tail++;
}

/* In order; what cannot go keeps back what was posted after it. */
static void waiting_go(struct verbs_qp *qp)
{
    if (qp->shared->type == IBV_QPT_RC) faults_now(qp, false);
    while (qp->waiting_head != qp->waiting_tail) {
        struct verbs_waiting *first = &qp->waiting[qp->waiting_head % qp->waiting_max];
        enum outcome outcome = send_try(qp, &first->wr);
        if (outcome == REFUSED) {
            verbs_qp_fail(qp, IBV_WC_REM_ACCESS_ERR);
            return;
        }
        if (outcome == NOT_READY) fabric_counts.not_ready++;
        if (outcome != SILENT)
            first->silent_ns = 0;
        else if (first->silent_ns == 0)
            first->silent_ns = fabric_now_ns();
        else if (fabric_now_ns() - first->silent_ns > patience_ns(qp))
            verbs_qp_fail(qp, IBV_WC_RETRY_EXC_ERR);
        if (outcome != DONE) return;
        send_ended(qp, &first->wr, IBV_WC_SUCCESS);
        qp->waiting_head++;
    }
}

/* Whatever happens to a datagram, its sender hears that it was sent. */
static void datagram_send(struct verbs_qp *qp, const struct ibv_send_wr *wr)
{
    bool lost = (fabric_faults.drop > 0) && (fabric_counts.sends % fabric_faults.drop == 0);
    enum outcome outcome = lost ? SILENT : message_send(qp, wr);
    if (outcome == REFUSED) fabric_die("a datagram is sent from memory that is not registered");
    if (outcome != DONE) fabric_counts.dropped++;
    send_ended(qp, wr, IBV_WC_SUCCESS);
}

int verbs_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad_out)
{
    struct verbs_qp *qp = (struct verbs_qp *)base;
    int error = 0;
    fabric_enter();
    for (; (wr != NULL) && (error == 0); wr = wr->next) {
        fabric_counts.sends++;
        faults_now(qp, true);
        if ((wr->num_sge < 0) || ((uint32_t)wr->num_sge > qp->cap.max_send_sge))
            error = EINVAL;
        else if (qp->shared->state == IBV_QPS_ERR)
            send_ended(qp, wr, IBV_WC_WR_FLUSH_ERR);
        else if (qp->shared->state != IBV_QPS_RTS)
            error = EINVAL;
        else if (qp->shared->type == IBV_QPT_UD)
            datagram_send(qp, wr);
        else {
            waiting_add(qp, wr);
            waiting_go(qp);
        }
        if (error != 0) *bad_out = wr;
    }
    fabric_leave();
    errno = error;
    return error;
}

/* ---- receives and completions ---- */

static int receives_add(struct fabric_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_out)
{
    fabric_enter();
    for (; (wr != NULL) && (wr->num_sge == 1) && (rq->tail - rq->head < rq->entries);
         wr = wr->next) {
        const struct ibv_sge *sge = &wr->sg_list[0];
        rq->ring[rq->tail % FABRIC_RING] = (struct fabric_buffer){
            .wr_id = wr->wr_id, .start = sge->addr, .bytes = sge->length, .key = sge->lkey};
        rq->tail++;
    }
    fabric_leave();
    *bad_out = wr;
    errno = (wr == NULL) ? 0 : ENOMEM;
    return errno;
}

int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_out)
{
    return receives_add(&fabric->rqs[((struct verbs_qp *)qp)->shared->rq], wr, bad_out);
}

int verbs_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_out)
{
    return receives_add(&fabric->rqs[((struct verbs_srq *)srq)->rq], wr, bad_out);
}

static bool waiting_all_go(struct verbs_cq *cq)
{
    bool waits = false;
    for (struct verbs_qp *qp = cq->senders; qp != NULL; qp = qp->next) {
        if (qp->waiting_head == qp->waiting_tail) continue;
        waiting_go(qp);
        waits = waits || (qp->waiting_head != qp->waiting_tail);
    }
    return waits;
}

int verbs_poll_cq(struct ibv_cq *base, int entries, struct ibv_wc *wc_out)
{
    struct verbs_cq *cq = (struct verbs_cq *)base;
    int count = 0;
    if ((cq->senders == NULL) &&
        (__atomic_load_n(&cq->shared->tail, __ATOMIC_ACQUIRE) == cq->shared->head))
        return 0;
    fabric_enter();
    (void)waiting_all_go(cq);
    for (; (count < entries) && (cq->shared->head != cq->shared->tail); count++)
        wc_out[count] = cq->shared->ring[cq->shared->head++ % cq->shared->entries];
    fabric_leave();
    return count;
}

/* As adapters do: what lies there already, or waits to be sent, wakes at once. */
int verbs_notify(struct ibv_cq *base, int solicited_only)
{
    struct verbs_cq *cq = (struct verbs_cq *)base;
    uint32_t number = (uint32_t)(cq->shared - fabric->cqs);
    fabric_enter();
    if (waiting_all_go(cq) || (cq->shared->head != cq->shared->tail))
        fabric_ring(cq->shared->channel, &number, sizeof number);
    else
        cq->shared->armed = solicited_only ? 1 : 2;
    fabric_leave();
    return 0;
}
