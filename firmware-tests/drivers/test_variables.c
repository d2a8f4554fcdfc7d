/* gf_variable_odd(): which slips in names of the environment are told, and that others are not. */
#include "firmware-tests/support/suite.h"
#include "drivers/variables.h"

#include <unistd.h>

static char *only[3];

/* What is said of one variable beside another one; "" for nothing. */
static const char *said_of(char *one)
{
    static char text[GF_VARIABLE_TEXT_BYTES];
    static char other[] = "PATH=/bin";
    char **whole = environ;
    uint32_t at = 0;
    only[0] = other;
    only[1] = one;
    environ = only;
    if (!gf_variable_odd(&at, text)) text[0] = '\0';
    environ = whole;
    return text;
}

TEST(a_slip_is_told_and_names_what_was_meant)
{
    static char rows[][2][40] = {
        {"GF_ELASTC=1", "GF_ELASTIC?"},    {"GF_ADRESS=3", "GF_ADDRESS?"},
        {"GF_WOLRD=2", "GF_WORLD?"},       {"GF_WORLDS=2", "GF_WORLD?"},
        {"GF_WORLD_SIZE=2", "GF_WORLD?"},  {"GF_WORLDMAX=2", "GF_WORLD_MAX?"},
        {"GF_JOB_ID=7", "GF_JOB?"},        {"GF_JOBID=7", "GF_JOB?"},
        {"GF_ADDR=a:1", "GF_ADDRESS?"},    {"GF_LOCALRANK=1", "GF_LOCAL_RANK?"},
        {"GF_RNK=", "GF_RANK?"},           {"GF_REJION=1", "GF_REJOIN?"},
        {"GF_COORDINATR=", "GF_COORDINA"}, {"GF_DEBUGS=info", "GF_DEBUG?"},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        const char *text = said_of(rows[i][0]);
        if (strstr(text, "is set, and is not read; did you mean ") == NULL)
            fail_msg("%s", rows[i][0]);
        if (strstr(text, rows[i][1]) == NULL) fail_msg("%s: %s", rows[i][0], text);
    }
}

TEST(what_is_read_and_what_is_of_others_is_not_told)
{
    static char rows[][64] = {
        "GF_RANK=0",      "GF_WORLD=1",   "GF_LOCAL_RANK=0",   "GF_JOB=5",        "GF_ADDRESS=a:1",
        "GF_WORLD_MAX=4", "GF_REJOIN=1",  "GF_ELASTIC=1",      "GF_COORDINATOR=", "GF_DATA_DIR=/x",
        "GF_DEBUG=info",  "GF_DEBUG=",    "GF_DEBUG=debug",    "GF_HOLD=/x",      "GF_HOLD_MS=5",
        "GF_=1",          "GF_J=1",       "GF_SOME_PATH=/opt", "GFX_RANK=1",      "GF_LICENSE=1",
        "RANK=1",         "GF_JOBS_DIR=", "GF_RANK",           "GF_LIBRARY=/x",   "GF_FULL=1",
    };
    for (size_t i = 0; i < LENGTH(rows); i++)
        if (said_of(rows[i])[0] != '\0') fail_msg("%s", said_of(rows[i]));
}

TEST(a_value_of_GF_DEBUG_that_means_nothing_is_told)
{
    static char verbose[] = "GF_DEBUG=verbose";
    assert_string_equal(said_of(verbose),
                        "GF_DEBUG='verbose' is as if it were not set; allowed are info and debug");
}

TEST(each_is_told_once)
{
    static char first[] = "GF_RNK=1";
    static char second[] = "GF_WRLD=1";
    char *both[] = {first, second, NULL};
    char **whole = environ;
    char text[GF_VARIABLE_TEXT_BYTES];
    uint32_t at = 0;
    environ = both;
    bool told = gf_variable_odd(&at, text) && (strncmp(text, first, 6) == 0) &&
                gf_variable_odd(&at, text) && (strncmp(text, second, 7) == 0) &&
                !gf_variable_odd(&at, text);
    environ = whole;
    assert_true(told);
}
