/* A small decoder of bytes: embedding, LAYERS of attention and a feed-forward network, each after a
 * normalisation, and the embedding again as the head. Forward and backward in plain C, without any
 * library: put your own in its place. */
#ifndef TRANSFORMER_H
#define TRANSFORMER_H

#include <math.h>
#include <string.h>

enum {
    VOCABULARY = 256,
    WIDTH = 64,
    HEADS = 4,
    HEAD = WIDTH / HEADS,
    INNER = 4 * WIDTH,
    LAYERS = 2,
    CONTEXT = 32,
    BATCH = 8,
    TOKENS = BATCH * CONTEXT
};

/* Tensors in the order in which backward ends them: the last layer first; the embedding, also the
 * head, last. */
enum {
    OUT_WEIGHT,
    OUT_BIAS,
    UP_WEIGHT,
    UP_BIAS,
    GAIN_2,
    BIAS_2,
    MIX_WEIGHT,
    MIX_BIAS,
    QKV_WEIGHT,
    QKV_BIAS,
    GAIN_1,
    BIAS_1,
    PER_LAYER
};
enum {
    FINAL_GAIN,
    FINAL_BIAS,
    FIRST_LAYER,
    PLACES = FIRST_LAYER + LAYERS * PER_LAYER,
    EMBEDDING,
    TENSORS
};
static unsigned tensor_of(unsigned layer, unsigned part)
{
    return FIRST_LAYER + (LAYERS - 1 - layer) * PER_LAYER + part;
}

static unsigned tensor_elems(unsigned tensor)
{
    static const unsigned parts[PER_LAYER] = {
        INNER * WIDTH, WIDTH, WIDTH * INNER,     INNER,     WIDTH, WIDTH,
        WIDTH * WIDTH, WIDTH, WIDTH * 3 * WIDTH, 3 * WIDTH, WIDTH, WIDTH};
    if (tensor < FIRST_LAYER) return WIDTH;
    if (tensor == PLACES) return CONTEXT * WIDTH;
    return (tensor == EMBEDDING) ? VOCABULARY * WIDTH : parts[(tensor - FIRST_LAYER) % PER_LAYER];
}

/* What forward leaves for backward. Rows are tokens. */
struct layer {
    float in[TOKENS][WIDTH], norm_1[TOKENS][WIDTH], scale_1[TOKENS], qkv[TOKENS][3 * WIDTH];
    float chance[BATCH][HEADS][CONTEXT][CONTEXT], mixed[TOKENS][WIDTH];
    float middle[TOKENS][WIDTH], norm_2[TOKENS][WIDTH], scale_2[TOKENS], up[TOKENS][INNER],
        bent[TOKENS][INNER];
    float after_1[TOKENS][WIDTH], after_2[TOKENS][WIDTH];
};
static struct layer layers[LAYERS];
static float last[TOKENS][WIDTH], last_norm[TOKENS][WIDTH], last_scale[TOKENS],
    last_after[TOKENS][WIDTH];

/* count is a multiple of 8: lanes that a compiler can use. */
static float dot(const float *a, const float *b, unsigned count)
{
    float lanes[8] = {0};
    float sum = 0;
    for (unsigned i = 0; i < count; i += 8)
        for (unsigned k = 0; k < 8; k++) lanes[k] += a[i + k] * b[i + k];
    for (unsigned k = 0; k < 8; k++) sum += lanes[k];
    return sum;
}

static void add_scaled(float *to, float factor, const float *from, unsigned count)
{
    for (unsigned i = 0; i < count; i++) to[i] += factor * from[i];
}

/* out[TOKENS][outs] = in[TOKENS][ins] weight[ins][outs] + bias */
static void linear(float *out, const float *in, const float *weight, const float *bias,
                   unsigned ins, unsigned outs)
{
    for (unsigned t = 0; t < TOKENS; t++, out += outs, in += ins) {
        memcpy(out, bias, outs * sizeof *out);
        for (unsigned i = 0; i < ins; i++) add_scaled(out, in[i], weight + i * outs, outs);
    }
}

static void linear_back(float *to_in, float *to_weight, float *to_bias, const float *to_out,
                        const float *in, const float *weight, unsigned ins, unsigned outs)
{
    for (unsigned t = 0; t < TOKENS; t++, to_in += ins, to_out += outs, in += ins) {
        add_scaled(to_bias, 1, to_out, outs);
        for (unsigned i = 0; i < ins; i++) {
            add_scaled(to_weight + i * outs, in[i], to_out, outs);
            to_in[i] = dot(weight + i * outs, to_out, outs);
        }
    }
}

/* norm is in without mean, times 1/deviation (kept in scale); out = norm gain + bias */
static void normalise(float (*out)[WIDTH], float (*norm)[WIDTH], float *scale, float (*in)[WIDTH],
                      const float *gain, const float *bias)
{
    for (unsigned t = 0; t < TOKENS; t++) {
        float mean = 0;
        float square = 0;
        for (unsigned i = 0; i < WIDTH; i++) mean += in[t][i] / WIDTH;
        for (unsigned i = 0; i < WIDTH; i++)
            square += (in[t][i] - mean) * (in[t][i] - mean) / WIDTH;
        scale[t] = 1 / sqrtf(square + 1e-5f);
        for (unsigned i = 0; i < WIDTH; i++) {
            norm[t][i] = (in[t][i] - mean) * scale[t];
            out[t][i] = norm[t][i] * gain[i] + bias[i];
        }
    }
}

/* Adds to to_in: what comes beside the residual path. */
static void normalise_back(float (*to_in)[WIDTH], float *to_gain, float *to_bias,
                           float (*to_out)[WIDTH], float (*norm)[WIDTH], const float *scale,
                           const float *gain)
{
    for (unsigned t = 0; t < TOKENS; t++) {
        float mean = 0;
        float mean_norm = 0;
        for (unsigned i = 0; i < WIDTH; i++) {
            to_bias[i] += to_out[t][i];
            to_gain[i] += to_out[t][i] * norm[t][i];
            mean += to_out[t][i] * gain[i] / WIDTH;
            mean_norm += to_out[t][i] * gain[i] * norm[t][i] / WIDTH;
        }
        for (unsigned i = 0; i < WIDTH; i++)
            to_in[t][i] += scale[t] * (to_out[t][i] * gain[i] - mean - norm[t][i] * mean_norm);
    }
}

/* Each token mixes the values of those before it and its own. */
static void attend(struct layer *l)
{
    for (unsigned b = 0; b < BATCH; b++)
        for (unsigned h = 0; h < HEADS; h++)
            for (unsigned t = 0; t < CONTEXT; t++) {
                float(*rows)[3 * WIDTH] = &l->qkv[b * CONTEXT];
                float *chance = l->chance[b][h][t];
                float most = -1e30f;
                float sum = 0;
                float *out = &l->mixed[b * CONTEXT + t][h * HEAD];
                memset(out, 0, HEAD * sizeof *out);
                for (unsigned s = 0; s <= t; s++) {
                    chance[s] =
                        dot(&rows[t][h * HEAD], &rows[s][WIDTH + h * HEAD], HEAD) / sqrtf(HEAD);
                    if (chance[s] > most) most = chance[s];
                }
                for (unsigned s = 0; s <= t; s++) sum += chance[s] = expf(chance[s] - most);
                for (unsigned s = 0; s <= t; s++) {
                    chance[s] /= sum;
                    add_scaled(out, chance[s], &rows[s][2 * WIDTH + h * HEAD], HEAD);
                }
            }
}

static void attend_back(const struct layer *l, float (*to_qkv)[3 * WIDTH], float (*to_mixed)[WIDTH])
{
    memset(to_qkv, 0, TOKENS * sizeof *to_qkv);
    for (unsigned b = 0; b < BATCH; b++)
        for (unsigned h = 0; h < HEADS; h++)
            for (unsigned t = 0; t < CONTEXT; t++) {
                const float(*rows)[3 * WIDTH] = &l->qkv[b * CONTEXT];
                const float *chance = l->chance[b][h][t];
                float(*to_rows)[3 * WIDTH] = &to_qkv[b * CONTEXT];
                float to_chance[CONTEXT];
                float mean = 0;
                const float *to_out = &to_mixed[b * CONTEXT + t][h * HEAD];
                for (unsigned s = 0; s <= t; s++) {
                    to_chance[s] = dot(to_out, &rows[s][2 * WIDTH + h * HEAD], HEAD);
                    mean += to_chance[s] * chance[s];
                    add_scaled(&to_rows[s][2 * WIDTH + h * HEAD], chance[s], to_out, HEAD);
                }
                for (unsigned s = 0; s <= t; s++) {
                    float to_score = chance[s] * (to_chance[s] - mean) / sqrtf(HEAD);
                    add_scaled(&to_rows[t][h * HEAD], to_score, &rows[s][WIDTH + h * HEAD], HEAD);
                    add_scaled(&to_rows[s][WIDTH + h * HEAD], to_score, &rows[t][h * HEAD], HEAD);
                }
            }
}

/* GELU by tanh; with to_out also its gradient, in place of to_out. */
static void bend(float *out, const float *in, float *to_out, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        float x = in[i];
        float th = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
        if (out != NULL) out[i] = 0.5f * x * (1 + th);
        if (to_out != NULL)
            to_out[i] *= 0.5f * (1 + th) +
                         0.5f * x * (1 - th * th) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
    }
}

static void forward(float *const weight[TENSORS], const unsigned char *const text[BATCH])
{
    for (unsigned t = 0; t < TOKENS; t++)
        for (unsigned i = 0; i < WIDTH; i++)
            layers[0].in[t][i] = weight[EMBEDDING][text[t / CONTEXT][t % CONTEXT] * WIDTH + i] +
                                 weight[PLACES][t % CONTEXT * WIDTH + i];
    for (unsigned n = 0; n < LAYERS; n++) {
        struct layer *l = &layers[n];
        float *const *w = &weight[tensor_of(n, 0)];
        float *out = (n + 1 < LAYERS) ? layers[n + 1].in[0] : last[0];
        normalise(l->after_1, l->norm_1, l->scale_1, l->in, w[GAIN_1], w[BIAS_1]);
        linear(l->qkv[0], l->after_1[0], w[QKV_WEIGHT], w[QKV_BIAS], WIDTH, 3 * WIDTH);
        attend(l);
        linear(l->middle[0], l->mixed[0], w[MIX_WEIGHT], w[MIX_BIAS], WIDTH, WIDTH);
        add_scaled(l->middle[0], 1, l->in[0], TOKENS * WIDTH);
        normalise(l->after_2, l->norm_2, l->scale_2, l->middle, w[GAIN_2], w[BIAS_2]);
        linear(l->up[0], l->after_2[0], w[UP_WEIGHT], w[UP_BIAS], WIDTH, INNER);
        bend(l->bent[0], l->up[0], NULL, TOKENS * INNER);
        linear(out, l->bent[0], w[OUT_WEIGHT], w[OUT_BIAS], INNER, WIDTH);
        add_scaled(out, 1, l->middle[0], TOKENS * WIDTH);
    }
    normalise(last_after, last_norm, last_scale, last, weight[FINAL_GAIN], weight[FINAL_BIAS]);
}

/* Mean loss of the batch in nats a byte; text[b] has CONTEXT + 1 bytes, the last is only predicted.
 * With gradient not NULL: that of the mean, times scale; ready(arg, first, count, loss) is called
 * as soon as tensors are whole. */
typedef void (*ready_fn)(void *arg, unsigned first, unsigned count, float loss);
static float model_run(float *const weight[TENSORS], float *const gradient[TENSORS],
                       const unsigned char *const text[BATCH], float scale, ready_fn ready,
                       void *arg)
{
    static float to[TOKENS][WIDTH];
    static float to_in[TOKENS][WIDTH];
    static float to_wide[TOKENS][INNER];
    static float to_qkv[TOKENS][3 * WIDTH];
    float loss = 0;
    forward(weight, text);
    for (unsigned n = 0; (gradient != NULL) && (n < TENSORS); n++)
        memset(gradient[n], 0, tensor_elems(n) * sizeof(float));
    memset(to, 0, sizeof to);
    memset(to_in, 0, sizeof to_in);
    for (unsigned t = 0; t < TOKENS; t++) { /* the head, forward and backward */
        unsigned target = text[t / CONTEXT][t % CONTEXT + 1];
        float logits[VOCABULARY];
        float most = -1e30f;
        float sum = 0;
        for (unsigned v = 0; v < VOCABULARY; v++) {
            logits[v] = dot(last_after[t], weight[EMBEDDING] + v * WIDTH, WIDTH);
            if (logits[v] > most) most = logits[v];
        }
        for (unsigned v = 0; v < VOCABULARY; v++) sum += expf(logits[v] - most);
        loss += (logf(sum) + most - logits[target]) / TOKENS;
        for (unsigned v = 0; (gradient != NULL) && (v < VOCABULARY); v++) {
            float to_logit =
                scale / TOKENS * (expf(logits[v] - most) / sum - (v == target ? 1 : 0));
            add_scaled(to_in[t], to_logit, weight[EMBEDDING] + v * WIDTH, WIDTH);
            add_scaled(gradient[EMBEDDING] + v * WIDTH, to_logit, last_after[t], WIDTH);
        }
    }
    if (gradient == NULL) return loss;
    normalise_back(to, gradient[FINAL_GAIN], gradient[FINAL_BIAS], to_in, last_norm, last_scale,
                   weight[FINAL_GAIN]);
    ready(arg, FINAL_GAIN, 2, loss);
    for (unsigned n = LAYERS; n-- > 0;) { /* `to` is the gradient of the residual path */
        struct layer *l = &layers[n];
        float *const *w = &weight[tensor_of(n, 0)];
        float *const *g = &gradient[tensor_of(n, 0)];
        linear_back(to_wide[0], g[OUT_WEIGHT], g[OUT_BIAS], to[0], l->bent[0], w[OUT_WEIGHT], INNER,
                    WIDTH);
        bend(NULL, l->up[0], to_wide[0], TOKENS * INNER);
        linear_back(to_in[0], g[UP_WEIGHT], g[UP_BIAS], to_wide[0], l->after_2[0], w[UP_WEIGHT],
                    WIDTH, INNER);
        normalise_back(to, g[GAIN_2], g[BIAS_2], to_in, l->norm_2, l->scale_2, w[GAIN_2]);
        linear_back(to_in[0], g[MIX_WEIGHT], g[MIX_BIAS], to[0], l->mixed[0], w[MIX_WEIGHT], WIDTH,
                    WIDTH);
        attend_back(l, to_qkv, to_in);
        linear_back(to_in[0], g[QKV_WEIGHT], g[QKV_BIAS], to_qkv[0], l->after_1[0], w[QKV_WEIGHT],
                    WIDTH, 3 * WIDTH);
        normalise_back(to, g[GAIN_1], g[BIAS_1], to_in, l->norm_1, l->scale_1, w[GAIN_1]);
        ready(arg, tensor_of(n, 0), PER_LAYER, loss);
    }
    for (unsigned t = 0; t < TOKENS; t++) {
        add_scaled(gradient[EMBEDDING] + text[t / CONTEXT][t % CONTEXT] * WIDTH, 1, to[t], WIDTH);
        add_scaled(gradient[PLACES] + t % CONTEXT * WIDTH, 1, to[t], WIDTH);
    }
    ready(arg, PLACES, 2, loss);
    return loss;
}

#endif
