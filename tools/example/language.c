/* How a real trainer looks: a small language model of bytes (transformer.h) on all ranks of a job,
 * with AdamW, clipping, a 16-bit wire, a checkpoint, and ranks that die and come back.
 *
 *     make language && gf-run -n 2 ./language
 *     gf-run -n 3 --restart 2 ./language --config local.cfg --text FILE --steps 500 --checkpoint
 *         model.state
 *
 * Everything that is not the model or its data is here. */
#include "checkpoint.h" /* first: it asks the system's headers for POSIX */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#include <gradientflow/config.h>
#include <gradientflow/gradientflow.h>

#include "transformer.h"

enum { SAVE_EVERY = 20, SAY_EVERY = 10 };
static const char *text_path = "/usr/share/common-licenses/GPL-3"; /* every Debian has it */
static const char *config_path, *checkpoint;
static uint64_t steps = 500;
static unsigned char *text;
static uint64_t text_bytes;
static float *weight[TENSORS], *gradient[TENSORS];

static void log_line(void *user, gf_log_level level, const char *line)
{
    (void)user;
    if (level <= GF_LOG_WARN) fprintf(stderr, "%s\n", line);
}

/* ---- data ---- */

/* The whole of a regular file, malloc'd; NULL: errno says why. A FIFO would be waited for. */
static unsigned char *file_read(const char *path, uint64_t *bytes_out)
{
    struct stat about = {0};
    unsigned char *data = NULL;
    int number = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (number < 0) return NULL;
    if ((fstat(number, &about) == 0) && !S_ISREG(about.st_mode)) {
        fprintf(stderr, "%s: is no regular file\n", path);
        errno = EINVAL;
    } else if ((data = malloc((size_t)about.st_size + 1)) != NULL) {
        if (read(number, data, (size_t)about.st_size) != about.st_size) free(data), data = NULL;
        *bytes_out = (uint64_t)about.st_size;
    }
    close(number);
    return data;
}

/* Which bytes sample `number` of the run is: no state to save, and every generation's ranks share
 * the run's samples anew. */
static const unsigned char *sample_of(uint64_t number)
{
    number = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
    number = (number ^ (number >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return text + (number ^ (number >> 32)) % (text_bytes - CONTEXT);
}

/* ---- weights ---- */

/* Addresses change with each generation. */
static void addresses_ask(gf_context *gf)
{
    for (unsigned t = 0; t < TENSORS; t++) {
        weight[t] = gf_weight_f32(gf, t);
        gradient[t] = gf_gradient_f32(gf, t);
    }
}

static void weights_draw(void)
{
    uint64_t state = 42;
    for (unsigned t = 0; t < TENSORS; t++) {
        unsigned part = (t - FIRST_LAYER) % PER_LAYER;
        unsigned elems = tensor_elems(t);
        bool gain = (t == FINAL_GAIN) ||
                    ((t >= FIRST_LAYER) && (t < PLACES) && ((part == GAIN_1) || (part == GAIN_2)));
        for (unsigned i = 0; i < elems; i++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
            weight[t][i] = gain ? 1
                           : (elems <= INNER)
                               ? 0
                               : 0.1f * ((float)(state >> 40) / (float)(1 << 24) - 0.5f);
        }
    }
}

/* ---- checkpoints: the state of a dense run is the same on all ranks, so rank 0 saves for any
 * number of them ---- */

/* A file that cannot be written, on a full disk, ends no rank: the next save may succeed. */
static gf_status state_save(gf_context *gf)
{
    gf_status status = state_keep(gf, checkpoint);
    if (status != GF_ERR_SYSTEM) return status;
    perror(checkpoint);
    return GF_OK;
}

/* Those of the checkpoint, if all ranks have it, or rank 0's. */
static gf_status weights_begin(gf_context *gf)
{
    gf_status status = (checkpoint != NULL) ? state_take(gf, checkpoint) : GF_OK;
    if ((status != GF_OK) || gf_weights_common(gf)) return status;
    if (gf_rank(gf) == 0) weights_draw();
    return gf_broadcast_weights(gf, 0);
}

/* ---- a step ---- */

struct backward {
    gf_context *gf;
    gf_status status;
};

/* These travel while the layer below is computed. */
static void layer_ready(void *arg, unsigned first, unsigned count, float loss)
{
    struct backward *b = arg;
    /* the loss rides with the vote: no message, no wait */
    if ((b->status == GF_OK) && (first == FINAL_GAIN))
        b->status = gf_step_metric(b->gf, 0, (double)loss / gf_world(b->gf));
    if (b->status == GF_OK) b->status = gf_tensors_ready(b->gf, first, count, 0);
}

static gf_status step(gf_context *gf)
{
    const unsigned char *samples[BATCH];
    struct backward back = {gf, gf_step_begin(gf)};
    uint64_t number = gf_steps(gf);
    float norm = 0;
    if (back.status != GF_OK) return back.status;
    for (unsigned b = 0; b < BATCH; b++)
        samples[b] = sample_of((number * gf_world(gf) + gf_rank(gf)) * BATCH + b);
    (void)model_run(weight, gradient, samples, gf_loss_scale(gf), layer_ready, &back);
    if (back.status == GF_OK) back.status = gf_step_wait(gf);
    if ((back.status == GF_OK) && !gf_step_skipped(gf))
        back.status = gf_gradient_norm(gf, &norm, NULL);
    if (back.status == GF_OK) back.status = gf_update(gf, gf_rate(gf, number));
    if (back.status != GF_OK) return back.status;
    if ((gf_rank(gf) == 0) && ((number % SAY_EVERY == 0) || (number + 1 == steps)))
        printf("step %llu: loss %.3f, gradient norm %.2f, %u ranks\n", (unsigned long long)number,
               gf_metric(gf, 0), (double)norm, gf_world(gf)),
            fflush(stdout);
    if ((checkpoint != NULL) && (gf_rank(gf) == 0) &&
        ((number + 1 == steps) || ((number + 1) % SAVE_EVERY == 0)))
        return state_save(gf);
    return GF_OK;
}

/* It may take as long as a rank takes to start again; a person who looks on is told. */
static gf_status generation_await(gf_context *gf)
{
    const struct timespec turn = {.tv_nsec = 1000000};
    gf_status status;
    for (unsigned turns = 1; (status = gf_regroup_poll(gf)) == GF_AGAIN; turns++) {
        if (turns % 1000 == 0) fprintf(stderr, "rank %u waits for the other ranks\n", gf_rank(gf));
        (void)thrd_sleep(&turn, NULL);
    }
    return status;
}

/* A peer is gone: go on without it. One waits to come in or wants to leave: let it. Then all
 * addresses are new. */
static gf_status generation_change(gf_context *gf, gf_status status)
{
    if ((status == GF_ERR_PEER) || (status == GF_ERR_LINK) || (status == GF_ERR_TIMEOUT))
        status = gf_regroup_begin(gf);
    else if ((status == GF_OK) && (gf_regroup_due(gf) > 0))
        status = gf_regroup_begin(gf);
    else
        return status;
    if (status == GF_OK) status = generation_await(gf);
    if (status == GF_OK) addresses_ask(gf);
    return status;
}

static gf_status train(gf_context *gf)
{
    gf_status status = GF_OK;
    addresses_ask(gf);
    while (!gf_weights_common(gf) || (gf_steps(gf) < steps)) {
        status = gf_weights_common(gf) ? step(gf) : weights_begin(gf);
        while ((status < 0) || (gf_regroup_due(gf) > 0)) {
            gf_status changed = generation_change(gf, status);
            /* not of the kind that others survive */
            if ((changed < 0) && (changed == status)) return status;
            status = changed;
        }
    }
    return status;
}

static bool arguments_take(int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i];
        const char *value = (i + 1 < argc) ? argv[i + 1] : NULL;
        if (value == NULL) return false;
        if (strcmp(name, "--config") == 0)
            config_path = value;
        else if (strcmp(name, "--text") == 0)
            text_path = value;
        else if (strcmp(name, "--steps") == 0)
            steps = strtoull(value, NULL, 10);
        else if (strcmp(name, "--checkpoint") == 0)
            checkpoint = value;
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct gf_config config;
    static struct gf_tensor tensors[TENSORS];
    static char error[GF_CONFIG_ERROR_BYTES];
    static char names[TENSORS][16];
    struct gf_footprint need;
    gf_context *gf = NULL;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    if (!arguments_take(argc, argv)) {
        fprintf(stderr,
                "usage: language [--config FILE] [--text FILE] [--steps N] [--checkpoint FILE]\n");
        return 2;
    }
    if ((config_path != NULL) && (gf_config_load(config_path, &config, error) != GF_OK))
        return fprintf(stderr, "%s\n", error), 1;
    text = file_read(text_path, &text_bytes);
    if ((text == NULL) || (text_bytes <= CONTEXT))
        return fprintf(stderr, "%s: no text of more than %d bytes\n", text_path, CONTEXT), 1;
    for (unsigned t = 0; t < TENSORS; t++) {
        (void)snprintf(names[t], sizeof names[t], "tensor.%u", t);
        tensors[t] =
            (struct gf_tensor){.name = names[t],
                               .elem_count = tensor_elems(t),
                               .flags = (tensor_elems(t) <= INNER) ? GF_TENSOR_NO_DECAY : 0};
    }
    config.log = log_line;
    config.exchange.wire = GF_TYPE_BF16;
    config.exchange.average = GF_AVERAGE_RANKS;
    config.optimizer.kind = GF_OPTIMIZER_ADAMW;
    config.optimizer.momentum = 0; /* the file's may be for another optimizer */
    config.optimizer.weight_decay = 0.1f;
    config.optimizer.clip_norm = 1;
    config.rate = (struct gf_schedule){.kind = GF_SCHEDULE_COSINE,
                                       .base_rate = 3e-3f,
                                       .warmup_steps = 20,
                                       .step_count = (steps > 20) ? steps : 21,
                                       .end_rate = 3e-4f};
    if (gf_measure(&config, tensors, TENSORS, &need) != GF_OK) return 1;
    void *memory = aligned_alloc(64, need.control_bytes); /* the only memory the library is given */
    gf_status status = gf_open(&config, tensors, TENSORS, memory, need.control_bytes, &gf);
    if (status == GF_OK) status = gf_open_wait(gf);
    if (status == GF_OK) status = train(gf);
    if (status != GF_OK)
        fprintf(stderr, "error: rank %u: %s\n", gf_rank(gf), gf_status_name(status));
    for (unsigned t = 0; (status == GF_OK) && (t < TENSORS); t++)
        for (unsigned i = 0; i < tensor_elems(t) * sizeof(float); i++)
            hash = (hash ^ ((unsigned char *)weight[t])[i]) * UINT64_C(0x100000001b3);
    if (status == GF_OK)
        printf("rank %u of %u: %llu steps, weights %016llx\n", gf_rank(gf), gf_world(gf),
               (unsigned long long)gf_steps(gf), (unsigned long long)hash);
    gf_close(gf);
    free(memory);
    free(text);
    return status != GF_OK;
}
