/* config/: from a file, or from texts, to a context in one call. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/config_file.h"

#include <unistd.h>

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
    {"whose_scale_a_text_takes_out",
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
    {"whose_optimizer_a_text_takes_out",
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

TEST_AROUND(file_folder_make, file_folder_remove)

/* The gradient after a step of 4 samples: what a program asks for that divides its loss itself is
 * not what a file divides by. */
TEST(a_sum_stands_over_the_file)
{
    static const struct {
        const char *file;
        gf_average own;
        float gradient;
    } rows[] = {{"exchange={average=\"samples\";};", GF_AVERAGE_SUM, 8},
                {"exchange={average=\"samples\";};", (gf_average)0, 2},
                {"exchange={average=\"sum\";};", GF_AVERAGE_SAMPLES, 2},
                {"exchange={wire=\"fp32\";};", (gf_average)0, 8}};
    const struct gf_tensor tensor = {.name = "w", .elem_count = 1};
    for (size_t row = 0; row < LENGTH(rows); row++) {
        struct gf_config own = {.job = {.world = 1, .ignore_environment = true},
                                .exchange.average = rows[row].own,
                                .log = said_keep};
        gf_context *gf = NULL;
        void *memory = NULL;
        file_write(rows[row].file, strlen(rows[row].file));
        if (gf_open_file(file_path, &own, 0, &tensor, 1, aligned_alloc, &memory, &gf) != GF_OK)
            fail_msg("%s", said);
        assert_int_equal(gf_open_wait(gf), GF_OK);
        assert_int_equal(gf_step_begin(gf), GF_OK);
        assert_int_equal(gf_step_samples(gf, 4), GF_OK);
        *gf_gradient_f32(gf, 0) = 8;
        assert_int_equal(gf_tensor_ready(gf, 0, 0), GF_OK);
        assert_int_equal(gf_step_wait(gf), GF_OK);
        if (*gf_gradient_f32(gf, 0) != rows[row].gradient)
            fail_msg("row %zu: %g", row, (double)*gf_gradient_f32(gf, 0));
        assert_int_equal(gf_close(gf), GF_OK);
        free(memory);
    }
}
