/* Which ranks are of this node, and how a rank gets the memory of a peer. Each rank has one
 * datagram socket with an abstract name that the kernel chooses; the name is in no file system, and
 * ends with its process. A rank sends PULL to the socket that a peer's offer names. The peer
 * answers with the descriptor of its memory (GIVE), or refuses (REFUSE). Device memory is requested
 * in the same manner, once the two ranks have mapped each other.
 *
 * The kernel passes the sender's user with each datagram. That is needed, because any process of
 * this host may write into the socket. A rank answers a PULL only if the sender is of the same user
 * and has the nonce of the offer, which travels over the control channel. It uses an answer only if
 * that has its own nonce, and if the memory holds the canary of the offer.
 *
 * Both ends of a pair come to the same decision. A rank that has mapped the other says so in that
 * memory (node_meet.mapped), and the pair is up once both have done this. A rank that refuses says
 * so in its own memory, which the other may have mapped, and in its answer to a PULL.
 *
 *     UNKNOWN -> PULLS -> MAPPED -> UP        any -> REFUSED
 *
 * A rank has one question under way at a time, so it has one descriptor open at a time. It
 * repeats a question after a while, because a full socket, or too many descriptors in flight,
 * can lose it. */
#include "drivers/host/node_state.h"
#include "drivers/base/descriptors.h"

#include "drivers/base/fnv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define OFFER_MAGIC 0x4e464721u /* "!GFN"; a host of the other byte order reads something else */
#define OFFER_VERSION 1u
#define ASK_NS UINT64_C(10000000)
#define WORDS_A_POLL 16u
#define SLEEPS_A_LOOK 16u
#define FREE_LOOKS 5u /* a millisecond apart: less than other memory takes */
#define NAME_AT offsetof(struct sockaddr_un, sun_path)

/* ---- this host ---- */

static bool file_hash(const char *path, uint64_t *hash)
{
    char text[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = (fd < 0) ? -1 : read(fd, text, sizeof text);
    if (fd >= 0) (void)close(fd);
    if (bytes <= 0) return false;
    *hash = gf_fnv_bytes(*hash, text, (size_t)bytes);
    return true;
}

static bool space_hash(const char *path, uint64_t *hash)
{
    struct stat at;
    if (stat(path, &at) != 0) return false;
    *hash = gf_fnv_u64(*hash, at.st_ino);
    return true;
}

/* Waits until the kernel has gathered entropy; a signal ends the wait. */
static bool random_take(void *out, size_t bytes)
{
    ssize_t got;
    do got = getrandom(out, bytes, 0);
    while ((got < 0) && (errno == EINTR));
    return got == (ssize_t)bytes;
}

/* Abstract names are the network namespace's, users those of a user namespace. */
void gf_node_host_id_set(struct gf_node *node)
{
    uint64_t hash = GF_FNV_START;
    char text[16] = "";
    int fd = open("/proc/sys/kernel/overflowuid", O_RDONLY | O_CLOEXEC);
    if (!random_take(&node->alone, sizeof node->alone)) node->alone = (uint64_t)getpid();
    node->alone |= 1;
    node->host = 0;
    node->overflow_user = 65534;
    if ((fd >= 0) && (read(fd, text, sizeof text - 1) > 0))
        (void)sscanf(text, "%u", &node->overflow_user);
    if (fd >= 0) (void)close(fd);
    if (!file_hash("/proc/sys/kernel/random/boot_id", &hash) ||
        !space_hash("/proc/self/ns/net", &hash) || !space_hash("/proc/self/ns/user", &hash))
        return;
    node->host = gf_fnv_u64(hash, geteuid()) | 1;
}

/* ---- the socket ---- */

bool gf_node_socket_open(struct gf_node *node, const char **why_out)
{
    const int on = 1;
    node->socket_fd =
        gf_descriptor_keep(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if ((node->socket_fd < 0) ||
        (setsockopt(node->socket_fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) ||
        !gf_carried_bind(node->socket_fd, node->name)) {
        *why_out = "it has no unix socket";
        gf_node_socket_close(node);
        return false;
    }
    if (!random_take(node->nonce, sizeof node->nonce) ||
        !random_take(&node->canary, sizeof node->canary)) {
        *why_out = "getrandom() gives it no random numbers";
        gf_node_socket_close(node);
        return false;
    }
    if (geteuid() == node->overflow_user) {
        *why_out = "its user is the one that stands for all users of other namespaces";
        gf_node_socket_close(node);
        return false;
    }
    return true;
}

void gf_node_socket_close(struct gf_node *node)
{
    int fd = node->socket_fd;
    node->socket_fd = -1; /* first: a child that is forked meanwhile closes what is here */
    if (fd >= 0) (void)close(fd);
}

/* errno, or 0 */
static int datagram_send(const struct gf_node *node, const char name[NODE_NAME_BYTES],
                         const struct node_datagram *datagram, int fd)
{
    struct gf_carried message = {.bytes = (void *)(uintptr_t)datagram,
                                 .size_bytes = sizeof *datagram,
                                 .descriptor = fd,
                                 .says_user = true};
    memcpy(message.name, name, sizeof message.name);
    return gf_carried_send(node->socket_fd, &message);
}

/* -1: errno has why */
static int descriptor_pass(int from, int to, int fd)
{
    char byte = 0;
    struct gf_carried out = {.bytes = &byte, .size_bytes = 1, .descriptor = fd};
    struct gf_carried in = {.bytes = &byte, .size_bytes = 1, .descriptor = -1};
    errno = gf_carried_send(from, &out);
    if (errno != 0) return -1;
    errno = EPERM; /* of a host that drops it on the way */
    return gf_carried_receive(to, &in) ? in.descriptor : -1;
}

/* Tries at open whether memory can be passed. A refusal that shows only when peers connect would
 * end the join of ranks that have no network open, so this rank must know before it announces that
 * it shares memory. It also checks that there is room for the memory of all peers
 * (node_identity()). */
bool gf_node_passes_memory(const struct gf_node *node, const char **why_out)
{
    int ends[2];
    int fd = -1;
    unsigned char *memory = NULL;
    bool passes;
    if (node->memory_fd < 0) return true; /* there is none */
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0)
        return true; /* no descriptor is left for this */
    fd = descriptor_pass(ends[0], ends[1], node->memory_fd);
    passes = (fd >= 0) || (errno == EMFILE) || (errno == ENFILE);
    if (!passes) *why_out = "descriptors cannot be passed from process to process here";
    if (fd >= 0) {
        memory = gf_node_fd_map(fd, node->memory_bytes);
        passes = (memory != NULL);
        if (!passes && (errno == ENOMEM))
            *why_out =
                "memory of another rank cannot be mapped: Cannot allocate memory (ulimit -v?)";
        else if (!passes)
            *why_out = "memory of another rank cannot be mapped";
        gf_node_memory_unmap(node, memory, node->memory_bytes);
        (void)close(fd);
    }
    (void)close(ends[0]);
    (void)close(ends[1]);
    return passes;
}

/* One byte wakes a rank; it is no message, and its sender does not matter. */
void gf_node_wake(struct gf_node *node, const struct node_pair *pair)
{
    uint32_t *sleeps = &node_head_of(pair->memory, &pair->plan)->sleeps;
    struct sockaddr_un to;
    unsigned to_bytes;
    if (__atomic_load_n(sleeps, __ATOMIC_RELAXED) == 0) return;
    if (__atomic_exchange_n(sleeps, 0, __ATOMIC_RELAXED) == 0) return;
    to_bytes = gf_carried_address(pair->name, &to);
    (void)sendto(node->socket_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to,
                 to_bytes); /* full: then it is awake */
}

/* Has the peer's process ended? Its kernel closes the socket after it has unmapped the memory.
 * Another process may have the name by now; then the peer counts as alive. The connect() binds this
 * socket to one peer, so it receives nothing from others any more. */
static bool has_ended(const struct gf_node *node, const struct node_pair *pair)
{
    struct sockaddr_un to;
    unsigned to_bytes;
    if (pair->name[1] == '\0') return false; /* not known */
    to_bytes = gf_carried_address(pair->name, &to);
    return (connect(node->socket_fd, (struct sockaddr *)&to, to_bytes) != 0) &&
           (errno == ECONNREFUSED);
}

/* Has every peer that was given this memory ended, or said that it is done? A peer says so with its
 * last store. Each such peer has a pair. */
static bool all_done(const struct gf_node *node)
{
    for (uint32_t slot = 0; slot < node->pair_count; slot++) {
        const struct node_meet *meet = node_meet_of(node->memory, &node->plan, slot);
        if ((__atomic_load_n(&meet->mapped, __ATOMIC_ACQUIRE) != NODE_MAPPED_DONE) &&
            !has_ended(node, &node->pairs[slot]))
            return false;
    }
    return true;
}

/* Other connections of a process that ends may close some time before this one, where cores are
 * scarce. */
bool gf_node_memory_is_free(const struct gf_node *node)
{
    uint32_t looks = FREE_LOOKS;
    while (!all_done(node)) {
        if (--looks == 0) return false;
        (void)poll(NULL, 0, 1);
    }
    return true;
}

/* ---- how a pair is decided ---- */

/* knows: the peer will not ask, because it has refused or has ended. */
static void refuse(struct gf_node *node, uint32_t peer, bool knows, const char *why)
{
    struct node_pair *pair = node_pair_of(node, peer);
    if (node->peers[peer].state == NODE_PEER_REFUSED) return;
    node->peers[peer].state = NODE_PEER_REFUSED;
    if (knows) node->peers[peer].answered = true;
    if (node->pulls == peer) node->pulls = GF_RANK_NONE;
    if (!node->peers[peer].answered) node->unanswered++;
    if (pair != NULL) {
        uint32_t slot = (uint32_t)(pair - node->pairs);
        __atomic_store_n(&node_meet_of(node->memory, &node->plan, slot)->refused, 1,
                         __ATOMIC_RELEASE);
        gf_node_memory_unmap(node, pair->memory, pair->memory_bytes);
        pair->memory = NULL; /* it was not up, so nobody was given it */
    }
    gf_log_line(&node->log, GF_LOG_WARN,
                "link: rank %u and rank %u of one node share no memory: %s", node->rank, peer, why);
}

static void peer_answered(struct gf_node *node, uint32_t peer)
{
    if (!node->peers[peer].answered && (node->peers[peer].state == NODE_PEER_REFUSED))
        node->unanswered--;
    node->peers[peer].answered = true;
}

static struct node_datagram refusal_of(const struct gf_node *node,
                                       const struct node_datagram *datagram)
{
    struct node_datagram answer = {.kind = NODE_DATAGRAM_REFUSE,
                                   .of = datagram->of,
                                   .from = node->rank,
                                   .generation = node->generation};
    memcpy(answer.nonce, datagram->answer, sizeof answer.nonce);
    return answer;
}

/* A peer asks for this rank's memory. */
static void asked(struct gf_node *node, const struct node_datagram *datagram, const char *name)
{
    struct node_datagram answer = refusal_of(node, datagram);
    uint32_t peer = datagram->from;
    struct node_pair *pair;
    if (node->peers[peer].state != NODE_PEER_REFUSED) {
        pair = gf_node_pair_take(node, peer);
        if (pair != NULL) {
            answer.kind = NODE_DATAGRAM_GIVE;
            answer.slot = (uint32_t)(pair - node->pairs);
        } else {
            refuse(node, peer, false, "there are too many ranks");
        }
    }
    if (datagram_send(node, name, &answer,
                      (answer.kind == NODE_DATAGRAM_GIVE) ? node->memory_fd : -1) == 0)
        peer_answered(node, peer);
}

/* The peer that was asked has answered; fd, if any, is the caller's to close. */
static void answered(struct gf_node *node, const struct node_datagram *datagram, int fd)
{
    const struct node_offer *offer = &node->pulled;
    uint32_t peer = node->pulls;
    struct node_pair *pair = gf_node_pair_take(node, peer);
    const char *why = "it refuses";
    unsigned char *memory = NULL;
    node->pulls = GF_RANK_NONE;
    if (pair == NULL)
        why = "there are too many ranks";
    else if ((datagram->kind == NODE_DATAGRAM_GIVE) && (datagram->slot >= node->plan.slots))
        why = "its answer is damaged";
    else if ((datagram->kind == NODE_DATAGRAM_GIVE) && (fd >= 0))
        memory = gf_node_memory_map(node, (uint32_t)(pair - node->pairs), offer, fd, &why);
    if (memory == NULL) {
        refuse(node, peer, datagram->kind == NODE_DATAGRAM_REFUSE, why);
        return;
    }
    pair->memory = memory;
    pair->memory_bytes = offer->memory_bytes;
    node->peers[peer].region_bytes = offer->region_bytes;
    pair->plan = gf_node_plan_of(offer->region_bytes, offer->slots, offer->entries);
    pair->slot = datagram->slot;
    memcpy(pair->name, offer->name, sizeof pair->name);
    memcpy(pair->nonce, offer->nonce, sizeof pair->nonce);
    node->peers[peer].state = NODE_PEER_MAPPED;
    __atomic_store_n(&node_meet_of(memory, &pair->plan, pair->slot)->mapped, NODE_MAPPED,
                     __ATOMIC_RELEASE);
    gf_full_fence();
    gf_node_wake(node, pair);
}

/* ---- memory of a device ---- */

static void device_asked(struct gf_node *node, const struct node_datagram *datagram,
                         const char *name)
{
    struct node_datagram answer = refusal_of(node, datagram);
    if (node->device.given >= 0) answer.kind = NODE_DATAGRAM_GIVE;
    (void)datagram_send(node, name, &answer, node->device.given); /* it asks again */
}

/* Takes fd. */
static void device_answered(struct gf_node *node, const struct node_datagram *datagram, int *fd)
{
    bool gives = (datagram->kind == NODE_DATAGRAM_GIVE) && (*fd >= 0);
    if (node->device.answer != GF_AGAIN) return; /* asked twice, answered twice */
    node->device.answer = gives ? GF_OK : GF_ERR_PEER;
    if (!gives) return;
    node->device.come = *fd;
    *fd = -1;
}

void gf_node_device_forget(struct gf_node *node)
{
    if (node->device.given >= 0) (void)close(node->device.given);
    if (node->device.come >= 0) (void)close(node->device.come);
    node->device.given = node->device.come = -1;
    node->device.pulls = GF_RANK_NONE;
}

void gf_node_device_offer(struct gf_node *node, int descriptor)
{
    gf_node_device_forget(node);
    node->device.given = descriptor;
}

/* GF_AGAIN: the answer is under way; a socket that was full is asked again after ASK_NS. */
static gf_status device_ask(struct gf_node *node, const struct node_pair *pair, uint64_t now_ns)
{
    struct node_datagram datagram = {.kind = NODE_DATAGRAM_PULL,
                                     .of = NODE_DATAGRAM_DEVICE,
                                     .from = node->rank,
                                     .generation = node->generation};
    memcpy(datagram.nonce, pair->nonce, sizeof datagram.nonce);
    memcpy(datagram.answer, node->nonce, sizeof datagram.answer);
    node->device.asked_ns = now_ns;
    return (datagram_send(node, pair->name, &datagram, -1) == ECONNREFUSED) ? GF_ERR_PEER
                                                                            : GF_AGAIN;
}

gf_status gf_node_device_pull(struct gf_node *node, uint32_t peer, uint64_t now_ns,
                              int *descriptor_out)
{
    gf_status status;
    if (!gf_node_has(node, peer) || (node_pair_of(node, peer) == NULL)) return GF_ERR_PEER;
    gf_node_serve(node);
    if (node->device.pulls != peer) {
        GF_ASSERT(node->device.pulls == GF_RANK_NONE);
        node->device.pulls = peer;
        node->device.answer = device_ask(node, node_pair_of(node, peer), now_ns);
    } else if ((node->device.answer == GF_AGAIN) && (now_ns - node->device.asked_ns >= ASK_NS)) {
        node->device.answer = device_ask(node, node_pair_of(node, peer), now_ns);
    }
    if ((status = node->device.answer) == GF_AGAIN) return GF_AGAIN;
    if (status == GF_OK) *descriptor_out = node->device.come;
    node->device.come = -1;
    node->device.pulls = GF_RANK_NONE;
    return status;
}

/* ---- datagrams ---- */

static void datagram_take(struct gf_node *node, const struct node_datagram *datagram,
                          const char *name, int *fd)
{
    bool asks = datagram->kind == NODE_DATAGRAM_PULL;
    bool answers =
        (datagram->kind == NODE_DATAGRAM_GIVE) || (datagram->kind == NODE_DATAGRAM_REFUSE);
    if (memcmp(datagram->nonce, node->nonce, sizeof datagram->nonce) != 0) return;
    if ((datagram->generation != node->generation) || (datagram->from >= node->world) ||
        (datagram->from == node->rank))
        return;
    if (datagram->of == NODE_DATAGRAM_DEVICE) {
        if (asks) device_asked(node, datagram, name);
        if (answers && (datagram->from == node->device.pulls)) device_answered(node, datagram, fd);
        return;
    }
    if (asks)
        asked(node, datagram, name);
    else if (answers && !node->quiesced && (datagram->from == node->pulls))
        answered(node, datagram, *fd);
}

/* Takes one datagram. False: there is none. */
static bool datagram_next(struct gf_node *node)
{
    struct node_datagram datagram = {0};
    struct gf_carried message = {.bytes = &datagram, .size_bytes = sizeof datagram};
    if (!gf_carried_receive(node->socket_fd, &message)) return false;
    if ((message.size_bytes == sizeof datagram) && (message.user == geteuid()) &&
        (message.user != node->overflow_user) && (message.name[1] != '\0'))
        datagram_take(node, &datagram, message.name, &message.descriptor);
    if (message.descriptor >= 0) (void)close(message.descriptor);
    return true;
}

/* A rank that was woken withdraws its announcement, so there is one byte to read. If it has not
 * arrived yet, or is from a stranger, it is read some sleeps later. */
void gf_node_woken(struct gf_node *node)
{
    uint32_t *sleeps = &node_head_of(node->memory, &node->plan)->sleeps;
    char byte;
    bool woken = __atomic_exchange_n(sleeps, 0, __ATOMIC_RELAXED) == 0;
    bool may_come = (node->up_count < node->pair_count) || (node->device.given >= 0) ||
                    (node->device.pulls != GF_RANK_NONE);
    if (woken && !may_come)
        (void)recv(node->socket_fd, &byte, 1, MSG_DONTWAIT);
    else if (woken)
        (void)datagram_next(node);
    if (!woken && (++node->slept % SLEEPS_A_LOOK == 0)) gf_node_serve(node);
}

void gf_node_serve(struct gf_node *node)
{
    for (uint32_t i = 0; (i < WORDS_A_POLL) && (node->socket_fd >= 0); i++)
        if (!datagram_next(node)) return;
}

/* ---- offers ---- */

void gf_node_offer_put(const struct gf_node *node, unsigned char offer_out[GF_NODE_OFFER_BYTES])
{
    struct node_offer offer = {.magic = OFFER_MAGIC,
                               .version = OFFER_VERSION,
                               .rank = node->rank,
                               .generation = node->generation};
    if (node->shared) {
        offer.node = node->host;
        offer.canary = node->canary;
        offer.region_bytes = node->region_bytes;
        offer.memory_bytes = node->memory_bytes;
        offer.slots = node->plan.slots;
        offer.entries = node->plan.entries;
        memcpy(offer.name, node->name, sizeof offer.name);
        memcpy(offer.nonce, node->nonce, sizeof offer.nonce);
    }
    memcpy(offer_out, &offer, sizeof offer);
}

static gf_status offer_read(struct gf_node *node, uint32_t peer, const unsigned char *bytes,
                            size_t size_bytes, struct node_offer *offer_out)
{
    struct node_offer offer;
    if (size_bytes != sizeof offer)
        return gf_node_fault(node, GF_ERR_DATA, peer, "connect",
                             "rank %u offers its memory in %zu bytes, want %zu", peer, size_bytes,
                             sizeof offer);
    memcpy(&offer, bytes, sizeof offer);
    if ((offer.magic != OFFER_MAGIC) || (offer.version != OFFER_VERSION))
        return gf_node_fault(node, GF_ERR_DATA, peer, "connect",
                             "what rank %u offers of its memory is none of this "
                             "library, or of another byte order",
                             peer);
    if ((offer.rank != peer) || (offer.generation != node->generation))
        return gf_node_fault(
            node, GF_ERR_MISMATCH, peer, "connect",
            "the memory of rank %u, generation %u was given as that of rank %u, generation %u",
            offer.rank, offer.generation, peer, node->generation);
    *offer_out = offer;
    return GF_OK;
}

/* Checks the offer of a peer of this node: the layout of its memory must follow from what all ranks
 * have agreed on. */
static bool offer_fits(const struct gf_node *node, const struct node_offer *offer)
{
    if ((offer->region_bytes > SIZE_MAX / 4) || (offer->memory_bytes > SIZE_MAX / 4)) return false;
    if ((offer->slots != node->plan.slots) || (offer->entries != node->plan.entries)) return false;
    return (offer->name[0] == '\0') &&
           (gf_node_plan_of(offer->region_bytes, offer->slots, offer->entries).bytes <=
            offer->memory_bytes);
}

static gf_status peer_ask(struct gf_node *node, uint32_t peer, const struct node_offer *offer,
                          uint64_t now_ns)
{
    struct node_datagram datagram = {.kind = NODE_DATAGRAM_PULL,
                                     .of = NODE_DATAGRAM_MEMORY,
                                     .from = node->rank,
                                     .generation = node->generation};
    int code;
    if ((node->pulls == peer) && (now_ns - node->asked_ns < ASK_NS)) return GF_AGAIN;
    node->pulls = peer;
    node->pulled = *offer;
    node->asked_ns = now_ns;
    node->peers[peer].state = NODE_PEER_PULLS;
    memcpy(datagram.nonce, offer->nonce, sizeof datagram.nonce);
    memcpy(datagram.answer, node->nonce, sizeof datagram.answer);
    code = datagram_send(node, offer->name, &datagram, -1);
    if ((code == 0) || (code == EAGAIN) || (code == ENOBUFS) || (code == ENOMEM) || (code == EINTR))
        return GF_AGAIN;
    refuse(node, peer, code == ECONNREFUSED,
           (code == ECONNREFUSED) ? "its socket is closed" : strerror(code));
    return GF_ERR_PEER;
}

/* Has the peer mapped our memory, or refused it? */
static gf_status peer_meet(struct gf_node *node, uint32_t peer)
{
    struct node_pair *pair = node_pair_of(node, peer);
    uint32_t slot = (uint32_t)(pair - node->pairs);
    if (__atomic_load_n(&node_meet_of(node->memory, &node->plan, slot)->mapped, __ATOMIC_ACQUIRE) !=
        NODE_MAPPED_NOT) {
        node->peers[peer].state = NODE_PEER_UP;
        if (node->peers[peer].region_bytes > 0) node->peers[peer].region = pair->memory;
        node->up_count++;
        return GF_OK;
    }
    if (__atomic_load_n(&node_meet_of(pair->memory, &pair->plan, pair->slot)->refused,
                        __ATOMIC_ACQUIRE) == 0)
        return GF_AGAIN;
    refuse(node, peer, true, "it refuses");
    return GF_ERR_PEER;
}

static gf_status pair_decide(struct gf_node *node, uint32_t peer, const unsigned char *offer,
                             size_t offer_bytes, uint64_t now_ns)
{
    struct node_offer read;
    gf_status status;
    if ((status = offer_read(node, peer, offer, offer_bytes, &read)) < 0) return status;
    if (!node->shared || (read.node != node->host)) return GF_ERR_PEER;
    gf_node_serve(node);
    switch ((enum node_peer_state)node->peers[peer].state) {
    case NODE_PEER_UNKNOWN:
        if (!offer_fits(node, &read))
            return gf_node_fault(
                node, GF_ERR_MISMATCH, peer, "connect",
                "rank %u has messages of %u by %u in %llu bytes, rank %u of %u by %u", peer,
                read.slots, read.entries, (unsigned long long)read.memory_bytes, node->rank,
                node->plan.slots, node->plan.entries);
        if (read.region_bytes != node->region_bytes) { /* what reads it takes it for as large */
            refuse(node, peer, true,
                   "their exchange regions differ in size, as where one rank has "
                   "a device and the other has none");
            return GF_ERR_PEER;
        }
        if (node->pulls != GF_RANK_NONE) return GF_AGAIN;
        return peer_ask(node, peer, &read, now_ns);
    case NODE_PEER_PULLS: return peer_ask(node, peer, &node->pulled, now_ns);
    case NODE_PEER_MAPPED: return peer_meet(node, peer);
    case NODE_PEER_UP: return GF_OK;
    case NODE_PEER_REFUSED: break;
    }
    return GF_ERR_PEER;
}

gf_status gf_node_connect(struct gf_node *node, uint32_t peer, const unsigned char *offer,
                          size_t offer_bytes, uint64_t now_ns)
{
    gf_status status;
    GF_ASSERT(peer < node->world);
    if (peer == node->rank) return GF_OK;
    status = pair_decide(node, peer, offer, offer_bytes, now_ns);
    if ((status == GF_AGAIN) || node->peers[peer].decided) return status;
    node->peers[peer].decided = true;
    node->undecided--;
    gf_node_room_trim(node, node->pair_count + node->undecided);
    return status;
}
