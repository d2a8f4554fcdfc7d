# Which UCX, and how it is linked. Debian's by pkg-config, or another: UCX_PREFIX=DIR
# (DIR/lib/pkgconfig/ucx.pc), or PKG_CONFIG_PATH.
#     static (the default)  UCX lies in the binary: tcp
#     UCX_IB=1              its InfiniBand and RoCE transports too, and the providers of
#                           UCX_IB_PROVIDERS
#     UCX_DYNAMIC=1         UCX and its modules (CUDA, InfiniBand, vendors') are looked for at run
#                           time: beside the program, in ../lib, where UCX_PREFIX says, where the
#                           system has them
UCX_PREFIX  ?=
UCX_IB      ?= 0
UCX_DYNAMIC ?= 0
PACKAGES_IB := libibverbs-dev libnuma-dev libnl-3-dev libnl-route-3-dev
# UCX takes them for settings of its own, and warns of those it does not know: so the make in a
# recipe has them of MAKEFLAGS.
unexport UCX_PREFIX UCX_DYNAMIC UCX_IB
$(foreach v,UCX_PREFIX UCX_DYNAMIC UCX_IB,$(if $(filter environment,$(origin $v)),$(error $v is \
    set in the environment: say make $v=$($v))))
UCX_PKG_PATH := $(UCX_PREFIX)/lib/pkgconfig:$(UCX_PREFIX)/lib64/pkgconfig
UCX_PKG     := $(if $(UCX_PREFIX),PKG_CONFIG_PATH=$(UCX_PKG_PATH):$(PKG_CONFIG_PATH) )pkg-config
$(if $(UCX_PREFIX),$(if $(wildcard $(UCX_PREFIX)/lib*/pkgconfig/ucx.pc),, \
    $(error UCX_PREFIX=$(UCX_PREFIX): there is no lib/pkgconfig/ucx.pc in it)))
$(if $(filter 11,$(UCX_IB)$(UCX_DYNAMIC)),$(error UCX_IB=1 is of the static link; with \
    UCX_DYNAMIC=1 UCX finds its InfiniBand module by itself))
UCX ?= $(shell $(UCX_PKG) --exists ucx 2>/dev/null && echo 1 || echo 0)

ifeq ($(UCX),1)
UCX_VERSION := $(shell $(UCX_PKG) --modversion ucx)
# UCX's headers say "asm", and are not written for these warnings.
UCX_FLAGS   := -std=gnu11 $(patsubst -I%,-isystem %,$(shell $(UCX_PKG) --cflags ucx)) \
    -DGF_UCX_DYNAMIC=$(UCX_DYNAMIC) -DGF_UCX_IB=$(UCX_IB)
UCX_FOLDER  := $(patsubst -L%,%,$(filter -L%,$(shell $(UCX_PKG) --libs ucx)))
# All four by name: a module of UCX may need what the program itself does not.
UCX_DYNAMIC_LIBS := -Wl,--push-state,--no-as-needed \
    $(filter -L% -l%,$(shell $(UCX_PKG) --libs ucx)) -Wl,--pop-state \
    '-Wl,-rpath,$$ORIGIN:$$ORIGIN/../lib$(UCX_FOLDER:%=:%)'
UCX_LIBS    := $(filter-out -pthread -ldl -lrt -lm,$(shell $(UCX_PKG) --static --libs ucx))

# ucx-ib.pc names every provider that there ever was: some have no archive. mlx4 and mlx5 drive what
# the papers used and what came since, rxe is RoCE over any Ethernet. From UCX 1.18 on what is for
# mlx5 is an archive of its own. A UCX_PREFIX without them must not get those of the system.
UCX_IB_PROVIDERS ?= mlx4 mlx5 rxe
UCX_IB_MODULES   := $(foreach m,ucx-ib ucx-ib-mlx5,$(shell $(UCX_PKG) --exists \
    "$(m) = $(UCX_VERSION)" 2>/dev/null && echo $(m)))
# libnuma's names have versions, which `ld -r` does not choose among: those that verbs and libnl
# call are said.
UCX_NUMA := numa_get_run_node_mask numa_node_to_cpus
ifeq ($(UCX_IB),1)
UCX_IB_LIBS := $(filter %/ucx -luct_ib% -Wl$(comma)--undefined=uct_%, \
    $(foreach m,$(UCX_IB_MODULES),$(shell $(UCX_PKG) --static --libs $(m) 2>/dev/null)))
$(if $(UCX_IB_LIBS)$(filter deps,$(MAKECMDGOALS)),,$(error UCX_IB=1: pkg-config finds no ucx-ib \
    with this UCX; it takes one built with verbs, and the packages $(PACKAGES_IB)))
IB_ARCHIVES := $(patsubst %,-l%-rdmav34,$(filter-out mlx4 mlx5 efa mana,$(UCX_IB_PROVIDERS))) \
    $(patsubst %,-l%,$(filter mlx4 mlx5 efa mana,$(UCX_IB_PROVIDERS)))
UCX_LIBS := $(UCX_IB_LIBS) $(UCX_IB_PROVIDERS:%=-Wl,--undefined=verbs_provider_%) $(UCX_LIBS) \
    $(IB_ARCHIVES) -libverbs -lnuma -lnl-route-3 -lnl-3 \
    $(foreach f,$(UCX_NUMA),-Wl$(comma)--defsym=$f=$(f)_v2)
endif

# In a static link driver and UCX are one object, of which gf_link_ucx alone is seen from outside: a
# program that has UCX's symbols of its own (MPICH) meets none of these, and its link line says
# nothing of UCX. Nothing of UCX runs before main(), nor where nobody opens it: ucx_start.ld,
# link_ucx_start.c.
UCX_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard drivers/ucx/*.c))
ifeq ($(UCX_DYNAMIC),1)
UCX_LINK := $(UCX_DYNAMIC_LIBS)
UCX_PC   := $(filter -L% -l%,$(UCX_DYNAMIC_LIBS)) $(UCX_FOLDER:%=-Wl$(comma)-rpath$(comma)%)
UCX_IN   := $(UCX_OBJ)
else
UCX_IN   := $(BUILD)/drivers/ucx/with_ucx.o
# For tests that stand between the driver and UCX.
UCX_APART = -Wl,--wrap=getenv -Wl,-Bstatic $(UCX_LIBS) -Wl,-Bdynamic
endif
endif
$(BUILD)/drivers/ucx/with_ucx.o: $(UCX_OBJ) drivers/ucx/ucx_start.ld $(BUILD)/link.used
	$(CC) -r -nostdlib -o $@.all $(UCX_OBJ) -Wl,-T,drivers/ucx/ucx_start.ld -Wl,--wrap=getenv \
	    -Wl,-Bstatic $(UCX_LIBS)
	objcopy --keep-global-symbol=gf_link_ucx \
	    $(foreach t,starts ends,$(call UCX_TABLE,.data.rel.ro.gf_ucx_$(t))) $@.all $@
	@rm -f $@.all
# Flags make it a section of data, and none of the type that libc runs.
UCX_TABLE = --rename-section $(1)=$(1)_table,alloc,load,data,contents
UCX_TEXT := $(if $(filter 1,$(UCX)),$(UCX_VERSION)$(if \
    $(filter 1,$(UCX_IB)), with InfiniBand)$(if $(filter 1,$(UCX_DYNAMIC)), dynamic),0)
