#!/usr/bin/env bash
# Installs, upgrades, removes and purges the package in a fresh Debian, and looks that its archives are the same every time.
# Needs root, debootstrap and the network, or the folder of an earlier run.
# Usage: packaging/test.sh [--bin DIR] [--base DIR]
#   --bin   folder with the programs [dist/bin]
#   --base  a Debian made by debootstrap; made if it is not there, and kept [made anew, and removed]
set -euo pipefail
cd "$(dirname "$0")/.."

bin=dist/bin
base=
while [[ $# -gt 0 ]]; do
    case $1 in
    --bin) bin=$2 ;;
    --base) base=$2 ;;
    *)
        echo "unknown argument $1" >&2
        exit 2
        ;;
    esac
    shift 2
done
work=$(mktemp -d)
trap 'umount "$work/root/proc" 2>/dev/null || true; rm -rf "$work"' EXIT

say() { printf '== %s\n' "$*"; }
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}
inside() { chroot "$work/root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive HOME=/root "$@"; }
has() { [[ -e $work/root$1 ]] || fail "$1 is missing"; }
lacks() { [[ ! -e $work/root$1 ]] || fail "$1 is still there"; }

say "two builds of the same programs are the same"
packaging/deb/build.sh --bin "$bin" --out "$work/first" >/dev/null
sleep 1 # so that a time that slips in differs
packaging/deb/build.sh --bin "$bin" --out "$work/second" >/dev/null
diff "$work/first/SHA256SUMS" "$work/second/SHA256SUMS" || fail "they differ"
cat "$work/first/SHA256SUMS"
(cd "$work/first" && sha256sum --check --quiet SHA256SUMS)
deb=$(echo "$work"/first/*.deb)
newer=$(packaging/deb/build.sh --bin "$bin" --out "$work/newer" --version "$(dpkg-deb -f "$deb" Version)+1")

say "a fresh Debian"
if [[ -z $base ]]; then
    base=$work/base
fi
[[ -d $base/usr ]] || debootstrap --variant=minbase bookworm "$base" >/dev/null
cp -a "$base" "$work/root"
mount -t proc proc "$work/root/proc" 2>/dev/null || echo "no /proc in it: not allowed here"

say "install"
cp "$deb" "$newer" "$work/root/tmp/"
inside dpkg -i "/tmp/$(basename "$deb")"
for file in /usr/bin/cuzk /usr/bin/cuzk-daemon /usr/lib/systemd/system/cuzk-daemon.service /etc/cuzk/cuzk.toml \
    /usr/share/man/man1/cuzk.1.gz /usr/share/bash-completion/completions/cuzk /usr/share/doc/cuzk/install.md; do
    has "$file"
done
inside getent passwd cuzk
inside getent group cuzk
inside cuzk --version
inside cuzk-daemon --version
inside cuzk check-config /etc/cuzk/cuzk.toml
inside cuzk doctor || [[ $? == 1 ]] || fail "doctor ends with neither 0 nor 1"
inside cuzk params fetch --dry-run
inside bash -n /usr/share/bash-completion/completions/cuzk
[[ -z $(inside dpkg --verify cuzk) ]] || fail "files differ from the package"

say "upgrade keeps an edited configuration"
echo '# edited' >>"$work/root/etc/cuzk/cuzk.toml"
inside dpkg -i --force-confdef --force-confold "/tmp/$(basename "$newer")"
grep -q '# edited' "$work/root/etc/cuzk/cuzk.toml" || fail "the edit is gone"
# shellcheck disable=SC2016 # dpkg-query's own variable
[[ $(inside dpkg-query -W -f '${Version}' cuzk) == *+1 ]] || fail "the version is the old one"

say "remove keeps configuration and state, purge does not"
mkdir -p "$work/root/var/lib/cuzk" "$work/root/var/tmp/filecoin-proof-parameters"
inside dpkg -r cuzk
lacks /usr/bin/cuzk
has /etc/cuzk/cuzk.toml
has /var/lib/cuzk
inside dpkg -P cuzk
lacks /etc/cuzk
lacks /var/lib/cuzk
has /var/tmp/filecoin-proof-parameters
say "all of it went well"
