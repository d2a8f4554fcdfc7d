/* Refuses a stack that may not grow enough for what runs before main(): a dynamic UCX's
 * constructors take 8 KiB. As preinit it comes before those of shared libraries too. What suffices
 * for main() but not for a link, gf_open() refuses. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "gradientflow.h"

#define BEFORE_MAIN_BYTES 32768u

static void stack_check(int argc, char **argv, char **environment)
{
    struct rlimit stack;
    (void)argc, (void)environment;
    if ((getrlimit(RLIMIT_STACK, &stack) != 0) || (stack.rlim_cur >= BEFORE_MAIN_BYTES)) return;
    (void)dprintf(STDERR_FILENO,
                  "%s: the stack may grow to %llu KiB; %u KiB are needed: raise it (ulimit -s)\n",
                  argv[0], (unsigned long long)stack.rlim_cur / 1024, GF_STACK_BYTES / 1024);
    _exit(EXIT_FAILURE);
}

__attribute__((section(".preinit_array"),
               used)) static void (*const before_all)(int, char **, char **) = stack_check;
