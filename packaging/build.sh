#!/usr/bin/env bash
# Builds the programs as they are shipped: with kernels, and with the same bytes wherever and whenever it is done.
# Usage: packaging/build.sh [--out DIR] [--features LIST]
#   --out       where cuzk, cuzk-daemon and cuzk-bench are put [dist/bin]
#   --features  beside the default ones [cuda]; "" builds without kernels
. "$(dirname "$0")/common.sh"

out=dist/bin
features=cuda
options out features -- "$@"

# Paths: not this machine's; of two that fit, the compiler takes the last. Profile: what the environment could set otherwise,
# and no debugging information, which is stripped below.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$PWD=/cuzk \
--remap-path-prefix=$target=/cuzk/target"
export CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 CARGO_PROFILE_RELEASE_DEBUG=false CARGO_INCREMENTAL=0
if [[ $features == *cuda* ]]; then
    [[ -x $(command -v nvcc) || -d .nvcc || -x /usr/local/cuda/bin/nvcc ]] || kernels/setup-nvcc.sh
    # Without an nvcc there would be programs without kernels, which nobody wants shipped.
    export CUZK_KERNELS=require
fi

cargo build --release --locked --features "$features" --bins
mkdir -p "$out"
for program in cuzk cuzk-daemon cuzk-bench; do
    install -m 0755 "$target/release/$program" "$out/$program"
    strip --strip-debug "$out/$program"
done
