/* lib/settings*.c and lib/settings/names.c: defaults, ranges, combinations, hash and summary,
 * without libconfig. */
#include "firmware-tests/support/suite.h"
#include "lib/settings/settings.h"
#include "ops/ops.h"

static const struct gf_setting *row(const char *key)
{
    for (uint32_t i = 0; i < gf_setting_count; i++)
        if (strcmp(gf_settings[i].key, key) == 0) return &gf_settings[i];
    fail_msg("no row %s", key);
    return NULL;
}

static void effective_make(const struct gf_config *config, struct gf_config *effective_out)
{
    char error[256] = "";
    if (gf_config_effective(config, effective_out, error) != GF_OK) fail_msg("refused: %s", error);
}

TEST(effective_twice_is_effective_once)
{
    static struct gf_config config;
    static struct gf_config once;
    static struct gf_config twice;
    char error[256];
    memset(&config, 0, sizeof config);
    /* what lies behind the end must not stay */
    memset(config.rendezvous.bind, 'x', sizeof config.rendezvous.bind);
    memcpy(config.rendezvous.bind, "127.0.0.2", 10);
    config.optimizer.momentum = -0.0f;
    effective_make(&config, &once);
    effective_make(&once, &twice);
    assert_memory_equal(&once, &twice, sizeof once);
    assert_int_equal(gf_config_effective(&config, &config, error), GF_OK); /* in place is valid */
    assert_memory_equal(&once, &config, sizeof once);
    assert_int_equal(gf_config_hash(&config), gf_config_hash(&once));
    assert_int_equal(gf_config_hash(NULL), 0);
}

TEST(the_table_is_sound)
{
    static unsigned char taken[sizeof(struct gf_config)];
    char allowed[GF_SETTING_ALLOWED_BYTES];
    for (uint32_t i = 0; i < gf_setting_count; i++) {
        const struct gf_setting *s = &gf_settings[i];
        assert_non_null(strchr(s->key, '.'));
        assert_true(strlen(s->key) < 40);
        assert_true((s->help != NULL) && (strchr(s->help, '|') == NULL));
        assert_true(strlen(gf_setting_allowed(s, allowed)) < GF_SETTING_ALLOWED_BYTES - 1);
        for (uint32_t j = 0; j < s->size; j++) {
            assert_int_equal(taken[s->offset + j], 0); /* no two rows share a field */
            taken[s->offset + j] = 1;
        }
        for (uint32_t j = i + 1; j < gf_setting_count; j++)
            assert_string_not_equal(s->key, gf_settings[j].key);
        if (s->kind == GF_SETTING_TEXT) {
            assert_non_null(s->fallback_text);
            if (s->fallback_text[0] != '\0')
                assert_true(gf_setting_text_valid(s, s->fallback_text));
        } else if (s->kind == GF_SETTING_REAL) {
            assert_true(gf_setting_real_valid(s, (double)s->fallback_real));
            /* 0 does not mean the default */
            if (s->fallback_real != 0) assert_false(gf_setting_real_valid(s, 0));
        } else {
            assert_true(gf_setting_number_valid(s, s->fallback));
            if (s->fallback != 0) assert_false(gf_setting_number_valid(s, 0));
            if (s->size == 4) assert_true(s->high <= UINT32_MAX);
        }
    }
}

/* Beside those of config/test_config.c, which has each key's default, a value that is valid and the
 * ones just outside. */
static const struct {
    const char *key;
    uint64_t number;
    double real;
    const char *text; /* NULL: a number or real */
    bool valid;
} values[] = {
    {"job.world", 8192, 0, NULL, true},
    {"job.id", UINT64_MAX, 0, NULL, true},
    {"job.ignore_environment", 2, 0, NULL, false},
    {"rendezvous.address", 0, 0, "127.0.0.1:1", true},
    {"rendezvous.address", 0, 0, "[::1]:65535", true},
    {"rendezvous.address", 0, 0, "127.0.0.1", false},
    {"rendezvous.address", 0, 0, "127.0.0.1:", false},
    {"rendezvous.address", 0, 0, "127.0.0.1:0", false},
    {"rendezvous.address", 0, 0, "127.0.0.1:65536", false},
    {"rendezvous.address", 0, 0, "127.0.0.1:07117", false},
    {"rendezvous.address", 0, 0, "127.0.0.1:99999999999", false},
    {"rendezvous.address", 0, 0, "127.0.0.1:7117 ", false},
    {"rendezvous.address", 0, 0, "127.0.0.256:7117", false},
    {"rendezvous.address", 0, 0, "::1:7117", false},
    {"rendezvous.address", 0, 0, "[127.0.0.1]:7117", false},
    {"rendezvous.address", 0, 0, "[::1:7117", false},
    {"rendezvous.address", 0, 0, "[fe80::a]:7117", false},
    {"rendezvous.address", 0, 0, "[fe80::a%]:7117", false},
    {"rendezvous.address", 0, 0, "[fe80::a%a-name-too-long-for-it]:7117", false},
    {"rendezvous.address", 0, 0, "[fd00::a%lo]:7117", false},
    {"rendezvous.address", 0, 0, "127.0.0.1%lo:7117", false},
    {"rendezvous.address", 0, 0, "localhost:7117", false},
    {"rendezvous.address", 0, 0, ":", false},
    {"rendezvous.address", 0, 0, "[", false},
    {"rendezvous.bind", 0, 0, "::1", true},
    {"rendezvous.bind", 0, 0, "127.0.0.1:7117", false},
    {"rendezvous.bind", 0, 0, "fe80::a", false},
    {"rendezvous.join_timeout", 1000000, 0, NULL, true},
    {"rendezvous.join_timeout", 999999, 0, NULL, false},
    {"rendezvous.join_timeout", 86400000000001, 0, NULL, false},
    {"rendezvous.keepalive", 3600000000001, 0, NULL, false},
    {"rendezvous.key_file", 0, 0, "/etc/key", true},
    {"rendezvous.key_file", 0, 0, "a\nb", false},
    {"link.transports", 0, 0, "rc_mlx5,tcp", true},
    {"link.transports", 0, 0, "tcp,", false},
    {"link.transports", 0, 0, ",tcp", false},
    {"link.transports", 0, 0, "rc tcp", false},
    {"link.devices", 0, 0, "mlx5_0:1,eth0.100", true},
    {"link.devices", 0, 0, "eth0;;rm", false},
    {"rendezvous.ports", 0, 0, "1024-65535", true},
    {"rendezvous.ports", 0, 0, "5000-5000", true},
    {"rendezvous.ports", 0, 0, "80-5000", false},
    {"rendezvous.ports", 0, 0, "05000-6000", false},
    {"rendezvous.ports", 0, 0, "5001-5000", false},
    {"rendezvous.ports", 0, 0, "5000", false},
    {"rendezvous.ports", 0, 0, "5000-", false},
    {"rendezvous.ports", 0, 0, "5000-70000", false},
    {"link.window", 1, 0, NULL, true},
    {"link.idle", 3, 0, NULL, true},
    {"link.idle", 4, 0, NULL, false},
    {"device.driver", 0, 0, "rocm", false},
    /* GF_ORDINAL(255), (256) */
    {"device.ordinal", 256, 0, NULL, true},
    {"device.ordinal", 257, 0, NULL, false},
    {"exchange.wire", GF_TYPE_COUNT - 1, 0, NULL, true},
    {"exchange.wire", GF_TYPE_COUNT, 0, NULL, false},
    {"exchange.algorithm", GF_ALGORITHM_COUNT - 1, 0, NULL, true},
    {"exchange.algorithm", GF_ALGORITHM_COUNT, 0, NULL, false},
    {"exchange.average", 3, 0, NULL, true},
    {"exchange.average", 4, 0, NULL, false},
    {"exchange.fuse_bytes", 1, 0, NULL, true},
    {"exchange.slice_bytes", 4095, 0, NULL, false},
    {"exchange.slice_bytes", 4032, 0, NULL, false},
    {"exchange.slice_bytes", 4128, 0, NULL, false},
    {"exchange.slice_bytes", 16 << 20, 0, NULL, true},
    {"exchange.slice_bytes", (16 << 20) + 64, 0, NULL, false},
    {"exchange.pre_scale", 0, 0x1p-32, NULL, true},
    {"exchange.pre_scale", 0, 0x1p-33, NULL, false},
    {"exchange.pre_scale", 0, 3, NULL, false},
    {"exchange.pre_scale", 0, -1, NULL, false},
    {"exchange.pre_scale", 0, (double)__builtin_nanf(""), NULL, false},
    {"exchange.pre_scale", 0, (double)__builtin_inff(), NULL, false},
    {"exchange.timeout", 1, 0, NULL, false},
    {"exchange.patience", 1, 0, NULL, false},
    {"optimizer.kind", 4, 0, NULL, false},
    {"optimizer.momentum", 0, 0.999, NULL, true},
    {"optimizer.weight_decay", 0, 1, NULL, true},
    {"sparse.keep_share", 0, -0.5, NULL, false},
    {"sparse.momentum", 3, 0, NULL, false},
    {"loss_scale.initial", 0, 1000, NULL, false},
    {"loss_scale.factor", 0, 4, NULL, true},
    {"loss_scale.floor", 0, 0.3, NULL, false},
    {"trace.records", 1u << 20, 0, NULL, true},
};

TEST(values_out_of_range_are_refused_by_name)
{
    for (size_t i = 0; i < LENGTH(values); i++) {
        const struct gf_setting *s = row(values[i].key);
        static struct gf_config config;
        static struct gf_config out;
        char error[256] = "";
        gf_status status;
        memset(&config, 0, sizeof config);
        memset(&out, 0x5a, sizeof out);
        if (strcmp(values[i].key, "job.ignore_environment") == 0) config.job.world = 2;
        if (values[i].text != NULL)
            gf_setting_text_set(s, &config, values[i].text);
        else if (s->kind == GF_SETTING_REAL)
            gf_setting_real_set(s, &config, (float)values[i].real);
        else
            gf_setting_number_set(s, &config, values[i].number);
        status = gf_config_effective(&config, &out, error);
        if (status != (values[i].valid ? GF_OK : GF_ERR_CONFIG))
            fail_msg("row %zu, %s: %s", i, values[i].key, error);
        if (values[i].valid) continue;
        assert_int_equal(strncmp(error, values[i].key, strlen(values[i].key)), 0);
        assert_non_null(strstr(error, "allowed is"));
        assert_int_equal(out.size_bytes, 0x5a5a5a5a); /* untouched */
    }
}

TEST(a_text_without_end_is_refused)
{
    for (uint32_t i = 0; i < gf_setting_count; i++) {
        const struct gf_setting *s = &gf_settings[i];
        static struct gf_config config;
        static struct gf_config out;
        char error[256] = "";
        if (s->kind != GF_SETTING_TEXT) continue;
        memset(&config, 0, sizeof config);
        memset((char *)&config + s->offset, 'a', s->size);
        assert_int_equal(gf_config_effective(&config, &out, error), GF_ERR_CONFIG);
        assert_non_null(strstr(error, s->key));
    }
}

/* A row is what a program fills in; the key it is refused by, or NULL: it is valid. */
#define ROW(refused_key, ...)      \
    {                              \
#__VA_ARGS__, refused_key, \
        {                          \
            __VA_ARGS__            \
        }                          \
    }
#define DETERMINISTIC(with) .exchange = {.deterministic = true, .algorithm = GF_ALGORITHM_##with}
#define OPTIMIZER(which, ...) .optimizer = {.kind = GF_OPTIMIZER_##which, ##__VA_ARGS__}
static const struct {
    const char *what, *refused_key;
    struct gf_config config;
} combinations[] = {
    ROW(NULL, .job = {.world = 2, .rank = 1}),
    ROW("job.rank", .job = {.world = 2, .rank = 2}),
    ROW(NULL, .job = {.rank = 7}), /* not looked at */
    ROW("job.ignore_environment", .job = {.ignore_environment = true}),
    ROW(NULL, DETERMINISTIC(AUTO)),
    ROW("exchange.algorithm", DETERMINISTIC(RING)),
    ROW(NULL, DETERMINISTIC(HIERARCHY)),
    ROW(NULL, DETERMINISTIC(TREE)),
    ROW(NULL, DETERMINISTIC(SERVER)),
    ROW(NULL, DETERMINISTIC(DIRECT)),
    ROW(NULL, DETERMINISTIC(HALVING)),
    ROW(NULL, DETERMINISTIC(DOUBLING)),
    ROW("optimizer.nesterov", .optimizer = {.nesterov = true}),
    ROW(NULL, .optimizer = {.nesterov = true, .momentum = 0.9f}),
    ROW("optimizer.half_weights", .optimizer = {.half_weights = GF_TYPE_F16}),
    ROW(NULL, OPTIMIZER(SGD, .half_weights = GF_TYPE_F16)),
    ROW("optimizer.momentum", OPTIMIZER(ADAMW, .momentum = 0.9f)),
    ROW(NULL, OPTIMIZER(ADAMW, .half_weights = GF_TYPE_BF16)),
    ROW("sparse.enabled", OPTIMIZER(ADAMW), .sparse = {.enabled = true}),
    ROW(NULL, OPTIMIZER(LARS), .sparse = {.enabled = true}),
    ROW("sparse.momentum", OPTIMIZER(LARS),
        .sparse = {.enabled = true, .momentum = GF_SPARSE_MOMENTUM_LOCAL}),
    ROW("loss_scale.floor", .loss_scale = {.initial = 0.5f}), /* below the default floor */
    ROW(NULL, .loss_scale = {.initial = 0.5f, .floor = 0.5f}),
    ROW("rendezvous.address", .rendezvous = {.address = "10.0.0.1:7117"}),
    ROW(NULL, .rendezvous = {.address = "10.0.0.1:7117", .insecure = true}),
    ROW(NULL, .rendezvous = {.address = "10.0.0.1:7117", .key_file = "k"}),
    ROW("rendezvous.bind", .rendezvous = {.bind = "0.0.0.0"}),
    ROW(NULL, .rendezvous = {.address = "[::1]:7117", .bind = "127.9.9.9"}),
    ROW(NULL, .rendezvous = {.address = "[::ffff:127.0.0.1]:7117"}),
    ROW("rendezvous.address", .rendezvous = {.address = "[::ffff:10.0.0.1]:7117"}),
    ROW(NULL, .rendezvous = {.address = "[fe80::a%lo]:7117", .insecure = true}),
    ROW(NULL, .rendezvous = {.address = "[fe80::a%no-such-device]:7117", .insecure = true}),
    ROW(NULL, .rendezvous = {.address = "[::1]:7117", .bind = "fe80::a%7", .insecure = true}),
    ROW(NULL, .size_bytes = sizeof(struct gf_config)),
    ROW("size_bytes", .size_bytes = sizeof(struct gf_config) - 8),
    ROW("rate.steps", .rate = {.kind = GF_SCHEDULE_COSINE}),
    ROW("rate.end",
        .rate = {.kind = GF_SCHEDULE_COSINE, .base_rate = 0.1f, .end_rate = 0.2f, .step_count = 9}),
    ROW("rate.end", .rate = {.kind = GF_SCHEDULE_POLYNOMIAL,
                             .base_rate = 0.1f,
                             .batch = 64,
                             .end_rate = 0.05f,
                             .step_count = 9}),
    ROW("rate.steps", .rate = {.kind = GF_SCHEDULE_POLYNOMIAL, .warmup_steps = 9, .step_count = 9}),
    ROW(NULL, .rate = {.kind = GF_SCHEDULE_POLYNOMIAL, .step_count = 9}),
    ROW(NULL, .rate = {.kind = GF_SCHEDULE_STEP}),
};

TEST(combinations_that_cannot_be_are_refused)
{
    for (unsigned i = 0; i < LENGTH(combinations); i++) {
        const char *key = combinations[i].refused_key;
        struct gf_config config = combinations[i].config;
        char error[256] = "";
        if (gf_config_effective(&config, &config, error) != (key ? GF_ERR_CONFIG : GF_OK))
            fail_msg("%s: %s", combinations[i].what, error);
        if ((key != NULL) && (strncmp(error, key, strlen(key)) != 0))
            fail_msg("%s: %s", combinations[i].what, error);
    }
}

/* Another valid value than the default. */
static void change(const struct gf_setting *s, struct gf_config *config)
{
    if (s->kind == GF_SETTING_TEXT) {
        static const char *const others[] = {[GF_FORM_ADDRESS] = "127.0.0.1:99",
                                             [GF_FORM_IP] = "127.0.0.3",
                                             [GF_FORM_TRANSPORTS] = "rc",
                                             [GF_FORM_DEVICES] = "a:1;b",
                                             [GF_FORM_PORTS] = "2000-3000",
                                             [GF_FORM_DRIVER] = "cuda",
                                             [GF_FORM_PATH] = "/x"};
        gf_setting_text_set(s, config, others[s->form]);
    } else if (s->kind == GF_SETTING_REAL) {
        gf_setting_real_set(s, config, (s->flags & GF_SETTING_POWER_OF_TWO) ? 4 : 0.5f);
    } else {
        gf_setting_number_set(s, config, (s->fallback != 0) ? s->fallback * 2 : 1);
    }
}

TEST(hash_and_summary_see_exactly_what_must_agree)
{
    static const char *const not_agreeing[] = {"job.world",
                                               "job.rank",
                                               "job.id",
                                               "job.ignore_environment",
                                               "rendezvous.address",
                                               "rendezvous.bind",
                                               "rendezvous.join_timeout",
                                               "rendezvous.keepalive",
                                               "rendezvous.key_file",
                                               "rendezvous.insecure",
                                               "link.devices",
                                               "rendezvous.ports",
                                               "rendezvous.rejoin",
                                               "link.idle",
                                               "link.huge_pages",
                                               "link.trusted_fabric",
                                               "device.",
                                               "exchange.timeout",
                                               "exchange.patience",
                                               "trace."};
    static struct gf_config zero;
    char text[160];
    char text_zero[160];
    memset(&zero, 0, sizeof zero);
    assert_string_equal(gf_config_summary(&zero, text_zero, sizeof text_zero),
                        "wire=fp32 algorithm=auto");
    for (uint32_t i = 0; i < gf_setting_count; i++) {
        const struct gf_setting *s = &gf_settings[i];
        static struct gf_config config;
        const char *name = (strncmp(s->key, "exchange.", 9) == 0) ? s->key + 9 : s->key;
        bool agrees = true;
        config = zero;
        for (size_t j = 0; j < LENGTH(not_agreeing); j++)
            if (strncmp(s->key, not_agreeing[j], strlen(not_agreeing[j])) == 0) agrees = false;
        assert_int_equal((s->flags & GF_SETTING_AGREES) != 0, agrees);
        if (strcmp(s->key, "device.driver") == 0) continue; /* other defaults follow from it */
        change(s, &config);
        gf_config_summary(&config, text, sizeof text);
        if ((gf_config_hash(&config) != gf_config_hash(&zero)) != agrees)
            fail_msg("hash of %s", s->key);
        if ((strcmp(text, text_zero) != 0) != agrees) fail_msg("summary of %s: %s", s->key, text);
        if (agrees) assert_non_null(strstr(text, name));
    }
}

TEST(a_device_has_larger_buffers_unless_the_file_says_otherwise)
{
    static struct gf_config config;
    static struct gf_config effective;
    char text[160];
    memset(&config, 0, sizeof config);
    strcpy(config.device.driver, "host");
    effective_make(&config, &effective);
    assert_int_equal(effective.exchange.fuse_bytes, 4 << 20);
    assert_int_equal(effective.exchange.slice_bytes, 256 << 10);
    strcpy(config.device.driver, "cuda");
    effective_make(&config, &effective);
    assert_int_equal(effective.exchange.fuse_bytes, 32 << 20);
    assert_int_equal(effective.exchange.slice_bytes, 512 << 10);
    assert_string_equal(gf_config_summary(&effective, text, sizeof text),
                        /* a rank without names it */
                        "wire=fp32 algorithm=auto fuse_bytes=32MiB slice_bytes=512KiB");
    config.exchange.fuse_bytes = 4 << 20;
    effective_make(&config, &effective);
    assert_int_equal(effective.exchange.fuse_bytes, 4 << 20);
}

TEST(the_hash_does_not_change_between_releases_by_accident)
{
    static struct gf_config zero;
    static struct gf_config effective;
    memset(&zero, 0, sizeof zero);
    effective_make(&zero, &effective);
    assert_int_equal(gf_config_hash(&zero), gf_config_hash(&effective));
    /* another value: ranks of two builds cannot join */
    assert_int_equal(gf_config_hash(&zero), 0x80a020c4c4c5cd2eull);
}

TEST(a_summary_that_is_cut_says_so)
{
    struct gf_config config;
    char text[64];
    memset(&config, 0, sizeof config);
    for (uint32_t i = 0; i < gf_setting_count; i++) change(&gf_settings[i], &config);
    for (size_t bytes = 0; bytes <= sizeof text; bytes++) {
        memset(text, 'z', sizeof text);
        assert_ptr_equal(gf_config_summary(&config, text, bytes), text);
        if (bytes > 0) assert_true(strlen(text) < bytes);
        if (bytes > 3) assert_string_equal(text + strlen(text) - 2, "..");
        if (bytes < sizeof text) assert_int_equal(text[bytes], 'z');
    }
}

TEST(units_are_exact)
{
    char text[GF_UNITS_BYTES];
    assert_string_equal(gf_units_bytes(0, text), "0 B");
    assert_string_equal(gf_units_bytes(4 << 20, text), "4 MiB");
    assert_string_equal(gf_units_bytes((4 << 20) + 1, text), "4194305 B");
    assert_string_equal(gf_units_bytes(1536, text), "1536 B");
    assert_string_equal(gf_units_time(0, text), "0 ns");
    assert_string_equal(gf_units_time(30000000000ull, text), "30 s");
    assert_string_equal(gf_units_time(1500000000ull, text), "1500 ms");
    assert_string_equal(gf_units_time(UINT64_MAX, text), "18446744073709551615 ns");
    assert_string_equal(gf_units_real(0.9f, text), "0.9");
    assert_string_equal(gf_units_real(65536, text), "65536.0");
    assert_string_equal(gf_units_real(1e-9f, text), "1e-09");
    assert_string_equal(gf_units_real(1.0f / 3, text), "0.33333334");
}

TEST(every_enum_value_has_a_name)
{
    assert_string_equal(gf_status_name(GF_OK), "GF_OK");
    assert_string_equal(gf_status_name(GF_AGAIN), "GF_AGAIN");
    assert_string_equal(gf_status_name(GF_FULL), "GF_FULL");
    assert_string_equal(gf_status_name((gf_status)-99), "unknown status");
    for (int status = -14; status <= 1; status++)
        assert_true((status == -12) || /* none has this number any more */
                    (strncmp(gf_status_name((gf_status)status), "GF_", 3) == 0));
    for (unsigned i = 0; i < GF_OPERATION_COUNT; i++)
        assert_null(strstr(gf_operation_name((gf_operation)i), "unknown"));
    assert_string_equal(gf_operation_name(GF_OPERATION_COUNT), "unknown operation");
    for (unsigned i = 0; i < GF_ALGORITHM_COUNT; i++) /* the same names as in files */
        assert_string_equal(gf_algorithm_name((gf_algorithm)i),
                            row("exchange.algorithm")->names[i]);
    assert_string_equal(gf_algorithm_name(GF_ALGORITHM_COUNT), "unknown algorithm");
    assert_int_equal(gf_type_size_bytes(GF_TYPE_F32), 4);
    assert_int_equal(gf_type_size_bytes(GF_TYPE_F16), 2);
    assert_int_equal(gf_type_size_bytes(GF_TYPE_BF16), 2);
    assert_int_equal(gf_type_size_bytes(GF_TYPE_COUNT), 0);
    assert_int_equal(gf_type_bytes((gf_type)99), 0); /* as the public call answers */
}
