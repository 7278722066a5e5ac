# dpc compiles a pipeline schedule to prog.bin, dprun executes it.
#
#   make demo            installs what is missing, builds, compiles schedules/dualpipe.dps and trains with it (a minute)
#   make test            installs what is missing, builds, runs every test once
#   make test-sanitized  most tests under ASan and UBSan (gcc) and under TSan (clang); checks the machine code for GPUs
#   make test-torch      trains PyTorch modules under every synchronous schedule; make test takes a few if PyTorch is there
#   make check-torch     PyPI's PyTorch (in TORCH_VENV=FOLDER), compared with DeepSeek's DualPipe and with torch's schedules
#
#   make all       builds                       make check      the tests, without installing anything
#   make gpu-code  compiles the kernels for GPUs (nvcc), as install, gpu-kit and every build on a machine with a GPU do
#   make gpu-kit   packs what a machine with a GPU needs into one file             make bench-gpu  runs the kit here
#   make dry-run-gpu  runs the kit on a mock of the CUDA runtime
#   make bench     prints the figures of docs/figures.md                           make fuzz       runs the fuzz targets
#   make rebase    rewrites golden tests, pages and the README's picture           make format    lays out the sources
#   make clean     removes build/                                                  make wheel     packs the Python package
#   make count     prints the lines of the product, the tests and the makefiles
#   make check-fresh  make demo and make test in a bare Debian 12; FRESH=demo: only the demo
#   make web       dpc as a page for browsers, in build/web (Debian's emscripten); make check-web compares it with dpc
#   make install PREFIX=/usr/local DESTDIR=   installs programs, libdps, manual pages, schedules; make uninstall removes them

.DEFAULT_GOAL := all

BUILD    ?= build
# allocator_may_return_null: too large an allocation returns NULL, as it does without sanitizers. oneDNN and OpenMPI are not
# instrumented, so TSan ignores what happens within them. intercept_tls_get_addr=0: TSan does not guess sizes of the thread-local
# storage of libraries that are loaded later. In one of several runs of tests/cuda/orders it guessed 271 TB, and ended the test.
export ASAN_OPTIONS ?= allocator_may_return_null=1
export TSAN_OPTIONS ?= ignore_noninstrumented_modules=1:allocator_may_return_null=1:intercept_tls_get_addr=0
ifeq ($(origin CC),default)
CC       := gcc
endif
SANITIZE ?=
# OpenMPI 5 maps shared memory at an address that TSan uses; with this setting it does not.
ifneq ($(filter thread,$(SANITIZE)),)
export PMIX_MCA_gds ?= hash
endif
OPTIMIZE ?= -O2

# A constant of an enum is an int in C, but clang from 16 on warns where it is used with a double.
WARNINGS := -Wall -Wextra -Wconversion -Wshadow -Wno-enum-float-conversion -Werror
# The project's flags come first; the user's CFLAGS, CPPFLAGS and LDFLAGS follow and override them.
SANITIZING := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
LINKING     = -std=c11 -g $(OPTIMIZE) -pthread -fPIC $(SANITIZING) $(CFLAGS) $(LDFLAGS)
COMPILING   = -I. -I$(BUILD) -MMD -MP $(CPPFLAGS) -std=c11 -D_GNU_SOURCE -g $(OPTIMIZE) $(WARNINGS) -pthread -fPIC $(SANITIZING) $(CFLAGS)

.DELETE_ON_ERROR:
.SECONDARY:

# --- settings: files of the build folder have the flags and what was found. What depends on one is built again if it changes ---
settings = $(BUILD)/settings/$(1)
same     = $(and $(findstring <$(1)>,<$(2)>),$(findstring <$(2)>,<$(1)>))
remember = $(if $(call same,$(SETTING_$(1)),$(file <$(call settings,$(1)))),,$(eval $(call settings,$(1)): FORCE))
.PHONY: FORCE
$(BUILD)/settings/%:
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(SETTING_$*))' >$@

SETTING_flags := $(CC), $(shell LC_ALL=C $(CC) --version 2>/dev/null | head -n 1): $(filter-out -I$(BUILD),$(COMPILING)) $(LDFLAGS)
$(call remember,flags)

# --- CaDiCaL, a SAT solver: dpc --prove needs it; without it dpc says so ---
CADICAL_HOME ?= /usr /usr/local
CADICAL      := $(if $(wildcard $(CADICAL_HOME:=/include/ccadical.h)),-lcadical -lstdc++)
SETTING_cadical := $(CADICAL)
$(call remember,cadical)

# --- MPI: dprun-mpi.so is built if there is an mpicc ---
MPICC := $(shell command -v mpicc 2>/dev/null)
SETTING_mpi := $(realpath $(MPICC))
$(call remember,mpi)

# --- sources: each folder becomes a library, without its main.c ---
sources = $(filter-out %/main.c,$(wildcard $(1)/*.c))
objects = $(patsubst %.c,$(BUILD)/%.o,$(1))

BASE      := $(call objects,$(call sources,base))
BALANCE   := $(call objects,$(call sources,balance))
PROGRAM   := $(call objects,$(call sources,program) $(call sources,program/times))
DEVICE    := $(call objects,$(call sources,runtime/device))
TRANSPORT := $(call objects,$(filter-out runtime/transport/mpi%,$(call sources,runtime/transport)))
MODEL     := $(call objects,$(call sources,runtime/model))
EXECUTOR  := $(call objects,$(call sources,runtime/executor))
SIMULATOR := $(call objects,$(call sources,runtime/simulator))
TRAINER   := $(call objects,$(call sources,runtime/trainer))
LAUNCHER  := $(call objects,$(call sources,runtime/launcher))
COMMAND   := $(call objects,$(call sources,runtime/command))
GRAMMAR   := $(BUILD)/grammar/schedule.tab.o $(BUILD)/grammar/schedule.lex.o
COMPILER  := $(filter-out %/$(if $(CADICAL),solver_absent.o,solver_cadical.o), \
             $(GRAMMAR) $(call objects,$(call sources,grammar) $(call sources,compiler) $(call sources,compiler/*) $(call sources,study/*)))

LIBRARIES := base balance program device launcher transport model executor simulator trainer command compiler cuda mock
library    = $(BUILD)/lib$(1).a
$(call library,base):      $(BASE)
$(call library,balance):   $(BALANCE)
$(call library,program):   $(PROGRAM)
$(call library,device):    $(DEVICE)
$(call library,transport): $(TRANSPORT)
$(call library,model):     $(MODEL)
$(call library,executor):  $(EXECUTOR)
$(call library,simulator): $(SIMULATOR)
$(call library,trainer):   $(TRAINER)
$(call library,launcher):  $(LAUNCHER)
$(call library,command):   $(COMMAND)
$(call library,compiler):  $(COMPILER) $(call settings,cadical)
$(BUILD)/lib%.a:
	@rm -f $@
	$(AR) rcs $@ $(filter %.o,$^)

# In the order in which they are linked: a library may use those after it.
COMPILER_LIBRARIES := compiler balance program base
LIBDPS_LIBRARIES   := compiler balance executor transport program base
DPRUN_LIBRARIES    := command trainer balance simulator executor model device transport launcher program base
libraries = $(foreach name,$(1),$(call library,$(name)))

DPC_LIBS   := -lz -lm
DPRUN_LIBS := -ldnnl -lz -ldl -lm
PLUGINS    := $(if $(MPICC),$(BUILD)/dprun-mpi.so)

.PHONY: all
all: $(BUILD)/dpc $(BUILD)/dprun $(BUILD)/libdps.so $(BUILD)/libdps.a plugins

$(BUILD)/dpc: $(BUILD)/compiler/command/main.o $(call libraries,$(COMPILER_LIBRARIES))
	$(CC) $(LINKING) -o $@ $^ $(CADICAL) $(DPC_LIBS)

$(BUILD)/dprun: $(BUILD)/runtime/command/main.o $(call libraries,$(DPRUN_LIBRARIES))
	$(CC) $(LINKING) -rdynamic -o $@ $^ $(DPRUN_LIBS)

# libdps exports only what library/dps.h declares. libdps.a has a single object, in which all other symbols are local.
VERSION := $(shell sed -n 's/.*PROJECT_VERSION "\(.*\)"/\1/p' base/version.h)
SONAME  := libdps.so.$(firstword $(subst ., ,$(VERSION)))
LIBRARY := $(call objects,$(call sources,library))
$(BUILD)/$(SONAME): $(LIBRARY) $(call libraries,$(LIBDPS_LIBRARIES)) library/dps.map
	$(CC) $(LINKING) -shared -Wl,-soname,$(SONAME),--version-script=library/dps.map -o $@ $(filter-out %.map,$^) $(DPC_LIBS)
$(BUILD)/libdps.so: $(BUILD)/$(SONAME)
	@ln -sf $(SONAME) $@
$(BUILD)/libdps.a: $(LIBRARY) $(call libraries,$(LIBDPS_LIBRARIES))
	@rm -f $@
	$(LD) -r -o $(BUILD)/libdps.o $^
	objcopy --wildcard --keep-global-symbol='dps_*' $(BUILD)/libdps.o
	$(AR) rcs $@ $(BUILD)/libdps.o

# The MPI transport is a shared object, which dprun loads if mpirun has started it.
MPI_SOURCES := $(wildcard runtime/transport/mpi*.c) base/counted.c base/mesh.c $(addprefix runtime/,launcher/launched.c transport/communicator.c \
                   transport/limit.c transport/world.c)
$(BUILD)/dprun-mpi.so: $(MPI_SOURCES) $(wildcard runtime/transport/*.h base/*.h) $(call settings,flags) $(call settings,mpi)
	@mkdir -p $(@D)
	OMPI_CC=$(CC) $(MPICC) $(COMPILING) $(LDFLAGS) -shared -o $@ $(filter %.c,$^)

# The CUDA device and the NCCL transport are another one.
tests_of = $(patsubst %.c,$(BUILD)/%,$(wildcard tests/$(1)/*.c))
include runtime/cuda/cuda.mk
.PHONY: plugins
plugins: $(PLUGINS)

# --- generated sources, only in the build folder ---
$(BUILD)/grammar/schedule.tab.c $(BUILD)/grammar/schedule.tab.h &: grammar/schedule.y
	@mkdir -p $(@D)
	bison -Wall -Wcounterexamples -Werror --header=$(BUILD)/grammar/schedule.tab.h -o $(BUILD)/grammar/schedule.tab.c $<
$(BUILD)/grammar/schedule.lex.c $(BUILD)/grammar/schedule.lex.h &: grammar/schedule.l
	@mkdir -p $(@D)
	flex --header-file=$(BUILD)/grammar/schedule.lex.h -o $(BUILD)/grammar/schedule.lex.c $<
$(BUILD)/grammar/schedule.tab.o: $(BUILD)/grammar/schedule.lex.h
$(BUILD)/grammar/schedule.lex.o: $(BUILD)/grammar/schedule.tab.h
$(filter-out $(GRAMMAR),$(COMPILER)): | $(BUILD)/grammar/schedule.tab.h $(BUILD)/grammar/schedule.lex.h

# These include other files, as strings of C.
$(BUILD)/compiler/output/emit_html.o $(BUILD)/web/compiler/output/emit_html.o: $(patsubst %,$(BUILD)/%.text,$(wildcard compiler/output/page/*))
$(BUILD)/compiler/output/emit_runtimes.o $(BUILD)/web/compiler/output/emit_runtimes.o: $(patsubst %,$(BUILD)/%.text,$(wildcard compiler/output/runtimes/*))
$(BUILD)/%.text: %
	@mkdir -p $(@D)
	@sed 's/[\\"?]/\\&/g; s/.*/"&\\n"/' $< >$@

# With these flags gcc vectorizes the loops of the CPU device. Sums keep the order in which they are written.
$(call objects,$(wildcard runtime/device/cpu*.c)): OPTIMIZE := -O3 -fno-math-errno

$(BUILD)/%.o: %.c $(call settings,flags)
	@mkdir -p $(@D)
	$(CC) $(COMPILING) -c -o $@ $<
$(BUILD)/%.o: $(BUILD)/%.c $(call settings,flags)
	@mkdir -p $(@D)
	$(CC) $(COMPILING) -c -o $@ $<

include tests/tests.mk python/python.mk web/web.mk

# --- make demo and make test, with the Debian packages that they need ---
BUILD_PACKAGES := gcc libc6-dev flex bison zlib1g-dev libdnnl-dev
TEST_PACKAGES  := $(BUILD_PACKAGES) g++ libcmocka-dev libcadical-dev libopenmpi-dev openmpi-bin clang libclang-rt-dev clang-format \
                  codespell mandoc pkgconf locales python3

.PHONY: demo
demo:
	@.ci/packages $(BUILD_PACKAGES)
	@$(MAKE) --no-print-directory -s -j2 $(BUILD)/dpc $(BUILD)/dprun
	@mkdir -p $(BUILD)/demo
	$(BUILD)/dpc schedules/dualpipe.dps -o $(BUILD)/demo/dualpipe.bin
	$(BUILD)/dprun --save $(BUILD)/demo/weights.bin --trace $(BUILD)/demo/trace.json $(BUILD)/demo/dualpipe.bin

# --- installation into PREFIX, below DESTDIR for makers of packages ---
PREFIX  ?= /usr/local
DESTDIR ?=
SHARED  := README.md LICENSE grammar/LANGUAGE.md $(wildcard docs/*.md docs/decisions/*.md schedules/*.dps schedules/*.md schedules/*.svg maps/*.map)
.PHONY: install install-library uninstall
install: all install-library
	install -D -t "$(DESTDIR)$(PREFIX)/bin" $(BUILD)/dpc $(BUILD)/dprun
	$(if $(PLUGINS),install -D -m 644 -t "$(DESTDIR)$(PREFIX)/lib/dprun" $(PLUGINS))
	for page in $(MANUALS); do install -D -m 644 -t "$(DESTDIR)$(PREFIX)/share/man/man$${page##*.}" $$page || exit 1; done
	for file in $(SHARED); do install -D -m 644 $$file "$(DESTDIR)$(PREFIX)/share/dpc/$$file" || exit 1; done
install-library: $(BUILD)/libdps.so $(BUILD)/libdps.a
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/include" library/dps.h
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/lib" $(BUILD)/$(SONAME) $(BUILD)/libdps.a
	ln -sf $(SONAME) "$(DESTDIR)$(PREFIX)/lib/libdps.so"
	mkdir -p "$(DESTDIR)$(PREFIX)/lib/pkgconfig"
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' library/dps.pc.in > "$(DESTDIR)$(PREFIX)/lib/pkgconfig/dps.pc"
uninstall:
	rm -rf $(foreach file,bin/dpc bin/dprun lib/dprun share/dpc include/dps.h lib/libdps.so lib/$(SONAME) lib/libdps.a lib/pkgconfig/dps.pc \
	    $(foreach page,$(MANUALS),share/man/man$(subst .,,$(suffix $(page)))/$(notdir $(page))),"$(DESTDIR)$(PREFIX)/$(file)")

.PHONY: clean
clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) \( -path $(BUILD)/equal -o -path $(BUILD)/fresh \) -prune -o -name '*.d' -print 2>/dev/null)
