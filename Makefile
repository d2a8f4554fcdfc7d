# How the library and the tools are built. UCX is in drivers/ucx/ucx.mk, the tests are in
# firmware-tests/tests.mk, and what installs is in lib/install.mk. `make help` lists the targets;
# README.md says what they are for.
BUILD ?= build
ifeq ($(origin CC),default)
CC := gcc
endif
comma := ,
include drivers/ucx/ucx.mk

# nvcc, or that of the build before, because the PATH of sudo make install may lack it.
NVCC_USED := $(firstword $(file <$(BUILD)/nvcc.used))
NVCC ?= $(or $(shell command -v nvcc 2>/dev/null),$(wildcard $(NVCC_USED)))
# The folder of cuda.h: where the user says, beside nvcc, or where systems have it.
CUDA_INCS := $(CUDA_HOME)/include \
    $(patsubst %/bin/nvcc,%/include,$(shell command -v $(or $(NVCC),nvcc) 2>/dev/null)) \
    /usr/local/cuda/include /usr/include
CUDA_INC := $(patsubst %/cuda.h,%,$(firstword $(wildcard $(addsuffix /cuda.h,$(CUDA_INCS)))))
CUDA ?= $(if $(CUDA_INC),1,0)
SAN  ?=
ifeq ($(CUDA)$(CUDA_INC),1)
$(error CUDA=1, and there is no cuda.h: CUDA_HOME=DIR says where DIR/include/cuda.h is)
endif

# Which parts this build has, once: `demo` and `check` first install packages, and a make that they
# start then finds more.
ifndef GF_QUIET
GOALS := $(or $(MAKECMDGOALS),all)
CUDA_TEXT := $(CUDA)$(if $(filter 1,$(CUDA)),, ($(if $(CUDA_INC),as asked,no cuda.h)))
ifneq ($(filter-out help deps deps-test clean flags demo check suites,$(GOALS)),)
$(info gradientflow: ucx $(UCX_TEXT), cuda driver $(CUDA_TEXT), gpu kernels \
$(if $(NVCC),1,0 (no nvcc)), sanitizers $(or $(SAN),none), build $(BUILD))
endif
ifeq ($(filter demo check,$(GOALS)),)
export GF_QUIET := 1
endif
endif

# Debian 12 packages, the only list: the first line is for the library, the second for the
# appliance, the others for the tests; nvcc calls the C++ compiler, too. PACKAGES_PEERS: whom
# `make report` compares with.
PACKAGES_PEERS := openmpi-bin libopenmpi-dev mpich libmpich-dev libgloo-dev
PACKAGES := gcc libc6-dev make pkg-config libucx-dev libconfig-dev libsodium-dev \
            libopenblas-serial-dev zlib1g-dev dataset-fashion-mnist \
            libcmocka-dev g++ clang clang-format-14 libclang-rt-14-dev \
            valgrind iproute2 mandoc python3 gnuplot-nox \
            $(if $(filter 1,$(UCX_IB)),$(PACKAGES_IB)) \
            $(if $(filter 1,$(REPORT)),$(PACKAGES_PEERS))

CFLAGS ?= -O2 -g
LIBRARIES ?= /usr/lib/$(shell $(CC) -print-multiarch)
SAN_FLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
GF_FLAGS := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wconversion -Wvla -Wmissing-prototypes \
            -ffp-contract=off -fno-strict-aliasing -MMD -MP -I. -Ilib -Idrivers/base -Iconfig \
            -DGF_WITH_UCX=$(UCX) -DGF_WITH_CUDA=$(CUDA) -DGF_WITH_NVCC=$(if $(NVCC),1,0) \
            -ffunction-sections -fdata-sections \
            $(if $(WERROR),-Werror) $(SAN_FLAGS)
LDFLAGS += $(if $(SAN),-fsanitize=$(SAN))

# Every .c in a folder or the folders in it, two levels down.
tree = $(wildcard $(1)/*.c $(1)/*/*.c $(1)/*/*/*.c)
ABSENT := drivers/sim/% $(if $(filter 1,$(UCX)),,drivers/ucx/%) \
          $(if $(filter 1,$(CUDA)),,drivers/cuda/%)
SRC := $(call tree,lib) $(wildcard config/config_*.c) $(call tree,ops) \
       $(filter-out $(ABSENT),$(call tree,drivers))
SIM_SRC  := $(wildcard drivers/sim/*.c)
TOOLS    := $(patsubst %_main.c,$(BUILD)/gf-%,$(notdir $(wildcard tools/*/*_main.c)))
LIB      := $(BUILD)/libgradientflow.$(if $(SHARED),so,a)
SIM_LIB  := $(BUILD)/libgradientflow_sim.a
OBJ      := $(SRC:%.c=$(BUILD)/%.o)
LIB_OBJ   = $(filter-out $(UCX_OBJ),$(OBJ)) $(UCX_IN)
KERNELS  := $(wildcard ops/element/cuda/*.cu)
FATBIN   := $(if $(NVCC),$(BUILD)/ops/element/cuda/gf_kernels_fatbin.o)

# An appliance is linked statically with the library, in which UCX lies, with libconfig and with
# libsodium. libc and the CUDA driver stay dynamic.
DRIVER_LIBS = -Wl,-Bstatic -lsodium -Wl,-Bdynamic $(UCX_LINK) -ldl -lrt -lm -pthread
LINK_LIBS = -Wl,--gc-sections -Wl,-Bstatic -lconfig -Wl,-Bdynamic $(DRIVER_LIBS)
BLAS_LIBS = -Wl,-Bstatic -L$(LIBRARIES)/openblas-serial -lopenblas -lz -Wl,-Bdynamic

all: $(LIB) $(SIM_LIB) $(TOOLS) $(BUILD)/include ## build the library, the simulator and the tools

# What sees UCX's headers.
$(BUILD)/drivers/ucx/%.o: GF_FLAGS += $(UCX_FLAGS)
# cuda.h alone is needed, and by these alone.
$(filter $(BUILD)/drivers/cuda/%,$(OBJ)): GF_FLAGS += -isystem $(CUDA_INC)
$(OBJ): GF_FLAGS += $(if $(SAN),,-Wframe-larger-than=4608 -fstack-usage)
$(LIB): $(LIB_OBJ) $(FATBIN) $(BUILD)/link.used # so that programs are linked anew
	@rm -f $@
	$(if $(SHARED),$(CC) -shared $(LDFLAGS) -o $@ $(LIB_OBJ) $(FATBIN),ar rcs $@ $(LIB_OBJ) $(FATBIN))
$(SIM_LIB): $(SIM_SRC:%.c=$(BUILD)/%.o)
	@rm -f $@
	ar rcs $@ $^
$(patsubst %.c,$(BUILD)/%.o,$(filter drivers/ucx/%,$(SRC))): $(BUILD)/link.used
WITH_SRC := $(shell grep -l GF_WITH_ $(SRC) $(wildcard tools/*/*.c))
$(WITH_SRC:%.c=$(BUILD)/%.o): $(BUILD)/with.used
$(BUILD)/%.o: %.c $(BUILD)/compile.used
	@mkdir -p $(@D)
	$(CC) $(GF_FLAGS) $(CFLAGS) -c $< -o $@

# Kernels of all GPUs from sm_80 on, as bytes in the archive: machine code for those that there are,
# and PTX for later ones. No CUDA runtime, and nothing that nvcc makes for the host. NVCC_OLD=PATH
# is an older nvcc, for older drivers (empty: none); else it is looked for.
NVCC_OLD_SAID = $(if $(findstring undefined,$(origin NVCC_OLD)),,NVCC_OLD="$(NVCC_OLD)")
FATBIN_MAKE = @mkdir -p $(@D) && NVCC="$(NVCC)" $(NVCC_OLD_SAID) sh ops/element/cuda/fatbin.sh $@
FATBIN_USES := $(wildcard ops/element/cuda/*.cuh) $(BUILD)/nvcc.used \
    $(addprefix ops/element,_args.h /cuda/kernels.h /cuda/fatbin.sh)
KERNELS_ALL := $(BUILD)/ops/element/cuda/gf_kernels
$(KERNELS_ALL).cu: $(KERNELS)
	@mkdir -p $(@D)
	@printf '#include "%s"\n' $(KERNELS) >$@
$(KERNELS_ALL).fatbin: $(KERNELS_ALL).cu $(KERNELS) $(FATBIN_USES)
	$(FATBIN_MAKE) $<
$(BUILD)/%_fatbin.o: $(BUILD)/%.fatbin
	$(CC) -c $(@:.o=.s) -o $@

# gf-train's own kernels, likewise, but not in the archive.
TRAIN_FATBIN := $(if $(NVCC),$(BUILD)/tools/train/gf_train_fatbin.o)
$(BUILD)/tools/train/gf_train.fatbin: tools/train/train.cu tools/train/train_kernels.h
$(BUILD)/tools/train/gf_train.fatbin: $(FATBIN_USES)
	$(FATBIN_MAKE) $(filter %.cu,$^)
$(BUILD)/gf-train: $(TRAIN_FATBIN)

# A tool gf-NAME is tools/NAME/*.c; tools/common/*.c are shared by all.
objects = $(patsubst %.c,$(BUILD)/%.o,$(wildcard $(1)))
without_main = $(filter-out %_main.o,$(call objects,tools/$(1)/*.c))
TOOL_SHARED := $(filter-out %/tool_context.o,$(call objects,tools/common/*.c))
# Opens contexts and GPUs: for those that do, for it brings all drivers with it.
TOOL_CONTEXT := $(BUILD)/tools/common/tool_context.o
$(addprefix $(BUILD)/gf-,check perf train): $(TOOL_CONTEXT)
# gf-run has the coordinator in a child.
$(BUILD)/gf-run: $(addprefix $(BUILD)/tools/coordinator/coordinator_,config.o serve.o)
.SECONDEXPANSION:
$(BUILD)/gf-%: $$(call objects,tools/$$*/*.c) $$(TOOL_SHARED) $(LIB) $(SIM_LIB)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(SIM_LIB) $(LIB) \
	    $(if $(filter %gf-train,$@),$(BLAS_LIBS)) $(LINK_LIBS)

# Data movement between the products of BLAS: worth vectorising whatever CFLAGS says.
$(BUILD)/tools/train/train_layers.o: GF_FLAGS += -ftree-vectorize

# ---- what people run ----
INSTALL := apt-get install -y --no-install-recommends
deps: ## install the Debian packages that are missing (root), or say how
	@command -v dpkg-query >/dev/null || \
	    { echo "deps: not a Debian system; needed are: $(PACKAGES)"; exit 0; }; \
	missing=; for p in $(PACKAGES); do \
	    dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q ' ok installed' || \
	        missing="$$missing $$p"; \
	done; \
	[ -z "$$missing" ] && exit 0; \
	if [ "$$(id -u)" -ne 0 ]; then \
	    echo "deps: packages are missing; run as root:"; \
	    echo "  apt-get update && $(INSTALL)$$missing"; exit 1; \
	fi; \
	echo "deps: installing$$missing"; apt-get update -q >/dev/null && \
	    DEBIAN_FRONTEND=noninteractive $(INSTALL)$$missing >/dev/null

demo: ## train the demo's network on Fashion-MNIST with 2 ranks
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory -s -j2 all
	@$(BUILD)/gf-run -n 2 $(BUILD)/gf-train

# The layout is clang-format 14's, Debian 12's; another version breaks lines elsewhere.
FORMAT ?= clang-format-14
format: ## lay every C and CUDA file out by .clang-format
	@command -v $(FORMAT) >/dev/null || \
	    { echo "format: needs $(FORMAT) (Debian's package clang-format-14)"; exit 1; }
	@git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cc' | xargs $(FORMAT) -i

PAGES = $(shell git ls-files '*.md')
pages: ## lay every page out with one sentence a line
	@python3 firmware-tests/support/sentences.py $(PAGES)
pictures: ## draw the pictures of the pages, lib/pictures/*.svg
	@python3 lib/pictures/pictures.py

flags: ## what an appliance is linked with
	@:$(info -I$(BUILD)/include $(LIB) $(subst ',,$(LINK_LIBS)))

# The example of tools/example, as `flags` says to link it.
$(BUILD)/example: tools/example/appliance.c $(LIB) | $(BUILD)/include
	$(CC) -std=c11 -I$(BUILD)/include $(CFLAGS) $(LDFLAGS) $< -o $@ $(LIB) $(LINK_LIBS)
$(BUILD)/language: tools/example/language.c tools/example/transformer.h \
    tools/example/checkpoint.h $(LIB) | $(BUILD)/include
	$(CC) -std=c11 -Wall -Wextra $(if $(WERROR),-Werror) -I$(BUILD)/include $(CFLAGS) -O3 \
	    $(LDFLAGS) $< -o $@ $(LIB) $(LINK_LIBS)
$(BUILD)/sockets.stripped: $(BUILD)/firmware-tests/program_sockets
	@strip -o $@ $<
SIZED := $(LIB) $(BUILD)/example $(BUILD)/sockets.stripped
size: $(SIZED) ## bytes of the library's code, and of stripped appliances
	@size -A $(OBJ) | \
	    awk '$$1 ~ /^\.text/ { text += $$2 } END { print "library, code: " text }'
	@strip -o $(BUILD)/example.stripped $(BUILD)/example
	@echo "appliance, stripped: $$(wc -c <$(BUILD)/example.stripped)"
	@echo "one of sockets alone, stripped: $$(wc -c <$(BUILD)/sockets.stripped)"

include firmware-tests/tests.mk
include lib/install.mk

# A file $(BUILD)/NAME.used holds what was asked for last, and USED_NAME is what is asked for now.
# Where the two differ the file is written, and so what depends on it is made again. With AS_BUILT=1
# the files stay, and so does what was built. Flags of single targets are no part of it.
USED_nvcc    := $(NVCC) $(origin NVCC_OLD) $(NVCC_OLD)
USED_compile := $(filter-out %ccache,$(CC)) $(filter-out -Werror -DGF_WITH_%,$(GF_FLAGS)) $(CFLAGS)
USED_with    := $(filter -DGF_WITH_%,$(GF_FLAGS))
USED_link    := $(strip $(UCX_VERSION) $(UCX_FLAGS) $(UCX_LIBS) $(LINK_LIBS) $(LDFLAGS))
# (make 4.3 leaves the newline at the end of some files: strip.)
differs       = $(subst <$(strip $(USED_$(1)))>,,<$(strip $(file <$(BUILD)/$(1).used))>)
if_differs    = $(if $(AS_BUILT),,$(if $(call differs,$(1)),FORCE))
$(BUILD)/nvcc.used:    $(call if_differs,nvcc)
$(BUILD)/compile.used: $(call if_differs,compile)
$(BUILD)/with.used:    $(call if_differs,with)
$(BUILD)/link.used:    $(call if_differs,link)
$(BUILD)/%.used:
	@mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$(USED_$*))' >$@
FORCE:

clean: ## remove what was built
	rm -rf $(BUILD)
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

DOCUMENTED := $(shell sed -n 's/^\([a-z0-9-]*\):.*\#\#.*/\1/p' Makefile firmware-tests/tests.mk)
.PHONY: FORCE tests suites $(DOCUMENTED)
.DELETE_ON_ERROR:
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
