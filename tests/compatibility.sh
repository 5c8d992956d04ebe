#!/usr/bin/env bash
# Tests with the oldest or the newest versions that pyproject.toml allows, in a throwaway environment:
#
#     PYTHON=python3.11 bash tests/compatibility.sh oldest [pytest arguments]
#     PYTHON=python3.13 bash tests/compatibility.sh newest [pytest arguments]
#     bash tests/compatibility.sh package      # wheel and sdist: build, check, install in a clean place, run the demo
#
# "oldest" pins every dependency of the core to its floor, and runs the tests that need nothing else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="${PYTHON:-python3}"
which="${1:?oldest, newest or package}"
shift
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/venv"
# shellcheck disable=SC1091
source "$work/venv/bin/activate"
export NUMBA_CACHE_DIR="$work/numba" MPLBACKEND=agg PIP_DISABLE_PIP_VERSION_CHECK=1
core=(tests/test_tree.py tests/test_formats.py tests/test_metrics.py tests/test_package.py tests/model/test_gig.py
    tests/model/test_diffusion.py tests/model/test_covariance.py tests/inference/test_smc.py tests/inference/test_greedy.py
    tests/inference/test_refine.py tests/posterior/test_ensemble.py tests/inference/test_learn_posterior.py
    tests/posterior/test_predict.py tests/regression/test_fit.py tests/regression/test_comparison.py tests/estimators
    tests/plots tests/cli/test_cluster.py tests/fuzz/test_found.py tests/properties)

case "$which" in
oldest)
    floors="$(python - << 'END'
import re, tomllib
wanted = tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]
print(" ".join(re.sub(r">=([0-9.]+).*", r"==\1", line) for line in wanted))
END
)"
    # shellcheck disable=SC2086
    pip install --quiet $floors 'pyparsing<3.3' 'click<8.2' 'pytest<9' 'pytest-xdist>=3.5' hypothesis mpmath pandas
    pip install --quiet --no-deps .
    ;;
newest) pip install --quiet '.[test]' ;;
package)
    pip install --quiet build twine
    python -m build --outdir "$work/dist" .
    twine check --strict "$work"/dist/*
    for file in "$work"/dist/*; do
        "$python" -m venv --clear "$work/clean"
        "$work/clean/bin/pip" install --quiet "$file"
        (cd "$work" && rm -rf coaltree-demo && "$work/clean/bin/coaltree" demo)
    done
    exit
    ;;
*)
    echo "oldest, newest or package?" >&2
    exit 2
    ;;
esac
python -c "
import platform, sys
from importlib.metadata import version
print('Python', platform.python_version(), *(f'{n} {version(n)}' for n in ('numpy', 'scipy', 'numba', 'scikit-learn', 'matplotlib')))
"
if [ "$which" = oldest ]; then pytest -q "${core[@]}" "$@"; else pytest -q "$@"; fi
