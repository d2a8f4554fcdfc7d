/* The fake CUDA driver: a graph, works in a row that one call launches, any number of times. An
 * event that it records is, as of the launch, of that launch: it is no longer reached. So an event
 * has the state of the last record that was asked for, as CUDA says of it; whether cards do so is
 * not known here. */
#include <stdlib.h>

#include "firmware-tests/cuda/fake_cuda_state.h"

#define NODES_MAX 1024u

static struct node {
    struct work work;
    CUevent event; /* NULL: work */
} * nodes;
static uint32_t count;

static void node_add(const struct node *node)
{
    if (nodes == NULL) nodes = calloc(NODES_MAX, sizeof *nodes);
    if ((nodes == NULL) || (count == NODES_MAX)) abort();
    nodes[count++] = *node;
}

void fake_graph_busy(uint64_t busy_ns)
{
    node_add(&(struct node){.work = {.kind = WORK_BUSY, .busy_ns = busy_ns}});
}

void fake_graph_copy(uint64_t dst, uint64_t src, size_t size_bytes)
{
    node_add(&(struct node){
        .work = {.kind = WORK_COPY, .dst = dst, .src = src, .size_bytes = size_bytes}});
}

void fake_graph_record(uint64_t event)
{
    node_add(&(struct node){.event = (CUevent)(uintptr_t)event});
}

void fake_graph_launch(uint64_t handle)
{
    uint32_t stream;
    if (!fake_stream_find((CUstream)(uintptr_t)handle, &stream)) return;
    for (uint32_t i = 0; i < count; i++) {
        if (nodes[i].event != NULL)
            (void)fake_event_record(nodes[i].event, stream);
        else
            fake_queue_add(stream, &nodes[i].work);
    }
}

void fake_graph_forget(void)
{
    free(nodes);
    nodes = NULL;
    count = 0;
}
