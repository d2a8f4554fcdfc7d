/* Tensor tables: what loads, and what is refused where. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/config_file.h"
#include "tools/common/tool_model.h"

static struct gf_tensor tensors[GF_TENSORS_MAX];
static char names[GF_TENSORS_MAX][48];
static uint32_t tensor_count;

static gf_status tensors_load(const char *text, uint32_t tensor_max)
{
    file_write(text, strlen(text));
    file_error[0] = '\0';
    struct tool_model model = {
        .tensors = tensors, .names = names, .tensor_max = tensor_max, .tensor_count = 77};
    gf_status status = tool_model_load(file_path, &model, file_error);
    tensor_count = model.tensor_count;
    return status;
}

TEST(tensor_tables_load)
{
    assert_int_equal(
        tensors_load(
            "tensors = ( { name = \"w\"; shape = [512, 3136]; },\n"
            "{ name = \"b\"; shape = [512]; flags = [\"dense\",\"no_decay\"]; type = \"bf16\"},\n"
            "{ name = \"none\"; shape = [0, 2000000000, 2000000000, 2000000000]; flags = []; },\n"
            "{ name = \"huge\"; shape = [1099511627776L]; } );",
            16),
        GF_OK);
    assert_int_equal(tensor_count, 4);
    assert_string_equal(tensors[0].name, "w");
    assert_int_equal(tensors[0].elem_count, 512 * 3136);
    assert_int_equal(tensors[0].flags, 0);
    assert_int_equal(tensors[0].type, GF_TYPE_F32);
    assert_ptr_equal(tensors[1].name, names[1]);
    assert_int_equal(tensors[1].flags, GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY);
    assert_int_equal(tensors[1].type, GF_TYPE_BF16);
    assert_int_equal(tensors[2].elem_count, 0); /* valid */
    assert_int_equal(tensors[3].elem_count, 1ull << 40);
}

static const struct {
    const char *text;
    int line;
    const char *part;
} tensors_wrong[] = {
    {"tensors = ( );", 1, "0 tensors"},
    {"# nothing", 0, "must hold tensors = ("},
    {"tensors = [1];", 1, "tensors must be a list ("},
    {"tensors = ( { name = \"a\"; shape = [1]; } ); more = 1;", 1, "unknown key more"},
    {"tensors = (\n 1 );", 2, "tensor 0: must be a group"},
    {"tensors = ( { name = \"a\"; shape = [1]; },\n { shape = [1]; } );", 2,
     "tensor 1: name is missing"},
    {"tensors = ( { name = \"a\"; } );", 1, "tensor 0: shape is missing"},
    {"tensors = ( { name = \"\"; shape = [1]; } );", 1, "tensor 0: name must be"},
    {"tensors = ( { name = 1; shape = [1]; } );", 1, "tensor 0: name must be"},
    {"tensors = ( { name = \"a\\n\"; shape = [1]; } );", 1, "control character"},
    {"tensors = ( { name = \"123456789012345678901234567890123456789012345678\"; shape = [1]; } );",
     1, "1 to 47"},
    {"tensors = ( { name = \"a\"; shape = 1; } );", 1, "tensor 0: shape must be an array"},
    {"tensors = ( { name = \"a\"; shape = []; } );", 1, "tensor 0: shape must be an array"},
    {"tensors = ( { name = \"a\"; shape = [1,1,1,1,1,1,1,1,1]; } );", 1, "1 to 8 whole numbers"},
    {"tensors = ( { name = \"a\"; shape = [1, -1]; } );", 1, "shape[1] must be a whole number"},
    {"tensors = ( { name = \"a\"; shape = [1.5]; } );", 1, "shape[0] must be a whole number"},
    {"tensors = ( { name = \"a\"; shape = [\"1\"]; } );", 1, "shape[0] must be a whole number"},
    {"tensors = ( { name = \"a\"; shape = [1099511627777L]; } );", 1,
     "more than 1099511627776 elements"},
    {"tensors = ( { name = \"a\"; shape = [4294967296L, 4294967296L]; } );", 1,
     "more than 1099511627776"},
    {"tensors = ( { name = \"a\"; shape = [4294967296L, 4294967296L, 2L]; } );", 1,
     "more than 1099511627776"},
    {"tensors = ( { name = \"a\"; shape = [1]; flags = [\"sparse\"]; } );", 1,
     "tensor 0: flags must be"},
    {"tensors = ( { name = \"a\"; shape = [1]; flags = \"dense\"; } );", 1,
     "tensor 0: flags must be"},
    {"tensors = ( { name = \"a\"; shape = [1]; type = \"fp8\"; } );", 1, "tensor 0: type must be"},
    {"tensors = ( { name = \"a\"; shape = [1]; type = 1; } );", 1, "tensor 0: type must be"},
    {"tensors = ( { name = \"a\"; shape = [1]; dtype = 1; } );", 1, "tensor 0: unknown key dtype"},
    {"tensors = ( { name = \"a\"; shape = [1]; flops = 1; } );", 1,
     "tensor 0: flops must be [forward, backward]"},
    {"tensors = ( { name = \"a\"; shape = [1]; flops = [1]; } );", 1,
     "tensor 0: flops must be [forward, backward]"},
    {"tensors = ( { name = \"a\"; shape = [1]; flops = [1, 2, 3]; } );", 1,
     "tensor 0: flops must be"},
    {"tensors = ( { name = \"a\"; shape = [1]; flops = [1, -2]; } );", 1,
     "tensor 0: flops must be"},
    {"tensors = ( { name = \"a\"; shape = [1]; flops = [1.5, 2.5]; } );", 1,
     "tensor 0: flops must be"},
    {"tensors = ( { name = \"a\"; shape = [1]; flops = [1L, 562949953421313L]; } );", 1,
     "to 562949953421312"},
    {"tensors = ( { name = \"a\"; shape = [1]; input = 0; } );", 1,
     "tensor 0: input must be a whole number from 1"},
    {"tensors = ( { name = \"a\"; shape = [1]; input = \"1\"; } );", 1,
     "tensor 0: input must be a whole number from 1"},
    {"tensors = ( { name = \"a\"; shape = [1]; }, { name = \"b\"; shape = [1]; }, { name = \"c\"; "
     "shape = [1]; } );",
     1, "3 tensors; allowed are at most 2"},
    {"", 0, "is empty"},
    {"tensors = ( {", 2, "syntax error"},
};

TEST(tensor_tables_that_are_wrong_are_refused)
{
    for (size_t i = 0; i < LENGTH(tensors_wrong); i++) {
        if (tensors_load(tensors_wrong[i].text, 2) != GF_ERR_CONFIG)
            fail_msg("row %zu is not refused", i);
        file_error_check(tensors_wrong[i].line, tensors_wrong[i].part);
        assert_int_equal(tensor_count, 77);
    }
}

TEST(ten_thousand_tensors_are_valid)
{
    FILE *file = fopen(file_path, "w");
    assert_non_null(file);
    (void)fputs("tensors = (\n", file);
    for (unsigned i = 0; i < 10000; i++)
        (void)fprintf(
            file,
            "{ name = \"a.name.as.long.as.those.of.real.networks.%u\"; shape = [%u, 3]; flags = "
            "[\"dense\"]; }%s\n",
            i % 10, i, (i < 9999) ? "," : " );");
    assert_int_equal(fclose(file), 0);
    struct tool_model model = {.tensors = tensors, .names = names, .tensor_max = GF_TENSORS_MAX};
    if (tool_model_load(file_path, &model, file_error) != GF_OK) fail_msg("%s", file_error);
    assert_int_equal(model.tensor_count, 10000);
    for (unsigned i = 0; i < 10000; i++) assert_int_equal(tensors[i].elem_count, 3 * i);
}

TEST_AROUND(file_folder_make, file_folder_remove)
