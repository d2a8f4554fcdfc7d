/* Keys on disk, and the words of the handshake as a stranger may say them. */
#ifndef TCP_KEYS_H
#define TCP_KEYS_H

#include "drivers/tcp/frame.h"
#include "firmware-tests/support/stranger.h"
#include "firmware-tests/support/channel_hub.h"

#include <sys/types.h>

#define NONCE_FRAME (GF_FRAME_HEADER_BYTES + GF_FRAME_NONCE_BYTES)
#define HELLO_FRAME STRANGER_HELLO_BYTES
#define SAID (NONCE_FRAME + HELLO_FRAME) /* by both, in a row */
#define ANSWER_FRAME GF_FRAME_HEADER_BYTES
#define REFUSAL_FRAME (GF_FRAME_HEADER_BYTES + GF_FRAME_REFUSAL_BYTES)

extern char key_folder[];         /* of this run, mode 0700 */
extern char key_a[64], key_b[64]; /* two keys of one size */
int keys_setup(void **state);     /* of a group of tests */
int keys_teardown(void **state);
/* A file of `bytes` bytes `fill`; the path is valid until the next call. */
const char *file_make(const char *name, char fill, size_t bytes, mode_t mode);

void hello_make(unsigned char *out, uint32_t flags); /* GF_HELLO_KEYED, or nothing */
/* The proof that belongs at the end of said[SAID]. */
void hello_prove(unsigned char *said, const char *key_file);
void say(int fd, const void *data, size_t bytes);
/* A stranger who says a hello there, and waits for no nonce. */
int stranger_greets(const char *at);
/* One who has heard the nonce, which is in said[SAID], as is his hello. prover: it has its proof,
 * by that key file; he has not said it. */
int stranger_meets(const char *at, const char *prover, unsigned char *said);
/* Up to `bytes` bytes, fewer if the other side ends. */
size_t hear(int fd, unsigned char *out, size_t bytes);
/* The reason of a refusal that comes next, after the nonce if it has not been heard; "": it hangs
 * up. */
void hear_refusal(int fd, bool nonce_first, char text_out[GF_FRAME_REASON_BYTES]);

#endif
