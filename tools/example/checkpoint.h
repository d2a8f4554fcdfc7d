/* A run's state in a file, for a program that the library leaves to open its files: state_keep()
 * writes it, state_take() loads it on all ranks. A program copies this file and includes it first,
 * because it asks the system's headers for POSIX. RECIPE.md, section 7, says when to call them. */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gradientflow/gradientflow.h>

/* A name has changed once the folder in which it lies is on the disk. */
static inline int folder_sync(const char *path)
{
    char folder[4096] = ".";
    const char *slash = strrchr(path, '/');
    if (slash != NULL) snprintf(folder, sizeof folder, "%.*s/", (int)(slash - path), path);
    int number = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int result = (number >= 0) ? fsync(number) : -1;
    if (number >= 0) close(number);
    return result;
}

/* Writes the state to a file that is whole, or as it was before. Without sparse steps the state is
 * the same on all ranks, so one rank keeps it for all. GF_ERR_SYSTEM: the file could not be
 * written, and errno says why; the context has not failed, and the next save may succeed. Any other
 * error is that of gf_state_save(). */
static inline gf_status state_keep(gf_context *gf, const char *path)
{
    char part[4096];
    uint64_t bytes = gf_state_bytes(gf);
    void *data = malloc(bytes);
    gf_status status = (data != NULL) ? gf_state_save(gf, data, bytes) : GF_ERR_SYSTEM;
    snprintf(part, sizeof part, "%s.part", path);
    FILE *file = (status == GF_OK) ? fopen(part, "wb") : NULL;
    int whole = (file != NULL) && (fwrite(data, 1, bytes, file) == bytes) && (fflush(file) == 0) &&
                (fsync(fileno(file)) == 0);
    int why = errno;
    if (file != NULL) {
        int closed = fclose(file);
        if (whole && (closed != 0)) whole = 0, why = errno;
    }
    free(data);
    if (whole && ((rename(part, path) != 0) || (folder_sync(path) != 0))) whole = 0, why = errno;
    errno = why;
    return ((status == GF_OK) && !whole) ? GF_ERR_SYSTEM : status;
}

/* The file's bytes, one more than a state has at most: a longer file is refused, as all that is not
 * a state. NULL: errno says why, EINVAL that it is no regular file. O_NONBLOCK: a FIFO is not
 * waited for. */
static inline void *state_read(gf_context *gf, const char *path, uint64_t *bytes_out)
{
    uint64_t bytes_max = gf_state_bytes(gf) + 1;
    struct stat about;
    int number = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if ((number >= 0) && ((fstat(number, &about) != 0) || !S_ISREG(about.st_mode))) {
        close(number);
        errno = EINVAL;
        return NULL;
    }
    FILE *file = (number >= 0) ? fdopen(number, "rb") : NULL;
    void *data = (file != NULL) ? malloc(bytes_max) : NULL;
    if (data != NULL) *bytes_out = fread(data, 1, bytes_max, file);
    int why = errno;
    if ((data != NULL) && ferror(file)) free(data), data = NULL;
    if (file != NULL) fclose(file);
    errno = why;
    return data;
}

/* Do all ranks have the file, or none? If they differ, each rank says so and gets GF_ERR_SYSTEM;
 * the barrier then keeps all of them until the last one knows. */
static inline gf_status state_agree(gf_context *gf, const char *path, int here, int unreadable)
{
    float none = (float)gf_world(gf), rank = (float)gf_rank(gf);
    /* of the ranks with the file, of those without it, of those that cannot read it: the lowest */
    float lowest[3] = {here ? rank : none, here ? none : rank, unreadable ? rank : none};
    struct gf_request request;
    gf_status status =
        gf_allreduce_by(gf, GF_REDUCTION_MIN, (gf_mem)(uintptr_t)lowest, 3, GF_TYPE_F32, &request);
    if (status == GF_OK) status = gf_request_wait(gf, &request);
    if (status != GF_OK) return status;
    if (lowest[2] < none)
        fprintf(stderr, "%s: rank %.0f cannot read it\n", path, (double)lowest[2]);
    else if ((lowest[0] < none) && (lowest[1] < none))
        fprintf(stderr, "%s: rank %.0f has this file, rank %.0f has none; give it to all or none\n",
                path, (double)lowest[0], (double)lowest[1]);
    else
        return GF_OK;
    if (gf_barrier(gf, &request) == GF_OK) (void)gf_request_wait(gf, &request);
    errno = (lowest[2] < none) ? EIO : ENOENT;
    return GF_ERR_SYSTEM;
}

/* Loads the state, if all ranks have the file: gf_weights_common() is true then. If no rank has it,
 * nothing changes, and GF_OK. All ranks call it. */
static inline gf_status state_take(gf_context *gf, const char *path)
{
    uint64_t bytes = 0;
    void *data = state_read(gf, path, &bytes);
    int unreadable = (data == NULL) && (errno != ENOENT);
    const char *why = (errno == EINVAL) ? "is no regular file" : strerror(errno);
    if (unreadable) fprintf(stderr, "%s: %s\n", path, why);
    gf_status status = state_agree(gf, path, data != NULL, unreadable);
    if ((status == GF_OK) && (data != NULL)) status = gf_state_load(gf, data, bytes);
    free(data);
    return status;
}

#endif
