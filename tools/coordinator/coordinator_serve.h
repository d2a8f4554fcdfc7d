/* The coordinator of a job as a process: a channel that takes connections, and the state machine of
 * lib/control/ over it. gf-coordinator is that alone; gf-run has it in a child. */
#ifndef COORDINATOR_SERVE_H
#define COORDINATOR_SERVE_H

#include <signal.h>

#include "gradientflow.h"
#include "drivers/base/fault.h"

/* Of whoever listens, and of whoever asks how it goes. */
struct coordinator_job {
    uint64_t id; /* not 0: gf_identity_job() */
    uint32_t world;
    uint32_t world_max;
    /* of these rendezvous.address, bind, key_file, insecure, keepalive_ns and join_timeout_ns are
     * read, which have been made effective */
    struct gf_config config;
    uint64_t first_ns; /* for so long the first process is awaited */
    bool is_first;     /* no coordinator of this job was before it */
    struct gf_log log; /* INFO: a line an event */
};

struct coordinator_server; /* one at most is open */

/* Takes all memory that it will ever need, and listens. NULL: *fault_out says why. */
struct coordinator_server *coordinator_open(const struct coordinator_job *job,
                                            struct gf_fault *fault_out);
/* Until the job has ended: GF_OK: well; an error: why is in text_out[GF_ERROR_TEXT_BYTES].
 * GF_AGAIN:
 * *stop was not 0. */
gf_status coordinator_run(struct coordinator_server *server, const volatile sig_atomic_t *stop,
                          char *text_out, size_t text_bytes);
/* A generation has begun: somebody may need it. */
bool coordinator_has_begun(const struct coordinator_server *server);
/* The first join has failed: ranks that have not come yet are awaited, to be told why. */
bool coordinator_join_has_failed(const struct coordinator_server *server);
/* How many members are connected, once all that has come was taken; of a job that has ended: how
 * many processes have not taken the last word. */
uint32_t coordinator_members(struct coordinator_server *server);
/* How many of these ranks have closed in good order: they were in the job to its end. */
uint32_t coordinator_closed(const struct coordinator_server *server, uint32_t first,
                            uint32_t count);
/* The job has ended under a coordinator before this one, and no other job can begin: whoever waits
 * here, or comes, is told so, by a coordinator_run() that returns GF_AGAIN after each poll. Where a
 * generation has begun nothing happens. */
void coordinator_job_has_ended(struct coordinator_server *server);
void coordinator_close(struct coordinator_server *server);

/* Asks the coordinator of a running job, and prints what it says. The exit code. */
int coordinator_show(const struct coordinator_job *job);

/* What a launcher is told of it; texts are the caller's. */
struct coordinator_given {
    const char *config_path; /* or NULL, like all of these */
    const char *listen;
    const char *key_file;
    const char *join_timeout;
    const char *keepalive;
    bool insecure;
    uint64_t patience_ns; /* a name is asked for no longer than this; 0: until join_timeout */
};
/* The configuration that it says. 0; TOOL_FAILED: the file is wrong, -1: what is said beside it;
 * error_out[GF_CONFIG_ERROR_BYTES] says what. The address may be a name, which is asked for until
 * join_timeout, with a warning on stderr; no signal ends that but by default. */
int coordinator_config(const struct coordinator_given *given, struct gf_config *config_out,
                       char *error_out);

#endif
