/* The words between hello and answer, where the job has a key:
 *
 *     rank r                                        rank 0
 *     HELLO      version, rank, world, nonce r, proof of all that ->
 *                                                <- CHALLENGE  nonce 0, proof over HELLO and all before the proof
 *     PROOF      proof over all of that, too   ->
 *                                                <- ANSWER     authenticated, as is all that follows, both ways
 *
 * A hello without the proof is refused and costs nothing more. Rank 0 proves itself before the rank does: a rank
 * tells an impostor nothing. What a process without the key says is never believed to be about the job: it is
 * rejected and logged, and the job waits for its ranks as before. */
#include "drivers/tcp/rendezvous_tcp_state.h"

static void header_put(const struct tcp *tcp, unsigned char *out, uint32_t kind, uint32_t payload_bytes)
{
    struct gf_put put = {out, GF_FRAME_HEADER_BYTES};
    gf_frame_header_put(&put, kind, payload_bytes, tcp->job_id, tcp->rank);
}

bool gf_tcp_challenge_send(struct tcp *tcp, struct pending *pending)
{
    unsigned char frame[GF_FRAME_HEADER_BYTES + GF_FRAME_CHALLENGE_BYTES];
    unsigned char *said = pending->talk.said;
    memcpy(said, pending->in, TCP_HELLO_FRAME_BYTES);
    header_put(tcp, frame, GF_FRAME_CHALLENGE, GF_FRAME_CHALLENGE_BYTES);
    tcp->auth.module->nonce(frame + GF_FRAME_HEADER_BYTES);
    memcpy(said + TCP_HELLO_FRAME_BYTES, frame, GF_FRAME_HEADER_BYTES + GF_AUTH_NONCE_BYTES);
    tcp->auth.module->prove(&tcp->auth, GF_AUTH_COORDINATOR, said, TCP_TALK_CHALLENGE_BYTES,
                  frame + GF_FRAME_HEADER_BYTES + GF_AUTH_NONCE_BYTES);
    pending->challenged = true;
    pending->in_bytes = 0;
    return send(pending->fd, frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof frame;
}

bool gf_tcp_hello_fits(const struct tcp *tcp, const struct pending *pending)
{
    return tcp->auth.module->proof_fits(&tcp->auth, GF_AUTH_HELLO, pending->in, TCP_HELLO_PROVEN_BYTES,
                                           pending->in + TCP_HELLO_PROVEN_BYTES);
}

bool gf_tcp_proof_fits(struct tcp *tcp, struct pending *pending)
{
    const struct gf_frame_header header = gf_frame_header_get(pending->in);
    memcpy(pending->talk.said + TCP_TALK_CHALLENGE_BYTES, pending->in, GF_FRAME_HEADER_BYTES);
    return (header.kind == GF_FRAME_PROOF) &&
           tcp->auth.module->proof_fits(&tcp->auth, GF_AUTH_RANK, pending->talk.said, TCP_TALK_BYTES,
                              pending->in + GF_FRAME_HEADER_BYTES);
}

void gf_tcp_pending_macs(const struct tcp *tcp, const struct pending *pending, struct gf_auth_mac *to_rank_out,
                          struct gf_auth_mac *to_coordinator_out)
{
    tcp->auth.module->MACs(&tcp->auth, pending->talk.said, TCP_TALK_CHALLENGE_BYTES, to_rank_out, to_coordinator_out);
}

void gf_tcp_hello_put(struct tcp *tcp, unsigned char *payload_out)
{
    struct gf_put put = {payload_out, GF_FRAME_HELLO_BYTES};
    unsigned char nonce[GF_AUTH_NONCE_BYTES] = {0};
    if (tcp->auth.on) tcp->auth.module->nonce(nonce);
    gf_put_u32(&put, GF_VERSION);
    gf_put_u32(&put, tcp->rank);
    gf_put_u32(&put, tcp->world);
    gf_put_u32(&put, (tcp->auth.on ? TCP_HELLO_KEYED : 0) | (tcp->rejoins ? TCP_HELLO_REJOINS : 0));
    gf_put_bytes(&put, nonce, sizeof nonce);
    header_put(tcp, tcp->talk.said, GF_FRAME_HELLO, GF_FRAME_HELLO_BYTES);
    memcpy(tcp->talk.said + GF_FRAME_HEADER_BYTES, payload_out, GF_FRAME_HELLO_BYTES);
    if (!tcp->auth.on) return;
    unsigned char *proof = tcp->talk.said + TCP_HELLO_PROVEN_BYTES; /* over the second half of the nonce */
    tcp->auth.module->prove(&tcp->auth, GF_AUTH_HELLO, tcp->talk.said, TCP_HELLO_PROVEN_BYTES, proof);
    memcpy(payload_out + GF_FRAME_HELLO_BYTES - GF_AUTH_HELLO_BYTES, proof, GF_AUTH_HELLO_BYTES);
}

gf_status gf_tcp_challenge_take(struct tcp *tcp, struct conn *conn)
{
    unsigned char proof[GF_AUTH_PROOF_BYTES];
    unsigned char *said = tcp->talk.said;
    const size_t head_bytes = GF_FRAME_HEADER_BYTES + GF_AUTH_NONCE_BYTES;
    memcpy(said + TCP_HELLO_FRAME_BYTES, conn->in, head_bytes);
    if (!tcp->auth.module->proof_fits(&tcp->auth, GF_AUTH_COORDINATOR, said, TCP_TALK_CHALLENGE_BYTES,
                                      conn->in + head_bytes)) {
        return gf_fault_set(&tcp->base.fault, GF_ERR_MISMATCH, 0, "", 0,
                            "what listens at %.50s did not prove to rank %u that it has the same key: the key_file "
                            "of rank 0 has other bytes, or it is not rank 0", tcp->address_text, tcp->rank);
    }
    header_put(tcp, said + TCP_TALK_CHALLENGE_BYTES, GF_FRAME_PROOF, GF_FRAME_PROOF_BYTES);
    tcp->auth.module->prove(&tcp->auth, GF_AUTH_RANK, said, TCP_TALK_BYTES, proof);
    GF_ASSERT(gf_tcp_conn_frame_put(tcp, conn, GF_FRAME_PROOF, proof, sizeof proof));
    tcp->auth.module->MACs(&tcp->auth, said, TCP_TALK_CHALLENGE_BYTES, &conn->mac_in, &conn->mac_out);
    conn->authenticated = true;
    conn->in_bytes = 0;
    return GF_AGAIN;
}
