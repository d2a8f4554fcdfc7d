/* Checksums behind messages: that CRC32C is CRC32C, and that with link.integrity no flipped bit gets into a sum. */
#include "firmware-tests/support/suite.h"
#include "ops/element/host/crc32c.h"
#include "firmware-tests/support/world.h"

#define RANKS 3u
#define POSTS_MAX 2000u

TEST(crc32c_is_that_of_rfc_3720)
{
    unsigned char bytes[32];
    assert_int_equal(gf_crc32c(0, "123456789", 9), 0xe3069283u);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(gf_crc32c(0, bytes, sizeof bytes), 0x8a9136aau);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(gf_crc32c(0, bytes, sizeof bytes), 0x62a8ab43u);
    for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)i;
    assert_int_equal(gf_crc32c(0, bytes, sizeof bytes), 0x46dd794eu);
}

TEST(hardware_equals_the_definition)
{
    unsigned char bytes[300];
    for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)((i * 2654435761u) >> 11);
    for (size_t from = 0; from < 9; from++) {
        for (size_t size = 0; size <= 280; size++) {
            uint32_t whole = gf_crc32c_plain(0, bytes + from, size);
            assert_int_equal(gf_crc32c(0, bytes + from, size), whole);
            assert_int_equal(gf_crc32c(gf_crc32c(0, bytes + from, size / 3), bytes + from + size / 3, size - size / 3),
                             whole);
        }
    }
}

static const struct gf_tensor tensors[] = {{.name = "a", .elem_count = 700}, {.name = "b", .elem_count = 5}};

static struct world_setup setup_of(gf_algorithm algorithm, bool integrity)
{
    struct world_setup setup = {.world = RANKS, .tensors = tensors, .tensor_count = LENGTH(tensors)};
    setup.sim = (struct gf_sim_setup){.seed = 1, .latency_ns = 5000, .detect_ns = 50000000};
    setup.config.exchange.algorithm = algorithm;
    setup.config.exchange.slice_bytes = 4096;
    setup.config.exchange.timeout_ns = 200000000;
    setup.config.link.integrity = integrity;
    setup.config.link.window = 2;
    return setup;
}

static uint64_t posts_of_opening(gf_algorithm algorithm, bool integrity)
{
    struct world_setup setup = setup_of(algorithm, integrity);
    struct world w;
    uint64_t posts;
    world_open(&w, &setup);
    posts = gf_sim_counts(w.sim)->requests_posted;
    world_close(&w);
    return posts;
}

/* One step in which the at-th post opening meets a flipped bit. True if it was met. */
static bool corrupt_run(uint64_t at, gf_algorithm algorithm, bool integrity, uint32_t *failed_out, bool *wrong_out)
{
    struct world_setup setup = setup_of(algorithm, integrity);
    struct world_step step = {.order = WORLD_FORWARD};
    struct world w;
    bool met;
    setup.sim.faults[0] = (struct gf_sim_fault){.kind = GF_SIM_FAULT_CORRUPT, .rank = GF_RANK_NONE, .at = at};
    setup.sim.fault_count = 1;
    *failed_out = 0;
    *wrong_out = false;
    world_open(&w, &setup);
    world_step_run(&w, &step);
    met = gf_sim_counts(w.sim)->fault_met;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct gf_error *error = gf_error_last(w.ranks[rank].gf);
        if (error->code != GF_OK) {
            (*failed_out)++;
            assert_non_null(strstr(error->text, "arrived damaged")); /* the others are told the same */
            if (error->code == GF_ERR_DATA) {
                char named[32];
                (void)snprintf(named, sizeof named, "from rank %u", error->peer);
                assert_true(error->peer < RANKS);
                assert_non_null(strstr(error->text, named));
            }
            continue;
        }
        for (uint32_t t = 0; t < LENGTH(tensors); t++) {
            const float *gradient = world_gradient(&w, rank, t);
            for (uint64_t e = 0; e < tensors[t].elem_count; e++) {
                float sum = 0;
                for (uint32_t r = 0; r < RANKS; r++) sum += world_value(r, t, e);
                if (gradient[e] != sum) *wrong_out = true;
            }
        }
    }
    world_close(&w);
    return met;
}

TEST(no_flipped_bit_gets_into_a_sum)
{
    static const gf_algorithm algorithms[] = {GF_ALGORITHM_RING, GF_ALGORITHM_HALVING, GF_ALGORITHM_DOUBLING};
    for (size_t a = 0; a < LENGTH(algorithms); a++) {
        bool met = true;
        uint32_t failures = 0, failed;
        for (uint64_t at = posts_of_opening(algorithms[a], true) + 1; met; at++) {
            bool wrong;
            assert_true(at < POSTS_MAX);
            met = corrupt_run(at, algorithms[a], true, &failed, &wrong);
            assert_false(wrong);
            if (failed > 0) failures++;
            if (!met) assert_int_equal(failed, 0);
        }
        assert_true(failures > 10);
    }
}

TEST(without_integrity_it_would_have)
{
    bool met = true, wrong_once = false;
    for (uint64_t at = posts_of_opening(GF_ALGORITHM_RING, false) + 1; met && !wrong_once; at++) {
        uint32_t failed;
        assert_true(at < POSTS_MAX);
        met = corrupt_run(at, GF_ALGORITHM_RING, false, &failed, &wrong_once);
    }
    assert_true(wrong_once); /* or the test above proves nothing */
}
