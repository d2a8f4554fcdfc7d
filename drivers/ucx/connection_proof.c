/* UCX's listen(), accept() and connect(), and the proof in front of each connection. Knows nothing of UCX but that it
 * calls these three: accept() on a thread of its own. */
#include "drivers/ucx/connection_proof.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC_BYTES 8u
static const char magic[MAGIC_BYTES + 1] = "GFUCXv1\n";
#define PROOF_FRAME_BYTES (MAGIC_BYTES + GF_AUTH_PROOF_BYTES)

/* Strangers turned away in one call of accept(): the thread that calls it keeps the worker locked. */
#define REFUSED_A_CALL 16u
#define DEFER_SECONDS 2       /* a connection that says nothing for so long is handed over, and refused */
#define CONNECT_WAIT_MS 5000  /* with UCX_TCP_CONN_NB: else the kernel waits */

/* Only in a program that was linked with --wrap. */
extern int __real_listen(int fd, int backlog) __attribute__((weak));
extern int __real_accept(int fd, struct sockaddr *address, socklen_t *bytes) __attribute__((weak));
extern int __real_connect(int fd, const struct sockaddr *address, socklen_t bytes) __attribute__((weak));

/* The links of this process whose workers live; a call names a descriptor and no link, so there is no other way. */
static struct gf_proofs *links;
static bool links_locked;
static _Thread_local struct gf_proofs *opening; /* whose worker this thread creates now */

static void lock(void)
{
    while (__atomic_test_and_set(&links_locked, __ATOMIC_ACQUIRE)) continue; /* held for some compares */
}

static void unlock(void)
{
    __atomic_clear(&links_locked, __ATOMIC_RELEASE);
}

/* ---- addresses and proofs ---- */

static bool place_of(const struct sockaddr_storage *address, struct gf_proof_place *place_out)
{
    *place_out = (struct gf_proof_place){0};
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        place_out->port = in->sin_port;
        memcpy(place_out->ip, &in->sin_addr, sizeof in->sin_addr);
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        place_out->port = in6->sin6_port;
        memcpy(place_out->ip, &in6->sin6_addr, sizeof in6->sin6_addr);
    } else {
        return false;
    }
    place_out->family = address->ss_family;
    return true;
}

static bool own_place(int fd, struct gf_proof_place *place_out)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    return (getsockname(fd, (struct sockaddr *)&address, &bytes) == 0) && place_of(&address, place_out);
}

static bool peer_place(int fd, struct gf_proof_place *place_out)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    return (getpeername(fd, (struct sockaddr *)&address, &bytes) == 0) && place_of(&address, place_out);
}

static bool places_equal(const struct gf_proof_place *a, const struct gf_proof_place *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void said_put(const unsigned char *secret, const struct gf_proof_place *listener,
                     const struct gf_proof_place *caller, unsigned char *said_out)
{
    memcpy(said_out, secret, GF_AUTH_NONCE_BYTES);
    memcpy(said_out + GF_AUTH_NONCE_BYTES, listener, sizeof *listener);
    memcpy(said_out + GF_AUTH_NONCE_BYTES + sizeof *listener, caller, sizeof *caller);
}
#define SAID_BYTES (GF_AUTH_NONCE_BYTES + 2 * sizeof(struct gf_proof_place))

/* ---- what a link does ---- */

gf_status gf_proofs_open(struct gf_proofs *proofs, const struct gf_link_setup *setup, const struct gf_log *log,
                         struct gf_proof_offer *peers, uint32_t peer_count, struct gf_fault *fault_out)
{
    memset(proofs, 0, sizeof *proofs);
    proofs->log = *log;
    proofs->peers = peers;
    proofs->peer_count = peer_count;
    proofs->keyed = (setup->key_file != NULL) && (setup->key_file[0] != '\0');
    if (setup->authentication == NULL) return GF_OK;
    if (proofs->keyed) return setup->authentication->open(&proofs->auth, setup->key_file, fault_out);
    return setup->authentication->open_keyless(&proofs->auth, fault_out);
}

void gf_proofs_close(struct gf_proofs *proofs)
{
    gf_auth_forget(&proofs->auth, sizeof proofs->auth);
}

void gf_proofs_begin(struct gf_proofs *proofs)
{
    memset(&proofs->own, 0, sizeof proofs->own);
    if (!proofs->auth.on) return;
    proofs->auth.module->nonce(proofs->own.secret);
    proofs->ended = false;
    proofs->refused = 0;
    lock();
    proofs->next = links;
    links = proofs;
    unlock();
    opening = proofs;
}

/* UCX opens more devices than it keeps. */
static bool listens_there(int fd, const struct gf_proof_place *place)
{
    struct gf_proof_place own;
    int listens = 0;
    socklen_t bytes = sizeof listens;
    return (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0) && (listens != 0) && own_place(fd, &own) &&
           places_equal(&own, place);
}

void gf_proofs_begun(struct gf_proofs *proofs)
{
    struct gf_proof_offer *own = &proofs->own;
    uint32_t kept = 0;
    if (!proofs->auth.on) return;
    GF_ASSERT(opening == proofs);
    opening = NULL;
    lock();
    for (uint32_t i = 0; i < own->listener_count; i++) {
        if (!listens_there(proofs->fds[i], &own->listeners[i])) continue;
        proofs->fds[kept] = proofs->fds[i];
        own->listeners[kept++] = own->listeners[i];
    }
    for (uint32_t i = kept; i < own->listener_count; i++) own->listeners[i] = (struct gf_proof_place){0};
    own->listener_count = kept;
    unlock();
}

void gf_proofs_end(struct gf_proofs *proofs)
{
    __atomic_store_n(&proofs->ended, true, __ATOMIC_RELEASE);
}

void gf_proofs_ended(struct gf_proofs *proofs)
{
    lock();
    for (struct gf_proofs **at = &links; *at != NULL; at = &(*at)->next) {
        if (*at != proofs) continue;
        *at = proofs->next;
        break;
    }
    if (proofs->peer_count > 0) memset(proofs->peers, 0, proofs->peer_count * sizeof *proofs->peers);
    memset(&proofs->own, 0, sizeof proofs->own);
    unlock();
}

void gf_proofs_peer(struct gf_proofs *proofs, uint32_t peer, const struct gf_proof_offer *offer)
{
    GF_ASSERT((peer < proofs->peer_count) && (offer->listener_count <= GF_PROOF_LISTENERS_MAX));
    lock();
    proofs->peers[peer] = *offer;
    unlock();
}

/* ---- listening ---- */

/* All or nothing: a listener that cannot be guarded is none, and UCX says why. One that fails is dropped in begun().
 * */
int __wrap_listen(int fd, int backlog)
{
    struct gf_proofs *proofs = opening;
    struct gf_proof_place place;
    const int seconds = DEFER_SECONDS;
    uint32_t i = 0;
    if ((proofs == NULL) || !own_place(fd, &place)) return __real_listen(fd, backlog);
    while ((i < proofs->own.listener_count) && (proofs->fds[i] != fd)) i++; /* closed by UCX and got again */
    if (i == GF_PROOF_LISTENERS_MAX) {
        errno = ENOBUFS; /* link.devices names too many */
        return -1;
    }
    if (setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds) != 0) return -1;
    lock();
    proofs->fds[i] = fd;
    proofs->own.listeners[i] = place;
    if (i == proofs->own.listener_count) proofs->own.listener_count++;
    unlock();
    return __real_listen(fd, backlog);
}

/* ---- accepting ---- */

static struct gf_proofs *listener_find(int fd)
{
    struct gf_proofs *found;
    lock();
    for (found = links; found != NULL; found = found->next) {
        uint32_t i = 0;
        while ((i < found->own.listener_count) && (found->fds[i] != fd)) i++;
        if (i < found->own.listener_count) break;
    }
    unlock();
    return found; /* stays while its worker does, and this is the worker's call */
}

static bool proof_read(const struct gf_proofs *proofs, int fd)
{
    unsigned char frame[PROOF_FRAME_BYTES], said[SAID_BYTES];
    struct gf_proof_place listener, caller;
    if (recv(fd, frame, sizeof frame, MSG_DONTWAIT) != (ssize_t)sizeof frame) return false;
    if (memcmp(frame, magic, MAGIC_BYTES) != 0) return false;
    if (!own_place(fd, &listener) || !peer_place(fd, &caller)) return false;
    said_put(proofs->own.secret, &listener, &caller, said);
    return proofs->auth.module->link_proof_fits(&proofs->auth, said, sizeof said, frame + MAGIC_BYTES);
}

/* A flood must not become a flood of log lines: the first four, then every power of two. */
static void refused_log(struct gf_proofs *proofs)
{
    uint32_t refused = ++proofs->refused;
    if ((refused > 4) && ((refused & (refused - 1)) != 0)) return;
    gf_log_line(&proofs->log, GF_LOG_WARN, "link: a connection to UCX's port did not prove that it is of this job, and was "
                "closed (%u so far)", refused);
}

int __wrap_accept(int fd, struct sockaddr *address, socklen_t *bytes)
{
    struct gf_proofs *proofs = listener_find(fd);
    const socklen_t room = (bytes != NULL) ? *bytes : 0;
    if (proofs == NULL) return __real_accept(fd, address, bytes);
    for (uint32_t i = 0; (i < REFUSED_A_CALL) && !__atomic_load_n(&proofs->ended, __ATOMIC_ACQUIRE); i++) {
        if (bytes != NULL) *bytes = room;
        int taken = __real_accept(fd, address, bytes);
        if (taken < 0) break;
        if (proof_read(proofs, taken)) return taken;
        (void)close(taken);
        refused_log(proofs);
    }
    /* Also for what accept() says of a connection that has gone, or of a lack of descriptors: UCX would close its
     * listener. */
    errno = EAGAIN;
    return -1;
}

/* ---- connecting ---- */

/* The secret of who listens there, and the job's key; false: not a rank. */
static bool listener_known(const struct gf_proof_place *place, unsigned char *secret_out, struct gf_auth *auth_out)
{
    bool found = false;
    lock();
    for (const struct gf_proofs *link = links; (link != NULL) && !found; link = link->next) {
        for (uint32_t p = 0; (p < link->peer_count) && !found; p++) {
            const struct gf_proof_offer *peer = &link->peers[p];
            for (uint32_t i = 0; (i < peer->listener_count) && !found; i++)
                found = places_equal(&peer->listeners[i], place);
            if (!found) continue;
            memcpy(secret_out, peer->secret, GF_AUTH_NONCE_BYTES);
            *auth_out = link->auth;
        }
    }
    unlock();
    return found;
}

/* UCX_TCP_CONN_NB and signals make connect() return before the connection stands; the proof comes first all the
 * same. */
static int connected_await(int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    int error = ETIMEDOUT, count;
    socklen_t bytes = sizeof error;
    while (((count = poll(&ready, 1, CONNECT_WAIT_MS)) < 0) && (errno == EINTR)) continue;
    if ((count == 1) && (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0) &&
        (error == 0)) return 0;
    errno = error;
    return -1;
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    unsigned char frame[PROOF_FRAME_BYTES], said[SAID_BYTES], secret[GF_AUTH_NONCE_BYTES];
    struct sockaddr_storage to = {0};
    struct gf_proof_place listener, caller;
    struct gf_auth auth;
    int connects;
    if ((address == NULL) || (bytes > sizeof to)) return __real_connect(fd, address, bytes);
    memcpy(&to, address, bytes);
    if (!place_of(&to, &listener) || !listener_known(&listener, secret, &auth))
        return __real_connect(fd, address, bytes);
    connects = __real_connect(fd, address, bytes);
    if ((connects < 0) && ((errno == EINPROGRESS) || (errno == EINTR))) connects = connected_await(fd);
    if ((connects == 0) && own_place(fd, &caller)) {
        memcpy(frame, magic, MAGIC_BYTES);
        said_put(secret, &listener, &caller, said);
        auth.module->link_prove(&auth, said, sizeof said, frame + MAGIC_BYTES);
        if (send(fd, frame, sizeof frame, MSG_NOSIGNAL) != (ssize_t)sizeof frame) connects = -1; /* closed */
    }
    gf_auth_forget(&auth, sizeof auth);
    gf_auth_forget(secret, sizeof secret);
    return connects;
}
