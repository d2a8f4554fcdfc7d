/* The reference appliance's arithmetic: gradients against differences of the loss, a split batch
 * against the whole one, and a data set that is not what it should be against its error. */
#include "firmware-tests/support/suite.h"
#include "tools/train/train_loop.h"

#include <unistd.h>
#include <zlib.h>

#define IMAGES 12u

static const struct net_model *const models[] = {&net_cnn, &net_linear};

struct fixture {
    struct net net;
    struct data_set set; /* noise, and labels that follow from nothing */
    void *workspace;
    uint32_t ready_count, poll_count;
    bool ready_in_order;
};

static gf_status ready_count(void *user, uint32_t tensor)
{
    struct fixture *f = user;
    f->ready_in_order = f->ready_in_order && (tensor == f->ready_count);
    f->ready_count++;
    return GF_OK;
}

static gf_status poll_count(void *user)
{
    ((struct fixture *)user)->poll_count++;
    return GF_AGAIN;
}

static void *memory_take(size_t size_bytes)
{
    void *memory = aligned_alloc(64, (size_bytes + 63u) & ~(size_t)63u);
    assert_non_null(memory);
    memset(memory, 0xff, size_bytes); /* NaN: what is read before it is written shows */
    return memory;
}

static void fixture_open(struct fixture *f, const struct net_model *model)
{
    struct data_random random;
    data_random_seed(&random, 7, 0);
    *f = (struct fixture){.ready_in_order = true,
                          .workspace = memory_take(net_measure(model, &layers_host, IMAGES))};
    net_open(&f->net, model, &layers_host, NULL, IMAGES, f->workspace);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        f->net.weight[i] = memory_take(model->tensors[i].elem_count * sizeof(float));
        f->net.gradient[i] = memory_take(model->tensors[i].elem_count * sizeof(float));
    }
    model->init(&f->net, &random);
    f->net.sink = (struct net_sink){.user = f, .ready = ready_count, .poll = poll_count};
    f->set = (struct data_set){IMAGES, memory_take(IMAGES * DATA_PIXELS), memory_take(IMAGES)};
    for (uint32_t i = 0; i < IMAGES * DATA_PIXELS; i++)
        f->set.pixels[i] = (uint8_t)data_random_below(&random, 256);
    for (uint32_t i = 0; i < IMAGES; i++)
        f->set.labels[i] = (uint8_t)data_random_below(&random, DATA_CLASSES);
}

static void fixture_close(struct fixture *f)
{
    for (uint32_t i = 0; i < f->net.model->tensor_count; i++) {
        free(f->net.weight[i]);
        free(f->net.gradient[i]);
    }
    data_close(&f->set);
    free(f->workspace);
}

/* The mean loss of all images. */
static double loss_of(struct fixture *f)
{
    uint32_t hits;
    net_load(&f->net, &f->set, NULL, 0, IMAGES);
    f->net.model->forward(&f->net);
    return layer_softmax_loss(f->net.logits, f->net.labels, IMAGES, DATA_CLASSES, 1.0f / IMAGES,
                              &hits) /
           IMAGES;
}

/* Each tensor is moved a little both ways along its own gradient, where the loss changes most and
 * rounding matters least; the slope must be the gradient's length. */
static void slopes_check(const struct net_model *model)
{
    struct fixture f;
    fixture_open(&f, model);
    (void)loss_of(&f);
    assert_int_equal(model->backward(&f.net), GF_OK);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        uint64_t count = model->tensors[i].elem_count;
        float *weight = f.net.weight[i];
        float *kept = memory_take(count * sizeof *kept);
        double length = 0.0;
        double loss[2];
        memcpy(kept, weight, count * sizeof *kept);
        for (uint64_t j = 0; j < count; j++)
            length += (double)f.net.gradient[i][j] * (double)f.net.gradient[i][j];
        length = sqrt(length);
        assert_true(isfinite(length) && (length > 1e-2));
        const double reach = 2e-3;
        for (int side = 0; side < 2; side++) {
            double move = (side == 0) ? reach / length : -reach / length;
            for (uint64_t j = 0; j < count; j++)
                weight[j] = kept[j] + (float)(move * (double)f.net.gradient[i][j]);
            loss[side] = loss_of(&f);
        }
        memcpy(weight, kept, count * sizeof *kept);
        double slope = (loss[0] - loss[1]) / (2.0 * reach);
        if (!(fabs(slope - length) <= 0.02 * length + 1e-4))
            fail_msg("%s, %s: the loss has slope %g, backward says %g", model->name,
                     model->tensors[i].name, slope, length);
        free(kept);
    }
    fixture_close(&f);
}

TEST(test_gradients_are_slopes_of_the_loss)
{
    for (size_t i = 0; i < LENGTH(models); i++) slopes_check(models[i]);
}

/* The parts' gradients sum up to the whole's: any split over ranks is valid, also one that cuts a
 * chunk. */
static void split_check(const struct net_model *model, const uint32_t *parts, uint32_t part_count)
{
    struct fixture f;
    double *sum[NET_TENSORS_MAX];
    uint32_t first = 0;
    uint32_t hits;
    fixture_open(&f, model);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        sum[i] = calloc(model->tensors[i].elem_count, sizeof **sum);
        assert_non_null(sum[i]);
    }
    for (uint32_t part = 0; part < part_count; first += parts[part++]) {
        net_load(&f.net, &f.set, NULL, first, parts[part]);
        model->forward(&f.net);
        (void)layer_softmax_loss(f.net.logits, f.net.labels, parts[part], DATA_CLASSES,
                                 1.0f / IMAGES, &hits);
        assert_int_equal(model->backward(&f.net), GF_OK);
        for (uint32_t i = 0; i < model->tensor_count; i++)
            for (uint64_t j = 0; j < model->tensors[i].elem_count; j++)
                sum[i][j] += (double)f.net.gradient[i][j];
    }
    assert_int_equal(first, IMAGES);
    (void)loss_of(&f);
    f.ready_count = 0;
    assert_int_equal(model->backward(&f.net), GF_OK);
    assert_int_equal(f.ready_count, model->tensor_count);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        double apart = 0.0;
        double length = 0.0;
        for (uint64_t j = 0; j < model->tensors[i].elem_count; j++) {
            double whole = (double)f.net.gradient[i][j];
            apart += (whole - sum[i][j]) * (whole - sum[i][j]);
            length += whole * whole;
        }
        if (!(sqrt(apart) <= 1e-5 * sqrt(length)))
            fail_msg("%s: parts and whole differ", model->tensors[i].name);
        free(sum[i]);
    }
    fixture_close(&f);
}

TEST(test_parts_of_a_batch_sum_up_to_the_whole)
{
    split_check(&net_cnn, (const uint32_t[]){6, 6}, 2);
    split_check(&net_cnn, (const uint32_t[]){1, 4, 7}, 3);
    split_check(&net_linear, (const uint32_t[]){3, 0, 9}, 3);
}

TEST(test_each_tensor_is_declared_once_in_order_and_backward_polls)
{
    for (size_t i = 0; i < LENGTH(models); i++) {
        struct fixture f;
        fixture_open(&f, models[i]);
        (void)loss_of(&f);
        assert_int_equal(models[i]->backward(&f.net), GF_OK);
        assert_int_equal(f.ready_count, models[i]->tensor_count);
        assert_true(f.ready_in_order);
        /* softmax regression is done at once */
        assert_true((models[i] == &net_linear) || (f.poll_count >= 8));
        fixture_close(&f);
    }
}

static gf_status ready_refuse(void *user, uint32_t tensor)
{
    return (tensor == *(uint32_t *)user) ? GF_ERR_PEER : GF_OK;
}

TEST(test_an_error_of_the_library_ends_backward)
{
    for (size_t i = 0; i < LENGTH(models); i++) {
        struct fixture f;
        fixture_open(&f, models[i]);
        for (uint32_t refused = 0; refused < models[i]->tensor_count; refused++) {
            f.net.sink = (struct net_sink){.user = &refused, .ready = ready_refuse};
            (void)loss_of(&f);
            assert_int_equal(models[i]->backward(&f.net), GF_ERR_PEER);
        }
        fixture_close(&f);
    }
}

/* fold is unfold's transpose: <unfold(a), b> = <a, fold(b)>. In small whole numbers, so exactly. */
TEST(test_fold_is_the_transpose_of_unfold)
{
    enum { SIDE = 6, CHANNELS = 3, COUNT = 2, ROWS_MAX = COUNT * SIDE * SIDE * 5 * 5 * CHANNELS };
    static float image[COUNT * (SIDE + 4) * (SIDE + 4) * CHANNELS];
    static float folded[COUNT * (SIDE + 4) * (SIDE + 4) * CHANNELS];
    static float rows[ROWS_MAX];
    static float unfolded[ROWS_MAX];
    for (uint32_t kernel = 3; kernel <= 5; kernel += 2) {
        size_t elems = COUNT * layer_bordered_elems(SIDE, CHANNELS, kernel);
        size_t row_elems = COUNT * SIDE * SIDE * (size_t)(kernel * kernel) * CHANNELS;
        double left = 0.0;
        double right = 0.0;
        for (size_t i = 0; i < elems; i++) image[i] = (float)(i * 7 % 11) - 5.0f;
        for (size_t i = 0; i < row_elems; i++) rows[i] = (float)(i * 5 % 13) - 6.0f;
        layers_host.unfold(NULL, image, COUNT, SIDE, CHANNELS, kernel, unfolded);
        layers_host.fold(NULL, rows, COUNT, SIDE, CHANNELS, kernel, folded);
        for (size_t i = 0; i < row_elems; i++) left += (double)(unfolded[i] * rows[i]);
        for (size_t i = 0; i < elems; i++) right += (double)(image[i] * folded[i]);
        assert_true(left == right);
        assert_true(left != 0.0);
    }
}

TEST(test_order_is_a_permutation_that_seed_and_epoch_decide)
{
    enum { COUNT = 1000 };
    static uint32_t order[4][COUNT];
    static bool seen[COUNT];
    data_shuffle(1, 0, order[0], COUNT);
    data_shuffle(1, 0, order[1], COUNT);
    data_shuffle(1, 1, order[2], COUNT);
    data_shuffle(2, 0, order[3], COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(order[0][i] < COUNT);
        assert_false(seen[order[0][i]]);
        seen[order[0][i]] = true;
    }
    assert_memory_equal(order[0], order[1], sizeof order[0]);
    assert_memory_not_equal(order[0], order[2], sizeof order[0]);
    assert_memory_not_equal(order[0], order[3], sizeof order[0]);
}

TEST(test_shares_cover_the_batch)
{
    for (uint32_t world = 1; world < 70; world++) {
        assert_int_equal(train_share_first(64, 0, world), 0);
        assert_int_equal(train_share_first(64, world, world), 64);
        for (uint32_t rank = 0; rank < world; rank++) {
            uint32_t count =
                train_share_first(64, rank + 1, world) - train_share_first(64, rank, world);
            assert_in_range(count, 64 / world, (64 + world - 1) / world);
        }
    }
}

/* ---- data sets that are not what they should be ---- */

#define HEADER_BYTES 16u
#define SMALL_IMAGES 3u

static const struct data_case {
    const char *name;
    /* the header's word at byte `at` becomes `value`; of the labels' file if in_labels */
    uint32_t at, value;
    bool in_labels;
    int cut_bytes;     /* off the unpacked end; negative: more */
    const char *error; /* what the line must say; NULL: it is fine */
} data_cases[] = {
    {"whole", 0, 0x803, false, 0, NULL},
    {"magic of another file", 0, 0x801, false, 0,
     "offset 0 (unpacked): expected magic 0x00000803, found 0x00000801"},
    {"no images", 4, 0, false, 0, "offset 4 (unpacked): expected a count of 1"},
    {"too many images", 4, 0xffffffffu, false, 0, "offset 4 (unpacked): expected a count of 1"},
    {"another height", 8, 32, false, 0, "offset 8 (unpacked): expected image height"},
    {"another width", 12, 32, false, 0, "offset 12 (unpacked): expected image width"},
    {"cut in the pixels", 0, 0x803, false, 1, "expected 2352 bytes of pixels, found 2351"},
    {"cut in the header", 0, 0x803, false, 2352 + 2, "cut short"},
    {"more at the end", 0, 0x803, false, -1,
     "offset 2368 (unpacked): expected the end of the file"},
    {"labels of other images", 4, 4, true, 0,
     "expected a count of 3, as there are images, found 4"},
    {"magic of images for labels", 0, 0x803, true, 0, "expected magic 0x00000801"},
    {"cut in the labels", 0, 0x801, true, 1, "expected 3 bytes of labels, found 2"},
    {"label too large", 8, 0x09090a00u, true, 0,
     "offset 10 (unpacked): expected a label of 0 to 9, found 10"},
};

static void word_put(uint8_t *to, uint32_t value)
{
    for (uint32_t i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (24u - 8u * i));
}

static void idx_write(const char *folder, const char *kind, const struct data_case *c, bool labels)
{
    static uint8_t bytes[HEADER_BYTES + SMALL_IMAGES * DATA_PIXELS + 8];
    char path[256];
    uint32_t size = labels ? 8u + SMALL_IMAGES : HEADER_BYTES + SMALL_IMAGES * DATA_PIXELS;
    memset(bytes, 0, sizeof bytes);
    word_put(bytes, labels ? 0x801u : 0x803u);
    word_put(bytes + 4, SMALL_IMAGES);
    if (!labels) word_put(bytes + 8, DATA_SIDE);
    if (!labels) word_put(bytes + 12, DATA_SIDE);
    if (c->in_labels == labels) {
        word_put(bytes + c->at, c->value);
        size = (uint32_t)((int)size - c->cut_bytes);
    }
    (void)snprintf(path, sizeof path, "%s/train-%s-ubyte.gz", folder, kind);
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, size), (int)size);
    assert_int_equal(gzclose(file), Z_OK);
}

static void folder_remove(const char *folder)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/train-images-idx3-ubyte.gz", folder);
    (void)unlink(path);
    (void)snprintf(path, sizeof path, "%s/train-labels-idx1-ubyte.gz", folder);
    (void)unlink(path);
    (void)rmdir(folder);
}

TEST(test_a_data_set_is_whole_or_its_error_says_where)
{
    char folder[] = "/tmp/gf-test-XXXXXX";
    char error[DATA_ERROR_BYTES];
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < LENGTH(data_cases); i++) {
        const struct data_case *c = &data_cases[i];
        struct data_set set = {0};
        idx_write(folder, "images-idx3", c, false);
        idx_write(folder, "labels-idx1", c, true);
        int result = data_open(folder, "train", &set, error);
        if ((result == 0) != (c->error == NULL)) fail_msg("%s: gave %d", c->name, result);
        if (c->error == NULL) assert_int_equal(set.image_count, SMALL_IMAGES);
        if ((c->error != NULL) &&
            ((strstr(error, c->error) == NULL) || (strstr(error, folder) == NULL)))
            fail_msg("%s: wanted \"%s\" in \"%s\"", c->name, c->error, error);
        if (c->error != NULL) assert_null(set.pixels);
        data_close(&set);
    }
    folder_remove(folder);
}

TEST(test_packed_files_cut_or_changed_are_refused)
{
    char folder[] = "/tmp/gf-test-XXXXXX";
    char path[256];
    char error[DATA_ERROR_BYTES];
    struct data_set set = {0};
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/train-images-idx3-ubyte.gz", folder);
    assert_int_equal(data_open(folder, "train", &set, error), -1);
    assert_non_null(strstr(error, "No such file"));
    idx_write(folder, "images-idx3", &data_cases[0], false);
    idx_write(folder, "labels-idx1", &data_cases[0], true);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    (void)fseek(file, -8, SEEK_END);
    (void)fputc('?', file); /* in gzip's checksum */
    (void)fclose(file);
    assert_int_equal(data_open(folder, "train", &set, error), -1);
    assert_non_null(strstr(error, path));
    assert_int_equal(truncate(path, 30), 0);
    assert_int_equal(data_open(folder, "train", &set, error), -1);
    assert_non_null(strstr(error, "cut short"));
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(data_open(folder, "train", &set, error), -1);
    assert_non_null(strstr(error, "found 0"));
    folder_remove(folder);
}
