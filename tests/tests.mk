# --- tests: tests/FOLDER/NAME.c is a cmocka program, run from the top folder with BUILD in its environment; GPUs are hidden ---
TEST_FOLDERS := base balance program parse prove timeline measured search picture golden device model transport executor exec cuda gpu library
TEST_LIBRARIES_base      := base
TEST_LIBRARIES_balance   := balance base
TEST_LIBRARIES_program   := program base
TEST_LIBRARIES_parse     := $(COMPILER_LIBRARIES)
TEST_LIBRARIES_prove     := $(COMPILER_LIBRARIES)
TEST_LIBRARIES_timeline  := $(COMPILER_LIBRARIES)
TEST_LIBRARIES_measured  := $(COMPILER_LIBRARIES)
TEST_LIBRARIES_search    := $(COMPILER_LIBRARIES)
TEST_LIBRARIES_picture   := $(COMPILER_LIBRARIES)
TEST_LIBRARIES_golden    := base
TEST_LIBRARIES_device    := device base
TEST_LIBRARIES_model     := model transport launcher device program base
TEST_LIBRARIES_transport := transport launcher base
TEST_LIBRARIES_executor  := executor transport launcher program base
TEST_LIBRARIES_exec      := compiler $(DPRUN_LIBRARIES)
TEST_LIBRARIES_cuda      := cuda mock compiler $(DPRUN_LIBRARIES)
TEST_LIBRARIES_gpu       := cuda device transport launcher base
TEST_LINK_search         := $(CADICAL)
TEST_LINK_library        := -L$(BUILD) -ldps -Wl,-rpath,'$$$$ORIGIN/../..'
TEST_LINK_cuda           := -Wl,-u,device_cuda,-u,transport_nccl
TEST_LINK_gpu            := $(CUDART_LIBS) -lstdc++
# Each program runs under a limit of time, TEST_LIMIT seconds (limit.h); those that start many others, under a longer one.
$(BUILD)/tests/limit/limit: %: %.o
	$(CC) $(LINKING) -o $@ $<
check-gpu-code check-python check-python-torch check-torch check-fuzz: $(BUILD)/tests/limit/limit
LIMITED  = $(BUILD)/tests/limit/limit 1
LIMITED4 = $(BUILD)/tests/limit/limit 4
comma    := ,
# TSan runs what has threads. It cannot follow gpu, which switches stacks. UNTHREADED: the programs of exec that read options and
# files, or run with the threads of others and look at numbers.
THREADED   := exec/% cuda/% transport/% executor/% $(addprefix library/,attack client pull push) model/expert_group model/passes device/threads \
              golden/golden
UNTHREADED := $(addprefix exec/,check diverged learns memory options profile simulated_pair)
ONLY_TSAN  := $(filter thread,$(SANITIZE))
under_test  = $(if $(ONLY_TSAN),$(filter-out $(UNTHREADED:%=$(BUILD)/tests/%),$(filter $(THREADED:%=$(BUILD)/tests/%),$(1))),$(1))
TESTS := $(call under_test,$(foreach folder,$(TEST_FOLDERS),$(call tests_of,$(folder))))

define test_folder
$(call tests_of,$(1)): $(BUILD)/tests/$(1)/%: $(BUILD)/tests/$(1)/%.o $(call libraries,$(TEST_LIBRARIES_$(1)))
	$$(CC) $$(LINKING) -rdynamic -o $$@ $$(filter %.o,$$^) $$(filter %.a,$$^) $(DPRUN_LIBS) $(TEST_LINK_$(1)) $$(LINK_$$(notdir $$@)) -lcmocka
.PHONY: check-$(1)
check-$(1): $(patsubst $(BUILD)/tests/%,run-%,$(call under_test,$(call tests_of,$(1))))
endef
$(foreach folder,$(TEST_FOLDERS),$(eval $(call test_folder,$(folder))))

# Each program is a target of its own, and so are the golden tests of each folder: as many run at a time as make has jobs.
PROGRAMS := $(filter-out run-golden/golden,$(TESTS:$(BUILD)/tests/%=run-%))
GOLDEN   := $(patsubst tests/%/,run-golden/%,$(sort $(dir $(wildcard tests/*/*.test))))
ifneq ($(ONLY_TSAN),)
GOLDEN := run-golden/advise run-golden/sweep run-golden/command
endif
# These start first.
LONGEST := $(addprefix run-,exec/expert_parallel gpu/operations exec/command golden/command exec/schedules gpu/fused golden/docs exec/transports golden/timeline)
.PHONY: run-golden/golden $(PROGRAMS) $(GOLDEN)
run-golden/golden: $(GOLDEN)
$(GOLDEN): run-golden/%: $(BUILD)/tests/golden/golden $(BUILD)/tests/limit/limit all
	@BUILD=$(BUILD) CUDA_VISIBLE_DEVICES= $(LIMITED4) $< 'tests/$*/*.test'
$(filter $(foreach folder,picture exec executor transport cuda,run-$(folder)/%),$(PROGRAMS)): all
$(PROGRAMS): run-%: $(BUILD)/tests/% $(BUILD)/tests/limit/limit
	@BUILD=$(BUILD) CUDA_VISIBLE_DEVICES= $(LIMITED) $<

# The oracle, a device that computes in double: with these objects a program has it.
ORACLE := $(call objects,$(wildcard tests/oracle/*.c))
$(call tests_of,device) $(call tests_of,model): $(ORACLE)
$(addprefix $(BUILD)/tests/,exec/session exec/replicas cuda/operations gpu/operations gpu/run/operations): $(ORACLE)

# This test counts the allocations that the project's own objects make.
LINK_allocations := $(addprefix -Wl$(comma)--wrap=,malloc calloc realloc aligned_alloc open_memstream fmemopen)

# The tests of libdps use it as other programs do: they link to nothing else of this project.
$(call tests_of,library): | $(BUILD)/libdps.so
# This one makes the allocations of libdps fail, also those of the C library.
$(BUILD)/tests/library/attack: $(BUILD)/libdps.a
LINK_attack := $(addprefix -Wl$(comma)--wrap=,malloc calloc realloc aligned_alloc free strdup strndup asprintf \
    realpath fopen fdopen fclose open_memstream newlocale freelocale)

# --- fuzzing: of schedules, of programs, of loads and placements of experts ---
FUZZ_SEEDS   := $(wildcard schedules/*.dps tests/fuzz/corpus/*)
FUZZ_SECONDS ?= 60

FUZZ_CHECKED := $(BUILD)/tests/fuzz/compile $(BUILD)/tests/fuzz/balance $(BUILD)/tests/fuzz/kineto
$(FUZZ_CHECKED): %: %.o $(BUILD)/tests/fuzz/corpus.o $(call libraries,$(COMPILER_LIBRARIES))
	$(CC) $(LINKING) -o $@ $^ $(DPC_LIBS) -lcmocka
.PHONY: check-fuzz
check-fuzz: $(FUZZ_CHECKED)
	$(LIMITED) $(BUILD)/tests/fuzz/compile $(FUZZ_SEEDS)
	$(LIMITED) $(BUILD)/tests/fuzz/balance $(wildcard tests/fuzz/placements/*)
	$(LIMITED) $(BUILD)/tests/fuzz/kineto $(wildcard tests/fuzz/traces/*)

FUZZ := $(BUILD)/fuzz
.PHONY: fuzz fuzzers
fuzz:
	@.ci/packages $(TEST_PACKAGES)
	$(MAKE) --no-print-directory -s -j2 BUILD=$(FUZZ) CC=clang SANITIZE=fuzzer-no-link,address,undefined fuzzers
	mkdir -p $(FUZZ)/seeds/compile $(FUZZ)/seeds/decode $(FUZZ)/seeds/balance $(FUZZ)/seeds/kineto
	cp $(FUZZ_SEEDS) $(FUZZ)/seeds/compile
	cp tests/fuzz/placements/* $(FUZZ)/seeds/balance
	cp tests/fuzz/traces/* $(FUZZ)/seeds/kineto
	for schedule in schedules/*.dps; do $(FUZZ)/dpc --ranks 2 --microbatches 4 $$schedule -o $(FUZZ)/seeds/decode/$$(basename $$schedule).bin; done
	cd $(FUZZ) && ./fuzz-compile -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=4096 seeds/compile
	cd $(FUZZ) && ./fuzz-decode -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=4096 seeds/decode
	cd $(FUZZ) && ./fuzz-balance -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=4096 seeds/balance
	cd $(FUZZ) && ./fuzz-kineto -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=4096 seeds/kineto
fuzzers: $(BUILD)/fuzz-compile $(BUILD)/fuzz-decode $(BUILD)/fuzz-balance $(BUILD)/fuzz-kineto $(BUILD)/dpc
$(BUILD)/fuzz-%: $(BUILD)/tests/fuzz/%.o $(call libraries,$(COMPILER_LIBRARIES))
	$(CC) $(LINKING) -fsanitize=fuzzer -o $@ $^ $(DPC_LIBS)

.PHONY: check
check: $(filter $(PROGRAMS) $(GOLDEN),$(LONGEST)) $(TEST_FOLDERS:%=check-%) $(if $(ONLY_TSAN),,check-fuzz check-python)
	@echo "all tests of $(BUILD) passed"

.PHONY: rebase
rebase: all $(BUILD)/tests/golden/golden
	$(BUILD)/dpc --emit=svg:schedules/dualpipe.svg schedules/dualpipe.dps
	for page in README.md docs/*.md schedules/*.md; do \
	    BUILD=$(BUILD) sh tests/docs/replay.sh $$page >$(BUILD)/page && cat $(BUILD)/page >$$page || exit 1; done
	REBASE=1 BUILD=$(BUILD) $(BUILD)/tests/golden/golden

# --- figures: name, value and unit on each line. Ratios come from one run; absolute times are those of this machine ---
BENCHES := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/bench/*.c))
$(BENCHES): $(BUILD)/tests/bench/%: $(BUILD)/tests/bench/%.o $(call libraries,compiler $(DPRUN_LIBRARIES))
	$(CC) $(LINKING) -rdynamic -o $@ $^ $(DPRUN_LIBS)
$(BUILD)/tests/bench/library: $(BUILD)/libdps.a
.PHONY: bench
bench:
	@.ci/packages $(TEST_PACKAGES)
	@$(MAKE) --no-print-directory -s -j2 all $(BENCHES)
	@for bench in $(BENCHES); do echo "# $$(basename $$bench)"; BUILD=$(BUILD) $$bench || exit 1; done

# --- layout: .clang-format for C, C++ and CUDA; flex and bison by hand. Versions of clang-format give different results ---
LAID_OUT := $(shell find balance base compiler library program runtime study tests web -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp')
.PHONY: format check-format
format:
	clang-format -i $(LAID_OUT)
check-format:
	@case "$$(clang-format --version 2>&1)" in \
	*" 14."*) clang-format --dry-run -Werror $(LAID_OUT) ;; \
	*) echo "no clang-format 14 here: the layout is not checked" ;; \
	esac
	@! LC_ALL=C.UTF-8 grep -nE '^.{121}' $(LAID_OUT) grammar/*.[chly] $$(find python tests -name '*.py') || { echo "lines of more than 120 columns" >&2; exit 1; }

# --- spelling (.codespellrc has the exceptions) and manual pages. mandoc does not find a manual that is not installed ---
MANUALS := $(wildcard man/*)
.PHONY: check-spelling check-manuals
check-spelling:
	@if command -v codespell >/dev/null; then codespell; else echo "no codespell here: spelling is not checked"; fi
check-manuals:
	@if command -v mandoc >/dev/null; then \
	    ! for page in $(MANUALS); do mandoc -Tlint $$page 2>&1; done | grep -v 'referenced manual not found\|outdated mandoc.db'; \
	else echo "no mandoc here: the manual pages are not checked"; fi

# Two test programs run at a time; with -Otarget the output of each is printed when it has ended.
TESTING    := $(MAKE) --no-print-directory -s -j2
UNDER_ASAN := BUILD=$(BUILD)/asan SANITIZE=address,undefined
UNDER_TSAN := BUILD=$(BUILD)/tsan SANITIZE=thread CC=clang

# The two commands of the README in a bare Debian 12, where nothing is installed; FRESH=demo: only the first.
.PHONY: check-fresh
check-fresh:
	@.ci/fresh $(FRESH)

.PHONY: test test-sanitized
test:
	@.ci/packages $(TEST_PACKAGES)
	$(TESTING) check-format check-spelling check-manuals
	$(TESTING) all tests
	$(TESTING) -Otarget check
test-sanitized:
	@.ci/packages $(TEST_PACKAGES)
	$(TESTING) $(UNDER_ASAN) all tests
	$(TESTING) $(UNDER_ASAN) -Otarget check
	$(TESTING) $(UNDER_TSAN) all tests
	$(TESTING) $(UNDER_TSAN) -Otarget check
	$(TESTING) check-gpu-code

# Tests dps.torch under every synchronous schedule.
.PHONY: test-torch
test-torch:
	@.ci/packages $(TEST_PACKAGES) python3-torch
	$(TESTING) all
	TORCH_TESTS=all $(TESTING) check-python-torch

.PHONY: tests
tests: $(TESTS) $(BUILD)/tests/limit/limit $(if $(ONLY_TSAN),,$(FUZZ_CHECKED) $(GPU_PROGRAMS:%=$(BUILD)/tests/gpu/run/%.o))

# For changes that must not change results: checks that every number of a training is the same as at the commit BEFORE.
.PHONY: equal
equal: all $(BUILD)/tests/cuda/fake/dprun
	BUILD=$(BUILD) MAKE="$(MAKE)" SCHEDULES="$(SCHEDULES)" sh tests/equal/equal.sh $(or $(BEFORE),$(error say which commit: make equal BEFORE=COMMIT))

# The sizes that CONTRIBUTING.md limits.
.PHONY: count
count:
	@sh tests/docs/count.sh
