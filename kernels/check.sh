#!/bin/sh
# Checks of the CUDA part that need no GPU. For CI and for people.
#
#   kernels/check.sh            gate, spills, shim
#   kernels/check.sh STEP...
#
#   gate   installs the pinned nvcc (setup-nvcc.sh), compiles the field routines alone for each architecture and
#          compares their multiplication counts in SASS with the table below: a lost fusion of multiplication
#          pairs halves the speed and fails no other test. A few seconds, and the installation.
#   spills compiles the transforms, the evaluation and the sums in G1 and looks for spilled registers in the kernels that take the time:
#          a loop counter that is (up to 16 accesses in a kernel's code) costs nothing, elements that are would be
#          hundreds. A minute for each architecture; CUZK_CUDA_ARCHS=90 looks at that one alone.
#   shim   tests of crates/cuda_shim: without a driver every call fails cleanly, with one it goes through.
#   host   the arithmetic, the transforms, the sums and the evaluation compiled for the host under sanitizers against the CPU's.
#   lint   clippy with feature cuda.
#   build  everything with feature cuda, where a missing or failing nvcc is an error.
set -eu
cd "$(dirname "$0")/.."

# routine: IMAD.WIDE, IMAD.HI, plain IMAD (low halves); local memory accesses must be 0.
# A row's first low half is known to cancel, so ptxas keeps only the high half of that product (IMAD.HI).
expected="gate_fp_mul 276 12 12 0
gate_fp_sqr 209 13 13 0
gate_fp_dot 420 12 12 0
gate_fr_mul 112 0 0 0"

count() { # count FILE.sass: one line per kernel, in the order of `expected`
    awk '
        /^\.text\.gate_/ { name = $1; sub(/^\.text\./, "", name); sub(/:$/, "", name) }
        name != "" && match($0, /\/\*[0-9a-f]+\*\/ +(@!?U?P[0-9T]+ +)?[A-Z]/) {
            text = substr($0, RSTART); sub(/^\/\*[0-9a-f]+\*\/ +(@!?U?P[0-9T]+ +)?/, "", text)
            split(text, word, /[ ;]/); op = word[1]
            if (op ~ /^U?IMAD\.WIDE/) wide[name]++
            else if (op ~ /^IMAD\.HI/) high[name]++
            else if (op == "IMAD") low[name]++
            else if (op ~ /^(LDL|STL)/) local[name]++
            seen[name] = 1
        }
        END { for (name in seen) print name, wide[name] + 0, high[name] + 0, low[name] + 0, local[name] + 0 }
    ' "$1" | sort
}

gate() {
    nvcc=$(kernels/setup-nvcc.sh | tail -n 1)
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    for arch in 80 86 89 90 120; do
        "$nvcc" -std=c++17 -O3 -cubin -arch="sm_$arch" -o "$folder/gate.cubin" kernels/host/sass_gate.cu
        "$(dirname "$nvcc")/nvdisasm" "$folder/gate.cubin" > "$folder/gate.sass"
        counted=$(count "$folder/gate.sass")
        if [ "$counted" != "$(printf '%s\n' "$expected" | sort)" ]; then
            printf 'sm_%s: wide, high, low, local:\n%s\nexpected:\n%s\n' "$arch" "$counted" "$expected" >&2
            exit 1
        fi
        echo "sm_$arch: multiplication counts as expected"
    done
}

spills() {
    nvcc=$(kernels/setup-nvcc.sh | tail -n 1)
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    for arch in $(echo "${CUZK_CUDA_ARCHS:-80,86,89,90,120}" | tr , ' '); do
        for file in ntt quotient lagrange msm_g1 spmv; do
            # As build.rs: what the file asks for.
            options=$(sed -n 's|^// nvcc: ||p' "kernels/$file.cu")
            # shellcheck disable=SC2086
            "$nvcc" -std=c++17 -O3 $options -cubin -arch="sm_$arch" -o "$folder/hot.cubin" "kernels/$file.cu"
            "$(dirname "$nvcc")/nvdisasm" "$folder/hot.cubin" > "$folder/hot.sass"
            spilled=$(awk '
                /^\.text\./ { name = $1 }
                / (LDL|STL)[. ]/ { local[name]++ }
                END {
                    for (name in local)
                        if (local[name] > 16 && (name !~ /msm/ || name ~ /accumulate|pairs/))
                            print name, local[name]
                }
            ' "$folder/hot.sass")
            if [ -n "$spilled" ]; then
                printf 'sm_%s, %s.cu: local memory accesses:\n%s\n' "$arch" "$file" "$spilled" >&2
                exit 1
            fi
        done
        echo "sm_$arch: no elements in local memory in the hot kernels"
    done
}

shim() { (cd crates/cuda_shim && cargo test --quiet); }

host() { cargo test --release --test kernels_host; }

lint() { cargo clippy --release --all-targets --features cuda -- -D warnings; }

build() { CUZK_KERNELS=require cargo build --release --features cuda; }

for step in ${*:-gate spills shim}; do
    case "$step" in
    gate | spills | shim | host | lint | build) "$step" ;;
    *) echo "unknown step $step" >&2; exit 2 ;;
    esac
done
