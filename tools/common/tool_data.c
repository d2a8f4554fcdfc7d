/* See tool_data.h. */
#include "tools/common/tool_data.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATHS_MAX 8u
#define PATH_BYTES 1280u

static bool path_make(char *path, const char *folder, const char *below, const char *name)
{
    int used = snprintf(path, PATH_BYTES, "%s%s/%s", folder, below, name);
    return (used > 0) && ((size_t)used < PATH_BYTES) && (access(path, R_OK) == 0);
}

const char *tool_data(const char *name)
{
    static char paths[PATHS_MAX][PATH_BYTES];
    static unsigned path_count;
    char program[1024] = "";
    const char *given = getenv("GF_DATA_DIR");
    if (path_count == PATHS_MAX) return name;
    char *path = paths[path_count++];
    if ((given != NULL) && (given[0] != '\0')) {
        (void)path_make(path, given, "", name);
        return path;
    }
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    char *last = (length > 0) ? strrchr(program, '/') : NULL;
    if (last != NULL) {
        *last = '\0';
        if (path_make(path, program, "/../share/gradientflow", name)) return path;
        if (path_make(path, program, "/../config", name)) return path;
    }
    (void)path_make(path, "config", "", name);
    return path;
}

const char *tool_data_named(const char *folder, const char *given)
{
    static const char *const ends[] = {"", ".cfg"};
    if ((strchr(given, '/') != NULL) || (access(given, F_OK) == 0)) return given;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char name[256];
        int used = snprintf(name, sizeof name, "%s/%s%s", folder, given, ends[i]);
        const char *path = ((used > 0) && ((size_t)used < sizeof name)) ? tool_data(name) : given;
        if (access(path, R_OK) == 0) return path;
    }
    return given;
}
