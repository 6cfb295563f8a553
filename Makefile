# Every task makes the environment first if it is missing; the second time it installs nothing.

VENV   := .venv
PYTHON := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
DOCS   := build/docs
JVM    := spark or connect or debezium or postgres or mariadb or kafka or opensearch or redis or prometheus or slow
NO_JVM := not ($(JVM) or soak)
QUICK  := $(NO_JVM) and not laws
# SQL and records are covered by tests on real servers.
COVERED := not (spark or connect or slow or laws or soak)
# What has a task of its own, as it takes long.
ALONE  := not (crashes or soak or debezium)
# `make check` has a minute: what needs Spark, plays whole histories or reads saved states is not even imported.
LATER  := examples golden laws spark transcripts
CHECK  := -m "$(QUICK) and not thorough" $(LATER:%=--ignore=tests/%) --ignore-glob='examples/*' --ignore-glob='*_spark.py'

# Modules that are compiled once are not compiled by each of the many processes that tests start.
unexport PYTHONDONTWRITEBYTECODE

# Their figures cover real servers, so one that is missing is an error; elsewhere its tests are skipped.
borders converge crashes histories soak kill bench-sinks test-debezium: export STREAMOPS_REQUIRE_SERVERS = 1

.DEFAULT_GOAL := help
.PHONY: help setup demo notebooks test test-all test-oldest test-runtimes test-climb test-in lint check format test-spark test-debezium histories laws borders coverage converge crashes soak faults kill bench bench-peers bench-sinks docs docs-serve docs-check constraints audit hooks release-check clean

help: ## List the tasks.
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make the environment in .venv, with all that work on streamops needs.
	@echo "Ready. Next: make demo, or: source $(VENV)/bin/activate && python -m streamops doctor"

demo: $(STAMP) ## Compute windows, sketches, joins, patterns, stored queries and a function per key from a year of flights, also over a crash, and verify them.
	$(PYTHON) -m examples.flights

notebooks: $(STAMP) ## Run the notebooks, and store their outputs.
	$(PYTHON) -m notebooks

test: $(STAMP) ## Run the quick tests of the library, the laws on few examples, and every operator once on Spark, and Kafka where it can be fetched.
	HYPOTHESIS_PROFILE=quick $(PYTHON) -m pytest -q -n auto --dist worksteal -m "$(NO_JVM) and not exhaustive" --ignore=tests/examples
	scripts/get-postgres; scripts/get-mariadb; scripts/get-kafka; scripts/get-opensearch; scripts/get-redis; scripts/get-prometheus
	@# Two sessions at a time: each has a JVM of its own, of up to two gigabytes.
	HYPOTHESIS_PROFILE=quick $(PYTHON) -m pytest -q -rs -n 2 --dist worksteal -m "smoke and ($(JVM))"

test-all: $(STAMP) ## Run what make test leaves out, but crashes and soak: examples, laws on more examples, exhaustive tests, coverage, Spark, Connect, and PostgreSQL and Kafka where they can be installed.
	scripts/get-postgres; scripts/get-mariadb; scripts/get-kafka; scripts/get-opensearch; scripts/get-redis; scripts/get-prometheus; scripts/get-iceberg
	HYPOTHESIS_PROFILE=test $(PYTHON) -m pytest -q -n auto --dist worksteal -m "$(NO_JVM) and laws"
	@# All other tests without Spark, of which the coverage is measured.
	HYPOTHESIS_PROFILE=test $(MAKE) coverage
	HYPOTHESIS_PROFILE=test $(PYTHON) -m pytest -q -rs -n 2 --dist loadfile --no-loadscope-reorder -m "(spark or connect or slow) and $(ALONE) and not smoke"

test-connectors: $(STAMP) ## Run the tests of writer="spark" with Spark 4.1 and the connectors of Delta Lake and Iceberg, which Maven and pip must get.
	STREAMOPS_REQUIRE_SERVERS=1 scripts/get-connectors
	$(PYTHON) -m pytest -q -rs tests/sinks/test_spark_writers.py

test-debezium: $(STAMP) ## Let Debezium's connectors read PostgreSQL and MariaDB, and compare the mirrors with the tables. Ten minutes.
	scripts/get-postgres && scripts/get-mariadb && scripts/get-kafka && scripts/get-debezium
	$(PYTHON) -m pytest -q -rs -m debezium tests/debezium

histories: $(STAMP) ## Play a thousand random histories through Debezium's connectors, and kill them, their servers and the query. An hour or more.
	scripts/get-postgres && scripts/get-mariadb && scripts/get-kafka && scripts/get-debezium
	$(PYTHON) -m tests.debezium.histories $(ARGUMENTS)

# What `make test` runs, but the examples and what looks at this environment.
test-oldest: ## Run the tests of make test with the oldest supported versions of all packages, on Python 3.11.
	scripts/make-venv build/oldest constraints-oldest.txt
	$(MAKE) test-in VENV=build/oldest

test-python-%: ## Run the tests of make test on another Python, such as make test-python-3.13.
	scripts/make-venv build/python$* constraints.txt python$*
	$(MAKE) test-in VENV=build/python$*

test-runtime-%: ## Run transcripts, laws and every operator among the packages of a managed runtime, such as make test-runtime-databricks-15.4.
	scripts/test-runtime $*

test-runtimes: ## Run make test-runtime- for all that runtimes/ has.
	failed=; for pins in runtimes/*.txt; do name=$$(basename $$pins .txt); scripts/test-runtime $$name || failed="$$failed $$name"; done; \
	    cat build/runtimes/*/row.md; [ -z "$$failed" ] || { echo "Failed:$$failed"; exit 1; }

test-climb: ## Let every operator with a state continue its checkpoint from Spark 3.5 to 4.3, one version after another, and compare. A quarter of an hour.
	scripts/test-climb

# Kafka's connector needs Spark 4.2. What old packages are refused for is skipped.
test-in:
	OLD_PACKAGES=1 HYPOTHESIS_PROFILE=quick $(PYTHON) -m pytest -q -n auto --dist worksteal -m "$(NO_JVM) and not exhaustive" --ignore=tests/examples --ignore=tests/docs --ignore=tests/architecture
	OLD_PACKAGES=1 HYPOTHESIS_PROFILE=quick $(PYTHON) -m pytest -q -rs -n 2 --dist worksteal -m "smoke and spark and not kafka"

define STYLE
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) tests/architecture/rules.py
	$(PYTHON) tests/architecture/vocabulary.py
endef

lint: $(STAMP) ## Check format, lint, types and import direction.
	$(STYLE)
	$(PYTHON) -m mypy

check: $(STAMP) ## Do what make lint does, and run the quickest tests. No JVM, a minute.
	$(STYLE)
	@# Types are checked at the same time. Rewriting assertions to show their values takes a third of
	@# the time of the tests, so only the tests that fail are run again with it.
	$(PYTHON) -m mypy & types=$$!; \
	$(PYTHON) -m pytest -q -n auto --dist worksteal --assert=plain $(CHECK); tests=$$?; \
	[ $$tests -ne 1 ] || $(PYTHON) -m pytest -q --last-failed $(CHECK); \
	wait $$types && exit $$tests

format: $(STAMP) ## Format the code, and fix what the linter can fix.
	$(PYTHON) -m ruff check --fix-only .
	$(PYTHON) -m ruff format .

test-spark: $(STAMP) ## Run the tests on Spark, classic and Connect.
	$(PYTHON) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "(spark or connect) and $(ALONE)"

laws: $(STAMP) ## Check every law on at least 1,000 histories.
	HYPOTHESIS_PROFILE=laws $(PYTHON) -m pytest -q -m laws -n auto --dist worksteal

borders: $(STAMP) ## Deliver to thousands of random tables, read thousands of random texts, patterns and queries. Half an hour.
	scripts/get-postgres && scripts/get-mariadb && scripts/get-kafka
	STREAMOPS_BORDERS=long $(PYTHON) -m pytest -q -rs -n 2 --dist worksteal tests/borders

coverage: $(STAMP) ## Report the branches of kernel/, changelog/ and core/ that no test without Spark takes.
	scripts/get-postgres; scripts/get-mariadb; scripts/get-kafka; scripts/get-opensearch; scripts/get-redis; scripts/get-prometheus
	$(PYTHON) -m pytest -q -n auto --dist worksteal -m "$(COVERED)" --cov --cov-report=term:skip-covered

crashes: $(STAMP) ## Roll queries back to every durable state that a crash leaves, and compare with the batch result. Half an hour.
	scripts/get-postgres && scripts/get-kafka
	$(PYTHON) -m pytest -q -rs -n 2 --dist worksteal tests/crashes
	$(PYTHON) -m tests.crashes.sinks
	$(PYTHON) -m tests.crashes.outcomes
	$(PYTHON) -m tests.crashes.requests PostgreSQL

converge: $(STAMP) ## Deliver ten thousand random histories to a search index, a cache, a mirror and a warehouse, while their servers are killed. Five minutes.
	scripts/get-opensearch && scripts/get-redis && scripts/get-mariadb
	$(PYTHON) -m tests.sinks.converge

soak: $(STAMP) ## Deliver a thousand micro-batches to every sink and every stateful operator, and measure memory, files, connections and state. Twenty minutes.
	scripts/get-postgres && scripts/get-kafka
	$(PYTHON) -m pytest -q -rs -n 2 --dist worksteal -m soak tests/sinks
	$(PYTHON) -m pytest -q -n auto -m exhaustive -k "last_quarter" tests/windows tests/state

faults: $(STAMP) ## Plant faults, one at a time, and report which test of `make test` detects each. Takes half an hour.
	$(PYTHON) -m tests.faults.inject

kill: $(STAMP) ## Kill drivers, workers, executors and servers, and compare all targets of the sinks. Takes half an hour.
	scripts/get-postgres && scripts/get-kafka
	$(PYTHON) -m tests.kills

bench: $(STAMP) ## Measure streamops, Spark's own operators and the naive way side by side.
	$(PYTHON) -m benchmarks

bench-peers: $(STAMP) ## Measure streamops, Spark's own operators, Flink, Bytewax, Pathway, Polars and DuckDB side by side. An hour.
	scripts/get-peers
	$(PYTHON) -m benchmarks.peers --write $(ARGUMENTS)

bench-sinks: $(STAMP) ## Measure every sink and what one writes by hand instead, side by side. A quarter of an hour.
	scripts/get-postgres && scripts/get-kafka
	$(PYTHON) -m benchmarks.sinks

docs: $(DOCS)/.installed ## Write docs/errors.md from the code, and build the site into build/site; warnings are errors. Two minutes.
	$(DOCS)/bin/python -m website.errors
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build

docs-serve: $(DOCS)/.installed ## Show the site at http://localhost:8000, and build it again when a page changes.
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs serve

docs-check: $(STAMP) docs ## Visit every page of the built site in Chromium, and write screenshots to build/screenshots. Needs Debian's chromium.
	$(PYTHON) -m website.browser

constraints: $(STAMP) ## Install the newest versions of all packages, and write them to constraints.txt.
	rm -rf build/newest && mkdir -p build
	: > constraints.txt
	scripts/make-venv build/newest
	echo '# Versions of all packages with which streamops is tested, on Python 3.11. `make constraints` writes them anew.' > constraints.txt
	@# What builds the package is installed by nothing else.
	$(PYTHON) -m pip --python build/newest/bin/python install -qU setuptools
	$(PYTHON) -m pip --python build/newest/bin/python freeze --all --exclude pip --exclude-editable >> constraints.txt

audit: $(STAMP) ## Ask PyPI for known vulnerabilities of these versions. Needs PyPI itself, not a mirror.
	[ -x build/audit/bin/pip-audit ] || { $(PYTHON) -m venv build/audit && build/audit/bin/python -m pip install -q pip-audit==2.10.1; }
	build/audit/bin/pip-audit --strict --no-deps --disable-pip -r constraints.txt

release-check: ## Build wheel and sdist, check metadata and version, install each extra by itself, and run the README's example. TAG=v0.1.0 also compares the tag.
	scripts/release-check $(TAG)

hooks: $(STAMP) ## Let git check format, lint and import direction before each commit.
	$(PYTHON) -m pre_commit install

clean: ## Remove what the tasks left behind, but not the environment.
	rm -rf .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist htmlcov out \
	    spark-warehouse metastore_db derby.log *.egg-info
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	scripts/make-venv $(VENV)
	@touch $@

# The site needs less than the tests.
$(DOCS)/.installed: pyproject.toml constraints.txt
	EXTRAS=docs scripts/make-venv $(DOCS)
	@touch $@
