/* What to do about results of the CUDA driver that a set-up causes: after an error's text, and in the preflight. */
#ifndef GF_REMEDY_H
#define GF_REMEDY_H

/* result: a CUresult. Empty where nothing is known. */
static inline const char *gf_cuda_remedy(int result)
{
    switch (result) {
    case 46:  return ": in exclusive-process mode one process has a GPU: nvidia-smi -c DEFAULT";
    case 100: return ": no /dev/nvidia* for this process, or CUDA_VISIBLE_DEVICES hides it";
    case 217: return ": no peer access: MIG, PCIe ACS or an IOMMU stands between the GPUs";
    case 801: return ": MIG, and some virtual GPUs, do not have this";
    case 802: return ": start nvidia-fabricmanager, of the driver's own version";
    case 803: return ": libcuda and the kernel's module are of two versions: reboot";
    case 804: return ": this GPU takes no compatibility libcuda: use the driver's own";
    default:  return "";
    }
}

#endif
