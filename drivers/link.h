/* A link carries messages between ranks, and lets ranks of one node reach each other's memory. That
 * of a process is one object (gf_link_front, link.c): what goes to a rank of its node goes through
 * memory, all else by one network driver, where one is open. A simulated link is both by itself.
 * Posting and testing are apart. Open, connect, network and reset take memory or sockets of this
 * host. Close waits, as it says, and reset up to 4 ms for processes that are just ending. A link's
 * state and its requests are the caller's memory. */
#ifndef GF_LINK_H
#define GF_LINK_H

#include "address.h" /* by name alone: installed headers lie in one folder */
#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tag names generation, step, buffer and message; the driver adds the sender. Two messages under
 * way between the same ranks never share a tag, so a lost one is never mistaken for the next. 51
 * bits:
 *     generation 7 | step 12 | buffer 15 | message 17     (each modulo its width)
 * Fused buffers are numbered from 0; numbers from GF_TAG_BUFFER_OTHER up are vote, norms and public
 * requests. */
#define GF_TAG_MESSAGE_BITS 17
#define GF_TAG_BUFFER_BITS 15
#define GF_TAG_STEP_BITS 12
#define GF_TAG_GENERATION_BITS 7
#define GF_TAG_BITS \
    (GF_TAG_MESSAGE_BITS + GF_TAG_BUFFER_BITS + GF_TAG_STEP_BITS + GF_TAG_GENERATION_BITS)
#define GF_TAG_BUFFER_OTHER (1u << 14)

static inline uint64_t gf_tag(uint32_t generation, uint64_t step, uint32_t buffer)
{
    uint64_t tag = generation & ((1u << GF_TAG_GENERATION_BITS) - 1);
    tag = (tag << GF_TAG_STEP_BITS) | (step & ((1u << GF_TAG_STEP_BITS) - 1));
    tag = (tag << GF_TAG_BUFFER_BITS) | (buffer & ((1u << GF_TAG_BUFFER_BITS) - 1));
    return tag << GF_TAG_MESSAGE_BITS;
}
static inline uint64_t gf_tag_message(uint64_t tag, uint64_t message)
{
    return tag | (message & ((1u << GF_TAG_MESSAGE_BITS) - 1));
}

#define GF_DATA_ADDRS_MAX 8u
struct gf_link;
struct gf_front;
struct gf_link_driver;

/* What a link has open beside the node's memory. */
typedef enum gf_network { GF_NETWORK_NONE = 0, GF_NETWORK_LINK, GF_NETWORK_FABRIC } gf_network;
#define GF_NETWORKS 3u

/* Texts are the caller's for as long as the link is open. */
struct gf_link_setup {
    uint32_t rank; /* of the first generation, as world; reset() tells those of the next */
    uint32_t world;
    uint32_t ranks_max; /* no generation has more: tables have so many entries */
    uint32_t generation;
    uint32_t requests_max;    /* posted sends and receives under way at once, at most */
    size_t message_bytes_max; /* largest message */
    size_t region_bytes;      /* exchange region; 0 is valid */
    const char *transports;   /* as in gf_config.link, defaults filled in */
    const char *devices;      /* "a,b": these; "a,b;c": of local rank 0, 1 of the node */
    uint32_t local;           /* the local rank; where nobody knows it, the rank */
    bool huge_pages;
    bool private_memory; /* ranks of one node share nothing (drivers/node.h) */
    bool on_device;      /* gradients lie on a device, which may write into the region */
    /* gf_link_front: which is open from the beginning, and their drivers; NULL: there is none */
    gf_network network;
    const struct gf_link_driver *networks[GF_NETWORKS];
    struct gf_front *front; /* its own; NULL: a driver is opened alone */
    bool adopts;            /* tcp: it listens nowhere, connections are adopted (tcp/link_tcp.h) */
    /* of the job, or NULL or empty: who connects over a network proves that it has it */
    const char *key_file;
    uint32_t streams; /* tcp: connections that carry a pair's large messages; 0: one */
    /* tcp: of what a peer may send before its receive is posted; 0: 4 MiB in equal shares, from
     * 256 KiB to 1 MiB each */
    uint32_t credit_bytes;
    /* exchange.timeout, of which edge_is_broken() waits for a part; 0: it does not */
    uint64_t timeout_ns;
    bool checksum; /* tcp: of every payload, in software and on the wire; no MAC */
    /* ucx: networks, on which nobody can prove the key, that keep strangers out by themselves */
    bool trusted_fabric;
    bool insecure; /* ucx over tcp: that it takes what anybody writes is known */
    struct gf_log log;
    void *arg; /* gf_drivers.link_arg: the simulated network */
    /* tcp, of its listener for connections: those of another job are refused; the job's address,
     * for the way out of this host (NULL or empty: it never opens a network); a numeric IP or
     * nothing; "26000-31999", in which its port is to be, or nothing */
    uint64_t job_id;
    const char *address, *bind, *ports;
    uint64_t keepalive_ns;
    /* descriptors that this process needs for its control channel, if that has many connections */
    uint32_t control_files;
    /* this host's addresses, beside the one that leads to the job's, at which it listens too, with
     * the same port; family 0 ends them */
    struct gf_addr data_addrs[GF_DATA_ADDRS_MAX];
    /* open, and for longer than the link. NULL: all messages lie in host memory */
    struct gf_gpu *gpu;
    gf_mem device; /* of it: where messages may lie, should the link reach it */
    size_t device_bytes;
};

struct gf_node;

/* The state of each driver begins with this. Under gf_link_front it is the same struct for both:
 * the front has set it, a network driver leaves its fields alone but fault, failed, the counters,
 * wake_fd, device and reaches_device. */
struct gf_link {
    const struct gf_link_driver *driver;
    struct gf_front *front; /* gf_link_front's; NULL: a driver alone, or a simulated link */
    struct gf_fault fault;  /* the first foreign failure; whose the link is says it */
    gf_status failed;    /* until reset(): progress() found it of no use any more, fault says why */
    uint64_t sent_bytes; /* payload, added by send_post */
    uint64_t sent_messages;
    /* the exchange region of this rank, perhaps another after each reset; NULL: none */
    unsigned char *region;
    size_t region_bytes;
    /* of the region: memory of this process alone; 0 where it lies in shared memory */
    size_t private_bytes;
    int wake_fd; /* to sleep on, see arm(); -1: there is none */
    /* links with equal ones share memory, others may; 0: nothing is shared, or of no meaning */
    uint64_t node;
    /* through which it does (drivers/node.h), until close(); NULL: a simulated one's ranks are all
     * of this process */
    struct gf_node *shares;
    gf_network network; /* what is open beside the node's memory */
    /* ranks of a node with different ones leave it by different devices; 0: not known */
    uint64_t device;
    /* since open, or since network(): messages may lie in setup.device, too */
    bool reaches_device;
};

/* One message under way: req_size_bytes, 64-byte aligned. The contents are the driver's, but for
 * the head, with which those of network drivers begin. */
struct gf_req;
struct gf_req_head {
    gf_status answer; /* GF_AGAIN until it has ended; kept after close() */
    bool in_node;     /* it is the node's, and all else of it; a driver leaves false there */
};
/* A network driver's test(). */
static inline gf_status gf_req_answer(struct gf_link *link, struct gf_req *req)
{
    (void)link;
    return ((const struct gf_req_head *)(const void *)req)->answer;
}

/* What a rank finds of a fabric. */
typedef enum gf_fabric {
    GF_FABRIC_NONE = 0,
    GF_FABRIC_FOUND,
    GF_FABRIC_UNBUILT /* an adapter is here, and this program has no part for it */
} gf_fabric;

/* A new call: here, in link.c, tcp/link_tcp.c, ucx/link_ucx.c and sim/sim_link.c; where NULL is
 * allowed, this says so. A network driver knows nothing of nodes: it has no memory_bytes, map,
 * flags and network, which come last. */
struct gf_link_driver {
    const char *name;      /* "ucx", "sim": for logs and results */
    size_t req_size_bytes; /* a multiple of 64 */
    /* what a rank must tell the others so that they can reach it; a network driver's at most
     * 1952, a whole link's 2048 */
    size_t endpoint_bytes_max;
    /* virtual time: on which core this runs, and which pages were touched, means nothing */
    bool simulated;

    /* Bytes of state for this setup, before anything is opened. */
    size_t (*state_bytes)(const struct gf_link_setup *setup);
    /* Likewise: could this link reach device memory, of which the setup says nothing yet? NULL:
     * never. */
    bool (*may_reach_device)(const struct gf_link_setup *setup);
    /* Of a fabric's: would it open a network here? Not GF_FABRIC_FOUND: text_out says what is
     * missing. May allocate. */
    gf_fabric (*probe)(const struct gf_link_setup *setup, char *text_out, size_t text_bytes);
    /* Opens in state[state_bytes], 64-byte aligned; the whole link takes and touches the exchange
     * region. On failure nothing is left open and *fault_out says why. */
    gf_status (*open)(const struct gf_link_setup *setup, void *state, struct gf_link **link_out,
                      struct gf_fault *fault_out);
    /* ends all requests; may wait 0.2 s for what was sent */
    void (*close)(struct gf_link *link);

    /* This rank's endpoint address; endpoint_out[endpoint_bytes_max]. */
    gf_status (*endpoint)(struct gf_link *link, void *endpoint_out, size_t *size_bytes_out);
    /* Reach rank `peer` of this generation (which may be this rank: then a no-op) by its endpoint
     * address. GF_AGAIN: under way, to be called again with the same, for all peers in turn: each
     * may wait until another is reached. GF_OK again where it is. */
    gf_status (*connect)(struct gf_link *link, uint32_t peer, const void *endpoint,
                         size_t size_bytes);

    /* Both return at once. GF_FULL: no room now, nothing was posted. Until test() gives anything
     * but GF_AGAIN, data and req are the driver's. `data` is host memory, or all of it lies in the
     * device's where reaches_device; what the device was to write there is done before it is sent,
     * and what arrived there is seen by what it is given after test(). A received message of
     * another size than size_bytes is GF_ERR_MISMATCH. size_bytes may be 0. */
    gf_status (*send_post)(struct gf_link *link, uint32_t to, uint64_t tag, gf_mem data,
                           size_t size_bytes, struct gf_req *req);
    gf_status (*recv_post)(struct gf_link *link, uint32_t from, uint64_t tag, gf_mem data,
                           size_t size_bytes, struct gf_req *req);
    /* GF_AGAIN, or how it ended; the same answer again if asked again. A cancelled request ends
     * with GF_ERR_ABORTED, or with GF_OK if it had ended before. Does not progress. */
    gf_status (*test)(struct gf_link *link, struct gf_req *req);
    /* A request to end it early; test() still decides. Sends often cannot be cancelled. A message
     * on its way to a cancelled receive may be lost: this generation has no other use for its
     * tag. */
    void (*cancel)(struct gf_link *link, struct gf_req *req);
    /* Did something move? A link that fails says so in link->failed. */
    bool (*progress)(struct gf_link *link);

    /* Is the way to `peer`, whose process lives, broken by what the kernel or the card says now?
     * Asked when an operation has failed, at an inquiry, and of a peer that connect() has not
     * reached for long. A process that computes, does not read, or is slow, has broken nothing.
     * True: fault_out says it, with both ends, the address and errno: GF_ERR_LINK; or GF_ERR_SYSTEM
     * with this rank as peer: it lacks something itself. NULL: never. */
    bool (*edge_is_broken)(struct gf_link *link, uint32_t peer, struct gf_fault *fault_out);

    /* Is it safe to poll(2) wake_fd for reading? Else progress() must be called first.
     * May be NULL where there is none. */
    bool (*arm)(struct gf_link *link);

    /* Nothing of this rank is under way, nor will be before reset(): from here on it writes nothing
     * into the region of a peer, who may keep it. NULL: nobody would. */
    void (*quiesce)(struct gf_link *link);
    /* The next generation, in which this is `rank` of `world`, at most ranks_max. All requests end
     * (test() gives GF_ERR_ABORTED), peers are forgotten, and the region is zero: another one,
     * unless nobody of the generation before can write there any more; endpoint() and connect()
     * follow. What was sent and has not left is lost: nobody of the next
     * generation waits for it. May allocate, like open. */
    gf_status (*reset)(struct gf_link *link, uint32_t generation, uint32_t rank, uint32_t world);
    /* All requests end at once as with reset(), and peers are forgotten; the region stays as it is.
     * From here on only test(), the region, reset() and close() are of use. Waits for nobody: an
     * error must not be told late because a link is made anew that nobody may want. */
    void (*drop)(struct gf_link *link);

    /* Bytes of memory that lies after the exchange region, for messages; NULL: none. */
    size_t (*memory_bytes)(const struct gf_link_setup *setup);
    /* A rank's exchange region, of this one or a peer, as a plain pointer; NULL where memory is not
     * shared. */
    void *(*map)(struct gf_link *link, uint32_t peer);
    /* A 64-bit flag at offset_bytes (multiple of 8) of a peer's region, with release order after
     * all writes made through map(); gf_flag_load() reads our own region. */
    void (*flag_store)(struct gf_link *link, uint32_t peer, size_t offset_bytes, uint64_t value);
    /* Sleeping on flags, in three acts. flag_arm() announces it in a flag of our own region;
     * whoever stores a flag for us and calls gf_flag_wake() with that offset afterwards ends the
     * sleep. So: arm, look at all flags once more, then flag_sleep(), which returns when woken,
     * after timeout_ns, or at a signal, and takes the announcement back. Both NULL: there is no
     * sleeping on flags. */
    void (*flag_arm)(struct gf_link *link, size_t offset_bytes);
    void (*flag_sleep)(struct gf_link *link, size_t offset_bytes, uint64_t timeout_ns);

    /* As reset(), in the same generation, with that network; before anything is posted there. Where
     * it does not open, the node's memory is there without one. NULL: a simulated link. */
    gf_status (*network)(struct gf_link *link, gf_network which);
};

/* What carries messages between nodes, for logs. */
const char *gf_link_name(const struct gf_link *link);
/* Of a network driver, at its open: the link, as far as it is not the front's. */
void gf_link_begin(struct gf_link *link, const struct gf_link_setup *setup,
                   const struct gf_link_driver *driver);

/* A flag in our own region, with acquire order. */
static inline uint64_t gf_flag_load(const struct gf_link *link, size_t offset_bytes)
{
    GF_ASSERT((offset_bytes % sizeof(uint64_t) == 0) && (offset_bytes < link->region_bytes));
    return __atomic_load_n((const uint64_t *)(const void *)(link->region + offset_bytes),
                           __ATOMIC_ACQUIRE);
}

/* The three where map() gives memory that ranks share: host/flags.c. region: the sleeper's. */
void gf_flag_arm(struct gf_link *link, size_t offset_bytes);
void gf_flag_sleep(struct gf_link *link, size_t offset_bytes, uint64_t timeout_ns);
void gf_flag_wake(void *region, size_t offset_bytes);
/* Maps what is there of memory that others have written, so that no later look at it waits. */
void gf_pages_touch(unsigned char *at, size_t bytes);

extern const struct gf_link_driver gf_link_front;
extern const struct gf_link_driver gf_link_tcp;
extern const struct gf_link_driver gf_link_ucx;

#ifdef __cplusplus
}
#endif
#endif
