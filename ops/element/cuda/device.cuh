/* What all kernels share. They are written in the C that is C++ too, and compiled twice: by nvcc,
 * and by the host's compiler against the SIMT emulator (firmware-tests/cuda/simt_device.h), which
 * stands in for everything CUDA has built in.
 *
 * An elementwise op walks over packs: as many elements as fill 16 bytes of the widest type. Ranges
 * that do not lie alike in their packs are walked element by element. Results have the host's bits,
 * with one exception: a NaN stays a NaN, but a GPU turns each NaN into one and the same, so its
 * payload need not be the host's.
 *
 * Sums and products are written as plain expressions: both compilers are told not to fuse a
 * multiplication and an addition into one (-fmad=false, -ffp-contract=off), so each operation
 * rounds once, as on the host. */
#ifndef GF_DEVICE_CUH
#define GF_DEVICE_CUH

#include "ops/element/cuda/kernels.h"

/* the functions of a walk share their parameters */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#ifdef __CUDACC__
#define GF_INLINE static __device__ __forceinline__
#define GF_UNROLL _Pragma("unroll")
#define GF_ROLLED _Pragma("unroll 1")
/* At least `blocks` of it on a multiprocessor: without a bound a compiler spills to have more than
 * it needs. */
#define GF_KERNEL_BOUNDS(name, kind, threads, blocks)             \
    extern "C" __global__ void __launch_bounds__(threads, blocks) \
        gf_kernel_##name(const __grid_constant__ struct gf_##kind##_args args)
#define gf_likely(what) __builtin_expect(!!(what), 1)
#define GF_MAIN_LOOP ((void)0) /* the emulator counts who enters one */
GF_INLINE uint32_t gf_bits(float value)
{
    return __float_as_uint(value);
}
GF_INLINE float gf_of_bits(uint32_t bits)
{
    return __uint_as_float(bits);
}
GF_INLINE uint32_t gf_f16x2(float low, float high)
{
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
GF_INLINE uint32_t gf_bf16x2(float low, float high)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
GF_INLINE float gf_of_f16(uint32_t half)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)half));
    return value;
}
GF_INLINE double gf_f64_shuffle_down(uint32_t mask, double value, int delta, int width)
{
    return __shfl_down_sync(mask, value, (unsigned)delta, width);
}
/* Global memory, said outright: from an address that is a number the compiler would make a generic
 * access. In order. */
GF_INLINE void gf_line_load(uint32_t words[4], uint64_t at)
{
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(at)
                 : "memory");
}
GF_INLINE void gf_half_line_load(uint32_t words[2], uint64_t at)
{
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "l"(at)
                 : "memory");
}
GF_INLINE double gf_f64_load(uint64_t at)
{
    double value;
    asm volatile("ld.global.f64 %0, [%1];" : "=d"(value) : "l"(at) : "memory");
    return value;
}
GF_INLINE void gf_line_store(uint64_t at, const uint32_t words[4])
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
}
GF_INLINE void gf_half_line_store(uint64_t at, const uint32_t words[2])
{
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(words[0]), "r"(words[1])
                 : "memory");
}
/* Nothing comes back, so nobody waits for them. */
GF_INLINE void gf_global_add(uint64_t at, unsigned long long value)
{
    asm volatile("red.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
GF_INLINE void gf_global_min(uint64_t at, unsigned long long value)
{
    asm volatile("red.global.min.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
#else
#include "firmware-tests/cuda/simt_device.h"
#endif

#define GF_KERNEL_BOUND(name, kind, blocks) GF_KERNEL_BOUNDS(name, kind, GF_KERNEL_THREADS, blocks)
#define GF_KERNEL_OF(name, kind) GF_KERNEL_BOUND(name, kind, 4)
#define GF_KERNEL(name) GF_KERNEL_OF(name, name)
/* As many registers a thread, in blocks of up to four times the threads. */
#define GF_KERNEL_CHANNEL(name, kind) GF_KERNEL_BOUNDS(name, kind, GF_KERNEL_CHANNEL_THREADS, 1)
#ifdef GF_ONE_PACK /* PTX: see fatbin.sh */
#define GF_MANY(ahead) 0
#else
#define GF_MANY(ahead) ((ahead) > 1)
#endif

/* ---- types ---- */

GF_INLINE uint32_t gf_bytes(uint32_t type)
{
    return (type == GF_KERNEL_F32) ? 4u : 2u;
}

/* From this magnitude on a result rounds to infinity in the type. */
GF_INLINE float gf_overflow(uint32_t type)
{
    if (type == GF_KERNEL_F16) return 65520.0f;
    return gf_of_bits((type == GF_KERNEL_BF16) ? 0x7f7f8000u : 0x7f800000u);
}

/* ---- single elements: element i of a range ---- */

GF_INLINE float gf_one_load(uint32_t type, uint64_t base, uint64_t i)
{
    if (type == GF_KERNEL_F32) return ((const float *)base)[i];
    const uint32_t half = ((const uint16_t *)base)[i];
    return (type == GF_KERNEL_F16) ? gf_of_f16(half) : gf_of_bits(half << 16);
}

GF_INLINE void gf_one_store(uint32_t type, uint64_t base, uint64_t i, float value)
{
    if (type == GF_KERNEL_F32) {
        ((float *)base)[i] = value;
        return;
    }
    const uint32_t two = (type == GF_KERNEL_F16) ? gf_f16x2(value, 0.0f) : gf_bf16x2(value, 0.0f);
    ((uint16_t *)base)[i] = (uint16_t)two;
}

/* 1: rounds to what is not finite. */
GF_INLINE uint32_t gf_one_bad(uint32_t type, float value)
{
    return !(fabsf(value) < gf_overflow(type));
}

/* ---- packs: `count` elements from index i on, 4 or 8, as they lie in memory; 8 only of 16-bit
 * types ---- */

struct gf_pack {
    uint32_t words[4];
};

GF_INLINE void gf_pack_load(struct gf_pack *to, uint32_t type, uint64_t base, uint64_t i, int count)
{
    uint64_t at = base + i * gf_bytes(type);
    if (count * (int)gf_bytes(type) == 16)
        gf_line_load(to->words, at);
    else
        gf_half_line_load(to->words, at);
}

/* Element e of the pack. */
GF_INLINE float gf_pack_get(const struct gf_pack *pack, uint32_t type, int e)
{
    uint32_t word = pack->words[(type == GF_KERNEL_F32) ? e : e / 2];
    if (type == GF_KERNEL_F32) return gf_of_bits(word);
    if (type == GF_KERNEL_BF16) return gf_of_bits((e % 2 != 0) ? word & 0xffff0000u : word << 16);
    return gf_of_f16((e % 2 != 0) ? word >> 16 : word & 0xffffu);
}

GF_INLINE void gf_pack_store(uint32_t type, uint64_t base, uint64_t i, const float *from, int count)
{
    uint64_t at = base + i * gf_bytes(type);
    uint32_t words[4];
    GF_UNROLL
    for (int e = 0; e < count; e += (type == GF_KERNEL_F32) ? 1 : 2) {
        if (type == GF_KERNEL_F32)
            words[e] = gf_bits(from[e]);
        else if (type == GF_KERNEL_F16)
            words[e / 2] = gf_f16x2(from[e], from[e + 1]);
        else
            words[e / 2] = gf_bf16x2(from[e], from[e + 1]);
    }
    if (count * (int)gf_bytes(type) == 16)
        gf_line_store(at, words);
    else
        gf_half_line_store(at, words);
}

/* The same of four, in a type that is known at run time alone. */
GF_INLINE void gf_four_store(uint32_t type, uint64_t base, uint64_t i, const float *from)
{
    if (type == GF_KERNEL_F16)
        gf_pack_store(GF_KERNEL_F16, base, i, from, 4);
    else if (type == GF_KERNEL_BF16)
        gf_pack_store(GF_KERNEL_BF16, base, i, from, 4);
    else
        gf_pack_store(GF_KERNEL_F32, base, i, from, 4);
}

/* Whether all of a pack round to what is finite; one comparison an element, with no branch. */
GF_INLINE int gf_pack_fine(uint32_t type, const float *value, int count)
{
    int fine = 1;
    GF_UNROLL
    for (int e = 0; e < count; e++) fine &= fabsf(value[e]) < gf_overflow(type);
    return fine;
}

/* ---- what is not finite ---- */

struct gf_found {
    uint32_t count; /* a thread does not meet 2^32 */
    unsigned long long first;
};

GF_INLINE void gf_found_one(struct gf_found *found, uint32_t bad, uint64_t index)
{
    if (bad == 0) return;
    found->count++;
    if (index < found->first) found->first = index;
}

/* The same of a pack that lies at base[i] and is not all finite. It is read again: a loop over the
 * registers that it came from would have to be unrolled, and would be longer than the rest of a
 * kernel. */
GF_INLINE void gf_found_pack(struct gf_found *found, uint32_t type, uint64_t base, uint64_t i,
                             int count, uint64_t index)
{
    GF_ROLLED
    for (int e = 0; e < count; e++) {
        const float value = gf_one_load(type, base, i + (uint64_t)e);
        gf_found_one(found, gf_one_bad(type, value), index + (uint64_t)e);
    }
}

/* Once a thread, and only if it met something. check is a struct gf_check. */
GF_INLINE void gf_found_add(const struct gf_found *found, uint64_t check)
{
    if ((found->count == 0) || (check == 0)) return;
    gf_global_add(check, found->count);
    gf_global_min(check + 8, found->first);
}

/* ---- what a kernel works on: a flat range, all threads in one go; or listed chunks, a block a
 * tile ---- */

GF_INLINE uint64_t gf_thread(void)
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
GF_INLINE uint64_t gf_threads(void)
{
    return (uint64_t)gridDim.x * blockDim.x;
}

/* Elements first .. first+count-1 of what is written; of what is read, `src` less: src is first's
 * partner. */
struct gf_range {
    uint64_t first, src, count;
    uint64_t worker, workers; /* this thread, of how many */
};

GF_INLINE uint64_t gf_tiles(const struct gf_chunks *chunks)
{
    return (chunks->chunk_elems + GF_KERNEL_TILE_ELEMS - 1) / GF_KERNEL_TILE_ELEMS;
}

/* Tile `number` of all tiles of the listed chunks: of the chunk that is listed at place `entry`,
 * the elements from `skip` on. In a packed range the chunks lie one behind the other, as they are
 * listed; else where their numbers say. The pool's last chunk may be short, and a chunk's last tile
 * is. */
GF_INLINE struct gf_range gf_tile_at(const struct gf_chunks *chunks, uint64_t number)
{
    const uint64_t entry = number / gf_tiles(chunks);
    const uint64_t skip = number % gf_tiles(chunks) * GF_KERNEL_TILE_ELEMS;
    const uint64_t chunk =
        (chunks->list_u32 != 0) ? ((const uint32_t *)chunks->list_u32)[entry] : entry;
    const uint64_t at = chunk * chunks->chunk_elems + skip;
    const uint64_t packed = entry * chunks->chunk_elems + skip;
    const uint64_t left_in_pool = (at < chunks->elems) ? chunks->elems - at : 0;
    const uint64_t left_in_chunk = chunks->chunk_elems - skip;
    struct gf_range tile;
    tile.first = chunks->dst_packed ? packed : at;
    tile.src = chunks->src_packed ? packed : at;
    tile.count = (left_in_pool < left_in_chunk) ? left_in_pool : left_in_chunk;
    if (tile.count > GF_KERNEL_TILE_ELEMS) tile.count = GF_KERNEL_TILE_ELEMS;
    tile.worker = threadIdx.x;
    tile.workers = blockDim.x;
    return tile;
}

GF_INLINE struct gf_range gf_flat(uint64_t elem_count)
{
    struct gf_range range = {0, 0, elem_count, gf_thread(), gf_threads()};
    return range;
}

/* CALL(&range, ..): once with the flat range where no chunks are listed, else for each tile of this
 * block. */
#define GF_RANGES(chunks, elem_count, CALL, ...)                                                \
    do {                                                                                        \
        const int is_flat = (chunks)->count == 0;                                               \
        const uint64_t all = is_flat ? 1u : gf_tiles(chunks) * (chunks)->count;                 \
        for (uint64_t tile = is_flat ? 0u : blockIdx.x; tile < all;                             \
             tile += is_flat ? 1u : gridDim.x) {                                                \
            struct gf_range range = is_flat ? gf_flat(elem_count) : gf_tile_at((chunks), tile); \
            CALL(&range, __VA_ARGS__);                                                          \
        }                                                                                       \
    } while (0)

/* ---- walking a range ---- */

/* Elements before the first whole pack: 0 - address, modulo a pack's bytes, is what is missing to
 * the next multiple of them. */
GF_INLINE uint32_t gf_head(uint64_t address, uint32_t type, uint32_t pack)
{
    return (uint32_t)((0 - address) % (pack * gf_bytes(type))) / gf_bytes(type);
}

/* Whether the range lies in its packs as one with this head does; 0 (a range that is not given)
 * lies anyhow. */
GF_INLINE int gf_alike(uint64_t address, uint64_t first, uint32_t type, uint32_t pack,
                       uint32_t head)
{
    return (address == 0) || (gf_head(address + first * gf_bytes(type), type, pack) == head);
}

/* The elements of a range, by whole packs and one by one:
 *
 *     first                at the_head                                 the last whole pack ends
 *                          first + count
 *       |---- ONE each -------|--- PACK ---|--- PACK ---| .. |--- PACK ---|------- ONE each
 *           -------------|
 *
 * Thread `worker` takes pack worker, worker + workers and on. It has AHEAD packs under way:
 * LOAD(&some[a], i, ..) is called for all of them before PACK(&some[a], i, ..) for the first. Packs
 * for which PACK() is 0 are then given to LOOK(i, ..), which is rare and stands there once for all
 * of them. What is left of a thread's packs, fewer than AHEAD, it takes one at a time. The main
 * loop is thus entered only where a thread has AHEAD packs, and by every thread only from
 * workers * pack * AHEAD elements on. Where the arrays of an op do not lie alike in their packs,
 * all elements are taken by ONE(i, ..). PACK_T is the type that holds what was loaded. */
#define GF_WALK(range, pack, the_head, alike, AHEAD, PACK_T, LOAD, PACK, LOOK, ONE, ...)         \
    do {                                                                                         \
        const uint64_t workers = (range)->workers;                                               \
        const uint64_t stride = workers * (pack);                                                \
        const uint64_t all_elems = (range)->count;                                               \
        const uint64_t before = ((alike) && ((the_head) <= all_elems)) ? (the_head) : all_elems; \
        const uint64_t whole = (all_elems - before) / (pack) * (pack);                           \
        const uint64_t end = (range)->first + before + whole;                                    \
        uint64_t at = (range)->first + before + (range)->worker * (pack);                        \
        PACK_T some[AHEAD];                                                                      \
        for (; GF_MANY(AHEAD) && (at < end) && (end - at > (AHEAD - 1) * stride);                \
             at += AHEAD * stride) {                                                             \
            GF_MAIN_LOOP;                                                                        \
            uint32_t looks = 0;                                                                  \
            GF_UNROLL                                                                            \
            for (uint32_t a = 0; a < (AHEAD); a++) LOAD(&some[a], at + a * stride, __VA_ARGS__); \
            GF_UNROLL                                                                            \
            for (uint32_t a = 0; a < (AHEAD); a++)                                               \
                looks |= PACK(&some[a], at + a * stride, __VA_ARGS__) ? 0u : 1u << a;            \
            GF_ROLLED                                                                            \
            for (uint32_t a = 0; !gf_likely(looks >> a == 0); a++)                               \
                if ((looks >> a & 1u) != 0) LOOK(at + a * stride, __VA_ARGS__);                  \
        }                                                                                        \
        GF_ROLLED                                                                                \
        for (; at < end; at += stride) {                                                         \
            if (!GF_MANY(AHEAD)) GF_MAIN_LOOP;                                                   \
            LOAD(&some[0], at, __VA_ARGS__);                                                     \
            if (!gf_likely(PACK(&some[0], at, __VA_ARGS__))) LOOK(at, __VA_ARGS__);              \
        }                                                                                        \
        GF_ROLLED                                                                                \
        for (uint64_t one = (range)->worker; one < all_elems - whole; one += workers)            \
            ONE((range)->first + one + ((one < before) ? 0 : whole), __VA_ARGS__);               \
    } while (0)
#define GF_NO_LOOK(...) ((void)0) /* of a PACK that is never 0 */

/* An entry a type: MAKE(name, type). */
#define GF_EACH_TYPE(MAKE) \
    MAKE(f32, GF_KERNEL_F32) MAKE(f16, GF_KERNEL_F16) MAKE(bf16, GF_KERNEL_BF16)

#endif
