/* UCX's calls as the driver makes them, of which one fails: program_ucx_faults.c. */
#ifndef UCX_FAULTS_H
#define UCX_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

extern uint32_t ucx_faults_countdown; /* calls until one fails; 0: none does */
extern uint32_t ucx_faults_calls;     /* so far */
extern const char *ucx_faults_met;    /* the one that failed, or NULL */

/* WRAPPED(result, name, parameters) { .. }: met on the way (--wrap), in a file of its own too. */
#define WRAPPED(result, name, ...)     \
    result __real_##name(__VA_ARGS__); \
    result __wrap_##name(__VA_ARGS__)

#endif
