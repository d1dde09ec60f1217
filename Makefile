# Every target works on a bare machine with Python 3.10 or newer and a C compiler.
PYTHON ?= python3
BIN := .venv/bin
# For `make lock`. The shards do not depend on it, only the loader's tensors and the tests do.
TORCH := torch==2.13.0
LOCKS := $(wildcard .ci/*.lock)

# So that a process that starts anew need not compile every module, wherever the variable is set.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: venv demo check test pytest test-all test-null test-browser test-cluster drill bench bench-table clean test-image lock

venv: .venv/installed

.venv/installed: pyproject.toml .ci/install.py $(LOCKS)
	$(PYTHON) -m venv .venv
	$(BIN)/python .ci/install.py
	$(BIN)/python -m pipeline.tenfold compile
	touch $@

demo: venv
	$(BIN)/python tests/end_to_end/demo.py

check: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: venv
	@$(BIN)/python tests/timed.py $(MAKE) --no-print-directory check pytest

# Two files of tests at a time, in the order of tests/conftest.py.
pytest: venv
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

# With the tests that take minutes each: two hours on two cores.
test-all: check
	$(BIN)/python -m pytest -m "not cluster and not browser" --numprocesses 2 --dist loadfile \
		--no-loadscope-reorder
	$(BIN)/python -m tests.null_gpu.run --all --or-skip
	$(BIN)/python tests/breaks.py

# The GPU's path on a GPU that computes nothing, see tests/null_gpu/README.md. Needs no
# driver; installs CUDA's torch into build/null-gpu, 6 GB.
test-null: venv
	@$(BIN)/python tests/timed.py $(BIN)/python -m tests.null_gpu.run $(NULL_GPU)

# Builds the container image on this machine: as root, on Debian, needs neither Docker nor a GPU.
test-image: venv
	$(BIN)/python -m pytest -s tests/docker/image.py

# After a change of dependencies in pyproject.toml; UPGRADE=--upgrade takes new versions of all.
lock: venv
	$(BIN)/python docker/lock.py $(TORCH) $(UPGRADE)

# Pages as Chromium shows them at three widths, light and dark; screenshots go to build/browser.
test-browser: venv
	$(BIN)/python -m pytest -m browser tests/browser

# A Slurm of two nodes on this machine: installs Debian packages, so it needs root. Both nodes are one
# host to MPICH, so MPI_Init can fail: a test that fails there, and no other, is run again.
test-cluster: venv
	@$(BIN)/python tests/timed.py $(BIN)/python -m pytest -m cluster tests/cluster \
		--numprocesses 3 --dist loadgroup --no-loadscope-reorder \
		--reruns 2 --only-rerun internal_Init_thread

# From text to scores on that Slurm, with kills; after a change of many rooms, in ten minutes.
drill: venv
	$(BIN)/python -m pytest -s -m cluster tests/cluster/drill.py \
		--reruns 2 --only-rerun internal_Init_thread

# README's speed table, on an idle machine, in five minutes; SPEED="--peer PYTHON" adds web pages.
bench-table: venv
	$(BIN)/python -m tests.benchmarks.speed_table $(SPEED)

# The table, then everything else that is measured: hours.
bench: bench-table
	$(BIN)/python -m tests.benchmarks.bench_masking
	$(BIN)/python -m tests.benchmarks.bench_loader
	$(BIN)/python -m tests.benchmarks.bench_prepare
	$(BIN)/python -m tests.benchmarks.bench_workers
	$(BIN)/python -m tests.benchmarks.bench_tokens
	$(BIN)/python -m tests.benchmarks.bench_memory
	$(BIN)/python -m tests.benchmarks.bench_dedup
	$(BIN)/python -m tests.benchmarks.bench_training
	$(BIN)/python -m tests.benchmarks.bench_electra
	$(BIN)/python -m tests.benchmarks.bench_optimizer
	$(BIN)/python -m tests.benchmarks.bench_checkpoint
	$(BIN)/python -m tests.benchmarks.bench_plan
	$(BIN)/python -m tests.benchmarks.bench_scale
	$(BIN)/python -m tests.benchmarks.bench_slow_disk
	$(BIN)/python -m tests.benchmarks.bench_frames

clean:
	rm -rf .venv build *.egg-info
