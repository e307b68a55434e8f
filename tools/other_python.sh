#!/usr/bin/env bash
# other_python.sh VERSION TORCHES TEST...: makes the wheel of another Python (3.12) for these
# versions of torch and runs tests with it, as somebody who installed it: in an environment of its
# own that has the last of them, outside of the source tree. All of it lies in
# build/python-VERSION. Where that Python is not on the machine, one line says so, and that is all.
set -euo pipefail
version=$1 torches=$2 torch=${2##* }
shift 2

# Each is tried: pyenv's python3.12 is on the path, and fails, where another version is selected.
find_python() {
  local python
  for python in "python$version" "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$version".*/"bin/python$version"; do
    "$python" -c 'import sys, venv, ensurepip; print(sys.executable)' 2>/dev/null && return
  done
  return 1
}

python=$(find_python) || {
  echo "python-$version: Python $version is not on this machine; its wheel was neither made nor tested"
  exit 0
}
${MAKE:-make} --no-print-directory wheel PYTHON="$python" TORCHES="$torches"

here=$PWD/build/python-$version
wheel=$(ls -t dist/torch_pjrt-*-cp"${version/./}"-*.whl | head -n 1)
[ -x "$here/venv/bin/pip" ] || "$python" -m venv "$here/venv"
install=("$here/venv/bin/python" -m pip install --quiet)
"${install[@]}" -c requirements/test.txt "$wheel" "torch==$torch" pytest pytest-xdist pytest-timeout
"${install[@]}" --no-deps --force-reinstall "$wheel" # a new build has the old one's version
"${install[@]}" --no-deps --require-hashes -r requirements/cpu-plugins.txt

# No torch_pjrt is beside these tests, so that they import the one that is installed.
rm -rf "$here/tests"
cp -r tests pyproject.toml "$here"
cd "$here"
venv/bin/python -m torch_pjrt doctor | sed -n '/^versions/,/^plugins/{/^ /p}'
venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --timeout 900 "$@"
