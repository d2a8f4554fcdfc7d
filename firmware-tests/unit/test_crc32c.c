/* The checksum behind messages: that CRC32C is CRC32C. That no flipped bit gets into a sum: the
 * soak's jobs. */
#include "firmware-tests/support/suite.h"
#include "ops/element/host/crc32c.h"

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

TEST(hardware_equals_the_definition)
{
    unsigned char bytes[300];
    for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)((i * 2654435761u) >> 11);
    for (size_t from = 0; from < 9; from++) {
        for (size_t size = 0; size <= 280; size++) {
            uint32_t whole = gf_crc32c_plain(0, bytes + from, size);
            assert_int_equal(gf_crc32c(0, bytes + from, size), whole);
            assert_int_equal(gf_crc32c(gf_crc32c(0, bytes + from, size / 3),
                                       bytes + from + size / 3, size - size / 3),
                             whole);
        }
    }
}
