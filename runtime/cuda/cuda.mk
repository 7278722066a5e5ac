# The plug-in dprun-cuda.so: the CUDA device, its kernels and the NCCL transport; its tests; the kit for a machine with a GPU.
# The CUDA runtime is linked into the plug-in statically, NVRTC and NCCL are opened at run time. Without the toolkit there is no
# plug-in, and --device cuda says so.
CUDA_HOME ?= /usr/local/cuda
CUDART    := $(if $(wildcard $(CUDA_HOME)/include/cuda_runtime_api.h),$(wildcard $(CUDA_HOME)/lib64/libcudart_static.a))
NVCC      := $(wildcard $(CUDA_HOME)/bin/nvcc)
GPU_CODE  ?= $(or $(wildcard /dev/nvidiactl),$(filter gpu-code gpu-kit bench-gpu install,$(MAKECMDGOALS)))
PLUGINS   += $(if $(CUDART),$(BUILD)/dprun-cuda.so)
SETTING_cuda := $(CUDART)
$(call remember,cuda)

# The two files that tests replace are not in the library: the calls of NVIDIA's runtime, and the kernels' code.
CUDA := $(call objects,$(filter-out %/runtime.c,$(call sources,runtime/cuda)))
$(call library,cuda): $(CUDA)
CUDART_LIBS := $(CUDART) -Wl,--exclude-libs,libcudart_static.a -lrt
# What dprun itself may lack of these libraries comes into the plug-in; where both have a function, dprun's is called. Tables that
# both use, as that of the operations, must be in dprun only: ASan refuses two.
HOST := $(call libraries,transport launcher base)
$(BUILD)/dprun-cuda.so: $(CUDA) $(BUILD)/runtime/cuda/runtime.o $(BUILD)/runtime/cuda/$(if $(GPU_CODE),images,sources).o $(HOST) $(call settings,cuda)
	$(CC) $(LINKING) -shared -o $@ $(filter %.o %.a,$^) $(CUDART_LIBS) -lz
ifeq ($(CUDART),)
all:
	@echo "no CUDA toolkit in $(CUDA_HOME): no dprun-cuda.so, the plug-in for GPUs (set CUDA_HOME)"
endif

# The GPU kernels. The plug-in contains their sources for NVRTC and, if GPU_CODE is set, machine code for sm_90a. nvcc compiles a
# source that has compute types once for each type, any other source once. That takes minutes, so all build folders share the result.
KERNELS      := $(wildcard runtime/cuda/kernels/*.cu)
KERNEL_HEADS := $(wildcard runtime/cuda/kernels/*.h runtime/cuda/kernels/*.cuh)
ONE_TYPE     := $(shell grep -L OF_COMPUTE_TYPES $(KERNELS))
names_of      = $(patsubst runtime/cuda/kernels/%.cu,build/kernels/%,$(1))
UNITS        := $(foreach kernel,$(call names_of,$(filter-out $(ONE_TYPE),$(KERNELS))),$(addprefix $(kernel),.f32 .bf16))
UNITS        := $(filter-out %/fused.bf16,$(UNITS)) $(call names_of,$(ONE_TYPE)) # hopper.cu has the fused kernel for bfloat16
CUBINS       := $(if $(NVCC),$(addsuffix .sm_90a.cubin,$(UNITS)))
$(CUBINS): build/kernels/%.cubin:
	@mkdir -p $(@D)
	$(NVCC) -cubin -std=c++17 -arch=sm_90a -Xptxas -v $(patsubst .%,-DONLY_%,$(suffix $(basename $*))) \
	    -MMD -MP -MF $@.d -MT $@ -o $@.$(notdir $(BUILD)) runtime/cuda/kernels/$(basename $(basename $*)).cu 2> $@.log || { cat $@.log >&2; exit 1; }
	@mv $@.$(notdir $(BUILD)) $@
-include $(wildcard $(CUBINS:=.d))
$(filter-out $(basename $(wildcard $(CUBINS:=.d))),$(CUBINS)): $(KERNELS) $(KERNEL_HEADS) # until nvcc has written its .d file

.PHONY: gpu-code
gpu-code: $(CUBINS)
	$(if $(NVCC),,@echo "no nvcc in $(CUDA_HOME): no machine code for GPUs; NVRTC compiles the kernels at the first start")

$(BUILD)/runtime/cuda/sources.c $(BUILD)/runtime/cuda/images.c: runtime/cuda/kernels/embed.sh $(KERNELS) $(KERNEL_HEADS)
	@mkdir -p $(@D)
	@sh $^ > $@
$(BUILD)/runtime/cuda/images.c: $(CUBINS)
$(BUILD)/runtime/cuda/runtime.o: COMPILING += -isystem $(CUDA_HOME)/include
$(BUILD)/runtime/cuda/runtime.o $(BUILD)/tests/gpu/runtime.o: $(call settings,cuda)

# --- the kernels, compiled as C++ for the CPU ---
# Unless SANITIZE is set, kernels.cpp is compiled with -fsanitize=thread, which inserts a call at each memory access, but is not
# linked to TSan. tests/gpu/accesses.cpp has the called functions: they report each access to the emulation.
CXX       := $(if $(findstring clang,$(CC)),clang++,g++)
CXXFLAGS   = $(subst -std=c11,-std=c++17,$(COMPILING)) -DKERNELS_EMULATED -Itests/gpu -Wno-psabi
EMULATION := $(patsubst %,$(BUILD)/tests/gpu/%.o,simt simt_warp simt_hopper kernels $(if $(SANITIZE),,accesses))
$(call tests_of,gpu): $(EMULATION)
$(BUILD)/tests/gpu/%.o: tests/gpu/%.cpp $(call settings,flags)
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -c -o $@ $<
ifeq ($(SANITIZE),)
$(BUILD)/tests/gpu/kernels.o: CXXFLAGS += -fsanitize=thread
endif

# Checks the machine code of the kernels: spilled registers, loads that may be stale.
.PHONY: check-gpu-code
check-gpu-code: gpu-code $(BUILD)/tests/gpu/registers $(BUILD)/tests/gpu/loads
	$(LIMITED) $(BUILD)/tests/gpu/registers
	$(LIMITED) $(BUILD)/tests/gpu/loads

$(BUILD)/tests/gpu/nvrtc: $(BUILD)/runtime/cuda/sources.o
$(BUILD)/tests/gpu/runtime: $(if $(CUDART),$(BUILD)/runtime/cuda/runtime.o)
# This test replaces functions of NVIDIA's CUDA runtime to see which arguments the project's calls pass.
$(BUILD)/tests/gpu/runtime.o: COMPILING += -isystem $(CUDA_HOME)/include
$(BUILD)/tests/gpu/runtime: LINKING += -Wl,--wrap=cudaLaunchKernelExC,--wrap=cudaGetDriverEntryPointByVersion,--wrap=cudaKernelSetAttributeForDevice

# --- tests/cuda: the mock CUDA runtime takes the place of NVIDIA's under the plug-in, which is linked into the tests ---
MOCK := $(call objects,$(wildcard tests/cuda/mock/*.c))
$(call library,mock): $(MOCK)
$(BUILD)/tests/bench/fusion $(BUILD)/tests/bench/enqueue: $(call library,cuda)
$(BUILD)/tests/bench/fusion $(BUILD)/tests/bench/enqueue: LINKING += $(TEST_LINK_cuda) $(call library,cuda)
# A fake NCCL, which runs on the streams of the mock CUDA runtime.
$(BUILD)/tests/cuda/fake/libnccl.so.2: tests/cuda/fake/nccl.c tests/cuda/fake/nccl.h tests/cuda/mock/mock.h $(call settings,flags)
	@mkdir -p $(@D)
	$(CC) $(COMPILING) $(LDFLAGS) -shared -Wl,-soname,libnccl.so.2 -o $@ $<
FINDING_FAKES := -Wl,--disable-new-dtags,-rpath,$(BUILD)/tests/cuda/fake
$(BUILD)/tests/cuda/nccl $(BUILD)/tests/cuda/orders: | $(BUILD)/tests/cuda/fake/libnccl.so.2
$(BUILD)/tests/cuda/nccl $(BUILD)/tests/cuda/orders: LINKING += $(FINDING_FAKES)
# dprun itself, which finds a plug-in with the mock beside it, and the fake NCCL: for mpirun to start.
$(BUILD)/tests/cuda/fake/dprun-cuda.so: $(BUILD)/tests/cuda/fake/plugin.o $(MOCK) $(CUDA) $(HOST) \
    $(BUILD)/tests/cuda/fake/libnccl.so.2
	$(CC) $(LINKING) $(FINDING_FAKES) -shared -o $@ $^ -lz
$(BUILD)/tests/cuda/fake/dprun: $(BUILD)/dprun $(BUILD)/tests/cuda/fake/dprun-cuda.so $(if $(MPICC),$(BUILD)/dprun-mpi.so)
	@ln -f $< $@
	@$(if $(MPICC),ln -sfr $(BUILD)/dprun-mpi.so $(@D))
$(BUILD)/tests/cuda/processes: | $(BUILD)/tests/cuda/fake/dprun

# --- the kit, for a machine with a GPU and perhaps nothing else: all that tests/gpu/run/run.sh needs, in one folder ---
GPU_KIT      := $(BUILD)/gpu
GPU_PROGRAMS := operations speed overlap
GPU_RUN      := $(BUILD)/tests/gpu/run
KIT_SMALL    := --data text --set hidden=64 --set heads=2 --set sequence=32 --set microbatch_size=2
$(GPU_PROGRAMS:%=$(GPU_RUN)/%): %: %.o $(call libraries,model device program base)
	$(CC) $(LINKING) -rdynamic -o $@ $(filter %.o,$^) $(filter %.a,$^) $(DPRUN_LIBS) -lcmocka
# Two plug-ins: with machine code for sm_90a, and with the sources alone.
$(GPU_RUN)/images/dprun-cuda.so $(GPU_RUN)/sources/dprun-cuda.so: $(GPU_RUN)/%/dprun-cuda.so: $(CUDA) $(BUILD)/runtime/cuda/runtime.o \
    $(BUILD)/runtime/cuda/%.o $(HOST)
	@mkdir -p $(@D)
	$(CC) $(LINKING) -shared -o $@ $^ $(CUDART_LIBS) -lz
# oneDNN is larger than all the rest, and nothing in the kit computes on the CPU: a library that has its functions and computes
# nothing takes its place. What the CPU would say is in reference/.
.PHONY: gpu-kit bench-gpu dry-run-gpu
gpu-kit: all $(GPU_PROGRAMS:%=$(GPU_RUN)/%) $(GPU_RUN)/images/dprun-cuda.so $(GPU_RUN)/sources/dprun-cuda.so
	@rm -rf $(GPU_KIT) && mkdir -p $(GPU_KIT)/lib $(GPU_KIT)/reference $(GPU_KIT)/nvrtc
	@cp -r tests/gpu/run/run.sh $(wildcard tests/gpu/run/*.py) $(BUILD)/dprun $(filter %mpi.so,$(PLUGINS)) $(GPU_PROGRAMS:%=$(GPU_RUN)/%) $(GPU_RUN)/images/dprun-cuda.so \
	    $(BUILD)/$(SONAME) $(GPU_KIT)
	@mkdir $(GPU_KIT)/python && cp -r python/dps $(GPU_KIT)/python && mkdir -p $(GPU_KIT)/python/dps/schedules
	@cp schedules/*.dps $(GPU_KIT)/python/dps/schedules && mv $(GPU_KIT)/$(SONAME) $(GPU_KIT)/libdps.so
	@cp $(BUILD)/dprun $(GPU_RUN)/sources/dprun-cuda.so $(GPU_KIT)/nvrtc
	@cat README.md grammar/LANGUAGE.md schedules/*.md > $(GPU_KIT)/text
	@for name in dualpipe zb-v 1f1b; do $(BUILD)/dpc --ranks 4 --microbatches 8 schedules/$$name.dps -o $(GPU_KIT)/$$name.bin > /dev/null; done
	@cd $(GPU_KIT); reference() { file=reference/$$1; shift; ./dprun --json --device cpu --reference "$$@" | sed -n 's/.*"loss":\([^,]*\),.*/\1/p' > $$file; }; \
	reference first --steps 1 $(KIT_SMALL) dualpipe.bin; reference curve --steps 40 --data text dualpipe.bin; \
	for name in dualpipe zb-v 1f1b; do reference $$name --steps 4 $(KIT_SMALL) $$name.bin; done
	@nm -D --undefined-only $(BUILD)/dprun $(GPU_PROGRAMS:%=$(GPU_RUN)/%) | sed -n 's/.* U \(dnnl_[a-z0-9_]*\).*/int \1(void) { return 6; }/p' | sort -u | \
	    $(CC) -w -shared -fPIC -Wl,-soname,libdnnl.so.2 -o $(GPU_KIT)/lib/libdnnl.so.2 -x c -
	@LD_LIBRARY_PATH=$(GPU_KIT)/lib ldd $(GPU_KIT)/dprun $(GPU_PROGRAMS:%=$(GPU_KIT)/%) | awk '$$3 ~ /^\// && $$1 !~ /^lib(c|m|dnnl)\.so/ { \
	    print "cp -L", $$3, "$(GPU_KIT)/lib" }' | sort -u | sh
	@strip $(GPU_KIT)/dprun $(GPU_PROGRAMS:%=$(GPU_KIT)/%) $(GPU_KIT)/*.so $(GPU_KIT)/nvrtc/* && find $(GPU_KIT) -name __pycache__ | xargs rm -rf
	@tar -czf $(GPU_KIT).tar.gz -C $(BUILD) gpu
	@echo "$(GPU_KIT).tar.gz: unpack it on the machine and run  sh gpu/run.sh; $$(du -sk $(GPU_KIT) | cut -f 1) KiB"
bench-gpu: gpu-kit
	sh $(GPU_KIT)/run.sh tests/gpu/results
# The kit without a GPU: its script, its programs and its references, on the mock CUDA runtime and the fake NCCL.
dry-run-gpu: gpu-kit $(BUILD)/tests/cuda/fake/dprun
	@rm -rf $(GPU_KIT)-dry && cp -r $(GPU_KIT) $(GPU_KIT)-dry && rm $(GPU_KIT)-dry/lib/libdnnl.so.2
	@for folder in . nvrtc; do cp $(BUILD)/tests/cuda/fake/dprun-cuda.so $(GPU_KIT)-dry/$$folder; done
	@cp $(BUILD)/tests/cuda/fake/libnccl.so.2 $(GPU_KIT)-dry/lib
	sh $(GPU_KIT)-dry/run.sh --dry-run
