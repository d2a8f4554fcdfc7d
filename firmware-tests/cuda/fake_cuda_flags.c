/* The fake CUDA driver: words in memory that streams store and wait for. A wait ends by what the
 * word holds, whoever has stored it: a stream, the CPU, another process. What a stream did before
 * it stored is done before what follows a wait that has seen it; the CPU's stores order nothing. */
#include <string.h>

#include "firmware-tests/cuda/fake_cuda_calls.h"

#define WORDS_MAX 8192u /* that streams of this process have stored */
#define BATCH_MAX 255u

static struct {
    uint64_t at;
    struct clock clock; /* of all stores to it so far */
} words[WORDS_MAX];

/* Its place, or a free one. */
static uint32_t place_of(uint64_t at)
{
    uint32_t i = (uint32_t)(at / sizeof(uint64_t) * 0x9e3779b1u) % WORDS_MAX;
    for (uint32_t looked = 0; looked < WORDS_MAX; looked++, i = (i + 1u) % WORDS_MAX)
        if ((words[i].at == at) || (words[i].at == 0)) return i;
    fake_trouble("more than %u words are stored by streams", WORDS_MAX);
    return 0;
}

bool fake_await_passes(const struct work *work)
{
    uint64_t holds = __atomic_load_n((const uint64_t *)(uintptr_t)work->dst, __ATOMIC_ACQUIRE);
    return (int64_t)(holds - work->word) >= 0;
}

void fake_store(const struct work *work, const struct clock *clock)
{
    uint32_t i = place_of(work->dst);
    words[i].at = work->dst;
    fake_clock_join(&words[i].clock, clock);
    __atomic_store_n((uint64_t *)(uintptr_t)work->dst, work->word, __ATOMIC_RELEASE);
}

void fake_flags_order(const struct work *work, struct clock *clock)
{
    uint32_t i = place_of(work->dst);
    if (words[i].at == work->dst) fake_clock_join(clock, &words[i].clock);
}

void fake_flags_forget(void)
{
    memset(words, 0, sizeof words);
}

/* Of 64 bits, in registered host memory; a wait for what is not less, a store behind a barrier of
 * the whole system. */
CUresult cuStreamBatchMemOp(CUstream handle, unsigned count, CUstreamBatchMemOpParams *params,
                            unsigned flags)
{
    struct work work = {.kind = WORK_STORE};
    CUresult result = fake_enter_stream("cuStreamBatchMemOp", handle, &work.stream);
    if (result != CUDA_SUCCESS) return result;
    if (!fake_has_flags()) {
        fake_trouble("cuStreamBatchMemOp on a device that has no stream memory operations");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if ((count == 0) || (count > BATCH_MAX) || (flags != 0)) return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t pass = 0; pass < 2; pass++) { /* all are looked at before any is queued */
        for (unsigned i = 0; i < count; i++) {
            bool waits = params[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
            if (!waits && (params[i].operation != CU_STREAM_MEM_OP_WRITE_VALUE_64))
                return CUDA_ERROR_INVALID_VALUE;
            if ((waits ? params[i].waitValue.flags : params[i].writeValue.flags) != 0)
                return CUDA_ERROR_NOT_SUPPORTED;
            work.kind = waits ? WORK_AWAIT : WORK_STORE;
            work.dst = waits ? params[i].waitValue.address : params[i].writeValue.address;
            work.word = waits ? params[i].waitValue.value64 : params[i].writeValue.value64;
            if ((work.dst % sizeof(uint64_t) != 0) || !fake_is_host(work.dst, sizeof(uint64_t))) {
                fake_trouble(
                    "cuStreamBatchMemOp of 0x%llx, which is no word of registered host memory",
                    (unsigned long long)work.dst);
                return CUDA_ERROR_INVALID_VALUE;
            }
            if (pass == 1) fake_queue_add(work.stream, &work);
        }
    }
    return CUDA_SUCCESS;
}
