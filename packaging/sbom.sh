#!/usr/bin/env bash
# Writes what the programs are made of, as CycloneDX 1.5: dist/cuzk.cdx.json. By cargo-cyclonedx, installed if it is missing.
# Usage: packaging/sbom.sh [OUT]
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-dist/cuzk.cdx.json}")
command -v cargo-cyclonedx >/dev/null 2>&1 || cargo install --quiet --locked --debug --version 0.5.9 cargo-cyclonedx
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH
mkdir -p "$(dirname "$out")"
cargo cyclonedx --format json --spec-version 1.5 --features cuda --target x86_64-unknown-linux-gnu --override-filename cuzk.cdx
mv cuzk.cdx.json "$out"
# Each workspace member gets one; the programs' is the one to ship.
find . -name cuzk.cdx.json -not -path './dist/*' -not -path './target/*' -delete
echo "$out"
