/* program_unguarded [KEY_FILE]: a link over UCX's tcp in a program that was linked without --wrap,
 * and a stranger who asks UCX to write into it. Prints "written" or "unchanged", or why the link
 * was not opened: what the suites of strangers would see if nothing kept strangers out. */
#include "drivers/link.h"
#include "firmware-tests/support/stranger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static unsigned char canary[64];

int main(int argc, char **argv)
{
    const struct gf_link_setup setup = {.world = 1,
                                        .epoch = 1,
                                        .requests_max = 8,
                                        .message_bytes_max = 65536,
                                        .transports = "tcp",
                                        .devices = "lo",
                                        .key_file = (argc > 1) ? argv[1] : ""};
    const unsigned char prize[64] = {1};
    struct gf_link *link = NULL;
    struct gf_fault fault = {.code = GF_OK};
    struct stranger_port port;
    void *state = aligned_alloc(64, (gf_link_ucx.state_bytes(&setup) + 63) / 64 * 64);
    if ((state == NULL) || (gf_link_ucx.open(&setup, state, &link, &fault) != GF_OK)) {
        printf("refused: %s\n", fault.text);
        return 0;
    }
    int fd =
        (stranger_ports((int)getpid(), &port, 1) == 1) ? stranger_connect(port.ip, port.port) : -1;
    stranger_greet(fd);
    stranger_put(fd, (uint64_t)(uintptr_t)canary, prize, sizeof prize);
    for (int i = 0; (i < 2000) && (canary[0] == 0); i++) {
        (void)link->driver->progress(link);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    printf(canary[0] != 0 ? "written\n" : "unchanged\n");
    (void)close(fd);
    link->driver->close(link);
    free(state);
    return 0;
}
