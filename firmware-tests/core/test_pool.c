/* Where tensors lie and which travel together, for tables of every kind. */
#include "firmware-tests/support/suite.h"
#include "lib/core/pool.h"
#include "lib/core/arena.h"

#define TENSORS 500u

/* Kinds of tables: how large tensors are, how many types there are, and whether some are dense. */
static const struct table_case {
    const char *name;
    uint64_t elems_max;
    uint32_t types;
    bool sparse;
} tables[] = {
    {"empty", 0, 1, false},      {"scalars", 1, 1, false},
    {"small", 255, 1, false},    {"around the gap", 600, 1, false},
    {"large", 100000, 1, false}, {"mixed types", 3000, 3, false},
    {"sparse", 3000, 1, true},   {"sparse and types", 700, 3, true},
};

/* gf_pool_layout() wants effective values */
#define EXCHANGE                                     \
    {                                                \
        .fuse_bytes = 4 << 20, .cut_bytes = 16 << 20 \
    }

static uint64_t seed;

static uint32_t random_below(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((seed >> 33) % below);
}

static void table_make(const struct table_case *c, struct gf_tensor *tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        bool dense = c->sparse && (random_below(3) == 0);
        tensors[i] =
            (struct gf_tensor){.name = "t", .elem_count = random_below((uint32_t)c->elems_max + 1)};
        if (dense) tensors[i].flags = GF_TENSOR_DENSE;
        if (!c->sparse || dense) tensors[i].type = (gf_type)random_below(c->types);
    }
}

static void check_places(const struct gf_tensor *tensors, const struct gf_pool_tensor *table,
                         uint32_t count, const struct gf_pool_sizes *sizes, bool sparse)
{
    uint64_t next = 0;
    uint64_t bytes = 0;
    uint64_t sparse_end = 0;
    for (int part = 1; part >= 0; part--) {
        int type = -1;
        for (uint32_t i = 0; i < count; i++) {
            const struct gf_pool_tensor *at = &table[i];
            uint64_t elem_bytes = gf_type_size_bytes(tensors[i].type);
            bool is_sparse = sparse && ((tensors[i].flags & GF_TENSOR_DENSE) == 0);
            if (is_sparse != (part == 1)) continue;
            assert_int_equal(at->elem_count, tensors[i].elem_count);
            assert_int_equal(at->type, tensors[i].type);
            assert_int_equal(at->sparse, is_sparse);
            assert_true((at->first_elem >= next) && (at->first_elem - next < GF_POOL_ALIGN_ELEMS));
            assert_true(at->gradient_offset >= bytes);
            assert_int_equal(at->gradient_offset % elem_bytes, 0);
            if (type == (int)tensors[i].type) { /* neighbours: one flat range in every pool */
                assert_int_equal(at->gradient_offset - bytes, (at->first_elem - next) * elem_bytes);
                if (at->elem_count < GF_POOL_SMALL_ELEMS) assert_int_equal(at->first_elem, next);
            } else {
                assert_int_equal(at->gradient_offset % GF_ALIGN_BYTES, 0);
                assert_int_equal(at->first_elem % GF_POOL_ALIGN_ELEMS, 0);
            }
            if (at->elem_count >= GF_POOL_SMALL_ELEMS)
                assert_int_equal(at->first_elem % GF_POOL_ALIGN_ELEMS, 0);
            type = (int)tensors[i].type;
            next = at->first_elem + at->elem_count;
            bytes = at->gradient_offset + at->elem_count * elem_bytes;
        }
        if (part == 1) sparse_end = next;
    }
    assert_int_equal(sizes->sparse_elem_count, sparse_end);
    assert_int_equal(sizes->elem_count, gf_align_up(next, GF_POOL_ALIGN_ELEMS));
    assert_int_equal(sizes->gradient_bytes, gf_align_up(bytes, GF_ALIGN_BYTES));
}

TEST(tensors_lie_in_order_without_overlap_aligned_and_flat)
{
    static struct gf_tensor tensors[TENSORS];
    static struct gf_pool_tensor table[TENSORS];
    for (size_t row = 0; row < LENGTH(tables) * 20; row++) {
        const struct table_case *c = &tables[row % LENGTH(tables)];
        struct gf_config config = {.sparse.enabled = c->sparse,
                                   .exchange = {.fuse_bytes = 4096, .cut_bytes = 65536}};
        struct gf_pool_sizes measured;
        struct gf_pool_sizes placed;
        char error[256] = "";
        uint32_t count = 1 + (uint32_t)(row * 13) % TENSORS;
        seed = row;
        table_make(c, tensors, count);
        assert_int_equal(gf_pool_layout(&config, tensors, count, NULL, &measured, error), GF_OK);
        assert_int_equal(gf_pool_layout(&config, tensors, count, table, &placed, error), GF_OK);
        assert_memory_equal(&measured, &placed, sizeof placed);
        check_places(tensors, table, count, &placed, c->sparse);
    }
}

TEST(buffers_hold_each_tensor_once_and_are_as_large_as_asked)
{
    static const uint64_t fuses[] = {1, 100, 4096, 65536, 1u << 30};
    static struct gf_tensor tensors[TENSORS];
    static struct gf_pool_tensor table[TENSORS];
    static struct gf_buffer buffers[TENSORS];
    static uint32_t seen[TENSORS];
    for (size_t row = 0; row < LENGTH(tables) * LENGTH(fuses) * GF_TYPE_COUNT; row++) {
        const struct table_case *c = &tables[row % LENGTH(tables)];
        uint64_t fuse = fuses[row / LENGTH(tables) % LENGTH(fuses)];
        gf_type wire = (gf_type)(row / LENGTH(tables) / LENGTH(fuses));
        struct gf_config config = {
            .sparse.enabled = c->sparse,
            .exchange = {.wire = wire, .fuse_bytes = fuse, .cut_bytes = UINT64_C(1) << 40}};
        struct gf_pool_sizes sizes;
        char error[256] = "";
        uint32_t sparse_count;
        uint32_t count;
        seed = row;
        table_make(c, tensors, TENSORS);
        assert_int_equal(gf_pool_layout(&config, tensors, TENSORS, table, &sizes, error), GF_OK);
        sparse_count = gf_pool_group(&config, table, TENSORS, true, buffers, 0);
        count = gf_pool_group(&config, table, TENSORS, false, buffers, sparse_count);
        assert_int_equal(sparse_count > 0, c->sparse);
        assert_true(count <= TENSORS);
        memset(seen, 0, sizeof seen);
        for (uint32_t b = 0; b < count; b++) {
            const struct gf_buffer *buffer = &buffers[b];
            const struct gf_buffer *next = &buffers[b + 1];
            uint64_t bytes = buffer->elem_count * gf_type_size_bytes(wire);
            uint64_t without = 0;
            uint32_t tensor_count = 0;
            assert_int_equal(buffer->sparse, b < sparse_count);
            for (uint32_t i = buffer->first_tensor; i <= buffer->last_tensor; i++) {
                if (table[i].sparse != buffer->sparse) continue;
                assert_int_equal(table[i].buffer_first, b);
                assert_int_equal(table[i].buffer_count, 1);
                assert_int_equal(table[i].type, buffer->type);
                assert_true(table[i].first_elem >= buffer->first_elem);
                assert_true(table[i].first_elem + table[i].elem_count <=
                            buffer->first_elem + buffer->elem_count);
                if (i == buffer->last_tensor)
                    without = (table[i].first_elem - buffer->first_elem) * gf_type_size_bytes(wire);
                seen[i]++;
                tensor_count++;
            }
            assert_int_equal(tensor_count, buffer->tensor_count);
            /* closed when full */
            if (tensor_count > 1) assert_true(without < fuse + GF_POOL_ALIGN_ELEMS * sizeof(float));
            if ((b + 1 < count) && (next->sparse == buffer->sparse) && (next->type == buffer->type))
                assert_true(bytes >= fuse);
        }
        for (uint32_t i = 0; i < TENSORS; i++) assert_int_equal(seen[i], 1);
    }
}

#define PIECES_MAX 60000u

/* Whether [first, first + count) of each meet; an empty tensor lies in one buffer of its own
 * choice. */
static bool meet(const struct gf_buffer *buffer, const struct gf_pool_tensor *tensor)
{
    return (tensor->sparse == buffer->sparse) &&
           (tensor->first_elem < buffer->first_elem + buffer->elem_count) &&
           (buffer->first_elem < tensor->first_elem + tensor->elem_count);
}

static void check_pieces(const struct gf_config *config, const struct gf_pool_tensor *table,
                         const struct gf_buffer *buffers, uint32_t count)
{
    static uint32_t waits[PIECES_MAX];
    uint64_t wire_bytes = gf_type_size_bytes(config->exchange.wire);
    uint64_t next = 0;
    memset(waits, 0, sizeof waits);
    for (uint32_t i = 0; i < TENSORS; i++) {
        const struct gf_pool_tensor *tensor = &table[i];
        uint32_t end = tensor->buffer_first + tensor->buffer_count;
        assert_true((tensor->buffer_count >= 1) && (end <= count));
        for (uint32_t b = tensor->buffer_first; b < end; b++) waits[b]++;
        if (tensor->elem_count == 0) continue;
        for (uint32_t b = tensor->buffer_first; b < end; b++)
            assert_true(meet(&buffers[b], tensor));
        assert_true(buffers[tensor->buffer_first].first_elem <= tensor->first_elem);
        assert_true(buffers[end - 1].first_elem + buffers[end - 1].elem_count >=
                    tensor->first_elem + tensor->elem_count);
    }
    for (uint32_t b = 0; b < count; b++) {
        const struct gf_buffer *buffer = &buffers[b];
        assert_true(buffer->first_elem >= next); /* in order, nothing travels twice */
        next = buffer->first_elem + buffer->elem_count;
        assert_int_equal(buffer->tensor_count, waits[b]);
        assert_true((waits[b] > 0) && (buffer->first_tensor <= buffer->last_tensor));
        assert_int_equal(table[buffer->first_tensor].sparse, buffer->sparse);
        assert_int_equal(table[buffer->last_tensor].type, buffer->type);
        assert_int_equal(
            buffer->gradient_offset - table[buffer->first_tensor].gradient_offset,
            (buffer->first_elem - table[buffer->first_tensor].first_elem) *
                gf_type_size_bytes(
                    (gf_type)buffer->type)); /* both may be below 0: it begins in a gap */
        if (buffer->elem_count > GF_POOL_CUT_ELEMS)
            assert_true(buffer->elem_count * wire_bytes <
                        gf_pool_cut_bytes(config) + GF_POOL_CUT_ELEMS * wire_bytes);
    }
}

TEST(what_is_too_large_is_cut_and_pieces_know_their_tensors)
{
    static const uint64_t fuses[] = {1, 4096, 65536};
    static const uint64_t cuts[] = {4096, 10000, 1 << 20};
    static struct gf_tensor tensors[TENSORS];
    static struct gf_pool_tensor table[TENSORS];
    static struct gf_buffer buffers[PIECES_MAX];
    uint64_t cut = 0;
    for (size_t row = 0; row < LENGTH(tables) * LENGTH(fuses) * LENGTH(cuts) * GF_TYPE_COUNT;
         row++) {
        const struct table_case *c = &tables[row % LENGTH(tables)];
        size_t rest = row / LENGTH(tables);
        struct gf_config config = {.sparse.enabled = c->sparse};
        struct gf_pool_sizes sizes;
        char error[256] = "";
        uint32_t count;
        config.exchange.fuse_bytes = fuses[rest % LENGTH(fuses)];
        config.exchange.cut_bytes = cuts[rest / LENGTH(fuses) % LENGTH(cuts)];
        config.exchange.wire = (gf_type)(rest / LENGTH(fuses) / LENGTH(cuts));
        seed = row;
        table_make(c, tensors, TENSORS);
        assert_int_equal(gf_pool_layout(&config, tensors, TENSORS, table, &sizes, error), GF_OK);
        assert_true(sizes.buffer_count <= PIECES_MAX);
        count = gf_pool_group(&config, table, TENSORS, true, buffers, 0);
        count = gf_pool_group(&config, table, TENSORS, false, buffers, count);
        assert_int_equal(count, sizes.buffer_count);
        check_pieces(&config, table, buffers, count);
        for (uint32_t i = 0; i < TENSORS; i++) cut += table[i].buffer_count > 1;
    }
    assert_true(cut > TENSORS);
}

/* Whatever the cut: a large tensor alone could make fewer pieces than with a small one before
 * it. */
TEST(in_an_order_of_ones_own_there_are_no_more_pieces_than_measured)
{
    static struct gf_tensor tensors[TENSORS];
    static struct gf_pool_tensor table[TENSORS];
    static struct gf_buffer buffers[PIECES_MAX];
    static uint32_t order[TENSORS];
    for (uint32_t i = 0; i < TENSORS; i++) {
        order[i] = i;
        tensors[i] = (struct gf_tensor){.elem_count = (i % 2 == 0) ? 1015 : 18433};
    }
    for (uint64_t cut = 4096; cut < 4400; cut += 4) {
        struct gf_config config = {.exchange = {.fuse_bytes = cut, .cut_bytes = cut},
                                   .pool_order = order};
        struct gf_pool_sizes sizes;
        char error[256] = "";
        assert_int_equal(gf_pool_layout(&config, tensors, TENSORS, table, &sizes, error), GF_OK);
        assert_true(gf_pool_group(&config, table, TENSORS, false, buffers, 0) <=
                    sizes.buffer_count);
    }
}

TEST(a_large_tensor_is_cut_into_equal_pieces)
{
    static const struct gf_tensor tensors[] = {
        {.elem_count = 100}, {.elem_count = 37748736}, {.elem_count = 4096}};
    static const struct gf_config config = {
        .exchange = {.fuse_bytes = 4 << 20, .cut_bytes = 16 << 20}};
    static struct gf_pool_tensor table[3];
    static struct gf_buffer buffers[16];
    struct gf_pool_sizes sizes;
    char error[256];
    assert_int_equal(gf_pool_layout(&config, tensors, 3, table, &sizes, error), GF_OK);
    /* 151 MB and 16 KiB */
    assert_int_equal(gf_pool_group(&config, table, 3, false, buffers, 0), 11);
    for (uint32_t b = 0; b < 9; b++)
        assert_true((buffers[b].elem_count > 3700000) &&
                    (buffers[b].elem_count == buffers[0].elem_count));
    assert_true((buffers[9].elem_count > 3700000) &&
                (buffers[9].elem_count <= buffers[0].elem_count));
    assert_int_equal(table[0].buffer_count, 1);
    assert_int_equal(table[1].buffer_count, 10);
    assert_int_equal(buffers[0].tensor_count, 2); /* the small one beside a piece */
    assert_int_equal(buffers[5].first_tensor, 1);
    assert_int_equal(buffers[10].first_tensor, 2);
}

TEST(elements_are_found_and_gaps_are_nobodys)
{
    static const struct gf_tensor tensors[] = {{.elem_count = 0},   {.elem_count = 300},
                                               {.elem_count = 257}, {.elem_count = 1},
                                               {.elem_count = 0},   {.elem_count = 256}};
    static struct gf_config config = {.exchange = EXCHANGE};
    static struct gf_pool_tensor table[LENGTH(tensors)];
    struct gf_pool_sizes sizes;
    char error[256];
    assert_int_equal(gf_pool_layout(&config, tensors, LENGTH(tensors), table, &sizes, error),
                     GF_OK);
    for (uint64_t e = 0; e < sizes.elem_count; e++) {
        uint32_t expected = GF_TENSOR_NONE;
        for (uint32_t i = 0; i < LENGTH(tensors); i++)
            if ((e >= table[i].first_elem) && (e < table[i].first_elem + table[i].elem_count))
                expected = i;
        assert_int_equal(gf_pool_find(table, 0, LENGTH(tensors) - 1, false, e), expected);
    }
    assert_int_equal(gf_pool_find(table, 0, LENGTH(tensors) - 1, false, 300), GF_TENSOR_NONE);
    assert_int_equal(gf_pool_find(table, 2, 3, false, 5), GF_TENSOR_NONE);
    assert_int_equal(gf_pool_find(table, 0, LENGTH(tensors) - 1, true, 5), GF_TENSOR_NONE);
}

TEST(what_breaks_a_limit_is_refused_and_named)
{
    static struct gf_tensor many[GF_TENSORS_MAX + 1];
#define LIMIT (UINT64_C(1) << 37)
    static const struct limit_case {
        struct gf_tensor tensors[2];
        uint32_t count;
        bool sparse;
        const char *error; /* NULL: valid */
    } cases[] = {
        {{{.name = "w", .elem_count = LIMIT}}, 1, false, NULL},
        {{{.name = "w", .elem_count = LIMIT + 1}},
         1,
         false,
         "tensor 0 \"w\": 137438953473 elements"},
        {{{.name = "w", .elem_count = UINT64_MAX}}, 1, false, "tensor 0 \"w\""},
        {{{.name = "v", .elem_count = 1}, {.name = "w", .elem_count = LIMIT}},
         2,
         false,
         "tensor 1 \"w\""},
        /* which begins on 64 bytes */
        {{{.elem_count = LIMIT - 300}, {.elem_count = 299}}, 2, false, "tensor 1 \"\""},
        /* likewise */
        {{{.elem_count = LIMIT - 1}, {.elem_count = 1, .type = GF_TYPE_F16}},
         2,
         false,
         "tensor 1 \"\""},
        {{{.name = "v", .elem_count = LIMIT / 2 + 1}, {.name = "w"}}, 2, true, NULL},
        {{{.name = "w", .type = GF_TYPE_COUNT}}, 1, false, "tensor 0 \"w\": type is 3"},
        {{{.name = "w", .type = (gf_type)-1}}, 1, false, "tensor 0 \"w\": type is -1"},
        {{{.name = NULL, .flags = 4}}, 1, false, "tensor 0 \"\": unknown flags 0x4"},
        {{{.name = "v"}, {.name = "w", .type = GF_TYPE_F16}}, 2, false, NULL},
        {{{.name = "v"}, {.name = "w", .type = GF_TYPE_F16}},
         2,
         true,
         "tensor 1 \"w\": sparse tensors must share one type"},
        {{{.name = "v"}, {.name = "w", .type = GF_TYPE_F16, .flags = GF_TENSOR_DENSE}},
         2,
         true,
         NULL},
    };
    static struct gf_config config = {.exchange = EXCHANGE};
    struct gf_pool_sizes sizes;
    char error[256];
    for (size_t row = 0; row < LENGTH(cases); row++) {
        config.sparse.enabled = cases[row].sparse;
        error[0] = '\0';
        assert_int_equal(
            gf_pool_layout(&config, cases[row].tensors, cases[row].count, NULL, &sizes, error),
            (cases[row].error == NULL) ? GF_OK : GF_ERR_PARAM);
        if (cases[row].error != NULL) assert_non_null(strstr(error, cases[row].error));
    }
    config.sparse.enabled = false;
    assert_int_equal(gf_pool_layout(&config, many, GF_TENSORS_MAX, NULL, &sizes, error), GF_OK);
    assert_int_equal(gf_pool_layout(&config, many, GF_TENSORS_MAX + 1, NULL, &sizes, error),
                     GF_ERR_PARAM);
    assert_non_null(strstr(error, "16385 tensors; allowed are 1 to 16384"));
    assert_int_equal(gf_pool_layout(&config, many, 0, NULL, &sizes, error), GF_ERR_PARAM);
    assert_int_equal(gf_pool_layout(&config, NULL, 1, NULL, &sizes, error), GF_ERR_PARAM);
}

#define MANY 3000u

/* Whatever sums and hashes it has in common with one that does. */
TEST(an_order_names_each_tensor_once)
{
    static struct gf_tensor tensors[MANY];
    static uint32_t order[MANY];
    static const uint32_t four[][4] = {{0, 0, 3, 3}, {1, 1, 2, 2}, {2, 1, 3, 2}};
    struct gf_config config = {.exchange = EXCHANGE};
    struct gf_pool_sizes sizes;
    char error[256] = "";
    for (size_t i = 0; i < LENGTH(four); i++) {
        config.pool_order = four[i];
        assert_int_equal(gf_pool_layout(&config, tensors, 4, NULL, &sizes, error), GF_ERR_PARAM);
    }
    for (uint32_t i = 0; i < MANY; i++) order[i] = MANY - 1 - i;
    config.pool_order = order;
    assert_int_equal(gf_pool_layout(&config, tensors, MANY, NULL, &sizes, error), GF_OK);
    order[7] = order[MANY - 3];
    assert_int_equal(gf_pool_layout(&config, tensors, MANY, NULL, &sizes, error), GF_ERR_PARAM);
    assert_non_null(strstr(error, "pool_order names a tensor twice: 2;"));
}

TEST(names_are_cut_not_overrun)
{
    char name[100];
    struct gf_tensor tensor = {.name = name, .elem_count = 1};
    static struct gf_config config = {.exchange = EXCHANGE};
    struct gf_pool_tensor placed;
    struct gf_pool_sizes sizes;
    char error[256];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(gf_pool_layout(&config, &tensor, 1, &placed, &sizes, error), GF_OK);
    assert_int_equal(strlen(placed.name), GF_NAME_BYTES - 1);
}

TEST(every_difference_changes_the_hash)
{
    /* they differ in the last letter that counts */
    char longest[GF_NAME_BYTES];
    char other[GF_NAME_BYTES];
    (void)snprintf(longest, sizeof longest, "%0*d", (int)sizeof longest - 1, 1);
    (void)snprintf(other, sizeof other, "%0*d", (int)sizeof other - 1, 2);
    const struct gf_tensor tensors[][2] = {
        {{.name = "a", .elem_count = 5}, {.name = "b", .elem_count = 6}},
        {{.name = "b", .elem_count = 5}, {.name = "a", .elem_count = 6}},
        {{.name = "a", .elem_count = 6}, {.name = "b", .elem_count = 5}},
        {{.name = "a", .elem_count = 5}, {.name = "b", .elem_count = 6, .flags = GF_TENSOR_DENSE}},
        {{.name = "a", .elem_count = 5, .type = GF_TYPE_F16}, {.name = "b", .elem_count = 6}},
        {{.name = "", .elem_count = 5}, {.name = "ab", .elem_count = 6}},
        {{.name = longest, .elem_count = 5}, {.name = "b", .elem_count = 6}},
        {{.name = other, .elem_count = 5}, {.name = "b", .elem_count = 6}},
    };
    static const uint32_t orders[][2] = {{0, 1}, {1, 0}};
    struct gf_config config = {0};
    uint64_t hashes[LENGTH(tensors) + 1 + LENGTH(orders)];
    for (size_t i = 0; i < LENGTH(tensors); i++) hashes[i] = gf_pool_hash(&config, tensors[i], 2);
    hashes[LENGTH(tensors)] = gf_pool_hash(&config, tensors[0], 1);
    for (size_t i = 0; i < LENGTH(orders); i++) {
        config.pool_order = orders[i];
        hashes[LENGTH(tensors) + 1 + i] = gf_pool_hash(&config, tensors[0], 2);
    }
    config.pool_order = NULL;
    for (size_t i = 0; i < LENGTH(hashes); i++)
        for (size_t j = 0; j < i; j++) assert_true(hashes[i] != hashes[j]);
    assert_true(gf_pool_hash(&config, tensors[0], 2) == hashes[0]);
}
