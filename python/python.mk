# --- the Python package. The wheel contains libdps and the schedules; python/backend.py makes it, also for pip ---
.PHONY: wheel check-python check-python-torch
wheel: $(BUILD)/libdps.so
	DPS_LIBRARY=$(BUILD)/libdps.so python3 python/backend.py $(BUILD)/wheel
TESTING_PYTHON := DPS_LIBRARY=$(BUILD)/libdps.so BUILD=$(BUILD) PYTHONPATH=python PYTHONPYCACHEPREFIX=$(abspath $(BUILD))/pycache
# The first of PATH's python3 and Debian's that has PyTorch; nothing if neither has it.
FIND_TORCH     := $$(for python in python3 /usr/bin/python3; do $$python -c 'import torch' 2>/dev/null && echo $$python && break; done)
check-python: all check-python-torch
	$(if $(SANITIZE),@echo "Python does not load a library with sanitizers: the tests of its package are skipped", \
	    $(TESTING_PYTHON) $(LIMITED) python3 -m unittest -q tests/python/test_dps.py)
check-python-torch: all $(if $(SANITIZE),,$(BUILD)/tests/python/torch/late.so)
	$(if $(SANITIZE),,@python=$(FIND_TORCH); if [ "$$python" ]; then $(TESTING_PYTHON) $(LIMITED4) $$python -m unittest -q tests/python/torch/test_torch.py; \
	    else echo "no PyTorch here (Debian: python3-torch): the tests of dps.torch are skipped"; fi)

# Threads that end late, for tests of dps.torch.
$(BUILD)/tests/python/torch/late.so: tests/python/torch/late.c $(call settings,flags)
	@mkdir -p $(@D)
	$(CC) $(COMPILING) $(LDFLAGS) -shared -o $@ $<

# Tests dps.torch under PyPI's PyTorch, and compares it with DeepSeek's DualPipe and with the schedules of
# torch.distributed.pipelining. TORCH_VENV: a virtual environment with PyTorch; it is made if it does not exist. DUALPIPE: a
# clone of DeepSeek's repository; empty: the comparison with DualPipe is skipped.
TORCH_VERSION ?= 2.15.0
.PHONY: check-torch
check-torch: all $(BUILD)/tests/python/torch/late.so
	@[ "$(TORCH_VENV)" ] || { echo "say where PyTorch is, or is to be installed (6 GB): make check-torch TORCH_VENV=FOLDER" >&2; exit 1; }
	@[ -x $(TORCH_VENV)/bin/python ] || python3 -m venv $(TORCH_VENV)
	@$(TORCH_VENV)/bin/python -c 'import torch' 2>/dev/null || $(TORCH_VENV)/bin/pip install -q torch==$(TORCH_VERSION) numpy
	@[ "$(DUALPIPE)" ] || echo "DeepSeek's examples are skipped: git clone https://github.com/deepseek-ai/DualPipe, and add DUALPIPE=FOLDER"
	$(TESTING_PYTHON) DUALPIPE=$(DUALPIPE) $(LIMITED4) $(TORCH_VENV)/bin/python -W ignore -m unittest -q tests/python/torch/test_torch.py tests/python/torch/test_peers.py

# Measures dps.torch under the PyTorch of TORCH_VENV or, if that is empty, of FIND_TORCH. DUALPIPE: a clone of DeepSeek's
# repository; if it is given, dps.torch is also compared with its classes and with PyTorch's schedules, on 2 and 4 ranks.
ROUNDS      ?= 10
BENCH_TORCH := $(if $(TORCH_VENV),$(TORCH_VENV)/bin/python,$(FIND_TORCH))
.PHONY: bench-torch
bench-torch:
	@.ci/packages $(TEST_PACKAGES) $(if $(TORCH_VENV),,python3-torch)
	@$(TESTING) all
	@$(TESTING_PYTHON) $(BENCH_TORCH) tests/python/torch/bench.py
	$(if $(DUALPIPE),@for ranks in 2 4; do $(TESTING_PYTHON) $(BENCH_TORCH) tests/python/torch/peers.py $(DUALPIPE) $$ranks $(ROUNDS) || exit 1; done)
