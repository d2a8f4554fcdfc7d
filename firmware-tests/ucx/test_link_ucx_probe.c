/* What link.driver = auto asks of UCX: is a fabric named, or is a port of InfiniBand active here?
 * The host's verbs devices are a folder of this test's (--wrap).
 * suite: slow
 * link: wrap opendir fopen access */
#include "firmware-tests/support/suite.h"
#include "drivers/link.h"
#include "firmware-tests/ucx/ucx_faults.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERBS "/sys/class/infiniband"

static char root[] = "/tmp/gf-verbs-XXXXXX";

static const char *led(const char *path, char led_out[512])
{
    if (strncmp(path, VERBS, strlen(VERBS)) != 0) return path;
    (void)snprintf(led_out, 512, "%s%s", root, path + strlen(VERBS));
    return led_out;
}

WRAPPED(DIR *, opendir, const char *path)
{
    char other[512];
    return __real_opendir(led(path, other));
}

WRAPPED(FILE *, fopen, const char *path, const char *mode)
{
    char other[512];
    return __real_fopen(led(path, other), mode);
}

WRAPPED(int, access, const char *path, int mode)
{
    char other[512];
    return __real_access(led(path, other), mode);
}

static void file_write(const char *folder, const char *name, const char *text)
{
    char path[512];
    FILE *file;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "%s\n", text) > 0);
    assert_int_equal(fclose(file), 0);
}

/* Port 1 of gf0, and a file beside it as sysfs has. */
static void port_set(const char *link_layer, const char *state)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/gf0", root);
    (void)mkdir(path, 0700);
    file_write(path, "node_type", "1: CA");
    (void)snprintf(path, sizeof path, "%s/gf0/ports", root);
    (void)mkdir(path, 0700);
    (void)snprintf(path, sizeof path, "%s/gf0/ports/1", root);
    (void)mkdir(path, 0700);
    file_write(path, "link_layer", link_layer);
    file_write(path, "state", state);
}

static int root_make(void **state)
{
    return (mkdtemp(root) != NULL) ? 0 : -1;
}

static int root_remove(void **state)
{
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static const struct probe_case {
    const char *name, *transports, *devices;
    uint32_t local;
    bool key, trusted;
    const char *text; /* part of why not; NULL: the fabric is used */
} named[] = {
    {"a_transport_is_named", "rc", "", 0, false, false, NULL},
    {"one_beside_tcp", "tcp,ud", "", 0, false, false, NULL},
    {"a_device_is_named", "", "gf0:1", 0, false, false, NULL},
    {"one_without_its_port", "", "gf0", 0, false, false, NULL},
    {"of_this_rank", "", "eth0;gf0:1", 1, false, false, NULL},
    {"of_another_rank", "", "eth0;gf0:1", 0, false, false, "no InfiniBand port is active here"},
    {"tcp_is_no_fabric", "tcp", "eth0", 0, false, false, "no InfiniBand port is active here"},
    {"with_a_key", "rc", "gf0:1", 0, true, false, "link.trusted_fabric = false"},
    {"with_a_key_where_none_is_named", "", "", 0, true, false, "link.trusted_fabric = false"},
    {"with_a_key_and_trusted", "rc", "", 0, true, true, NULL},
    {"which_makes_no_port", "", "", 0, true, true, "no InfiniBand port is active here"},
};

static void probe_check(const struct probe_case *c)
{
    const struct gf_link_setup setup = {.world = 2,
                                        .ranks_max = 2,
                                        .transports = c->transports,
                                        .devices = c->devices,
                                        .local = c->local,
                                        .key_file = c->key ? "/etc/job.key" : "",
                                        .trusted_fabric = c->trusted};
    char text[200] = "nothing";
    gf_fabric fabric = gf_link_ucx.probe(&setup, text, sizeof text);
    bool found = (fabric == GF_FABRIC_FOUND);
    assert_int_equal(fabric == GF_FABRIC_UNBUILT, strstr(text, "not in this binary") != NULL);
    if ((found != (c->text == NULL)) || (!found && (strstr(text, c->text) == NULL)))
        fail_msg("%s: %d, \"%s\"", c->name, found, text);
}

TEST(a_named_fabric_is_used_unless_a_key_asks_for_more)
{
    port_set("Ethernet", "4: ACTIVE");
    for (size_t i = 0; i < LENGTH(named); i++) probe_check(&named[i]);
}

/* RoCE is Ethernet. Whether this program has UCX's part for an active port, too, is UCX's to
 * say. */
TEST(a_port_that_nobody_named_is_to_be_infinibands_and_active)
{
    static const char *const ports[][2] = {
        {"InfiniBand", "1: DOWN"}, {"InfiniBand", "2: INIT"}, {"Ethernet", "4: ACTIVE"}};
    struct probe_case c = {"no_port", "", "", 0, false, false, "no InfiniBand port is active here"};
    for (size_t i = 0; i < LENGTH(ports); i++) {
        port_set(ports[i][0], ports[i][1]);
        probe_check(&c);
    }
    port_set("InfiniBand", "4: ACTIVE");
    c.name = "an_active_port_and_no_device_of_ucx";
    c.text = "\"ib\" is";
    probe_check(&c);
}

TEST(a_host_without_verbs_has_no_fabric)
{
    const struct probe_case c = {
        "no_verbs", "", "gf0:1", 0, false, false, "no InfiniBand port is active here"};
    assert_int_equal(root_remove(NULL), 0);
    probe_check(&c);
    assert_int_equal(mkdir(root, 0700), 0);
}

TEST_AROUND(root_make, root_remove)
