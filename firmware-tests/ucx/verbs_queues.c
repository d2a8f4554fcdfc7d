/* The calls of libibverbs that are of completion queues and queue pairs. */
#include "firmware-tests/ucx/verbs_fabric.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- completion queues ---- */

struct ibv_comp_channel *CALL(create_comp_channel)(struct ibv_context *context)
{
    struct verbs_channel *channel = fabric_object(sizeof *channel);
    channel->channel = fabric_channel();
    channel->base.context = context;
    channel->base.fd = fabric_listen(channel->channel);
    if (channel->base.fd >= 0) return &channel->base;
    free(channel);
    return NULL;
}

int CALL(destroy_comp_channel)(struct ibv_comp_channel *channel)
{
    (void)close(channel->fd);
    free(channel);
    return 0;
}

/* The queues of this process, by their numbers. */
static struct ibv_cq *cqs[FABRIC_CQS];

struct ibv_cq *CALL(create_cq)(struct ibv_context *context, int entries, void *user,
                               struct ibv_comp_channel *channel, int vector)
{
    struct verbs_cq *cq = NULL;
    int number = -1;
    errno = EINVAL;
    if ((entries < 1) || ((uint32_t)entries > FABRIC_RING)) return NULL;
    fabric_enter();
    number = FABRIC_ENTRY(fabric->cqs, FABRIC_CQS);
    if (number > 0) {
        cq = fabric_object(sizeof *cq);
        cq->base = (struct ibv_cq){
            .context = context, .channel = channel, .cq_context = user, .cqe = entries};
        cq->shared = &fabric->cqs[number];
        cq->shared->entries = (uint32_t)entries;
        cq->shared->channel = (channel != NULL) ? ((struct verbs_channel *)channel)->channel : 0;
        cq->shared->armed = 0;
        cq->shared->head = cq->shared->tail = 0;
        cqs[number] = &cq->base;
    }
    fabric_leave();
    return (cq != NULL) ? &cq->base : NULL;
}

int CALL(destroy_cq)(struct ibv_cq *base)
{
    struct verbs_cq *cq = (struct verbs_cq *)base;
    if (cq->senders != NULL) return errno = EBUSY;
    fabric_enter();
    cqs[cq->shared - fabric->cqs] = NULL;
    cq->shared->pid = 0;
    fabric_leave();
    free(cq);
    return 0;
}

int CALL(get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq_out, void **user_out)
{
    uint32_t number;
    do {
        if (recv(channel->fd, &number, sizeof number, 0) != sizeof number) return -1;
    } while (cqs[number % FABRIC_CQS] == NULL);
    *cq_out = cqs[number % FABRIC_CQS];
    *user_out = (*cq_out)->cq_context;
    return 0;
}

void CALL(ack_cq_events)(struct ibv_cq *cq, unsigned count)
{
    cq->comp_events_completed += count;
}

/* ---- queue pairs ---- */

static int rq_take(uint32_t entries)
{
    int number = FABRIC_ENTRY(fabric->rqs, FABRIC_RQS);
    if (number < 0) return number;
    fabric->rqs[number].entries = (entries < FABRIC_RING) ? entries : FABRIC_RING;
    fabric->rqs[number].head = fabric->rqs[number].tail = 0;
    return number;
}

struct ibv_srq *CALL(create_srq)(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    struct verbs_srq *srq = NULL;
    int rq;
    fabric_enter();
    rq = rq_take(attr->attr.max_wr);
    fabric_leave();
    if (rq < 0) return NULL;
    srq = fabric_object(sizeof *srq);
    srq->base.context = pd->context;
    srq->base.pd = pd;
    srq->rq = (uint32_t)rq;
    return &srq->base;
}

int CALL(destroy_srq)(struct ibv_srq *srq)
{
    fabric->rqs[((struct verbs_srq *)srq)->rq].pid = 0;
    free(srq);
    return 0;
}

struct ibv_qp *CALL(create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct verbs_cq *send_cq = (struct verbs_cq *)attr->send_cq;
    struct verbs_qp *qp;
    int number;
    int rq;
    errno = EINVAL;
    if ((attr->cap.max_send_sge > FABRIC_SGES) || (attr->cap.max_inline_data > FABRIC_INLINE))
        return NULL;
    attr->cap.max_inline_data = FABRIC_INLINE;
    fabric_enter();
    number = FABRIC_ENTRY(fabric->qps, FABRIC_QPS);
    rq = (attr->srq != NULL) ? (int)((struct verbs_srq *)attr->srq)->rq
                             : rq_take(attr->cap.max_recv_wr);
    if ((number < 0) || (rq < 0)) fabric_die("the fabric's queue pairs are used up");
    qp = fabric_object(sizeof *qp);
    qp->base = (struct ibv_qp){.context = pd->context,
                               .qp_context = attr->qp_context,
                               .pd = pd,
                               .send_cq = attr->send_cq,
                               .recv_cq = attr->recv_cq,
                               .srq = attr->srq,
                               .qp_num = (uint32_t)number,
                               .qp_type = attr->qp_type};
    qp->cap = attr->cap;
    qp->signal_all = attr->sq_sig_all != 0;
    qp->waiting_max = attr->cap.max_send_wr;
    qp->waiting =
        (attr->qp_type == IBV_QPT_RC) ? fabric_object(qp->waiting_max * sizeof *qp->waiting) : NULL;
    qp->shared = &fabric->qps[number];
    *qp->shared = (struct fabric_qp){
        .pid = getpid(),
        .type = attr->qp_type,
        .host = fabric_host,
        .rq = (uint32_t)rq,
        .recv_cq = (uint32_t)(((struct verbs_cq *)attr->recv_cq)->shared - fabric->cqs)};
    qp->next = send_cq->senders;
    send_cq->senders = qp;
    fabric_leave();
    return &qp->base;
}

/* Takes out of a queue what is of one queue pair. */
static void cq_clean(struct fabric_cq *cq, uint32_t qp_num)
{
    uint64_t to = cq->head;
    for (uint64_t at = cq->head; at != cq->tail; at++)
        if (cq->ring[at % cq->entries].qp_num != qp_num)
            cq->ring[to++ % cq->entries] = cq->ring[at % cq->entries];
    cq->tail = to;
}

int CALL(destroy_qp)(struct ibv_qp *base)
{
    struct verbs_qp *qp = (struct verbs_qp *)base;
    struct verbs_qp **link = &((struct verbs_cq *)base->send_cq)->senders;
    fabric_enter();
    while (*link != qp) link = &(*link)->next;
    *link = qp->next;
    cq_clean(((struct verbs_cq *)base->send_cq)->shared, base->qp_num);
    cq_clean(((struct verbs_cq *)base->recv_cq)->shared, base->qp_num);
    if (base->srq == NULL) fabric->rqs[qp->shared->rq].pid = 0;
    qp->shared->pid = 0;
    fabric_leave();
    free(qp->waiting);
    free(qp);
    return 0;
}

/* What each state wants to be told, by the specification. */
static int wanted(enum ibv_qp_type type, enum ibv_qp_state state)
{
    bool rc = type == IBV_QPT_RC;
    if (state == IBV_QPS_INIT)
        return IBV_QP_PKEY_INDEX | IBV_QP_PORT | (rc ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY);
    if (state == IBV_QPS_RTR)
        return rc ? IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER
                  : 0;
    if (state == IBV_QPS_RTS)
        return IBV_QP_SQ_PSN |
               (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                   : 0);
    return 0;
}

int CALL(modify_qp)(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
    struct verbs_qp *qp = (struct verbs_qp *)base;
    int needs = wanted(base->qp_type, attr->qp_state);
    bool follows = (attr->qp_state == IBV_QPS_ERR) || (attr->qp_state == base->state + 1);
    if (!(mask & IBV_QP_STATE) || !follows || ((mask & needs) != needs)) return errno = EINVAL;
    fabric_enter();
    if (mask & IBV_QP_QKEY) qp->shared->qkey = attr->qkey;
    if (mask & IBV_QP_DEST_QPN) qp->shared->dest = qp->attr.dest_qp_num = attr->dest_qp_num;
    if (mask & IBV_QP_AV) qp->attr.ah_attr = attr->ah_attr;
    if (mask & IBV_QP_TIMEOUT) qp->attr.timeout = attr->timeout;
    if (mask & IBV_QP_RETRY_CNT) qp->attr.retry_cnt = attr->retry_cnt;
    base->state = attr->qp_state;
    if (attr->qp_state == IBV_QPS_ERR)
        verbs_qp_fail(qp, IBV_WC_WR_FLUSH_ERR);
    else
        qp->shared->state = attr->qp_state;
    fabric_leave();
    return 0;
}

int CALL(query_qp)(struct ibv_qp *base, struct ibv_qp_attr *attr_out, int mask,
                   struct ibv_qp_init_attr *init_out)
{
    struct verbs_qp *qp = (struct verbs_qp *)base;
    *attr_out = qp->attr;
    attr_out->qp_state = base->state;
    attr_out->cap = qp->cap;
    *init_out = (struct ibv_qp_init_attr){.send_cq = base->send_cq,
                                          .recv_cq = base->recv_cq,
                                          .srq = base->srq,
                                          .cap = qp->cap,
                                          .qp_type = base->qp_type};
    return 0;
}
