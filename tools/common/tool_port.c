/* See tool_port.h. */
#include "tools/common/tool_port.h"

#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

bool tool_port_is_free(unsigned port)
{
    const int on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_free;
    if (probe < 0) return false;
    (void)setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    is_free = bind(probe, (const struct sockaddr *)&at, sizeof at) == 0;
    (void)close(probe);
    return is_free;
}

bool tool_ports_ephemeral(unsigned *first_out, unsigned *last_out)
{
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    bool read;
    if (file == NULL) return false;
    read = fscanf(file, "%u %u", first_out, last_out) == 2;
    (void)fclose(file);
    return read;
}
