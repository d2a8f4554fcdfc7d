/* Keys on disk, ranks that use them, and the words of the handshake as a stranger may say them. */
#ifndef TCP_KEYS_H
#define TCP_KEYS_H

#include "drivers/tcp/rendezvous_frame.h"
#include "firmware-tests/support/stranger.h"
#include "firmware-tests/support/tcp_turns.h"

#include <sys/types.h>

#define NONCE_FRAME (GF_FRAME_HEADER_BYTES + GF_FRAME_NONCE_BYTES)
#define HELLO_FRAME STRANGER_HELLO_BYTES
#define SAID (NONCE_FRAME + HELLO_FRAME) /* by both, in a row */
#define ANSWER_FRAME GF_FRAME_HEADER_BYTES
#define REFUSAL_FRAME (GF_FRAME_HEADER_BYTES + GF_FRAME_REFUSAL_BYTES)

extern char key_folder[];         /* of this run, mode 0700 */
extern char key_a[64], key_b[64]; /* two keys of one size */
extern char logged[8192];         /* what ends of keyed() logged since begin() */

int keys_setup(void **state); /* of a group of tests */
int keys_teardown(void **state);
/* A file of `bytes` bytes `fill`; the path is valid until the next call. */
const char *file_make(const char *name, char fill, size_t bytes, mode_t mode);

void begin(void);      /* world_clear(), and nothing is logged yet */
void begin_open(void); /* the same, of an insecure job where no key is named */
struct gf_rendezvous_setup keyed(uint32_t rank, uint32_t size, const char *key_file);
void keyed_open(uint32_t slot, uint32_t rank, uint32_t size, const char *key_file);
void keyed_world(uint32_t size); /* all ends have key_a, and are connected */

void hello_make(unsigned char *out, uint32_t rank, uint32_t size, uint32_t has_key);
/* The proof that belongs at the end of said[SAID]. */
void hello_prove(unsigned char *said, const char *key_file);
void say(int fd, const void *data, size_t bytes);
/* A stranger who says a hello there, and waits for no nonce. */
int stranger_greets(const char *at, uint32_t rank, uint32_t size);
/* One who has heard the nonce, which is in said[SAID], as is his hello. prover: it has its proof, by
 * that key file; he has not said it. */
int stranger_meets(const char *at, uint32_t rank, uint32_t size, const char *prover,
                   unsigned char *said);
/* Up to `bytes` bytes, fewer if the other side ends. */
size_t hear(int fd, unsigned char *out, size_t bytes);
/* The reason of a refusal that comes next, after the nonce if it has not been heard; "": it hangs
 * up. */
void hear_refusal(int fd, bool nonce_first, char text_out[GF_FRAME_REASON_BYTES]);

#endif
