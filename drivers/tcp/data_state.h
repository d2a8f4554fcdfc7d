/* What data.c, data_listen.c and data_device.c share. */
#ifndef GF_DATA_STATE_H
#define GF_DATA_STATE_H

#include "drivers/tcp/data.h"
#include "drivers/tcp/handshake.h"

#define DATA_DIALS_MAX 32u

struct gf_data {
    struct handshake handshake;
    const struct gf_link_setup *setup; /* the link's copy */
    bool is_open;                      /* it listens */
    bool on;                           /* a generation is under way */
    uint32_t rank, world, generation;
    struct gf_auth job;     /* its key, where there is one */
    struct gf_auth auth;    /* for connections that dial this rank */
    uint32_t device_warned; /* data_device.c has warned of this or less; 0: of nothing */
    const struct gf_data_taker *taker;
    struct gf_addr address, bind_to;
    unsigned port_first, port_last; /* 0: anywhere */
    int listen_fd;
    int device_fds[GF_DATA_ADDRS_MAX]; /* the same port at other addresses */
    struct dial dials[DATA_DIALS_MAX];
    /* pending[] and sources[] follow */
};

/* data_listen.c: the port, once; an error is in handshake.fault. */
gf_status gf_data_listen(struct gf_data *data, struct gf_addr *addr_out);

/* ---- data_device.c ---- */

/* The device to which its attempts are bound; 0: none. */
uint32_t gf_data_device_dials(const struct dial *dial);
/* The connection is established. */
void gf_data_device_dialled(struct gf_data *data, const struct dial *dial);
void gf_data_device_accepted(struct gf_data *data, int fd, uint32_t from);

#endif
