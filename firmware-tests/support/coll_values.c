/* What a group of ranks holds before a collective, and the reference: what it must hold afterwards,
 * to the bit. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/coll_group.h"

static uint32_t mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

static void values(const struct coll_group *group, bool exact, uint32_t index, void *values_out)
{
    const struct coll_case *c = &group->c;
    float *wide = malloc(c->elem_count * sizeof *wide + 1);
    assert_non_null(wide);
    for (uint32_t i = 0; i < c->elem_count; i++) {
        uint32_t random = mix(index * 65537u + i + 1);
        wide[i] = exact ? (float)(random % 7)
                        : (float)(int32_t)random * 0x1p-31f * (float)(1u << (random & 7));
    }
    if (c->reduce_elem_bytes) {
        for (size_t i = 0; i < coll_group_data_bytes(group); i++) {
            ((unsigned char *)values_out)[i] = (unsigned char)mix(index * 65537u + (uint32_t)i);
        }
    } else {
        gf_status status = gf_element_ops_best()->cast(NULL, (gf_mem)(uintptr_t)values_out, c->type,
                                                       (gf_mem)(uintptr_t)wide, GF_TYPE_F32,
                                                       c->elem_count, 1.0f, 0, NULL);
        assert_int_equal(status, GF_OK);
    }
    free(wide);
}

void coll_group_fill(struct coll_group *group, bool exact)
{
    group->is_exact = exact;
    for (uint32_t i = 0; i < group->c.size; i++) values(group, exact, i, coll_group_data(group, i));
}

struct reference {
    const struct coll_group *group;
    unsigned char *vectors; /* each rank's values, added to each other */
    size_t vector_bytes;
};

/* vector[to] += vector[from] for a range. */
static void add_range(const struct reference *ref, uint32_t to, uint32_t from, uint64_t first,
                      uint64_t count)
{
    const struct coll_case *c = &ref->group->c;
    size_t elem_bytes = ref->group->elem_bytes;
    unsigned char *dst = ref->vectors + to * ref->vector_bytes + first * elem_bytes;
    const unsigned char *src = ref->vectors + from * ref->vector_bytes + first * elem_bytes;
    if (c->reduce_elem_bytes) {
        for (size_t i = 0; i < count * elem_bytes; i++) dst[i] ^= src[i];
    } else {
        const struct gf_element_ops *ops = gf_element_ops_best();
        assert_int_equal(
            ops->sum(NULL, (gf_mem)(uintptr_t)dst, (gf_mem)(uintptr_t)src, c->type, count, 0, NULL),
            GF_OK);
    }
}

static void add(const struct reference *ref, uint32_t to, uint32_t from)
{
    add_range(ref, to, from, 0, ref->group->c.elem_count);
}

/* The sum that starts at the right of a block's owner and ends there. */
static void sum_ring(const struct reference *ref)
{
    const struct coll_case *c = &ref->group->c;
    for (uint32_t block = 0; block < c->size; block++) {
        uint64_t first;
        uint64_t count;
        gf_coll_block(c->elem_count, c->size, block, &first, &count);
        for (uint32_t hop = 1; hop < c->size; hop++) {
            add_range(ref, (block + hop + 1) % c->size, (block + hop) % c->size, first, count);
        }
        memcpy(ref->vectors + first * ref->group->elem_bytes,
               ref->vectors + block * ref->vector_bytes + first * ref->group->elem_bytes,
               count * ref->group->elem_bytes);
    }
}

/* Neighbours, then pairs of neighbours and so on; what is beyond `power` ranks was added to the
 * first ones before. */
static void sum_pairs(const struct reference *ref, uint32_t power)
{
    uint32_t size = ref->group->c.size;
    for (uint32_t i = power; i < size; i++) add(ref, i - power, i);
    for (uint32_t near = 1; near < power; near *= 2) {
        for (uint32_t i = 0; i + near < ((power < size) ? power : size); i += 2 * near)
            add(ref, i, i + near);
    }
}

/* In fp32 over all ranks, rounded once. */
static void sum_once(const struct reference *ref)
{
    const struct coll_case *c = &ref->group->c;
    float *wide = calloc(2 * c->elem_count + 1, sizeof *wide);
    float *next = wide + c->elem_count;
    gf_mem result = (gf_mem)(uintptr_t)ref->vectors;
    const struct gf_element_ops *ops = gf_element_ops_best();
    assert_non_null(wide);
    for (uint32_t i = 0; i < c->size; i++) {
        assert_int_equal(ops->cast(NULL, (gf_mem)(uintptr_t)next, GF_TYPE_F32,
                                   result + i * ref->vector_bytes, c->type, c->elem_count, 1.0f, 0,
                                   NULL),
                         GF_OK);
        for (uint64_t e = 0; e < c->elem_count; e++)
            wide[e] = (i == 0) ? next[e] : wide[e] + next[e];
    }
    assert_int_equal(ops->cast(NULL, result, c->type, (gf_mem)(uintptr_t)wide, GF_TYPE_F32,
                               c->elem_count, 1.0f, 0, NULL),
                     GF_OK);
    free(wide);
}

/* Each node's sum in one rounding, then over nodes as halving or ring has it, a block an owner. */
static void sum_nodes(const struct reference *ref)
{
    const struct coll_case *c = &ref->group->c;
    const struct gf_coll_nodes *nodes = &ref->group->nodes[0].nodes;
    size_t elem_bytes = ref->group->elem_bytes;
    uint64_t line = 64 / elem_bytes;
    uint64_t block = ((c->elem_count + nodes->owners - 1) / nodes->owners + line - 1) / line * line;
    struct coll_group part = *ref->group;
    struct reference sub = {&part, NULL, 0};
    bool halves =
        (c->halving_max_bytes == UINT64_MAX) ||
        ((nodes->node_count > 2) &&
         gf_halving_pays(nodes->node_count, c->elem_count * elem_bytes, c->halving_max_bytes));
    for (uint32_t n = 0, first = 0; n < nodes->node_count; first += c->node_ranks[n++]) {
        part.c.size = c->node_ranks[n];
        sub =
            (struct reference){&part, ref->vectors + first * ref->vector_bytes, ref->vector_bytes};
        sum_once(&sub);
        memmove(ref->vectors + n * ref->vector_bytes, sub.vectors, ref->vector_bytes);
    }
    part.c.size = nodes->node_count;
    sub.vectors = malloc(nodes->node_count * block * elem_bytes + 1);
    assert_non_null(sub.vectors);
    for (uint64_t first = 0; first < c->elem_count; first += block) {
        uint32_t power = 1;
        part.c.elem_count = (c->elem_count - first < block) ? c->elem_count - first : block;
        sub.vector_bytes = part.c.elem_count * elem_bytes;
        while (2 * power <= part.c.size) power *= 2;
        for (uint32_t n = 0; n < part.c.size; n++)
            memcpy(sub.vectors + n * sub.vector_bytes,
                   ref->vectors + n * ref->vector_bytes + first * elem_bytes, sub.vector_bytes);
        if (halves)
            sum_pairs(&sub, power);
        else if (part.c.size > 1)
            sum_ring(&sub);
        memcpy(ref->vectors + first * elem_bytes, sub.vectors, sub.vector_bytes);
    }
    free(sub.vectors);
}

static void sum(const struct reference *ref)
{
    uint32_t size = ref->group->c.size;
    uint32_t power = 1;
    while (2 * power <= size) power *= 2;
    if ((ref->group->c.kind == &gf_coll_direct) && (ref->group->c.reduce_elem_bytes == 0)) {
        sum_once(ref);
    } else if (ref->group->c.kind == &gf_coll_hierarchy) {
        sum_nodes(ref);
    } else if (ref->group->c.kind == &gf_coll_ring) {
        sum_ring(ref);
    } else if (ref->group->c.kind == &gf_coll_server) {
        for (uint32_t i = 1; i < size; i++) add(ref, 0, i);
    } else if (ref->group->c.kind == &gf_coll_tree) {
        sum_pairs(ref, 2 * power);
    } else {
        sum_pairs(ref, power);
    }
}

/* Leaves in vector 0 what all (reduce-scatter: each in its block) must hold. */
static void expect(const struct reference *ref)
{
    const struct coll_case *c = &ref->group->c;
    size_t elem_bytes = ref->group->elem_bytes;
    switch (c->collective) {
    case GF_COLL_ALLREDUCE:
    case GF_COLL_REDUCE_SCATTER: sum(ref); break;
    case GF_COLL_BROADCAST:
        memcpy(ref->vectors, ref->vectors + c->root * ref->vector_bytes, ref->vector_bytes);
        break;
    case GF_COLL_ALLGATHER:
        for (uint32_t block = 1; block < c->size; block++) {
            uint64_t first;
            uint64_t count;
            gf_coll_block(c->elem_count, c->size, block, &first, &count);
            memcpy(ref->vectors + first * elem_bytes,
                   ref->vectors + block * ref->vector_bytes + first * elem_bytes,
                   count * elem_bytes);
        }
        break;
    case GF_COLL_BARRIER: break;
    }
}

void coll_group_check(const struct coll_group *group)
{
    struct reference ref = {.group = group, .vector_bytes = coll_group_data_bytes(group)};
    uint32_t size = group->c.size;
    ref.vectors = malloc(size * ref.vector_bytes + 1);
    assert_non_null(ref.vectors);
    for (uint32_t i = 0; i < size; i++)
        values(group, group->is_exact, i, ref.vectors + i * ref.vector_bytes);
    expect(&ref);
    for (uint32_t i = 0; i < size; i++) {
        uint64_t first = 0;
        uint64_t count = group->c.elem_count;
        const unsigned char *expected = ref.vectors;
        if (group->nodes[i].status != GF_OK) continue;
        if (group->c.collective == GF_COLL_REDUCE_SCATTER)
            gf_coll_block(group->c.elem_count, size, i, &first, &count);
        if (group->c.collective == GF_COLL_BARRIER) expected = ref.vectors + i * ref.vector_bytes;
        assert_memory_equal((unsigned char *)coll_group_data(group, i) + first * group->elem_bytes,
                            expected + first * group->elem_bytes, count * group->elem_bytes);
    }
    free(ref.vectors);
}
