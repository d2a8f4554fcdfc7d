/* What each gf-run of a job has reaped is a file of bits in a directory that its nodes share. With
 * several nodes nothing is started again, so bits are only ever set, and lists of different moments
 * may be put together. Who may write such a file could split the job: one that is not of this user,
 * or that others may write, is passed over. A file that was there before is of another job: a list
 * that lies, so nothing begins. */
#include "tools/run/run_nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int own_fd = -1;

static void file_name(const struct run_job *job, uint32_t node, char *text_out, size_t bytes)
{
    (void)snprintf(text_out, bytes, "%s/gf-run.%llu.%u", job->shared, (unsigned long long)job->id,
                   node);
}

bool run_nodes_begin(const struct run_job *job)
{
    char name[4096];
    file_name(job, job->node, name, sizeof name);
    own_fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (own_fd >= 0) return true;
    (void)fprintf(stderr, "gf-run: %s: %s%s\n", name, strerror(errno),
                  (errno == EEXIST) ? ": allowed is a job number that was not used here before"
                                    : "");
    return false;
}

void run_nodes_tell(const unsigned char *bits, size_t bytes)
{
    if ((own_fd >= 0) &&
        ((pwrite(own_fd, bits, bytes, 0) != (ssize_t)bytes) || (fsync(own_fd) != 0)))
        (void)fprintf(stderr, "gf-run: the other nodes do not hear who has ended here: %s\n",
                      strerror(errno));
}

/* Opened anew each time, as a shared file system looks at the other end then. */
static void node_hear(const struct run_job *job, uint32_t node, unsigned char *bits, size_t bytes)
{
    unsigned char theirs[RUN_RANKS_MAX / 8] = {0};
    char name[4096];
    struct stat info;
    file_name(job, node, name, sizeof name);
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    bool good = (fstat(fd, &info) == 0) && S_ISREG(info.st_mode) && (info.st_uid == geteuid()) &&
                ((info.st_mode & (S_IWGRP | S_IWOTH)) == 0) &&
                (read(fd, theirs, bytes) == (ssize_t)bytes);
    (void)close(fd);
    /* its own ranks alone */
    for (uint32_t i = node * job->rank_count; good && (i < (node + 1) * job->rank_count); i++)
        bits[i / 8] |= (unsigned char)(theirs[i / 8] & (1u << (i % 8)));
}

void run_nodes_hear(const struct run_job *job, unsigned char *bits, size_t bytes)
{
    for (uint32_t node = 0; (own_fd >= 0) && (node < job->nodes); node++)
        if (node != job->node) node_hear(job, node, bits, bytes);
}
