# What is installed: one include path, an archive, a shared library, and files for pkg-config and
# CMake that find all of it from where they lie, so that the tree may be moved.
PREFIX  ?= /usr/local
HEADERS := $(addprefix lib/,gradientflow.h advanced.h configuration.h schedule.h) \
           config/config.h \
           $(addprefix drivers/,drivers.h link.h gpu.h channel.h \
           $(addprefix base/,types.h clock.h fault.h address.h))
VERSION := $(shell awk '/define GF_VERSION_M/ {printf "%s%s", sep, $$3; sep = "."}' \
    lib/gradientflow.h)
SONAME  := libgradientflow.so.$(VERSION)# a minor version may change the ABI
# What launchers are given, for jobs whose ranks are started again.
LAUNCHED := $(addprefix config/,job.sbatch gf-coordinator.service gf-rank@.service coordinator.yaml)
MAN      = $(wildcard tools/*/*.[15] lib/*.3 config/*.5)
# What pkg-config --static and CMake's static target give must be enough. Archives by name.
PC_LIBS  = -l:libconfig.a -l:libsodium.a $(UCX_PC) -ldl -lrt -lm -pthread
STAGE    = $(DESTDIR)$(PREFIX)

# The public headers as they are installed, for appliances built against this tree:
# #include <gradientflow/gradientflow.h>.
$(BUILD)/include: $(HEADERS)
	@rm -rf $@ && mkdir -p $@/gradientflow && cp $^ $@/gradientflow && touch $@

# The archive goes into anybody's shared library, too; a call inside of ours stays inside.
$(OBJ): GF_FLAGS += -fPIC $(if $(findstring clang,$(CC)),,-fno-semantic-interposition)
$(OBJ): lib/install.mk
# For those who do not link statically. It exports what begins with gf_; UCX is the system's: its
# archives are not for shared libraries.
SHARED_UCX := link_ucx_start link_ucx_inside link_ucx_resources
SHARED_OBJ := $(foreach o,$(OBJ),$(if $(filter $(SHARED_UCX:%=$(BUILD)/drivers/ucx/%.o),$(o)), \
                  $(BUILD)/shared/$(notdir $(o)),$(o)))
$(SHARED_UCX:%=$(BUILD)/shared/%.o): $(BUILD)/shared/%.o: drivers/ucx/%.c lib/install.mk \
    $(BUILD)/compile.used $(BUILD)/link.used
	@mkdir -p $(@D)
	$(CC) $(GF_FLAGS) $(UCX_FLAGS) -UGF_UCX_DYNAMIC -DGF_UCX_DYNAMIC=1 -fPIC $(CFLAGS) -c $< -o $@
$(BUILD)/$(SONAME): $(SHARED_OBJ) $(FATBIN) lib/gradientflow.map $(BUILD)/link.used
	$(CC) -shared $(LDFLAGS) \
	    -Wl,-soname,$(SONAME),--version-script=lib/gradientflow.map,--no-undefined,--gc-sections \
	    -o $@ \
	    $(SHARED_OBJ) $(FATBIN) -lconfig -lsodium $(UCX_DYNAMIC_LIBS) -ldl -lrt -lm -pthread
shared: $(BUILD)/$(SONAME) ## build libgradientflow.so too

# Debug data lies apart: a program that is installed names the file that install-debug puts into
# .debug beside it, where gdb looks. The archive keeps its symbols alone.
STRIPPED := $(BUILD)/stripped
PARTED   := $(notdir $(TOOLS)) $(SONAME)
$(PARTED:%=$(STRIPPED)/%): $(STRIPPED)/%: $(BUILD)/%
	@mkdir -p $(@D)
	objcopy --only-keep-debug $< $@.debug
	objcopy --strip-all --add-gnu-debuglink=$@.debug $< $@
$(STRIPPED)/$(notdir $(LIB)): $(LIB)
	@mkdir -p $(@D)
	strip -g -o $@ $<
parted: $(addprefix $(STRIPPED)/,$(PARTED) $(notdir $(LIB)))

# AS_BUILT=1: with the flags of the build, whatever they are now.
install: all shared parted ## library, headers, tools, documents to DESTDIR and PREFIX (/usr/local)
	@case "$(PREFIX)" in /*) ;; *) echo "install: PREFIX=$(PREFIX) must be an absolute path" >&2; \
	    exit 1;; esac
	@to="$(STAGE)"; share="$$to/share/gradientflow"; cmake="$$to/lib/cmake/gradientflow"; set -e; \
	install -d "$$to/bin" "$$to/lib/pkgconfig" "$$cmake" "$$to/include/gradientflow" \
	    "$$share/models" "$$share/clusters" \
	    "$$to/share/doc/gradientflow/example" "$$to/share/man/man1" "$$to/share/man/man3" \
	    "$$to/share/man/man5"; \
	install $(addprefix $(STRIPPED)/,$(notdir $(TOOLS))) "$$to/bin"; \
	install -m 644 $(STRIPPED)/$(notdir $(LIB)) $(STRIPPED)/$(SONAME) "$$to/lib"; ln -sf $(SONAME) \
	    "$$to/lib/libgradientflow.so"; \
	install -m 644 $(BUILD)/include/gradientflow/*.h "$$to/include/gradientflow"; \
	install -m 644 config/local.cfg config/cluster.cfg config/fabric.cfg config/own.cfg \
	    config/own_cluster.cfg \
	    $(LAUNCHED) "$$share"; \
	install -m 644 config/models/*.cfg "$$share/models"; install -m 644 config/clusters/*.cfg \
	    "$$share/clusters"; \
	install -d "$$to/share/bash-completion/completions"; \
	for tool in $(TOOLS); do $$tool --completion \
	    >"$$to/share/bash-completion/completions/$${tool##*/}"; done; \
	install -d "$$share/python"; install -m 644 tools/python/gradientflow.py "$$share/python"; \
	install -m 644 LICENSE README.md lib/RECIPE.md lib/RECIPE_MORE.md \
	    "$$to/share/doc/gradientflow"; \
	for picture in $$(sed -n 's/^!\[.*](\(.*\.svg\))$$/\1/p' README.md lib/RECIPE.md); do \
	    install -D -m 644 "$$picture" "$$to/share/doc/gradientflow/$$picture"; done; \
	install -m 644 tools/python/README.md "$$to/share/doc/gradientflow/PYTORCH.md"; \
	install -m 644 tools/coordinator/README.md "$$to/share/doc/gradientflow/RESTARTS.md"; \
	install -m 644 tools/example/* "$$to/share/doc/gradientflow/example"; \
	echo "GradientFlow $(VERSION), UCX $(UCX_TEXT)" >"$$to/share/doc/gradientflow/VERSION"; \
	for page in $(MAN); do install -m 644 $$page "$$to/share/man/man$${page##*.}"; done; \
	sed -n '/^\.Ss Calls/,/^\.Sh/s/^\.It Ft .* Fn \([a-z0-9_]*\).*/\1/p' lib/gradientflow.3 | \
	    while read -r f; do ln -sf gradientflow.3 "$$to/share/man/man3/$$f.3"; done; \
	sed 's|@VERSION@|$(VERSION)|; s|@LIBS@|-l:libgradientflow.a $(PC_LIBS)|' gradientflow.pc.in \
	    >"$$to/lib/pkgconfig/gradientflow.pc"; \
	sed 's|@VERSION@|$(VERSION)|; s|@LIBS@|-lgradientflow|; s|^Name: .*|&-shared|' \
	    gradientflow.pc.in \
	    >"$$to/lib/pkgconfig/gradientflow-shared.pc"; \
	sed 's|@LIBS@|$(PC_LIBS)|' lib/gradientflow.cmake.in >"$$cmake/gradientflow-config.cmake"; \
	sed 's|@VERSION@|$(VERSION)|' lib/gradientflow-version.cmake.in \
	    >"$$cmake/gradientflow-config-version.cmake"
install-debug: parted ## beside what install copies, its debug data
	@to="$(STAGE)"; set -e; install -d "$$to/bin/.debug" "$$to/lib/.debug"; \
	install -m 644 $(patsubst %,$(STRIPPED)/%.debug,$(notdir $(TOOLS))) "$$to/bin/.debug"; \
	install -m 644 $(STRIPPED)/$(SONAME).debug "$$to/lib/.debug"
# What a new installation would hold is what goes; folders go where they are empty then.
uninstall: ## remove what install copies to DESTDIR and PREFIX
	@new=$$(mktemp -d) && to=$$(cd "$(STAGE)" && pwd) && \
	    $(MAKE) --no-print-directory -s install install-debug DESTDIR="$$new" AS_BUILT=1 && cd \
	    "$$new$(PREFIX)" && \
	    find . ! -type d | (cd "$$to" && while read -r f; do rm -f "$$f"; done) && \
	    find . -depth -mindepth 1 -type d | (cd "$$to" && while read -r d; do rmdir "$$d" \
	    2>/dev/null || true; done); \
	code=$$?; rm -rf "$$new"; exit $$code
.PHONY: shared parted install install-debug uninstall
