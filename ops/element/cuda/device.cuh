/* What all kernels share. They are written in the C that is C++ too, and compiled twice: by nvcc, and by the host's
 * compiler against the SIMT emulator (firmware-tests/cuda/simt_device.h), which stands in for everything CUDA has built in.
 *
 * An elementwise op walks over packs: as many elements as fill 16 bytes of the widest type. Ranges that do not lie alike
 * in their packs are walked element by element. Results have the host's bits. A GPU turns each NaN into one and the
 * same, so where a NaN comes out, an element is computed once more by rules that keep it (gf_exact). */
#ifndef GF_DEVICE_CUH
#define GF_DEVICE_CUH

#include "ops/element/cuda/kernels.h"

#ifdef __CUDACC__
#define GF_INLINE static __device__ __forceinline__
#define GF_UNROLL _Pragma("unroll")
#define GF_KERNEL(name)                                                                                      \
    extern "C" __global__ void __launch_bounds__(GF_KERNEL_THREADS)                                          \
        gf_kernel_##name(const __grid_constant__ struct gf_##name##_args args)
#define gf_raw(value) (value)
typedef uint4 gf_line16;
typedef uint2 gf_line8;
GF_INLINE uint32_t gf_bits(float value) { return __float_as_uint(value); }
GF_INLINE float gf_of_bits(uint32_t bits) { return __uint_as_float(bits); }
GF_INLINE uint32_t gf_f16_raw(float value)
{
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}
GF_INLINE float gf_of_f16_raw(uint32_t half)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)half));
    return value;
}
#else
#include "firmware-tests/cuda/simt_device.h"
#endif

#define GF_PACK_MAX 8

/* The one NaN that an operation keeps of its two operands, made quiet, as x86 does; of none: of an invalid operation. */
GF_INLINE float gf_exact(float result, float a, float b)
{
    if (result == result) return result;
    if (a != a) return gf_of_bits(gf_bits(a) | 0x400000u);
    if (b != b) return gf_of_bits(gf_bits(b) | 0x400000u);
    return gf_of_bits(0xffc00000u);
}

GF_INLINE float gf_add(float a, float b, int exact)
{
    float result = gf_raw(a + b);
    return exact ? gf_exact(result, a, b) : result;
}

GF_INLINE float gf_sub(float a, float b, int exact)
{
    float result = gf_raw(a - b);
    return exact ? gf_exact(result, a, b) : result;
}

GF_INLINE float gf_mul(float a, float b, int exact)
{
    float result = gf_raw(a * b);
    return exact ? gf_exact(result, a, b) : result;
}

/* ---- 16-bit types, as half.h has them ---- */

GF_INLINE uint32_t gf_to_f16(float value)
{
    uint32_t bits = gf_bits(value);
    if (value != value) return ((bits >> 16) & 0x8000u) | 0x7e00u | ((bits >> 13) & 0x3ffu);
    return gf_f16_raw(value);
}

GF_INLINE float gf_from_f16(uint32_t half)
{
    if ((half & 0x7fffu) > 0x7c00u)
        return gf_of_bits(((half & 0x8000u) << 16) | 0x7fc00000u | ((half & 0x3ffu) << 13));
    return gf_of_f16_raw(half);
}

GF_INLINE uint32_t gf_to_bf16(float value)
{
    uint32_t bits = gf_bits(value);
    if (value != value) return (bits >> 16) | 0x40u;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

GF_INLINE uint32_t gf_bytes(uint32_t type) { return (type == GF_KERNEL_F32) ? 4u : 2u; }

GF_INLINE float gf_widen(uint32_t type, uint32_t half)
{
    return (type == GF_KERNEL_F16) ? gf_from_f16(half) : gf_of_bits(half << 16);
}

GF_INLINE uint32_t gf_narrow(uint32_t type, float value)
{
    return (type == GF_KERNEL_F16) ? gf_to_f16(value) : gf_to_bf16(value);
}

/* From this magnitude on a result rounds to infinity in the type. */
GF_INLINE float gf_overflow(uint32_t type)
{
    if (type == GF_KERNEL_F16) return 65520.0f;
    return gf_of_bits((type == GF_KERNEL_BF16) ? 0x7f7f8000u : 0x7f800000u);
}

/* ---- packs: `count` elements from index i on, 1, 4 or 8; 8 only of 16-bit types ---- */

GF_INLINE void gf_words_load(uint32_t *words, uint64_t at, int bytes)
{
    if (bytes == 16) {
        gf_line16 line = *(const gf_line16 *)at;
        words[0] = line.x, words[1] = line.y, words[2] = line.z, words[3] = line.w;
    } else {
        gf_line8 line = *(const gf_line8 *)at;
        words[0] = line.x, words[1] = line.y;
    }
}

GF_INLINE void gf_words_store(uint64_t at, const uint32_t *words, int bytes)
{
    if (bytes == 16) {
        gf_line16 line;
        line.x = words[0], line.y = words[1], line.z = words[2], line.w = words[3];
        *(gf_line16 *)at = line;
    } else {
        gf_line8 line;
        line.x = words[0], line.y = words[1];
        *(gf_line8 *)at = line;
    }
}

/* As it lies in memory, so that what waits takes few registers. */
struct gf_pack {
    uint32_t words[4];
};

GF_INLINE void gf_pack_load(struct gf_pack *to, uint32_t type, uint64_t base, uint64_t i, int count)
{
    uint64_t at = base + i * gf_bytes(type);
    if (count > 1) gf_words_load(to->words, at, count * (int)gf_bytes(type));
    else if (type == GF_KERNEL_F32) to->words[0] = *(const uint32_t *)at;
    else to->words[0] = *(const uint16_t *)at;
}

/* Element e of the pack. */
GF_INLINE float gf_pack_get(const struct gf_pack *pack, uint32_t type, int e)
{
    if (type == GF_KERNEL_F32) return gf_of_bits(pack->words[e]);
    return gf_widen(type, (pack->words[e / 2] >> (16 * (e % 2))) & 0xffffu);
}

GF_INLINE void gf_pack_store(uint32_t type, uint64_t base, uint64_t i, const float *from, int count)
{
    uint64_t at = base + i * gf_bytes(type);
    uint32_t words[4] = {0, 0, 0, 0};
    if (count == 1) {
        if (type == GF_KERNEL_F32) *(float *)at = from[0];
        else *(uint16_t *)at = (uint16_t)gf_narrow(type, from[0]);
        return;
    }
    GF_UNROLL
    for (int e = 0; e < count; e++) {
        if (type == GF_KERNEL_F32) words[e] = gf_bits(from[e]);
        else words[e / 2] |= gf_narrow(type, from[e]) << (16 * (e % 2));
    }
    gf_words_store(at, words, count * (int)gf_bytes(type));
}

/* ---- what is not finite ---- */

struct gf_found {
    unsigned long long count, first;
};

GF_INLINE void gf_found_look(struct gf_found *found, uint32_t type, float value, uint64_t index)
{
    if (gf_of_bits(gf_bits(value) & 0x7fffffffu) < gf_overflow(type)) return;
    found->count++;
    if (index < found->first) found->first = index;
}

/* Once a thread, and only if it met something. check is a struct gf_check. */
GF_INLINE void gf_found_tell(const struct gf_found *found, uint64_t check)
{
    if ((found->count == 0) || (check == 0)) return;
    atomicAdd((unsigned long long *)check, found->count);
    atomicMin((unsigned long long *)(check + 8), found->first);
}

/* ---- walking ---- */

struct gf_walk {
    uint64_t worker, workers; /* this thread, of how many */
    uint64_t elem_count, head, packs;
};

/* Elements before the first whole pack. */
GF_INLINE uint32_t gf_head(uint64_t address, uint32_t type, uint32_t pack)
{
    return (uint32_t)((0 - address) % (pack * gf_bytes(type))) / gf_bytes(type);
}

/* Whether the range lies in its packs as one with this head does; 0 (a range that is not given) lies anyhow. */
GF_INLINE int gf_alike(uint64_t address, uint32_t type, uint32_t pack, uint32_t head)
{
    return (address == 0) || (gf_head(address, type, pack) == head);
}

GF_INLINE struct gf_walk gf_walk_make(uint64_t worker, uint64_t workers, uint64_t elem_count, uint32_t pack,
                                      uint32_t head, int alike)
{
    struct gf_walk walk;
    walk.worker = worker;
    walk.workers = workers;
    walk.elem_count = elem_count;
    walk.head = (alike && (head <= elem_count)) ? head : elem_count;
    walk.packs = (elem_count - walk.head) / pack;
    return walk;
}

GF_INLINE uint64_t gf_thread(void) { return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; }
GF_INLINE uint64_t gf_threads(void) { return (uint64_t)gridDim.x * blockDim.x; }

/* Calls LOAD(&some[a], i, count, ..) and then FINISH(&some[a], i, count, ..) for each pack and each single element;
 * AHEAD of them are loaded before the first is finished. PACK_T holds what was loaded. */
#define GF_WALK(walk, pack, AHEAD, PACK_T, LOAD, FINISH, ...)                                                     \
    do {                                                                                                          \
        PACK_T some[AHEAD];                                                                                       \
        uint64_t at = (walk).worker, singles = (walk).elem_count - (walk).packs * (pack);                         \
        for (; (at < (walk).packs) && ((walk).packs - at > (AHEAD - 1) * (walk).workers);                         \
             at += AHEAD * (walk).workers) {                                                                      \
            GF_UNROLL                                                                                             \
            for (int a = 0; a < AHEAD; a++)                                                                       \
                LOAD(&some[a], (walk).head + (at + a * (walk).workers) * (pack), (pack), __VA_ARGS__);            \
            GF_UNROLL                                                                                             \
            for (int a = 0; a < AHEAD; a++)                                                                       \
                FINISH(&some[a], (walk).head + (at + a * (walk).workers) * (pack), (pack), __VA_ARGS__);          \
        }                                                                                                         \
        for (; at < (walk).packs; at += (walk).workers) {                                                         \
            LOAD(&some[0], (walk).head + at * (pack), (pack), __VA_ARGS__);                                       \
            FINISH(&some[0], (walk).head + at * (pack), (pack), __VA_ARGS__);                                     \
        }                                                                                                         \
        for (at = (walk).worker; at < singles; at += (walk).workers) {                                            \
            uint64_t single = (at < (walk).head) ? at : at + (walk).packs * (pack);                               \
            LOAD(&some[0], single, 1, __VA_ARGS__);                                                               \
            FINISH(&some[0], single, 1, __VA_ARGS__);                                                             \
        }                                                                                                         \
    } while (0)

/* CALL(type constant, ..) for the type at hand. */
#define GF_TYPES(type, CALL, ...)                                        \
    do {                                                                 \
        if ((type) == GF_KERNEL_F32) CALL(GF_KERNEL_F32, __VA_ARGS__);   \
        else if ((type) == GF_KERNEL_F16) CALL(GF_KERNEL_F16, __VA_ARGS__); \
        else CALL(GF_KERNEL_BF16, __VA_ARGS__);                          \
    } while (0)

/* ---- chunks: a block takes a tile of one after the other ---- */

#define GF_TILE_ELEMS (GF_KERNEL_THREADS * 16u)

struct gf_tile {
    uint64_t dst, src, count; /* elements */
};

GF_INLINE uint64_t gf_tiles(const struct gf_chunk_lists *chunks)
{
    return (chunks->chunk_elems + GF_TILE_ELEMS - 1) / GF_TILE_ELEMS;
}

GF_INLINE uint64_t gf_listed(uint64_t list, uint64_t turn)
{
    return (list != 0) ? ((const uint32_t *)list)[turn] : turn;
}

GF_INLINE struct gf_tile gf_tile_at(const struct gf_chunk_lists *chunks, uint64_t number)
{
    uint64_t turn = number / gf_tiles(chunks), skip = number % gf_tiles(chunks) * GF_TILE_ELEMS;
    uint64_t left = chunks->chunk_elems - skip;
    struct gf_tile tile;
    tile.dst = gf_listed(chunks->dst_list, turn) * chunks->chunk_elems + skip;
    tile.src = gf_listed(chunks->src_list, turn) * chunks->chunk_elems + skip;
    tile.count = (left < GF_TILE_ELEMS) ? left : GF_TILE_ELEMS;
    left = (tile.dst < chunks->dst_elems) ? chunks->dst_elems - tile.dst : 0;
    if (left < tile.count) tile.count = left;
    left = (tile.src < chunks->src_elems) ? chunks->src_elems - tile.src : 0;
    if (left < tile.count) tile.count = left;
    return tile;
}

#endif
