/* The table of settings. Limits that only this file knows are explained at their row. A new key: a member of struct
 * gf_config (lib/configuration.h), a row here, a row in unit/test_config.c, one in not_agreeing[] of
 * unit/test_settings.c where ranks may differ, and its lines of config/gradientflow.cfg.5, as
 * `gf-check --keys | awk -f firmware-tests/support/man_keys.awk` prints them. */
#include "lib/core/op.h"
#include "lib/settings/settings.h"

#define FIELD(member) .offset = offsetof(struct gf_config, member), .size = sizeof(((struct gf_config *)0)->member)
#define BOOL(member) .kind = GF_SETTING_BOOL, .high = 1, FIELD(member)
#define COUNT(member) .kind = GF_SETTING_COUNT, FIELD(member)
#define BYTES(member) .kind = GF_SETTING_BYTES, FIELD(member)
#define TIME(member) .kind = GF_SETTING_TIME, FIELD(member)
#define REAL(member) .kind = GF_SETTING_REAL, FIELD(member)
#define NAME(member, list) \
    .kind = GF_SETTING_NAME, .names = list, .high = LENGTH(list) - 1, FIELD(member)
#define TEXT(member, what) .kind = GF_SETTING_TEXT, .form = what, FIELD(member)
#define AGREES .flags = GF_SETTING_AGREES

#define KIB 1024u
#define MIB (1024u * KIB)
#define GIB (1024u * MIB)
#define MS 1000000u
#define S (1000u * (uint64_t)MS)

/* Scales are powers of two, so that multiplying and dividing by them is exact; within these bounds the product of two
 * of them is a normal fp32 number. */
#define SCALE_MIN 0x1p-32f
#define SCALE_MAX 0x1p32f

static const char *const idle_names[] = {"auto", "spin", "yield", "sleep"};
static const char *const quantize_names[] = {"none", "int8", "onebit"};
static const char *const average_names[] = {"sum", "ranks", "samples"};
static const char *const rate_names[] = {"constant", "step", "polynomial", "cosine"};
static const char *const optimizer_names[] = {"none", "sgd", "lars", "adamw", "lamb"};
static const char *const sparse_names[] = {"reduced", "local"};
#define LENGTH(list) (sizeof(list) / sizeof((list)[0]))
_Static_assert(LENGTH(idle_names) == GF_IDLE_SLEEP + 1, "each idle mode has a name");
_Static_assert(LENGTH(quantize_names) == GF_QUANTIZE_ONEBIT + 1, "each form has a name");
_Static_assert(LENGTH(average_names) == GF_AVERAGE_SAMPLES + 1, "each average has a name");
_Static_assert(LENGTH(rate_names) == GF_SCHEDULE_COSINE + 1, "each schedule has a name");
_Static_assert(LENGTH(optimizer_names) == GF_OPTIMIZER_LAMB + 1, "each optimizer has a name");
_Static_assert(LENGTH(sparse_names) == GF_SPARSE_MOMENTUM_LOCAL + 1, "each sparse momentum has a name");

const struct gf_setting gf_settings[] = {
    {.key = "job.world", COUNT(job.world), .high = GF_WORLD_MAX,
     .help = "ranks in the job; 0: the launcher's environment says"},
    {.key = "job.world_max", COUNT(job.world_max), .high = GF_WORLD_MAX,
     .help = "ranks that the job may grow to; memory is measured for them; 0: job.world"},
    {.key = "job.rank", COUNT(job.rank), .high = GF_WORLD_MAX - 1,
     .help = "this rank, where the environment does not say"},
    {.key = "job.id", COUNT(job.id), .high = UINT64_MAX,
     .help = "frames of another job are refused; 0: the launcher's environment says"},
    {.key = "job.ignore_environment", BOOL(job.ignore_environment),
     .help = "take world, rank, id and address from here alone"},
    {.key = "job.elastic", BOOL(job.elastic),
     .help = "ranks may die while the others go on: GPUs whose memory does not outlive its process (gf-check "
             "--preflight says so) then go through host memory; one rank that says so is enough"},

    {.key = "rendezvous.address", TEXT(rendezvous.address, GF_FORM_ADDRESS), .fallback_text = "127.0.0.1:7117",
     .help = "where rank 0 listens; in a file a host name is valid too"},
    {.key = "rendezvous.bind", TEXT(rendezvous.bind, GF_FORM_IP), .fallback_text = "",
     .help = "address this rank listens on or connects from; empty: any route to rendezvous.address"},
    {.key = "rendezvous.join_timeout", TIME(rendezvous.join_timeout_ns), .low = MS, .high = 86400 * S,
     .fallback = 60 * S, .help = "how long ranks wait for each other at the start"},
    {.key = "rendezvous.keepalive", TIME(rendezvous.keepalive_ns), .low = MS, .high = 3600 * S, .fallback = 5 * S,
     .help = "TCP keepalive period of the control channel"},
    {.key = "rendezvous.key_file", TEXT(rendezvous.key_file, GF_FORM_PATH), .fallback_text = "",
     .help = "secret that ranks prove to each other; empty: no authentication"},
    {.key = "rendezvous.insecure", BOOL(rendezvous.insecure), .help = "listen beyond loopback without a key"},
    {.key = "rendezvous.ports", TEXT(rendezvous.ports, GF_FORM_PORTS), .fallback_text = "26000-31999",
     .help = "ports the other ranks listen on, should they have to coordinate"},
    {.key = "rendezvous.rejoin", BOOL(rendezvous.rejoin), .help = "this rank was of the job and was started anew"},

    {.key = "link.transports", TEXT(link.transports, GF_FORM_TRANSPORTS), AGREES, .fallback_text = "self,posix,tcp",
     .help = "UCX transports, comma-separated"},
    {.key = "link.devices", TEXT(link.devices, GF_FORM_DEVICES), .fallback_text = "lo",
     .help = "network devices UCX may use; a;b by place in the node"},
    {.key = "link.ports", TEXT(link.ports, GF_FORM_PORTS), .fallback_text = "21000-25999",
     .help = "ports UCX's tcp listens on"},
    {.key = "link.window", COUNT(link.window), AGREES, .low = 1, .high = 32, .fallback = 8,
     .help = "messages under way at once in a collective"},
    {.key = "link.idle", NAME(link.idle, idle_names), .help = "what a rank does while it waits"},
    {.key = "link.integrity", BOOL(link.integrity), AGREES,
     .help = "a CRC32C beside each slice; auto then always sends messages"},
    {.key = "link.encryption", BOOL(link.encryption), AGREES,
     .help = "with a key_file: tcp between nodes is encrypted and authenticated"},
    {.key = "link.trusted_fabric", BOOL(link.trusted_fabric),
     .help = "with a key_file: rc, ud and the like, whose fabric keeps strangers out"},
    {.key = "link.huge_pages", BOOL(link.huge_pages), .help = "ask for huge pages for the exchange region"},

    {.key = "device.driver", TEXT(device.driver, GF_FORM_DRIVER), .fallback_text = "host",
     .help = "where gradients and weights live"},
    {.key = "device.library", TEXT(device.library, GF_FORM_PATH), .fallback_text = "libcuda.so.1",
     .help = "CUDA driver library to load"},
    {.key = "device.ordinal", COUNT(device.ordinal), .flags = GF_SETTING_AUTO, .high = 256,
     .help = "which GPU of this node; auto: the rank's place in its node, modulo the GPUs that it sees"},
    {.key = "device.shared", BOOL(device.shared), .help = "several ranks on one GPU are meant: no warning"},

    {.key = "exchange.wire", NAME(exchange.wire, gf_type_names), AGREES, .help = "type of values on the network"},
    {.key = "exchange.algorithm", NAME(exchange.algorithm, gf_algorithm_names), AGREES,
     .help = "how gradients are summed; auto: direct where all ranks share memory, hierarchy on nodes of several ranks "
             "each, else by size, see the limits below"},
    {.key = "exchange.fuse_bytes", BYTES(exchange.fuse_bytes), AGREES, .low = 1, .high = GIB, .fallback = 4 * MIB,
     .fallback_device = 32 * MIB,
     .help = "a fused buffer is closed once it holds this much; 1: each tensor by itself; on a GPU 32 MiB if left out"},
    {.key = "exchange.cut_bytes", BYTES(exchange.cut_bytes), AGREES, .low = 4 * KIB, .high = 64 * (uint64_t)GIB,
     .fallback = 16 * MIB,
     .help = "one that holds more travels as several; never below fuse_bytes (on a GPU 32 MiB) or a slice a rank"},
    {.key = "exchange.slice_bytes", BYTES(exchange.slice_bytes), AGREES, .low = 4 * KIB, .high = 16 * MIB,
     .multiple = 64, .fallback = 256 * KIB, .fallback_device = 512 * KIB,
     .help = "what is pipelined inside a block; on a GPU 512 KiB if left out"},
    {.key = "exchange.buffers_active", COUNT(exchange.buffers_active), AGREES, .low = 1, .high = GF_OPS_MAX, .fallback = 4,
     .help = "fused buffers on the wire at once"},
    {.key = "exchange.deterministic", BOOL(exchange.deterministic), AGREES,
     .help = "results do not depend on fusion; refuses ring and alltoall"},
    {.key = "exchange.average", NAME(exchange.average, average_names), AGREES,
     .help = "what the sum over ranks is divided by"},
    {.key = "exchange.pre_scale", REAL(exchange.pre_scale), .flags = GF_SETTING_AGREES | GF_SETTING_POWER_OF_TWO,
     .low_real = SCALE_MIN, .high_real = SCALE_MAX, .fallback_real = 1,
     .help = "applied before the wire, its inverse after"},
    {.key = "exchange.timeout", TIME(exchange.timeout_ns), .low = MS, .high = 86400 * S, .fallback = 30 * S,
     .help = "an operation without progress for so long has failed"},
    {.key = "exchange.doubling_max_bytes", BYTES(exchange.doubling_max_bytes), AGREES, .low = 1, .high = GIB,
     .fallback = 8 * KIB, .help = "algorithm auto: doubling up to here"},
    {.key = "exchange.halving_max_bytes", BYTES(exchange.halving_max_bytes), AGREES, .low = 1, .high = GIB,
     .fallback = 512 * KIB, .help = "algorithm auto: then halving up to here, ring beyond; a world that is no power of "
             "two: up to 1/32 of it, of three ring"},
    {.key = "exchange.user_bytes", BYTES(exchange.user_bytes), AGREES, .high = 64 * (uint64_t)GIB,
     .help = "of the exchange region, for gf_exchange_take()"},
    {.key = "exchange.quantize", NAME(exchange.quantize, quantize_names), AGREES,
     .help = "fewer bits a gradient: int8, or onebit, its sign; what is lost is sent later"},
    {.key = "exchange.quantize_after", COUNT(exchange.quantize_after), AGREES, .high = INT64_MAX,
     .help = "steps that are not quantized at the start"},
    {.key = "exchange.scale_elems", COUNT(exchange.scale_elems), AGREES, .high = 512,
     .help = "elements that share a scale: int8 32, 64; onebit 256, 512; 0: the first"},

    {.key = "optimizer.kind", NAME(optimizer.kind, optimizer_names), AGREES,
     .help = "none: the appliance updates its weights itself"},
    {.key = "optimizer.momentum", REAL(optimizer.momentum), .flags = GF_SETTING_AGREES | GF_SETTING_BELOW_HIGH,
     .high_real = 1, .help = "share of the last update that is kept"},
    {.key = "optimizer.weight_decay", REAL(optimizer.weight_decay), AGREES, .high_real = 1,
     .help = "added to the gradient, times the weight"},
    {.key = "optimizer.nesterov", BOOL(optimizer.nesterov), AGREES, .help = "Nesterov's momentum; needs momentum"},
    {.key = "optimizer.lars_eta", REAL(optimizer.lars_eta), .flags = GF_SETTING_AGREES | GF_SETTING_ABOVE_LOW,
     .high_real = 1, .fallback_real = 0.001f, .help = "trust coefficient of lars"},
    {.key = "optimizer.lars_epsilon", REAL(optimizer.lars_epsilon), .flags = GF_SETTING_AGREES | GF_SETTING_ABOVE_LOW,
     .high_real = 1, .fallback_real = 1e-9f, .help = "keeps lars from dividing by 0"},
    {.key = "optimizer.adam_beta1", REAL(optimizer.adam_beta1),
     .flags = GF_SETTING_AGREES | GF_SETTING_ABOVE_LOW | GF_SETTING_BELOW_HIGH, .high_real = 1, .fallback_real = 0.9f,
     .help = "share of the first moment that is kept; adamw, lamb"},
    {.key = "optimizer.adam_beta2", REAL(optimizer.adam_beta2),
     .flags = GF_SETTING_AGREES | GF_SETTING_ABOVE_LOW | GF_SETTING_BELOW_HIGH, .high_real = 1, .fallback_real = 0.999f,
     .help = "share of the second moment that is kept"},
    {.key = "optimizer.adam_epsilon", REAL(optimizer.adam_epsilon), .flags = GF_SETTING_AGREES | GF_SETTING_ABOVE_LOW,
     .high_real = 1, .fallback_real = 1e-8f, .help = "keeps them from dividing by 0"},
    {.key = "optimizer.clip_norm", REAL(optimizer.clip_norm), AGREES, .high_real = 1e9f,
     .help = "the norm that all gradients together are scaled down to; 0: they are not"},
    {.key = "optimizer.half_weights", NAME(optimizer.half_weights, gf_type_names), AGREES,
     .help = "fp16, bf16: also keep the weights in this type; needs an optimizer"},

    {.key = "rate.kind", NAME(rate.kind, rate_names), AGREES, .help = "how the learning rate falls, for gf_rate()"},
    {.key = "rate.base", REAL(rate.base_rate), AGREES, .high_real = 1e4f, .help = "the highest learning rate; 0: none"},
    {.key = "rate.batch", COUNT(rate.batch), AGREES, .high = UINT32_MAX,
     .help = "images a step of all ranks: base is multiplied with batch / base_batch; 0: it is not"},
    {.key = "rate.base_batch", COUNT(rate.base_batch), AGREES, .low = 1, .high = UINT32_MAX, .fallback = 256,
     .help = "the batch that base is for"},
    {.key = "rate.root_scaling", BOOL(rate.root_scaling), AGREES, .help = "with the square root of batch / base_batch"},
    {.key = "rate.warmup_steps", COUNT(rate.warmup_steps), AGREES, .high = INT64_MAX,
     .help = "steps in which it rises in a straight line"},
    {.key = "rate.steps", COUNT(rate.step_count), AGREES, .high = INT64_MAX,
     .help = "polynomial, cosine: it has reached end here"},
    {.key = "rate.end", REAL(rate.end_rate), AGREES, .high_real = 1e4f, .help = "polynomial, cosine: the last rate"},
    {.key = "rate.power", REAL(rate.power), .flags = GF_SETTING_AGREES | GF_SETTING_ABOVE_LOW, .high_real = 1000,
     .fallback_real = 1, .help = "polynomial: of what is left; FireCaffe 0.5, LARS 2"},
    {.key = "rate.every", COUNT(rate.every), AGREES, .high = INT64_MAX,
     .help = "step: multiplied with factor so often"},
    {.key = "rate.factor", REAL(rate.factor), .flags = GF_SETTING_AGREES | GF_SETTING_ABOVE_LOW, .high_real = 1,
     .fallback_real = 0.1f, .help = "step: what it is multiplied with"},

    {.key = "sparse.enabled", BOOL(sparse.enabled), AGREES, .help = "send the chunks that matter most, not all"},
    {.key = "sparse.chunk_elems", COUNT(sparse.chunk_elems), AGREES, .low = 1, .high = 1u << 24, .fallback = 32768,
     .help = "elements in a chunk"},
    {.key = "sparse.keep_share", REAL(sparse.keep_share), .flags = GF_SETTING_AGREES | GF_SETTING_ABOVE_LOW,
     .high_real = 1, .fallback_real = 0.15f, .help = "share of the chunks that is sent"},
    {.key = "sparse.warmup_steps", COUNT(sparse.warmup_steps), AGREES, .high = INT64_MAX,
     .help = "dense steps at the start"},
    {.key = "sparse.ramp_steps", COUNT(sparse.ramp_steps), AGREES, .high = INT64_MAX,
     .help = "steps from all chunks to sparse.keep_share"},
    {.key = "sparse.momentum", NAME(sparse.momentum, sparse_names), AGREES,
     .help = "where momentum is applied: after the reduction, or before accumulation"},

    {.key = "loss_scale.enabled", BOOL(loss_scale.enabled), AGREES,
     .help = "scale the loss, as far as gradients stay finite"},
    {.key = "loss_scale.initial", REAL(loss_scale.initial), .flags = GF_SETTING_AGREES | GF_SETTING_POWER_OF_TWO,
     .low_real = SCALE_MIN, .high_real = SCALE_MAX, .fallback_real = 65536, .help = "scale of the first step"},
    {.key = "loss_scale.growth_interval", COUNT(loss_scale.growth_interval), AGREES, .low = 1, .high = 1000000,
     .fallback = 2000, .help = "good steps before it grows"},
    {.key = "loss_scale.factor", REAL(loss_scale.factor), .flags = GF_SETTING_AGREES | GF_SETTING_POWER_OF_TWO,
     .low_real = 2, .high_real = 65536, .fallback_real = 2, .help = "by which it grows and falls"},
    {.key = "loss_scale.hysteresis", COUNT(loss_scale.hysteresis), AGREES, .low = 1, .high = 1000000, .fallback = 1,
     .help = "bad steps in a row before it falls"},
    {.key = "loss_scale.floor", REAL(loss_scale.floor), .flags = GF_SETTING_AGREES | GF_SETTING_POWER_OF_TWO,
     .low_real = SCALE_MIN, .high_real = SCALE_MAX, .fallback_real = 1, .help = "a bad step at the floor is an error"},

    {.key = "trace.records", COUNT(trace_records), .low = 1, .high = 1u << 20, .fallback = 1024,
     .help = "operations that the trace remembers"},
};
const uint32_t gf_setting_count = LENGTH(gf_settings);
