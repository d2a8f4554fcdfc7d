/* Measuring against handing out, and what gf_measure() and gf_open() refuse. */
#include "firmware-tests/support/suite.h"
#include "lib/core/layout.h"
#include "drivers/sim/sim.h"

static const struct gf_tensor tensors[] = {
    {.name = "empty", .elem_count = 0},
    {.name = "w", .elem_count = 3001, .type = GF_TYPE_F16},
    {.name = "b", .elem_count = 10, .flags = GF_TENSOR_NO_DECAY},
    {.name = "v", .elem_count = 70000}};

static char logged[512];

static void log_keep(void *user, gf_log_level level, const char *text)
{
    if (level <= GF_LOG_WARN) (void)snprintf(logged, sizeof logged, "%s", text);
}

/* A link that remembers what it was asked for. */
static struct gf_link_driver spy;
static gf_status (*spied_open)(const struct gf_link_setup *setup, void *state,
                               struct gf_link **link_out, struct gf_fault *fault_out);
static struct gf_link_setup asked;

static gf_status spy_open(const struct gf_link_setup *setup, void *state, struct gf_link **link_out,
                          struct gf_fault *fault_out)
{
    asked = *setup;
    return spied_open(setup, state, link_out, fault_out);
}

static void config_of(struct gf_config *config, struct gf_drivers *drivers, struct gf_sim *sim,
                      uint32_t rank, uint32_t world)
{
    memset(config, 0, sizeof *config);
    config->job.world = world;
    config->job.rank = rank;
    config->job.ignore_environment = true;
    config->log = log_keep;
    *drivers = *gf_sim_drivers(sim, rank);
    drivers->gpu = &gf_gpu_host; /* handed in: no other may be named */
    spied_open = drivers->link->open;
    spy = *drivers->link;
    spy.open = spy_open;
    drivers->link = &spy;
    config->drivers = drivers;
    logged[0] = '\0';
}

static void vary(struct gf_config *config, uint32_t row)
{
    static const gf_optimizer kinds[] = {GF_OPTIMIZER_NONE, GF_OPTIMIZER_SGD, GF_OPTIMIZER_LARS};
    config->exchange.wire = (gf_type)(row % 3);
    config->optimizer.kind = kinds[row / 3 % 3];
    config->optimizer.momentum = (row % 2 != 0) ? 0.5f : 0.0f;
    if ((row / 3 % 3 != 0) && (row % 4 == 0)) config->optimizer.half_weights = GF_TYPE_BF16;
    config->exchange.user_bytes = row * 37;
    config->exchange.buffers_active = 1 + row % 16;
    config->exchange.slice_bytes = 4096 + 64 * row;
    config->link.window = 1 + row * 7 % 32;
    config->trace_records = 1 + row * 11;
}

/* Every part lies inside of what was measured, and together they reach its last page. */
TEST(the_walk_hands_out_what_it_measured)
{
    for (uint32_t row = 0; row < 60; row++) {
        uint32_t world = 1 + row % 9;
        struct gf_sim *sim = gf_sim_create(&(struct gf_sim_setup){.world = world});
        static struct gf_config config;
        static struct gf_layout layout;
        struct gf_drivers drivers;
        struct gf_arena control;
        uint64_t shared_bytes;
        struct gf_control_parts parts;
        struct gf_exchange_parts shared;
        struct gf_footprint need;
        char *memory;
        char *region;
        char error[256];
        uint32_t msgs;
        assert_non_null(sim);
        config_of(&config, &drivers, sim, row % world, world);
        vary(&config, row);
        assert_int_equal(gf_layout_make(&config, tensors, LENGTH(tensors), &layout, error), GF_OK);
        assert_int_equal(gf_measure(&config, tensors, LENGTH(tensors), &need), GF_OK);
        assert_memory_equal(&need, &layout.footprint, sizeof need);
        assert_int_equal(need.control_bytes % GF_PAGE_BYTES, 0);
        assert_int_equal(need.exchange_bytes % GF_PAGE_BYTES, 0);
        assert_int_equal(need.device_bytes, 0);
        memory = aligned_alloc(GF_PAGE_BYTES, need.control_bytes);
        region = aligned_alloc(GF_PAGE_BYTES, need.exchange_bytes);
        assert_true((memory != NULL) && (region != NULL));
        control = (struct gf_arena){.base = memory, .size_bytes = need.control_bytes};
        parts = gf_layout_control(&layout, &control);
        shared = gf_layout_exchange(&layout, &shared_bytes);
        assert_int_equal(gf_align_up(control.used_bytes, GF_PAGE_BYTES), need.control_bytes);
        assert_int_equal(gf_align_up(shared_bytes, GF_PAGE_BYTES), need.exchange_bytes);
        assert_int_equal(shared.gradient % GF_BULK_ALIGN_BYTES, 0);
        assert_int_equal(shared.pack_host % GF_BULK_ALIGN_BYTES, 0);
        assert_int_equal(shared.user % GF_BULK_ALIGN_BYTES, 0);
        assert_int_equal(shared.staging % GF_BULK_ALIGN_BYTES, 0);
        assert_int_equal(layout.op_need.staging_bytes % GF_BULK_ALIGN_BYTES, 0);
        assert_true((char *)parts.gf == memory);
        assert_true((parts.tensors != NULL) && (parts.trace != NULL) && (parts.msgs != NULL));
        assert_true((parts.link != NULL) && (parts.gpu != NULL) && (parts.control != NULL));
        msgs = layout.op_need.msg_count * config.exchange.buffers_active;
        assert_true(parts.reqs + msgs * drivers.link->req_size_bytes <=
                    memory + control.used_bytes);
        /* Written to their ends: valgrind and the address sanitizer see a byte beyond. */
        memset(parts.tensors, 1, LENGTH(tensors) * sizeof *parts.tensors);
        memset(parts.trace, 2, config.trace_records * sizeof *parts.trace);
        memset(parts.reqs, 3, msgs * drivers.link->req_size_bytes);
        const struct gf_control_setup control_setup =
            gf_layout_control_setup(&layout, &layout.config);
        memset(parts.control, 4, gf_control_state_bytes(&control_setup));
        memset(region + shared.gradient, 5, layout.pool.gradient_bytes);
        memset(region + shared.staging, 6,
               layout.op_need.staging_bytes * config.exchange.buffers_active);
        if (config.exchange.user_bytes > 0)
            memset(region + shared.user, 7, config.exchange.user_bytes);
        assert_int_equal(parts.tensors[LENGTH(tensors) - 1].type, 1);
        free(memory);
        free(region);
        gf_sim_destroy(sim);
    }
}

TEST(the_link_is_asked_for_just_the_exchange_bytes)
{
    for (uint32_t row = 0; row < 30; row++) {
        struct gf_sim *sim = gf_sim_create(&(struct gf_sim_setup){.world = 3});
        static struct gf_config config;
        struct gf_drivers drivers;
        struct gf_footprint need;
        gf_context *gf;
        void *memory;
        config_of(&config, &drivers, sim, row % 3, 3);
        vary(&config, row);
        assert_int_equal(gf_measure(&config, tensors, LENGTH(tensors), &need), GF_OK);
        memory = aligned_alloc(64, need.control_bytes);
        assert_non_null(memory);
        assert_int_equal(
            gf_open(&config, tensors, LENGTH(tensors), memory, need.control_bytes, &gf), GF_OK);
        assert_true((void *)gf == memory);
        assert_int_equal(asked.region_bytes, need.exchange_bytes);
        assert_int_equal(asked.message_bytes_max, config.exchange.slice_bytes);
        assert_int_equal(gf_rank(gf), row % 3);
        assert_int_equal(gf_world(gf), 3);
        assert_int_equal(gf_close(gf), GF_OK);
        free(memory);
        gf_sim_destroy(sim);
    }
}

/* A pool that no rule of the optimizer writes takes no memory. */
TEST(momentum_is_paid_for_where_there_is_one)
{
    struct gf_sim *sim = gf_sim_create(&(struct gf_sim_setup){.world = 1});
    static struct gf_config config;
    struct gf_drivers drivers;
    struct gf_footprint without;
    struct gf_footprint with;
    config_of(&config, &drivers, sim, 0, 1);
    config.optimizer.kind = GF_OPTIMIZER_SGD;
    assert_int_equal(gf_measure(&config, tensors, LENGTH(tensors), &without), GF_OK);
    config.optimizer.momentum = 0.9f;
    assert_int_equal(gf_measure(&config, tensors, LENGTH(tensors), &with), GF_OK);
    assert_true(with.control_bytes - without.control_bytes >=
                73011 * sizeof(float) - GF_PAGE_BYTES);
    gf_sim_destroy(sim);
}

/* A file may keep the rest of an optimizer whose kind is none. */
TEST(momentum_without_an_optimizer_is_valid)
{
    struct gf_sim *sim = gf_sim_create(&(struct gf_sim_setup){.world = 1});
    static struct gf_config config;
    struct gf_drivers drivers;
    struct gf_footprint need;
    config_of(&config, &drivers, sim, 0, 1);
    config.optimizer.momentum = 0.9f;
    config.optimizer.nesterov = true;
    assert_int_equal(gf_measure(&config, tensors, LENGTH(tensors), &need), GF_OK);
    config.optimizer.half_weights = GF_TYPE_BF16;
    assert_int_equal(gf_measure(&config, tensors, LENGTH(tensors), &need), GF_ERR_CONFIG);
    gf_sim_destroy(sim);
}

static void set_rank(struct gf_config *config)
{
    config->job.rank = 4;
}
static void set_no_world(struct gf_config *config)
{
    config->job.world = 0;
}
static void set_slice(struct gf_config *config)
{
    config->exchange.slice_bytes = 4097;
}
static void set_device(struct gf_config *config)
{
    (void)snprintf(config->device.driver, sizeof config->device.driver, "cuda");
}
static void set_large(struct gf_config *config)
{
    config->exchange.user_bytes = UINT64_C(1) << 20;
}
static void set_text(struct gf_config *config)
{
    memset(config->link.devices, 'x', sizeof config->link.devices);
}

TEST(configurations_that_cannot_work_are_refused_with_a_reason)
{
    static const struct config_case {
        void (*set)(struct gf_config *config);
        const char *log; /* NULL: valid */
    } cases[] = {{NULL, NULL},
                 {set_large, NULL},
                 {set_rank, "job.rank"},
                 {set_no_world, "job.ignore_environment"},
                 {set_slice, "exchange.slice_bytes"},
                 {set_device, "device.driver \"cuda\" is not in this build; there is \"host\""},
                 {set_text, "link.devices"}};
    for (size_t row = 0; row < LENGTH(cases); row++) {
        struct gf_sim *sim = gf_sim_create(&(struct gf_sim_setup){.world = 4});
        static struct gf_config config;
        struct gf_drivers drivers;
        struct gf_footprint need = {.control_bytes = 77};
        gf_status status;
        config_of(&config, &drivers, sim, 1, 4);
        if (cases[row].set != NULL) cases[row].set(&config);
        status = gf_measure(&config, tensors, LENGTH(tensors), &need);
        if (cases[row].log == NULL) {
            assert_int_equal(status, GF_OK);
        } else {
            assert_int_equal(status, GF_ERR_CONFIG);
            assert_int_equal(need.control_bytes, 77);
            if (strstr(logged, cases[row].log) == NULL) fail_msg("row %zu logged: %s", row, logged);
        }
        gf_sim_destroy(sim);
    }
}
