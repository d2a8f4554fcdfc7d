/* Whether a network card may reach the memory of this node's GPUs: by nvidia_peermem, or by dmabuf,
 * which NVIDIA's open kernel module hands out. Without either UCX copies through memory of its own,
 * and ours is better. From what the kernel's files say; what a card then does only a run tells. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/check/check_preflight.h"

check_way check_gpudirect_way(const char *root)
{
    static const char *const modules[] = {"nvidia_peermem", "nv_peer_mem"};
    char path[512];
    char line[256] = "";
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        (void)snprintf(path, sizeof path, "%.256s/sys/module/%s", root, modules[i]);
        if (access(path, F_OK) == 0) return CHECK_WAY_PEERMEM;
    }
    (void)snprintf(path, sizeof path, "%.256s/proc/driver/nvidia/version", root);
    FILE *file = fopen(path, "r");
    if (file == NULL) return CHECK_WAY_NONE;
    bool read = fgets(line, sizeof line, file) != NULL;
    (void)fclose(file);
    return (read && (strstr(line, "Open Kernel Module") != NULL)) ? CHECK_WAY_DMABUF
                                                                  : CHECK_WAY_NONE;
}

void check_gpudirect(struct check_report *report, const struct check_job *job)
{
    if (!job->fabric || (strcmp(job->config.device.driver, "cuda") != 0)) return;
    switch (check_gpudirect_way("")) {
    case CHECK_WAY_PEERMEM:
        check_say(report, "gpudirect", CHECK_OK, NULL,
                  "nvidia_peermem is loaded: link.transports = \"rc,cuda_copy\"");
        break;
    case CHECK_WAY_DMABUF:
        check_say(
            report, "gpudirect", CHECK_OK, NULL,
            "no nvidia_peermem; NVIDIA's open kernel module has dmabuf, which UCX up to 1.18 may "
            "not take "
            "(openucx/ucx issue 10929): compare link.transports = \"rc,cuda_copy\" and \"rc\"");
        break;
    case CHECK_WAY_NONE:
        check_say(report, "gpudirect", CHECK_SKIP, NULL,
                  "neither nvidia_peermem nor NVIDIA's open kernel module: device memory goes "
                  "through the "
                  "host's: link.transports = \"rc\"");
        break;
    }
}
