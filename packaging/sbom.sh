#!/usr/bin/env bash
# Writes what the programs are made of, as CycloneDX 1.5: dist/cuzk.cdx.json; validates it by the standard's schema, and looks
# that it has every package of Cargo.lock that is built. By cargo-cyclonedx, installed if it is missing.
# Usage: packaging/sbom.sh [OUT]
. "$(dirname "$0")/common.sh"
out=$(realpath -m "${1:-dist/cuzk.cdx.json}")
command -v cargo-cyclonedx >/dev/null 2>&1 || cargo install --quiet --locked --debug --version 0.5.9 cargo-cyclonedx
mkdir -p "$(dirname "$out")"
cargo cyclonedx --format json --spec-version 1.5 --features cuda --target x86_64-unknown-linux-gnu --override-filename cuzk.cdx
mv cuzk.cdx.json "$out"
# Each workspace member gets one; the programs' is the one to ship.
find . -name cuzk.cdx.json -not -path './dist/*' -not -path './target/*' -delete

need_python_tools "cyclonedx-python-lib[json-validation]==11.12.0"
cargo metadata --locked --format-version 1 --features cuda --filter-platform x86_64-unknown-linux-gnu |
    "$tools/bin/python" packaging/sbom_check.py "$out"
echo "$out"
