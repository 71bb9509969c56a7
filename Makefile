# What CI runs, in pieces. Install first: pip install -c constraints.txt -e '.[test]'
export OMP_NUM_THREADS ?= 1

.PHONY: check test fast lint

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
