/* A coordinator's end of the control channel and those of members in one thread, on loopback, at a
 * port that was free a moment ago. Every end polls in each turn, the test's clock moves on, and
 * what each end heard is kept. A member that loses its connection dials again 50 ms later, as
 * lib/control/member.c does. */
#ifndef CHANNEL_HUB_H
#define CHANNEL_HUB_H

#include "drivers/channel.h"

#define HUB_MS UINT64_C(1000000)
#define HUB_SECOND UINT64_C(1000000000)
#define HUB_ENDS_MAX 16u /* slot 0 is the coordinator's, in most tests */
#define HUB_CONNECTIONS_MAX 24u
#define HUB_TURNS_MAX 200000

struct channel_hub {
    bool insecure; /* they meet at the port, else by name */
    char address[GF_TEXT_MAX];
    const char *key_file;
    uint32_t connections_max;
    struct gf_channel *ends[HUB_ENDS_MAX];
    void *states[HUB_ENDS_MAX];
    uint64_t dial_ns[HUB_ENDS_MAX]; /* 0: it does not dial by itself */
};

struct hub_heard {
    uint32_t connected; /* so many CONNECTED, and ENDED */
    uint32_t ended;
    uint32_t up; /* bits of connections */
    uint32_t frames;
    uint32_t connection; /* of the last event */
    uint32_t last_kind, last_bytes;
    gf_channel_end end; /* of the last ENDED */
    unsigned char last[GF_CHANNEL_PAYLOAD_MAX];
    char text[400];
    gf_status status;
};

extern struct channel_hub hub;
extern struct hub_heard heard[HUB_ENDS_MAX];
extern uint64_t hub_now_ns;
extern void (*hub_turn_too)(void); /* at the end of each turn; NULL: nothing */
extern char hub_logged[8192];      /* since hub_clear() */

void hub_address_free(char *address_out, bool v6); /* [GF_TEXT_MAX] */
void hub_clear(void);                              /* TEST_EACH(hub_clear, hub_end) */
void hub_clear_open(void);                         /* the same, of an insecure job */
void hub_end(void);
struct gf_channel_setup hub_setup(bool listens);
/* states[slot] is of exactly the size asked for. A member's end dials. */
gf_status hub_open_try(uint32_t slot, const struct gf_channel_setup *setup,
                       struct gf_fault *fault_out);
void hub_open(uint32_t slot, const struct gf_channel_setup *setup);
void hub_member(uint32_t slot); /* as hub_setup() has it */
void hub_close(uint32_t slot);
/* The coordinator and so many members, until all are connected. */
void hub_join(uint32_t members);
void hub_turn(void);
/* The coordinator's number of the only connection that came since `before`, of heard[0].up. */
uint32_t hub_new(uint32_t before);

#define HUB_UNTIL(condition)                                                  \
    do {                                                                      \
        bool came = (condition);                                              \
        for (int turns = 0; !came && (turns < HUB_TURNS_MAX); turns++) {      \
            hub_turn();                                                       \
            came = (condition);                                               \
        }                                                                     \
        if (!came) fail_msg("line %d: never came: %s", __LINE__, #condition); \
    } while (0)

#endif
