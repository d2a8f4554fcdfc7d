/* What element ops move past the last-level cache, beside memcpy() in the same rounds: `make
 * bench-ops`. Not a test. Bytes are those that an op reads and writes by its definition. Arrays lie
 * one behind the other, each larger than the cache, so that nothing an op touches is left from the
 * one before. */
#include <sys/mman.h>
#include <time.h>

#include "drivers/base/arithmetic.h"
#include "drivers/base/clock.h"
#include "firmware-tests/bench/bench_peer.h"
#include "firmware-tests/support/hostile.h"
#include "ops/element/host/ops_host.h"

#define ROUNDS 9
#define PIECE_BYTES ((uint64_t)1 << 20)
#define CACHE_BYTES_DEFAULT ((size_t)32 << 20)
#define AREAS 6

enum { A, B, C, D, E, F }; /* the last two are zeroes, and so are their sums */

static uint8_t *area[AREAS];
static struct gf_check met = {0, UINT64_MAX}; /* must stay so */
static uint64_t elem_count;                   /* fp32 elements of an area */

static gf_mem mem(int which)
{
    return (gf_mem)(uintptr_t)area[which];
}

static void run_memcpy(const struct gf_element_ops *ops)
{
    memcpy(area[B], area[A], elem_count * 4);
}

/* The same bytes in pieces for which libc uses ordinary stores, as it does for whatever the library
 * copies. */
static void run_memcpy_pieces(const struct gf_element_ops *ops)
{
    for (uint64_t at = 0; at < elem_count * 4; at += PIECE_BYTES) {
        uint64_t left = elem_count * 4 - at;
        memcpy(area[B] + at, area[A] + at, left < PIECE_BYTES ? left : PIECE_BYTES);
    }
}

/* libc's fastest reading: no byte of D is 1. What a core reads at most, whatever it does with
 * it. */
static void run_read(const struct gf_element_ops *ops)
{
    if (memchr(area[D], 1, elem_count * 4) != NULL) printf("the array to read was overwritten\n");
}

static void run_f32_to_f16(const struct gf_element_ops *ops)
{
    (void)ops->cast(NULL, mem(B), GF_TYPE_F16, mem(A), GF_TYPE_F32, elem_count, 1, 0, &met);
}

static void run_f16_to_f32(const struct gf_element_ops *ops)
{
    (void)ops->cast(NULL, mem(A), GF_TYPE_F32, mem(B), GF_TYPE_F16, elem_count, 1, 0, NULL);
}

static void run_f32_to_bf16(const struct gf_element_ops *ops)
{
    (void)ops->cast(NULL, mem(B), GF_TYPE_BF16, mem(A), GF_TYPE_F32, elem_count, 1, 0, &met);
}

static void run_bf16_to_f32(const struct gf_element_ops *ops)
{
    (void)ops->cast(NULL, mem(A), GF_TYPE_F32, mem(B), GF_TYPE_BF16, elem_count, 1, 0, NULL);
}

static void run_score(const struct gf_element_ops *ops)
{
    (void)ops->score(NULL, mem(B), mem(A), elem_count, 32768, 65536);
}

static void run_norm(const struct gf_element_ops *ops)
{
    (void)ops->norm(NULL, 0, GF_TYPE_F32, &(struct gf_norm){mem(B), mem(A), elem_count}, 1);
}

static void run_update(const struct gf_element_ops *ops)
{
    struct gf_update update = {.weight_f32 = mem(A),
                               .momentum_f32 = mem(C),
                               .gradient = mem(D),
                               .gradient_scale = 0.5f,
                               .rate_in = 1.0f,
                               .rate_out = 1e-3f,
                               .momentum = 0.9f,
                               .decay = 1e-4f};
    (void)ops->update(NULL, &update, elem_count);
}

static void run_update_half(const struct gf_element_ops *ops)
{
    struct gf_update update = {.weight_f32 = mem(A),
                               .momentum_f32 = mem(C),
                               .gradient = mem(D),
                               .gradient_scale = 0.5f,
                               .rate_in = 1.0f,
                               .rate_out = 1e-3f,
                               .momentum = 0.9f,
                               .decay = 1e-4f,
                               .half = mem(B),
                               .half_type = GF_TYPE_F16};
    (void)ops->update(NULL, &update, elem_count);
}

static void run_accumulate(const struct gf_element_ops *ops)
{
    struct gf_accumulate accumulate = {.dst_h_f32 = mem(A),
                                       .h_f32 = mem(A),
                                       .dst_u_f32 = mem(C),
                                       .u_f32 = mem(C),
                                       .src = mem(D),
                                       .src_type = GF_TYPE_F32,
                                       .scale = 0.5f,
                                       .momentum = 0.9f};
    (void)ops->accumulate(NULL, &accumulate, elem_count);
}

static void run_adam(const struct gf_element_ops *ops)
{
    struct gf_adam adam = {.weight_f32 = mem(A),
                           .moment1_f32 = mem(C),
                           .moment2_f32 = mem(B),
                           .gradient = mem(D),
                           .gradient_type = GF_TYPE_F16,
                           .gradient_scale = 0.5f,
                           .epsilon = 1e-8f,
                           .beta1 = 0.9f,
                           .keep1 = 0.1f,
                           .beta2 = 0.999f,
                           .keep2 = 0.001f,
                           .correct1 = 1,
                           .correct2 = 1};
    (void)ops->adam(NULL, &adam, elem_count);
}

static void run_sum_f32(const struct gf_element_ops *ops)
{
    (void)ops->sum(NULL, mem(A), mem(D), GF_TYPE_F32, elem_count, 0, &met);
}

static void run_sum_f16(const struct gf_element_ops *ops)
{
    (void)ops->sum(NULL, mem(B), mem(D), GF_TYPE_F16, elem_count, 0, &met);
}

/* As two ranks of a node add: to where both values lay. */
static void run_sum_n(const struct gf_element_ops *ops)
{
    const gf_mem both[] = {mem(E), mem(F)};
    (void)ops->sum_n(NULL, both, 2, both, 2, GF_TYPE_F32, elem_count, 0, &met, NULL);
}

static const struct bench_case {
    const char *name;
    void (*run)(const struct gf_element_ops *ops);
    unsigned bytes_per_elem; /* read and written */
} cases[] = {
    {"memcpy", run_memcpy, 8},
    {"memcpy, 1 MiB at a time", run_memcpy_pieces, 8},
    {"reading alone (memchr)", run_read, 4},
    {"cast fp32 -> fp16", run_f32_to_f16, 6},
    {"cast fp16 -> fp32", run_f16_to_f32, 6},
    {"cast fp32 -> bf16", run_f32_to_bf16, 6},
    {"cast bf16 -> fp32", run_bf16_to_f32, 6},
    {"sum fp32", run_sum_f32, 12},
    {"sum fp16", run_sum_f16, 6},
    {"sum_n fp32, 2 ranks", run_sum_n, 16},
    {"score", run_score, 4},
    {"norm", run_norm, 4},
    {"accumulate", run_accumulate, 20},
    {"update", run_update, 20},
    {"update, fp16 weights too", run_update_half, 22},
    {"adam, fp16 gradient", run_adam, 26},
};
#define CASES (sizeof cases / sizeof cases[0])

static size_t cache_bytes(void)
{
    size_t largest = 0;
    for (int index = 0; index < 8; index++) {
        char path[80];
        size_t kib;
        (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        FILE *file = fopen(path, "r");
        if (file == NULL) break;
        if ((fscanf(file, "%zuK", &kib) == 1) && (kib << 10 > largest)) largest = kib << 10;
        (void)fclose(file);
    }
    return largest ? largest : CACHE_BYTES_DEFAULT;
}

static void bench(const struct gf_element_ops *ops)
{
    static double gb_per_s[CASES][ROUNDS];
    static double ratio[CASES][ROUNDS];
    for (int round = -1; round < ROUNDS; round++) { /* one to warm up */
        double memcpy_gb_per_s = 0;
        for (size_t c = 0; c < CASES; c++) {
            uint64_t begin_ns = gf_clock_monotonic.now_ns(&gf_clock_monotonic);
            cases[c].run(ops);
            uint64_t end_ns = gf_clock_monotonic.now_ns(&gf_clock_monotonic);
            double speed =
                (double)(elem_count * cases[c].bytes_per_elem) / (double)(end_ns - begin_ns);
            if (c == 0) memcpy_gb_per_s = speed;
            if (round < 0) continue;
            gb_per_s[c][round] = speed;
            ratio[c][round] = speed / memcpy_gb_per_s;
        }
    }
    for (size_t c = 0; c < CASES; c++) {
        qsort(gb_per_s[c], ROUNDS, sizeof(double), bench_compare);
        qsort(ratio[c], ROUNDS, sizeof(double), bench_compare);
        printf("%-8s %-26s %8.2f %8.2f   (%.2f .. %.2f)\n", ops->name, cases[c].name,
               gb_per_s[c][ROUNDS / 2], ratio[c][ROUNDS / 2], ratio[c][0], ratio[c][ROUNDS - 1]);
    }
}

static double own_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* What each public call pays to compute with the default mode. */
static void bench_mode(const char *name, uint64_t word)
{
    enum { CALLS = 1000000 };
    const uint64_t before = hostile_get();
    double ns[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        const double begin_ns = own_ns();
        hostile_put(word);
        for (int call = 0; call < CALLS; call++) {
            GF_COMPUTES();
        }
        hostile_put(before);
        ns[round] = (own_ns() - begin_ns) / (double)CALLS;
    }
    qsort(ns, ROUNDS, sizeof(double), bench_compare);
    printf("a call's look at the mode, %-20s %6.2f ns   (%.2f .. %.2f)\n", name, ns[ROUNDS / 2],
           ns[0], ns[ROUNDS - 1]);
}

int main(int argc, char **argv)
{
    size_t cache = cache_bytes();
    size_t bytes = cache + cache / 4;
    bytes &= ~(size_t)4095;
    elem_count = bytes / 4;
    for (int i = 0; i < AREAS; i++) {
        area[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (area[i] == MAP_FAILED) {
            perror("bench_ops: mmap");
            return 1;
        }
        for (uint64_t e = 0; e < elem_count; e++)
            ((float *)(void *)area[i])[e] = (i < E) ? (float)(e % 16) / 32 - 0.25f : 0;
    }
    bench_mode("the default one", hostile_get());
    bench_mode("a hostile one", HOSTILE_WORD);
    printf("largest cache %zu MiB, %d arrays of %zu MiB, 1 thread, medians of %d rounds (least .. "
           "most)\n",
           cache >> 20, AREAS, bytes >> 20, ROUNDS);
    printf("%-8s %-26s %8s %8s\n", "version", "op", "GB/s", "/memcpy");
    for (uint32_t v = 0; v < gf_element_ops_variant_count; v++) {
        const struct gf_element_ops *ops = gf_element_ops_variants[v];
        if ((argc > 1) && (strcmp(argv[1], ops->name) != 0)) continue;
        if (gf_element_ops_supported(gf_element_ops_variants[v]))
            bench(ops);
        else
            printf("%-8s skipped: this CPU lacks it\n", ops->name);
    }
    if (met.bad_count != 0) {
        fprintf(stderr, "bench_ops: %llu results are not finite\n",
                (unsigned long long)met.bad_count);
        return 1;
    }
    return 0;
}
