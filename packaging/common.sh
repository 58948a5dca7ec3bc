# Sourced by the scripts of this folder: the checkout's root as working folder, options, the age of what is made.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# options NAME... -- ARG...: sets the variable NAME to VALUE for each `--NAME VALUE`; another argument is wrong use.
options() {
    local names=()
    while [[ $1 != -- ]]; do
        names+=("$1")
        shift
    done
    shift
    while [[ $# -gt 0 ]]; do
        if [[ $# -lt 2 || " ${names[*]/#/--} " != *" $1 "* ]]; then
            echo "$0: cannot use ${*:1:2}; there are ${names[*]/#/--}, each with a value" >&2
            exit 2
        fi
        printf -v "${1#--}" %s "$2"
        shift 2
    done
}

# Whatever is made is as old as the last change, wherever and whenever it is made.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH

# need_python_tools PACKAGE==VERSION...: into a virtual environment of their own (python3 with venv), once; `$tools` is its folder.
tools=${CUZK_LINT_TOOLS:-target/tools/packaging}
need_python_tools() {
    local wanted="$*"
    wanted=$tools/have-${wanted//[^A-Za-z0-9.]/_}
    [[ ! -e $wanted ]] || return 0
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet "$@"
    touch "$wanted"
}

# For tests: what is done, and an end with the reason.
say() { printf '== %s\n' "$*"; }
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

# example_mirror CUZK DIR: makes the folder with the test parameters of WindowPoSt of 2 KiB sectors, and the list of them in
# the form of Filecoin's `parameters.json`.
example_mirror() {
    local file digest entries=()
    "$1" params generate wpost-2k --params "$2" >/dev/null 2>&1
    for file in "$2"/v*; do
        digest=$(b2sum "$file" | cut -c 1-32)
        entries+=("\"${file##*/}\": {\"cid\": \"Qm$digest\", \"digest\": \"$digest\", \"sector_size\": 2048}")
    done
    local IFS=,
    echo "{${entries[*]}}" >"$2/parameters.json"
}
