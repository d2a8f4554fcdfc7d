/* What a driver says about the last foreign call that failed, and where a driver logs. */
#ifndef GF_FAULT_H
#define GF_FAULT_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gf_log {
    gf_log_fn fn; /* NULL: silent */
    void *user;
};

/* printf to the callback, one line, at most 400 bytes; a NULL log or callback is valid. */
__attribute__((format(printf, 3, 4))) void gf_log_line(const struct gf_log *log, gf_log_level level,
                                                       const char *format, ...);

/* Is the count-th line of its kind to be said? A flood must not become a flood of log lines: the
 * first four, then every power of two. */
static inline bool gf_log_due(uint32_t count)
{
    return (count <= 4) || ((count & (count - 1)) == 0);
}

/* The first failure sticks: gf_fault_set() on a fault that is set does nothing. */
struct gf_fault {
    gf_status code; /* GF_OK: none */
    uint32_t peer;  /* GF_RANK_NONE: not a peer's */
    int64_t foreign_code;
    char foreign_call[40];
    char text[240];
};

/* What a fault says of itself: the foreign call, its code, the text. */
void gf_error_take(struct gf_error *error, const struct gf_fault *fault);
/* Returns code, so that a driver can `return gf_fault_set(..)`. */
__attribute__((format(printf, 6, 7))) gf_status gf_fault_set(struct gf_fault *fault, gf_status code,
                                                             uint32_t peer,
                                                             const char *foreign_call,
                                                             int64_t foreign_code,
                                                             const char *format, ...);

/* What must hold, or the library is wrong: says so in one line on stderr (no callback is at hand
 * everywhere, and what it would run is in doubt), and traps. About two a function. */
#define GF_ASSERT(condition)                                                    \
    do {                                                                        \
        if (!(condition)) gf_broken(GF_LINE_OF(__FILE__, __LINE__) #condition); \
    } while (0)
#define GF_LINE_OF(file, line) GF_LINE_TEXT(file, line)
#define GF_LINE_TEXT(file, line) file ":" #line ": "
__attribute__((noreturn)) void gf_broken(const char *where);

#ifdef __cplusplus
}
#endif
#endif
