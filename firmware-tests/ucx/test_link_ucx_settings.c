/* What the UCX link tells UCX, and that it notices what UCX did not take. UCX's calls are seen, and
 * spoilt, on the way (--wrap): each row spoils one, and the open fails with an error that names the
 * key, the value and UCX's version.
 * suite: slow
 * link: wrap ucp_config_modify ucp_context_query ucp_worker_create */
#include "firmware-tests/support/suite.h"
#include "drivers/link.h"
#include "firmware-tests/ucx/ucx_faults.h"

#include <pthread.h>
#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/log_def.h>

#define MESSAGE_BYTES 262144u
typedef enum spoil {
    SPOIL_NOTHING = 0,
    SPOIL_UCP_MORE, /* it is given another key, too, which no transport has */
    SPOIL_WORKER,   /* there is no worker */
    SPOIL_REQUEST,  /* UCX wants more bytes for a request than there are */
} spoil;

static struct {
    spoil how;
    const char *key;     /* which; a key that ends with this */
    char given[16][160]; /* "KEY=VALUE" as UCP was given them */
    uint32_t given_count;
} ucx;

static bool spoilt(const char *name, spoil how)
{
    size_t name_bytes = strlen(name);
    size_t key_bytes = (ucx.key != NULL) ? strlen(ucx.key) : 0;
    return (ucx.how == how) && (key_bytes <= name_bytes) &&
           (strcmp(name + name_bytes - key_bytes, ucx.key) == 0);
}

WRAPPED(ucs_status_t, ucp_config_modify, ucp_config_t *config, const char *name, const char *value)
{
    assert_true(ucx.given_count < 16);
    (void)snprintf(ucx.given[ucx.given_count++], sizeof ucx.given[0], "%s=%s", name, value);
    if (spoilt(name, SPOIL_UCP_MORE))
        (void)__real_ucp_config_modify(config, "GF_NO_SUCH_KEY", "17");
    return __real_ucp_config_modify(config, name, value);
}

WRAPPED(ucs_status_t, ucp_worker_create, ucp_context_h context, const ucp_worker_params_t *params,
        ucp_worker_h *worker_out)
{
    if (ucx.how == SPOIL_WORKER) return UCS_ERR_NO_DEVICE;
    /* a context is used by one thread at a time, which need not be the one that opened it */
    assert_int_equal(params->thread_mode, UCS_THREAD_MODE_SERIALIZED);
    return __real_ucp_worker_create(context, params, worker_out);
}

WRAPPED(ucs_status_t, ucp_context_query, ucp_context_h context, ucp_context_attr_t *attributes)
{
    ucs_status_t status = __real_ucp_context_query(context, attributes);
    assert_true((attributes->field_mask & UCP_ATTR_FIELD_REQUEST_SIZE) != 0);
    assert_in_range(attributes->request_size, 64, 320);
    if (ucx.how == SPOIL_REQUEST) attributes->request_size = 400;
    return status;
}

static char heard[4096];

static void hear(void *user, gf_log_level level, const char *text)
{
    size_t used = strlen(heard);
    (void)snprintf(heard + used, sizeof heard - used, "%s\n", text);
}

static struct gf_fault fault;

static const struct gf_link_setup plain = {.world = 2,
                                           .ranks_max = 2,
                                           .generation = 1,
                                           .requests_max = 4,
                                           .message_bytes_max = 262144,
                                           .region_bytes = 4096,
                                           .insecure = true,
                                           .transports = "tcp",
                                           .devices = "lo",
                                           .log = {.fn = hear}};

static gf_status open_and_close(spoil how, const char *key, const struct gf_link_setup *setup)
{
    void *state = aligned_alloc(64, (gf_link_ucx.state_bytes(setup) + 63) / 64 * 64);
    struct gf_link *link = NULL;
    gf_status status;
    memset(&ucx, 0, sizeof ucx);
    memset(&fault, 0, sizeof fault);
    memset(heard, 0, sizeof heard);
    ucx.how = how;
    ucx.key = key;
    status = gf_link_ucx.open(setup, state, &link, &fault);
    if (status == GF_OK) gf_link_ucx.close(link);
    free(state);
    return status;
}

static gf_status open_plain(const char *transports, const char *devices)
{
    struct gf_link_setup setup = plain;
    setup.transports = transports;
    setup.devices = devices;
    return open_and_close(SPOIL_NOTHING, NULL, &setup);
}

static bool given(const char *setting)
{
    for (uint32_t i = 0; i < ucx.given_count; i++)
        if (strcmp(ucx.given[i], setting) == 0) return true;
    return false;
}

/* Not more than what the file says: what else UCX does is UCX's, and its environment's. */
TEST(ucx_is_told_what_the_file_says)
{
    assert_int_equal(open_plain("tcp", "lo"), GF_OK);
    assert_true(given("TLS=tcp") && given("NET_DEVICES=lo"));
    assert_int_equal(ucx.given_count, 2);
    assert_int_equal(open_plain("tcp", ""), GF_OK);
    assert_true(given("TLS=tcp"));
    assert_int_equal(ucx.given_count, 1);
}

TEST(without_a_transport_it_is_infinibands)
{
    static const char *const none[] = {NULL, ""};
    for (size_t i = 0; i < LENGTH(none); i++) {
        (void)open_plain(none[i], "gf0:1"); /* which is not here */
        assert_true(given("TLS=ib") && given("NET_DEVICES=gf0:1"));
    }
}

/* Large messages leave by all devices in turn: UCX by itself would use two. These devices are not
 * here. */
TEST(each_device_has_a_lane)
{
    assert_int_equal(open_plain("tcp", "lo,gf1,gf2"), GF_ERR_CONFIG);
    assert_true(given("NET_DEVICES=lo,gf1,gf2") && given("MAX_RNDV_LANES=3"));
    assert_int_equal(open_plain("rc", "gf0,gf1,gf2"), GF_ERR_CONFIG);
    assert_true(given("MAX_RNDV_LANES=3"));
}

/* How long a stopped rank is waited for is exchange.timeout's, unless the environment says it. */
TEST(a_peer_over_ud_may_be_late)
{
    static const char *const with[] = {"ud", "rc", "ib", "ud_verbs", "rc_verbs,ud_verbs"};
    static const char *const without[] = {"tcp", "rc_verbs"};
    for (size_t i = 0; i < LENGTH(with); i++) {
        (void)open_plain(with[i], "gf0:1");
        assert_true(given("UD_TIMEOUT=86400000000.00us"));
    }
    for (size_t i = 0; i < LENGTH(without); i++) {
        (void)open_plain(without[i], "lo");
        assert_false(given("UD_TIMEOUT=86400000000.00us"));
    }
    assert_int_equal(setenv("UCX_UD_TIMEOUT", "2s", 1), 0);
    (void)open_plain("ud", "gf0:1");
    assert_false(given("UD_TIMEOUT=86400000000.00us"));
    assert_int_equal(unsetenv("UCX_UD_TIMEOUT"), 0);
}

/* Of a;b a rank uses those of its local rank. */
TEST(the_open_network_is_told_with_its_devices)
{
    struct gf_link_setup setup = plain;
    setup.devices = "gfnone0;lo";
    setup.local = 1;
    if (open_and_close(SPOIL_NOTHING, NULL, &setup) != GF_OK) fail_msg("%s\n%s", fault.text, heard);
    if (strstr(heard, "transports tcp, devices lo\n") == NULL) fail_msg("%s", heard);
    setup.devices = "";
    assert_int_equal(open_and_close(SPOIL_NOTHING, NULL, &setup), GF_OK);
    if (strstr(heard, "transports tcp, devices any\n") == NULL) fail_msg("%s", heard);
}

/* UCX says in a warning that a device is missing, and opens what else there is. */
TEST(a_missing_device_is_named_where_ucx_logs_errors_alone)
{
    static const char *const rows[][2] = {{"lo,gf1", "'gf1' is not available"},
                                          {"lo,gf1,gf2", "are not available"}};
    char level[32];
    char after[32];
    assert_int_equal(ucs_global_opts_get_value("LOG_LEVEL", level, sizeof level), UCS_OK);
    assert_int_equal(ucs_global_opts_set_value("LOG_LEVEL", "error"), UCS_OK);
    for (size_t i = 0; i < LENGTH(rows); i++)
        if ((open_plain("tcp", rows[i][0]) != GF_ERR_CONFIG) ||
            (strstr(fault.text, rows[i][1]) == NULL))
            fail_msg("%s: %s", rows[i][0], fault.text);
    assert_int_equal(ucs_global_opts_get_value("LOG_LEVEL", after, sizeof after), UCS_OK);
    assert_string_equal(after, "ERROR");
    assert_int_equal(ucs_global_opts_set_value("LOG_LEVEL", level), UCS_OK);
}

static pthread_barrier_t meet;

/* As the row above, in two threads at once: each hears what UCX said to it. */
static void *miss_a_device(void *answers)
{
    struct gf_link_setup setup = plain;
    struct gf_fault said = {.code = GF_OK};
    struct gf_link *link = NULL;
    void *state = aligned_alloc(64, (gf_link_ucx.state_bytes(&setup) + 63) / 64 * 64);
    uint32_t *wrong = answers;
    setup.devices = "lo,gf1";
    setup.log.fn = NULL;
    for (uint32_t i = 0; i < 20; i++) {
        gf_status status;
        if (pthread_barrier_wait(&meet) == PTHREAD_BARRIER_SERIAL_THREAD) ucx.given_count = 0;
        (void)pthread_barrier_wait(&meet);
        status = gf_link_ucx.open(&setup, state, &link, &said);
        if (status == GF_OK) gf_link_ucx.close(link);
        if ((status != GF_ERR_CONFIG) || (strstr(said.text, "'gf1' is not available") == NULL))
            (*wrong)++;
        said = (struct gf_fault){.code = GF_OK};
    }
    free(state);
    return NULL;
}

TEST(two_threads_open_at_once)
{
    pthread_t threads[2];
    uint32_t wrong[2] = {0, 0};
    char level[32];
    char after[32];
    memset(&ucx, 0, sizeof ucx);
    assert_int_equal(pthread_barrier_init(&meet, NULL, 2), 0);
    assert_int_equal(ucs_global_opts_get_value("LOG_LEVEL", level, sizeof level), UCS_OK);
    assert_int_equal(ucs_global_opts_set_value("LOG_LEVEL", "error"), UCS_OK);
    for (uint32_t t = 0; t < 2; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, miss_a_device, &wrong[t]), 0);
    for (uint32_t t = 0; t < 2; t++) assert_int_equal(pthread_join(threads[t], NULL), 0);
    assert_int_equal(wrong[0] + wrong[1], 0);
    assert_int_equal(ucs_global_opts_get_value("LOG_LEVEL", after, sizeof after), UCS_OK);
    assert_string_equal(after, "ERROR");
    assert_int_equal(ucs_global_opts_set_value("LOG_LEVEL", level), UCS_OK);
}

static void *say(void *text)
{
    static ucs_log_component_config_t component = {.log_level = UCS_LOG_LEVEL_WARN, .name = "ROW"};
    ucs_log_dispatch(__FILE__, __LINE__, "a_thread", UCS_LOG_LEVEL_ERROR, &component, "says %s",
                     (const char *)text);
    return NULL;
}

static void thread_says(char *text)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, say, text), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

TEST(what_ucx_says_on_a_thread_of_its_own_is_told_in_a_poll)
{
    void *memory = aligned_alloc(64, (gf_link_ucx.state_bytes(&plain) + 63) / 64 * 64);
    struct gf_link *link = NULL;
    memset(&ucx, 0, sizeof ucx);
    memset(&fault, 0, sizeof fault);
    assert_int_equal(gf_link_ucx.open(&plain, memory, &link, &fault), GF_OK);
    memset(heard, 0, sizeof heard);
    thread_says("one");
    assert_string_equal(heard, "");
    (void)gf_link_ucx.progress(link);
    assert_non_null(strstr(heard, "UCX a_thread: says one\n"));
    memset(heard, 0, sizeof heard);
    thread_says("two");
    gf_link_ucx.close(link);
    assert_non_null(strstr(heard, "UCX a_thread: says two\n"));
    free(memory);
}

static const struct refused_row {
    const char *name;
    spoil how;
    const char *key, *text; /* of the fault, which names UCX's version too */
    const char *transports, *devices;
} refused_rows[] = {
    {"no_transport_knows_a_key", SPOIL_UCP_MORE, "TLS", "GF_NO_SUCH_KEY", "tcp", "lo"},
    {"a_request_is_too_large", SPOIL_REQUEST, NULL,
     "wants 400 bytes in front of a request, this build keeps 320", "tcp", "lo"},
};

/* A port that was away for a moment, say. */
TEST(a_link_whose_reset_failed_can_be_reset_again)
{
    void *memory = aligned_alloc(64, (gf_link_ucx.state_bytes(&plain) + 63) / 64 * 64);
    struct gf_link *link = NULL;
    memset(&ucx, 0, sizeof ucx);
    assert_int_equal(gf_link_ucx.open(&plain, memory, &link, &fault), GF_OK);
    ucx.how = SPOIL_WORKER;
    assert_int_equal(gf_link_ucx.reset(link, 2, 0, 2), GF_ERR_LINK);
    assert_false(link->driver->progress(link));
    ucx.how = SPOIL_NOTHING;
    assert_int_equal(gf_link_ucx.reset(link, 3, 0, 2), GF_OK);
    gf_link_ucx.close(link);
    free(memory);
}

TEST(what_ucx_does_not_take_fails_the_open)
{
    char version[32];
    (void)snprintf(version, sizeof version, "UCX %s", ucp_get_version_string());
    for (size_t i = 0; i < LENGTH(refused_rows); i++) {
        const struct refused_row *row = &refused_rows[i];
        struct gf_link_setup setup = plain;
        gf_status status;
        /* 1.23 tells nobody of a key that no transport has */
        if ((row->how == SPOIL_UCP_MORE) && (UCP_API_VERSION >= UCP_VERSION(1, 23))) continue;
        setup.transports = row->transports;
        setup.devices = row->devices;
        status = open_and_close(row->how, row->key, &setup);
        if ((status != ((row->how == SPOIL_REQUEST) ? GF_ERR_LINK : GF_ERR_CONFIG)) ||
            (strstr(fault.text, row->text) == NULL) || (strstr(fault.text, version) == NULL))
            fail_msg("%s: %d, \"%s\"", row->name, (int)status, fault.text);
    }
}
