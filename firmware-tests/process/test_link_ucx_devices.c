/* link.devices: a group for each place in the node, and auto, on a sysfs made up of two sockets with a card each,
 * beside a slow one, a bridge and loopback; and opened for real on whatever this host has. */
#include "firmware-tests/support/suite.h"
#include "drivers/ucx/link_ucx.h"

#include <sys/stat.h>
#include <unistd.h>

/* ---- a node made up ---- */

static char root[64];

static void folder(const char *way)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", root, way);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    (void)mkdir(path, 0700);
}

static void file(const char *way, const char *text)
{
    char path[512];
    FILE *out;
    (void)snprintf(path, sizeof path, "%s/%s", root, way);
    out = fopen(path, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

/* class/KIND/NAME leads to WAY/KIND/NAME, and WAY/KIND/NAME/device to WAY. */
static void card(const char *kind, const char *name, const char *way, const char *numa, const char *speed_file,
                 const char *speed)
{
    char at[512], to[512];
    (void)snprintf(at, sizeof at, "%s/%s/%s", way, kind, name);
    folder(at);
    (void)snprintf(at, sizeof at, "%s/class/%s/%s", root, kind, name);
    (void)snprintf(to, sizeof to, "../../%s/%s/%s", way, kind, name);
    assert_int_equal(symlink(to, at), 0);
    (void)snprintf(at, sizeof at, "%s/%s/%s/%s/device", root, way, kind, name);
    assert_int_equal(symlink("../..", at), 0);
    (void)snprintf(at, sizeof at, "%s/numa_node", way);
    file(at, numa);
    if (speed == NULL) return;
    (void)snprintf(at, sizeof at, "%s/%s/%s/%s", way, kind, name, speed_file);
    if (strchr(speed_file, '/') != NULL) {
        char ports[512];
        (void)snprintf(ports, sizeof ports, "%s/%s/%s/ports/1", way, kind, name);
        folder(ports);
    }
    file(at, speed);
}

static int node_make(void **state)
{
    (void)snprintf(root, sizeof root, "/tmp/gf_sysfs_XXXXXX");
    if (mkdtemp(root) == NULL) return -1;
    folder("class/infiniband");
    folder("class/net");
    folder("bus/pci/devices");
    card("infiniband", "mlx5_0", "devices/pci0000:10/0000:10:01.0/0000:11:00.0", "0\n", "ports/1/rate",
         "400 Gb/sec (4X NDR)\n");
    card("infiniband", "mlx5_1", "devices/pci0000:80/0000:80:01.0/0000:81:00.0", "1\n", "ports/1/rate",
         "400 Gb/sec (4X NDR)\n");
    card("net", "eth0", "devices/pci0000:10/0000:10:02.0/0000:12:00.0", "0\n", "speed", "25000\n");
    card("net", "docker0", "devices/virtual", "-1\n", "speed", "10000\n");
    card("net", "lo", "devices/virtual", "-1\n", "speed", NULL);
    folder("devices/pci0000:80/0000:80:01.0/0000:82:00.0"); /* a GPU at the same bridge as mlx5_1 */
    {
        char at[512];
        (void)snprintf(at, sizeof at, "%s/bus/pci/devices/0000:82:00.0", root);
        return symlink("../../../devices/pci0000:80/0000:80:01.0/0000:82:00.0", at);
    }
}

static int node_remove(void **state)
{
    char command[96];
    (void)snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static uint64_t rate(const char *device, const char *near, int numa)
{
    return gf_ucx_device_rate(root, device, near, numa);
}

TEST(a_card_is_better_the_faster_and_nearer_it_is)
{
    static const char gpu[] = "0000:82:00.0";
    assert_true(rate("mlx5_0:1", "", 0) > rate("mlx5_1:1", "", 0)); /* of this NUMA node */
    assert_true(rate("mlx5_1:1", "", 1) > rate("mlx5_0:1", "", 1));
    assert_true(rate("mlx5_1:1", gpu, 0) > rate("mlx5_0:1", gpu, 0)); /* the GPU's bridge counts for more */
    assert_true(rate("mlx5_0:1", "", 1) > rate("eth0", "", 0));       /* speed before distance */
    assert_true(rate("eth0", "", 1) > rate("docker0", "", 1));        /* a card before what is made of software */
    assert_true(rate("docker0", "", 0) > rate("lo", "", 0));
    assert_true(rate("lo", "", 0) > 0);
    assert_int_equal(rate("eth7", "", 0), 0);
    assert_int_equal(rate("a_name_that_is_much_longer_than_any_name_of_a_device_may_be", "", 0), 0);
    assert_true(rate("mlx5_0:1", "0000:99:00.0", 0) == rate("mlx5_0:1", "", 0)); /* no such GPU */
}

TEST(each_place_in_the_node_has_its_group)
{
    static const struct {
        const char *asked;
        uint32_t local;
        const char *devices;
    } cases[] = {{"eth0", 0, "eth0"}, {"eth0", 5, "eth0"}, {"eth0,eth1", 3, "eth0,eth1"}, {"a;b", 0, "a"},
                 {"a;b", 1, "b"}, {"a;b", 2, "a"}, {"a,b;c", 0, "a,b"}, {"a,b;c", 1, "c"}, {"auto", 1, "auto"}};
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

/* On one node; then, if the link has to, on several. */
static gf_status open_with(const char *transports, const char *devices, struct gf_fault *fault)
{
    const struct gf_link_setup setup = {.world = 1, .requests_max = 4, .message_bytes_max = 4096, .one_node = true,
                                        .transports = transports, .devices = devices, .ports = "21000-25999",
                                        .log = {.fn = hear}};
    void *state = aligned_alloc(64, (gf_link_ucx.state_bytes(&setup) + 63) / 64 * 64);
    struct gf_link *link = NULL;
    gf_status status;
    heard[0] = '\0';
    assert_non_null(state);
    status = gf_link_ucx.open(&setup, state, &link, fault);
    if ((status == GF_OK) && !link->network && (strstr(transports, "tcp") != NULL))
        status = gf_link_ucx.network(link, true);
    if (link != NULL) gf_link_ucx.close(link);
    free(state);
    return status;
}

TEST(auto_opens_and_says_what_it_took)
{
    struct gf_fault fault = {0};
    if (open_with("self,tcp", "auto", &fault) != GF_OK) fail_msg("%s\n%s", fault.text, heard);
    assert_non_null(strstr(heard, "link: devices auto: "));
    assert_non_null(strstr(heard, ", number 1 of "));
    assert_null(strstr(heard, "devices auto, ports")); /* the name, not the word, is what UCX was given */
}

/* One node leaves by no device; when several nodes are met, the line that opens the network names it. */
TEST(what_opens_the_network_names_the_devices)
{
    struct gf_fault fault = {0};
    if (open_with("self,posix,tcp", "auto", &fault) != GF_OK) fail_msg("%s\n%s", fault.text, heard);
    if (strstr(heard, "transports self,posix, devices none, ports ") == NULL) fail_msg("%s", heard);
    const char *chosen = strstr(heard, "link: devices auto: "), *taken = strstr(heard, "self,posix,tcp, devices ");
    if ((chosen == NULL) || (taken == NULL)) fail_msg("%s", heard);
    chosen += strlen("link: devices auto: ");
    taken += strlen("self,posix,tcp, devices ");
    assert_int_equal(strcspn(taken, "\n"), strcspn(chosen, ","));
    assert_memory_equal(taken, chosen, strcspn(chosen, ","));
}

TEST(auto_without_a_network_looks_for_nothing)
{
    struct gf_fault fault = {0};
    assert_int_equal(open_with("self,posix", "auto", &fault), GF_OK);
    assert_null(strstr(heard, "devices auto: "));
}

TEST_AROUND(node_make, node_remove)
