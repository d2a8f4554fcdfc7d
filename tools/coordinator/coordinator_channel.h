/* What the files of this folder share. */
#ifndef COORDINATOR_CHANNEL_H
#define COORDINATOR_CHANNEL_H

#include "drivers/channel.h"
#include "tools/coordinator/coordinator_serve.h"

/* Of whoever dials it. */
struct gf_channel_setup coordinator_channel(const struct coordinator_job *job);

#endif
