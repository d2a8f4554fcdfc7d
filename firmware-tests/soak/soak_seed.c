/* A job as text: its seed, and draws of its plan that are something else: "0x12ab" or
 * "0x12ab:7=0x3f,20=0x1". */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/soak/soak_dice.h"

static struct soak_seed current;
static uint32_t rolls;

uint64_t soak_changed(uint64_t drawn)
{
    uint32_t index = rolls++;
    for (uint32_t i = 0; i < current.change_count; i++)
        if (current.changes[i].index == index) return current.changes[i].value;
    return drawn;
}

uint32_t soak_rolls(void)
{
    return rolls;
}

void soak_run_seed(struct soak_job *job, const struct soak_seed *seed)
{
    current = *seed;
    rolls = 0;
    soak_run(job, seed->seed);
    current.change_count = 0;
}

bool soak_seed_read(const char *text, struct soak_seed *seed_out)
{
    char *end;
    *seed_out = (struct soak_seed){.seed = strtoull(text, &end, 0)};
    if (end == text) return false;
    while ((*end == ':') || (*end == ',')) {
        struct soak_change *change = &seed_out->changes[seed_out->change_count];
        if (seed_out->change_count++ == SOAK_CHANGES_MAX) return false;
        change->index = (uint32_t)strtoul(end + 1, &end, 10);
        if (*end != '=') return false;
        change->value = strtoull(end + 1, &end, 0);
    }
    return (*end == '\0') || (*end == '\n');
}

bool soak_corpus_next(FILE *corpus, struct soak_seed *seed_out)
{
    char line[SOAK_SEED_BYTES];
    while (fgets(line, sizeof line, corpus) != NULL) {
        if (line[0] == '#') continue;
        assert_true(soak_seed_read(line, seed_out));
        return true;
    }
    return false;
}

const char *soak_seed_text(const struct soak_seed *seed, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "0x%llx", (unsigned long long)seed->seed);
    for (uint32_t i = 0; (i < seed->change_count) && (used < size); i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%c%u=0x%llx", (i == 0) ? ':' : ',',
                             seed->changes[i].index, (unsigned long long)seed->changes[i].value);
    return text;
}
