# make demo | test | quick | nightly | bench | conformance | peer | asan | tsan | wheel | python-3.12 |
# sdist | api | format | clean.
# Everything lands in .venv and build/.
# Each step leaves a stamp, so a second run redoes only what changed.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

PYTHON ?= $(firstword $(foreach p,python3.11 python3,$(shell command -v $(p))))
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
JOBS ?= $(shell nproc)
CMAKE := PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cmake -DPython_EXECUTABLE=$(CURDIR)/$(PY)
SOURCES := $(shell find src tests/core tests/fakeplugin -name '*.cpp' -o -name '*.h' 2>/dev/null)
BUILD_FILES := CMakeLists.txt CMakePresets.json $(wildcard cmake/*)

# ---- set-up ---------------------------------------------------------------------------------
.PHONY: setup build
setup: $(VENV)/.installed

build/.system: tools/system_packages.sh
	@mkdir -p build
	bash tools/system_packages.sh
	@touch $@

$(VENV)/.requirements: requirements/build.txt requirements/test.txt requirements/cpu-plugins.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet -r requirements/build.txt -r requirements/test.txt
	$(PY) -m pip install --quiet --no-deps --require-hashes -r requirements/cpu-plugins.txt
	@touch $@

# An editable install without a C++ build: ninja puts _C into torch_pjrt/ itself.
$(VENV)/.installed: $(VENV)/.requirements pyproject.toml
	$(PY) -m pip install --quiet --no-build-isolation --no-deps --config-settings=wheel.cmake=false -e .
	@touch $@

# ---- builds ---------------------------------------------------------------------------------
build/%/build.ninja: $(BUILD_FILES) build/.system | $(VENV)/.installed
	$(CMAKE) --preset $*
	@touch $@

# ninja itself knows what changed, so this always asks it.
build: build/dev/build.ninja
	@$(BIN)/ninja -C build/dev -j $(JOBS) --quiet

.PHONY: asan tsan sanitize
sanitize: asan tsan
asan tsan: %: build/%/build.ninja
	@$(BIN)/ninja -C build/$* -j $(JOBS) --quiet
	$(BIN)/ctest --test-dir build/$* --output-on-failure -j 2

# ---- what is given away -----------------------------------------------------------------------
# One wheel for PYTHON, with the extension for each torch of TORCHES; only the core and what sees
# torch are compiled here, torch's own libraries stay outside of it. Lands in dist/.
TORCHES ?= 2.13.0 2.14.1 2.15.0
WHEEL_ENV := build/env-$(notdir $(PYTHON))
WHEEL_PY := PATH="$(CURDIR)/$(WHEEL_ENV)/bin:$$PATH" $(WHEEL_ENV)/bin/python
SPACE := $(subst ,, )
# Of no Python's folder, so that the core is compiled once for all of them.
PJRT_HEADERS ?= $(CURDIR)/build/pjrt
.PHONY: wheel sdist
$(WHEEL_ENV)/.installed: requirements/wheel.txt requirements/cpu-plugins.txt
	$(PYTHON) -m venv $(WHEEL_ENV)
	$(WHEEL_PY) -m pip install --quiet -r requirements/wheel.txt
	$(WHEEL_PY) -m pip install --quiet --no-deps --require-hashes -r requirements/cpu-plugins.txt
	@mkdir -p build/pjrt
	cp -pu $$($(WHEEL_PY) cmake/python_env.py | sed -n 's/^PJRT_INCLUDE=//p')/*.h build/pjrt
	@touch $@

wheel: $(WHEEL_ENV)/.installed build/.system
	rm -rf build/wheelhouse
	$(WHEEL_PY) tools/torch_sdk.py build/torch $(TORCHES)
	TORCH_PJRT_TORCHES="$(subst $(SPACE),;,$(TORCHES:%=build/torch/%/torch))" \
	    CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) \
	    $(WHEEL_PY) -m build --wheel --no-isolation --skip-dependency-check --outdir build/wheelhouse \
	    --config-setting=cmake.define.TP_PJRT_INCLUDE=$(PJRT_HEADERS)
	$(WHEEL_PY) -m auditwheel repair --exclude "libtorch*.so" --exclude libc10.so \
	    --wheel-dir dist build/wheelhouse/*.whl
	$(WHEEL_PY) tools/check_wheel.py dist $(TORCHES)

# `make python-3.12`: the wheel of another Python, and the quick tests with it, installed beside this
# release (of the newest one PyPI has a CUDA build of gigabytes).
PYTHONS := 3.12 3.13
OTHER_PYTHONS := $(PYTHONS:%=python-%)
PYTHON_TORCHES ?= 2.14.1
.PHONY: $(OTHER_PYTHONS)
$(OTHER_PYTHONS): python-%:
	@MAKE="$(MAKE)" tools/other_python.sh $* "$(PYTHON_TORCHES)" $(QUICK) \
	  tests/python/test_frames.py

sdist: $(WHEEL_ENV)/.installed
	$(WHEEL_PY) -m build --sdist --no-isolation --skip-dependency-check --outdir dist

# ---- checks and tests -----------------------------------------------------------------------
.PHONY: check test pytest conformance demo fuzz bench format clean
check: setup
	$(PY) tools/check_layers.py
	$(PY) tools/check_size.py
	$(BIN)/clang-format --dry-run -Werror $(SOURCES)
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/mypy
	$(BIN)/mypy bench/spmd.py bench/collectives.py

# The seconds of each stage and of all come last.
test: setup
	@MAKE="$(MAKE)" tools/stages.sh build check asan pytest

# Two processes; a file's tests share one, so that they share what it compiled. Files that take
# longest come first (tests/conftest.py).
PYTEST := $(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder --timeout 900
pytest: build
	$(PYTEST)

# The loop of seconds: checks, core tests without a sanitizer, a file that touches each part.
QUICK := $(addprefix tests/python/test_,compiles.py capture.py states.py)
.PHONY: quick quick-core quick-pytest
quick: setup
	@MAKE="$(MAKE)" tools/stages.sh build check quick-core quick-pytest
quick-core: build
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/ninja -C build/dev -j $(JOBS) --quiet core_tests
	$(BIN)/ctest --test-dir build/dev --output-on-failure -j 2
quick-pytest: build
	$(PYTEST) $(QUICK)

# What takes hours, once a figure. `make suite-WHEEL` runs what programs compute on one CPU plugin:
# all else of the suite asks nothing of the plugin, or a fake one.
CPU_WHEELS := $(shell sed -n 's/^\([a-z-]*\)==.*/\1/p' requirements/cpu-plugins.txt)
# The default wheel's are in `pytest --nightly`.
OTHER_WHEELS := $(filter-out lammps-jax-pjrt-cpu,$(CPU_WHEELS))
COMPUTING := tests/cases $(addprefix tests/python/test_,$(addsuffix .py,ops lowerings models modules \
  numbers views inplace_out mixed_dtypes random special control_flow recurrent scan_layers train \
  compile capture compiled_models donation host_ops long_graphs spmd tiers))
# Budgets come first, while the machine is at rest; all stages run, whichever fail.
.PHONY: nightly nightly-pytest
nightly: build
	@MAKE="$(MAKE)" CHECK=--check N=2000 \
	  tools/stages.sh -k bench wheel sdist nightly-pytest \
	  $(OTHER_PYTHONS) conformance tsan fuzz tiers $(OTHER_WHEELS:%=suite-%)
nightly-pytest: build
	$(PYTEST) --nightly

# The same on the default plugin with all tiers, as users have them: graphs are interpreted first.
.PHONY: tiers
tiers: build
	TORCH_PJRT_TIERS=on $(PYTEST) $(COMPUTING)

suite-%: build
	TORCH_PJRT_CPU_PLUGIN=$* $(PYTEST) $(COMPUTING)

# The whole OpInfo database in every dtype and form; writes docs/op-coverage.md.
conformance: build
	$(PY) tests/ops/conformance.py --jobs 2

demo: build
	$(PY) examples/digits.py

# pytorch/xla's own tests on compat/torch_xla, from a clone of it: make peer PEER=/path
.PHONY: peer
peer: build
	@test -n "$(PEER)" || { echo "PEER=/path/of/pytorch-xla (tag v2.9.0) is needed"; exit 1; }
	$(PY) tools/peer.py $(PEER)
	$(PY) tools/compat_page.py

# Random programs against eager: make fuzz N=10000 SEED=1; seeds and findings go to build/fuzz.
N ?= 1000
SEED ?= 1
fuzz: build
	TORCH_PJRT_CACHE=off $(PY) tests/fuzz -n $(N) --seed $(SEED) -j 2 --keep-going

# CHECK=--check: a figure over its budget fails, once all have been printed.
CHECK ?=
GATED := recording eager_mode memory compile spmd collectives long_graphs kernels varying optimizers
bench: build
	@failed=; for b in $(GATED); do $(PY) bench/$$b.py $(CHECK) || failed="$$failed $$b"; done; \
	$(PY) bench/plugins.py eager lammps-jax-pjrt-cpu $(CHECK) || failed="$$failed plugins"; \
	test -z "$$failed" || { echo "over budget:$$failed"; exit 1; }

# The reference of the public names, from their docstrings: docs/api.md
.PHONY: api
api: setup
	$(PY) tools/api_page.py

format: setup
	$(BIN)/clang-format -i $(SOURCES)
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format --quiet .

clean:
	rm -rf build dist torch_pjrt/_C*.so torch_pjrt/_build_info.py
