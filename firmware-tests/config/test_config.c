/* config/: files to struct gf_config and back, a row for each key. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/config_file.h"

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
    assert_int_equal(file_load("# all defaults", &config), GF_OK); /* not even a line end */
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
        if (file_load(text, &config) != GF_OK) fail_msg("%s", file_error);
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
            file_refused(key_text(keys[i].key, bad[j]), 2, part);
        }
        (void)snprintf(part, sizeof part, "%s is a", keys[i].key);
        file_refused(key_text(keys[i].key, keys[i].wrong_type), 2, part);
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
        assert_int_equal(file_load(text, &config), GF_OK);
        print_reload_check(&config);
    }
    assert_int_equal(
        file_load("rate: { steps = 9223372036854775807L; }; optimizer: { momentum = 0.333333333; };"
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
    assert_int_equal(file_load(text, &config), GF_OK);
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
    assert_int_equal(file_load("link = { window = 4; };", &config), GF_OK);
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

/* Two carriage returns are what a copy in text mode makes of Windows' line ends. */
TEST(line_ends_of_windows_are_read)
{
    struct gf_config config;
    assert_int_equal(file_load("# all of it\r\nlink = { window = 3; };\r\n", &config), GF_OK);
    assert_int_equal(config.link.window, 3);
    assert_int_equal(file_load("# all of it\r\r\nlink = { window = 5; };\r\r\n", &config), GF_OK);
    assert_int_equal(config.link.window, 5);
}

TEST(a_number_in_hexadecimal_is_what_it_says)
{
    struct gf_config config;
    assert_int_equal(file_load("job = { id = 0xFFFFFFFF; };", &config), GF_OK);
    assert_int_equal(config.job.id, 0xFFFFFFFFu);
    assert_int_equal(file_load("job = { id = 0x123456789ABL; world = 0x10; };", &config), GF_OK);
    assert_true((config.job.id == 0x123456789ABull) && (config.job.world == 16));
}

TEST(a_host_name_becomes_a_number)
{
    struct gf_config config;
    char numeric[GF_TEXT_MAX];
    char why[GF_RESOLVE_WHY_BYTES];
    /* a bare system has no /etc/hosts */
    if (gf_address_resolve("localhost:7200", 0, numeric, why) == GF_OK) {
        assert_int_equal(file_load("rendezvous = { address = \"localhost:7200\"; };", &config),
                         GF_OK);
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
    assert_int_equal(file_load(text, &config), GF_OK);
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
    assert_int_equal(file_load("link = { window = 4; };", &config), GF_OK);
    assert_string_equal(config.rendezvous.address, "");
    assert_int_equal(gf_config_effective(&config, &config, why), GF_OK);
    assert_string_equal(config.rendezvous.address, "127.0.0.1:7117");
}

TEST(the_example_files_load)
{
    static const char *const own[] = {"config/own.cfg", "config/own_cluster.cfg"};
    struct gf_config config;
    for (size_t i = 0; i < LENGTH(own); i++) {
        if (gf_config_load(own[i], &config, file_error) != GF_OK) fail_msg("%s", file_error);
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

TEST_AROUND(file_folder_make, file_folder_remove)
