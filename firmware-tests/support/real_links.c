/* See real_links.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/real_links.h"
#include "drivers/drivers.h"
#include "drivers/host/node_state.h"

struct real_rank {
    struct real_links *all;
    uint32_t rank;
    uint32_t node;
    struct gf_link *link;
};

struct real_links {
    uint32_t world;
    struct real_rank ranks[];
};

static struct gf_link_driver real;
static const struct gf_link_driver *inner;
static struct real_links *opens; /* the world that was opened last */

static struct real_rank *rank_of(const struct gf_link *link)
{
    struct real_rank *self = opens->ranks;
    while (self->link != link) self++;
    return self;
}

/* ---- several nodes in one process ---- */

__attribute__((weak)) void __real_gf_node_host_id_set(
    struct gf_node *node); /* REAL_SUITES have it */
void __wrap_gf_node_host_id_set(struct gf_node *node);
void __wrap_gf_node_host_id_set(struct gf_node *node)
{
    __real_gf_node_host_id_set(node);
    if (opens != NULL) node->host += 2 * (uint64_t)rank_of(node->link)->node;
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

/* ---- the driver ---- */

static struct gf_link_setup setup_of(const struct gf_link_setup *setup)
{
    struct gf_link_setup own = *setup;
    struct real_rank *self = setup->arg;
    if (own.transports == NULL) own.transports = "";
    if (own.devices == NULL) own.devices = "";
    if (self != NULL) own.address = "127.0.0.1:7117"; /* the way to it is loopback */
    own.key_file = own.bind = own.ports = NULL;
    own.keepalive_ns = UINT64_C(5000000000);
    /* who opens it without a join has the network at once */
    if (own.networks[GF_NETWORK_LINK] == NULL) own.network = GF_NETWORK_LINK;
    own.networks[GF_NETWORK_LINK] = inner;
    if (inner == &gf_link_tcp) return own;
    own.transports = "tcp";
    own.devices = "lo";
    own.insecure = true;
    return own;
}

static size_t state_bytes(const struct gf_link_setup *setup)
{
    const struct gf_link_setup own = setup_of(setup);
    return gf_link_front.state_bytes(&own);
}

static bool may_reach_device(const struct gf_link_setup *setup)
{
    const struct gf_link_setup own = setup_of(setup);
    return gf_link_front.may_reach_device(&own);
}

static gf_status real_open(const struct gf_link_setup *setup, void *state,
                           struct gf_link **link_out, struct gf_fault *fault_out)
{
    const struct gf_link_setup own = setup_of(setup);
    gf_status status;
    struct real_rank *self = setup->arg;
    opens = self->all;
    self->link = state; /* a link's state begins with it */
    status = gf_link_front.open(&own, state, link_out, fault_out);
    if (status == GF_OK) (*link_out)->driver = &real;
    return status;
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
    real = gf_link_front;
    real.simulated = true; /* its ranks are one thread */
    if (inner->req_size_bytes > real.req_size_bytes) real.req_size_bytes = inner->req_size_bytes;
    real.endpoint_bytes_max += inner->endpoint_bytes_max;
    real.state_bytes = state_bytes;
    real.may_reach_device = may_reach_device;
    real.open = real_open;
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
        all->ranks[rank] = (struct real_rank){.all = all, .rank = rank};
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
