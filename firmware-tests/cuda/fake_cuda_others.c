/* The fake CUDA driver: another library in the same process, as NCCL is in a trainer's. At each
 * fourth kernel of the appliance's it launches one of its own, on its own stream behind the
 * appliance's and in front of what comes there next, which runs until those of all processes run.
 * It shares the hardware work queues. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "firmware-tests/cuda/fake_cuda_state.h"

#define MEETINGS_MAX 4096u
#define EVERY 4u

static _Atomic uint32_t *arrived; /* [MEETINGS_MAX] of all processes */
static uint32_t parties, launched;

static bool is_asked_for(void)
{
    const char *text = getenv("GF_FAKE_CUDA_OTHERS");
    char path[256];
    if ((arrived != NULL) || (text == NULL)) return arrived != NULL;
    if (sscanf(text, "%u:%255s", &parties, path) != 2) abort();
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if ((file < 0) || (ftruncate(file, MEETINGS_MAX * sizeof *arrived) != 0)) abort();
    void *memory =
        mmap(NULL, MEETINGS_MAX * sizeof *arrived, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) abort();
    (void)close(file);
    arrived = memory;
    return true;
}

void fake_others_arrive(uint64_t meeting)
{
    atomic_fetch_add(&arrived[meeting], 1);
}

bool fake_others_met(uint64_t meeting)
{
    return atomic_load(&arrived[meeting]) >= parties;
}

void fake_others_launch(uint32_t stream)
{
    if (!is_asked_for() || (launched++ % EVERY != 0)) return;
    if (launched / EVERY >= MEETINGS_MAX) abort();
    if (launched == 1) fake_others_open(fake_current());
    fake_queue_wait(OTHERS_STREAM, stream);
    fake_queue_add(OTHERS_STREAM, &(struct work){.kind = WORK_MEET, .wait_done = launched / EVERY});
    fake_queue_wait(stream, OTHERS_STREAM);
}
