#!/bin/sh
# Cargo's RUSTC_WORKSPACE_WRAPPER for fuzz/run.sh: compiles the packages of this workspace, and those alone, with the
# coverage counters that libFuzzer reads, and with the checks of a debug build. Registry dependencies are the ones of
# the ordinary release build: nothing but these packages is compiled again. The flags are LLVM's and work on stable Rust.
rustc=$1
shift
# A build script is a program of its own, without libFuzzer's run time to link with.
case " $* " in
*" --crate-name build_script_build "*) exec "$rustc" "$@" ;;
esac
exec "$rustc" "$@" \
    --cfg fuzzing \
    -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cdebug-assertions=on \
    -Coverflow-checks=on
