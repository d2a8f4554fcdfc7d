/* gf-check --preflight: is this node, and are all ranks of this job, fit for a run with this
 * configuration? Each part appends its lines to the report; none changes anything that outlasts
 * it. */
#ifndef CHECK_PREFLIGHT_H
#define CHECK_PREFLIGHT_H

#include "gradientflow.h"
#include "tools/check/check_report.h"
#include "drivers/channel.h"

/* ranks, where neither file nor command line nor launcher says how many */
#define CHECK_WORLD_ASSUMED 2u
_Static_assert(CHECK_LINES_MAX >= GF_TEXT_MAX / 2 + 32,
               "a line for each name of link.devices, and all others");

struct check_job {
    /* as the job would have it: rank, world and address from the launcher filled in */
    struct gf_config config;
    const struct gf_tensor *tensors;
    uint32_t tensor_count;
    struct gf_footprint need; /* of one rank; zeroes where it cannot be told */
    char need_fault[256];     /* then why */
    /* by gf-run, srun, mpirun ..: the other ranks are expected to answer */
    bool launched;
    bool reads_environment; /* not job.ignore_environment */
    const char *launcher;   /* "SLURM_PROCID": what said so; "job.world" of the file */
    /* not launched, or as the only rank, and something says that it is one of several */
    bool has_sign;
    char sign[200];
    char name_fault[256];     /* why rendezvous.address is no number; or empty */
    const char *address_name; /* who says it: gf_identity_address_name() */
    uint64_t deadline_ns;     /* how long for each conversation with other ranks */
    /* where the file says that the coordinator runs, whatever the launcher says */
    gf_coordinator_place coordinator_of_file;
    uint32_t local; /* the local rank, as in a job's gf_open() */
    /* Known after check_peers(); before it what the command line said. */
    uint32_t local_count; /* ranks on this node */
    /* this one among them: what is the node's is looked at by the first alone */
    uint32_t local_index;
    uint32_t node_count;
    bool fabric; /* known after check_link(): messages between nodes go over UCX */
};

/* For what no launcher has started: `world` of the command line, else the file's (0: not said), and
 * rank 0. */
void check_world_assume(struct gf_config *config, uint32_t world);

/* Is rendezvous.address a name that was not known when the file was loaded? */
bool check_name_is_open(const struct gf_config *config);

/* Fills *job_out from a loaded configuration: identity from the launcher, defaults, footprint.
 * world and local_count are what the command line said for a process that was started alone, 0
 * where it said nothing. 0, or the exit code, and why is on stderr. */
int check_job_fill(const struct gf_config *config, const struct gf_tensor *tensors,
                   uint32_t tensor_count, uint32_t world, uint32_t local_count,
                   uint64_t deadline_ns, struct check_job *job_out);
/* 0: all ok or warnings; 1: something fails, here or (launched) on any rank. */
int check_preflight(struct check_job *job, bool json);

/* check_devices.c. "mlx5_0:1;mlx5_1:1", for link.devices: what each of `places` ranks of a node
 * best uses of `names`, comma-separated, by the sysfs at `root`; with_gpus: rank p uses GPU p.
 * Empty: none of them is there. False: the text is longer than link.devices may be. */
bool check_devices_text(const char *root, const char *names, bool with_gpus, uint32_t locals,
                        char text_out[GF_TEXT_MAX]);
void check_devices(struct check_report *report, const struct check_job *job);
/* check_gpudirect.c. How a card may reach a GPU's memory, below a root with sys/ and proc/ in
 * it. */
typedef enum check_way { CHECK_WAY_NONE, CHECK_WAY_PEERMEM, CHECK_WAY_DMABUF } check_way;
check_way check_gpudirect_way(const char *root);
void check_gpudirect(struct check_report *report, const struct check_job *job);

/* check_net.c */
/* Leaves in link.devices what of it is this rank's. */
void check_link(struct check_report *report, struct check_job *job);
void check_interfaces(struct check_report *report, const struct check_job *job);
/* What the join has shown of the connections between nodes. */
typedef enum check_met { CHECK_NOT_TRIED, CHECK_MET, CHECK_APART } check_met;
void check_interfaces_reach(struct check_report *report, const struct check_job *job,
                            check_met met);
void check_ports(struct check_report *report, const struct check_job *job);
/* as this rank of the job */
struct gf_channel_setup check_control_setup(const struct check_job *job, bool listens);
void check_control_alone(struct check_report *report, const struct check_job *job);
/* The item that begins at *at, without blanks; false at the end. Moves *at after it. Groups of
 * devices that no link has chosen from are items, too. */
bool check_item_next(const char **at, char *item_out, size_t item_bytes);
/* Is name one of the items of list? UCX's driver asks the like of its own lists (has() of
 * link_ucx_names.c), which have neither blanks nor groups; no tool includes that driver's
 * folder. */
bool check_list_has(const char *list, const char *name);

/* check_node.c */
void check_environment(struct check_report *report, const struct check_job *job);
void check_footprint(struct check_report *report, const struct check_job *job);
void check_gpu(struct check_report *report, const struct check_job *job);
void check_stack(struct check_report *report);
void check_memlock(struct check_report *report, const struct check_job *job);
void check_huge_pages(struct check_report *report, const struct check_job *job);
void check_memory(struct check_report *report, const struct check_job *job);
void check_limits(struct check_report *report, const struct check_job *job);

/* check_peers.c: the control channel without a library context around it. */
struct check_peers;
/* Meets the other ranks and compares configurations. NULL: they were not met, and the lines say
 * why. */
struct check_peers *check_peers_meet(struct check_report *report, struct check_job *job);
/* Are all ranks without a failing line? Ends the conversation; frees peers. */
bool check_peers_agree(struct check_report *report, struct check_peers *peers);

/* check_large.c: of the context that check_join() has opened. */
void check_large(struct check_report *report, const struct check_job *job, gf_context *gf);
/* check_join.c: what gf_open() and the first exchange of a run do, with its sizes. */
check_met check_join(struct check_report *report, const struct check_job *job);

#endif
