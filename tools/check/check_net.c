/* The network as the configuration names it: what carries messages between nodes, interfaces,
 * descriptors, ports, and the control address. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/check/check_preflight.h"
#include "drivers/devices.h"
#include "drivers/drivers.h"
#include "drivers/tcp/socket.h"
#include "lib/settings/settings.h"
#include "tools/common/tool_clock.h"
#include "tools/common/tool_port.h"

#define DEVICE_BYTES 64u

bool check_item_next(const char **at, char *item_out, size_t item_bytes)
{
    size_t length;
    *at += strspn(*at, ",; ");
    length = strcspn(*at, ",; ");
    if (length == 0) return false;
    (void)snprintf(item_out, item_bytes, "%.*s", (int)length, *at);
    *at += length;
    return true;
}

bool check_list_has(const char *list, const char *name)
{
    char item[DEVICE_BYTES];
    while (check_item_next(&list, item, sizeof item))
        if (strcmp(item, name) == 0) return true;
    return false;
}

/* ---- what carries messages between nodes ---- */

static void fabric_heard(void *user, gf_log_level level, const char *text)
{
    (void)level;
    (void)sscanf(text, "link: UCX %31[0-9.]", (char *)user);
}

/* The driver is opened as a rank of a job of one would, without a region. */
static void fabric_say(struct check_report *report, struct check_job *job,
                       const struct gf_link_driver *driver, struct gf_link_setup *setup)
{
    struct gf_fault fault = {0};
    struct gf_link *link = NULL;
    char version[32] = "";
    void *state = aligned_alloc(64, (driver->state_bytes(setup) + 63) / 64 * 64);
    gf_status status;
    if (state == NULL) return;
    setup->log = (struct gf_log){.fn = fabric_heard, .user = version};
    status = driver->open(setup, state, &link, &fault);
    if (status == GF_OK) driver->close(link);
    free(state);
    if (status == GF_OK)
        check_say(report, "link", CHECK_OK, NULL, "UCX %s between nodes: %s are there, on %s",
                  version, (setup->transports[0] != '\0') ? setup->transports : "rc, ud, dc",
                  (job->config.link.devices[0] != '\0') ? job->config.link.devices : "any");
    else
        check_say(report, "link", CHECK_FAIL,
                  "name others in link.transports and link.devices, or link with what is missing",
                  "%s", fault.text);
}

void check_link(struct check_report *report, struct check_job *job)
{
    const struct gf_link_driver *fabric = gf_drivers_default->fabric;
    const struct gf_config *config = &job->config;
    char why[200] = "link.driver = tcp";
    struct gf_link_setup setup = {
        .world = 1,
        .ranks_max = 1,
        .requests_max = 4,
        .message_bytes_max = 4096,
        .transports = config->link.transports,
        .devices = config->link.devices,
        .local = job->local,
        .key_file = config->rendezvous.key_file,
        .insecure = config->rendezvous.insecure,
        .trusted_fabric = config->link.trusted_fabric,
    };
    char group[GF_TEXT_MAX];
    check_say(report, "libraries", CHECK_OK, NULL, "gradientflow %d.%d, %s UCX", GF_VERSION_MAJOR,
              GF_VERSION_MINOR, (fabric != NULL) ? "with" : "without");
    job->fabric = config->link.driver == GF_LINK_UCX;
    if (fabric == NULL)
        (void)snprintf(why, sizeof why, "this program has no UCX");
    else if (config->link.driver == GF_LINK_AUTO)
        job->fabric = fabric->probe(&setup, why, sizeof why) == GF_FABRIC_FOUND;
    gf_devices_group(config->link.devices, job->local, group);
    (void)snprintf(job->config.link.devices, sizeof job->config.link.devices, "%s", group);
    setup.devices = job->config.link.devices;
    setup.local = 0;
    if (!job->fabric)
        check_say(report, "link", CHECK_OK, NULL, "sockets between nodes: %s", why);
    else if (fabric == NULL)
        check_say(report, "link", CHECK_FAIL, "install libucx-dev and build again",
                  "link.driver = ucx, and this program has no UCX");
    else
        fabric_say(report, job, fabric, &setup);
}

/* ---- interfaces ---- */

struct device {
    bool there, up, has_address, loopback;
};

static struct device device_look(const struct ifaddrs *all, const char *name)
{
    struct device device = {0};
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        if (strcmp(at->ifa_name, name) != 0) continue;
        device.there = true;
        device.up = (at->ifa_flags & IFF_UP) && (at->ifa_flags & IFF_RUNNING);
        device.loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
        if ((at->ifa_addr != NULL) &&
            ((at->ifa_addr->sa_family == AF_INET) || (at->ifa_addr->sa_family == AF_INET6)))
            device.has_address = true;
    }
    return device;
}

/* "mlx5_0:1": is port 1 of mlx5_0 active? state_out[32] as the kernel says it ("4: ACTIVE"). */
static bool infiniband_look(const char *name, char *state_out)
{
    char path[160];
    size_t length = strcspn(name, ":");
    FILE *file;
    (void)snprintf(path, sizeof path, "/sys/class/infiniband/%.*s/ports/%s/state", (int)length,
                   name, (name[length] == ':') ? name + length + 1 : "1");
    if ((strchr(name, '/') != NULL) || ((file = fopen(path, "r")) == NULL)) return false;
    if (fgets(state_out, 32, file) == NULL) state_out[0] = '\0';
    state_out[strcspn(state_out, "\n")] = '\0';
    (void)fclose(file);
    return true;
}

static void names_list(const struct ifaddrs *all, char *text, size_t text_bytes)
{
    size_t at = 0;
    text[0] = '\0';
    for (; all != NULL; all = all->ifa_next) {
        if (check_list_has(text, all->ifa_name) || (at + strlen(all->ifa_name) + 3 > text_bytes))
            continue;
        at += (size_t)snprintf(text + at, text_bytes - at, "%s%s", at ? ", " : "", all->ifa_name);
    }
}

/* Whether it reaches other nodes shows only the join of ranks there, over sockets. */
static bool reach_is_asked(const struct check_job *job, const struct device *device)
{
    return job->launched && !job->fabric && device->up && device->has_address && !device->loopback;
}

static void device_say(struct check_report *report, const struct check_job *job,
                       const struct ifaddrs *all, const char *name)
{
    struct device device = device_look(all, name);
    char text[CHECK_TEXT_BYTES / 2];
    char state[32] = "";
    if (!device.there && infiniband_look(name, state)) {
        bool active = strstr(state, "ACTIVE") != NULL;
        check_say(report, "interface", active ? CHECK_OK : CHECK_FAIL,
                  active ? NULL : "cable, subnet manager (ibstat)", "%s is %s", name, state);
    } else if (!device.there) {
        names_list(all, text, sizeof text);
        check_say(report, "interface", CHECK_FAIL, "put one of them into link.devices",
                  "there is no %s here; there are %s", name, text);
    } else if (!device.up || !device.has_address) {
        (void)snprintf(text, sizeof text, device.up ? "give %s an address" : "ip link set %s up",
                       name);
        check_say(report, "interface", CHECK_FAIL, text, "%s %s", name,
                  device.up ? "has no address" : "is down");
    } else if (device.loopback && (job->node_count > 1)) {
        check_say(report, "interface", CHECK_FAIL,
                  "put the interface between the nodes into link.devices",
                  "%s reaches this node alone, and the ranks are on %u nodes", name,
                  job->node_count);
    } else if (device.loopback && !gf_ip_loopback(job->config.rendezvous.address)) {
        check_say(report, "interface", CHECK_WARN,
                  "for several nodes put the interface between them into link.devices",
                  "%s reaches this node alone, and rendezvous.address is %s", name,
                  job->config.rendezvous.address);
    } else if (!reach_is_asked(job, &device)) {
        check_say(report, "interface", CHECK_OK, NULL, "%s is up", name);
    }
}

/* The line of one that is as it should be here. Nodes that have one name are counted as one. */
static void reach_say(struct check_report *report, const struct check_job *job, const char *name,
                      check_met met)
{
    if (met == CHECK_APART)
        check_say(report, "interface", CHECK_FAIL,
                  "is it the network between the nodes? a route, a firewall",
                  "%s is up, but ranks do not reach each other: the line \"join\" has whom and how",
                  name);
    else if (job->node_count <= 1)
        check_say(report, "interface", CHECK_OK, NULL, "%s is up", name);
    else if (met == CHECK_MET)
        check_say(report, "interface", CHECK_OK, NULL, "%s is up and reaches the other nodes",
                  name);
    else
        check_say(report, "interface", CHECK_SKIP, NULL,
                  "%s is up; whether it reaches the other nodes was not found out", name);
}

/* Once the join has shown it: each device carries a connection to each rank of another node. */
void check_interfaces_reach(struct check_report *report, const struct check_job *job, check_met met)
{
    const char *devices = job->config.link.devices;
    char name[DEVICE_BYTES];
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) return;
    while (check_item_next(&devices, name, sizeof name)) {
        struct device device = device_look(all, name);
        if (reach_is_asked(job, &device)) reach_say(report, job, name, met);
    }
    freeifaddrs(all);
}

static bool address_is_here(const struct ifaddrs *all, const struct gf_addr *wanted)
{
    for (; all != NULL; all = all->ifa_next) {
        struct gf_addr addr;
        if ((all->ifa_addr != NULL) && gf_addr_of(all->ifa_addr, &addr) &&
            (addr.family == wanted->family) && (addr.scope == wanted->scope) &&
            (memcmp(addr.ip, wanted->ip, sizeof addr.ip) == 0))
            return true;
    }
    return false;
}

void check_interfaces(struct check_report *report, const struct check_job *job)
{
    const char *devices = job->config.link.devices;
    const char *bind_to = job->config.rendezvous.bind;
    char name[DEVICE_BYTES];
    struct gf_addr bound;
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) all = NULL;
    while (check_item_next(&devices, name, sizeof name)) device_say(report, job, all, name);
    if ((bind_to[0] != '\0') &&
        (!gf_addr_parse(bind_to, false, &bound) || !address_is_here(all, &bound)))
        check_say(report, "bind", CHECK_FAIL,
                  "set rendezvous.bind to an address of this node, or leave it out",
                  "rendezvous.bind %s is no address of this node", bind_to);
    else if (bind_to[0] != '\0')
        check_say(report, "bind", CHECK_OK, NULL, "rendezvous.bind %s is an address of this node",
                  bind_to);
    if (all != NULL) freeifaddrs(all);
}

/* ---- ports ---- */

/* Are `need` of the ports of this setting free? */
static void range_say(struct check_report *report, const char *topic, const char *key,
                      const char *ports, unsigned need, uint32_t ranks)
{
    unsigned first = 0;
    unsigned last = 0;
    unsigned low = 0;
    unsigned high = 0;
    unsigned free_count = 0;
    char advice[96];
    if (sscanf(ports, "%5u-%5u", &first, &last) != 2) return;
    for (unsigned port = first; port <= last; port++) free_count += tool_port_is_free(port);
    if (free_count < need) {
        (void)snprintf(advice, sizeof advice, "ss -ltnp shows who has them; else widen %s", key);
        check_say(report, topic, CHECK_WARN, advice, "%s %s: %u of %u free, %u needed for %u ranks",
                  key, ports, free_count, last - first + 1, need, ranks);
    } else if (tool_ports_ephemeral(&low, &high) && (first <= high) && (last >= low)) {
        (void)snprintf(advice, sizeof advice, "choose %s outside of it", key);
        check_say(report, topic, CHECK_WARN, advice,
                  "%s %s: %u free, but %u-%u are what this kernel gives to outgoing connections",
                  key, ports, free_count, low, high);
    } else {
        check_say(report, topic, CHECK_OK, NULL, "%s %s: %u of %u free, %u needed", key, ports,
                  free_count, last - first + 1, need);
    }
}

/* Measured: the 0.2 s of every 10 s cost a ring over 4 hosts 5 % of an allreduce of 256 MiB;
 * results/faults.md has the silence. */
static void congestion_say(struct check_report *report)
{
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_congestion_control", "r");
    char name[32] = "";
    if (file == NULL) return;
    if ((fscanf(file, "%31s", name) == 1) && (strcmp(name, "bbr") == 0))
        check_say(report, "congestion", CHECK_WARN,
                  "sysctl -w net.ipv4.tcp_congestion_control=cubic (or reno)",
                  "tcp's is bbr: each flow falls to a tenth for 0.2 s in every 10 s, and after a "
                  "short cut it may send "
                  "nothing for 5 s");
    else
        check_say(report, "congestion", CHECK_OK, NULL, "tcp's is %s", name);
    (void)fclose(file);
}

/* Rank 0, or who coordinates after it, has a control connection to each rank; sockets between nodes
 * are a connection to each rank of another node, of each stream; and some are the program's. */
static void descriptors_say(struct check_report *report, const struct check_job *job)
{
    const unsigned own = 64;
    struct rlimit limit;
    uint32_t world =
        (job->config.job.world_max != 0) ? job->config.job.world_max : job->config.job.world;
    uint64_t others = (world > job->local_count) ? world - job->local_count : 0;
    uint32_t devices = gf_devices_most(job->config.link.devices); /* each carries a stream */
    uint32_t streams = job->config.link.streams;
    if (devices > streams) streams = devices;
    if (job->fabric) streams = 0;
    uint64_t need = others * streams + world + own;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    if (need > limit.rlim_cur)
        check_say(report, "descriptors", CHECK_FAIL, "ulimit -n",
                  "limit %llu; %llu are needed: %u stream%s to each of %llu ranks of other nodes, "
                  "%u to coordinate, and %u",
                  (unsigned long long)limit.rlim_cur, (unsigned long long)need, streams,
                  (streams == 1) ? "" : "s", (unsigned long long)others, world, own);
    else
        check_say(report, "descriptors", CHECK_OK, NULL, "limit %llu; %llu are needed",
                  (unsigned long long)limit.rlim_cur, (unsigned long long)need);
}

void check_ports(struct check_report *report, const struct check_job *job)
{
    if (!job->fabric) congestion_say(report);
    descriptors_say(report, job);
    /* the job runs: where none is free the system chooses one */
    range_say(report, "ports", "rendezvous.ports", job->config.rendezvous.ports, job->local_count,
              job->local_count);
}

/* ---- the control address, by one who was started alone ---- */

/* 0: somebody listens; else errno. ETIMEDOUT after the deadline. */
static int connect_try(const struct gf_addr *to, const struct gf_addr *from, uint64_t deadline_ns)
{
    int fd = gf_socket_connect(to, from, deadline_ns);
    int error = 0;
    socklen_t bytes = sizeof error;
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    if (fd < 0) return errno;
    if (poll(&wait, 1, (int)(deadline_ns / 1000000u)) <= 0)
        error = ETIMEDOUT;
    else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        error = errno;
    if ((error == 0) && gf_socket_met_itself(fd)) error = ECONNREFUSED;
    (void)close(fd);
    return error;
}

static void control_far(struct check_report *report, const struct check_job *job,
                        const struct gf_addr *to, const struct gf_addr *from)
{
    const char *address = job->config.rendezvous.address;
    int error = connect_try(to, from, job->deadline_ns);
    if (error == 0)
        check_say(report, "control", CHECK_OK, NULL, "somebody listens at %s", address);
    else if (error == ECONNREFUSED)
        check_say(report, "control", CHECK_OK, NULL,
                  "%s is another node, which answers; nobody listens there now", address);
    else
        check_say(report, "control", CHECK_FAIL,
                  "is rendezvous.address right? route, firewall, is the node up?",
                  "%s cannot be reached: %s", address, strerror(error));
}

/* Not by trying to bind: kernels may be told to allow that for foreign addresses. 0.0.0.0 and ::
 * are everybody's. */
static bool control_is_here(const struct gf_addr *to)
{
    static const unsigned char any[sizeof to->ip];
    bool here;
    struct ifaddrs *all = NULL;
    if (gf_addr_is_loopback(to) || (memcmp(to->ip, any, sizeof any) == 0)) return true;
    if (getifaddrs(&all) != 0) return false;
    here = address_is_here(all, to);
    freeifaddrs(all);
    return here;
}

struct gf_channel_setup check_control_setup(const struct check_job *job, bool listens)
{
    const struct gf_config *config = &job->config;
    return (struct gf_channel_setup){
        .listens = listens,
        .connections_max = listens ? 2 * config->job.world + 16 : 1,
        .job_id = config->job.id,
        .address = config->rendezvous.address,
        .bind = config->rendezvous.bind,
        .key_file = config->rendezvous.key_file,
        .insecure = config->rendezvous.insecure,
        .keepalive_ns = config->rendezvous.keepalive_ns,
    };
}

/* As rank 0 where the address is this node's, else as another rank: what the driver refuses it says
 * itself. */
void check_control_alone(struct check_report *report, const struct check_job *job)
{
    const struct gf_channel_driver *driver = gf_drivers_default->channel;
    struct gf_addr to = {0};
    struct gf_addr from = {0};
    struct gf_fault fault = {0};
    struct gf_channel *channel = NULL;
    struct gf_channel_setup setup = check_control_setup(job, false);
    bool here = false;
    void *state = NULL;
    if (gf_socket_address_parse(setup.address, &to, &fault) &&
        ((setup.bind[0] == '\0') || gf_socket_bind_parse(setup.bind, &from, &fault))) {
        here = control_is_here(&to);
        setup = check_control_setup(job, here);
        state = aligned_alloc(64, (driver->state_bytes(&setup) + 63) / 64 * 64);
        if ((state != NULL) &&
            (driver->open(&setup, state, tool_clock_ns(), &channel, &fault) == GF_OK))
            driver->close(channel);
    }
    if ((channel == NULL) || (fault.code != GF_OK))
        check_say(report, "control", CHECK_FAIL,
                  (fault.foreign_code == EADDRINUSE)
                      ? "ss -lntxp shows who: a job that still runs? else take another port"
                      : "correct what it names in the file",
                  "%s", fault.text);
    else if (here)
        check_say(report, "control", CHECK_OK, NULL, "rank 0 can listen here at %s", setup.address);
    else
        control_far(report, job, &to, &from);
    free(state);
}
