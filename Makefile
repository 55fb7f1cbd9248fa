# The project's verbs. Each does its own set-up; `make demo` and `make test` work on a fresh machine.
PYTHON := .venv/bin/python

.PHONY: setup demo test lint bench bench-setup test-slow chaos fuzz clean

setup:
	@scripts/setup.sh

demo: setup
	@scripts/demo.sh

# Two at a time: much of a test is waiting. Tests of a file stay together and share what they set up.
test: setup
	$(PYTHON) -m pytest -n 2 --dist loadfile

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: bench-setup
	$(PYTHON) -m benchmarks.ring_order
	$(PYTHON) -m benchmarks.fleet
	$(PYTHON) -m benchmarks.compute --quick
	$(PYTHON) -m benchmarks.layers --quick
	$(PYTHON) -m benchmarks.memory --quick
	$(PYTHON) -m benchmarks.neon --check

bench-setup:
	@scripts/setup.sh --bench

test-slow: setup
	-$(PYTHON) -m orchestrator.lab.arch  # fetched once; without it those tests say what is missing
	$(PYTHON) -m pytest -m slow

chaos: setup
	.venv/bin/clusterctl chaos --faults 200 --seed 1 --phones 4..8 --minutes 240

fuzz: setup
	CLUSTERCTL_FUZZ=30 $(PYTHON) -m pytest tests/security -m 'not lab'

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
