#!/usr/bin/env bash
# Entry point of the container.
#
#   daemon [ARG…]   fetch parameters if asked to, then the daemon (the default)
#   shell           a shell
#   healthy, ready  ask the daemon of this container; for health checks and probes
#   COMMAND…        anything else, as it is; a flag alone is the daemon's
#
# CUZK_FETCH          kinds whose parameters are fetched first, such as porep,snap. Not set: nothing is fetched
# CUZK_SECTOR_SIZE    of which sectors [32GiB]
# CUZK_GATEWAY        from where, see `cuzk params fetch --help`
# CUZK_MANIFEST       another network's list of files
# CUZK_STATUS_ADDRESS where `healthy` and `ready` ask [127.0.0.1:9821]
# CUZK_DAEMON_TOKEN_FILE  the daemon's tokens, of which `ready` shows the first: it is told nothing without
set -euo pipefail

# One question to the daemon's status address; its answer's code decides. Nothing but the shell is needed.
ask() {
    local address=${CUZK_STATUS_ADDRESS:-127.0.0.1:9821} line token=
    if [[ -r ${CUZK_DAEMON_TOKEN_FILE:-} ]]; then
        while [[ -z $token ]] && { read -r line || [[ -n $line ]]; }; do
            [[ $line == \#* ]] || token=$line
        done <"$CUZK_DAEMON_TOKEN_FILE"
    fi
    exec 3<>"/dev/tcp/${address%:*}/${address##*:}" || return 1
    printf 'GET %s HTTP/1.0\r\nHost: %s\r\n%s\r\n' "$1" "$address" "${token:+Authorization: Bearer $token$'\r\n'}" >&3
    IFS= read -r -t 5 line <&3 || return 1
    echo "${line%$'\r'}"
    [[ $line == HTTP/1.?\ 200* ]]
}

# The fetch is a child, so that a signal reaches it at once; what has come is kept, and the next start goes on with it.
fetch() {
    local arguments=(params fetch --kind "$CUZK_FETCH") child code=0
    [[ -z ${CUZK_SECTOR_SIZE:-} ]] || arguments+=(--sector-size "$CUZK_SECTOR_SIZE")
    [[ -z ${CUZK_MANIFEST:-} ]] || arguments+=(--manifest "$CUZK_MANIFEST")
    cuzk "${arguments[@]}" &
    child=$!
    trap 'kill -TERM "$child" 2>/dev/null || true' TERM INT
    # A trapped signal ends `wait` early: the child's own end is what counts.
    while kill -0 "$child" 2>/dev/null; do
        wait "$child" && code=0 || code=$?
    done
    trap - TERM INT
    return "$code"
}

case ${1:-daemon} in
daemon) shift || true ;;
-*) ;;
shell)
    shift
    exec bash "$@"
    ;;
healthy)
    ask /healthz
    exit
    ;;
ready)
    ask /readyz
    exit
    ;;
*) exec "$@" ;;
esac

if [[ -n ${CUZK_FETCH:-} ]]; then
    fetch || exit
fi
exec cuzk-daemon "$@"
