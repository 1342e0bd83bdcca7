# make chat: install kvchat into .venv, fetch the default model, open the chat.
# make test: install the test extra into the same .venv, run every check.
# make bench: measure beside the engines that are installed. make screenshots: renew the pictures in docs.
# Both want the default model.
# make snapshots: keep pictures of the screens as they look now, which the tests compare with; look at them in git.
# make guide: renew the lists in docs/USER_GUIDE.md.

PYTHON ?= python3
MODEL := smollm2-135m-instruct
BIN := .venv/bin

# Tests share the cores: torch's threads must sleep where they wait, not spin, and the many processes that tests start must
# not compile the sources again each, whatever the environment says.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_WAIT_POLICY=passive $(BIN)/pytest -n auto --maxprocesses 4 --dist worksteal

.PHONY: chat test bench screenshots snapshots guide

chat: .venv/installed
	@$(BIN)/kvchat pull $(MODEL)
	@$(BIN)/kvchat

test: .venv/test-installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy
	$(PYTEST)

bench: .venv/installed
	$(BIN)/kvchat bench peers

screenshots: .venv/test-installed
	$(BIN)/python docs/make_screenshots.py

snapshots: .venv/test-installed
	KVCHAT_RENEW_LOOKS=1 $(BIN)/pytest tests/kvchat/tui/test_looks.py

guide: .venv/installed
	$(BIN)/python docs/make_user_guide.py

.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "$(PYTHON) is no Python 3.11 or later, which kvchat needs: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv module: install it (Debian, Ubuntu: the package python3-venv)" >&2; exit 1; }
	@echo "Installing kvchat into .venv (torch is about 200 MB, this takes a few minutes once)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --editable .
	@touch $@

.venv/test-installed: .venv/installed
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[test]'
	@touch $@
