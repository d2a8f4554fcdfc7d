/* Tables of transformer language models, from their shape alone.
 *
 * A sample is one sequence of S tokens. Products are counted as config/README.md says; the
 * attention's own, scores and their sum over values, are 4 S^2 W a layer forward (all of them: no
 * kernel that leaves out the masked half is assumed) and stand at the matrix that backward ends
 * after them. Of a token that is 6 N + 12 L W S with N the parameters in products: PaLM's count
 * (arXiv 2204.02311, appendix B).
 *
 * What backward needs of a layer is 34 S W bytes in 16 bits where the scores are computed again:
 * arXiv 2205.05198, section 4.1, equation 1 without its 5 a S^2 term. The logits add 6 S V: 16 bits
 * and their fp32 softmax. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/plan/plan.h"

struct shape {
    uint64_t layers, width, heads, words, tokens, inner;
    bool is_llama;
};

static const struct limit {
    const char *name;
    uint64_t low, high;
} limits[] = {{"layers", 1, 512},
              {"width", 8, 65536},
              {"heads", 1, 1024},
              {"vocabulary", 2, 4000000},
              {"sequence length", 1, 1048576}};
enum { LIMITS = sizeof limits / sizeof limits[0], LIMITS_NEEDED = 4 };

static int shape_read(const char *text, bool is_llama, struct shape *shape_out)
{
    uint64_t values[LIMITS] = {0, 0, 0, 0, 1024};
    const char *at = text;
    int count = 0;
    for (;; at++) {
        char *end;
        if (count == LIMITS)
            return plan_refuse("--transformer %s: more than %d numbers", text, LIMITS);
        values[count] = strtoull(at, &end, 10);
        if ((*at < '0') || (*at > '9') || ((*end != ',') && (*end != '\0')) ||
            (values[count] < limits[count].low) || (values[count] > limits[count].high))
            return plan_refuse("--transformer %s: %s must be a whole number from %" PRIu64
                               " to %" PRIu64,
                               text, limits[count].name, limits[count].low, limits[count].high);
        count++;
        at = end;
        if (*at == '\0') break;
    }
    if (count < LIMITS_NEEDED)
        return plan_refuse(
            "--transformer %s: must be layers,width,heads,vocabulary[,sequence length]", text);
    if (values[1] % values[2] != 0)
        return plan_refuse("--transformer %s: %" PRIu64 " heads do not divide a width of %" PRIu64,
                           text, values[2], values[1]);
    *shape_out = (struct shape){values[0], values[1],     values[2], values[3],
                                values[4], 4 * values[1], is_llama};
    /* arXiv 2302.13971: 2/3 of 4 W */
    if (is_llama) shape_out->inner = (8 * values[1] / 3 + 255) / 256 * 256;
    return 0;
}

/* A matrix outs x ins of a layer (-1: of none), used once a token, with its bias; more: FLOPs
 * forward beside its own. */
static void matrix_print(const struct shape *s, int64_t layer, const char *name, uint64_t outs,
                         uint64_t ins, uint64_t more, FILE *out)
{
    uint64_t flops = 2 * outs * ins * s->tokens + more;
    char prefix[32] = "";
    if (layer >= 0) (void)snprintf(prefix, sizeof prefix, "h.%" PRId64 ".", layer);
    (void)fprintf(out,
                  "    { name = \"%s%s.weight\"; shape = [%" PRIu64 ", %" PRIu64
                  "]; flops = [%" PRIu64 "L, %" PRIu64 "L]; input = %" PRIu64 "L; },\n",
                  prefix, name, outs, ins, flops, 2 * flops, ins * s->tokens);
    if (!s->is_llama && (layer >= 0))
        (void)fprintf(out,
                      "    { name = \"%s%s.bias\"; shape = [%" PRIu64
                      "]; flags = [\"dense\", \"no_decay\"]; },\n",
                      prefix, name, outs);
}

/* GPT-2's norms have a bias, Llama's have none. */
static void norm_print(const struct shape *s, int64_t layer, const char *name, const char *flops,
                       FILE *out)
{
    char prefix[32] = "";
    if (layer >= 0) (void)snprintf(prefix, sizeof prefix, "h.%" PRId64 ".", layer);
    (void)fprintf(out,
                  "    { name = \"%s%s.weight\"; shape = [%" PRIu64
                  "]; flags = [\"dense\", \"no_decay\"];%s },\n",
                  prefix, name, s->width, flops);
    if (!s->is_llama)
        (void)fprintf(out,
                      "    { name = \"%s%s.bias\"; shape = [%" PRIu64
                      "]; flags = [\"dense\", \"no_decay\"]; },\n",
                      prefix, name, s->width);
}

static void layer_print(const struct shape *s, int64_t layer, FILE *out)
{
    uint64_t scores = 4 * s->tokens * s->tokens * s->width;
    matrix_print(s, layer, s->is_llama ? "mlp.down" : "mlp.c_proj", s->width, s->inner, 0, out);
    if (s->is_llama) matrix_print(s, layer, "mlp.up", s->inner, s->width, 0, out);
    matrix_print(s, layer, s->is_llama ? "mlp.gate" : "mlp.c_fc", s->inner, s->width, 0, out);
    norm_print(s, layer, "ln_2", "", out);
    matrix_print(s, layer, "attn.c_proj", s->width, s->width, 0, out);
    matrix_print(s, layer, "attn.c_attn", 3 * s->width, s->width, scores, out);
    norm_print(s, layer, "ln_1", "", out);
}

int plan_transformer(const char *text, bool is_llama, FILE *out)
{
    struct shape s = {0};
    char head[96] = "";
    uint64_t product;
    uint64_t activations;
    if (shape_read(text, is_llama, &s) != 0) return -1;
    product = 2 * s.words * s.width * s.tokens;
    activations = s.layers * 34 * s.tokens * s.width + 6 * s.tokens * s.words;
    if ((s.tokens * s.width > UINT64_C(1) << 36) || (product > UINT64_C(1) << 48) ||
        (8 * s.width * s.width * s.tokens + 4 * s.tokens * s.tokens * s.width > UINT64_C(1) << 48))
        return plan_refuse(
            "--transformer %s: a matrix of more than 2^48 FLOPs a sample; take shorter sequences",
            text);
    (void)fprintf(out,
                  "# gf-plan --transformer %s%s\n# %" PRIu64 " layers of %" PRIu64 ", %" PRIu64
                  " heads, %" PRIu64 " words, sequences of %" PRIu64
                  " tokens; feed-forward of %" PRIu64 ".\n",
                  text, is_llama ? " --llama" : "", s.layers, s.width, s.heads, s.words, s.tokens,
                  s.inner);
    (void)fprintf(out, "tokens = %" PRIu64 ";\nactivation_bytes = %" PRIu64 "L;\ntensors = (\n",
                  s.tokens, activations);
    if (s.is_llama)
        matrix_print(&s, -1, "lm_head", s.words, s.width, 0, out);
    else
        (void)snprintf(head, sizeof head, " flops = [%" PRIu64 "L, %" PRIu64 "L];", product,
                       2 * product);
    norm_print(&s, -1, "ln_f", head,
               out); /* GPT-2's last product is with the words' embedding, whole only at the end */
    for (int64_t layer = (int64_t)s.layers - 1; layer >= 0; layer--) layer_print(&s, layer, out);
    if (!s.is_llama)
        (void)fprintf(out, "    { name = \"wpe.weight\"; shape = [%" PRIu64 ", %" PRIu64 "]; },\n",
                      s.tokens, s.width);
    (void)fprintf(out, "    { name = \"wte.weight\"; shape = [%" PRIu64 ", %" PRIu64 "]; }\n);\n",
                  s.words, s.width);
    return 0;
}
