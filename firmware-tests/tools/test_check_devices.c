/* The devices that gf-check tells for the ranks of a node: a sysfs made up of two sockets with a
 * card and a GPU each, beside a slow card, a bridge and loopback. */
#include "firmware-tests/support/suite.h"
#include "tools/check/check_preflight.h"

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
static void card(const char *kind, const char *name, const char *way, const char *numa,
                 const char *speed_file, const char *speed)
{
    char at[512];
    char to[512];
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

/* A device of PCI that is no network's: its address is the last part of its way. */
static void pci(const char *way, const char *vendor, const char *class)
{
    char at[512];
    char to[512];
    folder(way);
    (void)snprintf(at, sizeof at, "%s/vendor", way);
    file(at, vendor);
    (void)snprintf(at, sizeof at, "%s/class", way);
    file(at, class);
    (void)snprintf(at, sizeof at, "%s/bus/pci/devices%s", root, strrchr(way, '/'));
    (void)snprintf(to, sizeof to, "../../../%s", way);
    assert_int_equal(symlink(to, at), 0);
}

static int node_make(void **state)
{
    (void)snprintf(root, sizeof root, "/tmp/gf_sysfs_XXXXXX");
    if (mkdtemp(root) == NULL) return -1;
    folder("class/infiniband");
    folder("class/net");
    folder("bus/pci/devices");
    card("infiniband", "mlx5_0", "devices/pci0000:10/0000:10:01.0/0000:11:00.0", "0\n",
         "ports/1/rate", "400 Gb/sec (4X NDR)\n");
    card("infiniband", "mlx5_1", "devices/pci0000:80/0000:80:01.0/0000:81:00.0", "1\n",
         "ports/1/rate", "400 Gb/sec (4X NDR)\n");
    card("net", "eth0", "devices/pci0000:10/0000:10:02.0/0000:12:00.0", "0\n", "speed", "25000\n");
    card("net", "docker0", "devices/virtual", "-1\n", "speed", "10000\n");
    card("net", "lo", "devices/virtual", "-1\n", "speed", NULL);
    /* Made in another order than that of their addresses. */
    /* A GPU at the bridge of mlx5_1, one at that of mlx5_0, the console's, and sound. */
    pci("devices/pci0000:80/0000:80:01.0/0000:82:00.0", "0x10de\n", "0x030200\n");
    pci("devices/pci0000:10/0000:10:01.0/0000:13:00.0", "0x10de\n", "0x030200\n");
    pci("devices/pci0000:10/0000:10:03.0/0000:01:00.0", "0x1a03\n", "0x030000\n");
    pci("devices/pci0000:10/0000:10:01.0/0000:13:00.1", "0x10de\n", "0x040300\n");
    return 0;
}

static int node_remove(void **state)
{
    char command[96];
    (void)snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

TEST(each_rank_gets_the_fastest_device_that_is_nearest_to_its_gpu)
{
    static const struct {
        const char *names;
        bool with_gpus;
        uint32_t places;
        const char *devices;
    } cases[] = {
        {"mlx5_0:1,mlx5_1:1", true, 2, "mlx5_0:1;mlx5_1:1"},
        {"mlx5_1:1,mlx5_0:1", true, 2, "mlx5_0:1;mlx5_1:1"}, /* the bridge decides, not the order */
        {"mlx5_0:1,mlx5_1:1", true, 1, "mlx5_0:1"},
        {"mlx5_0:1,mlx5_1:1", true, 8, "mlx5_0:1;mlx5_1:1"}, /* places take groups in turn */
        {"lo,docker0,eth0,mlx5_1:1", true, 2, "mlx5_1:1"},   /* speed before distance */
        {"lo,docker0,eth0", true, 2, "eth0"},
        {"lo,docker0", false, 2, "docker0"},
        {"lo", false, 1, "lo"},
        {"mlx5_0:1,mlx5_1:1,eth0", false, 4, "mlx5_0:1;mlx5_1:1"}, /* equally good: dealt out */
        {"eth7,eth0", false, 3, "eth0"}, /* what is not there does not count */
        {"eth7,a_name_that_is_much_longer_than_any_name_of_a_device_may_be", false, 2, ""},
        {"", false, 2, ""},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        char devices[GF_TEXT_MAX];
        assert_true(
            check_devices_text(root, cases[i].names, cases[i].with_gpus, cases[i].places, devices));
        assert_string_equal(devices, cases[i].devices);
    }
}

TEST(a_line_that_link_devices_cannot_hold_is_not_shortened)
{
    char names[1024] = "";
    char devices[GF_TEXT_MAX];
    for (int i = 0; i < 20; i++) {
        char name[32];
        size_t used = strlen(names);
        (void)snprintf(name, sizeof name, "rather_long_%d", i);
        card("net", name, "devices/virtual", "-1\n", "speed", NULL);
        (void)snprintf(names + used, sizeof names - used, "%s,", name);
    }
    assert_true(check_devices_text(root, names, false, 4, devices));
    assert_string_equal(devices, "rather_long_0;rather_long_1;rather_long_2;rather_long_3");
    assert_false(check_devices_text(root, names, false, 20, devices));
}

TEST(what_a_card_needs_to_reach_a_gpu_is_looked_for)
{
    static const char version[] = "proc/driver/nvidia/version";
    assert_int_equal(check_gpudirect_way(root), CHECK_WAY_NONE);
    folder("proc/driver/nvidia");
    file(version, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\n");
    assert_int_equal(check_gpudirect_way(root), CHECK_WAY_NONE);
    file(version, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15\n");
    assert_int_equal(check_gpudirect_way(root), CHECK_WAY_DMABUF);
    folder("sys/module/nvidia_peermem");
    assert_int_equal(check_gpudirect_way(root), CHECK_WAY_PEERMEM);
}

TEST_AROUND(node_make, node_remove)
