# Every target works on a bare machine with Python 3.10 or newer and a C compiler.
PYTHON ?= python3
BIN := .venv/bin
# Known to work; the shards do not depend on it, only the loader's tensors and the tests do.
TORCH := torch==2.13.0

.PHONY: venv demo check test test-all test-cluster bench clean test-image lock

venv: .venv/installed

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	# DeepSpeed's compiled operators are not used, so none is built
	DS_BUILD_OPS=0 $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: venv
	$(BIN)/python tests/end_to_end/demo.py

check: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Two files of tests at a time, in the order of tests/conftest.py.
test: check
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

# With the tests that take minutes each: an hour or two on two cores.
test-all: check
	$(BIN)/python -m pytest -m "not cluster"

# Builds the container image on this machine: as root, on Debian, needs neither Docker nor a GPU.
test-image: venv
	$(BIN)/python -m pytest -s tests/docker/image.py

# After a change of dependencies in pyproject.toml; UPGRADE=--upgrade takes new versions of all.
lock: venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/python docker/lock.py $(TORCH) $(UPGRADE)

# A Slurm of two nodes on this machine: installs Debian packages, so it wants root. With both nodes on
# one host, one start of MPICH in some dozens fails inside MPI_Init: such a test, and no other, begins anew.
test-cluster: venv
	$(BIN)/python -m pytest -m cluster tests/cluster --reruns 2 --only-rerun internal_Init_thread

bench: venv
	$(BIN)/python -m tests.benchmarks.bench_masking
	$(BIN)/python -m tests.benchmarks.bench_loader
	$(BIN)/python -m tests.benchmarks.bench_prepare
	$(BIN)/python -m tests.benchmarks.bench_workers
	$(BIN)/python -m tests.benchmarks.bench_tokens
	$(BIN)/python -m tests.benchmarks.bench_memory
	$(BIN)/python -m tests.benchmarks.bench_dedup
	$(BIN)/python -m tests.benchmarks.bench_training
	$(BIN)/python -m tests.benchmarks.bench_packing
	$(BIN)/python -m tests.benchmarks.bench_electra
	$(BIN)/python -m tests.benchmarks.bench_optimizer
	$(BIN)/python -m tests.benchmarks.bench_checkpoint

clean:
	rm -rf .venv build *.egg-info
