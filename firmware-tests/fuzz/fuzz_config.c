/* libFuzzer over texts of configurations and models: whatever the text, the answer is GF_OK or one
 * line. And what loads must print to a text that loads to the same. `make fuzz T=config`. Leaks are
 * not looked for: libconfig 1.5 itself leaks the last string before a syntax error. */
#include <stdlib.h>
#include <string.h>

#include "config/config_source.h"
#include "tools/common/tool_model.h"

static void line_check(const char *error)
{
    if ((strlen(error) == 0) || (strlen(error) >= GF_CONFIG_ERROR_BYTES)) abort();
}

/* What is left out stays so where a device has another value. */
static void round_trip(struct gf_config *config)
{
    struct gf_config again;
    char error[GF_CONFIG_ERROR_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) abort();
    gf_config_print(config, NULL, out);
    (void)fclose(out);
    if (gf_source_check(text, bytes, "printed", error) != GF_OK) abort();
    if (gf_config_load_text(text, "printed", &again, error) != GF_OK) abort();
    if (gf_config_effective(config, config, error) != GF_OK) abort();
    if (memcmp(config, &again, sizeof again) != 0) abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gf_tensor tensors[64];
    static char names[64][48];
    static struct tool_flops flops[64];
    static struct gf_config config;
    char error[GF_CONFIG_ERROR_BYTES] = "";
    char *text = malloc(size + 2);
    if (text == NULL) return 0;
    if (size > 0) memcpy(text, data, size);
    memcpy(text + size, "\n", 2);
    /* A name would be asked of the network. */
    if ((memmem(text, size, "address", 7) == NULL) &&
        (gf_source_check(text, size, "fuzz", error) == GF_OK)) {
        if (gf_config_load_text(text, "fuzz", &config, error) == GF_OK)
            round_trip(&config);
        else
            line_check(error);
        struct tool_model model = {
            .tensors = tensors, .names = names, .flops = flops, .tensor_max = 64};
        if (tool_model_load_text(text, "fuzz", &model, error) != GF_OK) line_check(error);
    }
    free(text);
    return 0;
}
