/* What linking the library does to a program by itself: prints the first bytes of libc's functions
 * that UCX patches, as a row each, then starts and ends threads. With "ucx" two threads open UCX at
 * the same time first. Built without the library (ALONE) it prints what libc has. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* it has handlers of its own */
#else
#define SANITIZED 0
#endif

static int failed;

static void expect(int holds, const char *what)
{
    if (holds) return;
    failed = 1;
    printf("%s\n", what);
}

static void bytes_print(void)
{
    static const char *const names[] = {"mmap",  "munmap", "mremap", "madvise",
                                        "shmat", "shmdt",  "sbrk",   "brk"};
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    for (size_t i = 0; i < LENGTH(names); i++) {
        const unsigned char *at = (libc == NULL) ? NULL : dlsym(libc, names[i]);
        expect(at != NULL, "there is no such function");
        printf("%s:", names[i]);
        for (size_t k = 0; (at != NULL) && (k < 16); k++) printf(" %02x", at[k]);
        printf("\n");
    }
}

static void handlers_check(void)
{
    for (int number = 1; (number < 32) && !SANITIZED; number++) {
        struct sigaction action;
        if ((sigaction(number, NULL, &action) != 0) || (action.sa_handler == SIG_DFL)) continue;
        failed = 1;
        printf("signal %d has a handler\n", number);
    }
}

static void *thread_main(void *argument)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) (void)munmap(page, 4096);
    return argument;
}

static void threads_run(void *(*body)(void *), size_t count)
{
    pthread_t threads[4];
    for (size_t i = 0; i < count; i++)
        expect(pthread_create(&threads[i], NULL, body, NULL) == 0, "no thread starts");
    for (size_t i = 0; i < count; i++) (void)pthread_join(threads[i], NULL);
}

#ifdef ALONE
static void open_twice(void)
{
}
#else
#include "drivers/drivers.h"
#include "lib/gradientflow.h"

/* Never run: the default drivers are linked, as in a program that trains. */
static void never(struct gf_config *config)
{
    (void)gf_open(config, NULL, 0, NULL, 0, NULL);
}
void (*volatile taken)(struct gf_config *config) = never;

/* One rank of two: its network is opened, and nobody connects. */
static void *open_one(void *argument)
{
    struct gf_link_setup setup = {.world = 2,
                                  .ranks_max = 2,
                                  .requests_max = 1,
                                  .message_bytes_max = 4096,
                                  .transports = "tcp",
                                  .devices = "lo",
                                  .insecure = true};
    const struct gf_link_driver *driver = gf_drivers_default->fabric;
    struct gf_fault fault = {.code = GF_OK};
    struct gf_link *link = NULL;
    size_t bytes = (driver == NULL) ? 0 : driver->state_bytes(&setup);
    void *state = (driver == NULL) ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
    expect(state != NULL, "no UCX, or no memory");
    if (state == NULL) return argument;
    if (driver->open(&setup, state, &link, &fault) != GF_OK) {
        expect(0, fault.text);
        return argument;
    }
    driver->close(link);
    free(state);
    return argument;
}

static void open_twice(void)
{
    threads_run(open_one, 2);
}
#endif

int main(int argument_count, char **arguments)
{
    if ((argument_count > 1) && (strcmp(arguments[1], "ucx") == 0)) open_twice();
    bytes_print();
    handlers_check();
    expect(getenv("UCX_HANDLE_ERRORS") == NULL, "the environment has UCX_HANDLE_ERRORS");
    threads_run(thread_main, 4);
    return failed;
}
