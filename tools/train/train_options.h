/* What gf-train is told on its command line. */
#ifndef GF_TRAIN_OPTIONS_H
#define GF_TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/train/train_net.h"

struct train_options {
    bool elastic; /* go on with the ranks that are left when some die */
    const struct net_model *model;
    const char *config_path;
    const char *data_folder;
    const char *json_path;       /* NULL: none */
    const char *dump_path;       /* NULL: none */
    const char *trace_path;      /* NULL: none; the files are FILE.RANK */
    const char *checkpoint_path; /* NULL: none; the files are FILE.RANK */
    uint64_t checkpoint_every;   /* steps between two */
    bool resume;
    const char *split; /* the layer that the ranks divide between them; NULL: none */
    uint64_t steps;    /* 0: whole epochs */
    uint32_t epochs;
    uint32_t batch; /* of all ranks together */
    uint64_t seed;
    /* of gradients, of the weights that forward reads, and of what layers hand on */
    gf_type precision;
    /* the configuration's, or this program's: then its lengths are train_plan()'s */
    struct gf_schedule schedule;
    bool configured_rate;
};

/* 0: go on; else for tool_args_exit(), and why is on stderr. *config_out is the configuration file
 * with what the command line says over it. */
int train_options_read(int argc, char **argv, struct train_options *options_out,
                       struct gf_config *config_out);

#endif
