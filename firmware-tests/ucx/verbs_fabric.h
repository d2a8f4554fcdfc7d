/* A fabric without a card: InfiniBand verbs between processes of one host, so that UCX's rc_verbs
 * and ud_verbs run.
 *
 * What a channel adapter keeps lies in a file that all processes map (GF_VERBS names it; without it
 * there is no device): queue pairs, receive queues, completion queues, memory keys. A send takes
 * the receiver's next posted buffer, writes into it (process_vm_writev) and posts a completion, as
 * an adapter does; rdma reads and writes need nothing of the target's process. Every key is
 * checked. A completion queue that was armed wakes its sleeper through a socket.
 *
 * Not modelled: time and bandwidth, packets of rc (its messages arrive whole and in order), dc,
 * atomics, multicast, memory windows, mlx5's direct verbs, rdmacm. */
#ifndef GF_VERBS_FABRIC_H
#define GF_VERBS_FABRIC_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define FABRIC_KEYS 16384u /* a power of two */
#define FABRIC_CQS 128u
#define FABRIC_RQS 256u
#define FABRIC_QPS 256u
#define VERBS_FABRIC_HOSTS 16u
#define FABRIC_RING 8192u  /* entries of a queue, at most */
#define FABRIC_SGES 16u    /* of a send */
#define FABRIC_INLINE 256u /* bytes of a send that need no key */
#define FABRIC_GRH_BYTES 40u

/* pid 0: free. */
struct fabric_key {
    int32_t pid;
    uint32_t key, access;
    uint64_t start, bytes;
};
struct fabric_cq {
    int32_t pid;
    uint32_t entries, channel;
    uint32_t armed; /* 0: no; 1: for solicited ones; 2: for all */
    uint64_t head, tail;
    struct ibv_wc ring[FABRIC_RING];
};
struct fabric_buffer {
    uint64_t wr_id, start;
    uint32_t bytes, key;
};
struct fabric_rq {
    int32_t pid;
    uint32_t entries;
    uint64_t head, tail;
    struct fabric_buffer ring[FABRIC_RING];
};
struct fabric_qp {
    int32_t pid;
    uint32_t type, state, host, qkey, rq, recv_cq, dest;
};

struct fabric {
    uint64_t magic;
    pthread_mutex_t lock; /* of all of it; robust, as who holds it may be killed */
    uint32_t next_channel, next_key;
    uint32_t port_down[FABRIC_HOSTS];
    struct fabric_key keys[FABRIC_KEYS];
    struct fabric_qp qps[FABRIC_QPS];
    struct fabric_cq cqs[FABRIC_CQS];
    struct fabric_rq rqs[FABRIC_RQS];
};

/* This process's view. */
struct fabric_counts {
    uint64_t registrations, registered_bytes, sends, writes, reads, dropped, not_ready, failed;
};
extern struct fabric *fabric; /* NULL: there is no device */
extern struct fabric_counts fabric_counts;
extern uint32_t fabric_host; /* from 1 on: its LID */
extern bool fabric_ethernet; /* RoCE in place of InfiniBand */
extern int fabric_bell;      /* the socket that rings the others' */

bool fabric_take(void); /* false: there is no device */
void fabric_enter(void);
void fabric_leave(void);
uint64_t fabric_now_ns(void);
_Noreturn __attribute__((format(printf, 1, 2))) void fabric_die(const char *format, ...);

/* A socket that hears under this number; -1: errno says why. */
int fabric_listen(uint32_t channel);
void fabric_ring(uint32_t channel, const void *what, size_t bytes);

/* The first free entry of a table, taken for this process; -1 and errno: none is. The lock is
 * held. */
#define FABRIC_ENTRY(table, count) fabric_entry((table), sizeof((table)[0]), (count))
int fabric_entry(void *table, size_t entry_bytes, uint32_t count);
void *fabric_object(size_t bytes); /* zeroed */
uint32_t fabric_channel(void);     /* a new number */

/* The key's entry if it is of this process and covers the bytes with these rights; NULL: it does
 * not. */
const struct fabric_key *fabric_key_find(uint32_t key, int32_t pid, uint64_t start, uint64_t bytes,
                                         uint32_t access);
/* Posts a completion, and wakes whoever sleeps for it. The lock is held. */
void fabric_complete(struct fabric_cq *cq, const struct ibv_wc *wc, bool solicited);

/* Faults that this process brings about by itself:
 * GF_VERBS_FAULT=drop=N,port_down=N,port_up=MS,qp_error=N. */
struct fabric_faults {
    unsigned drop;      /* one datagram in N is lost */
    unsigned port_down; /* with send number N this host's port goes down .. */
    unsigned port_up;   /* .. for so many ms; 0: for good */
    unsigned qp_error;  /* send number N of rc ends its queue pair */
};
extern struct fabric_faults fabric_faults;

/* ---- objects of this process: what UCX holds, with what it does not see ---- */

struct verbs_open {
    struct ibv_context base;
    uint32_t channel; /* of its asynchronous events */
};
struct verbs_channel {
    struct ibv_comp_channel base;
    uint32_t channel;
};
struct verbs_cq {
    struct ibv_cq base;
    struct fabric_cq *shared;
    struct verbs_qp *senders; /* whose sends end here */
};
struct verbs_srq {
    struct ibv_srq base;
    uint32_t rq;
};
struct verbs_ah {
    struct ibv_ah base;
    struct ibv_ah_attr attr;
};
/* A send of rc that is not over: no buffer was posted, or nothing answers. */
struct verbs_waiting {
    struct ibv_send_wr wr;
    struct ibv_sge sges[FABRIC_SGES];
    unsigned char inlined[FABRIC_INLINE];
    uint64_t silent_ns; /* since when nothing answers; 0: it does */
};
struct verbs_qp {
    struct ibv_qp base;
    struct fabric_qp *shared;
    struct verbs_qp *next; /* of the same verbs_cq */
    struct ibv_qp_cap cap;
    struct ibv_qp_attr attr;
    bool signal_all;
    uint32_t waiting_head, waiting_tail, waiting_max;
    struct verbs_waiting *waiting;
};

/* A call of libibverbs, which a static link leads here by --wrap (verbs.mk). */
#define CALL(name) __wrap_ibv_##name

/* The fast calls, of a context's table. */
int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_out);
int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_out);
int verbs_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_out);
int verbs_poll_cq(struct ibv_cq *cq, int entries, struct ibv_wc *wc_out);
int verbs_notify(struct ibv_cq *cq, int solicited_only);
/* Ends what waits, and tells UCX. The lock is held. */
void verbs_qp_fail(struct verbs_qp *qp, enum ibv_wc_status status);
void verbs_event(struct ibv_context *context, struct ibv_async_event event);

#endif
