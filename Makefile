# Everything a newcomer needs: `make run`, `make test`. `make help` lists the rest.
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
ARGS ?=
# One more than there are cores, four at most: much of a test is waiting for a process.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN); echo $$((n < 4 ? n + 1 : 4)))
PYTHON ?= $(if $(wildcard $(PY)),$(PY),python3)
FOR ?= 3.12
# Each of a thousand processes would compile all of PyTorch anew where this is set, as it is in many images.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

# The first interpreter that is 3.11 to 3.13 and can make a virtual environment.
$(READY): pyproject.toml constraints.txt
	@set -e; for p in python3 python3.13 python3.12 python3.11; do \
	  if $$p -c 'import sys, venv, ensurepip; sys.exit(not (3,11) <= sys.version_info < (3,14))' 2>/dev/null; \
	  then found=$$p; break; fi; done; \
	  if [ -z "$$found" ]; then echo "needs Python 3.11, 3.12 or 3.13 with the venv module"; exit 2; fi; \
	  echo "installing into $(VENV) with $$found (a few minutes the first time)"; \
	  [ -x $(PY) ] || $$found -m venv $(VENV); \
	  $(PY) -m pip install --disable-pip-version-check --quiet --no-compile -c constraints.txt -e '.[test]'
	@$(PY) -m harness --help >/dev/null # compiled as it is used: all that is installed takes as long as to fetch it
	@touch $@

run: $(READY) ## the main job: pause, save, restore, judge (ARGS='group=option ...')
	@$(PY) -m harness $(ARGS)

test: $(READY) ## the whole test suite but the slow runs, a worker more than cores (WORKERS=0: none)
	@$(PY) -m pytest -n $(WORKERS) --dist=loadfile --no-loadscope-reorder $(ARGS)

test-slow: $(READY) ## the long runs: fuzz, soak, training, many processes, a browser that comes back
	@$(PY) -m pytest -m slow $(ARGS)

fuzz: $(READY) ## damage snapshots, manifests and records, count what is caught (ARGS=--help: sizes)
	@$(PY) tests/save/fuzz.py $(ARGS)

lint: $(READY) ## ruff: lint and format check; mypy: types
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy

format: $(READY) ## ruff: mend what can be mended
	@$(VENV)/bin/ruff check --fix . ; $(VENV)/bin/ruff format .

bench: $(READY) ## caches side by side with DynamicCache, beside the machine's limit
	@$(PY) -m harness task=bench $(ARGS)

gpu: ## everything measured on a GPU into runs/gpu, by the machine's own Python (PYTHON, WHEELS=DIR), in 8 minutes
	@PYTHONPATH=. $(PYTHON) tests/task/gpu_record.py $(if $(WHEELS),--wheels $(WHEELS)) $(ARGS)

gpu-wheels: $(READY) ## collect what `make gpu` needs on a machine without network into .whl (FOR=3.12: its Python)
	@PYTHONPATH=. $(PY) tests/task/gpu_record.py --wheels .whl --collect $(FOR)

cost: $(READY) ## task=resume beside fifteen lines by hand, at 124M, 0.6B and 1.1B (minutes, 5 GB of disk)
	@$(PY) tests/task/session_cost.py $(ARGS)

thousand: $(READY) ## a sweep of 1,000 points through one Slurm job array, and its cost (ARGS='--launcher local')
	@PYTHONPATH=. $(PY) tests/track/thousand.py $(ARGS)

dashboard: $(READY) ## MLflow on http://127.0.0.1:5000, this machine only
	@$(PY) -m harness.track.dashboard $(ARGS)

audit: $(READY) ## run the committed reference records again and compare every figure
	@$(PY) -m harness task=audit run=runs/reference $(ARGS)

reference: $(READY) ## record the reference runs anew (after a change that is meant to change them)
	@rm -rf runs/reference
	@$(PY) -m harness -m model=tiny,tiny_gemma3 cache=cloned,view prune=none,keep_last \
	  prune.ratio=0.5 prompt=text steps=8 name=reference track=none hydra.sweep.dir=runs/reference \
	  'hydra.sweep.subdir=$${model.name}-$${cache.name}-$${prune.name}'
	@find runs/reference \( -name hydra.yaml -o -name harness.log \) -delete
	@$(PY) -c "import yaml; place = 'runs/reference/multirun.yaml'; told = yaml.safe_load(open(place)); \
	  yaml.safe_dump({'hydra': {'overrides': told['hydra']['overrides']}}, open(place, 'w'))"  # no machine's paths

across: $(READY) ## record under the oldest and newest Transformers, audit and resume under the other
	@PYTHONPATH=. $(PY) tests/task/across_versions.py $(ARGS)

train: $(READY) ## train the shipped model again from its recipe
	@$(PY) -m harness.model.assets.train $(ARGS)

peers: $(READY) ## the pruning policies beside kvpress, which gets an environment of its own
	@[ -x .kvpress/bin/python ] || (python3 -m venv .kvpress && .kvpress/bin/pip install --quiet \
	  torch==2.13.0 kvpress==0.5.5 'transformers<5.3' 'pandas<3')
	@HARNESS_KVPRESS=.kvpress/bin/python $(PY) -m pytest -m slow -s -n 0 tests/prune/test_peers.py $(ARGS)

recall: $(READY) ## measure the shipped model's recall by distance
	@$(PY) -m harness.model.assets.recall $(ARGS)

clean: ## remove caches (neither runs nor the environment)
	@rm -rf .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

KEPT := ! -name reference ! -name gpu ! -name .gitkeep
clean-runs: ## delete what is below runs/, snapshots and mlflow.db too, but not reference and gpu (asks; YES=1: no question)
	@find runs -mindepth 1 -maxdepth 1 $(KEPT) -exec du -sh {} +
	@if [ -z "$(YES)" ]; then printf 'delete all of these? [y/N] '; read -r answer || true; \
	  [ "$$answer" = y ] || { echo "nothing was deleted"; exit 1; }; fi
	@find runs -mindepth 1 -maxdepth 1 $(KEPT) -exec rm -rf {} +

.PHONY: help run test test-slow fuzz lint format bench cost gpu gpu-wheels thousand dashboard audit reference across train peers recall clean clean-runs
