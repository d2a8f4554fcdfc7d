/* How a context fails, and what every public call checks first. */
#ifndef GF_ERROR_H
#define GF_ERROR_H

#include "lib/control/control.h"
#include "drivers/base/fault.h"

struct gf_failing {
    bool linked;        /* it failed after the warm-up: all connections are made */
    bool asks;          /* the coordinator's finding is awaited */
    bool ends;          /* this rank cannot go on, whatever that is */
    bool writes;        /* a step is still being written (gf_step_write()) */
    uint64_t begin_ns;  /* of the draining */
    uint32_t link_peer; /* a link's fault named it: that edge is broken; GF_RANK_NONE */
};

/* gf_control_setup.edge_is_broken: asks the link for its evidence. */
bool gf_edge_is_broken(void *context, uint32_t rank, struct gf_fault *fault_out);
void gf_context_mark(gf_context *gf);        /* valid, and this process's */
gf_operation gf_doing(const gf_context *gf); /* for errors: what is under way */
/* GF_OK; GF_ERR_PARAM: no open context; GF_ERR_STATE: a forked child */
gf_status gf_own(const gf_context *gf);
/* what gf_enter() answers where not all is well (accessors.h) */
gf_status gf_enter_ill(gf_context *gf);
/* First failure: records it, begins to end what is under way, returns code. peer or tensor may be
 * GF_.._NONE. */
__attribute__((format(printf, 6, 7))) gf_status gf_fail(gf_context *gf, gf_status code,
                                                        gf_operation operation, uint32_t peer,
                                                        uint32_t tensor, const char *format, ...);
/* The same, from the fault of a driver. */
gf_status gf_fail_fault(gf_context *gf, const struct gf_fault *fault, gf_operation operation);
/* the same, from the finding of the coordinator */
gf_status gf_fail_from(gf_context *gf, const struct gf_error *error);
/* A refused call that leaves the context as it is: logged, not sticky. */
__attribute__((format(printf, 3, 4))) gf_status gf_refuse(gf_context *gf, gf_status code,
                                                          const char *format, ...);
/* One poll in phase FAILING: GF_AGAIN, or the error once nothing is under way any more. */
gf_status gf_failing_poll(gf_context *gf, uint64_t now_ns);
/* For gf_close() while the finding is awaited: logs what is known, because otherwise nothing would
 * be logged. */
void gf_failing_cut(gf_context *gf);

#endif
