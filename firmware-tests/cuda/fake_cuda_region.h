/* The fake CUDA driver: a range of addresses that works may touch, and its shadow. */
#ifndef FAKE_CUDA_REGION_H
#define FAKE_CUDA_REGION_H

#include "firmware-tests/cuda/fake_cuda_state.h"

#define REGIONS_MAX 64u

/* MAPPED: by cuMemMap(). */
typedef enum region_kind { REGION_HOST, REGION_DEVICE, REGION_IMPORTED, REGION_MAPPED } region_kind;

struct cell;
struct region {
    uint64_t base;
    size_t size_bytes, shadow_bytes; /* 0: free */
    struct cell *shadow;
    region_kind kind;
    int file;            /* of device memory, to be opened by other processes; -1 */
    uint32_t opened;     /* imported: so often */
    int process;         /* imported: the exporter, to ask whether it lives */
    bool orphan;         /* it does not: memory goes with the process that took it */
    bool is_closed;      /* mapped: no device may touch it yet */
    bool is_foreign;     /* mapped: another process's */
    bool open;           /* the CPU may touch it */
    struct fake_export of; /* imported: whose */
};
extern struct region fake_regions[REGIONS_MAX];

CUresult fake_region_add(uint64_t base, size_t size_bytes, region_kind kind, struct region **region_out);
struct region *fake_region_at(uint64_t address, size_t size_bytes); /* NULL */
void fake_region_remove(struct region *region);
/* Addresses of `whole` bytes, beside which nothing lies: a late access to what was freed, whose place is never used
 * again, is nobody's address. 0: there is no room. Then what lies there; NULL: back to what the reservation was. */
uint64_t fake_reserve(size_t whole);
bool fake_place(uint64_t at, int file, size_t whole);
void fake_unplace(uint64_t at, size_t whole);
bool fake_memory_charge(size_t whole); /* of the device's bytes; false: they are not there */
void fake_memory_credit(size_t whole);
void fake_memory_fill(uint64_t address, size_t whole);
int fake_memory_file(size_t whole); /* new memory, that other processes can open; -1 */

/* fake_cuda_map.c */
void fake_maps_count(struct fake_cuda_live *live);
void fake_maps_forget(void);

#endif
