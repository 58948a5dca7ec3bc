#!/usr/bin/env bash
# Runs every fuzz target for a while, on stable Rust and without cargo-fuzz, as many at once as there are cores.
#
#     fuzz/run.sh [SECONDS [TARGET...]]       60 seconds and all targets, unless said otherwise
#     fuzz/run.sh --build                     builds them, and no more
#
# Seeds are in fuzz/corpus/TARGET (and, for inputs that are recorded jobs, in tests/data/filecoin). What a run finds goes
# to the build folder and is used by the next one; an input that fails a target is written to fuzz/artifacts, becomes a
# file of tests/data with a test, and only then leaves.
# pipefail: a target's status must not be lost in the pipe that labels its output.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${CARGO_TARGET_DIR:-target}
data=tests/data/filecoin

run_one() { # run_one SECONDS TARGET
    seconds=$1 target=$2 status=0
    # Not only the program, which an earlier build may have left behind.
    if [ ! -f "fuzz/fuzz_targets/$target.rs" ]; then
        echo "$target: no such target" >&2
        return 1
    fi
    found="$build/fuzz-corpus/$target"
    mkdir -p "$found" "fuzz/artifacts/$target"
    seeds=
    [ ! -d "fuzz/corpus/$target" ] || seeds="fuzz/corpus/$target"
    options=
    case $target in
        vanilla_proof)
            seeds="$seeds $data/winning-2k/sector-1 $data/window-2k/padded-partition"
            seeds="$seeds $data/snap-2k/sector-1 $data/porep-2k/sector-1"
            # Deeper trees. Long enough for a C1 of theirs, wrapped too.
            seeds="$seeds $data/winning-8m/sector-1 $data/window-8m/padded-partition"
            seeds="$seeds $data/snap-8m/sector-1 $data/porep-8m/sector-1"
            options=-max_len=294912
            ;;
        inspect)
            for kind in winning window snap porep; do
                seeds="$seeds $(echo $data/$kind-2k/*/ | cut -d " " -f 1)"
            done
            seeds="$seeds fuzz/corpus/srs_file fuzz/corpus/proof_bytes fuzz/corpus/request_json"
            options=-max_len=131072
            ;;
        manifest)
            seeds="$seeds $data/winning-2k/sector-1 $data/window-2k/two-partitions $data/snap-2k/sector-1"
            options="-max_len=16384 -only_ascii=1"
            ;;
    esac
    # shellcheck disable=SC2086  # lists of words
    "$build/release/fuzz_$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -verbosity=0 \
        -print_final_stats=1 -artifact_prefix="fuzz/artifacts/$target/" $options "$found" $seeds \
        2>&1 | sed "s/^/$target: /" || status=$?
    if [ -n "$(ls "fuzz/artifacts/$target")" ]; then
        echo "$target: failed on fuzz/artifacts/$target/$(ls "fuzz/artifacts/$target" | head -n 1)" >&2
        return 1
    fi
    # Without an input left behind: killed, not built, or its corpus could not be read. Always 1, since xargs takes
    # some codes (126, 127, 255) for its own and would leave the other targets out.
    if [ "$status" -ne 0 ]; then
        echo "$target: ended with status $status" >&2
        return 1
    fi
}

if [ "${1:-}" = --one ]; then
    run_one "$2" "$3"
    exit
fi

# Of cuzk little is computed here, and all of it is compiled for nothing else: less optimised, in half the time. In pieces,
# since nothing else is compiled meanwhile.
RUSTC_WORKSPACE_WRAPPER="$PWD/fuzz/rustc-with-coverage.sh" cargo build --release --package cuzk-fuzz --bins \
    --config profile.release.package.cuzk.opt-level=1 --config profile.release.package.cuzk.codegen-units=16
[ "${1:-}" != --build ] || exit 0
seconds=${1:-60}
[ $# -eq 0 ] || shift
targets=${*:-$(cd fuzz/fuzz_targets && ls | sed 's/\.rs$//')}
# shellcheck disable=SC2086  # a list of words
# xargs goes on after a target that failed, and ends with 123 then.
printf '%s\n' $targets | xargs -n 1 -P "$(nproc)" fuzz/run.sh --one "$seconds"
