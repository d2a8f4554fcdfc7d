/* See tool_file.h. */
#include "tools/common/tool_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* NULL, or why it is not opened. */
static const char *irregular(mode_t mode)
{
    if (S_ISDIR(mode)) return "is a directory; allowed is a regular file";
    return S_ISREG(mode) ? NULL : "is not a regular file";
}

int tool_file_open(const char *path, int flags, char *why_out)
{
    struct stat about;
    /* asked before, for what opening alone does; and after, of what was opened */
    const char *why = (stat(path, &about) == 0) ? irregular(about.st_mode) : NULL;
    int number = -1;
    int code = EINVAL;
    if (why == NULL) {
        number = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
        const bool opened = (number >= 0) && (fstat(number, &about) == 0);
        if (!opened) code = errno;
        why = opened ? irregular(about.st_mode) : strerror(code);
    }
    if (why == NULL) return number;
    (void)snprintf(why_out, TOOL_FILE_WHY_BYTES, "%s", why);
    if (number >= 0) (void)close(number);
    errno = code;
    return -1;
}

int64_t tool_file_read(const char *path, void *data, uint64_t max, char *why_out)
{
    uint64_t got = 0;
    int number = tool_file_open(path, O_RDONLY, why_out);
    if (number < 0) return -1;
    while (got < max) {
        ssize_t more = read(number, (unsigned char *)data + got, max - got);
        if ((more < 0) && (errno == EINTR)) continue;
        if (more < 0) {
            const int code = errno;
            (void)snprintf(why_out, TOOL_FILE_WHY_BYTES, "cannot be read: %s", strerror(code));
            (void)close(number);
            errno = code;
            return -1;
        }
        if (more == 0) break;
        got += (uint64_t)more;
    }
    (void)close(number);
    return (int64_t)got;
}

static int fail(struct tool_file *file, const char *call)
{
    int code = errno;
    (void)snprintf(file->error, sizeof file->error, "%s: %s: %s", file->path, call, strerror(code));
    tool_file_drop(file);
    return -1;
}

void tool_file_drop(struct tool_file *file)
{
    if (file->stream != NULL) (void)fclose(file->stream);
    if (file->part[0] != '\0') (void)unlink(file->part);
    file->stream = NULL;
    file->part[0] = '\0';
}

int tool_file_begin(struct tool_file *file, const char *path)
{
    struct stat there;
    *file = (struct tool_file){.stream = NULL};
    int length = snprintf(file->path, sizeof file->path, "%s", path);
    if ((length < 0) || ((size_t)length >= sizeof file->path)) {
        errno = ENAMETOOLONG;
        return fail(file, "open");
    }
    if ((lstat(path, &there) == 0) && !S_ISREG(there.st_mode)) {
        (void)snprintf(file->error, sizeof file->error, "%s: is there and no regular file", path);
        return -1;
    }
    char part[sizeof file->part];
    (void)snprintf(part, sizeof part, "%s.part", path);
    /* What is left of a run that was killed is a regular file, too. */
    char why[TOOL_FILE_WHY_BYTES];
    int number = tool_file_open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, why);
    if (number < 0) {
        (void)snprintf(file->error, sizeof file->error, "%s%s: open: %s", path,
                       (errno == EINVAL) ? ".part" : "", why);
        return -1;
    }
    memcpy(file->part, part, sizeof part);
    file->stream = fdopen(number, "w");
    if (file->stream != NULL) return 0;
    (void)close(number);
    return fail(file, "fdopen");
}

int tool_file_close(struct tool_file *file)
{
    bool failed = ferror(file->stream) != 0;
    failed |= fflush(file->stream) != 0;
    if (failed || (fsync(fileno(file->stream)) != 0)) return fail(file, "write");
    FILE *stream = file->stream;
    file->stream = NULL;
    return (fclose(stream) == 0) ? 0 : fail(file, "close");
}

int tool_file_rename(struct tool_file *file)
{
    if (rename(file->part, file->path) != 0) return fail(file, "rename");
    file->part[0] = '\0';
    return (tool_file_folder_sync(file->path) == 0) ? 0 : fail(file, "sync of its folder");
}

int tool_file_end(struct tool_file *file)
{
    return (tool_file_close(file) != 0) ? -1 : tool_file_rename(file);
}

int tool_file_check(struct tool_file *file, const char *path)
{
    if (path == NULL) return 0;
    if (tool_file_begin(file, path) != 0) return -1;
    tool_file_drop(file);
    return 0;
}

int tool_file_folder_sync(const char *path)
{
    char folder[TOOL_FILE_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    int length = (slash == path) ? 1 : (slash != NULL) ? (int)(slash - path) : 0;
    (void)snprintf(folder, sizeof folder, "%.*s", length, path);
    int number = open((length > 0) ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (number < 0) return -1;
    int result = fsync(number);
    (void)close(number);
    return result;
}
