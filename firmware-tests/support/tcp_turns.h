/* Turns of a tcp_world: every end polls, the test's clock moves on, and what each end saw is
 * kept. */
#ifndef TCP_TURNS_H
#define TCP_TURNS_H

#include "firmware-tests/support/tcp_world.h"

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define TURNS_MAX 200000

struct seen {
    uint32_t connected; /* bits */
    uint32_t ended;
    uint32_t refused;
    uint32_t frames;
    uint32_t last_kind, last_from, last_bytes;
    unsigned char last[GF_FRAME_PAYLOAD_MAX];
    char text[240];
    gf_status status;
};

extern struct tcp_world star;
extern struct seen seen[TCP_WORLD_MAX];
extern uint64_t now_ns;
extern void (*turn_too)(void); /* at the end of each turn; NULL: nothing */

void world_clear(void);      /* TEST_EACH(world_clear, world_end) */
void world_clear_open(void); /* the same, of an insecure job */
void world_end(void);        /* closes all ends */
void turn(void);
void end_open(uint32_t slot, const struct gf_rendezvous_setup *setup);
void end_join(uint32_t slot, uint32_t rank, uint32_t size); /* without a key */
void turns_open(uint32_t size);                             /* all ends, until all are connected */
void turns_connect(uint32_t size);
void assert_refused(uint32_t slot, const char *text);

#define UNTIL(condition)                                                      \
    do {                                                                      \
        bool came = (condition);                                              \
        for (int turns = 0; !came && (turns < TURNS_MAX); turns++) {          \
            turn();                                                           \
            came = (condition);                                               \
        }                                                                     \
        if (!came) fail_msg("line %d: never came: %s", __LINE__, #condition); \
    } while (0)

#endif
