#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/rules_context.h"
#include "firmware-tests/support/world_setups.h"

const char *const rules_state_names[RULES_STATES] = {
    "NULL",       "joining",      "ready",   "request under way", "in a step",
    "whole step", "skipped step", "aborted", "closing",           "forked child"};
struct world rules_world;
gf_context *gf;
struct gf_request rules_asked;
uint64_t rules_state[8192], rules_state_bytes;

static gf_status peer_turn(struct world *w, uint32_t rank, void *arg)
{
    if (gf_open_poll(w->ranks[rank].gf) == GF_OK) (void)gf_heartbeat(w->ranks[rank].gf);
    return GF_AGAIN;
}

static gf_status begin_turn(struct world *w, uint32_t rank, void *arg)
{
    return gf_step_begin(w->ranks[rank].gf);
}

static void not_a_number(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    *(float *)gradient = NAN;
}

void rules_make(int which, bool bare)
{
    struct world *w = &rules_world;
    struct world_setup setup = brief_setup(2);
    struct world_step step = {.order = WORLD_FORWARD,
                              .fill = (which == RULES_SKIPPED) ? not_a_number : NULL};
    memset(&rules_asked, 0, sizeof rules_asked);
    setup.config.exchange.user_bytes = 4096;
    setup.config.rendezvous.join_timeout_ns = UINT64_C(1000000000);
    setup.config.exchange.patience_ns =
        UINT64_C(10000000); /* the peer shows signs of life for ever */
    setup.config.rate.base_rate = 0.25f;
    if (!bare) setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
    if (!bare) setup.config.optimizer.half_weights = GF_TYPE_F16;
    if (which == RULES_JOINING)
        world_create(w, &setup);
    else
        world_open(w, &setup);
    gf = w->ranks[RULES_RANK].gf;
    rules_state_bytes = gf_state_bytes(gf);
    assert_true(rules_state_bytes <= sizeof rules_state);
    if (which != RULES_JOINING)
        assert_int_equal(gf_state_save(gf, rules_state, rules_state_bytes), GF_OK);
    if (which == RULES_ASKED) assert_int_equal(gf_barrier(gf, &rules_asked), GF_OK);
    if (which == RULES_IN_STEP) world_run(w, begin_turn, NULL);
    if (which == RULES_IN_STEP) assert_int_equal(gf_tensor_ready(gf, 0, 0), GF_OK);
    if ((which == RULES_WHOLE) || (which == RULES_SKIPPED)) world_step_run(w, &step);
    if (which == RULES_ABORTED) gf_abort(gf);
    if (which == RULES_LEAVING) assert_int_equal(gf_close_poll(gf), GF_AGAIN);
    if (which == RULES_NULL) gf = NULL;
    world_log_clear(w);
}

void rules_end(void)
{
    world_close(&rules_world);
    gf = NULL;
}

void rules_block(void)
{
    world_block(&rules_world, RULES_RANK, peer_turn, NULL);
}

static int code_of(char letter)
{
    static const char letters[] = ".AFPSXTCDR";
    static const int codes[] = {GF_OK,        GF_AGAIN,       GF_FULL,        GF_ERR_PARAM,
                                GF_ERR_STATE, GF_ERR_ABORTED, GF_ERR_TIMEOUT, GF_ERR_CONFIG,
                                GF_ERR_DATA,  GF_ERR_ARENA};
    const char *at = strchr(letters, letter);
    if ((letter >= '0') && (letter <= '9')) return letter - '0';
    assert_non_null(at);
    return codes[at - letters];
}

void rules_expect(const char *call, const char *where, int answer, char expect, bool has_log)
{
    bool refused = (answer == GF_ERR_PARAM) || (answer == GF_ERR_STATE);
    bool said = !has_log || !refused || (rules_world.ranks[RULES_RANK].log_bytes > 0);
    if ((answer == code_of(expect)) && said) return;
    print_error("%s, %s: %d, expected %c%s\n", call, where, answer, expect,
                said ? "" : "; nothing was logged");
    fail();
}
