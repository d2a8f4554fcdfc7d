/* The reflected polynomial 0x82f63b78; all ones go in, and the result is inverted.
 *
 * Where the CPU multiplies polynomials eight at a time (VPCLMULQDQ with AVX-512), large data is
 * folded: 256 bytes are taken as a polynomial, and the 256 bytes after them are added to its
 * remainder, moved there. What is left in the end has the checksum of all the data. That is two
 * to three times as fast as the way below.
 *
 * The CRC instruction takes a word each cycle and gives its result three cycles later. So large
 * data is read in three stripes at once, and the three results are joined: the remainder of a
 * stripe is multiplied by x to the number of bits that follow it, modulo the polynomial, and added
 * to that of the next stripe. */
#include "drivers/checksum.h"

#include <stdbool.h>
#include <string.h>

#if defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define POLYNOMIAL UINT32_C(0x82f63b78)

uint32_t gf_crc32c_plain(uint32_t crc, const void *data, size_t size_bytes)
{
    /* What four bits of the register become when they are shifted out. */
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                       0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                       0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const unsigned char *bytes = data;
    crc = ~crc;
    for (size_t i = 0; i < size_bytes; i++) {
        crc ^= bytes[i];
        crc = (crc >> 4) ^ table[crc & 15];
        crc = (crc >> 4) ^ table[crc & 15];
    }
    return ~crc;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define FOLD_BYTES 256u
#define FOLD_LOW 0xdcb17aa4  /* x to the power of 8 * FOLD_BYTES + 31, .. */
#define FOLD_HIGH 0xb9e02b86 /* .. - 33 */

static bool has_fold(void)
{
    return __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f");
}

#define FOLD_TARGET __attribute__((target("avx512f,vpclmulqdq")))
FOLD_TARGET static inline __m512i fold_on(__m512i sum, __m512i by, const unsigned char *bytes)
{
    __m512i low = _mm512_clmulepi64_epi128(sum, by, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(sum, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, _mm512_loadu_si512(bytes), 0x96); /* all three */
}

/* `count` times FOLD_BYTES, at least once. What is left begins with the register's bits, so the
 * register is 0 before it. The four have names, for an array of them would be kept in memory. */
FOLD_TARGET static void fold(uint32_t crc, const unsigned char *bytes, size_t count,
                             unsigned char left_out[FOLD_BYTES])
{
    const __m512i by = _mm512_set_epi64(FOLD_HIGH, FOLD_LOW, FOLD_HIGH, FOLD_LOW, FOLD_HIGH,
                                        FOLD_LOW, FOLD_HIGH, FOLD_LOW);
    __m512i first = _mm512_xor_si512(_mm512_loadu_si512(bytes),
                                     _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    __m512i second = _mm512_loadu_si512(bytes + 64);
    __m512i third = _mm512_loadu_si512(bytes + 128);
    __m512i fourth = _mm512_loadu_si512(bytes + 192);
    while (--count > 0) {
        bytes += FOLD_BYTES;
        first = fold_on(first, by, bytes);
        second = fold_on(second, by, bytes + 64);
        third = fold_on(third, by, bytes + 128);
        fourth = fold_on(fourth, by, bytes + 192);
    }
    _mm512_storeu_si512(left_out, first);
    _mm512_storeu_si512(left_out + 64, second);
    _mm512_storeu_si512(left_out + 128, third);
    _mm512_storeu_si512(left_out + 192, fourth);
}

#define CRC_TARGET __attribute__((target("sse4.2")))
#define CRC_WORD(crc, word) (uint32_t) __builtin_ia32_crc32di((crc), (word))
#define CRC_BYTE(crc, byte) __builtin_ia32_crc32qi((crc), (byte))
static bool has_crc(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
#define CRC_TARGET __attribute__((target("+crc")))
#define CRC_WORD(crc, word) __crc32cd((crc), (word))
#define CRC_BYTE(crc, byte) __crc32cb((crc), (byte))
static bool has_crc(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
#endif

#if defined(CRC_TARGET)
#define STRIPE_BYTES 4096u
#define STRIPE_FACTOR UINT32_C(0x35d73a62) /* x to the power of 8 * STRIPE_BYTES */

/* The register after a stripe of zeroes: times STRIPE_FACTOR. */
static uint32_t stripe_skip(uint32_t crc)
{
    uint32_t product = 0;
    for (uint32_t bit = UINT32_C(1) << 31; bit != 0; bit >>= 1) {
        if ((STRIPE_FACTOR & bit) != 0) product ^= crc;
        crc = (crc >> 1) ^ (POLYNOMIAL & (0u - (crc & 1u)));
    }
    return product;
}

static uint64_t word_at(const unsigned char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

CRC_TARGET static uint32_t crc32c_hardware(uint32_t crc, const void *data, size_t size_bytes)
{
    const unsigned char *bytes = data;
    crc = ~crc;
    for (; size_bytes >= 3 * STRIPE_BYTES;
         bytes += 3 * STRIPE_BYTES, size_bytes -= 3 * STRIPE_BYTES) {
        uint32_t second = 0;
        uint32_t third = 0;
        for (size_t at = 0; at < STRIPE_BYTES; at += sizeof(uint64_t)) {
            crc = CRC_WORD(crc, word_at(bytes + at));
            second = CRC_WORD(second, word_at(bytes + STRIPE_BYTES + at));
            third = CRC_WORD(third, word_at(bytes + 2 * STRIPE_BYTES + at));
        }
        crc = stripe_skip(stripe_skip(crc) ^ second) ^ third;
    }
    for (; size_bytes >= sizeof(uint64_t);
         bytes += sizeof(uint64_t), size_bytes -= sizeof(uint64_t))
        crc = CRC_WORD(crc, word_at(bytes));
    for (; size_bytes > 0; bytes++, size_bytes--) crc = CRC_BYTE(crc, *bytes);
    return ~crc;
}
#endif

uint32_t gf_crc32c_words(uint32_t crc, const void *data, size_t size_bytes)
{
#if defined(CRC_TARGET)
    if (has_crc()) return crc32c_hardware(crc, data, size_bytes);
#endif
    return gf_crc32c_plain(crc, data, size_bytes);
}

uint32_t gf_crc32c(uint32_t crc, const void *data, size_t size_bytes)
{
#if defined(FOLD_BYTES)
    if ((size_bytes >= 2 * FOLD_BYTES) && has_fold()) {
        const size_t folded_bytes = size_bytes / FOLD_BYTES * FOLD_BYTES;
        unsigned char left[FOLD_BYTES];
        fold(~crc, data, size_bytes / FOLD_BYTES, left);
        crc = gf_crc32c_words(UINT32_MAX, left, sizeof left);
        data = (const unsigned char *)data + folded_bytes;
        size_bytes -= folded_bytes;
    }
#endif
    return gf_crc32c_words(crc, data, size_bytes);
}
