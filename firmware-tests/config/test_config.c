/* config/: files to struct gf_config and back, and everything that is wrong with them. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/config_file.h"

#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

static gf_status load(const char *text, struct gf_config *config_out)
{
    file_write(text, strlen(text));
    file_error[0] = '\0';
    return gf_config_load(file_path, config_out, file_error);
}

static void refused(const char *text, int line, const char *part)
{
    struct gf_config config;
    memset(&config, 0x5a, sizeof config);
    if (load(text, &config) != GF_ERR_CONFIG) fail_msg("not refused: %s", text);
    file_error_check(line, part);
    for (size_t i = 0; i < sizeof config; i++)
        assert_int_equal(((unsigned char *)&config)[i], 0x5a);
}

/* A row for each key: the default, a value that is valid (as in a file, and as it is printed),
 * values that are not. `with` is a second line that the valid value needs. */
static const struct {
    const char *key, *fallback, *good, *printed, *below, *above, *wrong_type, *with;
} keys[] = {
    {"job.world", "0", "4", "4", "-1", "8193", "\"4\"", NULL},
    {"job.world_max", "0", "8", "8", "-1", "8193", "\"8\"", NULL},
    {"job.rank", "0", "3", "3", "-1", "8192", "1.5", NULL},
    {"job.id", "0", "\"0xffffffffffffffff\"", "18446744073709551615", "-1",
     "\"18446744073709551616\"", "true", NULL},
    {"job.ignore_environment", "false", "true", "true", NULL, NULL, "1",
     "job:{world=2;ignore_environment=true};"},
    {"job.elastic", "false", "true", "true", NULL, NULL, "1", NULL},
    {"rendezvous.address", "127.0.0.1:7117", "\"127.0.0.1:80\"", "127.0.0.1:80", "\"127.0.0.1:0\"",
     "\"127.0.0.1:65536\"", "7117", NULL},
    {"rendezvous.bind", "", "\"127.0.0.1\"", "127.0.0.1", "\"127.0.0\"", "\"127.0.0.256\"", "127",
     NULL},
    {"rendezvous.join_timeout", "1 min", "\"200 ms\"", "200 ms", "0", "86401", "true", NULL},
    {"rendezvous.keepalive", "5 s", "0.25", "250 ms", "-0.1", "3600.5", "[5]", NULL},
    {"rendezvous.key_file", "", "\"/k \\\\ \\\"x\\\"\"", "/k \\ \"x\"", "\"\\n\"", NULL, "false",
     NULL},
    {"rendezvous.insecure", "false", "true", "true", NULL, NULL, "\"true\"", NULL},
    {"rendezvous.ports", "26000-31999", "\"3000-4000\"", "3000-4000", "\"1-4000\"",
     "\"3000-65536\"", "3000", NULL},
    {"rendezvous.rejoin", "false", "true", "true", NULL, NULL, "1", NULL},
    {"rendezvous.coordinator", "rank0", "\"separate\"", "separate", "\"\"", "\"rank1\"", "0", NULL},
    {"link.driver", "auto", "\"ucx\"", "ucx", "\"\"", "\"Tcp\"", "1", NULL},
    {"link.transports", "", "\"rc,tcp\"", "rc,tcp", "\",\"", "\"rc tcp\"", "( \"tcp\" )", NULL},
    {"link.devices", "", "\"mlx5_0:1\"", "mlx5_0:1", "\"a,,b\"", "\"a b\"", "0", NULL},
    {"link.streams", "1", "8", "8", "0", "9", "true", NULL},
    {"link.checksum", "false", "true", "true", NULL, NULL, "0", NULL},
    {"link.window", "8", "32", "32", "0", "33", "8.0", NULL},
    {"link.idle", "auto", "\"sleep\"", "sleep", "\"\"", "\"Sleep\"", "1", NULL},
    {"link.trusted_fabric", "false", "true", "true", NULL, NULL, "1", NULL},
    {"link.private_memory", "false", "true", "true", NULL, NULL, "0", NULL},
    {"link.huge_pages", "false", "true", "true", NULL, NULL, "{ }", NULL},
    {"device.driver", "host", "\"cuda\"", "cuda", "\"hos\"", "\"hosts\"", "true", NULL},
    {"device.library", "libcuda.so.1", "\"/opt/l.so\"", "/opt/l.so", "\"\\x01\"", NULL, "1", NULL},
    {"device.ordinal", "auto", "255", "255", "-1", "256", "1.5", NULL},
    {"device.shared", "false", "true", "true", NULL, NULL, "1", NULL},
    {"device.multiprocessors", "20", "132", "132", "0", "1025", "20.5", NULL},
    {"device.engine_bytes", "256 KiB", "\"1 MiB\"", "1 MiB", "0", "\"2 TiB\"", "0.5", NULL},
    {"exchange.wire", "fp32", "\"bf16\"", "bf16", "\"fp8\"", "\"fp321\"", "32", NULL},
    {"exchange.algorithm", "auto", "\"hierarchy\"", "hierarchy", "\"rin\"", "\"rings\"", "false",
     NULL},
    {"exchange.fuse_bytes", "4 MiB", "\"1 GiB\"", "1 GiB", "0", "1073741825", "1.5", NULL},
    {"exchange.cut_bytes", "16 MiB", "\"64 GiB\"", "64 GiB", "4095", "68719476737L", "1.5", NULL},
    {"exchange.slice_bytes", "256 KiB", "4096", "4 KiB", "4032", "\"17 MiB\"", "true", NULL},
    {"exchange.buffers_active", "4", "16", "16", "0", "17", "\"4\"", NULL},
    {"exchange.deterministic", "false", "true", "true", NULL, NULL, "\"yes\"", NULL},
    {"exchange.average", "sum", "\"samples\"", "samples", "\"mean\"", "\"SUM\"", "0", NULL},
    {"exchange.pre_scale", "1.0", "0.25", "0.25", "0", "8589934592.0", "\"0.25\"", NULL},
    {"exchange.timeout", "30 s", "\"1.5 min\"", "90 s", "\"9 ms\"", "\"25 h\"", "false", NULL},
    {"exchange.patience", "5 min", "\"1.5 h\"", "90 min", "\"9 ms\"", "\"25 h\"", "false", NULL},
    {"exchange.doubling_max_bytes", "8 KiB", "\"1 B\"", "1 B", "0", "\"2 GiB\"", "0.5", NULL},
    {"exchange.halving_max_bytes", "512 KiB", "\"1 MiB\"", "1 MiB", "0", "\"2G\"", "[1]", NULL},
    {"exchange.user_bytes", "0 B", "\"64 GiB\"", "64 GiB", "-1", "68719476737L", "1.0", NULL},
    {"optimizer.kind", "none", "\"lars\"", "lars", "\"adam\"", "\"sgd \"", "1", NULL},
    {"optimizer.momentum", "0.0", "0.9", "0.9", "-0.1", "1", "\"0.9\"", NULL},
    {"optimizer.weight_decay", "0.0", "1e-4", "0.0001", "-1e-9", "1.001", "true", NULL},
    {"optimizer.nesterov", "false", "true", "true", NULL, NULL, "1",
     "optimizer: { nesterov = true; momentum = 0.5; };"},
    {"optimizer.lars_eta", "0.001", "1", "1.0", "0", "2", "\"1\"", NULL},
    {"optimizer.lars_epsilon", "1e-09", "1e-8", "1e-08", "0.0", "1.5", "[1.0]", NULL},
    {"optimizer.adam_beta1", "0.9", "0.5", "0.5", "0", "1", "\"1\"", NULL},
    {"optimizer.adam_beta2", "0.999", "0.95", "0.95", "0.0", "1.0", "true", NULL},
    {"optimizer.adam_epsilon", "1e-08", "1e-6", "1e-06", "0.0", "1.5", "[1.0]", NULL},
    {"optimizer.clip_norm", "0.0", "2", "2.0", "-1", "1e10", "\"2\"", NULL},
    {"optimizer.half_weights", "fp32", "\"fp16\"", "fp16", "\"half\"", "\"fp64\"", "16",
     "optimizer: { half_weights = \"fp16\"; kind = \"sgd\"; };"},
    {"rate.kind", "constant", "\"step\"", "step", "\"linear\"", "\"stepp\"", "1", NULL},
    {"rate.base", "0.0", "0.25", "0.25", "-0.1", "10001.0", "\"0.1\"", NULL},
    {"rate.batch", "0", "8192", "8192", "-1", "4294967296L", "1.5", NULL},
    {"rate.base_batch", "256", "64", "64", "0", "4294967296L", "\"64\"", NULL},
    {"rate.root_scaling", "false", "true", "true", NULL, NULL, "1", NULL},
    {"rate.warmup_steps", "0", "100", "100", "-1", NULL, "0.5", NULL},
    {"rate.steps", "0", "100", "100", "-1", NULL, "0.5", NULL},
    {"rate.end", "0.0", "0.25", "0.25", "-0.1", "10001.0", "true", NULL},
    {"rate.power", "1.0", "0.5", "0.5", "0.0", "1001.0", "\"2\"", NULL},
    {"rate.every", "0", "30", "30", "-1", NULL, "0.5", NULL},
    {"rate.factor", "0.1", "0.5", "0.5", "0.0", "1.5", "\"0.1\"", NULL},
    {"sparse.enabled", "false", "true", "true", NULL, NULL, "\"on\"", NULL},
    {"sparse.chunk_elems", "32768", "4096", "4096", "0", "16777217", "\"4 KiB\"", NULL},
    {"sparse.keep_share", "0.15", "1", "1.0", "0", "1.01", "\"15 %\"", NULL},
    {"sparse.warmup_steps", "0", "5000000000L", "5000000000", "-1", NULL, "1.0", NULL},
    {"sparse.ramp_steps", "0", "100", "100", "-1", NULL, "true", NULL},
    {"sparse.momentum", "reduced", "\"local\"", "local", "\"global\"", "\"\"", "0.9", NULL},
    {"loss_scale.enabled", "false", "true", "true", NULL, NULL, "1", NULL},
    {"loss_scale.initial", "65536.0", "1024", "1024.0", "0", "3", "\"1024\"", NULL},
    {"loss_scale.growth_interval", "2000", "1000000", "1000000", "0", "1000001", "0.5", NULL},
    {"loss_scale.factor", "2.0", "65536", "65536.0", "1", "131072", "true", NULL},
    {"loss_scale.hysteresis", "1", "1000000", "1000000", "0", "1000001", "\"1\"", NULL},
    {"loss_scale.floor", "1.0", "0.5", "0.5", "0", "1e30", "[1]", NULL},
    {"trace.records", "1024", "1", "1", "0", "1048577", "1.0", NULL},
};
#define KEY_COUNT (LENGTH(keys))

static const char *value_of(const char *key, const struct gf_config *config)
{
    static char value[GF_SETTING_VALUE_BYTES];
    return gf_setting_value(gf_setting_find(key), config, value);
}

/* "group = {\n name = value;\n};" with the value in line 2. */
static const char *key_text(const char *key, const char *value)
{
    static char text[256];
    const char *dot = strchr(key, '.');
    (void)snprintf(text, sizeof text, "%.*s = {\n    %s = %s;\n};\n", (int)(dot - key), key,
                   dot + 1, value);
    return text;
}

TEST(every_key_has_its_row_and_its_default)
{
    struct gf_config config;
    assert_int_equal(KEY_COUNT, gf_setting_count);
    assert_int_equal(load("# all defaults", &config), GF_OK); /* not even a line end */
    for (size_t i = 0; i < KEY_COUNT; i++) {
        assert_non_null(gf_setting_find(keys[i].key));
        assert_string_equal(value_of(keys[i].key, &config), keys[i].fallback);
    }
}

TEST(every_key_takes_what_is_valid)
{
    for (size_t i = 0; i < KEY_COUNT; i++) {
        const char *text = keys[i].with ? keys[i].with : key_text(keys[i].key, keys[i].good);
        struct gf_config config;
        if (load(text, &config) != GF_OK) fail_msg("%s", file_error);
        assert_string_equal(value_of(keys[i].key, &config), keys[i].printed);
        assert_string_not_equal(keys[i].printed, keys[i].fallback);
    }
}

TEST(every_key_refuses_what_is_not)
{
    for (size_t i = 0; i < KEY_COUNT; i++) {
        const char *bad[] = {keys[i].below, keys[i].above};
        char part[64];
        for (size_t j = 0; j < 2; j++) {
            if (bad[j] == NULL) continue;
            (void)snprintf(part, sizeof part, "%s = ", keys[i].key);
            refused(key_text(keys[i].key, bad[j]), 2, part);
        }
        (void)snprintf(part, sizeof part, "%s is a", keys[i].key);
        refused(key_text(keys[i].key, keys[i].wrong_type), 2, part);
        assert_non_null(strstr(file_error, ": allowed is "));
    }
}

static void print_reload_check(const struct gf_config *config)
{
    struct gf_config first;
    struct gf_config again;
    FILE *out = fopen(file_path, "w");
    assert_non_null(out);
    assert_int_equal(gf_config_effective(config, &first, file_error), GF_OK);
    gf_config_print(config, NULL, out);
    assert_int_equal(fclose(out), 0);
    if (gf_config_load(file_path, &again, file_error) != GF_OK) fail_msg("%s", file_error);
    assert_memory_equal(&first, &again, sizeof again);
}

TEST(what_is_printed_loads_to_the_same)
{
    struct gf_config config;
    for (size_t i = 0; i < KEY_COUNT; i++) {
        const char *text = keys[i].with ? keys[i].with : key_text(keys[i].key, keys[i].good);
        assert_int_equal(load(text, &config), GF_OK);
        print_reload_check(&config);
    }
    assert_int_equal(
        load("rate: { steps = 9223372036854775807L; }; optimizer: { momentum = 0.333333333; };"
             "exchange: { timeout = \"12345678 ns\"; fuse_bytes = 1048577; };",
             &config),
        GF_OK);
    print_reload_check(&config);
}

TEST(what_the_file_sets_is_marked)
{
    /* 8 is the default too */
    static const char text[] = "link = { window = 8; };\nexchange: { wire = \"bf16\"; };\n";
    static char printed[16384];
    struct gf_config config;
    FILE *out = tmpfile();
    unsigned marks = 0;
    assert_non_null(out);
    assert_int_equal(load(text, &config), GF_OK);
    gf_config_print(&config, file_path, out);
    rewind(out);
    printed[fread(printed, 1, sizeof printed - 1, out)] = '\0';
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(printed, "    window = 8;  # * a whole number from 1 to 32\n"));
    assert_non_null(strstr(printed, "    wire = \"bf16\";  # * fp32, fp16 or bf16\n"));
    for (const char *at = printed; (at = strstr(at, "# * ")) != NULL; at++) marks++;
    assert_int_equal(marks, 2);
}

TEST(one_key_can_be_set_over_a_loaded_file)
{
    static const char *const good[] = {"exchange.wire=fp16",    "exchange.fuse_bytes=64K",
                                       "exchange.timeout=0.5",  "sparse.enabled=true",
                                       "optimizer.momentum=.9", "rendezvous.address=[::1]:5"};
    static const char *const together[] = {"rate.kind=polynomial", "rate.steps=100"};
    static struct gf_config config;
    static struct gf_config before;
    assert_int_equal(load("link = { window = 4; };", &config), GF_OK);
    assert_int_equal(gf_config_set_all(&config, good, LENGTH(good), "--set", file_error), GF_OK);
    /* a device has another default, and may still be set */
    assert_int_equal(config.exchange.slice_bytes, 0);
    assert_true((config.exchange.wire == GF_TYPE_F16) && (config.exchange.fuse_bytes == 65536));
    assert_true((config.exchange.timeout_ns == 500000000) && config.sparse.enabled);
    assert_true((config.optimizer.momentum == 0.9f) && (config.link.window == 4));
    assert_string_equal(config.rendezvous.address, "[::1]:5");
    assert_int_equal(gf_config_set(&config, "rendezvous.address", "", "--address", file_error),
                     GF_OK);
    assert_string_equal(config.rendezvous.address, "");
    before = config;
    assert_int_equal(gf_config_set(&config, "exchange.wire", "fp8", "--wire", file_error),
                     GF_ERR_CONFIG);
    assert_string_equal(file_error,
                        "--wire: exchange.wire = \"fp8\": allowed is fp32, fp16 or bf16");
    assert_int_equal(gf_config_set(&config, "exchange.wires", "fp16", "--wire", file_error),
                     GF_ERR_CONFIG);
    assert_string_equal(file_error,
                        "--wire: unknown key exchange.wires; did you mean exchange.wire?");
    assert_int_equal(
        gf_config_set(&config, "job.ignore_environment", "true", "--alone", file_error),
        GF_ERR_CONFIG);
    assert_string_equal(
        file_error, "--alone: job.ignore_environment = true: allowed only where job.world is set");
    for (size_t i = 0; i < 3; i++) {
        static const char *const bad[] = {" 0.5", "0x1p-1", "nan"};
        assert_int_equal(gf_config_set(&config, "optimizer.momentum", bad[i], "x", file_error),
                         GF_ERR_CONFIG);
        assert_int_equal(gf_config_set(&config, "exchange.timeout", bad[i], "x", file_error),
                         GF_ERR_CONFIG);
    }
    assert_int_equal(gf_config_set_all(&config, together, 1, "--set", file_error), GF_ERR_CONFIG);
    assert_non_null(strstr(file_error, "--set: rate.steps = 0: polynomial and cosine end there"));
    assert_memory_equal(&config, &before, sizeof config);
    assert_int_equal(gf_config_set_all(&config, together, 2, "--set", file_error), GF_OK);
    assert_int_equal(config.rate.step_count, 100);
}

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
    for (size_t i = 0; i < LENGTH(wrong); i++) refused(wrong[i].text, wrong[i].line, wrong[i].part);
}

TEST(long_names_and_values_stay_in_one_error)
{
    static char text[4000];
    memcpy(text, "link = { ", 9);
    memset(text + 9, 'w', 3000);
    memcpy(text + 3009, " = 1; };", 9);
    refused(text, 1, "unknown key link.wwww");
    memcpy(text, "link = { devices = \"", 20);
    memset(text + 20, 'w', 3000);
    memcpy(text + 3020, "\"; };", 6);
    refused(text, 1, "link.devices = \"wwww");
}

TEST(a_number_in_hexadecimal_is_what_it_says)
{
    struct gf_config config;
    assert_int_equal(load("job = { id = 0xFFFFFFFF; };", &config), GF_OK);
    assert_int_equal(config.job.id, 0xFFFFFFFFu);
    assert_int_equal(load("job = { id = 0x123456789ABL; world = 0x10; };", &config), GF_OK);
    assert_true((config.job.id == 0x123456789ABull) && (config.job.world == 16));
}

TEST(a_host_name_becomes_a_number)
{
    struct gf_config config;
    char numeric[GF_TEXT_MAX];
    char why[GF_RESOLVE_WHY_BYTES];
    /* a bare system has no /etc/hosts */
    if (gf_address_resolve("localhost:7200", 0, numeric, why) == GF_OK) {
        assert_int_equal(load("rendezvous = { address = \"localhost:7200\"; };", &config), GF_OK);
        assert_string_equal(config.rendezvous.address, "127.0.0.1:7200");
    }
    assert_int_equal(gf_address_resolve("[::1]:9", 0, numeric, why), GF_OK);
    assert_string_equal(numeric, "[::1]:9");
    /* a broken number is not asked of a name server */
    assert_int_equal(gf_address_resolve("300.1.1.1:9", 9999, numeric, why), GF_ERR_CONFIG);
    assert_int_equal(gf_address_resolve("::1:9", 9999, numeric, why), GF_ERR_CONFIG);
    assert_int_equal(gf_address_resolve("a/b:9", 9999, numeric, why), GF_ERR_CONFIG);
}

/* It stays as it is: gf_open() asks again. A program that resolves no names refuses it. */
TEST(a_name_that_is_not_known_yet_stays)
{
    static const char name[] = "gf-pod-0.nowhere.invalid:7117";
    static struct gf_config config;
    char text[128];
    char why[GF_CONFIG_ERROR_BYTES];
    (void)snprintf(text, sizeof text, "rendezvous = { address = \"%s\"; };", name);
    assert_int_equal(load(text, &config), GF_OK);
    assert_string_equal(config.rendezvous.address, name);
    assert_non_null(config.resolve);
    assert_int_equal(gf_config_effective(&config, &config, why), GF_OK);
    assert_int_equal(gf_address_resolve(name, 1, text, why), GF_AGAIN);
    assert_non_null(strstr(why, "the host is not known: "));
    config.resolve = NULL;
    assert_int_equal(gf_config_effective(&config, &config, why), GF_ERR_CONFIG);
    assert_non_null(strstr(why, "allowed is a numeric IP:port"));
}

/* A launcher may know it then, and else it is 127.0.0.1:7117. */
TEST(an_address_that_nobody_said_is_left_open)
{
    static struct gf_config config;
    char why[GF_CONFIG_ERROR_BYTES];
    assert_int_equal(load("link = { window = 4; };", &config), GF_OK);
    assert_string_equal(config.rendezvous.address, "");
    assert_int_equal(gf_config_effective(&config, &config, why), GF_OK);
    assert_string_equal(config.rendezvous.address, "127.0.0.1:7117");
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
        (void)load(texts[i], &config);
        locale_t after = uselocale(own);
        if (after != own) fail_msg("after \"%s\" the thread has another locale", texts[i]);
    }
    (void)uselocale(before);
    freelocale(own);
}

TEST(the_example_files_load)
{
    static const char *const own[] = {"config/own.cfg", "config/own_cluster.cfg"};
    struct gf_config config;
    char why[256];
    for (size_t i = 0; i < LENGTH(own); i++) {
        if (gf_config_load(own[i], &config, file_error) != GF_OK) fail_msg("%s", file_error);
        if (gf_config_need(&config, GF_NEED_OWN_OPTIMIZER | GF_NEED_NO_LOSS_SCALE, why) != GF_OK)
            fail_msg("%s: %s", own[i], why);
        assert_int_equal(config.exchange.average, GF_AVERAGE_RANKS);
    }
    if (gf_config_load("config/local.cfg", &config, file_error) != GF_OK)
        fail_msg("%s", file_error);
    assert_string_equal(config.rendezvous.address, "127.0.0.1:7117");
    assert_string_equal(config.link.devices, "");
    if (gf_config_load("config/cluster.cfg", &config, file_error) != GF_OK)
        fail_msg("%s", file_error);
    assert_string_equal(config.rendezvous.key_file, "/etc/gradientflow/job.key");
    assert_false(config.rendezvous.insecure);
    assert_int_equal(config.link.driver, GF_LINK_TCP);
    assert_string_equal(config.link.devices, "eth0");
    if (gf_config_load("config/fabric.cfg", &config, file_error) != GF_OK)
        fail_msg("%s", file_error);
    assert_string_equal(config.rendezvous.key_file, "/etc/gradientflow/job.key");
    assert_int_equal(config.link.driver, GF_LINK_UCX);
    assert_true(config.link.trusted_fabric);
    assert_string_equal(config.link.transports, "rc");
    assert_string_equal(config.link.devices, "mlx5_0:1");
}

/* ---- from a file to a context in one call ---- */
static char said[GF_CONFIG_ERROR_BYTES];
static uint32_t said_count;
static void said_keep(void *user, gf_log_level level, const char *text)
{
    (void)user;
    if (level != GF_LOG_ERROR) return;
    said_count++;
    (void)snprintf(said, sizeof said, "%s", text);
}

static uint32_t taken_count;
static void *memory_take(size_t alignment, size_t size_bytes)
{
    taken_count++;
    return aligned_alloc(alignment, size_bytes);
}
static void *memory_refuse(size_t alignment, size_t size_bytes)
{
    (void)alignment;
    return (size_bytes == 0) ? said : NULL;
}

/* NULL: there is no file. What is left at zero here is the file's. */
static const struct {
    const char *name, *text;
    uint32_t needs;
    gf_memory_take take;
    gf_status status;
    uint32_t takes; /* how often memory was asked for */
    int line;       /* of the error; 0: it names the file alone; -1: nor that */
    const char *part;
} openings[] = {
    {"no_file", NULL, 0, memory_take, GF_ERR_CONFIG, 0, 0, "cannot be opened: No such file"},
    {"a_wrong_line", "exchange={\nwire=\"fp12\";};", 0, memory_take, GF_ERR_CONFIG, 0, 2,
     "exchange.wire = \"fp12\""},
    {"not_what_the_program_needs", "exchange={wire=\"fp16\";};", GF_NEED_OPTIMIZER, memory_take,
     GF_ERR_CONFIG, 0, 0, "optimizer.kind = none"},
    {"not_beside_what_the_program_sets", "sparse={enabled=true;};", 0, memory_take, GF_ERR_CONFIG,
     0, -1, "sparse"},
    {"no_memory", "exchange={wire=\"fp16\";};", 0, memory_refuse, GF_ERR_SYSTEM, 0, -1,
     "no memory was given"},
    {"a_good_file", "exchange={wire=\"fp16\";average=\"samples\";};optimizer={kind=\"sgd\";};",
     GF_NEED_OPTIMIZER, memory_take, GF_OK, 1, -1, NULL},
};

TEST(a_file_opens_a_context_in_one_call)
{
    const struct gf_tensor tensor = {.name = "w", .elem_count = 4};
    const uint32_t order[] = {0};
    const struct gf_config own = {.job = {.world = 1, .ignore_environment = true},
                                  .exchange.average = GF_AVERAGE_RANKS,
                                  .log = said_keep,
                                  .pool_order = order};
    void *none = said;
    gf_context *closed = (gf_context *)said;
    assert_int_equal(gf_open_file(NULL, &own, 0, &tensor, 1, memory_take, &none, &closed),
                     GF_ERR_PARAM);
    assert_true((none == NULL) && (closed == NULL));
    assert_string_equal(said, "gf_config_load: there is no path");
    assert_int_equal(gf_open_file("a", &own, 0, &tensor, 1, NULL, &none, &closed), GF_ERR_PARAM);
    for (size_t i = 0; i < LENGTH(openings); i++) {
        gf_context *gf = (gf_context *)said;
        void *memory = said;
        gf_status status;
        said_count = taken_count = 0;
        file_error[0] = said[0] = '\0';
        (void)unlink(file_path);
        if (openings[i].text != NULL) file_write(openings[i].text, strlen(openings[i].text));
        status = gf_open_file(file_path, &own, openings[i].needs, &tensor, 1, openings[i].take,
                              &memory, &gf);
        if (status != openings[i].status)
            fail_msg("%s: %s: %s", openings[i].name, gf_status_name(status), said);
        if (taken_count != openings[i].takes) fail_msg("%s: memory", openings[i].name);
        assert_int_equal(memory != NULL, taken_count);
        assert_int_equal(said_count, status != GF_OK); /* a failure stands once */
        memcpy(file_error, said, sizeof said);
        if (openings[i].line >= 0) file_error_check(openings[i].line, openings[i].part);
        if ((openings[i].part != NULL) && (strstr(said, openings[i].part) == NULL))
            fail_msg("%s: %s", openings[i].name, said);
        if (status == GF_OK) {
            assert_int_equal(gf_open_wait(gf), GF_OK);
            assert_int_not_equal(gf_weight(gf, 0), 0); /* the file's optimizer */
            assert_int_equal(gf_close(gf), GF_OK);
        } else {
            assert_null(gf);
        }
        free(memory);
    }
}

/* All of *own that is not zero, and nothing else, stands over the file. */
TEST(what_a_program_sets_stands_over_the_file)
{
    static const char adamw[] = "optimizer={kind=\"adamw\";};";
    const struct gf_tensor tensor = {.name = "w", .elem_count = 4};
    gf_context *gf = NULL;
    void *memory = NULL;
    struct gf_config own = {.job = {.world = 1, .ignore_environment = true}, .log = said_keep};
    said_count = 0;
    file_write(adamw, strlen(adamw));
    own.optimizer.kind = GF_OPTIMIZER_SGD;
    own.optimizer.momentum = 0.5f; /* which adamw refuses */
    if (gf_open_file(file_path, &own, 0, &tensor, 1, aligned_alloc, &memory, &gf) != GF_OK)
        fail_msg("%s", said);
    assert_int_equal(gf_open_wait(gf), GF_OK);
    assert_int_equal(gf_close(gf), GF_OK);
    free(memory);
    own.optimizer.kind = GF_OPTIMIZER_NONE; /* zero: the file's */
    assert_int_equal(gf_open_file(file_path, &own, 0, &tensor, 1, aligned_alloc, &memory, &gf),
                     GF_ERR_CONFIG);
    if (strstr(said, "optimizer.momentum") == NULL) fail_msg("%s", said);
    assert_null(memory);
}

/* ---- from text to a context ---- */

#define ALONE "job.ignore_environment=true", "job.world=1"
#define HERE "rendezvous.address=127.0.0.1:7117"
#define NO_KEY "rendezvous.key_file="
#define MAY_NOT (GF_NEED_OWN_OPTIMIZER | GF_NEED_NO_LOSS_SCALE)

static const struct {
    const char *name, *path, *texts[6];
    uint32_t needs;
    gf_memory_take take;
    gf_status status;
    const char *part;
} texts_rows[] = {
    {"nothing_at_all", NULL, {ALONE}, 0, memory_take, GF_OK, NULL},
    {"a_later_text_stands",
     NULL,
     {ALONE, "job.world=7", "job.world=1"},
     0,
     memory_take,
     GF_OK,
     NULL},
    {"an_unknown_key",
     NULL,
     {ALONE, "exchange.wires=fp16"},
     0,
     memory_take,
     GF_ERR_CONFIG,
     "gf_open_text: unknown key exchange.wires; did you mean exchange.wire?"},
    {"a_wrong_value",
     NULL,
     {ALONE, "exchange.wire=fp8"},
     0,
     memory_take,
     GF_ERR_CONFIG,
     "gf_open_text: exchange.wire = \"fp8\": allowed is fp32, fp16 or bf16"},
    {"no_equals_sign",
     NULL,
     {ALONE, "exchange.wire"},
     0,
     memory_take,
     GF_ERR_CONFIG,
     "exchange.wire = \"\""},
    {"not_together",
     NULL,
     {ALONE, "optimizer.nesterov=true"},
     0,
     memory_take,
     GF_ERR_CONFIG,
     "optimizer.nesterov = true"},
    {"no_file", "/nowhere", {ALONE}, 0, memory_take, GF_ERR_CONFIG, "/nowhere: cannot be opened"},
    {"not_the_program's",
     NULL,
     {ALONE},
     GF_NEED_OPTIMIZER,
     memory_take,
     GF_ERR_CONFIG,
     "gf_open_text: optimizer.kind = none"},
    {"no_memory", NULL, {ALONE}, 0, memory_refuse, GF_ERR_SYSTEM, "no memory was given"},
    {"no_such_rank",
     NULL,
     {ALONE, "job.world=2", "job.rank=2"},
     0,
     memory_take,
     GF_ERR_CONFIG,
     "job.rank = 2"},
    /* of gf_open() itself, which has a context for it */
    {"no_such_key",
     NULL,
     {ALONE, "job.world=2", "rendezvous.key_file=/nowhere"},
     0,
     memory_take,
     GF_ERR_CONFIG,
     "/nowhere"},
    {"own.cfg", "config/own.cfg", {ALONE}, MAY_NOT, memory_take, GF_OK, NULL},
    {"own_cluster.cfg",
     "config/own_cluster.cfg",
     {ALONE, HERE, NO_KEY, "link.devices="},
     MAY_NOT,
     memory_take,
     GF_OK,
     NULL},
    {"cluster.cfg_has_a_scale",
     "config/cluster.cfg",
     {ALONE, HERE},
     MAY_NOT,
     memory_take,
     GF_ERR_CONFIG,
     "as in own_cluster.cfg"},
    {"which_a_text_takes_out",
     "config/cluster.cfg",
     {ALONE, HERE, NO_KEY, "link.devices=", "loss_scale.enabled=false"},
     MAY_NOT,
     memory_take,
     GF_OK,
     NULL},
    {"local.cfg_has_an_optimizer",
     "config/local.cfg",
     {ALONE},
     MAY_NOT,
     memory_take,
     GF_ERR_CONFIG,
     "optimizer.kind = sgd: this program applies its steps itself"},
    {"which_a_text_takes_out",
     "config/local.cfg",
     {ALONE, "optimizer.kind=none", "optimizer.momentum=0", "optimizer.weight_decay=0"},
     MAY_NOT,
     memory_take,
     GF_OK,
     NULL},
};

TEST(text_opens_a_context_and_says_why_not)
{
    const struct gf_tensor tensor = {.name = "w", .elem_count = 4};
    static char moments[15];
    const struct gf_state_extra extra = {"m", moments, sizeof moments};
    for (size_t i = 0; i < LENGTH(texts_rows); i++) {
        const char *const *texts = texts_rows[i].texts;
        gf_context *gf = (gf_context *)said;
        void *memory = said;
        uint32_t count = 0;
        gf_status status;
        while ((count < 6) && (texts[count] != NULL)) count++;
        said_count = taken_count = 0;
        said[0] = '\0';
        status =
            gf_open_text(texts_rows[i].path, texts, count, texts_rows[i].needs, &tensor, 1, NULL,
                         &extra, 1, said_keep, NULL, texts_rows[i].take, file_error, &memory, &gf);
        if (status != texts_rows[i].status)
            fail_msg("%s: %s: %s", texts_rows[i].name, gf_status_name(status), file_error);
        assert_int_equal(memory != NULL, taken_count);
        if (said_count != (status != GF_OK))
            fail_msg("%s: said %u", texts_rows[i].name, said_count);
        assert_int_equal(file_error[0] != '\0', status != GF_OK);
        if ((status != GF_OK) && ((strstr(file_error, texts_rows[i].part) == NULL) ||
                                  (strstr(said, file_error) == NULL)))
            fail_msg("%s: %s; logged: %s", texts_rows[i].name, file_error, said);
        assert_true((status != GF_OK) || (gf_open_wait_for(gf, 0) >= 0));
        assert_int_equal((status == GF_OK) ? gf_open_wait(gf) : GF_OK, GF_OK);
        if (gf != NULL) assert_int_equal(gf_close(gf), GF_OK);
        free(memory);
    }
}

TEST(text_takes_no_null_where_it_needs_something)
{
    static const char *const none[] = {NULL};
    const struct gf_tensor tensor = {.name = "w", .elem_count = 4};
    gf_context *gf = (gf_context *)said;
    void *memory = said;
#define OPEN(texts, count, take, error, memory, out)                                             \
    gf_open_text(NULL, texts, count, 0, &tensor, 1, NULL, NULL, 0, said_keep, NULL, take, error, \
                 memory, out)
    assert_int_equal(OPEN(NULL, 1, memory_take, file_error, &memory, &gf), GF_ERR_PARAM);
    assert_string_equal(file_error, "gf_open_text: text 0 of 1 is NULL");
    assert_int_equal(OPEN(none, 1, memory_take, file_error, &memory, &gf), GF_ERR_PARAM);
    assert_true((memory == NULL) && (gf == NULL));
    assert_int_equal(OPEN(NULL, 0, NULL, file_error, &memory, &gf), GF_ERR_PARAM);
    assert_int_equal(OPEN(NULL, 0, memory_take, file_error, NULL, &gf), GF_ERR_PARAM);
    assert_int_equal(OPEN(NULL, 0, memory_take, file_error, &memory, NULL), GF_ERR_PARAM);
    assert_string_equal(file_error, "gf_open_text: take, memory_out or gf_out is NULL");
    assert_int_equal(OPEN(NULL, 0, memory_take, NULL, &memory, &gf), GF_ERR_PARAM);
    assert_string_equal(said, "gf_open_text: error_out is NULL");
#undef OPEN
}

TEST(the_table_lists_every_key)
{
    char line[512];
    size_t rows = 0;
    FILE *file = fopen(file_path, "w+");
    assert_non_null(file);
    gf_config_print_table(file);
    rewind(file);
    for (; fgets(line, sizeof line, file) != NULL; rows++) {
        char begins[80];
        size_t columns = 0;
        for (const char *at = line; *at != '\0'; at++) columns += (*at == '|');
        assert_int_equal(columns, 6);
        if (rows < 2) continue;
        (void)snprintf(begins, sizeof begins, "| `%s` |", keys[rows - 2].key);
        assert_int_equal(strncmp(line, begins, strlen(begins)), 0);
        if (keys[rows - 2].fallback[0] != '\0')
            assert_non_null(strstr(line, keys[rows - 2].fallback));
    }
    assert_int_equal(rows, KEY_COUNT + 2);
    assert_int_equal(fclose(file), 0);
}

TEST_AROUND(file_folder_make, file_folder_remove)
