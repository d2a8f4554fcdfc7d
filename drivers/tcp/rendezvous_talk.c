/* The words of the handshake (rendezvous_tcp_state.h has the order). What both ends have said lies
 * in a row, NONCE then HELLO, and the proof is the end of it, over all that comes before. */
#include "drivers/tcp/rendezvous_tcp_state.h"

static struct gf_put header_put(const struct tcp *tcp, unsigned char *out, uint32_t kind,
                                uint32_t payload_bytes)
{
    struct gf_put put = {out, GF_FRAME_HEADER_BYTES + payload_bytes};
    gf_frame_header_put(&put, kind, payload_bytes, tcp->setup.job_id, tcp->setup.rank);
    return put;
}

void gf_talk_nonce_put(struct tcp *tcp, unsigned char *said)
{
    struct gf_put put = header_put(tcp, said, GF_FRAME_NONCE, GF_FRAME_NONCE_BYTES);
    gf_auth_nonce(&tcp->source, put.at);
}

void gf_talk_hello_put(const struct tcp *tcp, const struct way *way, unsigned char *said)
{
    struct gf_put put =
        header_put(tcp, said + TCP_NONCE_FRAME_BYTES, way->kind, GF_FRAME_HELLO_BYTES);
    for (uint32_t i = 0; i < 4; i++) gf_put_u32(&put, way->words[i]);
    memcpy(put.at, way->nonce, GF_AUTH_NONCE_BYTES);
    memset(put.at + GF_AUTH_NONCE_BYTES, 0, GF_AUTH_PROOF_BYTES);
    if (way->auth.on)
        gf_auth_prove(&way->auth, said, TCP_TALK_PROVEN_BYTES, said + TCP_TALK_PROVEN_BYTES);
}

struct gf_frame_header gf_talk_header(const unsigned char *said)
{
    return gf_frame_header_get(said + TCP_NONCE_FRAME_BYTES);
}

struct gf_frame_hello gf_talk_hello(const unsigned char *said)
{
    struct gf_get get = {.at = said + TCP_NONCE_FRAME_BYTES + GF_FRAME_HEADER_BYTES,
                         .left = GF_FRAME_HELLO_BYTES};
    struct gf_frame_hello hello = {.version = gf_get_u32(&get)};
    hello.rank = gf_get_u32(&get);
    hello.world = gf_get_u32(&get);
    hello.flags = gf_get_u32(&get);
    return hello;
}

const unsigned char *gf_talk_nonce(const unsigned char *said)
{
    return said + TCP_TALK_PROVEN_BYTES - GF_AUTH_NONCE_BYTES;
}

bool gf_talk_proof_fits(const struct gf_auth *auth, const unsigned char *said)
{
    return gf_auth_proof_fits(auth, said, TCP_TALK_PROVEN_BYTES, said + TCP_TALK_PROVEN_BYTES);
}

void gf_talk_macs(const struct gf_auth *auth, const unsigned char *said,
                  struct gf_auth_mac *to_dialler_out, struct gf_auth_mac *to_acceptor_out)
{
    if (auth->on) gf_auth_macs(auth, said, TCP_TALK_BYTES, to_dialler_out, to_acceptor_out);
}

size_t gf_talk_frame_put(const struct tcp *tcp, uint32_t kind, bool authenticated,
                         struct gf_auth_mac *MAC, unsigned char *out)
{
    (void)header_put(tcp, out, kind, 0);
    if (!authenticated) return GF_FRAME_HEADER_BYTES;
    gf_auth_mac_put(MAC, out, GF_FRAME_HEADER_BYTES, NULL, 0, out + GF_FRAME_HEADER_BYTES);
    return TCP_ANSWER_BYTES_MAX;
}

void gf_talk_refusal_put(const struct tcp *tcp, gf_status code, const char *reason,
                         unsigned char *out)
{
    struct gf_put put = header_put(tcp, out, GF_FRAME_REFUSAL, GF_FRAME_REFUSAL_BYTES);
    gf_put_u32(&put, (uint32_t)code);
    gf_put_text(&put, reason, GF_FRAME_REASON_BYTES);
}

void gf_talk_elsewhere_put(const struct tcp *tcp, const char *address, unsigned char *out)
{
    struct gf_put put = header_put(tcp, out, GF_FRAME_ELSEWHERE, GF_FRAME_ELSEWHERE_BYTES);
    gf_put_text(&put, address, GF_CONTROL_ADDRESS_BYTES);
}

void gf_talk_elsewhere_get(const unsigned char *payload, char address_out[GF_CONTROL_ADDRESS_BYTES])
{
    struct gf_get get = {.at = payload, .left = GF_FRAME_ELSEWHERE_BYTES};
    gf_get_text(&get, address_out, GF_CONTROL_ADDRESS_BYTES);
}

gf_status gf_talk_refusal_get(const unsigned char *payload, char reason_out[GF_FRAME_REASON_BYTES])
{
    struct gf_get get = {.at = payload, .left = GF_FRAME_REFUSAL_BYTES};
    gf_status code = (gf_status)(int32_t)gf_get_u32(&get);
    gf_get_text(&get, reason_out, GF_FRAME_REASON_BYTES);
    return code;
}
