/* libFuzzer over saved states: whatever the bytes, they are refused and leave no trace, or they are
 * loaded, saved to what loads again, and a step runs. The first byte says what is made right again
 * before: 1 the checksum, 2 the common part's hash too, else nothing. `make fuzz T=state`. With
 * GF_FUZZ_SEEDS=DIR it writes valid states of today's format there (firmware-tests/README.md). */
#include <stdio.h>

#include "firmware-tests/support/suite.h"
#include "drivers/base/fnv.h"
#include "lib/state/state_format.h"
#include "firmware-tests/support/world.h"

static const struct gf_tensor tensors[] = {
    {.name = "bias", .elem_count = 3, .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY},
    {.name = "all", .elem_count = 13},
};

static struct world world;
static gf_context *gf;
static uint64_t state_bytes;
static unsigned char *saved, *again;

static void world_begin(void)
{
    struct world_setup setup = {.world = 1, .tensors = tensors, .tensor_count = 2};
    setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
    setup.config.optimizer.momentum = 0.5f;
    setup.config.sparse.enabled = true;
    setup.config.sparse.chunk_elems = 3;
    setup.config.sparse.keep_share = 0.5f;
    setup.config.sparse.momentum = GF_SPARSE_MOMENTUM_LOCAL;
    setup.config.loss_scale.enabled = true;
    world_open(&world, &setup);
    gf = world.ranks[0].gf;
    state_bytes = gf_state_bytes(gf);
    saved = malloc(state_bytes);
    again = malloc(state_bytes);
    if ((saved == NULL) || (again == NULL)) abort();
}

static void repair(unsigned char *state, bool common)
{
    struct gf_state_head head;
    uint64_t checksum;
    uint64_t own;
    memcpy(&head, state, sizeof head);
    if (common) {
        struct gf_state_head bare = head;
        bare.rank = 0;
        bare.common_hash = 0;
        /* 13, to 8 bytes */
        own = 14 * sizeof(float) * (((head.flags & GF_STATE_LOCAL) != 0) ? 2 : 1);
        head.common_hash =
            gf_fnv_words(gf_fnv_words(GF_FNV_START, &bare, sizeof bare), state + sizeof head,
                         state_bytes - sizeof checksum - own - sizeof head);
        memcpy(state, &head, sizeof head);
    }
    checksum = gf_fnv_words(GF_FNV_START, state, state_bytes - sizeof checksum);
    memcpy(state + state_bytes - sizeof checksum, &checksum, sizeof checksum);
}

static void loaded_check(void)
{
    struct world_step step = {0};
    if (gf_state_save(gf, again, state_bytes) != GF_OK) abort();
    if (gf_state_load(gf, again, state_bytes) != GF_OK) abort();
    world_step_run(&world, &step);
    if (world.ranks[0].status == GF_OK) return;
    if (world.ranks[0].status != GF_ERR_NUMERIC) abort(); /* values of a state may be anything */
    world_close(&world);
    free(saved);
    free(again);
    gf = NULL;
}

static void seed_write(const char *folder, const char *name, int first_byte)
{
    char path[4096];
    FILE *file;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "w");
    if ((gf_state_save(gf, saved, state_bytes) != GF_OK) || (file == NULL)) abort();
    if ((fputc(first_byte, file) != first_byte) || (fwrite(saved, state_bytes, 1, file) != 1))
        abort();
    if (fclose(file) != 0) abort();
}

/* libFuzzer calls it once, before the first input. */
int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
    const char *folder = getenv("GF_FUZZ_SEEDS");
    struct world_step step = {0};
    (void)argument_count;
    (void)arguments;
    world_begin();
    if (folder == NULL) return 0;
    seed_write(folder, "valid_fresh", 0);
    world_step_run(&world, &step);
    if (gf_update(gf, 0.5f) != GF_OK) abort();
    seed_write(folder, "valid_after_a_step", 2);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *state;
    gf_status status;
    uint64_t bytes;
    if (gf == NULL) world_begin();
    if (size < 1) return 0;
    bytes = size - 1;
    state = aligned_alloc(8, (bytes + 8) / 8 * 8);
    if (state == NULL) return 0;
    memcpy(state, data + 1, bytes);
    if ((bytes == state_bytes) && ((data[0] == 1) || (data[0] == 2))) repair(state, data[0] == 2);
    world_log_clear(&world);
    /* the step before was not applied */
    if (gf_state_save(gf, saved, state_bytes) == GF_ERR_STATE) {
        if ((gf_update(gf, 0.5f) != GF_OK) || (gf_state_save(gf, saved, state_bytes) != GF_OK))
            abort();
    }
    status = gf_state_load(gf, state, bytes);
    if (status == GF_OK) {
        loaded_check();
    } else {
        if ((status != GF_ERR_DATA) || (world.ranks[0].log_bytes == 0)) abort();
        if (gf_state_save(gf, again, state_bytes) != GF_OK) abort();
        if (memcmp(saved, again, state_bytes) != 0) abort();
    }
    free(state);
    return 0;
}
