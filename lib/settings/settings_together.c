/* Settings of the optimizer and of sparse communication that need each other or exclude each
 * other. core/resolve.c does the same for drivers and ranks. */
#include "lib/settings/settings.h"
#include "drivers/base/arithmetic.h"

#define refuse(error_out, ...) gf_config_refuse(error_out, GF_ERR_CONFIG, __VA_ARGS__)

static gf_status optimizer_check(const struct gf_config *config, char *error_out)
{
    if ((config->optimizer.kind == GF_OPTIMIZER_ADAMW) && (config->optimizer.momentum > 0))
        return refuse(error_out,
                      "optimizer.momentum = %g: adamw keeps moments by optimizer.adam_beta1 and "
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

static gf_status sparse_check(const struct gf_config *config, char *error_out)
{
    if (!config->sparse.enabled) return GF_OK;
    if (config->optimizer.kind == GF_OPTIMIZER_ADAMW)
        return refuse(
            error_out,
            "sparse.enabled = true: a chunk that is sent holds a sum of several steps, whose "
            "squares optimizer.kind = adamw would take for those of one; allowed with none, sgd "
            "and lars");
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
    return GF_OK;
}

gf_status gf_config_need(const struct gf_config *config, uint32_t needs, char *error_out)
{
    GF_COMPUTES();
    char name[GF_SETTING_NAME_BYTES];
    bool has_optimizer;
    if ((config == NULL) || (error_out == NULL)) return GF_ERR_PARAM;
    has_optimizer = config->optimizer.kind != GF_OPTIMIZER_NONE;
    if (((needs & GF_NEED_OPTIMIZER) != 0) && !has_optimizer)
        return refuse(error_out,
                      "optimizer.kind = none: this program has the library apply its steps; "
                      "allowed is any other, for example optimizer = { kind = \"sgd\"; };");
    if (((needs & GF_NEED_OWN_OPTIMIZER) != 0) && has_optimizer)
        return refuse(
            error_out,
            "optimizer.kind = %s: this program applies its steps itself; allowed is none: "
            "leave the group optimizer out, as own.cfg and own_cluster.cfg do",
            gf_setting_name("optimizer.kind", config->optimizer.kind, name));
    if (((needs & GF_NEED_HALF_WEIGHTS) != 0) && (config->optimizer.half_weights == GF_TYPE_F32))
        return refuse(error_out,
                      "optimizer.half_weights = fp32: this program computes with 16-bit weights; "
                      "allowed are fp16 and bf16");
    if (((needs & GF_NEED_NO_LOSS_SCALE) != 0) && config->loss_scale.enabled)
        return refuse(error_out,
                      "loss_scale.enabled = true: this program does not multiply its loss by "
                      "gf_loss_scale(); allowed is false, with exchange.wire = \"bf16\" or "
                      "\"fp32\", as in own_cluster.cfg");
    if (((needs & GF_NEED_DENSE) != 0) && config->sparse.enabled)
        return refuse(error_out,
                      "sparse.enabled = true: this program updates with every gradient of each "
                      "step; allowed is false: leave the group sparse out");
    if (((needs & GF_NEED_RATE) != 0) && !(config->rate.base_rate > 0))
        return refuse(error_out,
                      "rate.base is not set: this program takes gf_rate(), which would be 0; "
                      "allowed is a number above 0, for example rate = { base = 0.1; };");
    return GF_OK;
}

/* Local momentum is Nesterov's, so that of dense steps and tensors is, too. */
static void nesterov_set(struct gf_config *config)
{
    bool is_local = config->sparse.enabled && (config->sparse.momentum == GF_SPARSE_MOMENTUM_LOCAL);
    if (is_local && (config->optimizer.momentum > 0)) config->optimizer.nesterov = true;
}

gf_status gf_config_effective(const struct gf_config *config, struct gf_config *effective_out,
                              char *error_out)
{
    GF_COMPUTES();
    struct gf_config own;
    gf_status status;
    if ((config == NULL) || (effective_out == NULL) || (error_out == NULL)) return GF_ERR_PARAM;
    status = gf_config_own(config, &own, error_out);
    if (status == GF_OK) status = optimizer_check(&own, error_out);
    if (status == GF_OK) status = sparse_check(&own, error_out);
    if (status < 0) return status;
    nesterov_set(&own);
    *effective_out = own;
    return GF_OK;
}
