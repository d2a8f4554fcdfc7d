/* --status: what the coordinator of a running job says of it. Whoever asks proves the key as a rank
 * does, and hears no more than one that waits. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/channel.h"
#include "lib/control/coordinator.h"
#include "lib/control/frames.h"
#include "tools/common/tool_clock.h"
#include "tools/coordinator/coordinator_channel.h"

#define ANSWER_NS UINT64_C(5000000000)
#define TURN_MS 20
/* Where nobody is met it dials again for so long: by then the channel has asked where a job with
 * another key or `insecure` would be, and says so. */
#define DIAL_NS UINT64_C(1000000000)
#define DIAL_AGAIN_NS UINT64_C(50000000)

/* "0-2, 5". */
static void ids_print(const struct control_status *shown)
{
    const char *between = "";
    for (uint32_t id = 0; id < shown->id_count; id++) {
        uint32_t last = id;
        if ((shown->present[id / 8] >> (id % 8) & 1u) == 0) continue;
        while ((last + 1 < shown->id_count) &&
               ((shown->present[(last + 1) / 8] >> ((last + 1) % 8) & 1u) != 0))
            last++;
        printf("%s%u", between, id);
        if (last > id) printf("-%u", last);
        between = ", ";
        id = last;
    }
    if (between[0] == '\0') printf("none");
}

static int shown_print(const struct gf_channel_event *event)
{
    static const char *const states[] = {[GF_COORDINATOR_GATHER] = "gathers its ranks",
                                         [GF_COORDINATOR_RUN] = "runs",
                                         [GF_COORDINATOR_INQUIRE] =
                                             "looks for whose fault a failure is",
                                         [GF_COORDINATOR_REGROUP] = "regroups",
                                         [GF_COORDINATOR_OVER] = "is over"};
    _Static_assert(sizeof states / sizeof states[0] == GF_COORDINATOR_OVER + 1,
                   "each state of the coordinator has a name");
    static struct control_status shown;
    struct gf_get get = {.at = event->payload, .left = event->size_bytes};
    gf_frame_status_walk(&(struct gf_walk){.get = &get}, &shown);
    if (get.bad || (shown.state >= sizeof states / sizeof states[0]) ||
        (shown.id_count > GF_WORLD_MAX)) {
        (void)fprintf(stderr, "gf-coordinator: an answer that is malformed: another version?\n");
        return EXIT_FAILURE;
    }
    printf("the job %s\n", states[shown.state]);
    if (shown.generation == 0)
        printf("no generation yet\n");
    else
        printf("generation %u of %u ranks: %u here, %u away; %u wait to come in\n",
               shown.generation, shown.world, shown.here,
               (shown.world > shown.here) ? shown.world - shown.here : 0, shown.waiting);
    printf("here: ");
    ids_print(&shown);
    if ((shown.generation != 0) && (shown.waiting > 0)) printf(", with those that wait");
    printf("\nlast fault: %s\n", (shown.error.code < 0) ? shown.error.text : "none");
    if (shown.refused_count > 0)
        printf("refused: %u, the last as: %s\n", shown.refused_count, shown.refused_text);
    return EXIT_SUCCESS;
}

static int no_answer(const struct coordinator_job *job, const char *why)
{
    (void)fprintf(stderr, "gf-coordinator: no coordinator answers at %s: %s\n",
                  job->config.rendezvous.address, why);
    return EXIT_FAILURE;
}

/* What listens there has refused this process, and is named in the text. */
static int refusal_print(const char *text)
{
    (void)fprintf(stderr, "gf-coordinator: %s\n", text);
    return EXIT_FAILURE;
}

/* -1: nothing yet. */
static int event_take(const struct coordinator_job *job, struct gf_channel *channel,
                      const struct gf_channel_event *event, bool may_dial)
{
    switch (event->kind) {
    case GF_CHANNEL_CONNECTED:
        (void)channel->driver->send(channel, event->connection, CONTROL_STATUS_QUERY, NULL, 0);
        return -1;
    case GF_CHANNEL_FRAME:
        return (event->frame_kind == CONTROL_STATUS_ANSWER) ? shown_print(event) : -1;
    case GF_CHANNEL_ENDED: break;
    }
    return may_dial ? -1 : no_answer(job, event->text);
}

int coordinator_show(const struct coordinator_job *job)
{
    const struct gf_channel_setup setup = coordinator_channel(job);
    uint64_t begin_ns = tool_clock_ns();
    uint64_t dial_ns = UINT64_MAX; /* nothing is dialled before */
    struct gf_channel *channel = NULL;
    struct gf_fault fault = {0};
    void *memory = aligned_alloc(64, (gf_channel_tcp.state_bytes(&setup) + 63u) / 64u * 64u);
    int result = -1;
    if (memory == NULL) return no_answer(job, "no memory");
    if (gf_channel_tcp.open(&setup, memory, begin_ns, &channel, &fault) < 0) {
        free(memory);
        return no_answer(job, fault.text);
    }
    channel->driver->dial(channel, begin_ns);
    while ((result < 0) && (tool_clock_ns() - begin_ns < ANSWER_NS)) {
        struct gf_channel_event event = {0};
        uint64_t now_ns = tool_clock_ns();
        bool has_come = channel->driver->poll(channel, now_ns, &event);
        bool has_failed = !has_come && (channel->fault.code < 0);
        if (has_failed) result = refusal_print(channel->fault.text);
        if (has_come) result = event_take(job, channel, &event, now_ns - begin_ns < DIAL_NS);
        if (has_come && (event.kind == GF_CHANNEL_ENDED)) dial_ns = now_ns + DIAL_AGAIN_NS;
        if ((result < 0) && (now_ns >= dial_ns)) { /* which does nothing while one is under way */
            channel->driver->dial(channel, now_ns);
            dial_ns = UINT64_MAX;
        }
        struct pollfd wake = {.fd = channel->driver->wake_fd(channel), .events = POLLIN};
        if (!has_come && !has_failed) (void)poll(&wake, (wake.fd >= 0) ? 1 : 0, TURN_MS);
    }
    if (result < 0) result = no_answer(job, "nothing was heard for 5 s");
    channel->driver->close(channel);
    free(memory);
    return result;
}
