#!/usr/bin/env bash
# Builds the programs once more, from a clone in another folder with a build folder of its own, and looks that they have the
# same bytes as those that are there.
# Usage: packaging/reproduce.sh [--bin DIR]
#   --bin  folder with the programs [dist/bin]; of the last commit
. "$(dirname "$0")/common.sh"

bin=dist/bin
options bin -- "$@"
git diff --quiet HEAD || fail "there are changes that are not committed: a clone does not have them"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

git clone --quiet . "$work/again"
[[ ! -d .nvcc ]] || ln -s "$PWD/.nvcc" "$work/again/.nvcc"
env -u CARGO_TARGET_DIR "$work/again/packaging/build.sh"
for program in cuzk cuzk-daemon cuzk-bench; do
    cmp "$bin/$program" "$work/again/dist/bin/$program" || fail "$program differs"
    sha256sum "$bin/$program"
done
say "the same bytes"
