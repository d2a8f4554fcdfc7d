/* The lines of a preflight: what was looked at, how it stands, and what to do about it. As text the
 * first rank shows all of its lines as they come, the others what is not well; as JSON each rank
 * writes one line when it is done. */
#ifndef CHECK_REPORT_H
#define CHECK_REPORT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum check_state {
    CHECK_OK,
    CHECK_WARN,
    CHECK_FAIL,
    CHECK_SKIP,
    CHECK_STATE_COUNT
} check_state;

#define CHECK_LINES_MAX 96u
#define CHECK_HOST_BYTES 64u
#define CHECK_TEXT_BYTES 2048u /* the names of 60 interfaces, and what is said of them */

struct check_line {
    const char *name;
    check_state state;
    char text[CHECK_TEXT_BYTES];
    char todo[192]; /* empty where nothing is to be done */
};

struct check_report {
    bool json;
    uint32_t rank, world;
    char host[CHECK_HOST_BYTES];
    struct check_line lines[CHECK_LINES_MAX];
    bool shared; /* what comes is the same on all ranks: only the first shows it */
    uint32_t shared_fails;
    uint32_t line_count;
    uint32_t counts[CHECK_STATE_COUNT];
};

/* Appends a line and shows it. `todo` says what to do, NULL where nothing; format gives the
 * text. */
__attribute__((format(printf, 5, 6))) void check_say(struct check_report *report, const char *name,
                                                     check_state state, const char *todo,
                                                     const char *format, ...);
/* The last line of the text, or the whole of the JSON. */
void check_report_end(const struct check_report *report);

#endif
