/* The socket link and the host's memory, without UCX and CUDA. */
#include "drivers/drivers.h"

const struct gf_drivers gf_drivers_tcp = {
    .link = &gf_link_tcp,
    .channel = &gf_channel_tcp,
    .clock = &gf_clock_monotonic,
};
