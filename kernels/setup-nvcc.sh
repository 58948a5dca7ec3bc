#!/bin/sh
# Installs the pinned CUDA compiler (nvcc 13.0) from Python wheels into a virtual environment.
# No CUDA toolkit, driver or GPU is needed, and nothing outside the environment is touched.
#
#   kernels/setup-nvcc.sh [DIR]     DIR defaults to .nvcc in the repository, where build.rs looks for it
#
# Needs python3 with venv and pip, and a host g++. About 300 MB on disk. Running it again is cheap.
# Prints the path of nvcc on its last line.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
venv=${1:-"$root/.nvcc"}

# The first five are the compiler; they are pinned together, since naming only nvcc lets pip pull newer, mixed
# parts of the others. The last is the disassembler for check.sh, which reads older code too.
wheels="nvidia-cuda-nvcc==13.0.88
nvidia-cuda-crt==13.0.88
nvidia-nvvm==13.0.88
nvidia-cuda-runtime==13.0.96
nvidia-cuda-cccl==13.0.85
nvidia-cuda-nvdisasm==13.2.51"

find_nvcc() {
    find "$venv/lib" -path '*/nvidia/cu13/bin/nvcc' -type f 2>/dev/null | head -n 1
}

stamp="$venv/cuzk-wheels.txt"
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wheels" ] || [ -z "$(find_nvcc)" ]; then
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    # shellcheck disable=SC2086 # one word per wheel is meant
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps $wheels
    printf '%s\n' "$wheels" > "$stamp"
    touch "$root/kernels/setup-nvcc.sh" # a file build.rs watches: the next build looks for nvcc again
fi

nvcc=$(find_nvcc)
if [ -z "$nvcc" ]; then
    echo "setup-nvcc: the wheels were installed into $venv but hold no nvcc" >&2
    exit 1
fi
"$nvcc" --version >/dev/null
printf '%s\n' "$nvcc"
