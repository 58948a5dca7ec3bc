#!/usr/bin/env bash
# Builds the image and lives with it: what it is, its entry point, a first start that fetches parameters, a proof over the
# socket, health, a stop, and the variant with Curio. No GPU is needed.
# Needs docker, or podman as root.
# Usage: packaging/container/test.sh [--base DIR] [--bin DIR]
#   --base  a Debian made by debootstrap, which stands in for NVIDIA's base image without a network; the
#           programs are then those of --bin, and only the stage that compiles is left out [the image is built whole]
#   --bin   folder with the programs [dist/bin]
. "$(dirname "$0")/../common.sh"

base=
bin=dist/bin
options base bin -- "$@"

if [[ -n ${CUZK_CONTAINER_ENGINE:-} ]]; then
    read -ra engine <<<"$CUZK_CONTAINER_ENGINE"
elif command -v docker >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
    engine=(docker)
else
    engine=(podman)
fi
engine() { "${engine[@]}" "$@"; }
run=(run)
build=(build)
if [[ ${engine[0]} == podman ]]; then
    # It keeps health checks in images of this format alone. Limits that may be too high for this machine are lowered.
    build+=(--format docker)
    run+=(--ulimit nofile=4096:4096 --ulimit nproc=4096:4096)
fi

work=$(mktemp -d)
name=cuzk-test-$$
cleanup() {
    engine rm --force "$name" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap cleanup EXIT

containerfile=packaging/container/Containerfile
if [[ -n $base ]]; then
    say "a stand-in for the base image"
    arg() { sed -n "s/^ARG $1=//p" "$containerfile"; }
    image=docker.io/nvidia/cuda:$(arg CUDA_VERSION)-base-ubuntu$(arg UBUNTU_VERSION)
    engine image inspect "$image" >/dev/null 2>&1 || tar --create --directory "$base" . | engine import - "$image" >/dev/null
    # Its stage `build` is a folder with what that stage makes.
    mkdir -p "$work/build/out"
    cp "$bin"/cuzk "$bin"/cuzk-daemon "$bin"/cuzk-bench "$work/build/out/"
    build+=(--pull=never --build-context "build=$work/build")
    sed '/ AS build$/,/^$/d' "$containerfile" >"$work/Containerfile"
    containerfile=$work/Containerfile
fi

say "build"
engine "${build[@]}" --file "$containerfile" --tag cuzk . >"$work/build.log" 2>&1 || {
    cat "$work/build.log"
    fail "the image cannot be built"
}

say "the image"
inspect() { engine inspect --type image --format "$1" cuzk; }
[[ $(inspect '{{.Config.User}}') == 9820:9820 ]] || fail "it runs as another user: $(inspect '{{.Config.User}}')"
[[ $(inspect '{{.Config.Entrypoint}} {{.Config.Cmd}}') == '[entrypoint.sh] [daemon]' ]] || fail "it starts something else"
[[ $(inspect '{{json .Config.Healthcheck}}') == *entrypoint.sh* ]] || fail "it has no health check"
for volume in /var/tmp/filecoin-proof-parameters /var/lib/cuzk /var/cache/cuzk /run/cuzk; do
    [[ $(inspect '{{json .Config.Volumes}}') == *"\"$volume\""* ]] || fail "$volume is no volume"
done
for variable in NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility; do
    [[ $(inspect '{{json .Config.Env}}') == *"\"$variable\""* ]] || fail "it does not set $variable"
done

say "any command, a shell"
once() { engine "${run[@]}" --rm --no-healthcheck "$@"; }
once cuzk cuzk --version
once cuzk cuzk-bench --help >/dev/null
[[ $(once cuzk id -u) == 9820 ]] || fail "it is not the unprivileged user"
# shellcheck disable=SC2016 # the shell inside expands it
[[ $(once cuzk shell -c 'echo "$0 $(pwd)"') == "bash /var/lib/cuzk" ]] || fail "no shell"
once cuzk cuzk doctor || [[ $? == 1 ]] || fail "doctor ends with neither 0 nor 1"
once cuzk --check-config
mkdir "$work/bin"
cat >"$work/bin/docker" <<END
#!/bin/sh
[ "\$1" = run ] && shift && exec ${engine[*]} ${run[*]} --no-healthcheck "\$@"
exec ${engine[*]} "\$@"
END
chmod +x "$work/bin/docker"
PATH=$work/bin:$PATH packaging/transcripts.py --shell "bash -c" container

say "a first start that fetches parameters"
mirror=$work/mirror
example_mirror "$bin/cuzk" "$mirror"
cp -r tests/data/filecoin/window-2k/full-partition "$work/input"
chmod -R a+rX "$work"
engine "${run[@]}" --detach --name "$name" --volume "$mirror:/mirror:ro" --volume "$work/input:/input:ro" \
    --env CUZK_FETCH=window --env CUZK_SECTOR_SIZE=2KiB --env CUZK_GATEWAY=file:///mirror \
    --env CUZK_MANIFEST=/mirror/parameters.json cuzk >/dev/null
logs() {
    engine logs "$name" >&2 || true
    fail "$1"
}
await_ready() {
    for _ in $(seq 120); do
        ! engine exec "$name" entrypoint.sh ready >/dev/null 2>&1 || return 0
        sleep 0.5
    done
    logs "the daemon is not ready after a minute"
}
await_ready
engine logs "$name" 2>&1 | grep -F 'fetched' || logs "nothing was fetched"
engine exec "$name" entrypoint.sh healthy
[[ ${engine[0]} != podman ]] || engine healthcheck run "$name" || logs "its health check fails"

say "a proof over the socket"
engine exec "$name" cuzk submit /input/manifest.json --wait --out /tmp/proof.bin || logs "no proof"
engine exec "$name" cuzk verify /input/manifest.json /tmp/proof.bin
engine exec "$name" cuzk status

say "a stop, and a second start that fetches nothing"
engine stop --time 30 "$name" >/dev/null
[[ $(engine inspect --format '{{.State.ExitCode}}' "$name") == 0 ]] || logs "a stop is no clean end"
engine start "$name" >/dev/null
await_ready
[[ $(engine logs "$name" 2>&1 | grep -c 'there already') == 2 ]] || logs "the second start did not find what the first fetched"
engine stop --time 30 "$name" >/dev/null

say "the variant with Curio"
mkdir "$work/curio"
printf '#!/bin/sh\necho "curio $*"\n' >"$work/curio/curio"
engine "${build[@]}" --file "$containerfile" --target curio --build-context "curio-binary=$work/curio" --tag cuzk-curio . \
    >"$work/build.log" 2>&1 || {
    cat "$work/build.log"
    fail "the variant cannot be built"
}
[[ $(once cuzk-curio curio run) == "curio run" ]] || fail "it has no curio"
[[ $(once cuzk-curio id -u) == 9820 ]] || fail "the variant is not the unprivileged user"

say "all of it went well"
