/* The checksum of frames and messages: that CRC32C is CRC32C. */
#include "drivers/checksum.h"
#include "firmware-tests/support/suite.h"

/* The definition, a bit at a time. */
static uint32_t defined(uint32_t crc, const unsigned char *bytes, size_t size_bytes)
{
    crc = ~crc;
    for (size_t i = 0; i < size_bytes; i++) {
        crc ^= bytes[i];
        for (unsigned bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (UINT32_C(0x82f63b78) & (0u - (crc & 1u)));
    }
    return ~crc;
}

TEST(crc32c_is_that_of_rfc_3720)
{
    unsigned char bytes[32];
    assert_int_equal(gf_crc32c(0, "123456789", 9), 0xe3069283u);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(gf_crc32c(0, bytes, sizeof bytes), 0x8a9136aau);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(gf_crc32c(0, bytes, sizeof bytes), 0x62a8ab43u);
    for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)i;
    assert_int_equal(gf_crc32c(0, bytes, sizeof bytes), 0x46dd794eu);
}

TEST(instructions_and_table_equal_the_definition)
{
    static const size_t large[] = {511,   512,   513,   767,   768,   4095,  4096,
                                   12287, 12288, 12289, 24576, 24583, 100000};
    static unsigned char bytes[100016];
    for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)((i * 2654435761u) >> 11);
    for (size_t from = 0; from < 9; from++) {
        for (size_t size = 0; size <= 280; size++) {
            uint32_t whole = defined(0, bytes + from, size);
            assert_int_equal(gf_crc32c_plain(0, bytes + from, size), whole);
            assert_int_equal(gf_crc32c_words(0, bytes + from, size), whole);
            assert_int_equal(gf_crc32c(0, bytes + from, size), whole);
            assert_int_equal(gf_crc32c(gf_crc32c(0, bytes + from, size / 3),
                                       bytes + from + size / 3, size - size / 3),
                             whole);
        }
        for (size_t i = 0; i < LENGTH(large); i++) {
            uint32_t whole = defined(7, bytes + from, large[i]);
            assert_int_equal(gf_crc32c_plain(7, bytes + from, large[i]), whole);
            assert_int_equal(gf_crc32c_words(7, bytes + from, large[i]), whole);
            assert_int_equal(gf_crc32c(7, bytes + from, large[i]), whole);
        }
    }
}
