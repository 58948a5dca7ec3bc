#!/usr/bin/env bash
# Builds the programs as they are shipped: with kernels, and with the same bytes wherever and whenever it is done.
# Usage: packaging/build.sh [--out DIR] [--features LIST]
#   --out       where cuzk, cuzk-daemon and cuzk-bench are put [dist/bin]
#   --features  beside the default ones [cuda]; "" builds without kernels
set -euo pipefail
cd "$(dirname "$0")/.."

out=dist/bin
features=cuda
while [[ $# -gt 0 ]]; do
    case $1 in
    --out) out=$2 ;;
    --features) features=$2 ;;
    *)
        echo "unknown argument $1" >&2
        exit 2
        ;;
    esac
    shift 2
done

# Times: those of the last change. Paths: not this machine's.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH
cargo_home=${CARGO_HOME:-$HOME/.cargo}
export RUSTFLAGS="--remap-path-prefix=$PWD=/cuzk --remap-path-prefix=$cargo_home=/cargo ${RUSTFLAGS:-}"
if [[ $features == *cuda* ]]; then
    [[ -x $(command -v nvcc) || -d .nvcc || -x /usr/local/cuda/bin/nvcc ]] || kernels/setup-nvcc.sh
    # Without an nvcc there would be programs without kernels, which nobody wants shipped.
    export CUZK_KERNELS=require
fi

cargo build --release --locked --features "$features" --bins
mkdir -p "$out"
for program in cuzk cuzk-daemon cuzk-bench; do
    install -m 0755 "${CARGO_TARGET_DIR:-target}/release/$program" "$out/$program"
    strip --strip-debug "$out/$program"
done
