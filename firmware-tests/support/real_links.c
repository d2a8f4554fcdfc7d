/* See real_links.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/real_links.h"
#include "drivers/drivers.h"
#include "drivers/host/node_state.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

struct real_rank {
    struct gf_rendezvous rendezvous; /* of data connections alone */
    struct real_links *all;
    uint32_t rank;
    uint32_t node;
    bool listens;
    uint32_t epoch;
    struct gf_link *link;
    uint32_t link_epoch; /* as it was opened, or made anew, last */
    const struct gf_data_taker *taker;
};

struct real_links {
    uint32_t world;
    struct real_rank ranks[];
};

static struct gf_link_driver real;
static const struct gf_link_driver *inner;
static struct real_links *opens; /* the world that was opened last */

/* ---- several nodes in one process ---- */

__attribute__((weak)) void __real_gf_node_host_look(struct gf_node *node); /* REAL_SUITES have it */
void __wrap_gf_node_host_look(struct gf_node *node);
void __wrap_gf_node_host_look(struct gf_node *node)
{
    __real_gf_node_host_look(node);
    if (opens != NULL) node->host += 2 * (uint64_t)opens->ranks[node->rank].node;
}

static void nodes_set(struct real_links *all, const struct gf_sim_setup *sim)
{
    const uint32_t most = sizeof sim->node_ranks / sizeof sim->node_ranks[0];
    uint32_t rank = 0;
    for (uint32_t node = 0; rank < all->world; node++) {
        uint32_t ranks = (sim->ranks_per_node > 0) ? sim->ranks_per_node : 1;
        if ((node < most) && (sim->node_ranks[0] > 0)) ranks = sim->node_ranks[node];
        for (uint32_t i = 0; (i < ranks) && (rank < all->world); i++)
            all->ranks[rank++].node = node;
        if (ranks == 0) break;
    }
}

/* ---- connections ---- */

static gf_status data_begin(struct gf_rendezvous *rendezvous, uint32_t epoch,
                            const struct gf_data_taker *taker, unsigned char *secret_out,
                            struct gf_place *place_out)
{
    struct real_rank *self = (struct real_rank *)rendezvous;
    self->listens = true;
    self->epoch = epoch;
    self->taker = taker;
    memset(secret_out, 0, GF_DATA_SECRET_BYTES);
    *place_out = (struct gf_place){.family = AF_INET, .port = htons(1)};
    return GF_OK;
}

static void pair_make(int ends[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true((listener >= 0) && (bind(listener, (struct sockaddr *)&at, bytes) == 0) &&
                (listen(listener, 1) == 0) &&
                (getsockname(listener, (struct sockaddr *)&at, &bytes) == 0));
    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(ends[0], (struct sockaddr *)&at, bytes), 0);
    ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(ends[1] >= 0);
    (void)close(listener);
}

static gf_status data_dial(struct gf_rendezvous *rendezvous, uint64_t now_ns, uint32_t peer,
                           uint32_t stream, const unsigned char *secret, const struct gf_place *to,
                           const struct gf_place *from)
{
    const struct real_rank *self = (const struct real_rank *)rendezvous;
    const struct real_rank *other = &self->all->ranks[peer];
    int ends[2];
    if (!other->listens || (other->epoch != self->epoch)) return GF_AGAIN;
    if (other->taker->has(other->taker->user, self->rank, stream)) return GF_OK;
    pair_make(ends);
    self->taker->connected(self->taker->user, peer, stream, ends[0]);
    other->taker->connected(other->taker->user, self->rank, stream, ends[1]);
    return GF_OK;
}

static const char *data_text(struct gf_rendezvous *rendezvous, uint32_t peer)
{
    return "";
}

static int data_error(struct gf_rendezvous *rendezvous, uint32_t peer)
{
    return 0;
}

static void data_end(struct gf_rendezvous *rendezvous)
{
    ((struct real_rank *)rendezvous)->listens = false;
}

static const struct gf_rendezvous_driver connections = {.name = "pairs",
                                                        .data_begin = data_begin,
                                                        .data_dial = data_dial,
                                                        .data_text = data_text,
                                                        .data_error = data_error,
                                                        .data_end = data_end};

/* ---- the driver ---- */

static struct gf_link_setup setup_of(const struct gf_link_setup *setup)
{
    struct gf_link_setup own = *setup;
    struct real_rank *self = setup->arg;
    if (own.transports == NULL) own.transports = "";
    if (own.devices == NULL) own.devices = "";
    own.rendezvous = (self != NULL) ? &self->rendezvous : NULL;
    if (inner == &gf_link_tcp) return own;
    own.transports = "tcp";
    own.devices = "lo";
    own.insecure = true;
    return own;
}

static size_t state_bytes(const struct gf_link_setup *setup)
{
    const struct gf_link_setup own = setup_of(setup);
    return inner->state_bytes(&own);
}

static size_t memory_bytes(const struct gf_link_setup *setup)
{
    const struct gf_link_setup own = setup_of(setup);
    return inner->memory_bytes(&own);
}

static gf_status real_open(const struct gf_link_setup *setup, void *state,
                           struct gf_link **link_out, struct gf_fault *fault_out)
{
    const struct gf_link_setup own = setup_of(setup);
    gf_status status;
    struct real_rank *self = setup->arg;
    opens = self->all;
    status = inner->open(&own, state, link_out, fault_out);
    if (status != GF_OK) return status;
    (*link_out)->driver = &real;
    self->link = *link_out;
    self->link_epoch = setup->epoch;
    return GF_OK;
}

static struct real_rank *rank_of(const struct gf_link *link)
{
    struct real_rank *self = opens->ranks;
    while (self->link != link) self++;
    return self;
}

static gf_status reset_note(struct gf_link *link, uint32_t epoch)
{
    rank_of(link)->link_epoch = epoch;
    return inner->reset(link, epoch);
}

/* A fabric's driver is opened where there are several nodes, and has no such call; here it carries
 * all worlds, and keeps its network. */
static gf_status network_keep(struct gf_link *link, bool on)
{
    return inner->reset(link, rank_of(link)->link_epoch);
}

const struct gf_link_driver *real_links_driver(void)
{
    const char *name = getenv("GF_TEST_LINK");
    if ((name == NULL) || (inner != NULL)) return (name == NULL) ? NULL : &real;
    if (strcmp(name, "tcp") == 0) inner = gf_drivers_all.link;
    if (strcmp(name, "ucx") == 0) inner = gf_drivers_all.fabric;
    if (inner == NULL) {
        (void)fprintf(stderr, "GF_TEST_LINK=%s: there is no such link\n", name);
        exit(2);
    }
    real = *inner;
    real.simulated = true; /* its ranks are one thread */
    real.state_bytes = state_bytes;
    if (real.memory_bytes != NULL) real.memory_bytes = memory_bytes;
    real.open = real_open;
    real.reset = reset_note;
    if (real.network == NULL) real.network = network_keep;
    return &real;
}

bool real_links_takes(uint32_t ranks)
{
    static uint64_t asked;
    const char *stride = getenv("GF_TEST_STRIDE");
    if (real_links_driver() == NULL) return true;
    if (ranks > 9) return false;
    return (stride == NULL) || (asked++ % strtoull(stride, NULL, 10) == 0);
}

struct real_links *real_links_create(const struct gf_sim_setup *sim)
{
    struct real_links *all;
    if (real_links_driver() == NULL) return NULL;
    all = calloc(1, sizeof *all + sim->world * sizeof all->ranks[0]);
    assert_non_null(all);
    all->world = sim->world;
    for (uint32_t rank = 0; rank < all->world; rank++)
        all->ranks[rank] =
            (struct real_rank){.rendezvous.driver = &connections, .all = all, .rank = rank};
    nodes_set(all, sim);
    return all;
}

void *real_links_arg(struct real_links *all, uint32_t rank)
{
    return &all->ranks[rank];
}

void real_links_destroy(struct real_links *all)
{
    free(all);
}
