/* The file that stands for the fabric: mapping, lock, keys, bells, and the faults of this
 * process. */
#include "firmware-tests/ucx/verbs_fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x31736272657666)

struct fabric *fabric;
struct fabric_counts fabric_counts;
struct fabric_faults fabric_faults;
uint32_t fabric_host = 1;
bool fabric_ethernet;
int fabric_bell = -1;
static uint64_t file_number;

void fabric_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fprintf(stderr, "verbs: pid %d: ", (int)getpid());
    (void)vfprintf(stderr, format, arguments);
    (void)fputc('\n', stderr);
    va_end(arguments);
    abort();
}

uint64_t fabric_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* ---- the file ---- */

static void fabric_new(struct fabric *new)
{
    pthread_mutexattr_t shared;
    (void)pthread_mutexattr_init(&shared);
    (void)pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    (void)pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    (void)pthread_mutex_init(&new->lock, &shared);
    (void)pthread_mutexattr_destroy(&shared);
    new->next_channel = 1;
    new->magic = MAGIC;
}

static void settings_read(void)
{
    const char *text = getenv("GF_VERBS_HOST");
    const char *faults = getenv("GF_VERBS_FAULT");
    static const struct {
        const char *name;
        unsigned *value;
    } names[] = {{"drop=", &fabric_faults.drop},
                 {"port_down=", &fabric_faults.port_down},
                 {"port_up=", &fabric_faults.port_up},
                 {"qp_error=", &fabric_faults.qp_error}};
    if (text != NULL) fabric_host = (uint32_t)strtoul(text, NULL, 10);
    if ((fabric_host == 0) || (fabric_host >= VERBS_FABRIC_HOSTS))
        fabric_die("GF_VERBS_HOST: 1 to %u", VERBS_FABRIC_HOSTS - 1);
    fabric_ethernet = getenv("GF_VERBS_ETHERNET") != NULL;
    for (size_t i = 0; (faults != NULL) && (i < sizeof names / sizeof names[0]); i++) {
        const char *at = strstr(faults, names[i].name);
        if (at != NULL) *names[i].value = (unsigned)strtoul(at + strlen(names[i].name), NULL, 10);
    }
}

bool fabric_take(void)
{
    const char *path = getenv("GF_VERBS");
    struct stat at;
    int fd;
    if ((fabric != NULL) || (path == NULL) || (path[0] == '\0')) return fabric != NULL;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if ((fd < 0) || (flock(fd, LOCK_EX) != 0) || (fstat(fd, &at) != 0)) fabric_die("%s: %m", path);
    if ((at.st_size == 0) && (ftruncate(fd, sizeof *fabric) != 0)) fabric_die("%s: %m", path);
    fabric = mmap(NULL, sizeof *fabric, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fabric == MAP_FAILED) fabric_die("%s: %m", path);
    if (at.st_size == 0) fabric_new(fabric);
    if (fabric->magic != MAGIC) fabric_die("%s: no fabric of this program", path);
    (void)flock(fd, LOCK_UN); /* a mapping keeps it */
    (void)close(fd);
    file_number = at.st_ino;
    fabric_bell = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* others write into this process */
    settings_read();
    return true;
}

void fabric_enter(void)
{
    int error = pthread_mutex_lock(&fabric->lock);
    /* indices move last, so it is whole */
    if (error == EOWNERDEAD) error = pthread_mutex_consistent(&fabric->lock);
    if (error != 0) fabric_die("the fabric's lock: %s", strerror(error));
}

void fabric_leave(void)
{
    (void)pthread_mutex_unlock(&fabric->lock);
}

__attribute__((destructor)) static void report(void)
{
    const struct fabric_counts *counts = &fabric_counts;
    if ((fabric == NULL) || (getenv("GF_VERBS_REPORT") == NULL)) return;
    (void)fprintf(stderr,
                  "verbs: registrations %" PRIu64 " bytes %" PRIu64 " sends %" PRIu64
                  " writes %" PRIu64 " reads %" PRIu64 " dropped %" PRIu64 " not_ready %" PRIu64
                  " failed %" PRIu64 "\n",
                  counts->registrations, counts->registered_bytes, counts->sends, counts->writes,
                  counts->reads, counts->dropped, counts->not_ready, counts->failed);
}

/* ---- bells ---- */

static socklen_t channel_name(uint32_t channel, struct sockaddr_un *name_out)
{
    /* sun_path[0] is 0: a name without a file */
    *name_out = (struct sockaddr_un){.sun_family = AF_UNIX};
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       (size_t)snprintf(name_out->sun_path + 1, sizeof name_out->sun_path - 1,
                                        "gf-verbs-%" PRIu64 "-%u", file_number, channel));
}

int fabric_listen(uint32_t channel)
{
    struct sockaddr_un name;
    socklen_t bytes = channel_name(channel, &name);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (bind(fd, (struct sockaddr *)&name, bytes) == 0) return fd;
    (void)close(fd);
    return -1;
}

/* A full socket wakes already. */
void fabric_ring(uint32_t channel, const void *what, size_t bytes)
{
    struct sockaddr_un name;
    socklen_t name_bytes = channel_name(channel, &name);
    (void)sendto(fabric_bell, what, bytes, MSG_DONTWAIT, (struct sockaddr *)&name, name_bytes);
}

uint32_t fabric_channel(void)
{
    return __atomic_fetch_add(&fabric->next_channel, 1, __ATOMIC_RELAXED);
}

/* ---- entries, keys, completions ---- */

int fabric_entry(void *table, size_t entry_bytes, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        int32_t *pid = (int32_t *)((char *)table + i * entry_bytes);
        if (*pid != 0) continue;
        *pid = getpid();
        return (int)i;
    }
    errno = ENOMEM;
    return -1;
}

void *fabric_object(size_t bytes)
{
    void *object = calloc(1, bytes);
    if (object == NULL) fabric_die("no memory");
    return object;
}

const struct fabric_key *fabric_key_find(uint32_t key, int32_t pid, uint64_t start, uint64_t bytes,
                                         uint32_t access)
{
    const struct fabric_key *found = &fabric->keys[key % FABRIC_KEYS];
    bool covers = (start >= found->start) && (bytes <= found->bytes) &&
                  (start - found->start <= found->bytes - bytes);
    bool allows = (found->access & access) == access;
    return ((found->pid == pid) && (found->key == key) && covers && allows) ? found : NULL;
}

void fabric_complete(struct fabric_cq *cq, const struct ibv_wc *wc, bool solicited)
{
    if (cq->tail - cq->head >= cq->entries)
        fabric_die("a completion queue of %u overflows", cq->entries);
    cq->ring[cq->tail % cq->entries] = *wc;
    __atomic_store_n(&cq->tail, cq->tail + 1, __ATOMIC_RELEASE);
    if ((cq->armed == 2) || ((cq->armed == 1) && solicited)) {
        uint32_t number = (uint32_t)(cq - fabric->cqs);
        cq->armed = 0;
        fabric_ring(cq->channel, &number, sizeof number);
    }
}
