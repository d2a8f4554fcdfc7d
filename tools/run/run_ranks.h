/* The ranks of a job as processes: started, watched, ended. */
#ifndef RUN_RANKS_H
#define RUN_RANKS_H

#include <stdbool.h>
#include <stdint.h>

struct coordinator_job;

#define RUN_RANKS_MAX 1024u
#define RUN_EXIT_NOT_FOUND 127
#define RUN_EXIT_NOT_RUN 126

struct run_job {
    uint32_t rank_count;  /* on this node */
    uint32_t nodes, node; /* each has a gf-run; this one's ranks begin at node * rank_count */
    uint32_t rank_max;    /* SIGUSR1 starts one more, up to here */
    const char *id;       /* GF_JOB */
    const char *address;  /* GF_ADDRESS; NULL: the configuration has it */
    /* which a child is; NULL: on another node */
    const struct coordinator_job *coordinator;
    bool elastic;      /* ranks that fail end nobody else */
    uint32_t restarts; /* of each rank; none any more once a rank has ended well */
    bool prefix;       /* "[rank] " before each line, except on rank 0's stdout */
    char **arguments;  /* of the program, its name first, NULL last */
};

/* Returns what gf-run exits with: 0, or as the first rank that failed; elastic: 0 if any rank has
 * ended well. */
int run_job(const struct run_job *job);

#endif
