# Everything that a fresh clone needs: each target does its own set-up, a second run takes it as done.
SHELL := /bin/sh
.DEFAULT_GOAL := help
BIN := .venv/bin
READY := .venv/.ready
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --quiet \
	--no-header --no-annotate --no-emit-index-url
.PHONY: help setup test test-kubernetes demo docs dashboards chart chart-tools lint types bench compare datasets published lock clean

help:  ## Say what the targets do
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 17

setup: $(READY)  ## Make .venv with the locked packages, Java and the jars
	@:

$(READY): pyproject.toml requirements/build.txt requirements/lock.txt services/skewless/local/jars.lock deploy/setup.sh
	@deploy/setup.sh
	@touch $@

test: $(READY)  ## Run all tests but the benchmarks, two files at a time (ARGS="-k name" chooses, ARGS="-n 0" one)
	@$(BIN)/python -m pytest tests --ignore=tests/bench -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-kubernetes: $(READY)  ## Run the chart on a real Kubernetes of this machine, made once in 30 minutes (root, Linux)
	@deploy/kubernetes/check.sh $(ARGS)

chaos: $(READY)  ## Hurt the pipeline by seed (SEEDS=1-20 FAULTS=kill,stop MODES=final,idle ARGS="--seconds 120")
	@PYTHONPATH=services:tests $(BIN)/python -m acceptance.chaos --seeds $(or $(SEEDS),1-3) --faults "$(FAULTS)" \
		--modes "$(MODES)" $(ARGS)

demo: $(READY)  ## Show the whole pipeline on this machine
	@$(BIN)/skewless demo $(ARGS)

docs: $(READY)  ## Make the reference pages of docs/ from the code
	@$(BIN)/python -m skewless.reference docs/reference

dashboards: $(READY)  ## Make dashboards, alerts and rules from the code (DOCS=address of the runbooks)
	@PYTHONPATH=services:. $(BIN)/python -m dashboards.build $(DOCS)

chart: $(READY)  ## Make what the chart has from the code, and the page of its values
	@PYTHONPATH=services:. $(BIN)/python -m helm.build
	@tools=$$(deploy/chart-tools.sh --find) && "$$tools"/helm-docs --chart-search-root helm/skewless \
		--sort-values-order file --log-level warning

chart-tools: $(READY)  ## Build the tools that the chart's tests need, once
	@nice deploy/chart-tools.sh

lint: $(READY)  ## Check style and formatting
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: $(READY)  ## Check types
	@$(BIN)/mypy

bench: $(READY)  ## Run the benchmarks: one line of JSON per run
	@for file in $(filter-out %/bench_live.py,$(wildcard tests/bench/bench_*.py)); do PYTHONPATH=tests $(BIN)/python $$file $(ARGS) || exit 1; done

compare: $(READY)  ## Compare all groupings anew: the page of docs/, with the real data in SKEWLESS_DATA
	@PYTHONPATH=tests $(BIN)/python tests/bench/bench_groupings.py --page docs/reference/comparison.md $(ARGS)

datasets: $(READY)  ## Run every data set through the pipeline and an audit: the page of docs/, as above
	@PYTHONPATH=tests $(BIN)/python tests/bench/bench_datasets.py --page docs/reference/datasets.md $(ARGS)

published: $(READY)  ## Run the published experiment live, some 35 minutes: the page of docs/; goes on after an interruption
	@PYTHONPATH=tests $(BIN)/python tests/bench/bench_live.py --page docs/reference/published-experiment.md $(ARGS)

lock:  ## Choose versions anew (needs uv)
	@$(COMPILE) pyproject.toml --extra spark --extra otel --group dev --upgrade --output-file requirements/lock.txt
	@$(COMPILE) --group build --constraints requirements/lock.txt --output-file requirements/build.txt
	@$(COMPILE) --group sbom --constraints requirements/lock.txt --output-file requirements/sbom.txt
	@$(COMPILE) pyproject.toml --extra otel --constraints requirements/lock.txt --output-file requirements/run.txt
	@$(COMPILE) pyproject.toml --extra otel --extra spark --constraints requirements/lock.txt \
		--output-file requirements/spark.txt
	@$(BIN)/python -m skewless.local.lock_jars

clean:  ## Remove .venv and what the tools left
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
