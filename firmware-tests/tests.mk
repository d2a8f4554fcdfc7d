# How the tests are built and run: included by the Makefile, from the top of the tree.
include firmware-tests/ucx/verbs.mk
# Two launchers and two MPIs for test_launchers.sh and test_mpi.sh, PyTorch for test_torch.sh and
# test_libtorch.sh, which are skipped without them: nothing else wants them.
TEST_PACKAGES := openmpi-bin libopenmpi-dev mpich libmpich-dev slurm-wlm munge python3-torch \
    libtorch-dev g++

# Test programs: test_*, program_*, fuzz_*, bench_* and soak_main; what else lies there is linked
# into all of them.
TEST_SRC := $(filter-out firmware-tests/ucx/verbs_%,$(wildcard firmware-tests/*/*.c))
program   = $(addprefix $(BUILD)/firmware-tests/,$(notdir $(basename $(1))))
TEST_LIB := $(foreach f,$(TEST_SRC),$(if $(filter fake_cuda% fake_nccl% test_% fuzz_% bench_% \
    program_% gpu_asserts.c suite_main.c soak_main.c,$(notdir $(f))),,$(f)))
C_TESTS  := $(wildcard firmware-tests/*/test_*.c)
TESTS    := $(call program,$(filter-out \
                $(if $(filter 1,$(UCX)),,firmware-tests/ucx/test_link_ucx%.c) \
                $(if $(filter 1,$(CUDA)),,firmware-tests/cuda/test_cuda%.c),$(C_TESTS)))
PROGRAMS := $(call program,$(filter-out \
                $(if $(filter 1,$(UCX)),,%/program_allocations.c %/program_ucx_faults.c) \
                $(if $(filter 1,$(CUDA)),,%/program_gpu.c), \
                $(wildcard firmware-tests/*/program_*.c))) \
            $(addprefix $(BUILD)/firmware-tests/,other_version_train held_language)
# Nobody starts them in a check; they shall compile.
BENCH_OBJ := $(patsubst %.c,$(BUILD)/%.o, \
                 $(filter-out %/bench_mpi.c %/bench_ucc.c,$(wildcard firmware-tests/bench/*.c)))
# ---- their objects ----
# Callbacks of tests take more than they use, and what stands for another library's call is declared
# there.
$(BUILD)/firmware-tests/%.o: GF_FLAGS += -Wno-unused-parameter -Wno-missing-prototypes
$(addprefix $(BUILD)/firmware-tests/,ucx/test_link_ucx%.o ucx/program_ucx_faults.o \
    whole/program_allocations.o): GF_FLAGS += $(UCX_FLAGS)
$(patsubst %.c,$(BUILD)/%.o,$(wildcard $(addprefix firmware-tests/,tcp/*.c ucx/*.c whole/*.c \
    fuzz/*.c))): $(BUILD)/link.used
$(patsubst %.c,$(BUILD)/%.o,$(shell grep -l GF_WITH_ $(wildcard firmware-tests/cuda/*.c))): \
    $(BUILD)/with.used
$(BUILD)/libtest.a: $(TEST_LIB:%.c=$(BUILD)/%.o)
	@rm -f $@
	ar rcs $@ $^
# The same files for the SIMT emulator: as C, each access a call of the thread sanitizer's, whose
# runtime the emulator is. Usable in a shared library too.
SIMT_OBJ := $(patsubst ops/element/cuda/%.cu,$(BUILD)/firmware-tests/cuda/kernel_%.o,$(KERNELS))
SIMT_FLAGS = $(filter-out -Wconversion,$(GF_FLAGS)) -fPIC $(if $(SAN),-fno-sanitize=all) \
    -fsanitize=thread
$(BUILD)/libtest.a: $(SIMT_OBJ)
$(SIMT_OBJ): $(BUILD)/firmware-tests/cuda/kernel_%.o: ops/element/cuda/%.cu $(BUILD)/compile.used
	@mkdir -p $(@D)
	$(CC) $(SIMT_FLAGS) -O1 -g -x c -c $< -o $@
$(BUILD)/firmware-tests/cuda/simt.o $(BUILD)/firmware-tests/cuda/simt_access.o: GF_FLAGS += -fPIC

# Kernels of the benchmark, which are not in the archive.
SWEEP_FATBIN := $(if $(NVCC),$(BUILD)/firmware-tests/cuda/gf_sweep_fatbin.o)
$(BUILD)/firmware-tests/cuda/gf_sweep.fatbin: firmware-tests/cuda/sweep.cu \
    firmware-tests/cuda/sweep.h
$(BUILD)/firmware-tests/cuda/gf_sweep.fatbin: $(FATBIN_USES)
	$(FATBIN_MAKE) $(filter %.cu,$^)

# ---- the tests ----
# A test is its own object and those that its line of prerequisites adds.
TRAIN_OBJ := $(call without_main,train) $(TOOL_SHARED) $(TOOL_CONTEXT)
NET_TESTS := $(addprefix $(BUILD)/firmware-tests/test_train_,net half meet)
$(NET_TESTS): $(TRAIN_OBJ) $(TRAIN_FATBIN)
MODEL_OBJ := $(patsubst %,$(BUILD)/tools/common/tool_%.o,model cluster fields file output)
$(BUILD)/firmware-tests/test_plan $(BUILD)/firmware-tests/test_plan_cluster: \
    $(call without_main,plan) $(MODEL_OBJ)
$(patsubst %,$(BUILD)/firmware-tests/%,test_models test_config_tensors test_check fuzz_config): \
    $(MODEL_OBJ)
$(BUILD)/firmware-tests/test_simt_train: $(BUILD)/tools/train/train_layers.o \
    $(BUILD)/firmware-tests/fake/kernels_train.o
$(BUILD)/firmware-tests/test_simt_sweep: $(BUILD)/firmware-tests/fake/kernels_sweep.o
$(BUILD)/firmware-tests/test_check_devices: $(call without_main,check) $(TOOL_SHARED) \
    $(TOOL_CONTEXT)
$(BUILD)/firmware-tests/test_check: $(call without_main,check) \
    $(patsubst %,$(BUILD)/tools/common/tool_%.o,output port context)
$(BUILD)/firmware-tests/test_bytes: $(BUILD)/tools/common/tool_output.o
$(BUILD)/firmware-tests/test_perf: $(call without_main,perf) $(TOOL_SHARED) $(TOOL_CONTEXT)
# UCX's calls, of which one fails.
UCX_FAULTS = $(patsubst %,-Wl$(comma)--wrap=ucp_%,config_read config_modify init_version \
    context_query mem_map worker_create worker_get_efd worker_get_address worker_arm \
    worker_flush_nbx ep_create tag_send_nbx tag_recv_nbx) \
    $(patsubst %,-Wl$(comma)--wrap=uct_%,query_components md_open)
$(BUILD)/firmware-tests/test_link_ucx_calls: LDFLAGS += $(UCX_FAULTS)
$(BUILD)/firmware-tests/test_link_ucx_calls: $(BUILD)/firmware-tests/ucx/program_ucx_faults.o
$(filter $(BUILD)/firmware-tests/test_link_ucx%,$(TESTS)): $(if $(UCX_APART),$(UCX_OBJ))
# What a test wraps, a line of its head comment says: link: wrap FUNCTION ..
wraps = $(addprefix -Wl$(comma)--wrap=,$(shell sed -n \
    's|^ \* link: wrap \([a-z0-9_ ]*[a-z0-9_]\).*|\1|p' $(<:$(BUILD)/%.o=%.c)))
$(BUILD)/firmware-tests/test_%: $$(call objects,firmware-tests/*/test_$$*.c \
    firmware-tests/support/suite_main.c) $(BUILD)/libtest.a $(SIM_LIB) $(LIB)
	$(CC) $(CFLAGS) $(LDFLAGS) $(wraps) -o $@ $(filter %.o,$^) $(BUILD)/libtest.a $(SIM_LIB) \
	    $(LIB) $(if $(filter $(NET_TESTS) %simt_train,$@),$(BLAS_LIBS)) $(LINK_LIBS) \
	    $(if $(findstring test_link_ucx,$@),$(UCX_APART)) -lcmocka

# A CUDA driver without a GPU, for tests of the real one: found by dlopen() like the real one's
# library.
FAKE_CUDA := $(if $(filter 1,$(CUDA)),$(BUILD)/firmware-tests/fake/libcuda.so.1)
FAKE_CUDA_SRC := $(wildcard firmware-tests/cuda/fake_cuda*.c)
FAKE_CUDA_OBJ := $(FAKE_CUDA_SRC:firmware-tests/cuda/%.c=$(BUILD)/firmware-tests/fake/%.o)
$(BUILD)/firmware-tests/fake/%.o: firmware-tests/cuda/%.c $(BUILD)/compile.used
	@mkdir -p $(@D)
	$(CC) $(GF_FLAGS) -isystem $(CUDA_INC) -fPIC $(CFLAGS) -c $< -o $@
TOOL_KERNELS := $(patsubst %,$(BUILD)/firmware-tests/fake/kernels_%.o,train sweep)
FAKE_CUDA_OBJ += $(SIMT_OBJ) $(TOOL_KERNELS) \
                 $(patsubst %,$(BUILD)/firmware-tests/cuda/%.o,simt simt_access)
$(BUILD)/firmware-tests/fake/kernels_train.o: tools/train/train.cu $(BUILD)/compile.used
$(BUILD)/firmware-tests/fake/kernels_sweep.o: firmware-tests/cuda/sweep.cu $(BUILD)/compile.used
$(TOOL_KERNELS):
	@mkdir -p $(@D)
	$(CC) $(SIMT_FLAGS) -O1 -g -x c -c $< -o $@
$(BUILD)/firmware-tests/fake/libcuda.so.1: $(FAKE_CUDA_OBJ)
	$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 -o $@ $^ -lm
$(filter $(BUILD)/firmware-tests/test_cuda%,$(TESTS)): | $(FAKE_CUDA)

# libnccl.so.2's calls, for gf-perf.
FAKE_NCCL := $(if $(FAKE_CUDA),$(BUILD)/firmware-tests/fake/libnccl.so.2)
$(BUILD)/firmware-tests/fake/libnccl.so.2: $(BUILD)/firmware-tests/fake/fake_nccl.o
	$(CC) $(CFLAGS) $(LDFLAGS) -shared -o $@ $^

# What shell tests start. An appliance needs neither libconfig nor, with drivers of its own, UCX:
# these are linked without. UCX is dynamic where callers of malloc() are told apart by the object
# they lie in.
PROGRAM_LIBS = $(LIB) $(LINK_LIBS)
$(BUILD)/firmware-tests/program_embed: PROGRAM_LIBS = $(LIB) $(DRIVER_LIBS)
$(BUILD)/firmware-tests/program_own_drivers: PROGRAM_LIBS = $(SIM_LIB) $(LIB)
$(BUILD)/firmware-tests/program_sockets: PROGRAM_LIBS = -Wl,--gc-sections $(LIB) -Wl,-Bstatic \
    -lsodium -Wl,-Bdynamic
# UCX's driver by its objects: in the library UCX lies with it.
$(BUILD)/firmware-tests/program_allocations: $(UCX_OBJ)
$(BUILD)/firmware-tests/program_allocations: PROGRAM_LIBS = -Wl,--wrap=getenv $(UCX_OBJ) $(LIB) \
    -Wl,-Bstatic -lconfig -lsodium -Wl,-Bdynamic $(UCX_DYNAMIC_LIBS) -ldl -lrt -lm
$(BUILD)/firmware-tests/program_strangers: PROGRAM_LIBS = $(BUILD)/libtest.a $(LIB) $(LINK_LIBS) \
    -lcmocka
$(BUILD)/firmware-tests/program_strangers: $(BUILD)/libtest.a
$(BUILD)/firmware-tests/program_soak_corpus: PROGRAM_LIBS = $(BUILD)/libtest.a $(SIM_LIB) $(LIB) \
    $(LINK_LIBS) -lcmocka
$(BUILD)/firmware-tests/program_soak_corpus: $(BUILD)/libtest.a
# A search saves and restores the world of states.h, and nothing else: so nothing else may change.
STATES := $(BUILD)/firmware-tests/program_states
$(STATES): PROGRAM_LIBS = $(BUILD)/libtest.a $(LIB) $(LINK_LIBS)
$(STATES): $(BUILD)/libtest.a firmware-tests/control/writable.sh
# It runs where there is no libcmocka: gpu_asserts.c has what worlds call of it.
GPU_ASSERTS := $(BUILD)/firmware-tests/cuda/gpu_asserts.o
$(BUILD)/firmware-tests/program_gpu: PROGRAM_LIBS = $(GPU_ASSERTS) $(BUILD)/libtest.a $(SIM_LIB) \
    $(LIB) $(LINK_LIBS)
$(BUILD)/firmware-tests/program_gpu: $(GPU_ASSERTS) $(BUILD)/libtest.a $(SWEEP_FATBIN)
# gf-train with faulty hardware, and one of another version of the library.
FAULTY_LINK = $(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(SIM_LIB) $(LIB) $(BLAS_LIBS) \
    $(LINK_LIBS)
$(BUILD)/firmware-tests/program_faulty_train: $(BUILD)/firmware-tests/whole/program_faulty_train.o \
    $(BUILD)/tools/train/train_main.o $(TRAIN_OBJ) $(TRAIN_FATBIN) $(LIB) $(SIM_LIB)
	$(FAULTY_LINK) -Wl,--wrap=gf_tensor_ready -Wl,--wrap=gf_close -Wl,--wrap=recvmsg
# One that goes on until its test lets it end, and the language model likewise.
$(BUILD)/firmware-tests/program_held_train: $(BUILD)/firmware-tests/control/program_held_train.o \
    $(BUILD)/tools/train/train_main.o $(TRAIN_OBJ) $(TRAIN_FATBIN) $(LIB) $(SIM_LIB)
	$(FAULTY_LINK) -Wl,--wrap=gf_regroup_due
$(BUILD)/firmware-tests/held_language: $(BUILD)/firmware-tests/control/program_held_train.o \
    tools/example/language.c tools/example/transformer.h tools/example/checkpoint.h $(LIB) | \
    $(BUILD)/include
	$(CC) -std=c11 -I$(BUILD)/include $(CFLAGS) -O3 $(LDFLAGS) -Wl,--wrap=gf_regroup_due \
	    $(filter %.o %.c,$^) -o $@ \
	    $(LIB) $(LINK_LIBS)
$(BUILD)/firmware-tests/program_ucx_faults: $(BUILD)/firmware-tests/ucx/program_ucx_faults.o \
    $(UCX_OBJ) $(BUILD)/tools/train/train_main.o $(TRAIN_OBJ) $(TRAIN_FATBIN) $(LIB) $(SIM_LIB)
	$(FAULTY_LINK) $(UCX_FAULTS) $(UCX_APART)
OTHER_OBJ := $(patsubst %,$(BUILD)/other/%.o,lib/core/open drivers/tcp/channel_take \
    drivers/tcp/channel_dial)
$(BUILD)/firmware-tests/other_version_train: $(OTHER_OBJ) $(BUILD)/tools/train/train_main.o \
    $(TRAIN_OBJ) $(TRAIN_FATBIN) $(LIB) $(SIM_LIB)
	$(FAULTY_LINK)
$(BUILD)/other/%.o: %.c firmware-tests/whole/other_version.h $(BUILD)/compile.used
	@mkdir -p $(@D)
	$(CC) $(GF_FLAGS) -include firmware-tests/whole/other_version.h $(CFLAGS) -c $< -o $@
$(BUILD)/firmware-tests/program_%: $$(call objects,firmware-tests/*/program_$$*.c) $(LIB) \
    $(SIM_LIB) $(TOOL_SHARED)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(if $(filter %allocations %gpu,$@),$(TOOL_SHARED)) \
	    $(filter %_fatbin.o,$^) \
	    $(PROGRAM_LIBS) -lm
	$(if $(filter $(STATES),$@),@sh firmware-tests/control/writable.sh $@ || { rm -f $@; exit 1; })

# ---- what people run ----
deps-test: ## the same, and what some tests start: Open MPI, MPICH, Slurm, PyTorch
	@$(MAKE) --no-print-directory deps PACKAGES="$(PACKAGES) $(TEST_PACKAGES)"

check: ## every suite but the long ones (6 minutes on 2 cores)
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory -s -j2 WERROR=1 all tests
	@$(MAKE) --no-print-directory -s suites

QUICK_TESTS := $(call program,$(shell grep -L '^ \* suite: slow' \
    $(wildcard firmware-tests/*/test_*.c)))
check-quick: ## the suites in C that are not slow (a minute): what one runs between edits
	@$(MAKE) --no-print-directory -s -j2 $(QUICK_TESTS)
	@BUILD=$(BUILD) sh firmware-tests/support/run.sh $(QUICK_TESTS)

OUTAGES = $(foreach s,1 3 8 20,$(foreach h,2x1 2x2 3x1,$h:$s))
outage: ## the network of an elastic job is gone for 1 to 20 s, RUNS=20 (an hour)
outage: $(BUILD)/firmware-tests/program_outage
	@RUNS=$${RUNS:-20} WITHIN=$${WITHIN:-5} OUTAGES="$(OUTAGES)" BUILD=$(BUILD) \
	    sh firmware-tests/control/test_outage.sh

check-long: ## check, long suites, clang, valgrind, sanitizers, fuzz targets, a soak (an hour)
	@for target in check check-clang check-valgrind check-san; do $(MAKE) --no-print-directory \
	    $$target || exit 1; done
	@BUILD=$(BUILD) sh firmware-tests/support/run.sh $(LONG_SUITES)
	@RUNS=3 BUILD=$(BUILD) sh firmware-tests/support/run.sh \
	    firmware-tests/control/test_elastic.sh firmware-tests/control/test_rejoin.sh \
	    firmware-tests/tcp/test_flood.sh
	@TIMES="1 5 20" BUILD=$(BUILD) \
	    sh firmware-tests/support/run.sh firmware-tests/control/test_coordinator_dies.sh
	@$(MAKE) --no-print-directory -s fuzz FUZZ_SECONDS=10
	@$(MAKE) --no-print-directory -s soak SECONDS=600

SHELL_TESTS := $(wildcard firmware-tests/*/test_*.sh)
LEFT_OUT = $(filter-out $(notdir $(TESTS)), \
               $(filter test_$(or $(T),%),$(notdir $(basename $(C_TESTS)))))
# A suite that says "suite: long" is left to check-long and to those who ask for it by name.
LONG_SUITES := $(shell grep -l '^. suite: long' $(SHELL_TESTS))
SUITES = $(if $(T),$(filter %/test_$(T) %/test_$(T).sh,$(TESTS) $(SHELL_TESTS)), \
             $(filter-out $(LONG_SUITES),$(SHELL_TESTS)) $(TESTS))
$(BUILD)/images: firmware-tests/support/idx.sh
	@rm -rf $@ $@.part && mkdir -p $(BUILD) && . $< && idx_data $@.part 4096 1024 && mv $@.part $@
tests: $(TESTS) $(PROGRAMS) $(FAKE_CUDA) $(FAKE_NCCL) $(BUILD)/language $(BUILD)/images \
    $(BENCH_OBJ) $(if $(SAN),,$$(BUILD)/$$(SONAME))
suites: tests all
	@CC="$(CC)" BUILD=$(BUILD) LEFT_OUT="$(LEFT_OUT)" sh firmware-tests/support/run.sh $(SUITES)
test: suites ## every suite without looking at packages, or one: T=coll

tidy: ## the rules of the tree: includes, READMEs, headers, layout; SHRINK=1 shortens its list
	@CC="$(CC)" sh firmware-tests/whole/test_tidy.sh

check-states: ## coordinator and members searched by two processes, SECONDS=600 each (states.h)
	@$(MAKE) --no-print-directory -s -j2 $(STATES)
	@$(STATES) $(or $(SECONDS),600) & $(STATES) $(or $(SECONDS),600) 10 1000000007 && wait $$!
check-states-whole: ## 3 deviations of 4 and 2 members to their end, in PARTS=64 (an hour, 4 GB)
	@$(MAKE) --no-print-directory -s -j2 $(STATES)
	@for job in 10 9; do { $(STATES) parts $$job $(or $(PARTS),64) 0 2 & \
	    $(STATES) parts $$job $(or $(PARTS),64) 1 2 && wait $$!; } || exit 1; done
CONTROL_SUITES := $(notdir $(basename $(shell grep -lE 'support/control_(suite|w)' \
                    $(wildcard firmware-tests/control/test_*.c))))
check-states-mutants: ## planted defects, MUTANTS=200 seeded changes of lib/control: what finds them
	@$(MAKE) --no-print-directory -s -j2 $(STATES) $(call program,test_states $(CONTROL_SUITES))
	@CC="$(CC)" BUILD=$(BUILD) python3 firmware-tests/control/mutants.py planted
	@CC="$(CC)" BUILD=$(BUILD) python3 firmware-tests/control/mutants.py $(or $(MUTANTS),200) \
	    $(or $(SEED),1)

check-queues: ## CUDA suites, gpu-check with each of MODES="1 2 8 .." of queues, SEEDS=1000
check-queues: tests all
	@BUILD=$(BUILD) MODES="$(MODES)" SEEDS="$(SEEDS)" sh firmware-tests/cuda/queue_modes.sh

# What runs over UCX, or is about how it is linked.
UCX_SUITES := $(call program,$(wildcard firmware-tests/ucx/test_link_ucx*.c)) \
              $(addprefix firmware-tests/ucx/test_,ucx_links.sh ucx_faults.sh unopened.sh mpi.sh)
UCX_BUILD  := $(BUILD)-ucx-$(UCX_VERSION)$(if $(filter 1,$(UCX_DYNAMIC)),-dynamic)
ucx-suites: $(filter $(BUILD)/%,$(UCX_SUITES)) $(call program,program_ucx_faults program_unopened) \
    $(BUILD)/images
check-ucx: ## the suites that use UCX, with another one: UCX_PREFIX=DIR, UCX_DYNAMIC=1
	@$(MAKE) --no-print-directory -s -j2 WERROR=1 BUILD=$(UCX_BUILD) all ucx-suites
	@echo "with UCX $(UCX_TEXT):"; CC="$(CC)" STRIDE=8 BUILD=$(UCX_BUILD) \
	    sh firmware-tests/support/run.sh $(UCX_SUITES:$(BUILD)/%=$(UCX_BUILD)/%)

check-verbs: ## steps over UCX's rc and ud on a device without a card (75 s)
	@$(MAKE) --no-print-directory deps UCX_IB=1
	@$(MAKE) --no-print-directory -s -j2 all $(BUILD)/images
	@CC="$(CC)" BUILD=$(BUILD) sh firmware-tests/support/run.sh firmware-tests/ucx/test_verbs.sh

check-san: ## the unit tests under address and undefined-behaviour checks
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory -s -j2 BUILD=$(BUILD)-san SAN=address,undefined tests
	@BUILD=$(BUILD)-san ASAN_OPTIONS=detect_leaks=0 \
	    sh firmware-tests/support/run.sh $(patsubst $(BUILD)/%,$(BUILD)-san/%,$(TESTS))

quick-programs: # their names, for another BUILD
	@echo $(QUICK_TESTS)
check-aarch64: ## the quick suites for 64-bit ARM under qemu, with Debian's cross compiler
	@BUILD=$(BUILD)-aarch64 sh firmware-tests/support/aarch64.sh

check-litmus: ## the flag protocols of direct in herd7's C11 model (HERD=FILE), or skipped
	@sh firmware-tests/support/litmus.sh

check-clang: ## compile everything with clang, warnings as errors
	@$(MAKE) --no-print-directory -s -j2 CC=clang WERROR=1 BUILD=$(BUILD)-clang all tests

check-valgrind: tests ## the arena and configuration suites under valgrind
	@BUILD=$(BUILD) WRAP="valgrind -q --error-exitcode=9" sh firmware-tests/support/run.sh \
	    $(filter %/test_arena %/test_layout %/test_pool %/test_config %/test_config_wrong \
	        %/test_config_open %/test_config_tensors %/test_settings,$(TESTS))

audit: $(LIB) ## fail if the library calls what firmware-tests/support/audit_allowed does not list
	@sh firmware-tests/support/audit.sh $(LIB)

MUTANTS ?= 200
mutate: ## MUTANTS=200 seeded changes of a token: the share that quick suites notice (an hour)
	@command -v python3 >/dev/null && command -v gcov >/dev/null || { \
	    echo "skipped: needs python3 and gcov"; exit 0; }; \
	BUILD=$(BUILD)-mutate nice -n 19 python3 firmware-tests/support/mutate.py $(MUTANTS) \
	    $(or $(SEED),1)

FUZZ_SECONDS ?= 60
FUZZERS := $(patsubst firmware-tests/fuzz/fuzz_%.c,%, \
               $(wildcard firmware-tests/fuzz/fuzz_$(or $(T),*).c))
FUZZ_BUILD := $(BUILD)-fuzz
# A target's corpus is one tar. It is unpacked where it may grow, and packed again with the same
# bytes for the same files.
FUZZ_SEEDS := $(FUZZERS:%=$(FUZZ_BUILD)/seeds/%)
$(FUZZ_BUILD)/seeds/%: firmware-tests/fuzz/corpus/%.tar
	@rm -rf $@ && mkdir -p $@ && tar -xmf $< -C $@
fuzz-unpack: ## the corpora of the fuzz targets, or one (T=frames), as files in $(BUILD)-fuzz/seeds
fuzz-unpack: $(FUZZ_SEEDS)
fuzz-pack: $(FUZZ_SEEDS) ## these files as firmware-tests/fuzz/corpus/*.tar again
	@for f in $(FUZZERS); do \
	    tar -cf firmware-tests/fuzz/corpus/$$f.tar --format=ustar --sort=name --mtime=@0 --owner=0 \
	    --group=0 \
	        --numeric-owner --mode=644 -C $(FUZZ_BUILD)/seeds/$$f \
	        $$(cd $(FUZZ_BUILD)/seeds/$$f && LC_ALL=C ls) || exit 1; \
	done
fuzz: $(FUZZ_SEEDS) ## each fuzz target on its corpus for FUZZ_SECONDS, or one: T=frames
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory -s -j2 BUILD=$(FUZZ_BUILD) CC=clang \
	    SAN=fuzzer-no-link,address,undefined \
	    $(FUZZERS:%=$(FUZZ_BUILD)/firmware-tests/fuzz_%)
	@for f in $(FUZZERS); do echo "fuzz $$f"; mkdir -p $(FUZZ_BUILD)/corpus/$$f; \
	    ASAN_OPTIONS=detect_leaks=0 $(FUZZ_BUILD)/firmware-tests/fuzz_$$f \
	    -max_total_time=$(FUZZ_SECONDS) -max_len=8192 \
	        -timeout=10 -verbosity=0 -print_final_stats=1 -artifact_prefix=$(FUZZ_BUILD)/$$f- \
	        $(FUZZ_BUILD)/corpus/$$f $(FUZZ_BUILD)/seeds/$$f || exit 1; done
$(BUILD)/firmware-tests/fuzz_trace: $(call without_main,trace) \
    $(patsubst %,$(BUILD)/tools/common/tool_%.o,output file)
$(BUILD)/firmware-tests/fuzz_%: $(BUILD)/firmware-tests/fuzz/fuzz_%.o $(BUILD)/libtest.a \
    $(SIM_LIB) $(LIB)
	$(CC) $(CFLAGS) -fsanitize=$(SAN:fuzzer-no-link%=fuzzer%) -o $@ $(filter %.o,$^) \
	    $(BUILD)/libtest.a $(SIM_LIB) $(LIB) $(LINK_LIBS) -lcmocka

# QUICK=1: to $(BUILD)/report-quick; PARTS="memory plan"; FAULTS=FOLDER of a fault-table that was
# made before
report: ## what the pages cite measured anew (half an hour, root; QUICK=1: 6 minutes)
	@$(MAKE) --no-print-directory deps REPORT=1
	@$(MAKE) --no-print-directory -s -j2 all tests $(BUILD)/firmware-tests/bench_idle
	@BUILD=$(BUILD) PYTHONDONTWRITEBYTECODE=1 python3 firmware-tests/bench/report.py measure \
	    $(if $(QUICK),--quick) --parts "$(PARTS)"
bench-ops: $(BUILD)/firmware-tests/bench_ops ## what element ops move past the cache, beside memcpy
	$<
bench-peers: all ## shared memory beside Open MPI, MPICH, Gloo, UCC; steps of models (20 minutes)
	@BUILD=$(BUILD) sh firmware-tests/bench/bench_peers.sh
bench-net: all ## the same over 1 Gbit/s links between network namespaces (an hour; root)
	@BUILD=$(BUILD) sh firmware-tests/bench/bench_net.sh
bench-idle: ## link.idle: auto, spin, yield, sleep on busy cores (15 minutes; root)
bench-idle: all $(BUILD)/firmware-tests/bench_idle
	@BUILD=$(BUILD) sh firmware-tests/bench/bench_idle.sh
bench-plan: all ## what gf-plan predicts beside what gf-perf measures (12 minutes; root)
	@BUILD=$(BUILD) sh firmware-tests/bench/bench_plan.sh
bench-tree: all ## FireCaffe's reduction tree and server over 2 to 8 hosts, a plot (1 minute; root)
	@BUILD=$(BUILD) sh firmware-tests/bench/bench_tree.sh
bench-torch: all shared ## a step of PyTorch, ours and over Gloo: RANKS="2 4" (5 minutes)
	@BUILD=$(BUILD) sh firmware-tests/bench/bench_torch.sh
$(BUILD)/firmware-tests/bench_%: $(BUILD)/firmware-tests/bench/bench_%.o $(LIB)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(LIB) $(LINK_LIBS)

# 77: there is nothing to check, and why was said.
GPU_PROGRAM := $(BUILD)/firmware-tests/program_gpu
kernels: ## registers and instructions of each kernel; RECORD=1
kernels: $(if $(NVCC),$(FATBIN) $(BUILD)/firmware-tests/program_kernels)
	@[ -n "$(NVCC)" ] || { echo "skipped: this build has no GPU kernels (no nvcc)"; exit 0; }; \
	BUILD=$(BUILD) sh firmware-tests/support/kernels.sh $(if $(RECORD),record) && \
	{ [ -n "$(RECORD)" ] || BUILD=$(BUILD) sh firmware-tests/support/kernels.sh loads; }
gpu-check: ## every op and whole steps on the GPU against the host's; LIBRARY=another libcuda.so.1
gpu-check: $(if $(filter 1,$(CUDA)),$(GPU_PROGRAM)) $(BUILD)/gf-run $(BUILD)/gf-train
	@[ "$(CUDA)" = 1 ] || { echo "skipped: this build has no CUDA driver (no cuda.h)"; exit 0; }; \
	$(GPU_PROGRAM) check $(LIBRARY:%=--library %); code=$$?; \
	[ $$code -ne 77 ] || exit 0; [ $$code -eq 0 ] || exit $$code; \
	[ -z "$(LIBRARY)" ] || exit 0; \
	echo "two processes on it:"; out=$$($(BUILD)/gf-run -n 2 $(BUILD)/gf-train --device cuda \
	    --model linear --steps 50) || exit 1; \
	echo "$$out" | grep -E '^(gradients|weights) '; \
	command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer: skipped, not installed"; \
	    exit 0; }; \
	compute-sanitizer --error-exitcode 9 $(GPU_PROGRAM) check --small --ops
MIB ?= 256
gpu-bench: ## kernels beside sweeps of the same mix, a step; MIB=256
gpu-bench: $(if $(filter 1,$(CUDA)),$(GPU_PROGRAM))
	@[ "$(CUDA)" = 1 ] || { echo "skipped: this build has no CUDA driver (no cuda.h)"; exit 0; }; \
	$(GPU_PROGRAM) bench $(LIBRARY:%=--library %) --mib $(MIB); code=$$?; [ $$code -eq 77 ] || \
	    exit $$code

BUNDLED := $(addprefix $(BUILD)/gf-,run train perf check)
BUNDLES := $(filter 11,$(CUDA)$(if $(NVCC),1))
gpu-bundle: ## a folder for a box with a GPU: run.sh A, run.sh B do its first 15 minutes
gpu-bundle: $(if $(BUNDLES),$(GPU_PROGRAM) $(BUNDLED) $$(BUILD)/$$(SONAME))
	@[ -n "$(BUNDLES)" ] || { \
	    echo "skipped: this build has no CUDA driver or no GPU kernels (cuda.h, nvcc)"; exit 0; }; \
	BUILD=$(BUILD) sh firmware-tests/support/gpu_bundle.sh $(BUILD)/gpu-bundle $(BUILD)/$(SONAME) \
	    $(GPU_PROGRAM) $(BUNDLED)

lab: ## real faults in network namespaces (root): each once, RUNS=20 times, or some: T='tcp_kill*'
lab: tests all
	@BUILD=$(BUILD) RUNS=$(or $(RUNS),1) sh firmware-tests/lab/lab.sh $(if $(T),'$(T)')
chaos: ## 8 real ranks on 4 hosts, a fault a second: SECONDS=60 SEED=1 (root)
chaos: all $(BUILD)/firmware-tests/program_stamp
	@BUILD=$(BUILD) sh firmware-tests/lab/chaos.sh $(or $(SECONDS),60) $(SEED)
# PARTS="chaos-* faults": some of them (proofs.py list); MINUTES=60: then no other part is begun
PROOF_PROGRAMS := $(STATES) $(BUILD)/firmware-tests/soak_main $(BUILD)/firmware-tests/program_stamp
proofs: all tests $(PROOF_PROGRAMS) ## long runs of the control plane (root, two hours)
	@BUILD=$(BUILD) CC="$(CC)" MINUTES=$(MINUTES) python3 firmware-tests/lab/proofs.py run $(PARTS)
	@BUILD=$(BUILD) python3 firmware-tests/lab/proofs.py table
LABS ?= 3
fault-table: tests all ## the same 20 times, or what is left of it, LABS=3 at once, and its table
	-@for lab in $$(seq $(LABS)); do \
	    LAB=$$lab/$(LABS) BUILD=$(BUILD) RUNS=$(or $(RUNS),20) \
	        nice -n 5 sh firmware-tests/lab/lab.sh $(if $(T),'$(T)') & done; wait
	@BUILD=$(BUILD) sh firmware-tests/lab/lab.sh table
accuracy: ## where sparse steps and large batches end (50 minutes; goes on where it was stopped)
	@$(MAKE) --no-print-directory -s -j2 all
	@BUILD=$(BUILD) sh firmware-tests/bench/accuracy.sh sparse
accuracy-sparse: ## sparse steps at shares from 1 to 30 %, a plot (15 minutes; likewise)
	@BUILD=$(BUILD) sh firmware-tests/bench/accuracy_sparse.sh
accuracy-wire: ## where 16-bit wires end beside fp32 (10 minutes; likewise)
	@$(MAKE) --no-print-directory -s -j2 all
	@BUILD=$(BUILD) sh firmware-tests/bench/accuracy.sh wire
bench-split: ## what data and model parallelism move for a layer, and where they cross (5 minutes)
	@$(MAKE) --no-print-directory -s -j2 all
	@BUILD=$(BUILD) sh firmware-tests/bench/model_parallel.sh
accuracy-precision: ## where training in 16 bits ends beside fp32 (15 minutes; likewise)
	@$(MAKE) --no-print-directory -s -j2 all
	@BUILD=$(BUILD) sh firmware-tests/bench/accuracy.sh precision
SECONDS ?= 60
soak: ## the corpus and random jobs, simulated, for SECONDS=60, or that of SEED=0x..
soak: $(BUILD)/firmware-tests/soak_main
	@$< $(SECONDS) $(SEED)
JOBS ?= 20000
CORPUS_PROGRAM := $(BUILD)-edges/firmware-tests/program_soak_corpus
soak-corpus: ## JOBS=20000 jobs led by the edges they reach; soak/corpus grows (clang)
	@$(MAKE) --no-print-directory -s -j2 BUILD=$(BUILD)-edges CC=clang EDGES=1 $(CORPUS_PROGRAM)
	@$(CORPUS_PROGRAM) guided $(JOBS) $(or $(SEED),$$(date +%s)) firmware-tests/soak/corpus
$(OBJ): GF_FLAGS += $(if $(EDGES),-fsanitize-coverage=inline-8bit-counters)
$(BUILD)/firmware-tests/soak_main: $(BUILD)/firmware-tests/soak/soak_main.o $(BUILD)/libtest.a \
    $(SIM_LIB) $(LIB)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(BUILD)/libtest.a $(SIM_LIB) $(LIB) $(LINK_LIBS) -lcmocka \
	    $(foreach f,mmap munmap open,-Wl,--wrap=$(f))
