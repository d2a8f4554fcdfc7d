/* The words between hello and answer, where the job has a key:
 *
 *     rank r                                        rank 0
 *     HELLO      version, rank, world, nonce r, proof of all that ->
 *                                                <- CHALLENGE  nonce 0, proof over HELLO and all
 *                                                              before the proof
 *     PROOF      proof over all of that, too   ->
 *                                                <- ANSWER     authenticated, as is all that
 *                                                              follows, both ways
 *
 * A hello without the proof is refused and costs nothing more. Rank 0 proves itself before the rank
 * does: a rank tells an impostor nothing. What a process without the key says is never believed to
 * be about the job: it is rejected and logged, and the job waits for its ranks as before. */
#include "drivers/tcp/rendezvous_tcp_state.h"

static const struct gf_auth *auth_of(const struct tcp *tcp, const struct pending *pending)
{
    return pending->data ? &tcp->data.auth : &tcp->auth;
}

static void header_put(const struct tcp *tcp, unsigned char *out, uint32_t kind,
                       uint32_t payload_bytes)
{
    struct gf_put put = {out, GF_FRAME_HEADER_BYTES};
    gf_frame_header_put(&put, kind, payload_bytes, tcp->setup.job_id, tcp->setup.rank);
}

/* The challenge's own proof lies where the rank's proof comes: what is proven ends before it. */
bool gf_tcp_challenge_send(struct tcp *tcp, struct pending *pending)
{
    unsigned char *challenge = pending->said + TCP_HELLO_FRAME_BYTES;
    const size_t bytes = GF_FRAME_HEADER_BYTES + GF_FRAME_CHALLENGE_BYTES;
    header_put(tcp, challenge, GF_FRAME_CHALLENGE, GF_FRAME_CHALLENGE_BYTES);
    gf_auth_nonce(challenge + GF_FRAME_HEADER_BYTES);
    gf_auth_prove(auth_of(tcp, pending), GF_AUTH_COORDINATOR, pending->said,
                  TCP_TALK_CHALLENGE_BYTES, pending->said + TCP_TALK_CHALLENGE_BYTES);
    pending->challenged = true;
    pending->in_bytes = 0;
    return send(pending->fd, challenge, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

bool gf_tcp_hello_fits(const struct tcp *tcp, const struct pending *pending)
{
    return gf_auth_proof_fits(auth_of(tcp, pending), GF_AUTH_HELLO, pending->said,
                              TCP_HELLO_PROVEN_BYTES, pending->said + TCP_HELLO_PROVEN_BYTES);
}

bool gf_tcp_proof_fits(const struct tcp *tcp, const struct pending *pending)
{
    return (gf_frame_header_get(pending->said + TCP_TALK_CHALLENGE_BYTES).kind == GF_FRAME_PROOF) &&
           gf_auth_proof_fits(auth_of(tcp, pending), GF_AUTH_RANK, pending->said,
                              TCP_TALK_PROVEN_BYTES, pending->said + TCP_TALK_PROVEN_BYTES);
}

void gf_tcp_pending_macs(const struct tcp *tcp, const struct pending *pending,
                         struct gf_auth_mac *to_rank_out, struct gf_auth_mac *to_coordinator_out)
{
    gf_auth_macs(&tcp->auth, pending->said, TCP_TALK_CHALLENGE_BYTES, to_rank_out,
                 to_coordinator_out);
}

/* Over the second half of the nonce. said: a hello's frame. */
void gf_tcp_talk_hello_prove(const struct gf_auth *auth, unsigned char *said)
{
    gf_auth_nonce(said + TCP_HELLO_FRAME_BYTES - GF_AUTH_NONCE_BYTES);
    gf_auth_prove(auth, GF_AUTH_HELLO, said, TCP_HELLO_PROVEN_BYTES, said + TCP_HELLO_PROVEN_BYTES);
}

void gf_tcp_hello_prove(struct tcp *tcp)
{
    header_put(tcp, tcp->said, GF_FRAME_HELLO, GF_FRAME_HELLO_BYTES);
    gf_tcp_talk_hello_prove(&tcp->auth, tcp->said);
}

/* in: the challenge's frame. True: it is of who has the key, and said[] ends with our proof. */
bool gf_tcp_talk_challenge_take(const struct tcp *tcp, const struct gf_auth *auth,
                                const unsigned char *in, unsigned char *said)
{
    const size_t head_bytes = GF_FRAME_HEADER_BYTES + GF_AUTH_NONCE_BYTES;
    memcpy(said + TCP_HELLO_FRAME_BYTES, in, head_bytes);
    if (!gf_auth_proof_fits(auth, GF_AUTH_COORDINATOR, said, TCP_TALK_CHALLENGE_BYTES,
                            in + head_bytes))
        return false;
    header_put(tcp, said + TCP_TALK_CHALLENGE_BYTES, GF_FRAME_PROOF, GF_FRAME_PROOF_BYTES);
    gf_auth_prove(auth, GF_AUTH_RANK, said, TCP_TALK_PROVEN_BYTES, said + TCP_TALK_PROVEN_BYTES);
    return true;
}

gf_status gf_tcp_challenge_take(struct tcp *tcp, struct conn *conn)
{
    unsigned char *said = tcp->said;
    if (!gf_tcp_talk_challenge_take(tcp, &tcp->auth, conn->in, said))
        return gf_tcp_because(
            tcp, GF_ERR_MISMATCH,
            "what listens at %.50s did not prove to rank %u that it has the "
            "same key: the key_file of rank 0 has other bytes, or it is not rank 0",
            tcp->address_text, tcp->setup.rank);
    GF_ASSERT(gf_tcp_conn_frame_put(tcp, conn, GF_FRAME_PROOF, said + TCP_TALK_PROVEN_BYTES,
                                    GF_AUTH_PROOF_BYTES));
    gf_auth_macs(&tcp->auth, said, TCP_TALK_CHALLENGE_BYTES, &conn->mac_in, &conn->mac_out);
    conn->authenticated = true;
    conn->in_bytes = 0;
    return GF_AGAIN;
}
