# Every target runs its own setup, so `make demo` and `make test` work on a fresh machine.
PYTHON := .venv/bin/python

.PHONY: setup demo test lint docs bench bench-setup test-slow chaos fuzz clean

setup:
	@scripts/setup.sh

demo: setup
	@scripts/demo.sh

# Two workers, because tests mostly wait. Tests of one file run in one worker and share their fixtures.
test: setup
	$(PYTHON) -m pytest -n 2 --dist loadfile

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/clang-format --dry-run --Werror $$(git ls-files "*.c" "*.h" "*.cl")
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo

docs: setup
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict

# Short forms of all benchmarks, a few minutes each at most. `make bench-compute` runs one; `make -k bench` continues
# after one that misses its target or cannot run (two need Fashion-MNIST). Results of the full benchmarks: docs/results/performance.md.
SHORT_allreduce := --phones 4 --sizes 25 --rounds 1
SHORT_compute := --quick
SHORT_correctness := --models squeezenet_v1_1
SHORT_data_push := --mb 20
SHORT_ddp := --rounds 1 --steps 5
SHORT_forecast := --case squeezenet_v1_1:8 --case mobilenet_v1:8 --steps 2
SHORT_fleet := --phones 16 --rounds 2
SHORT_half := --only steps --networks mobilenet_v1 --turns 2
SHORT_hierarchy := --rounds 1
SHORT_layers := --quick
SHORT_linpack := --n 1000 --rounds 3
SHORT_local_sgd := --steps 32
SHORT_memory := --quick
SHORT_neon := --check
SHORT_opencl := --part products --rounds 3
SHORT_overlap := --steps 4 --rounds 1 --case mobilenet_v1:12
SHORT_packing := --models mobilenet_v1 --rounds 1
SHORT_recovery := --rounds 1
SHORT_ring_order := --rounds 2
SHORT_startup := --phones 4
SHORT_throttle := --seconds 10
SHORT_winograd_ab := --seeds 1 --epochs 1 --samples 2000
SHORT_wires := --steps 150 --seeds 0
BENCHMARKS := $(sort $(patsubst SHORT_%,bench-%,$(filter SHORT_%,$(.VARIABLES))))

bench: $(BENCHMARKS)

.PHONY: $(BENCHMARKS)
$(BENCHMARKS): bench-%: bench-setup
	$(PYTHON) -m benchmarks.$* $(SHORT_$*)

bench-setup:
	@scripts/setup.sh --bench

test-slow: setup
	-$(PYTHON) -m orchestrator.lab.arch  # downloaded once; without it, those tests report what is missing
	$(PYTHON) -m pytest -m slow

chaos: setup
	.venv/bin/clusterctl chaos --faults 200 --seed 1 --phones 4..8 --minutes 240

INPUTS = 1000000  # of `make fuzz`, over all boundaries

fuzz: setup
	CLUSTERCTL_FUZZ=30 $(PYTHON) -m pytest tests/security -m 'not lab'
	$(PYTHON) -m tests.security.fuzzer --inputs $(INPUTS)

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
