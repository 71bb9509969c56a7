# What CI runs, in pieces. Install first: pip install -c constraints.txt -e '.[test]'
export OMP_NUM_THREADS ?= 1

.PHONY: check test fast lint torture

check: test lint                # all that .ci/run runs after installation

test:
	pytest -n 2 --dist worksteal

fast:                           # under two minutes on two cores
	pytest -n 2 --dist worksteal -m "not slow"

lint:
	ruff check .
	ruff format --check .
	mypy
	lint-imports

LIVES ?= 100
EXAMPLES ?= 100000
SEED ?= 0

torture:                        # a night: lives that are cut anywhere, files with anything in them; a table at the end
	pytest -n 2 --dist worksteal $(addprefix tests/faults/test_,cuts.py mutated_files.py save.py damage.py disk.py) tests/attacks \
		--trials $(LIVES) --examples $(EXAMPLES) --first-seed $(SEED)
