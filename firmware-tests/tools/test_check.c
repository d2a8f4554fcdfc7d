/* gf-check and the tools' option parser, run in child processes with their output in a file. The
 * programs' sources are part of this one, for tools are no library; gf_measure() is a stand-in that
 * tells what it was asked. */
#include "firmware-tests/support/suite.h"
#include "gradientflow.h"

#include <sys/wait.h>
#include <unistd.h>

#define gf_measure stand_in_measure
#define main check_main
int check_main(int argc, char **argv);
gf_status stand_in_measure(const struct gf_config *config, const struct gf_tensor *tensors,
                           uint32_t tensor_count, struct gf_footprint *footprint_out);
#include "tools/check/check_main.c"
#include "tools/common/tool_args.c"
#include "tools/common/tool_tensors.c"
#undef main

gf_status stand_in_measure(const struct gf_config *config, const struct gf_tensor *tensors,
                           uint32_t tensor_count, struct gf_footprint *footprint_out)
{
    if (!config->job.ignore_environment || (config->job.rank >= config->job.world))
        return GF_ERR_CONFIG;
    footprint_out->control_bytes = config->job.world;
    footprint_out->exchange_bytes = tensor_count;
    footprint_out->device_bytes = config->exchange.fuse_bytes;
    return GF_OK;
}

static char folder[] = "/tmp/gf-test-check-XXXXXX";
static char out_path[64], err_path[64], file_path[64];
static char out[20000], err[2000];

static void text_read(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
}

static void text_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* main() of a program in a child; its exit status, its words in out and err. */
static int program_run(int (*program)(int, char **), char **argv)
{
    int argc = 0;
    int status;
    pid_t child;
    while (argv[argc] != NULL) argc++;
    (void)fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if ((freopen(out_path, "w", stdout) == NULL) || (freopen(err_path, "w", stderr) == NULL))
            _exit(99);
        status = program(argc, argv);
        (void)fflush(NULL);
        _exit(status);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    text_read(out_path, out, sizeof out);
    text_read(err_path, err, sizeof err);
    return WEXITSTATUS(status);
}

#define RUN(program, ...) \
    program_run(program, (char *[]){(char *)(uintptr_t) "tool", __VA_ARGS__, NULL})
#define ARG(text) ((char *)(uintptr_t)(text))

TEST(a_good_file_is_shown_with_hash_and_footprint)
{
    text_write(file_path, "exchange = { fuse_bytes = 4096; };\n");
    assert_int_equal(RUN(check_main, file_path), 0);
    assert_non_null(strstr(out, "    fuse_bytes = \"4 KiB\";"));
    assert_non_null(strstr(out, "\nhash: 0x"));
    assert_non_null(strstr(out, "\ntensors: 8, 1663370 elements\n"));
    assert_non_null(strstr(out, "\nworld: 2 (assumed"));
    assert_non_null(strstr(out, "\ncontrol_bytes: 2\nexchange_bytes: 8\ndevice_bytes: 4096\n"));
    assert_string_equal(err, "");
    text_write(file_path, "job = { world = 3; rank = 2; };\n");
    assert_int_equal(RUN(check_main, file_path), 0);
    assert_non_null(strstr(out, "\nworld: 3\n"));
    /* rank 2 of 2 is not what is asked */
    assert_int_equal(RUN(check_main, file_path, ARG("--world=2")), 0);
    assert_non_null(strstr(out, "\nworld: 2\n"));
}

TEST(a_tensor_table_may_be_given)
{
    char table_path[80];
    (void)snprintf(table_path, sizeof table_path, "%s/t.cfg", folder);
    text_write(file_path, "# defaults\n");
    text_write(table_path, "tensors = ( { name = \"a\"; shape = [7, 2]; } );\n");
    assert_int_equal(
        RUN(check_main, ARG("--tensors"), table_path, file_path, ARG("--world"), ARG("5")), 0);
    assert_non_null(strstr(out, "\ntensors: 1, 14 elements\nworld: 5\ncontrol_bytes: 5\n"));
    text_write(table_path, "tensors = ( );\n");
    assert_int_equal(RUN(check_main, ARG("--tensors"), table_path, file_path), 1);
    assert_non_null(strstr(err, "t.cfg:1: 0 tensors"));
    assert_string_equal(out, "");
    assert_int_equal(unlink(table_path), 0);
}

TEST(what_is_refused_says_why_and_fails)
{
    text_write(file_path, "link = { window = 99; };\n");
    assert_int_equal(RUN(check_main, file_path), 1);
    assert_non_null(strstr(err, ":1: link.window = 99: allowed is a whole number from 1 to 32\n"));
    assert_string_equal(out, "");
    assert_int_equal(RUN(check_main, ARG("/nonexistent.cfg")), 1);
    assert_non_null(strstr(err, "/nonexistent.cfg: cannot be opened"));
}

TEST(another_file_is_told_for_what_it_is)
{
    assert_int_equal(RUN(check_main, ARG("config/models/nin.cfg")), 0);
    assert_non_null(strstr(
        out,
        "nin.cfg: a model, no configuration: 24 tensors, 7595176 elements, 2.200 GFLOPs forward, "
        "4.198 backward\n"));
    assert_int_equal(RUN(check_main, ARG("config/clusters/plain.cfg")), 0);
    assert_non_null(strstr(
        out, "plain.cfg: a cluster to plan for, no configuration: plain, 8 nodes, 1 GPUs each, "));
    text_write(file_path, "tensors = 4;\n");
    assert_int_equal(RUN(check_main, file_path), 1);
    assert_non_null(
        strstr(err, ":1: unknown key tensors; a model has that: it goes to --tensors of gf-check"));
}

TEST(the_command_line_is_read_strictly)
{
    static const struct {
        const char *args[4];
        const char *said;
    } bad[] = {
        {{NULL}, "a FILE is missing"},
        {{"--wrold", "2"}, "unknown option --wrold; did you mean --world?"},
        {{"-w"}, "unknown option -w"},
        {{"f", "--world"}, "--world needs a value"},
        {{"f", "--world", "0"}, "--world 0: allowed is a whole number from 1 to 8192"},
        {{"f", "--world=8193"}, "--world 8193: allowed is a whole number from 1 to 8192"},
        {{"f", "--world=2x"}, "--world 2x: allowed is"},
        {{"f", "--world="}, "--world : allowed is"},
        {{"f", "--world=2", "--world=2"}, "--world is given twice"},
        {{"f", "--keys=yes"}, "--keys takes no value"},
        {{"f", "--tensors="}, "--tensors: its value is empty"},
        {{"f", "g"}, "g is one argument too many"},
        {{"f", "--", "--world"}, "--world is one argument too many"},
    };
    for (size_t i = 0; i < LENGTH(bad); i++) {
        assert_int_equal(
            RUN(check_main, ARG(bad[i].args[0]), ARG(bad[i].args[1]), ARG(bad[i].args[2])), 2);
        if (strstr(err, bad[i].said) == NULL)
            fail_msg("wanted \"%s\", got \"%s\"", bad[i].said, err);
        assert_non_null(strstr(err, "usage: gf-check "));
        assert_string_equal(out, "");
    }
}

TEST(help_and_keys_go_to_stdout)
{
    assert_int_equal(RUN(check_main, ARG("--help")), 0);
    assert_non_null(strstr(out, "usage: gf-check FILE"));
    assert_non_null(strstr(out, "--tensors FILE"));
    assert_string_equal(err, "");
    assert_int_equal(RUN(check_main, ARG("--keys")), 0);
    assert_non_null(strstr(out, "| `exchange.wire` | name | `fp32` | fp32, fp16 or bf16 |"));
}

/* A tool with one option of each kind, which prints what it read. */
static int every_kind(int argc, char **argv)
{
    static bool flag;
    static bool given;
    static const char *text = "none";
    static const char *operands[2];
    static uint64_t number = 1;
    static uint64_t size = 2;
    static double real = 3;
    static struct tool_settings set;
    static const char *share;
    static bool shares;
    static const struct tool_option options[] = {
        {.name = "flag", .kind = TOOL_FLAG, .value_out = &flag},
        {.name = "text", .kind = TOOL_TEXT, .value_out = &text, .allowed = "ring|halving|x"},
        {.name = "number", .kind = TOOL_NUMBER, .value_out = &number, .low = 5},
        {.name = "size",
         .kind = TOOL_SIZE,
         .value_out = &size,
         .high = 1 << 30,
         .given_out = &given},
        {.name = "real", .kind = TOOL_REAL, .value_out = &real, .low_real = -1, .high_real = 1},
        {.name = "set", .kind = TOOL_SETTINGS, .value_out = &set},
        {.name = "share",
         .kind = TOOL_TEXT,
         .value_out = &share,
         .optional = true,
         .given_out = &shares},
    };
    struct tool_args args = {.program = "kinds",
                             .usage = "",
                             .about = "",
                             .options = options,
                             .option_count = 7,
                             .operands_max = 2};
    uint32_t count;
    int read;
    args.operands_end = (strcmp(argv[0], "run") == 0);
    read = tool_args_read(&args, argc, argv, args.operands_end ? NULL : operands, &count);
    if (read != 0) return 2;
    for (uint32_t i = 0; i < set.count; i++) (void)printf("%s;", set.text[i]);
    if (shares) (void)printf("shares %s;", (share != NULL) ? share : "-");
    (void)printf("%d %s %llu %llu %g %d %u %s", flag, text, (unsigned long long)number,
                 (unsigned long long)size, real, given, count,
                 args.operands_end ? argv[(uint32_t)argc - count]
                 : operands[0]     ? operands[0]
                                   : "-");
    return 0;
}

TEST(options_of_every_kind_are_read)
{
    assert_int_equal(RUN(every_kind, NULL), 0);
    assert_string_equal(out, "0 none 1 2 3 0 0 -");
    assert_int_equal(RUN(every_kind, ARG("--flag"), ARG("--text=halving"), ARG("-"),
                         ARG("--number"), ARG("5"), ARG("--size"), ARG("64K"), ARG("--real=-0.5")),
                     0);
    assert_string_equal(out, "1 halving 5 65536 -0.5 1 1 -");
    assert_int_equal(RUN(every_kind, ARG("--size"), ARG("1 GiB")), 0);
    assert_int_equal(RUN(every_kind, ARG("--size"), ARG("2G")), 2);
    assert_non_null(
        strstr(err, "--size 2G: allowed is a size, as 4096, 4K or 4M, from 0 to 1073741824"));
    assert_int_equal(RUN(every_kind, ARG("--number=4")), 2);
    assert_non_null(strstr(err, "--number 4: allowed is a whole number from 5"));
    assert_int_equal(RUN(every_kind, ARG("--text"), ARG("rin")), 2);
    assert_non_null(strstr(err, "--text rin: allowed is ring|halving|x"));
    assert_int_equal(RUN(every_kind, ARG("--real"), ARG("nan")), 2);
    assert_non_null(strstr(err, "--real nan: allowed is a number from -1 to 1"));
    assert_int_equal(
        RUN(every_kind, ARG("--set"), ARG("a.b=1"), ARG("--share"), ARG("--set=c=2,3"), ARG("op")),
        0);
    assert_string_equal(out, "a.b=1;c=2,3;shares -;0 none 1 2 3 0 1 op");
    assert_int_equal(RUN(every_kind, ARG("--share"), ARG(".5"), ARG("op")), 0);
    assert_string_equal(out, "shares .5;0 none 1 2 3 0 1 op");
    assert_int_equal(RUN(every_kind, ARG("--share=x"), ARG("--share")), 2);
    assert_non_null(strstr(err, "--share is given twice"));
    assert_int_equal(RUN(every_kind, ARG("--set"), ARG("a.b")), 2);
    assert_non_null(strstr(err, "--set a.b: allowed is GROUP.KEY=VALUE"));
}

TEST(what_follows_the_program_is_the_programs)
{
    char *argv[] = {ARG("run"), ARG("--number"), ARG("9"), ARG("prog"), ARG("--flag"), NULL};
    char *dashes[] = {ARG("run"), ARG("--"), ARG("--prog"), ARG("--number"), NULL};
    assert_int_equal(program_run(every_kind, argv), 0);
    assert_string_equal(out, "0 none 9 2 3 0 2 prog");
    assert_int_equal(program_run(every_kind, dashes), 0);
    assert_string_equal(out, "0 none 1 2 3 0 2 --prog");
}

static int folder_make(void **state)
{
    if (mkdtemp(folder) == NULL) return -1;
    (void)snprintf(out_path, sizeof out_path, "%s/out", folder);
    (void)snprintf(err_path, sizeof err_path, "%s/err", folder);
    (void)snprintf(file_path, sizeof file_path, "%s/a.cfg", folder);
    return 0;
}

static int folder_remove(void **state)
{
    (void)unlink(out_path);
    (void)unlink(err_path);
    (void)unlink(file_path);
    return rmdir(folder);
}

TEST_AROUND(folder_make, folder_remove)
