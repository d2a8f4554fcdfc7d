/* TCP ports of this machine. */
#ifndef TOOL_PORT_H
#define TOOL_PORT_H

#include <stdbool.h>

/* Nobody listens there. Connections that have ended do not count. */
bool tool_port_is_free(unsigned port);
/* The ports that the kernel gives to whoever asks for none; false: it does not say. */
bool tool_ports_ephemeral(unsigned *first_out, unsigned *last_out);

#endif
