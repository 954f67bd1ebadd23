# The two commands: `make demo` and `make test`. Both make their own virtual environment first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
MODELS := .models

.DEFAULT_GOAL := help
.PHONY: help demo test test-full lint types models system bench clean

help:           ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.installed: setup.cfg pyproject.toml
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || sh tools/install_system_packages.sh python3-venv
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[demo,test]'
	touch $@

demo: $(VENV)/.installed  ## place a real face model on this machine's processors, generate code, run it
	$(BIN)/python tools/fetch_models.py --only face_landmark.tflite
	$(BIN)/python tools/demo.py

system:         ## the system packages that the tests use (Debian, Ubuntu): sshd, gcc, a Vulkan driver
	sh tools/install_system_packages.sh

models: $(VENV)/.installed  ## fetch the real models that the tests use
	$(BIN)/python tools/fetch_models.py

test: $(VENV)/.installed system models  ## everything that gates a change: lint, types, wheel, tests
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tools/run_tests.py

test-full: $(VENV)/.installed system models  ## the full sweeps as well; writes a dated log to docs/logs/
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tools/run_tests.py --full

lint: $(VENV)/.installed  ## ruff
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/.installed  ## mypy, strict
	$(BIN)/mypy

bench: $(VENV)/.installed models  ## the benchmarks whose output the docs quote
	$(BIN)/python tools/bench/models.py

clean:          ## remove what the commands made
	rm -rf $(VENV) $(MODELS) demo-out build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
