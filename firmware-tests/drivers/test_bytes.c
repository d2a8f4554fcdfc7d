/* Texts from elsewhere: letters of UTF-8 stay, a terminal is given nothing that it acts on. */
#include "firmware-tests/support/suite.h"
#include "drivers/base/bytes.h"
#include "tools/common/tool_output.h"

static const struct {
    const char *name, *in, *field, *plain;
} rows[] = {
    {"ascii", "conv1.weight", "conv1.weight", "conv1.weight"},
    {"two_bytes", "\xc3\xa4\xc3\x9f", "\xc3\xa4\xc3\x9f", "\xc3\xa4\xc3\x9f"},
    {"three_bytes", "\xe5\xb1\x82.w", "\xe5\xb1\x82.w", "\xe5\xb1\x82.w"},
    {"four_bytes", "\xf0\x9f\x92\xa1", "\xf0\x9f\x92\xa1", "\xf0\x9f\x92\xa1"},
    {"last_letter", "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
    {"past_the_last_letter", "\xf4\x90\x80\x80", "????", "\\xf4\\x90\\x80\\x80"},
    {"latin_1", "a\xe4\xf6", "a??", "a\\xe4\\xf6"},
    {"cut_letter", "\xe5\xb1", "??", "\\xe5\\xb1"},
    {"cut_letter_before_others", "\xe5\xb1z", "??z", "\\xe5\\xb1z"},
    {"longer_than_need_be", "\xc0\xaf\xe0\x80\xaf\xf0\x80\x80\xaf", "?????????",
     "\\xc0\\xaf\\xe0\\x80\\xaf\\xf0\\x80\\x80\\xaf"},
    {"half_of_a_pair", "\xed\xa0\x80", "???", "\\xed\\xa0\\x80"},
    {"control", "a\x1b[1m\n\x7f", "a?[1m??", "a\\x1b[1m\\x0a\\x7f"},
    {"control_of_two_bytes",
     "\xc2\x9b"
     "1m",
     "??1m", "\\xc2\\x9b1m"},
};

TEST(letters_stay_and_the_rest_is_marked)
{
    for (size_t r = 0; r < LENGTH(rows); r++) {
        char field[16] = "";
        char text[16];
        char plain[64];
        memcpy(field, rows[r].in, strlen(rows[r].in));
        gf_get_text(&(struct gf_get){.at = (const unsigned char *)field, .left = sizeof field},
                    text, sizeof field);
        tool_plain_text(rows[r].in, plain, sizeof plain);
        if ((strcmp(text, rows[r].field) != 0) || (strcmp(plain, rows[r].plain) != 0))
            fail_msg("%s: \"%s\" and \"%s\"", rows[r].name, text, plain);
    }
}

TEST(a_text_is_cut_between_letters)
{
    char text[5];
    const unsigned char field[4] = {'a', 'b', 0xc3, 0xa4}; /* as wide as it is, without an end */
    tool_plain_text("abc\xc3\xa4", text, sizeof text);
    assert_string_equal(text, "abc");
    tool_plain_text("ab\xff", text, sizeof text);
    assert_string_equal(text, "ab");
    gf_get_text(&(struct gf_get){.at = field, .left = sizeof field}, text, sizeof field);
    assert_string_equal(text, "ab?");
}
