# `make help` lists the targets. Everything runs in .venv; nothing needs to be activated or configured first.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
STAMP := .venv/installed

# The stages are commands such as `electra corpus`: they must find this project's virtual environment first.
export PATH := $(CURDIR)/$(BIN):$(PATH)

# DeepSpeed compiles one communication op at its first use. It belongs to the torch it was compiled against: keep it
# with that torch, since environments that share torch's default folder compile it anew in turns.
export TORCH_EXTENSIONS_DIR := $(CURDIR)/.venv/torch_extensions

# Nothing is reported to anybody.
export DO_NOT_TRACK := 1
export DVC_NO_ANALYTICS := 1
export GX_ANALYTICS_ENABLED := False
export HF_HUB_DISABLE_TELEMETRY := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false

.DEFAULT_GOAL := help
.PHONY: help env run flow test fuzz test-gpu accept-gpu test-cluster soak test-tensorflow test-transformers docs lint hooks

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(STAMP) ## create .venv and install everything (again when pyproject.toml or constraints.txt change)

# The op takes a minute: it is compiled here, so that the first pre-training does not look stuck.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: Python 3.11 or newer is needed, $(PYTHON) is older; try: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@command -v g++ >/dev/null || { echo "error: DeepSpeed compiles one op and needs g++: install it" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (about 3 GB; minutes)"
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@echo "compiling DeepSpeed's shared-memory op (a minute, once)"
	@$(BIN)/python -c "from deepspeed.accelerator import get_accelerator; \
		builder = get_accelerator().create_op_builder('ShareMemCommBuilder'); builder is None or builder.load()"
	@touch $@

# Outside a git repository DVC must be told that there is none (a local setting, not in git).
.dvc/config.local:
	@git rev-parse --git-dir >/dev/null 2>&1 || \
		{ echo "no git repository here: DVC runs without it"; $(BIN)/dvc config --local core.no_scm true; }

# DVC removes a stage's outputs before it runs the command: what can be told before is checked before.
run: $(STAMP) .dvc/config.local ## run every stage that is out of date; ends with the score card
	@$(BIN)/electra check
	@$(BIN)/electra inputs --watch
	@$(BIN)/python -m flows.repro
	@echo "score card: results/report.md (as a page: results/report.html)"

flow: $(STAMP) .dvc/config.local ## the same through Prefect: parallel fine-tuning, retries, logs, artifacts
	@$(BIN)/python -m flows.pipeline

# Three at a time, since many wait for processes of their own; a file's tests together, in the order of tests/conftest.py;
# one thread each: the cores are taken. Bytecode is written even where the environment says not to: hundreds of processes
# would compile the whole project anew.
test: $(STAMP) ## run the tests
	@PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# Ever other bytes, SECONDS of them for each reader: what fails is shown as small as it can be made.
SECONDS ?= 600
fuzz: $(STAMP) ## random bytes for every reader of files from outside, ten minutes each (SECONDS=60 for less)
	@ELECTRA_FUZZ_SECONDS=$(SECONDS) OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 2 -o timeout=0 \
		tests/security/test_fuzz.py tests/security/test_fuzz_models.py

# PyTorch's CUDA build in an environment of its own. `===` keeps pip from wheels such as 2.13.0+cpu.
# GPU_TESTS="gpu and not long" leaves out the full shapes and the acceptance run.
GPU_STAMP := .venv-gpu/installed
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
$(GPU_STAMP): pyproject.toml constraints.txt
	@command -v g++ >/dev/null || { echo "error: the pretended device is compiled with g++: install it" >&2; exit 2; }
	test -x .venv-gpu/bin/python || $(PYTHON) -m venv .venv-gpu
	@echo "installing PyTorch's CUDA build into .venv-gpu (about 6 GB; minutes)"
	.venv-gpu/bin/python -m pip install --quiet -c constraints.txt 'torch===$(TORCH)' nvidia-cuda-cccl
	.venv-gpu/bin/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

GPU_TESTS ?= gpu
test-gpu: export PATH := $(CURDIR)/.venv-gpu/bin:$(PATH)
test-gpu: export TORCH_EXTENSIONS_DIR := $(CURDIR)/.venv-gpu/torch_extensions
test-gpu: $(GPU_STAMP) ## pre-training on a pretended CUDA device: needs no GPU (docs/gpu.md)
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive python -m pytest -n 2 -m "$(GPU_TESTS)" tests/gpu

# In .venv where its PyTorch sees the devices; else in the environment with the CUDA wheels. ACCEPT has further options,
# such as `--only zero resume`.
accept-gpu: ## on one to eight real GPUs, half an hour: what was only tried on a pretended one (docs/gpu.md)
	@folder=.venv; \
	$(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null || \
		{ folder=.venv-gpu; $(MAKE) --no-print-directory $(GPU_STAMP) || exit 2; }; \
	echo "the environment is $$folder"; \
	PATH="$(CURDIR)/$$folder/bin:$$PATH" TORCH_EXTENSIONS_DIR="$(CURDIR)/$$folder/torch_extensions" \
		python -m benchmarks.accept_gpu $(ACCEPT)

# PROFILE=books takes what `make run` takes, twice; the default makes that profile small.
PROFILE ?= tests
DATABASES ?= sqlite postgresql
test-cluster: $(STAMP) ## the pipeline through a real Prefect server (SQLite, PostgreSQL) and worker; PROFILE=books: at full size
	@$(BIN)/python -m tests.cluster.acceptance --profile $(PROFILE) --database $(DATABASES)

soak: $(STAMP) ## half an hour: kills of every kind, Slurm, cells side by side, then 50 runs in a row through a server and worker
	@$(BIN)/python -m pytest -m cluster
	@ELECTRA_TEST_ARCHITECTURE=modern $(BIN)/python -m pytest -m "cluster or not gpu" tests/pretrain/test_resume.py \
		tests/pretrain/test_mirror.py tests/pretrain/test_loop.py tests/pretrain/test_start.py tests/reliability \
		tests/cluster/test_killed_at_random.py
	@$(BIN)/python -m tests.cluster.cells
	@$(BIN)/python -m tests.cluster.kills
	@$(BIN)/python -m tests.cluster.soak

test-tensorflow: $(STAMP) ## install TensorFlow (1.4 GB) and test the import of the original's checkpoints
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[tensorflow]'
	@$(BIN)/python -m pytest tests/importing/test_import_tensorflow.py

# Environments of their own, .venv-transformers-4.48 and so on: PyTorch as pinned, and that version of transformers. Folders of
# every kind are written by .venv with the logits to expect, and compared by each (tests/publish/parity.py).
TRANSFORMERS ?= 4.48.0 5.0.0
PARITY := .pytest_cache/parity
test-transformers: $(STAMP) ## exported folders in older versions of transformers (TRANSFORMERS="4.48.0 5.0.0")
	@rm -rf $(PARITY)
	@$(BIN)/python -m tests.publish.parity $(PARITY)
	@for version in $(TRANSFORMERS); do \
		folder=.venv-transformers-$${version%.*}; \
		test -x $$folder/bin/python || $(PYTHON) -m venv $$folder || exit 2; \
		$$folder/bin/python -m pip install --quiet 'torch==$(TORCH)' safetensors "transformers==$$version" || exit 2; \
		$$folder/bin/python tests/publish/parity.py $(PARITY) || exit 1; \
	done

docs: $(STAMP) ## build docs/ as a site in site/, with reference pages made from the code
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@$(BIN)/python -m mkdocs build --quiet
	@echo "the pages: site/index.html"

lint: $(STAMP) ## check style, formatting and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

hooks: $(STAMP) ## check style and types at every commit, packages and dependencies at every push (pre-commit)
	@$(BIN)/python -m pip install --quiet -c constraints.txt pre-commit
	@$(BIN)/pre-commit install
