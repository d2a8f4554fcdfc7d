/* The header of a control frame, to bytes and back. */
#include "drivers/tcp/rendezvous_frame.h"

void gf_frame_header_put(struct gf_put *put, uint32_t kind, uint32_t payload_bytes, uint64_t job_id, uint32_t from)
{
    GF_ASSERT(payload_bytes <= GF_FRAME_PAYLOAD_MAX);
    gf_put_u32(put, GF_FRAME_MAGIC);
    gf_put_u16(put, GF_FRAME_PROTOCOL);
    gf_put_u16(put, GF_FRAME_HEADER_BYTES);
    gf_put_u32(put, kind);
    gf_put_u32(put, payload_bytes);
    gf_put_u64(put, job_id);
    gf_put_u32(put, from);
    gf_put_u32(put, 0);
}

struct gf_frame_header gf_frame_header_get(const unsigned char *bytes)
{
    struct gf_get get = {.at = bytes, .left = GF_FRAME_HEADER_BYTES};
    struct gf_frame_header header = {0};
    header.magic = gf_get_u32(&get);
    header.protocol = gf_get_u16(&get);
    header.header_bytes = gf_get_u16(&get);
    header.kind = gf_get_u32(&get);
    header.payload_bytes = gf_get_u32(&get);
    header.job_id = gf_get_u64(&get);
    header.from = gf_get_u32(&get);
    return header;
}
