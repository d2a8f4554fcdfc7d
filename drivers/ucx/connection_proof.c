/* Where UCX listens, with which secret, and who is taken in there. Knows nothing of UCX but that it
 * calls listen() and accept(), the latter on a thread of its own. Connections: connection.c. */
#include "drivers/ucx/connection_record.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>

/* Strangers rejected in one call of accept(): the thread that calls it keeps the worker locked. */
#define REFUSED_A_CALL 16u
#define DEFER_SECONDS 2 /* a connection that says nothing for so long is handed over, and refused */

/* The links of this process whose workers live; a call names a descriptor and no link, so there is
 * no other way. */
static struct gf_proofs *links;
static bool links_locked;
static bool links_orphaned;                     /* some were open when this process was forked */
static _Thread_local struct gf_proofs *opening; /* whose worker this thread creates now */

/* A child has no link of its parent's, and not the thread that had locked them. */
static void forked(void)
{
    links_orphaned = links_orphaned || (links != NULL);
    links = NULL;
    links_locked = false;
}

bool gf_proofs_orphaned(void)
{
    return links_orphaned;
}

void gf_proofs_lock(void)
{
    /* held for microseconds */
    while (__atomic_test_and_set(&links_locked, __ATOMIC_ACQUIRE)) (void)sched_yield();
}

void gf_proofs_unlock(void)
{
    __atomic_clear(&links_locked, __ATOMIC_RELEASE);
}

static bool places_equal(const struct gf_place *a, const struct gf_place *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* ---- what a link does ---- */

size_t gf_proofs_bytes(const struct gf_link_setup *setup)
{
    return setup->world * (sizeof(struct gf_proof_offer) + sizeof(struct gf_conn *)) + 2 * 64 +
           setup->world * GF_PROOF_CONNS_A_PEER *
               (sizeof(struct gf_conn) + sizeof(struct gf_conn *) +
                (setup->encryption ? sizeof(struct gf_record) : 0));
}

static void *aligned(void *at)
{
    return (void *)(((uintptr_t)at + 63) & ~(uintptr_t)63);
}

gf_status gf_proofs_open(struct gf_proofs *proofs, const struct gf_link_setup *setup, void *memory,
                         struct gf_fault *fault_out)
{
    memset(proofs, 0, sizeof *proofs);
    proofs->log = setup->log;
    proofs->rank = setup->rank;
    proofs->peers = memory;
    proofs->peer_count = setup->world;
    proofs->conns = aligned(&proofs->peers[setup->world]);
    proofs->conn_count = setup->world * GF_PROOF_CONNS_A_PEER;
    proofs->by_fd = (struct gf_conn **)&proofs->conns[proofs->conn_count];
    proofs->from = &proofs->by_fd[proofs->conn_count];
    proofs->awaits = GF_RANK_NONE;
    if (setup->encryption) proofs->records = aligned(&proofs->from[setup->world]);
    proofs->keyed = (setup->key_file != NULL) && (setup->key_file[0] != '\0');
    if (proofs->keyed) return gf_auth_open(&proofs->auth, setup->key_file, fault_out);
    return gf_auth_open_keyless(&proofs->auth, fault_out);
}

void gf_proofs_close(struct gf_proofs *proofs)
{
    gf_auth_forget(&proofs->auth, sizeof proofs->auth);
}

void gf_proofs_begin(struct gf_proofs *proofs)
{
    static bool watches;
    if (!watches) watches = pthread_atfork(NULL, NULL, forked) == 0;
    memset(&proofs->own, 0, sizeof proofs->own);
    gf_auth_nonce(proofs->own.secret);
    proofs->ended = false;
    proofs->refused = 0;
    gf_proofs_lock();
    proofs->next = links;
    links = proofs;
    gf_proofs_unlock();
    opening = proofs;
}

/* UCX opens more devices than it keeps. */
static bool listens_there(int fd, const struct gf_place *place)
{
    struct gf_place own;
    return gf_fd_listens(fd) && gf_place_of_fd(fd, false, &own) && places_equal(&own, place);
}

void gf_proofs_begun(struct gf_proofs *proofs)
{
    struct gf_proof_offer *own = &proofs->own;
    uint32_t kept = 0;
    GF_ASSERT(opening == proofs);
    opening = NULL;
    gf_proofs_lock();
    for (uint32_t i = 0; i < own->listener_count; i++) {
        if (!listens_there(proofs->fds[i], &own->listeners[i])) continue;
        proofs->fds[kept] = proofs->fds[i];
        own->listeners[kept++] = own->listeners[i];
    }
    for (uint32_t i = kept; i < own->listener_count; i++) own->listeners[i] = (struct gf_place){0};
    own->listener_count = kept;
    gf_proofs_unlock();
}

void gf_proofs_end(struct gf_proofs *proofs)
{
    __atomic_store_n(&proofs->ended, true, __ATOMIC_RELEASE);
}

void gf_proofs_ended(struct gf_proofs *proofs)
{
    gf_conns_forget(proofs);
    gf_proofs_lock();
    for (struct gf_proofs **at = &links; *at != NULL; at = &(*at)->next) {
        if (*at != proofs) continue;
        *at = proofs->next;
        break;
    }
    if (proofs->peer_count > 0)
        memset(proofs->peers, 0, proofs->peer_count * sizeof *proofs->peers);
    memset(&proofs->own, 0, sizeof proofs->own);
    gf_proofs_unlock();
}

void gf_proofs_peer(struct gf_proofs *proofs, uint32_t peer, const struct gf_proof_offer *offer)
{
    GF_ASSERT((peer < proofs->peer_count) && (offer->listener_count <= GF_PROOF_LISTENERS_MAX));
    gf_proofs_lock();
    proofs->peers[peer] = *offer;
    gf_proofs_unlock();
}

/* ---- listening ---- */

/* All or nothing: a listener that cannot be guarded is none, and UCX says why. One that fails is
 * dropped in begun(). A program that was linked with some of the calls alone is one that guards
 * nothing. */
int gf_conn_listen(int fd, int backlog)
{
    struct gf_proofs *proofs = opening;
    struct gf_place place;
    const int seconds = DEFER_SECONDS;
    uint32_t i = 0;
    if ((proofs == NULL) || !gf_place_of_fd(fd, false, &place) || !gf_conn_calls_are_ours())
        return __real_listen(fd, backlog);
    /* closed by UCX and got again */
    while ((i < proofs->own.listener_count) && (proofs->fds[i] != fd)) i++;
    if (i == GF_PROOF_LISTENERS_MAX) {
        errno = ENOBUFS; /* link.devices names too many */
        return -1;
    }
    if (setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds) != 0) return -1;
    gf_proofs_lock();
    proofs->fds[i] = fd;
    proofs->own.listeners[i] = place;
    if (i == proofs->own.listener_count) proofs->own.listener_count++;
    gf_proofs_unlock();
    return __real_listen(fd, backlog);
}

/* ---- accepting ---- */

static struct gf_proofs *listener_find(int fd)
{
    struct gf_proofs *found;
    gf_proofs_lock();
    for (found = links; found != NULL; found = found->next) {
        uint32_t i = 0;
        while ((i < found->own.listener_count) && (found->fds[i] != fd)) i++;
        if (i < found->own.listener_count) break;
    }
    gf_proofs_unlock();
    return found; /* stays while its worker does, and this is the worker's call */
}

int gf_conn_accept(int fd, struct sockaddr *address, socklen_t *bytes)
{
    struct gf_proofs *proofs = listener_find(fd);
    const socklen_t room = (bytes != NULL) ? *bytes : 0;
    if (proofs == NULL) return __real_accept(fd, address, bytes);
    for (uint32_t i = 0; (i < REFUSED_A_CALL) && !__atomic_load_n(&proofs->ended, __ATOMIC_ACQUIRE);
         i++) {
        if (bytes != NULL) *bytes = room;
        int taken = __real_accept(fd, address, bytes);
        if (taken < 0) {
            if (((errno == EMFILE) || (errno == ENFILE)) && gf_log_due(++proofs->refused))
                gf_log_line(&proofs->log, GF_LOG_ERROR, "link: accept: no file descriptor left");
            break;
        }
        /* UCX may close one of two connections that cross before its hello: that is no stranger */
        char byte;
        ssize_t said = __real_recv(taken, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (gf_conn_greet(proofs, taken)) return taken;
        (void)__real_close(taken);
        if ((said != 0) && gf_log_due(++proofs->refused))
            gf_log_line(&proofs->log, GF_LOG_WARN,
                        "link: a connection to UCX's port did not prove that it is of this job, "
                        "and was closed (%u so far)",
                        proofs->refused);
    }
    /* Also for what accept() says of a connection that has gone, or of a lack of descriptors: UCX
     * would close its listener. */
    errno = EAGAIN;
    return -1;
}

/* ---- connections ---- */

struct gf_conn *gf_conn_of(int fd)
{
    struct gf_conn *conn = NULL;
    gf_proofs_lock();
    for (struct gf_proofs *link = links; (link != NULL) && (conn == NULL); link = link->next)
        conn = gf_conn_find(link, fd);
    gf_proofs_unlock();
    return conn;
}

int gf_conn_epoll_ctl(int set, int op, int fd, struct epoll_event *event)
{
    struct gf_conn *conn = gf_conn_of(fd);
    bool removed = (op == EPOLL_CTL_DEL);
    if ((conn != NULL) && !removed) conn->watched = event->data.ptr;
    if (conn != NULL) conn->set = (!removed && ((event->events & EPOLLIN) != 0)) ? set : 0;
    return __real_epoll_ctl(set, op, fd, event);
}

/* One of whose bytes UCX can be told without asking epoll, or NULL. */
static struct gf_conn *unasked(int set)
{
    struct gf_conn *found = NULL;
    gf_proofs_lock();
    for (struct gf_proofs *link = links; link != NULL; link = link->next) {
        /* of another link: a thread's own */
        struct gf_conn *conn = __atomic_load_n(&link->ahead, __ATOMIC_RELAXED);
        uint32_t peer = __atomic_load_n(&link->awaits, __ATOMIC_RELAXED);
        if ((conn == NULL) && (peer != GF_RANK_NONE)) conn = link->from[peer];
        if ((conn == NULL) || (conn->set != set) || (conn->state != GF_CONN_OPEN)) continue;
        if (link->unasked++ < GF_PROOF_UNASKED_MAX)
            found = conn;
        else
            link->unasked = 0;
    }
    gf_proofs_unlock();
    return found;
}

static bool read_ahead(struct gf_conn *conn)
{
    struct gf_proofs *link = conn->of;
    if (link->ahead == conn) return true;
    ssize_t got = gf_conn_read(conn, link->ahead_bytes, sizeof link->ahead_bytes, MSG_DONTWAIT);
    if (got <= 0) return false;
    /* UCX reads the rest in one piece. */
    if (got == (ssize_t)sizeof link->ahead_bytes) link->from[conn->peer] = NULL;
    link->ahead = conn;
    link->ahead_at = 0;
    link->ahead_end = (uint32_t)got;
    return true;
}

/* What is awaited is read without asking whether it is there, which takes less; and what comes from
 * others before its turn stays where it is: a second message that is read before this rank's next
 * send makes the kernel acknowledge both by a segment of its own, as dear as a send. UCX hears of
 * bytes that have been read, and of nothing else. Where the peer is writing a message into its
 * memory UCX believes what it hears (1.13 crashed; 1.18 and 1.23 have the same lines): when there
 * is nothing to read after all it forgets where it was, and reads through NULL the next time. So of
 * a connection that has ended it hears what it may still send, and nothing to read. */
int gf_conn_epoll_wait(int set, struct epoll_event *events, int count, int timeout)
{
    struct gf_conn *conn = ((timeout == 0) && (set > 0)) ? unasked(set) : NULL;
    int ready;
    int kept = 0;
    if ((conn != NULL) && read_ahead(conn)) {
        events[0] = (struct epoll_event){.events = EPOLLIN, .data.ptr = conn->watched};
        return 1;
    }
    if ((conn != NULL) && (conn->state == GF_CONN_OPEN)) return 0;
    ready = __real_epoll_wait(set, events, count, timeout);
    if (ready <= 0) return ready;
    gf_proofs_lock();
    for (int i = 0; i < ready; i++) {
        struct epoll_event event = events[i];
        for (struct gf_proofs *link = links; (link != NULL) && (event.data.ptr != NULL);
             link = link->next)
            for (uint32_t c = 0; link->silent && (c < link->conn_count); c++)
                if ((link->conns[c].state == GF_CONN_ENDED) &&
                    (link->conns[c].watched == event.data.ptr))
                    event.events &= EPOLLOUT;
        if (event.events != 0) events[kept++] = event;
    }
    gf_proofs_unlock();
    return kept;
}

struct gf_conn *gf_conn_to(const struct gf_place *place, int fd, bool *known_out)
{
    struct gf_conn *conn = NULL;
    *known_out = false;
    gf_proofs_lock();
    for (struct gf_proofs *link = links; (link != NULL) && !*known_out; link = link->next) {
        for (uint32_t p = 0; (p < link->peer_count) && !*known_out; p++) {
            const struct gf_proof_offer *peer = &link->peers[p];
            for (uint32_t i = 0; (i < peer->listener_count) && !*known_out; i++)
                *known_out = places_equal(&peer->listeners[i], place);
            if (!*known_out || ((conn = gf_conn_take(link, fd)) == NULL)) continue;
            conn->peer = p;
            memcpy(conn->secret, peer->secret, sizeof conn->secret);
        }
    }
    gf_proofs_unlock();
    return conn;
}
