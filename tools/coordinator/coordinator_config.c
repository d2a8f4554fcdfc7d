/* What gf-coordinator and gf-run are told of the coordinator, as keys of a configuration: each is
 * checked, and refused, as in a file. */
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "tools/common/tool_args.h"
#include "tools/coordinator/coordinator_serve.h"

#define TEXT_BYTES 320u
#define TEXTS_MAX 5u

/* A name becomes a number here, as the channel takes numbers alone. */
static int address_resolve(struct gf_config *config, uint64_t patience_ns, char *error_out)
{
    char numeric[GF_TEXT_MAX];
    char why[256] = "";
    const char *address = config->rendezvous.address; /* set_all() has set resolve, too */
    gf_status status = config->resolve(address, 0, numeric, why);
    if (status == GF_AGAIN) {
        (void)fprintf(stderr, "warning: %.128s: %.200s; it is asked for again for %.1f s\n",
                      address, why, (double)patience_ns / 1e9);
        status = config->resolve(address, patience_ns, numeric, why);
    }
    if (status != GF_OK) {
        (void)snprintf(error_out, GF_CONFIG_ERROR_BYTES, "%.128s: %.200s", address, why);
        return TOOL_FAILED;
    }
    (void)memcpy(config->rendezvous.address, numeric, sizeof numeric);
    return 0;
}

int coordinator_config(const struct coordinator_given *given, struct gf_config *config_out,
                       char *error_out)
{
    static char lines[TEXTS_MAX][TEXT_BYTES];
    const char *texts[TEXTS_MAX];
    uint32_t count = 0;
    const struct {
        const char *key, *value;
    } all[TEXTS_MAX] = {{"rendezvous.address", given->listen},
                        {"rendezvous.key_file", given->key_file},
                        {"rendezvous.join_timeout", given->join_timeout},
                        {"rendezvous.keepalive", given->keepalive},
                        {"rendezvous.insecure", given->insecure ? "true" : NULL}};
    *config_out = (struct gf_config){0};
    if ((given->config_path != NULL) &&
        (gf_config_load(given->config_path, config_out, error_out) != GF_OK))
        return TOOL_FAILED;
    for (uint32_t i = 0; i < TEXTS_MAX; i++) {
        if (all[i].value == NULL) continue;
        if (snprintf(lines[count], TEXT_BYTES, "%s=%s", all[i].key, all[i].value) >=
            (int)TEXT_BYTES) {
            (void)snprintf(error_out, GF_CONFIG_ERROR_BYTES, "%s: too long", all[i].key);
            return -1;
        }
        texts[count] = lines[count];
        count++;
    }
    /* without any, too: what is asked of keys together is asked here */
    if (gf_config_set_all(config_out, texts, count, "command line", error_out) != GF_OK) return -1;
    uint64_t patience_ns = config_out->rendezvous.join_timeout_ns;
    if ((given->patience_ns != 0) && (given->patience_ns < patience_ns))
        patience_ns = given->patience_ns;
    return address_resolve(config_out, patience_ns, error_out);
}
