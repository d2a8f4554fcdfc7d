/* gf-plan's clusters and models of today: cards, rails, leaf switches, stragglers, launches,
 * transformers. Each number was worked out by hand or is a published one. */
#include "firmware-tests/support/suite.h"
#include "tools/plan/plan.h"

#include <unistd.h>

#define ELEMS (UINT64_C(1) << 20)
#define UNIT_S ((double)ELEMS * 4 / 1e9) /* fp32 at 1 GB/s */

static struct gf_tensor tensors[] = {{.name = "w", .elem_count = ELEMS}};
static struct tool_flops flops[] = {{8000, 16000, 1000}};
static struct plan_model model = {.name = "small",
                                  .tensors = tensors,
                                  .flops = flops,
                                  .tensor_count = 1,
                                  .elem_count = ELEMS,
                                  .forward_flops = 8000,
                                  .backward_flops = 16000,
                                  .sample = {.tokens = 100}};

/* Two nodes of four, cards of 1 GB/s, all else at once; a step computes for 1 ms. */
static struct tool_cluster two_nodes(void)
{
    return (struct tool_cluster){.name = "two",
                                 .nodes = 2,
                                 .gpus_per_node = 4,
                                 .batch = 1,
                                 .network_bandwidth = 1e9,
                                 .node_bandwidth = 1e13,
                                 .op_bandwidth = 1e15,
                                 .gpu_flops = 24e6};
}

static struct plan_row row_of(const struct tool_cluster *cluster, plan_mode mode, uint32_t gpus,
                              gf_algorithm algorithm)
{
    /* four in a GPU's block */
    const struct plan_choice choice = {.algorithm = algorithm, .slice_bytes = 256u << 10};
    struct plan_row row;
    assert_int_equal(plan_case_run(&model, cluster, mode, gpus, &choice, &row), 0);
    return row;
}

static void expect_near(double got, double expected, double share, const char *what)
{
    if ((got < expected * (1 - share)) || (got > expected * (1 + share)))
        fail_msg("%s: %.9g, expected %.9g within %.2f %%", what, got, expected, share * 100);
}

/* With doubling each rank exchanges all with its like of the other node: four at once. */
static double crossing_s(const struct tool_cluster *cluster)
{
    return row_of(cluster, PLAN_RING, 8, GF_ALGORITHM_DOUBLING).exposed_s;
}

TEST(cards_of_a_node_share_its_load)
{
    struct tool_cluster cluster = two_nodes();
    expect_near(crossing_s(&cluster), 4 * UNIT_S, 0.02, "one card for four");
    cluster.nics_per_node = 2;
    expect_near(crossing_s(&cluster), 2 * UNIT_S, 0.02, "two");
    cluster.nics_per_node = 4;
    expect_near(crossing_s(&cluster), 1 * UNIT_S, 0.02, "a card each");
}

/* A block of a quarter goes out of each GPU, and is added once: on two nodes as many bytes leave as
 * it has. */
TEST(gpus_of_a_node_use_all_its_cards)
{
    struct tool_cluster cluster = two_nodes();
    cluster.gpu_direct = true;
    expect_near(row_of(&cluster, PLAN_RING, 8, GF_ALGORITHM_HIERARCHY).exposed_s, UNIT_S, 0.02,
                "one card for four");
    cluster.nics_per_node = 4;
    expect_near(row_of(&cluster, PLAN_RING, 8, GF_ALGORITHM_HIERARCHY).exposed_s, UNIT_S / 4, 0.02,
                "a card each");
    expect_near(row_of(&cluster, PLAN_RING, 8, GF_ALGORITHM_RING).exposed_s, 2 * 7 / 8.0 * UNIT_S,
                0.02, "a ring");
    cluster.node_bandwidth = 2e9;
    expect_near(row_of(&cluster, PLAN_RING, 8, GF_ALGORITHM_HIERARCHY).exposed_s,
                UNIT_S / 4 + 2 * 3 / 4.0 * UNIT_S / 2, 0.02,
                "blocks from and to three others of the node");
    cluster.node_bandwidth = 1e13;
    cluster.gpu_direct = false;
    cluster.host_bandwidth = 10e9;
    expect_near(row_of(&cluster, PLAN_RING, 8, GF_ALGORITHM_HIERARCHY).exposed_s,
                UNIT_S / 4 + 2 * UNIT_S / 4 / 10, 0.02,
                "to host memory and back; what it adds hides behind the wire");
}

TEST(what_leaves_a_leaf_switch_shares_its_way_up)
{
    struct tool_cluster cluster = two_nodes();
    cluster.nics_per_node = 4;
    cluster.leaf_nodes = 1; /* each node has its own, 4 GB/s wide upwards before */
    cluster.oversubscription = 1;
    expect_near(crossing_s(&cluster), 1 * UNIT_S, 0.06, "no oversubscription, a slice later");
    cluster.oversubscription = 4;
    expect_near(crossing_s(&cluster), 4 * UNIT_S, 0.05, "4 to 1: 1 GB/s for four");
    cluster.leaf_nodes = 2;
    expect_near(crossing_s(&cluster), 1 * UNIT_S, 0.02, "both nodes below one leaf");
}

TEST(rails_keep_equal_cards_below_a_leaf_and_send_others_up)
{
    struct tool_cluster cluster = two_nodes();
    struct plan_row ring;
    struct plan_row ring_up;
    cluster.nics_per_node = 4;
    cluster.rails = true;
    ring = row_of(&cluster, PLAN_RING, 8, GF_ALGORITHM_RING);
    cluster.oversubscription = 32; /* a rail of two nodes: 2 GB/s / 32 */
    expect_near(crossing_s(&cluster), 1 * UNIT_S, 0.02, "equals stay on their rail");
    ring_up = row_of(&cluster, PLAN_RING, 8,
                     GF_ALGORITHM_RING); /* from the last card of a node to the first of the next */
    expect_near(ring.exposed_s, 2 * 7 / 8.0 * UNIT_S, 0.02, "a ring at the card's rate");
    expect_near(ring_up.exposed_s, 32 * 2 * 7 / 8.0 * UNIT_S, 0.05,
                "two on a leaf's way up, 1/16 GB/s wide");
}

TEST(links_in_pairs_are_slower_than_a_switch)
{
    struct tool_cluster cluster = two_nodes();
    double n = 4;
    cluster.node_bandwidth = 3e9;
    expect_near(row_of(&cluster, PLAN_RING, 4, GF_ALGORITHM_RING).exposed_s,
                2 * (n - 1) / n * UNIT_S / 3, 0.02, "a switch");
    cluster.node_pair_bandwidth = 1e9;
    expect_near(row_of(&cluster, PLAN_RING, 4, GF_ALGORITHM_RING).exposed_s,
                2 * (n - 1) / n * UNIT_S, 0.02, "pairs");
}

/* Tail 2: the largest of 1, 2, 3 is 2, 8/3, 16/5; all of n together have n times the mean, 2. */
TEST(stragglers_are_those_of_a_pareto_distribution)
{
    struct tool_cluster cluster = two_nodes();
    double sum = 0;
    expect_near(plan_order_statistic(1, 1, 2), 2, 1e-9, "one");
    expect_near(plan_order_statistic(2, 2, 2), 8 / 3.0, 1e-9, "the later of two");
    expect_near(plan_order_statistic(3, 3, 2), 3.2, 1e-9, "the last of three");
    for (uint32_t i = 1; i <= 512; i++) sum += plan_order_statistic(i, 512, 2);
    expect_near(sum, 1024, 1e-6, "all of 512");
    expect_near(plan_order_statistic(512, 512, 2), 40.12, 0.001, "sqrt(512 pi), nearly");
    cluster.network_bandwidth = cluster.node_bandwidth = 1e15;
    cluster.straggler_scale = 0.1;
    cluster.straggler_tail = 2;
    expect_near(row_of(&cluster, PLAN_RING, 2, GF_ALGORITHM_AUTO).step_s, 1e-3 * (1 + 0.1 * 5 / 3),
                0.001, "two ranks");
    expect_near(row_of(&cluster, PLAN_RING, 3, GF_ALGORITHM_AUTO).step_s, 1e-3 * (1 + 0.1 * 2.2),
                0.001, "three");
}

/* 512 chunks, each committed by two ops at least of 0.1 ms; a launch takes 128 of them. */
TEST(a_device_launches_once_for_many_chunks)
{
    static struct gf_tensor large[] = {{.name = "w", .elem_count = UINT64_C(16) << 20}};
    struct tool_cluster cluster = two_nodes();
    double host_s;
    double device_s;
    cluster.op_cost = 1e-4;
    model.tensors = large;
    host_s = row_of(&cluster, PLAN_SPARSE, 2, GF_ALGORITHM_AUTO).exposed_s;
    cluster.device_ops = true;
    device_s = row_of(&cluster, PLAN_SPARSE, 2, GF_ALGORITHM_AUTO).exposed_s;
    model.tensors = tensors;
    assert_true(host_s > 2 * 512 * 1e-4);
    if ((device_s > host_s / 4) || (device_s < 4 * 1e-4))
        fail_msg("%g s on a device, %g s on a host", device_s, host_s);
}

TEST(tokens_and_the_share_of_the_peak)
{
    struct tool_cluster cluster = two_nodes();
    struct plan_row row;
    cluster.network_bandwidth = cluster.node_bandwidth = 1e15;
    cluster.gpu_peak_flops = 48e6; /* twice what is sustained */
    row = row_of(&cluster, PLAN_LAZY, 8, GF_ALGORITHM_AUTO);
    expect_near(plan_tokens(&model, &row), 8 * 1000 * 100, 0.001,
                "8 GPUs, 1,000 samples/s of 100 tokens each");
    expect_near(plan_mfu(&model, &cluster, &row), 0.5, 0.001, "half of the peak");
}

static void transformer_load(const char *shape, bool is_llama, struct plan_model *loaded)
{
    char path[] = "/tmp/gf-test-plan-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = (fd >= 0) ? fdopen(fd, "w") : NULL;
    assert_non_null(file);
    assert_int_equal(plan_transformer(shape, is_llama, file), 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(plan_model_load(path, loaded), 0);
    assert_int_equal(unlink(path), 0);
}

/* GPT-2's smallest has 124,439,808 parameters, Llama's 7B 6,738,415,616 (arXiv 2302.13971:
 * 6.7B). */
TEST(transformers_have_their_published_sizes)
{
    static const struct {
        const char *shape;
        bool is_llama;
        uint64_t elem_count;
        double layers, width, tokens;
    } rows[] = {{"12,768,12,50257,1024", false, 124439808, 12, 768, 1024},
                {"48,1600,25,50257,1024", false, 1557611200, 48, 1600, 1024},
                {"32,4096,32,32000,2048", true, 6738415616, 32, 4096, 2048},
                {"40,5120,40,32000,2048", true, 13015864320, 40, 5120, 2048}};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct plan_model loaded;
        double n;
        double a_token;
        transformer_load(rows[i].shape, rows[i].is_llama, &loaded);
        if (loaded.elem_count != rows[i].elem_count)
            fail_msg("%s: %llu parameters", rows[i].shape, (unsigned long long)loaded.elem_count);
        /* Llama looks its words up */
        n = (double)loaded.elem_count - (rows[i].is_llama ? rows[i].width * 32000 : 0);
        a_token = 6 * n + 12 * rows[i].layers * rows[i].width * rows[i].tokens;
        expect_near((loaded.forward_flops + loaded.backward_flops) / rows[i].tokens, a_token, 0.01,
                    rows[i].shape);
        assert_int_equal(loaded.sample.tokens, rows[i].tokens);
        assert_true((double)loaded.sample.activation_bytes >
                    34 * rows[i].layers * rows[i].width * rows[i].tokens);
    }
}
