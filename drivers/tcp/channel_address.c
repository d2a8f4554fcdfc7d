/* Where the members of a job reach its coordinator: at the address of the setup or, where the
 * kernel identifies the other process, at an abstract unix name. */
#include "drivers/tcp/channel_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

gf_status gf_channel_address_set(struct channel *channel, struct gf_fault *fault_out)
{
    const struct gf_channel_setup *setup = &channel->setup;
    if (!gf_socket_address_parse(setup->address, &channel->address, fault_out))
        return GF_ERR_CONFIG;
    if ((setup->bind != NULL) && (setup->bind[0] != 0)) {
        if (!gf_socket_bind_parse(setup->bind, &channel->bind_to, fault_out)) return GF_ERR_CONFIG;
        if (channel->bind_to.family != channel->address.family)
            return gf_fault_set(fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
                                "rendezvous.bind '%.40s' and rendezvous.address '%.60s': "
                                "expected both to be IPv4 or both IPv6",
                                setup->bind, setup->address);
    }
    if ((setup->key_file != NULL) && (setup->key_file[0] != 0))
        return gf_auth_open(&channel->auth, setup->key_file, fault_out);
    const struct gf_addr *open =
        (channel->bind_to.family != 0) ? &channel->bind_to : &channel->address;
    channel->by_name = !setup->insecure;
    if (setup->insecure || (gf_addr_is_loopback(open) && gf_addr_is_loopback(&channel->address)))
        return gf_auth_begin(fault_out);
    return gf_fault_set(
        fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
        "rendezvous.address '%.60s' can be reached from outside this machine: "
        "expected a loopback address, rendezvous.key_file, or rendezvous.insecure = true",
        setup->address);
}

/* ---- names ---- */

/* What the names of all jobs at this address begin with. It holds the address, by which jobs
 * without an id of their own (started by hand) differ. */
static int name_begin(const struct channel *channel, char name_out[GF_SOCKET_NAME_BYTES])
{
    char address[32]; /* of loopback */
    struct gf_addr at = channel->address;
    gf_addr_plain(&at);
    gf_socket_address_text(&at, address, sizeof address);
    return snprintf(name_out, GF_SOCKET_NAME_BYTES, "@gradientflow-%s-", address);
}

void gf_channel_name(const struct channel *channel, char name_out[GF_SOCKET_NAME_BYTES])
{
    int bytes = name_begin(channel, name_out);
    (void)snprintf(name_out + bytes, GF_SOCKET_NAME_BYTES - (size_t)bytes, "%" PRIu64,
                   channel->setup.job_id);
}

void gf_channel_other_job(const struct channel *channel, char job_out[GF_SOCKET_NAME_BYTES])
{
    char prefix[GF_SOCKET_NAME_BYTES];
    char own[GF_SOCKET_NAME_BYTES];
    char other[GF_SOCKET_NAME_BYTES];
    int bytes = name_begin(channel, prefix);
    gf_channel_name(channel, own);
    if (!gf_socket_name_other(prefix, own, other)) return;
    (void)snprintf(job_out, GF_SOCKET_NAME_BYTES, "%.*s", (int)strcspn(other + bytes, "-"),
                   other + bytes);
}

/* ---- listening ---- */

/* An error, because members of this job could otherwise meet the coordinator of another user. */
static gf_status name_taken(const struct channel *channel, const char *name,
                            struct gf_fault *fault_out)
{
    char why[100] = "what holds it does not listen";
    uint32_t user = 0;
    int fd = gf_socket_name_connect(name, &user);
    bool own = (fd >= 0) && gf_socket_is_own(fd);
    if (fd >= 0)
        (void)snprintf(why, sizeof why,
                       "another process of this user listens there: are there two coordinators?");
    else if (errno == EPERM)
        (void)snprintf(why, sizeof why, "user %u listens there, this process is of user %u", user,
                       (unsigned)geteuid());
    if (fd >= 0) gf_socket_close(&fd);
    *fault_out = (struct gf_fault){0};
    if (own)
        return gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "bind", EADDRINUSE,
                            "cannot listen at %.60s: another context of this process does: each "
                            "wants a rendezvous.address (or job.id) of its own, the same on all "
                            "ranks",
                            channel->handshake.address_text);
    return gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "bind", EADDRINUSE,
                        "cannot listen at %.60s (%s): bind failed: %s (errno %d): %s",
                        channel->handshake.address_text, name, strerror(EADDRINUSE), EADDRINUSE,
                        why);
}

static gf_status port_refused(const struct channel *channel, int error, struct gf_fault *fault_out)
{
    *fault_out = (struct gf_fault){0};
    if (error == EADDRINUSE)
        return gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "bind", error,
                            "cannot listen at %.60s: bind failed: %s (errno %d): another job or "
                            "context has that port: give this one another (GF_ADDRESS; --listen of "
                            "gf-coordinator), or there are two coordinators",
                            channel->handshake.address_text, strerror(error), error);
    return gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "bind", error,
                        "cannot listen at %.60s: the coordinator runs here, with rank 0 or alone, "
                        "and this host does not have that address (errno %d); torchrun says rank "
                        "0's where the file and GF_ADDRESS say none",
                        channel->handshake.address_text, error);
}

gf_status gf_channel_listen(struct channel *channel, struct gf_fault *fault_out)
{
    char name[GF_SOCKET_NAME_BYTES];
    struct gf_addr at = (channel->bind_to.family != 0) ? channel->bind_to : channel->address;
    at.port = channel->address.port;
    gf_channel_name(channel, name);
    channel->listen_fd = channel->by_name
                             ? gf_socket_name_listen(name, fault_out)
                             : gf_socket_listen(&at, channel->handshake.address_text, fault_out);
    if (channel->listen_fd >= 0) return gf_accept_listen(&channel->handshake, channel->listen_fd);
    int error = (int)fault_out->foreign_code;
    if ((error == EADDRINUSE) && channel->by_name) return name_taken(channel, name, fault_out);
    if ((error == EADDRINUSE) || (error == EADDRNOTAVAIL))
        return port_refused(channel, error, fault_out);
    return GF_ERR_SYSTEM;
}
