/* config/: files that are wrong, and the line, the value and the remedy that each error names. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/config_file.h"

#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *text;
    int line;
    const char *part;
} wrong[] = {
    {"exchange = {\n wire = \"fp16\";\n wyre = 1;\n};\n", 3,
     "unknown key exchange.wyre; did you mean exchange.wire?"},
    {"exchange = { window = 4; };", 1, "unknown key exchange.window; did you mean link.window?"},
    {"\n\nwindow = 4;", 3, "unknown key window; did you mean link.window?"},
    {"exchnge = { };", 1, "unknown group exchnge; did you mean exchange?"},
    {"tensors = ( );", 1,
     "unknown key tensors; a model has that: it goes to --tensors of gf-check"},
    {"tokens = 1024;\ntensors = ( );", 1, "unknown key tokens; a model has that: it goes to"},
    {"cluster = { };", 1,
     "unknown group cluster; a cluster to plan for has that: it goes to --cluster of gf-plan"},
    {"exchange = { wire = \"fp1\"; };", 1, "allowed is fp32, fp16 or bf16; did you mean fp16?"},
    {"exchange = { algorithm = \"halvign\"; };", 1, "; did you mean halving?"},
    {"exchange = { fuse_bytes = \"4 MB\"; };", 1,
     "= \"4 MB\": allowed is a size from 1 B to 1 GiB; units are B, KiB, MiB, GiB and TiB, or K, "
     "M, G and T"},
    {"exchange = { timeout = \"4 sec\"; };", 1,
     "; units are ns, us, ms, s, min and h; a number alone is seconds"},
    {"bananas = { split = 1; };", 1, "unknown group bananas"},
    {"link = { bananas = 1; };", 1, "unknown key link.bananas"},
    {"\nlink = 4;", 2, "link is a whole number: allowed is a group, link = { .. };"},
    {"link = ( );", 1, "link is a list: allowed is a group"},
    {"link = {\n window = 4;\n window = 5;\n};", 3,
     "duplicate setting name: window stands in line 2, too"},
    {"link = { window = 4; };\nlink = { idle = \"spin\"; };", 2,
     "duplicate setting name: link stands in line 1, too"},
    {"link = {\n window = ;\n};", 2, "syntax error: window has no value"},
    {"link = { window = 4;", 2, "syntax error: the { of line 1 has no }"},
    {"link = {\n idle = spin;\n};", 2,
     "syntax error: spin is not in quotes: write idle = \"spin\";"},
    {"link.idle = \"spin\";", 1,
     "a key has no dot: for link.key = value; write link = { key = value; };"},
    {"exchange = {\n wire = \"fp16\"; /* { */\n\nlink = { idle = \"spin\"; };\n", 6,
     "syntax error: the { of line 1 has no }: is one missing"},
    {"link = { };\n};", 2, "syntax error: this } has no { before it"},
    {"link = { window 4; };", 1, "syntax error: after window a = is missing"},
    {"link = { 4 = window; };", 1, "syntax error: 4 stands where a key should"},
    {"link = { a = [ 1, 2;\n };", 1, "syntax error: the [ of line 1 has no ]"},
    {"tensors = ( { a = b; }, 1 );", 1, "syntax error: b is not in quotes"},
    /* libconfig would read 4 */
    {"link = {\n\n window = 4294967300;\n};", 3, "does not fit 32 bits"},
    {"job = { id = 9223372036854775808L; };", 1, "does not fit 64 bits"},
    {"job = { id = 0x1FFFFFFFF; };", 1, "does not fit 32 bits"},
    {"\n@include \"/etc/passwd\"\n", 2, "@include is not allowed"},
    {"/* 1 */\n/* no end\n link = { };", 2, "the comment that begins here has no end"},
    {"\n\nlink = { devices = \"lo;\n };", 3, "the string that begins here has no end"},
    {"link = { devices = \"lo\\x00,eth0\"; };", 1, "\\x00"},
    {"a = ((((((((( 1 )))))))));", 1, "more than 8 brackets deep"},
    {"\xef\xbb\xbflink = { };\n", 1, "begins with a byte order mark: save it as UTF-8 without one"},
    {"# all of it\rlink = { window = 4; };\r", 1, "a carriage return stands without a line feed"},
    {"# all of it\r\rlink = { };\n", 1, "a carriage return stands without a line feed"},
    {" \n\t\n", 0, "is empty"},
    {"", 0, "is empty"},
    {"job = {\n world = 4;\n rank = 4;\n};", 3,
     "job.rank = 4: allowed is a rank below job.world = 4"},
    {"job = {\n world = 4; world_max = 6;\n rank = 6;\n};", 3,
     "job.rank = 6: allowed is a rank below job.world_max"},
    {"job = {\n world = 4;\n world_max = 3;\n};", 3,
     "job.world_max = 3: allowed is 0 or at least job.world = 4"},
    {"exchange = {\n deterministic = true;\n algorithm = \"ring\";\n};", 3,
     "exchange.algorithm = ring"},
    {"rendezvous = {\n address = \"10.0.0.1:7117\";\n};", 2, "beyond loopback allowed only with"},
    {"rendezvous = { address = \"127.0.0.1\"; };", 1, "allowed is host:port or IP:port"},
    {"rendezvous = { address = \"localhost:\"; };", 1, "allowed is host:port"},
    {"rendezvous = { address = \"localhost:99999\"; };", 1, "allowed is host:port"},
    {"rendezvous = { address = \":7117\"; };", 1, "allowed is host:port"},
    {"exchange = { fuse_bytes = \"99999999999999999999 B\"; };", 1, "allowed is a size"},
    {"exchange = { fuse_bytes = \"17179869184 TiB\"; };", 1, "allowed is a size"}, /* 2^34 * 2^40 */
    {"exchange = { timeout = \"30 \"; };", 1, "allowed is a time from 10 ms to 24 h"},
    {"exchange = { timeout = \"-1 s\"; };", 1, "allowed is a time"},
    {"exchange = { timeout = 1e300; };", 1, "allowed is a time"},
    /* 1 as a float */
    {"optimizer = { momentum = 0.99999999999; };", 1, "allowed is a number from 0.0 to below 1.0"},
};

TEST(what_is_wrong_is_refused_by_line)
{
    for (size_t i = 0; i < LENGTH(wrong); i++)
        file_refused(wrong[i].text, wrong[i].line, wrong[i].part);
}

TEST(long_names_and_values_stay_in_one_error)
{
    static char text[4000];
    memcpy(text, "link = { ", 9);
    memset(text + 9, 'w', 3000);
    memcpy(text + 3009, " = 1; };", 9);
    file_refused(text, 1, "unknown key link.wwww");
    memcpy(text, "link = { devices = \"", 20);
    memset(text + 20, 'w', 3000);
    memcpy(text + 3020, "\"; };", 6);
    file_refused(text, 1, "link.devices = \"wwww");
}

TEST(bad_files_are_refused)
{
    static char big[GF_CONFIG_FILE_BYTES_MAX + 1];
    static const unsigned char binary[] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0};
    struct gf_config config;
    (void)unlink(file_path);
    assert_int_equal(gf_config_load(NULL, &config, file_error), GF_ERR_PARAM);
    assert_string_equal(file_error, "gf_config_load: there is no path");
    assert_int_equal(gf_config_load(file_path, &config, file_error), GF_ERR_CONFIG);
    file_error_check(0, "cannot be opened: No such file");
    assert_int_equal(mkdir(file_path, 0700), 0);
    assert_int_equal(gf_config_load(file_path, &config, file_error), GF_ERR_CONFIG);
    file_error_check(0, "is a directory");
    assert_int_equal(rmdir(file_path), 0);
    assert_int_equal(mkfifo(file_path, 0600), 0); /* nobody writes: reading it would never end */
    assert_int_equal(gf_config_load(file_path, &config, file_error), GF_ERR_CONFIG);
    file_error_check(0, "is not a regular file");
    assert_int_equal(unlink(file_path), 0);
    file_write(binary, sizeof binary);
    assert_int_equal(gf_config_load(file_path, &config, file_error), GF_ERR_CONFIG);
    file_error_check(1, "is not a text file");
    file_write("# a\nlink = { };\n\0", 17);
    assert_int_equal(gf_config_load(file_path, &config, file_error), GF_ERR_CONFIG);
    file_error_check(3, "it holds a byte 0x00");
    file_write("", 0);
    assert_int_equal(truncate(file_path, 100 << 20), 0);
    assert_int_equal(gf_config_load(file_path, &config, file_error), GF_ERR_CONFIG);
    file_error_check(0, "has 104857600 bytes; allowed are at most 1048576");
    memset(big, '#', sizeof big);
    file_write(big, sizeof big);
    assert_int_equal(gf_config_load(file_path, &config, file_error), GF_ERR_CONFIG);
    file_error_check(0, "has 1048577 bytes");
    file_write(big, sizeof big - 1); /* a comment of exactly the size that is allowed */
    assert_int_equal(gf_config_load(file_path, &config, file_error), GF_OK);
}

/* libconfig reads under a locale of its own and then leaves the thread with the global one. */
TEST(the_locale_of_the_thread_stays)
{
    static const char *const texts[] = {"link: { window = 4 };", "link: { window = 99 };",
                                        "link: { window = "};
    struct gf_config config;
    locale_t own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    assert_true(own != (locale_t)0);
    locale_t before = uselocale(own);
    for (size_t i = 0; i < LENGTH(texts); i++) {
        (void)file_load(texts[i], &config);
        locale_t after = uselocale(own);
        if (after != own) fail_msg("after \"%s\" the thread has another locale", texts[i]);
    }
    (void)uselocale(before);
    freelocale(own);
}

TEST_AROUND(file_folder_make, file_folder_remove)
