/* See control_words_suite.h. */
#include "firmware-tests/support/control_words_suite.h"

struct words words;

void words_turn(void)
{
    words.world.now_ns += 5 * CONTROL_MS;
    words.polled = gf_coordinator_poll(words.world.coordinator, words.world.now_ns);
}

void words_spend(uint64_t for_ns)
{
    for (uint64_t spent_ns = 0; spent_ns < for_ns; spent_ns += 5 * CONTROL_MS) words_turn();
}

void words_heard_at(const char *file, int line, uint32_t id, const char *text)
{
    const char *heard = control_words_heard(words.peers[id].channel);
    if (strcmp(heard, text) != 0)
        fail_msg("%s:%d: process %u heard \"%s\", not \"%s\"", file, line, id, heard, text);
}

void words_discard(void)
{
    for (uint32_t i = 0; i < WORDS_PEERS; i++)
        if (words.peers[i].channel != NULL) (void)control_words_heard(words.peers[i].channel);
}

void words_open(uint32_t ids, uint32_t id_count, bool is_elastic)
{
    control_world_open_growing(&words.world, ids, 1, id_count, GF_RANK_NONE);
    for (uint32_t id = 0; id < ids; id++) control_world_kill(&words.world, id);
    for (uint32_t i = 0; i < WORDS_PEERS; i++)
        words.peers[i] =
            (struct control_words_process){.offer = {.id = i,
                                                     .id_count = id_count,
                                                     .first_world = ids,
                                                     .process = 500 + i,
                                                     .terms = {.elastic = is_elastic,
                                                               .join_timeout_ns = 8 * SECOND,
                                                               .keepalive_ns = SECOND,
                                                               .exchange_timeout_ns = 2 * SECOND},
                                                     .values = {.version = 1, .node = i + 1}}};
}

void words_come(uint32_t id)
{
    control_words_come(&words.world, &words.peers[id]);
    words_turn();
}

void words_all_listed(uint32_t ids)
{
    for (uint32_t id = 0; id < ids; id++) control_words_come(&words.world, &words.peers[id]);
    words_turn();
    words_discard();
}

void words_all_begun(uint32_t ids, uint32_t id_count, bool is_elastic)
{
    words_open(ids, id_count, is_elastic);
    words_all_listed(ids);
    for (uint32_t id = 0; id < ids; id++) control_words_endpoint(&words.peers[id], 1, id);
    words_turn();
    words_discard();
}

void words_say_fault(uint32_t id, uint32_t number)
{
    struct control_fault fault = {.error = {.code = GF_ERR_TIMEOUT,
                                            .peer = GF_RANK_NONE,
                                            .tensor = GF_TENSOR_NONE,
                                            .text = "no step ends"}};
    control_words_fault(&words.peers[id], number, &fault);
}

void words_say_end(uint32_t id, uint32_t number)
{
    struct control_fault fault = {.ends = true,
                                  .error = {.code = GF_ERR_DATA,
                                            .peer = GF_RANK_NONE,
                                            .tensor = GF_TENSOR_NONE,
                                            .text = "its file is broken"}};
    control_words_fault(&words.peers[id], number, &fault);
}

void words_say_ready(uint32_t id, uint32_t number, uint64_t steps, bool planned, bool leaves)
{
    struct control_ready ready = {
        .planned = planned, .leaves = leaves, .progress = {.steps = steps, .applied = 1}};
    control_words_ready(&words.peers[id], number, &ready);
}

void words_say_position(uint32_t id, uint32_t number, uint32_t inquiry)
{
    struct control_report report = {.inquiry = inquiry,
                                    .step = 5,
                                    .sequence = 9,
                                    .waits_for = (id + 1) % 3,
                                    .tensor = GF_TENSOR_NONE};
    control_words_status(&words.peers[id], number, &report);
}

void words_say_status(uint32_t id, uint32_t number, uint64_t step, uint64_t patience_ns)
{
    struct control_report report = {.step = step,
                                    .patience_ns = patience_ns,
                                    .patience_from = 42,
                                    .waits_for = GF_RANK_NONE,
                                    .tensor = GF_TENSOR_NONE};
    control_words_status(&words.peers[id], number, &report);
}

void words_dies(uint32_t id)
{
    control_world_kill(&words.world, words.peers[id].proc);
    words_turn();
}

void words_breaks(uint32_t id)
{
    control_world_cut(&words.world, words.peers[id].proc);
    (void)control_words_heard(words.peers[id].channel);
    words_turn();
}

void words_found(const char *text)
{
    struct gf_coordinator_status status;
    gf_coordinator_status(words.world.coordinator, &status);
    if (strstr(status.error.text, text) == NULL)
        fail_msg("not \"%s\": %s", text, status.error.text);
}

void words_two_endpoints(uint32_t number, uint32_t first, uint32_t second)
{
    control_words_endpoint(&words.peers[first], number, 0);
    control_words_endpoint(&words.peers[second], number, 1);
    words_turn();
}

void words_all_endpoints(uint32_t number, const uint32_t *ids, uint32_t count)
{
    for (uint32_t rank = 0; rank < count; rank++)
        control_words_endpoint(&words.peers[ids[rank]], number, rank);
    words_turn();
    words_discard();
}

void words_say_edges(uint32_t id, uint32_t number, uint32_t inquiry, uint32_t first,
                     uint32_t second)
{
    struct control_report report = {
        .inquiry = inquiry, .waits_for = 0, .tensor = GF_TENSOR_NONE, .edges = {.count = 2}};
    report.edges.peers[0] = (uint16_t)first;
    report.edges.peers[1] = (uint16_t)second;
    control_words_status(&words.peers[id], number, &report);
}

void words_breaks_and_comes(uint32_t id)
{
    words_breaks(id);
    words_come(id);
}
