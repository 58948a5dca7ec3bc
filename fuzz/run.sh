#!/bin/sh
# Runs every fuzz target for a while, on stable Rust and without cargo-fuzz.
#
#     fuzz/run.sh [SECONDS [TARGET...]]       60 seconds and all targets, unless said otherwise
#
# Seeds are in fuzz/corpus/TARGET (and, for inputs that are recorded jobs, in tests/data/filecoin). What a run finds goes
# to the build folder and is used by the next one; an input that fails a target is written to fuzz/artifacts, becomes a
# file of tests/data with a test, and only then leaves.
set -eu
cd "$(dirname "$0")/.."

seconds=${1:-60}
[ $# -eq 0 ] || shift
targets=${*:-$(cd fuzz/fuzz_targets && ls | sed 's/\.rs$//')}
build=${CARGO_TARGET_DIR:-target}
data=tests/data/filecoin

RUSTC_WORKSPACE_WRAPPER="$PWD/fuzz/rustc-with-coverage.sh" cargo build --release --package cuzk-fuzz --bins

for target in $targets; do
    found="$build/fuzz-corpus/$target"
    mkdir -p "$found" "fuzz/artifacts/$target"
    seeds=
    [ ! -d "fuzz/corpus/$target" ] || seeds="fuzz/corpus/$target"
    options=
    case $target in
        vanilla_proof)
            seeds="$seeds $data/winning-2k/sector-1 $data/window-2k/padded-partition"
            seeds="$seeds $data/snap-2k/sector-1 $data/porep-2k/sector-1"
            options=-max_len=131072
            ;;
        manifest)
            seeds="$seeds $data/winning-2k/sector-1 $data/window-2k/two-partitions $data/snap-2k/sector-1"
            options="-max_len=16384 -only_ascii=1"
            ;;
    esac
    echo "== $target: $seconds s =="
    # shellcheck disable=SC2086  # lists of words
    "$build/release/fuzz_$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -verbosity=0 \
        -print_final_stats=1 -artifact_prefix="fuzz/artifacts/$target/" $options "$found" $seeds
done
