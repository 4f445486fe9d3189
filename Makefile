# .ci/environment makes .venv and keeps it as pyproject.toml wants it; where nothing has changed it takes no time.

.DEFAULT_GOAL := help
.PHONY: help run environment test test-all lint pictures dist site release clean
.NOTPARALLEL:
export PYTHON TORCH PIP_ARGS VERSION

help:
	@echo 'make run       open the wizard; without a terminal, train the quickstart'
	@echo 'make lint      check style, layers and types'
	@echo 'make test      lint, and run the tests, as .ci/run does'
	@echo 'make test-all  all tests: the whole fallback ladder, engines, NeMo, 100,000 random events, stops,'
	@echo '               races, cut connections; types by pyright, and the screens with the newest Textual. Takes an hour or'
	@echo '               more; each part ends with a table of failures'
	@echo 'make pictures  take the pictures of the screens again, from the real program'
	@echo 'make dist      build the wheel into dist/'
	@echo 'make site      build the documentation as a site, into build/site'
	@echo 'make release VERSION=0.2.0'
	@echo '               cut CHANGELOG, set the version, commit and tag; nothing is pushed'
	@echo 'make clean     remove what these made'
	@echo
	@echo 'make run creates .venv and installs into it. A torch that the Python or .venv already has is kept. Options:'
	@echo '  PYTHON=python3.12          the Python to use: 3.10 or newer (default: python3, or another that is found)'
	@echo '  TORCH=2.9.1                a version of torch, or a wheel (default: the build that fits the GPUs and their driver)'
	@echo '  PIP_ARGS="--find-links …"  more arguments for pip, such as another index'

run:
	@bash .ci/environment run
	@if [ -t 0 ] && [ -t 1 ] && [ "$${TERM:-dumb}" != dumb ]; then exec .venv/bin/tui-train; \
	else exec .venv/bin/tui-train quickstart; fi

environment:
	@bash .ci/environment test

# Tools that lie beside the Python that lent its torch are found as well.
lint test test-all: export PATH := $(CURDIR)/.venv/bin:$(PATH)

lint: environment
	.ci/lint

pictures: environment
	.venv/bin/python assets/picture.py

dist: environment
	.ci/dist dist

site: environment
	.ci/site build/site

release:
	@python3 assets/release.py "$$VERSION"

# What a shell starts in the background ignores Ctrl-C, nohup a hang-up, and so would all that the tests start.
DEFAULTS := env --default-signal=INT --default-signal=HUP
HEARING := $(shell $(DEFAULTS) true 2> /dev/null && echo $(DEFAULTS))

# Four at a time: much of what the tests start waits, even on two cores. What they import is compiled once before. Style
# and types are checked beside them with what they leave of the processors; what that says comes last.
test: environment
	@said=$$(mktemp); trap 'rm -f "$$said"' EXIT; code=0; unset PYTHONDONTWRITEBYTECODE; \
	$(HEARING) nice .ci/lint > "$$said" 2>&1 & lint=$$!; \
	.venv/bin/python -m compileall -q -j 0 -x /cases/ tui_train screens tests || true; \
	echo '.venv/bin/python -m pytest -n 4 --dist loadgroup'; \
	$(HEARING) .venv/bin/python -m pytest -n 4 --dist loadgroup || code=1; \
	wait $$lint || code=1; cat "$$said"; exit $$code

# TUI_TRAIN_TEST_MATRIX=all tries all of what make test tries a sample of: both engines, both launchers, each fault of the
# screens, each signature's expression, each kind of damage.
# Installs a NeMo, unless TUI_TRAIN_TEST_NEMO names a Python that has one. With TUI_TRAIN_TEST_BRIDGE, _AUTOMODEL, _TRL
# and _DEEPSPEED naming a Python that has each, these are tested as well; Slurm where its daemons are installed
# (apt-get install --no-install-recommends slurm-wlm slurm-client slurm-wlm-basic-plugins munge). GGUF files with
# TUI_TRAIN_TEST_LLAMA_CPP, a folder of llama.cpp, and sentencepiece; Ollama's templates where Go is.
# An answer is compared where that folder has llama-server. Tasks of lm-eval take TUI_TRAIN_TEST_LM_EVAL, a Python with it.
WITH_MORE = $(shell grep -rlE --include='test_*.py' 'mark\.whole|import .*(WHOLE|sample|examples)\b|^    (WHOLE|sample|examples),$$|TUI_TRAIN_TEST_|with_trl' tests)
test-all: environment
	@.venv/bin/python -c 'import pyright' 2> /dev/null || .venv/bin/python -m pip install -qq $(PIP_ARGS) -e '.[pyright]' || true
	@code=0; .ci/lint || code=1; \
	$(HEARING) TUI_TRAIN_TEST_NEMO=$${TUI_TRAIN_TEST_NEMO:-new} TUI_TRAIN_TEST_LADDER=all TUI_TRAIN_TEST_MATRIX=all \
	  TUI_TRAIN_TEST_REPEATS=20 TUI_TRAIN_TEST_FUZZ=20000 TUI_TRAIN_TEST_EVENTS=100000 \
	  TUI_TRAIN_TEST_CUTS=150 TUI_TRAIN_TEST_STOPS=80 TUI_TRAIN_TEST_RACES=200 \
	  .venv/bin/python -m pytest -n 3 --dist loadgroup $(WITH_MORE) || code=1; \
	$(HEARING) .ci/newest_textual || code=1; exit $$code

clean:
	@if [ -e .venv/.made-by-make ]; then rm -rf .venv; elif [ -e .venv ]; then \
	echo '.venv was not made by make: it stays'; fi
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis \
	  snapshot_report.html tests/.built
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +
