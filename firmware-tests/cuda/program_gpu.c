/* The library's GPU part on a real GPU, in the tree (`make gpu-check`, `make gpu-bench`) and in the
 * bundle (`make gpu-bundle`), where the program's name says which it is. probe: gpu_probe.c.
 * check: each element op, and whole steps, against the host's. bench: kernels against sweeps, then
 * a step; with --steps that alone. Exit code 0; 1: a difference, a failure or a goal missed on an
 * H200; 2: bad arguments; 77: no GPU, or no kernels. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "firmware-tests/cuda/gpu_program.h"
#include "ops/element/cuda/ops_cuda.h"
#include "tools/common/tool_args.h"

#define SKIPPED 77

static int skip(const char *why)
{
    printf("skipped: %s\n", why);
    gpu_json_row("\"why\":\"%s\"", why);
    gpu_json_status("skipped");
    return SKIPPED;
}

/* firmware-tests/cuda/fake_cuda.h */
static bool is_fake(const char *library)
{
    void *handle = (library != NULL) ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : NULL;
    return (handle != NULL) && (dlsym(handle, "fake_cuda_api") != NULL);
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/');
    const char *mode = NULL;
    const char *json = NULL;
    uint64_t mib = 256;
    uint32_t count = 0;
    name = (name != NULL) ? name + 1 : argv[0];
    bool is_named = strncmp(name, "gpu-", 4) == 0;
    const struct tool_option options[] = {
        {.name = "library",
         .kind = TOOL_TEXT,
         .value_out = &gpu_program.library,
         .value_name = "FILE",
         .help = "the CUDA driver's libcuda.so.1 (the system's)"},
        {.name = "mib",
         .kind = TOOL_NUMBER,
         .value_out = &mib,
         .value_name = "N",
         .low = 1,
         .high = 8192,
         .help =
             "bench: of each range that a kernel reads or writes, and of a step's gradients (256)"},
        {.name = "steps",
         .kind = TOOL_FLAG,
         .value_out = &gpu_program.only_steps,
         .help = "whole steps, and memory of another process, alone; bench: one step, and its "
                 "hidden share"},
        {.name = "rows",
         .kind = TOOL_FLAG,
         .value_out = &gpu_program.only_rows,
         .help = "bench: the kernels alone, no step"},
        {.name = "runs",
         .kind = TOOL_NUMBER,
         .value_out = &gpu_program.runs_max,
         .value_name = "N",
         .low = 1,
         .high = 1000,
         .help = "check: so many runs of whole steps; the first three take all ways between ranks "
                 "(all)"},
        {.name = "small",
         .kind = TOOL_FLAG,
         .value_out = &gpu_program.is_small,
         .help = "check: small counts, and every main loop in few blocks, as for "
                 "compute-sanitizer"},
        {.name = "ops",
         .kind = TOOL_FLAG,
         .value_out = &gpu_program.only_ops,
         .help = "check: the ops alone, no whole steps"},
        {.name = "json",
         .kind = TOOL_TEXT,
         .value_out = &json,
         .value_name = "FILE",
         .help = "write what was found there"},
    };
    const struct tool_args args = {
        .program = is_named ? name : "program_gpu",
        .usage = is_named ? "[options]" : "probe|check|bench [options]",
        .about = "Exit code 1: a difference, a failure, or on an H200 a goal that was "
                 "missed; 77: no GPU.",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
        .operands_min = is_named ? 0 : 1,
        .operands_max = is_named ? 0 : 1};
    int read = tool_args_read(&args, argc, argv, &mode, &count);
    if (read != 0) return tool_args_exit(read);
    if (is_named) mode = name + 4;
    bool checks = strcmp(mode, "check") == 0, times = strcmp(mode, "bench") == 0;
    bool probes = strcmp(mode, "probe") == 0;
    if (!checks && !times && !probes) {
        fprintf(stderr, "%s: %s is neither probe nor check nor bench\n", args.program, mode);
        return TOOL_EXIT_USAGE;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    gpu_json_open(json, mode);
    if (gf_gpu_cuda_kernels.image == NULL) return skip("this build has no GPU kernels (no nvcc)");
    if ((gpu_program.library == NULL) && (access("/dev/nvidiactl", F_OK) != 0) &&
        (access("/dev/dxg", F_OK) != 0))
        return skip("no GPU");
    gpu_program.is_fake = is_fake(gpu_program.library);
    if (probes) return gpu_probe();
    if (checks) return gpu_check();
    int result = gpu_program.only_steps ? 0 : gpu_bench(mib << 20);
    if (!gpu_program.only_rows) gpu_steps_bench(mib << 20);
    if (result == 0)
        gpu_json_status("passed");
    else
        fprintf(stderr, "gpu-bench: what is MISSED above counts on this device\n");
    return result;
}
