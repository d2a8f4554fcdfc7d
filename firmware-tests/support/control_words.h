/* Words between a coordinator and its members as text, so that a row can say all that is heard: no
 * more and no less. The test plays the other side, frame by frame, over the channel of
 * control_world.h. */
#ifndef CONTROL_WORDS_H
#define CONTROL_WORDS_H

#include "firmware-tests/support/control_world.h"
#include "lib/control/frames.h"

/* All that came since the last call, each as a word and its values, "; " between them: "list 1 rank
 * 0 of 3; go 1 lead 0; waiting 0". `ended` is the end of the connection. */
const char *control_words_heard(struct gf_channel *channel);
/* The same of one event. */
void control_word_tell(const struct gf_channel_event *event, char *text_out, size_t bytes);

/* ---- a process that the test plays ---- */
struct control_words_process {
    uint32_t proc; /* of the world */
    struct gf_channel *channel;
    struct control_offer offer;
};
/* Connects, and offers itself. */
void control_words_come(struct control_world *world, struct control_words_process *process);
/* A word of that kind, of that generation or list. */
void control_words_status(struct control_words_process *process, uint32_t number,
                          const struct control_report *report);
void control_words_fault(struct control_words_process *process, uint32_t number,
                         const struct control_fault *fault);
void control_words_ready(struct control_words_process *process, uint32_t number,
                         const struct control_ready *ready);
void control_words_bye(struct control_words_process *process, uint32_t number, uint64_t step);
/* An endpoint of eight bytes. */
void control_words_endpoint(struct control_words_process *process, uint32_t number, uint32_t rank);

/* ---- a coordinator that the test plays ---- */
/* The frame that this walk has written, to the process `proc` of the world. */
void control_words_send(struct control_world *world, uint32_t proc, control_frame frame,
                        const void *payload, size_t bytes);

#endif
