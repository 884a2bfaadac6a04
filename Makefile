# Everything a person or a machine does with this repository. `make help` lists it.
SHELL := /bin/bash
# Debian's own Python 3.11 is compiled with optimisations that pyenv leaves out: the same tests take a fifth less of it.
PYTHON ?= $(shell /usr/bin/python3.11 -c 'import ensurepip' 2>/dev/null && echo /usr/bin/python3.11 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
SEEDS ?= 200
N ?= 60
SEED ?= 1
EXAMPLES ?= 20
CALLS ?= 200000
# Two more than there are cores: tests with real processes wait for these most of the time.
WORKERS ?= $(shell expr $$(nproc) + 2)
# Some environments forbid Python to cache bytecode, which the second run of a suite depends on.
export PYTHONDONTWRITEBYTECODE :=
# The arguments of `make deploy`, `make destroy` and the like; ARGS has further options.
STAGED = $(or $(STAGE),$(error Which stage? Say for instance `make $@ STAGE=dev`))
IN_AWS = $(STAGED) $(if $(REGION),--region $(REGION)) $(if $(YES),--yes) $(ARGS)
# Tests that compare the code with a list of its parts: a new route, field, key, status or command goes to its list, too.
LEDGERS := api/test_access api/test_cold contract/test_measured contract/test_openapi contract/test_types backends/test_lines backends/test_plants cli/connection/test_calls cli/test_faces \
  cli/screen/test_shapes domain/test_bounds harness/test_spread \
  planning/test_all_decisions planning/test_field_proofs planning/runs/test_field_support runtime/test_roots sdk/test_generated test_imports test_lengths test_mentions test_names test_one_door test_printable test_retention \
  wire/test_corpus wire/test_recorded
LOCK := --quiet --universal --generate-hashes --python-version 3.11

.PHONY: help install demo test test-fast test-pythons check ledgers e2e-onprem e2e-multinode e2e-aws e2e-gpu deploy destroy policy token carriers bench bench-peer cost sim fuzz mutants docs picture console-pictures lock carrier-lock clean

help: ## list these
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

install: $(VENV)/.installed ## the environment, with the dstack command in .venv/bin

.venvs/uv/.installed: .ci/uv.lock
	@command -v uv >/dev/null || $(PYTHON) .ci/venv.py $(@D) $< || echo "Without uv, pip installs what follows, which takes longer."
	@mkdir -p $(@D) && touch $@

$(VENV)/.installed: requirements.lock pyproject.toml | .venvs/uv/.installed
	@$(PYTHON) .ci/venv.py $(VENV) requirements.lock --project
	@touch $@

$(VENV)/.dev: $(VENV)/.installed requirements-dev.lock
	@$(PYTHON) .ci/venv.py $(VENV) requirements-dev.lock
	@touch $@

.venvs/pythons/.installed: requirements.lock | .venvs/uv/.installed
	@$(PYTHON) .ci/pythons.py requirements.lock
	@mkdir -p $(@D) && touch $@

# One environment for each group of packages that others can't share.
define environment
.venvs/$(1)/.installed: $(2) | .venvs/uv/.installed
	@$$(PYTHON) .ci/venv.py $$(@D) $$<
	@touch $$@
endef
$(eval $(call environment,peer,tests/e2e/peer.lock))
$(eval $(call environment,peer_server,tests/bench/peer.lock))
$(eval $(call environment,gloo,tests/e2e/multinode/gloo.lock))
$(eval $(call environment,openai,tests/serving/openai.lock))
$(eval $(call environment,smg,tests/agent/smg.lock))
$(eval $(call environment,kubectl,tests/backends/kubernetes/kubectl.lock))
$(eval $(call environment,azure,tests/backends/azure/sdk.lock))
$(eval $(call environment,google,tests/backends/gcp/google.lock))
$(eval $(call environment,ministack,tests/emulators/ministack.lock))
$(eval $(call environment,aws_lint,.ci/aws_lint.lock))
$(eval $(call environment,schemathesis,tests/fuzz/schemathesis.lock))
$(eval $(call environment,operate,tests/e2e/operate/programs.lock))

.venvs/examples/.installed: tests/examples/packages.lock tests/examples/cpu.lock tests/examples/pypi.lock | .venvs/uv/.installed
	@$(PYTHON) .ci/venv.py .venvs/examples tests/examples/packages.lock
	@$(PYTHON) .ci/venv.py .venvs/examples tests/examples/cpu.lock >/dev/null 2>&1 || $(PYTHON) .ci/venv.py .venvs/examples tests/examples/pypi.lock
	@touch $@

.venvs/pebble/.installed: tests/harness/pebble.lock
	@$(PYTHON) .ci/deb.py .venvs/pebble tests/harness/pebble.lock
	@mkdir -p .venvs/pebble && touch $@

.venvs/provider/.installed: tests/e2e/sign_on/package-lock.json
	@mkdir -p .venvs/provider && cp tests/e2e/sign_on/package*.json tests/e2e/sign_on/.npmrc .venvs/provider
	@cd .venvs/provider && npm ci --silent --no-audit --no-fund
	@touch $@

.venvs/console/.installed: tests/e2e/console/package-lock.json
	@rm -rf .venvs/console && mkdir -p .venvs/console && cp tests/e2e/console/package*.json tests/e2e/console/.npmrc .venvs/console
	@cd .venvs/console && npm ci --silent --no-audit --no-fund
	@cd .venvs/console && TMPDIR=$$PWD AWS_EXECUTION_ENV=AWS_Lambda_nodejs22.x \
	  node -e "import('@sparticuz/chromium').then((packed) => packed.default.executablePath())"  # with its libraries
	@touch $@

.venvs/console_build/.installed: chalicelib/console/package-lock.json
	@mkdir -p .venvs/console_build && cp chalicelib/console/package*.json chalicelib/console/.npmrc .venvs/console_build
	@cd .venvs/console_build && npm ci --silent --no-audit --no-fund
	@touch $@

.venvs/typescript/.installed: sdk/typescript/package-lock.json
	@mkdir -p .venvs/typescript && cp sdk/typescript/package*.json sdk/typescript/.npmrc .venvs/typescript
	@cd .venvs/typescript && npm ci --silent --no-audit --no-fund
	@touch $@

demo: install ## see a task run through a real control plane, from nothing to nothing
	@$(BIN)/python -m examples.demo

# What `make test` installs beside its own environment.
TOOLS := examples pythons peer ministack gloo openai smg kubectl azure google pebble operate provider console console_build typescript

.PHONY: tools
tools: $(VENV)/.dev $(TOOLS:%=.venvs/%/.installed) $(VENV)/.collected

# A fresh clone's tests are read and compiled in half a minute, while packages are fetched.
$(VENV)/.collected: $(VENV)/.dev
	@$(BIN)/python -m pytest tests --collect-only -qq >/dev/null || true  # what can't be read, the run itself shows
	@touch $@

test: $(VENV)/.dev ## every test, with what they need, on every core
	@$(MAKE) --no-print-directory --jobs 3 tools
	@TMPDIR="$$($(BIN)/python -m tests.harness.scratch 8)" $(BIN)/python -m tests.harness.again tests -p tests.harness.cores --cores $(WORKERS) --fill auto --durations 20

test-fast: $(VENV)/.dev ## the tests that need nothing but this machine's files and loopback, in about a minute
	@TMPDIR="$$($(BIN)/python -m tests.harness.scratch 1)" HYPOTHESIS_PROFILE=fast $(BIN)/python -m pytest tests \
	  -q -m "not slow" --quick -p tests.harness.cores --cores $(WORKERS)

test-pythons: $(VENV)/.dev ## the tests of test-fast with each other version of Python that this machine has
	@$(BIN)/python .ci/pythons.py requirements-dev.lock
	@for python in .venvs/python3.*/bin/python; do echo "$$python:"; TMPDIR="$$($(BIN)/python -m tests.harness.scratch 1)" \
	  HYPOTHESIS_PROFILE=fast $$python -m pytest tests -q -m "not slow" --quick -p tests.harness.cores --cores $(WORKERS) || exit 1; done

check: $(VENV)/.dev .venvs/aws_lint/.installed .venvs/console_build/.installed ## format, lint, types, import contracts, file sizes; the command line's types on macOS; what is sent to AWS
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin -p cli  # a cache is for one platform
	@$(BIN)/lint-imports --no-timings 2>/dev/null || $(BIN)/lint-imports
	@$(BIN)/vermin --no-tips -q -t=3.8- chalicelib/agent
	@$(BIN)/python .ci/sizes.py
	@$(BIN)/python .ci/aws_lint.py
	@.venvs/console_build/node_modules/.bin/openapi-typescript chalicelib/api/openapi.json --output .venvs/console_build/contract.d.ts --default-non-nullable false >/dev/null
	@node .venvs/console_build/node_modules/typescript7/bin/tsc --project chalicelib/console

ledgers: $(VENV)/.dev ## the tests that compare the code with its lists: routes, fields, keys, statuses, roots; in seconds
	@$(BIN)/python -m pytest $(LEDGERS:%=tests/%.py) -q -p tests.harness.cores --cores auto

e2e-onprem: $(VENV)/.dev ## an SSH fleet on real hosts from end to end; its last line is JSON; HOSTS=20
	@$(BIN)/python -m tests.e2e.onprem $(HOSTS)

e2e-multinode: $(VENV)/.dev .venvs/gloo/.installed ## a task on several local nodes sums vectors with gloo; its last line is JSON; NODES=8
	@$(BIN)/python -m tests.e2e.multinode $(NODES)

e2e-aws: $(VENV)/.dev .venvs/ministack/.installed .venvs/console/.installed .venvs/console_build/.installed ## deploy to an emulator of AWS, run tasks there, upgrade, destroy; its last line is JSON
	@$(BIN)/python -m tests.e2e.aws

e2e-gpu: $(VENV)/.dev ## jobs on this machine's NVIDIA cards; its last line is JSON; ARGS=--policy, ARGS=--inside
	@$(BIN)/python -m tests.e2e.gpu $(ARGS)

.PHONY: bundler
bundler: ## what bundles the web console for the wheel and for AWS, where there is npm; without it, it is many files
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory .venvs/console_build/.installed; fi

deploy: $(VENV)/.dev bundler ## the control plane in your AWS account, made or brought up to date; STAGE=dev REGION=… YES=1
	@$(BIN)/python -m infra.deploy $(IN_AWS)

destroy: $(VENV)/.dev ## delete what `make deploy` created, but for data and keys; STAGE=dev REGION=… YES=1
	@$(BIN)/python -m infra.destroy $(IN_AWS)

policy: $(VENV)/.dev ## write the policies that whoever deploys a stage needs, and no more; STAGE=dev REGION=… ARGS="--account 111122223333"
	@$(BIN)/python -m infra.deploy_policy $(IN_AWS)

token: $(VENV)/.dev ## a new token for the admin of a stage in AWS who has lost the old one; STAGE=dev REGION=… YES=1
	@$(BIN)/python -m infra.new_token $(IN_AWS)

carriers: $(VENV)/.dev ## upload to a stage in AWS what containers need whose image has no Python; STAGE=dev REGION=…
	@$(BIN)/python -m infra.carriers $(IN_AWS)

bench: $(VENV)/.dev ## measure speeds and sizes, beside the budgets and docs/bench.json; RECORD=1 rewrites that
	@$(BIN)/python -m tests.bench $(if $(RECORD),--record)

bench-peer: $(VENV)/.dev .venvs/peer_server/.installed ## dstack 0.22.5 beside this, on this machine; RECORD=1 rewrites docs/peer.json
	@$(BIN)/python -m tests.bench.peer $(if $(RECORD),--record)

cost: $(VENV)/.dev ## what the control plane costs in AWS, from a metered month; RECORD=1 records what each thing uses
	@$(BIN)/python -m tests.bench.cost $(if $(RECORD),--record)

sim: $(VENV)/.dev ## whole histories with crashes and lying clouds; SEEDS=200, or SECONDS=60 at most; GANGS=1: of gangs in containers
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(GANGS),--gangs,--coverage --planted)

fuzz: $(VENV)/.dev .venvs/schemathesis/.installed ## hostile calls by several tenants at once, half as many requests through each door, and calls made from the OpenAPI document; CALLS=200000 SEED=1 EXAMPLES=20
	@$(BIN)/python -m tests.fuzz --calls $(CALLS) --seed $(SEED)
	@$(BIN)/python -m tests.fuzz.schema --examples $(EXAMPLES) --seed $(SEED)

mutants: $(VENV)/.dev ## change the code in small places, one at a time, and see whether a test notices; N=60 SEED=1
	@$(BIN)/python -m tests.mutants --count $(N) --seed $(SEED)

docs: $(VENV)/.dev ## regenerate the generated pages
	@$(BIN)/python -m docs.generate

picture: $(VENV)/.dev ## draw the README's terminal session, docs/terminal.svg, from a real one
	@$(BIN)/python -m docs.terminal

console-pictures: $(VENV)/.dev .venvs/console/.installed .venvs/console_build/.installed ## take the docs' pictures of the console, docs/console, from a real one
	@PICTURES=write $(BIN)/python -m pytest tests/console/test_pictures_real.py -q

lock: ## resolve and pin the dependencies again (needs uv)
	uv pip compile $(LOCK) pyproject.toml --extra server --extra sdk --group build -o requirements.lock
	uv pip compile $(LOCK) pyproject.toml --extra all --group dev -o requirements-dev.lock
	@$(BIN)/python -m infra.requirements
	echo uv | uv pip compile $(LOCK) --no-header --no-annotate - -o .ci/uv.lock

carrier-lock: $(VENV)/.dev ## pin the newest packages for carriers (needs apt)
	@$(BIN)/python .ci/carrier_lock.py

clean: ## remove environments, builds and caches
	rm -rf $(VENV) .venvs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
