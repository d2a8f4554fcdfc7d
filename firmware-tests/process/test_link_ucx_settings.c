/* What the UCX link tells UCX, and that it notices what UCX did not take. UCX's calls are seen, and
 * spoilt, on the way (--wrap): each row spoils one, and the open fails with an error that names the
 * key, the value and UCX's version. */
#include "firmware-tests/support/suite.h"
#include "drivers/link.h"
#include "firmware-tests/process/ucx_faults.h"

#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>

#define MESSAGE_BYTES 262144u
#define SEGMENT "263168" /* a message and UCX's own head */
#define PORTS "21000-25999"

typedef enum spoil {
    SPOIL_NOTHING = 0,
    SPOIL_UCP_FORGETS,  /* ucp_config_modify() says "OK" and does nothing */
    SPOIL_UCP_MISTAKES, /* it is given another key, which no transport has */
    SPOIL_TCP_FORGETS,  /* uct_config_modify() likewise */
    SPOIL_TCP_LACKS,    /* it knows the key under no name */
    SPOIL_REQUEST,      /* UCX wants more bytes for a request than there are */
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
    if (spoilt(name, SPOIL_UCP_FORGETS)) return UCS_OK;
    return __real_ucp_config_modify(
        config, spoilt(name, SPOIL_UCP_MISTAKES) ? "GF_NO_SUCH_KEY" : name, value);
}

WRAPPED(ucs_status_t, uct_config_modify, void *config, const char *name, const char *value)
{
    if (spoilt(name, SPOIL_TCP_FORGETS)) return UCS_OK;
    if (spoilt(name, SPOIL_TCP_LACKS)) return UCS_ERR_NO_ELEM;
    return __real_uct_config_modify(config, name, value);
}

WRAPPED(ucs_status_t, ucp_context_query, ucp_context_h context, ucp_context_attr_t *attributes)
{
    ucs_status_t status = __real_ucp_context_query(context, attributes);
    assert_true((attributes->field_mask & UCP_ATTR_FIELD_REQUEST_SIZE) != 0);
    assert_in_range(attributes->request_size, 64, 320);
    if (ucx.how == SPOIL_REQUEST) attributes->request_size = 400;
    return status;
}

static void log_drop(void *user, gf_log_level level, const char *text)
{
}

static struct gf_fault fault;

static gf_status open_and_close(spoil how, const char *key, const char *transports,
                                const char *devices, size_t bytes)
{
    const struct gf_link_setup setup = {.world = 2,
                                        .epoch = 1,
                                        .requests_max = 4,
                                        .message_bytes_max = bytes,
                                        .region_bytes = 4096,
                                        .transports = transports,
                                        .devices = devices,
                                        .ports = PORTS,
                                        .log = {.fn = log_drop}};
    void *state = aligned_alloc(64, (gf_link_ucx.state_bytes(&setup) + 63) / 64 * 64);
    struct gf_link *link = NULL;
    gf_status status;
    memset(&ucx, 0, sizeof ucx);
    memset(&fault, 0, sizeof fault);
    ucx.how = how;
    ucx.key = key;
    status = gf_link_ucx.open(&setup, state, &link, &fault);
    if (status == GF_OK) gf_link_ucx.close(link);
    free(state);
    return status;
}

static gf_status open_plain(const char *transports, const char *devices, size_t bytes)
{
    return open_and_close(SPOIL_NOTHING, NULL, transports, devices, bytes);
}

static bool given(const char *setting)
{
    for (uint32_t i = 0; i < ucx.given_count; i++)
        if (strcmp(ucx.given[i], setting) == 0) return true;
    return false;
}

/* UCX 1.17 put TCP_ in front of what belongs to tcp; the other name was not taken from then on. */
TEST(keys_have_the_names_of_this_version)
{
    static const char *const of_tcp[] = {"PORT_RANGE=" PORTS, "RX_SEG_SIZE=" SEGMENT,
                                         "TX_SEG_SIZE=" SEGMENT};
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    assert_int_equal(open_plain("tcp", "lo", MESSAGE_BYTES), GF_OK);
    ucp_get_version(&major, &minor, &release);
    assert_int_equal(major, 1);
    for (size_t i = 0; i < LENGTH(of_tcp); i++) {
        char setting[64];
        (void)snprintf(setting, sizeof setting, "%s%s", (minor >= 17) ? "TCP_" : "", of_tcp[i]);
        assert_true(given(setting));
    }
    assert_true(given("TLS=tcp") && given("NET_DEVICES=lo"));
    assert_true(given("RNDV_SEND_NBR_THRESH=262145"));
    assert_int_equal(ucx.given_count, 6);
}

/* Messages leave by all devices in turn, and so do pieces of those that are announced first: UCX by
 * itself would use two. These devices are not here. */
TEST(each_device_has_a_lane)
{
    assert_int_equal(open_plain("tcp", "lo,gf1,gf2", MESSAGE_BYTES), GF_ERR_CONFIG);
    assert_true(given("NET_DEVICES=lo,gf1,gf2") && given("MAX_EAGER_LANES=3") &&
                given("MAX_RNDV_LANES=3"));
    assert_int_equal(open_plain("tcp", "lo,gf1,gf2", 4u << 20), GF_ERR_CONFIG);
    assert_true(!given("MAX_EAGER_LANES=3") && given("MAX_RNDV_LANES=3"));
    assert_int_equal(open_plain("rc", "gf0,gf1,gf2", MESSAGE_BYTES), GF_ERR_CONFIG);
    assert_true(!given("MAX_EAGER_LANES=3") && given("MAX_RNDV_LANES=3"));
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
        if ((open_plain("tcp", rows[i][0], MESSAGE_BYTES) != GF_ERR_CONFIG) ||
            (strstr(fault.text, rows[i][1]) == NULL))
            fail_msg("%s: %s", rows[i][0], fault.text);
    assert_int_equal(ucs_global_opts_get_value("LOG_LEVEL", after, sizeof after), UCS_OK);
    assert_string_equal(after, "ERROR");
    assert_int_equal(ucs_global_opts_set_value("LOG_LEVEL", level), UCS_OK);
}

static const struct refused_row {
    const char *name;
    spoil how;
    const char *key, *text; /* of the fault, which names UCX's version too */
    const char *transports, *devices;
} refused_rows[] = {
    {"a_key_of_ucp_has_no_effect", SPOIL_UCP_FORGETS, "RNDV_SEND_NBR_THRESH",
     "RNDV_SEND_NBR_THRESH=262145: it keeps", "tcp", "lo"},
    {"no_transports_were_chosen", SPOIL_UCP_FORGETS, "TLS", "TLS=tcp: it keeps", "tcp", "lo"},
    {"no_devices_were_chosen", SPOIL_UCP_FORGETS, "NET_DEVICES", "NET_DEVICES=lo: it keeps", "tcp",
     "lo"},
    {"messages_by_one_device", SPOIL_UCP_FORGETS, "MAX_EAGER_LANES", "MAX_EAGER_LANES=2: it keeps",
     "tcp", "lo,gf1"},
    {"pieces_by_two_devices", SPOIL_UCP_FORGETS, "MAX_RNDV_LANES", "MAX_RNDV_LANES=3: it keeps",
     "tcp", "lo,gf1,gf2"},
    {"a_segment_has_no_effect", SPOIL_TCP_FORGETS, "RX_SEG_SIZE",
     "RX_SEG_SIZE=" SEGMENT ": it keeps", "tcp", "lo"},
    {"ports_have_no_effect", SPOIL_TCP_FORGETS, "PORT_RANGE", "PORT_RANGE=" PORTS ": it keeps",
     "tcp", "lo"},
    {"tcp_has_no_such_key", SPOIL_TCP_LACKS, "TX_SEG_SIZE", "TX_SEG_SIZE=" SEGMENT ": it keeps",
     "tcp", "lo"},
    {"a_segment_was_dropped_on_the_way", SPOIL_UCP_FORGETS, "RX_SEG_SIZE",
     "RX_SEG_SIZE=" SEGMENT ": it keeps", "tcp", "lo"},
    {"another_was_dropped_on_the_way", SPOIL_UCP_FORGETS, "TX_SEG_SIZE",
     "TX_SEG_SIZE=" SEGMENT ": it keeps", "tcp", "lo"},
    {"ports_were_dropped_on_the_way", SPOIL_UCP_FORGETS, "PORT_RANGE",
     "PORT_RANGE=" PORTS ": it keeps", "tcp", "lo"},
    {"no_transport_knows_the_key", SPOIL_UCP_MISTAKES, "TX_SEG_SIZE", SEGMENT, "tcp", "lo"},
    {"a_request_is_too_large", SPOIL_REQUEST, NULL,
     "wants 400 bytes in front of a request, this build keeps 320", "tcp", "lo"},
};

/* A port that was away for a moment, say. */
TEST(a_link_whose_reset_failed_can_be_reset_again)
{
    const struct gf_link_setup setup = {.world = 2,
                                        .epoch = 1,
                                        .requests_max = 4,
                                        .message_bytes_max = MESSAGE_BYTES,
                                        .transports = "tcp",
                                        .devices = "lo",
                                        .log = {.fn = log_drop}};
    void *memory = aligned_alloc(64, (gf_link_ucx.state_bytes(&setup) + 63) / 64 * 64);
    struct gf_link *link = NULL;
    memset(&ucx, 0, sizeof ucx);
    assert_int_equal(gf_link_ucx.open(&setup, memory, &link, &fault), GF_OK);
    ucx.how = SPOIL_TCP_FORGETS;
    ucx.key = "RX_SEG_SIZE";
    assert_int_equal(gf_link_ucx.reset(link, 2), GF_ERR_CONFIG);
    ucx.how = SPOIL_NOTHING;
    assert_int_equal(gf_link_ucx.reset(link, 3), GF_OK);
    gf_link_ucx.close(link);
    free(memory);
}

TEST(what_ucx_does_not_take_fails_the_open)
{
    char version[32];
    (void)snprintf(version, sizeof version, "UCX %s", ucp_get_version_string());
    for (size_t i = 0; i < LENGTH(refused_rows); i++) {
        const struct refused_row *row = &refused_rows[i];
        gf_status status =
            open_and_close(row->how, row->key, row->transports, row->devices, MESSAGE_BYTES);
        if ((status != ((row->how == SPOIL_REQUEST) ? GF_ERR_LINK : GF_ERR_CONFIG)) ||
            (strstr(fault.text, row->text) == NULL) || (strstr(fault.text, version) == NULL))
            fail_msg("%s: %d, \"%s\"", row->name, (int)status, fault.text);
    }
}
