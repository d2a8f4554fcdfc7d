/* All ranks of the job talk before the real join, over the control channel alone, so that one that
 * could not join still says what it has found. Rank 0 is the root:
 *     each rank -> 0: HERE (which rank, of how many), which is small
 *                                                     0 -> it: APART (why it is not one of them)
 *     each rank -> 0: HELLO (host, hash, values)      0 -> each: MET (who is where, what differs)
 *     each rank -> 0: FAILS (how many lines fail)     0 -> each: DONE (which ranks have any)
 * Structs travel as they are: ranks of one job are of one build, which the channel's own hello has
 * compared. */
#include "tools/check/check_preflight.h"
#include "drivers/drivers.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_keys.h"
#include "tools/common/tool_clock.h"

enum { FRAME_HELLO = 1, FRAME_MET, FRAME_FAILS, FRAME_DONE, FRAME_HERE, FRAME_APART };
#define S 1000000000ull
#define NAMES_BYTES 160u
#define NOBODY UINT32_MAX

struct here {
    uint32_t rank, world;
};
struct apart {
    char text[160];
};

struct hello {
    uint64_t hash;
    char host[CHECK_HOST_BYTES];
    /* "key=value\n" of all that must agree */
    char values[GF_CHANNEL_PAYLOAD_MAX - 8 - CHECK_HOST_BYTES];
};
struct met {
    uint32_t answered, differing;
    uint32_t node_count, local_count, local_index;
    char missing[NAMES_BYTES]; /* ranks that did not answer */
    uint32_t here;             /* of them: their small frame came, the large one did not */
    char refused[200];         /* what the channel rejected */
    char difference[320];      /* of the first rank that differs */
};
struct done {
    uint32_t failing;
    char names[NAMES_BYTES];
};
_Static_assert(sizeof(struct hello) <= GF_CHANNEL_PAYLOAD_MAX, "fits a frame");
_Static_assert(sizeof(struct met) <= GF_CHANNEL_PAYLOAD_MAX, "fits a frame");

struct rank_info { /* at rank 0 */
    bool here, answered;
    uint32_t connection; /* NOBODY: it is not connected */
    uint32_t fails;
    char host[CHECK_HOST_BYTES];
};
struct check_peers {
    const struct gf_channel_driver *driver;
    struct gf_channel *channel;
    void *state;
    uint32_t *ranks_of; /* [channel.connections_max] at rank 0: whose a connection is */
    uint32_t rank, world;
    uint64_t deadline_ns;
    char address[GF_TEXT_MAX]; /* of this conversation */
    struct hello own;
    struct met met;           /* what rank 0 tells everybody; local_.. of this rank */
    char ended[240];          /* how the connection to rank 0 ended; empty: it stands */
    struct rank_info ranks[]; /* [world] at rank 0 */
};

/* ---- the channel ---- */

/* The next event before end_ns. False: none came, or the channel has failed: its fault. */
static bool event_wait(struct check_peers *peers, uint64_t end_ns,
                       struct gf_channel_event *event_out)
{
    for (;;) {
        uint64_t now_ns = tool_clock_ns();
        bool has_come = peers->driver->poll(peers->channel, now_ns, event_out);
        struct pollfd wake = {.fd = peers->driver->wake_fd(peers->channel), .events = POLLIN};
        if (has_come || (peers->channel->fault.code != GF_OK)) return has_come;
        if (now_ns >= end_ns) return false;
        (void)poll(&wake, 1, 10);
    }
}

static void send_to(struct check_peers *peers, uint32_t to, uint32_t kind, const void *payload,
                    uint32_t size_bytes)
{
    uint64_t end_ns = tool_clock_ns() + 2 * S;
    uint32_t connection = (peers->rank == 0) ? peers->ranks[to].connection : 0;
    struct gf_channel_event event;
    while (
        (peers->driver->send(peers->channel, connection, kind, payload, size_bytes) == GF_FULL) &&
        (tool_clock_ns() < end_ns))
        (void)event_wait(peers, tool_clock_ns() + S / 100, &event);
}

static void flush(struct check_peers *peers)
{
    uint64_t end_ns = tool_clock_ns() + 2 * S;
    struct gf_channel_event event;
    while (!peers->driver->flushed(peers->channel) && (tool_clock_ns() < end_ns))
        (void)event_wait(peers, tool_clock_ns() + S / 100, &event);
}

/* Another rank than 0: until rank 0 has been reached. */
static bool reach(struct check_peers *peers)
{
    uint64_t begin_ns = tool_clock_ns();
    uint64_t end_ns = begin_ns + peers->deadline_ns;
    uint32_t tried = 1;
    struct gf_channel_event event;
    peers->driver->dial(peers->channel, begin_ns);
    for (;;) {
        bool has_come = event_wait(peers, end_ns, &event);
        if (has_come && (event.kind == GF_CHANNEL_CONNECTED)) return true;
        if (has_come && (event.kind == GF_CHANNEL_ENDED)) {
            (void)snprintf(peers->ended, sizeof peers->ended, "rank 0: tried %u times: %.200s",
                           tried, event.text);
            (void)poll(NULL, 0, 50);
            if (tool_clock_ns() >= end_ns) return false;
            tried++;
            peers->driver->dial(peers->channel, tool_clock_ns());
        }
        if (has_come) continue;
        if (peers->channel->fault.code != GF_OK)
            (void)snprintf(peers->ended, sizeof peers->ended, "%.239s", peers->channel->fault.text);
        else if (peers->ended[0] == '\0')
            (void)snprintf(peers->ended, sizeof peers->ended, "rank 0 does not answer");
        return false;
    }
}

/* .. until it has said `kind`, of size_bytes. */
static bool answer_wait(struct check_peers *peers, uint32_t kind, void *answer_out,
                        uint32_t size_bytes)
{
    /* Rank 0 may have begun its own deadline as much later as it may wait for others. */
    uint64_t end_ns = tool_clock_ns() + 2 * peers->deadline_ns + 5 * S;
    struct gf_channel_event event;
    for (;;) {
        if (!event_wait(peers, end_ns, &event)) {
            (void)snprintf(peers->ended, sizeof peers->ended, "%s",
                           (peers->channel->fault.code == GF_OK) ? "rank 0 says nothing"
                                                                 : peers->channel->fault.text);
            return false;
        }
        if (event.kind == GF_CHANNEL_ENDED) {
            (void)snprintf(peers->ended, sizeof peers->ended, "rank 0 left: %.160s", event.text);
            return false;
        }
        if (event.kind != GF_CHANNEL_FRAME) continue;
        if ((event.frame_kind == FRAME_APART) && (event.size_bytes == sizeof(struct apart))) {
            const struct apart *apart = event.payload;
            (void)snprintf(peers->ended, sizeof peers->ended, "rank 0 refused rank %u: %.*s",
                           peers->rank, (int)sizeof apart->text - 1, apart->text);
            return false;
        }
        if ((event.frame_kind != kind) || (event.size_bytes != size_bytes)) continue;
        memcpy(answer_out, event.payload, size_bytes);
        return true;
    }
}

/* ---- what is said ---- */

static void values_write(const struct gf_config *config, char *text, size_t text_bytes)
{
    char value[GF_SETTING_VALUE_BYTES];
    size_t used = 0;
    for (uint32_t i = 0; i < gf_setting_count; i++) {
        int length;
        if (!(gf_settings[i].flags & GF_SETTING_AGREES)) continue;
        length = snprintf(text + used, text_bytes - used, "%s=%s\n", gf_settings[i].key,
                          gf_setting_value(&gf_settings[i], config, value));
        /* the hash still tells that they differ */
        if ((length < 0) || ((size_t)length >= text_bytes - used)) break;
        used += (size_t)length;
    }
}

/* The lines in which two values texts differ, as many as there is room for. Both come from one
 * table, so their lines stand in one order. */
static void difference_write(const char *ours, const char *theirs, uint32_t rank, const char *host,
                             char *text, size_t text_bytes)
{
    size_t used = (size_t)snprintf(text, text_bytes, "rank %u on %s against rank 0:", rank, host);
    bool first = true;
    while ((*ours != '\0') && (*theirs != '\0')) {
        size_t our_length = strcspn(ours, "\n");
        size_t their_length = strcspn(theirs, "\n");
        size_t key = strcspn(ours, "=");
        if (((our_length != their_length) || (memcmp(ours, theirs, our_length) != 0)) &&
            (used < text_bytes)) {
            used += (size_t)snprintf(text + used, text_bytes - used, "%s %.*s %.*s, not %.*s",
                                     first ? "" : ";", (int)key, ours,
                                     (key < their_length) ? (int)(their_length - key - 1) : 0,
                                     theirs + key + 1, (int)(our_length - key - 1), ours + key + 1);
            first = false;
        }
        ours += our_length + (ours[our_length] == '\n');
        theirs += their_length + (theirs[their_length] == '\n');
    }
    if (first) (void)snprintf(text + used, text_bytes - used, " another hash");
}

/* "1, 5, 6 .." of the ranks for which fails is not 0 or that did not answer. */
static uint32_t names_write(const struct check_peers *peers, bool fails, char *text,
                            size_t text_bytes)
{
    uint32_t count = 0;
    size_t used = 0;
    bool whole = true;
    text[0] = '\0';
    for (uint32_t r = 0; r < peers->world; r++) {
        bool named = fails ? (peers->ranks[r].fails != 0) : !peers->ranks[r].answered;
        if (!named) continue;
        count++;
        if (used + 16 < text_bytes)
            used += (size_t)snprintf(text + used, text_bytes - used, "%s%u", used ? ", " : "", r);
        else
            whole = false;
    }
    if (!whole) (void)snprintf(text + used, text_bytes - used, " ..");
    return count;
}

/* ---- meeting ---- */

static void hello_take(struct check_peers *peers, uint32_t rank, const struct hello *hello)
{
    struct rank_info *info = &peers->ranks[rank];
    struct hello copy = *hello; /* ends of texts made sure of, whoever sent them */
    if (info->answered) return;
    copy.host[sizeof copy.host - 1] = '\0';
    copy.values[sizeof copy.values - 1] = '\0';
    info->answered = true;
    peers->met.answered++;
    memcpy(info->host, copy.host, sizeof info->host);
    if (copy.hash == peers->own.hash) return;
    if (peers->met.differing++ == 0)
        difference_write(peers->own.values, copy.values, rank, copy.host, peers->met.difference,
                         sizeof peers->met.difference);
}

/* Where rank r is: nodes are told apart by host name. */
static void place_find(struct check_peers *peers, uint32_t rank)
{
    struct met *met = &peers->met;
    met->local_count = met->local_index = 0;
    for (uint32_t r = 0; r < peers->world; r++) {
        if (!peers->ranks[r].answered ||
            (strcmp(peers->ranks[r].host, peers->ranks[rank].host) != 0))
            continue;
        met->local_count++;
        met->local_index += (r < rank);
    }
}

/* Is it one of this job's ranks? Else it hears why not, and everybody else does. */
static void here_take(struct check_peers *peers, uint32_t connection, const struct here *here)
{
    struct apart apart = {.text = ""};
    if (here->world != peers->world)
        (void)snprintf(apart.text, sizeof apart.text, "world %u at rank 0, %u at rank %u",
                       peers->world, here->world, here->rank);
    else if ((here->rank == 0) || (here->rank >= peers->world))
        (void)snprintf(apart.text, sizeof apart.text, "rank %u: expected 1 to %u", here->rank,
                       peers->world - 1);
    else if (peers->ranks[here->rank].connection != NOBODY)
        (void)snprintf(apart.text, sizeof apart.text,
                       "rank %u is here already: was it started "
                       "twice?",
                       here->rank);
    if (apart.text[0] == '\0') {
        peers->ranks_of[connection] = here->rank;
        peers->ranks[here->rank].connection = connection;
        peers->ranks[here->rank].here = true;
        return;
    }
    (void)snprintf(peers->met.refused, sizeof peers->met.refused, "%s", apart.text);
    (void)peers->driver->send(peers->channel, connection, FRAME_APART, &apart, sizeof apart);
    peers->driver->drop(peers->channel, connection);
}

/* The rank that said what is in *event, or whose connection ended; NOBODY: of none. */
static uint32_t event_rank(struct check_peers *peers, const struct gf_channel_event *event)
{
    uint32_t rank = peers->ranks_of[event->connection];
    if (event->kind == GF_CHANNEL_FRAME) {
        if ((rank == NOBODY) && (event->frame_kind == FRAME_HERE) &&
            (event->size_bytes == sizeof(struct here)))
            here_take(peers, event->connection, event->payload);
        return rank;
    }
    peers->ranks_of[event->connection] = NOBODY;
    if ((event->kind == GF_CHANNEL_ENDED) && (rank != NOBODY))
        peers->ranks[rank].connection = NOBODY;
    return rank;
}

static void root_meet(struct check_peers *peers)
{
    struct met *met = &peers->met;
    struct gf_channel_event event;
    uint64_t end_ns = tool_clock_ns() + peers->deadline_ns;
    hello_take(peers, 0, &peers->own);
    while (met->answered < peers->world) {
        if (!event_wait(peers, end_ns, &event)) break;
        uint32_t rank = event_rank(peers, &event);
        if ((rank != NOBODY) && (event.kind == GF_CHANNEL_FRAME) &&
            (event.frame_kind == FRAME_HELLO) && (event.size_bytes == sizeof(struct hello)))
            hello_take(peers, rank, event.payload);
        /* it will not come; the others that are there are soon heard */
        if ((met->refused[0] != '\0') && (end_ns > tool_clock_ns() + S / 2))
            end_ns = tool_clock_ns() + S / 2;
    }
    (void)names_write(peers, false, met->missing, sizeof met->missing);
    for (uint32_t r = 0; r < peers->world; r++) {
        met->here += peers->ranks[r].here && !peers->ranks[r].answered;
        place_find(peers, r);
        met->node_count += peers->ranks[r].answered && (met->local_index == 0);
    }
    for (uint32_t r = peers->world; r-- > 0;) { /* rank 0 last: its own place stays in peers->met */
        place_find(peers, r);
        if ((r != 0) && peers->ranks[r].answered) send_to(peers, r, FRAME_MET, met, sizeof *met);
    }
}

static void met_say(struct check_report *report, const struct check_peers *peers)
{
    const struct met *met = &peers->met;
    report->shared = true;
    if (met->answered == peers->world)
        check_say(report, "peers", CHECK_OK, NULL, "%u of %u ranks answered, on %u node%s",
                  met->answered, peers->world, met->node_count, (met->node_count == 1) ? "" : "s");
    else
        check_say(report, "peers", CHECK_FAIL,
                  "look at what those print; --deadline SECONDS waits longer",
                  "%u of %u ranks answered within %.0f s; missing: rank %s%s%s", met->answered,
                  peers->world, (double)peers->deadline_ns / 1e9, met->missing,
                  met->refused[0] ? "; rejected: " : "", met->refused);
    if (met->here > 0)
        check_say(report, "large", CHECK_FAIL,
                  "give hosts and all switches between them one MTU (ip link); ping -M do -s 8972 "
                  "tries it",
                  "a small frame came from %u rank%s, one of %zu bytes did not: MTU?", met->here,
                  (met->here == 1) ? "" : "s", sizeof(struct hello));
    if (met->differing == 0)
        check_say(report, "configuration", CHECK_OK, NULL, "hash 0x%016llx at all that answered",
                  (unsigned long long)peers->own.hash);
    else
        check_say(report, "configuration", CHECK_FAIL, "hand the same file to all ranks",
                  "%u rank%s not the configuration of rank 0: %s", met->differing,
                  (met->differing == 1) ? " has" : "s have", met->difference);
    report->shared = false;
}

static void peers_close(struct check_peers *peers)
{
    if (peers->channel != NULL) peers->driver->close(peers->channel);
    free(peers->state);
    free(peers->ranks_of);
    free(peers);
}

/* What the channel itself has refused: another job, key or version. */
static void log_refused(void *user, gf_log_level level, const char *text)
{
    struct check_peers *peers = user;
    const char *why = strstr(text, "refused a rank: ");
    (void)level;
    if (why == NULL) return;
    (void)snprintf(peers->met.refused, sizeof peers->met.refused, "%.199s",
                   why + sizeof "refused a rank: " - 1);
}

/* The job's, where rank 0 will listen; where a coordinator of its own does already, the port beside
 * it. */
static void address_set(struct check_peers *peers, const struct check_job *job)
{
    (void)snprintf(peers->address, sizeof peers->address, "%s", job->config.rendezvous.address);
    char *port = strrchr(peers->address, ':');
    if ((job->config.rendezvous.coordinator != GF_COORDINATOR_SEPARATE) || (port == NULL)) return;
    unsigned long number = strtoul(port + 1, NULL, 10);
    size_t left = sizeof peers->address - (size_t)(port + 1 - peers->address);
    (void)snprintf(port + 1, left, "%lu", (number < UINT16_MAX) ? number + 1 : number - 1);
}

/* Opens the channel; says so, or why not. */
static bool channel_open(struct check_report *report, const struct check_job *job,
                         struct check_peers *peers)
{
    struct gf_channel_setup setup = check_control_setup(job, peers->rank == 0);
    struct gf_fault fault = {0};
    address_set(peers, job);
    setup.address = peers->address;
    setup.log = (struct gf_log){.fn = log_refused, .user = peers};
    peers->ranks_of = malloc(setup.connections_max * sizeof peers->ranks_of[0]);
    peers->state = aligned_alloc(64, (peers->driver->state_bytes(&setup) + 63) / 64 * 64);
    if ((peers->state == NULL) || (peers->ranks_of == NULL) ||
        (peers->driver->open(&setup, peers->state, tool_clock_ns(), &peers->channel, &fault) !=
         GF_OK)) {
        peers->channel = NULL;
        check_say(report, "control", CHECK_FAIL,
                  "correct what it names, or free the port (ss -lntxp shows who has it)", "%s",
                  fault.text);
        return false;
    }
    for (uint32_t i = 0; i < setup.connections_max; i++) peers->ranks_of[i] = NOBODY;
    for (uint32_t r = 0; (peers->rank == 0) && (r < peers->world); r++)
        peers->ranks[r].connection = NOBODY;
    if (peers->rank == 0) {
        check_say(report, "control", CHECK_OK, NULL, "rank 0 listens at %s", setup.address);
        return true;
    }
    if (reach(peers)) {
        check_say(report, "control", CHECK_OK, NULL, "rank 0 answers at %s", setup.address);
        return true;
    }
    check_say(report, "control", CHECK_FAIL,
              "is rank 0 up, rendezvous.address right, the way to it open?", "%s", peers->ended);
    return false;
}

/* As gf-check says it of the file alone. */
static uint64_t file_hash(const struct check_job *job)
{
    struct gf_config config = job->config;
    config.rendezvous.coordinator = job->coordinator_of_file;
    return gf_config_hash(&config);
}

struct check_peers *check_peers_meet(struct check_report *report, struct check_job *job)
{
    uint32_t world = job->config.job.world;
    struct check_peers *peers = calloc(1, sizeof *peers + world * sizeof peers->ranks[0]);
    bool met;
    if (peers == NULL) return NULL;
    peers->driver = gf_drivers_default->channel;
    peers->rank = job->config.job.rank;
    peers->world = world;
    peers->deadline_ns = job->deadline_ns;
    peers->own.hash = file_hash(job);
    (void)snprintf(peers->own.host, sizeof peers->own.host, "%s", report->host);
    values_write(&job->config, peers->own.values, sizeof peers->own.values);
    if (!channel_open(report, job, peers)) {
        peers_close(peers);
        return NULL;
    }
    if (peers->rank == 0) {
        root_meet(peers);
        met = true;
    } else {
        const struct here here = {.rank = peers->rank, .world = world};
        send_to(peers, 0, FRAME_HERE, &here, sizeof here);
        flush(peers); /* in a packet of its own */
        send_to(peers, 0, FRAME_HELLO, &peers->own, sizeof peers->own);
        met = answer_wait(peers, FRAME_MET, &peers->met, sizeof peers->met);
        peers->met.missing[NAMES_BYTES - 1] = '\0';
        peers->met.refused[sizeof peers->met.refused - 1] = '\0';
        peers->met.difference[sizeof peers->met.difference - 1] = '\0';
    }
    if (!met) {
        check_say(report, "peers", CHECK_FAIL, "look at what rank 0 prints", "%s", peers->ended);
        peers_close(peers);
        return NULL;
    }
    met_say(report, peers);
    job->local_count = peers->met.local_count;
    job->local_index = peers->met.local_index;
    job->node_count = peers->met.node_count;
    return peers;
}

/* ---- agreeing ---- */

static void root_agree(struct check_peers *peers, uint32_t fails, struct done *done)
{
    struct gf_channel_event event;
    uint64_t end_ns = tool_clock_ns() + peers->deadline_ns;
    uint32_t waiting = peers->met.answered - 1;
    /* Silence counts as failing. */
    for (uint32_t r = 0; r < peers->world; r++) peers->ranks[r].fails = 1;
    peers->ranks[0].fails = fails;
    while ((waiting > 0) && event_wait(peers, end_ns, &event)) {
        uint32_t rank = event_rank(peers, &event);
        if (rank == NOBODY) continue;
        if (event.kind == GF_CHANNEL_ENDED) waiting--;
        if ((event.kind != GF_CHANNEL_FRAME) || (event.frame_kind != FRAME_FAILS) ||
            (event.size_bytes != sizeof fails))
            continue;
        memcpy(&peers->ranks[rank].fails, event.payload, sizeof fails);
        waiting--;
    }
    done->failing = names_write(peers, true, done->names, sizeof done->names);
    for (uint32_t r = 1; r < peers->world; r++)
        if (peers->ranks[r].answered) send_to(peers, r, FRAME_DONE, done, sizeof *done);
    flush(peers);
}

bool check_peers_agree(struct check_report *report, struct check_peers *peers)
{
    uint32_t fails = report->counts[CHECK_FAIL] - report->shared_fails; /* this rank's own */
    struct done done = {0};
    bool told = true, met = (peers->met.answered == peers->world) && (peers->met.differing == 0);
    if (peers->rank == 0) {
        root_agree(peers, fails, &done);
    } else {
        send_to(peers, 0, FRAME_FAILS, &fails, sizeof fails);
        told = answer_wait(peers, FRAME_DONE, &done, sizeof done);
        /* The real join listens at the same place: not before this conversation is over there
         * too. */
        if (told) (void)answer_wait(peers, FRAME_DONE, &done, sizeof done);
    }
    done.names[sizeof done.names - 1] = '\0';
    report->shared = told;
    if (!told)
        check_say(report, "all ranks", CHECK_FAIL, "look at what rank 0 prints", "%s",
                  peers->ended);
    else if (done.failing == 0)
        check_say(report, "all ranks", CHECK_OK, NULL, "no rank has a failing line of its own");
    else
        check_say(report, "all ranks", CHECK_FAIL, "look at their lines",
                  "something fails at rank %s", done.names);
    report->shared = false;
    peers_close(peers);
    return met && told && (done.failing == 0);
}
