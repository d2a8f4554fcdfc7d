/* See frame.h. */
#include "drivers/tcp/frame.h"

static void header_walk(struct gf_walk *walk, struct gf_frame_header *header)
{
    static const struct gf_field fields[] = {
        GF_FIELD(gf_frame_header, magic),         GF_FIELD(gf_frame_header, protocol),
        GF_FIELD(gf_frame_header, header_bytes),  GF_FIELD(gf_frame_header, kind),
        GF_FIELD(gf_frame_header, payload_bytes), GF_FIELD(gf_frame_header, job_id),
        GF_FIELD(gf_frame_header, from),          GF_FIELD(gf_frame_header, unused)};
    gf_walk_fields(walk, header, fields, sizeof fields / sizeof fields[0]);
}

void gf_frame_header_put(struct gf_put *put, uint32_t kind, uint32_t payload_bytes, uint64_t job_id,
                         uint32_t from)
{
    struct gf_frame_header header = {GF_FRAME_MAGIC,
                                     GF_FRAME_PROTOCOL,
                                     GF_FRAME_HEADER_BYTES,
                                     kind,
                                     payload_bytes,
                                     job_id,
                                     from,
                                     0};
    GF_ASSERT(payload_bytes <= GF_CHANNEL_PAYLOAD_MAX);
    header_walk(&(struct gf_walk){.put = put}, &header);
}

struct gf_frame_header gf_frame_header_get(const unsigned char *bytes)
{
    struct gf_get get = {.at = bytes, .left = GF_FRAME_HEADER_BYTES};
    struct gf_frame_header header = {0};
    header_walk(&(struct gf_walk){.get = &get}, &header);
    return header;
}
