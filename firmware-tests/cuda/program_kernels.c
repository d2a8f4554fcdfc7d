/* What a compiler made of the kernels: program_kernels ARCH CUBIN, a line a kernel. Reads machine
 * code of sm_70 and later: 16 bytes an instruction, its number in the low 12 bits, the width of an
 * access in bits 73 to 75. The hot loop is the one that moves the most bytes; loops in it and
 * calls, for values that are not finite, do not count.
 *     kernel arch instructions-of-hot-loop loads stores narrow local wide code-bytes
 * loads and stores: bytes that one turn of the hot loop moves in accesses of 16 bytes, or of 8.
 * narrow: accesses in it below that, or that do not say which memory. Of the whole kernel: local,
 * accesses to the stack; wide, accesses of 16 bytes. And a line "abi N" first. */
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL ".text.gf_kernel_"

struct code {
    const uint64_t (*at)[2];
    uint64_t count;
    int is_90;
};

static unsigned number_of(const struct code *code, uint64_t i)
{
    return (unsigned)(code->at[i][0] & 0xfff);
}
static int is_load(unsigned n)
{
    return (n == 0x381) || (n == 0x981);
}
static int is_store(unsigned n)
{
    return (n == 0x386) || (n == 0x986);
}
static int is_generic(unsigned n)
{
    return (n == 0x380) || (n == 0x980) || (n == 0x385) || (n == 0x985);
}
static int is_local(unsigned n)
{
    return (n == 0x383) || (n == 0x983) || (n == 0x387) || (n == 0x987);
}
static int is_call(unsigned n)
{
    return (n == 0x943) || (n == 0x944);
}

static unsigned bytes_of(const struct code *code, uint64_t i)
{
    static const unsigned bytes[8] = {1, 1, 2, 2, 4, 8, 16, 16};
    return bytes[(code->at[i][1] >> 9) & 7];
}

/* Where a branch goes, or UINT64_MAX. */
static uint64_t target_of(const struct code *code, uint64_t i)
{
    if (number_of(code, i) != 0x947) return UINT64_MAX;
    uint64_t low = code->at[i][0];
    uint64_t high = code->at[i][1];
    int64_t words = (int64_t)(((low >> 34) | (high << 30)) << 16) >> 16; /* 48 bits */
    if (code->is_90) words = (words << 8) | (int64_t)((low >> 16) & 0xff);
    return (uint64_t)((int64_t)i + 1 + words / 4);
}

/* A stretch of instructions that ends by a branch, or before a branch's target. */
static uint64_t stretch_end(const struct code *code, uint64_t i, uint64_t last)
{
    for (uint64_t end = i + 1;; end++) {
        if ((end > last) || (target_of(code, end - 1) != UINT64_MAX)) return end;
        for (uint64_t from = 0; from < code->count; from++)
            if (target_of(code, from) == end) return end;
    }
}

struct loop {
    uint64_t instructions, moved, loads, stores, narrow;
};

/* Of instructions first .. last: the branch that ends a loop from i on within them, or 0. */
static uint64_t nested_end(const struct code *code, uint64_t i, uint64_t first, uint64_t last)
{
    for (uint64_t end = last; end > i; end--)
        if ((target_of(code, end) == i) && ((i > first) || (end < last))) return end;
    return 0;
}

/* Without loops in it, and without stretches that call. */
static struct loop loop_look(const struct code *code, uint64_t first, uint64_t last)
{
    struct loop loop = {0, 0, 0, 0, 0};
    for (uint64_t i = first, end; i <= last; i = end) {
        int calls = 0;
        if ((end = nested_end(code, i, first, last)) != 0) {
            end++;
            continue;
        }
        end = stretch_end(code, i, last);
        for (uint64_t s = i; s < end; s++) calls |= is_call(number_of(code, s));
        for (uint64_t s = i; !calls && (s < end); s++) {
            unsigned number = number_of(code, s);
            unsigned bytes = bytes_of(code, s);
            loop.instructions++;
            loop.narrow += is_generic(number) != 0;
            if (!is_load(number) && !is_store(number)) continue;
            if (bytes < 8)
                loop.narrow++;
            else if (is_load(number))
                loop.loads += bytes;
            else
                loop.stores += bytes;
        }
    }
    loop.moved = loop.loads + loop.stores;
    return loop;
}

static void kernel_show(const char *name, const char *arch, const struct code *code)
{
    struct loop hot = {0, 0, 0, 0, 0};
    unsigned local = 0;
    unsigned wide = 0;
    for (uint64_t i = 0; i < code->count; i++) {
        uint64_t target = target_of(code, i);
        unsigned number = number_of(code, i);
        local += is_local(number) != 0;
        wide += (is_load(number) || is_store(number)) && (bytes_of(code, i) == 16);
        if (target > i) continue;
        struct loop loop = loop_look(code, target, i);
        if (loop.moved > hot.moved) hot = loop;
    }
    printf("%s %s %llu %llu %llu %llu %u %u %llu\n", name, arch,
           (unsigned long long)hot.instructions, (unsigned long long)hot.loads,
           (unsigned long long)hot.stores, (unsigned long long)hot.narrow, local, wide,
           (unsigned long long)(code->count * 16));
}

int main(int count, char **words)
{
    static uint64_t image[1 << 18]; /* 2 MiB */
    if (count != 3) return 2;
    FILE *file = fopen(words[2], "rb");
    size_t bytes = file ? fread(image, 1, sizeof image, file) : 0;
    const char *base = (const char *)image;
    const Elf64_Ehdr *header = (const void *)base;
    if ((bytes < sizeof *header) || (bytes == sizeof image) ||
        (memcmp(base, ELFMAG, SELFMAG) != 0)) {
        fprintf(stderr, "%s is no ELF file below 2 MiB\n", words[2]);
        return 1;
    }
    printf("abi %u\n", header->e_ident[EI_ABIVERSION]);
    const Elf64_Shdr *sections = (const void *)(base + header->e_shoff);
    const char *names = base + sections[header->e_shstrndx].sh_offset;
    for (unsigned s = 0; s < header->e_shnum; s++) {
        const char *name = names + sections[s].sh_name;
        if (strncmp(name, KERNEL, strlen(KERNEL)) != 0) continue;
        struct code code = {(const void *)(base + sections[s].sh_offset), sections[s].sh_size / 16,
                            atoi(words[1]) >= 90};
        kernel_show(name + strlen(KERNEL), words[1], &code);
    }
    (void)fclose(file);
    return 0;
}
