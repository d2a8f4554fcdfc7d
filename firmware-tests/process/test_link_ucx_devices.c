/* link.devices: a group for each place in the node, opened for real on loopback. */
#include "firmware-tests/support/suite.h"
#include "drivers/ucx/link_ucx.h"

TEST(each_place_in_the_node_has_its_group)
{
    static const struct {
        const char *asked;
        uint32_t local;
        const char *devices;
    } cases[] = {{"eth0", 0, "eth0"}, {"eth0", 5, "eth0"}, {"eth0,eth1", 3, "eth0,eth1"},
                 {"a;b", 0, "a"},     {"a;b", 1, "b"},     {"a;b", 2, "a"},
                 {"a,b;c", 0, "a,b"}, {"a,b;c", 1, "c"}};
    for (size_t i = 0; i < LENGTH(cases); i++) {
        char devices[GF_TEXT_MAX];
        gf_ucx_devices_group(cases[i].asked, cases[i].local, devices);
        assert_string_equal(devices, cases[i].devices);
    }
}
/* ---- for real ---- */

static char heard[4096];

static void hear(void *user, gf_log_level level, const char *text)
{
    size_t used = strlen(heard);
    (void)snprintf(heard + used, sizeof heard - used, "%s\n", text);
}

/* One node leaves by no device; when several nodes are met, the line that opens the network names
 * this rank's. */
TEST(what_opens_the_network_names_the_devices)
{
    const struct gf_link_setup setup = {.world = 1,
                                        .requests_max = 4,
                                        .message_bytes_max = 4096,
                                        .one_node = true,
                                        .local = 1,
                                        .transports = "tcp",
                                        .devices = "gfnone0;lo",
                                        .ports = "21000-25999",
                                        .log = {.fn = hear}};
    struct gf_fault fault = {0};
    struct gf_link *link = NULL;
    void *memory = aligned_alloc(64, (gf_link_ucx.state_bytes(&setup) + 63) / 64 * 64);
    assert_non_null(memory);
    if (gf_link_ucx.open(&setup, memory, &link, &fault) != GF_OK)
        fail_msg("%s\n%s", fault.text, heard);
    if (strstr(heard, "no network is open") == NULL) fail_msg("%s", heard);
    if (gf_link_ucx.network(link, true) != GF_OK) fail_msg("%s\n%s", link->fault.text, heard);
    if (strstr(heard, "transports tcp, devices lo, ports 21000-25999\n") == NULL)
        fail_msg("%s", heard);
    gf_link_ucx.close(link);
    free(memory);
}
