# One virtual environment; torch is installed first and alone, then regard with what a target needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt

# The build tools (hatchling, editables) are pinned too: older pip reads the first name in an
# isolated build, newer pip the second.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt

SENTENCES := "Il m'a entarté." "Le chat dort sur le canapé rouge." \
	"Si j'avais su, je ne serais pas venu."

.PHONY: demo test check docs format clean

demo: $(VENV)/.demo  ## Translate three sentences, with reasons and a picture of them
	$(BIN)/regard translate --alternatives 4 --explain $(SENTENCES)
	$(BIN)/regard translate --explain --save demo.html --save demo.png "Le chat dort."

# Two processes of one thread each: threads that wait for a busy core spin.
test: check  ## Everything CI runs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

check: $(VENV)/.test  ## Format, lint, types, line budgets, atlas
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/size.py
	$(BIN)/python tools/atlas.py --check

docs: $(VENV)/.docs  ## The site, into site/; runs the code it shows, checks its links
	NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 $(BIN)/mkdocs build

format: $(VENV)/.test  ## Rewrite the source in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## Forget the virtual environment
	rm -rf $(VENV)

# Stamp files: each step runs once, and again only when its pins or metadata change.
$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.torch: $(VENV)/.python constraints.txt
	$(PIP) torch==2.13.0
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	$(PIP) -e '.[plot]'
	touch $@

$(VENV)/.docs: $(VENV)/.torch pyproject.toml
	$(PIP) -e '.[docs]'
	touch $@

$(VENV)/.test: $(VENV)/.torch pyproject.toml
	$(PIP) -e '.[test]'
	touch $@
