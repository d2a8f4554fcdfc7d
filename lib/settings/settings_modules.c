/* Combinations of keys that are about one module, whose table names the check. What is not linked
 * core/resolve.c refuses. */
#include "lib/settings/settings.h"

#define refuse(error_out, ...) gf_config_refuse(error_out, GF_ERR_CONFIG, __VA_ARGS__)

/* Groups of values lie where the fused buffer puts them, and have one way to their owner. */
gf_status gf_quantize_settings(struct gf_config *config, char *error_out)
{
    bool int8 = config->exchange.quantize == GF_QUANTIZE_INT8;
    uint32_t least = int8 ? 32 : 256;
    uint32_t elems = config->exchange.scale_elems;
    gf_algorithm algorithm = config->exchange.algorithm;
    if (config->exchange.quantize == GF_QUANTIZE_NONE) return GF_OK;
    if ((elems != 0) && (elems != least) && (elems != 2 * least))
        return refuse(
            error_out,
            "exchange.scale_elems = %u: with exchange.quantize = %s allowed are 0, %u and %u",
            elems, int8 ? "int8" : "onebit", least, 2 * least);
    if ((GF_ALGORITHMS_QUANTIZED >> algorithm & 1) == 0)
        return refuse(error_out,
                      "exchange.algorithm = %s: partial sums would be quantized once a hop; with "
                      "exchange.quantize allowed is auto, direct, alltoall",
                      gf_algorithm_name(algorithm));
    if (config->exchange.wire != GF_TYPE_F32)
        return refuse(
            error_out,
            "exchange.wire: with exchange.quantize allowed is fp32, which it takes the place of");
    if (config->exchange.deterministic)
        return refuse(error_out,
                      "exchange.quantize: which elements share a scale depends on fusion; with "
                      "exchange.deterministic allowed is none");
    if (config->sparse.enabled)
        return refuse(error_out,
                      "exchange.quantize: chunks that are sent have no error of their own; with "
                      "sparse.enabled allowed is none");
    return GF_OK;
}

gf_status gf_optimizer_settings(struct gf_config *config, char *error_out)
{
    if ((config->optimizer.kind >= GF_OPTIMIZER_ADAMW) && (config->optimizer.momentum > 0))
        return refuse(
            error_out,
            "optimizer.momentum = %g: adamw and lamb keep moments by optimizer.adam_beta1 and "
            "adam_beta2; allowed is 0",
            (double)config->optimizer.momentum);
    if (config->optimizer.nesterov && !(config->optimizer.momentum > 0))
        return refuse(error_out,
                      "optimizer.nesterov = true: allowed only with optimizer.momentum above 0");
    if ((config->optimizer.half_weights != GF_TYPE_F32) &&
        (config->optimizer.kind == GF_OPTIMIZER_NONE))
        return refuse(error_out, "optimizer.half_weights: allowed only with an optimizer.kind");
    return GF_OK;
}

gf_status gf_sparse_settings(struct gf_config *config, char *error_out)
{
    if (!config->sparse.enabled) return GF_OK;
    if (config->optimizer.kind >= GF_OPTIMIZER_ADAMW)
        return refuse(
            error_out,
            "sparse.enabled = true: a chunk that is sent holds a sum of several steps, whose "
            "squares optimizer.kind = %s would take for those of one; allowed with none, sgd and "
            "lars",
            (config->optimizer.kind == GF_OPTIMIZER_LAMB) ? "lamb" : "adamw");
    if ((config->sparse.momentum != GF_SPARSE_MOMENTUM_REDUCED) &&
        (config->optimizer.kind == GF_OPTIMIZER_NONE))
        return refuse(error_out,
                      "sparse.momentum = local: the momentum is the library's, allowed only with "
                      "optimizer.kind sgd");
    if ((config->sparse.momentum != GF_SPARSE_MOMENTUM_REDUCED) &&
        (config->optimizer.kind != GF_OPTIMIZER_SGD))
        return refuse(
            error_out,
            "sparse.momentum = local: momentum is applied before the reduction, but that of "
            "optimizer.kind = lars holds learning rates and ratios, which are known after it; "
            "allowed is "
            "reduced");
    if ((config->sparse.momentum == GF_SPARSE_MOMENTUM_LOCAL) && (config->optimizer.momentum > 0))
        config->optimizer.nesterov =
            true; /* local momentum is, so dense steps and tensors are too */
    return GF_OK;
}

gf_status gf_config_effective(const struct gf_config *config, struct gf_config *effective_out,
                              char *error_out)
{
    struct gf_config own;
    gf_status status;
    if ((config == NULL) || (effective_out == NULL) || (error_out == NULL)) return GF_ERR_PARAM;
    if ((status = gf_config_own(config, &own, error_out)) < 0) return status;
    if ((status = gf_quantize_settings(&own, error_out)) < 0) return status;
    if ((status = gf_optimizer_settings(&own, error_out)) < 0) return status;
    if ((status = gf_sparse_settings(&own, error_out)) == GF_OK) *effective_out = own;
    return status;
}
