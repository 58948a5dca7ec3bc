#!/usr/bin/env bash
# Installs, upgrades, removes and purges the package in a fresh Debian or Ubuntu, as docs/install.md says and shows it, and puts the
# tarball in its place; looks that archives are the same every time. Needs root, debootstrap and the network, or the folder of
# an earlier run.
# Usage: packaging/test.sh [--bin DIR] [--base DIR]
#   --bin   folder with the programs [dist/bin]
#   --base  a Debian made by debootstrap; made if it is not there, and kept [made anew, and removed]
. "$(dirname "$0")/common.sh"

bin=dist/bin
base=
options bin base -- "$@"
work=$(mktemp -d)
debian=$work/debian
trap 'umount "$debian/proc" 2>/dev/null || true; rm -rf "$work"' EXIT

inside=(chroot "$debian" env -i --chdir=/srv PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
    HOME=/srv)
inside() { "${inside[@]}" "$@"; }
transcript() { packaging/transcripts.py --shell "${inside[*]} bash -c" "$@"; }
has() { [[ -e $debian$1 ]] || fail "$1 is missing"; }
lacks() { [[ ! -e $debian$1 ]] || fail "$1 is still there"; }

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
# Of this machine's release, whose C library the programs were built for.
# shellcheck source=/dev/null
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
[[ -d $base/usr ]] || debootstrap --variant=minbase "$release" "$base" >/dev/null
cp -a "$base" "$debian"
mount -t proc proc "$debian/proc" 2>/dev/null || echo "no /proc in it: not allowed here"

say "install"
cp "$deb" "$newer" "$work"/first/*.tar.gz "$work/first/SHA256SUMS" "$debian/srv/"
transcript package
for file in /usr/bin/cuzk /usr/bin/cuzk-daemon /usr/lib/systemd/system/cuzk-daemon.service /etc/cuzk/cuzk.toml \
    /usr/share/man/man1/cuzk.1.gz /usr/share/bash-completion/completions/cuzk /usr/share/doc/cuzk/install.md; do
    has "$file"
done
inside getent group cuzk
inside cuzk --version
inside cuzk-daemon --version
inside cuzk doctor || [[ $? == 1 ]] || fail "doctor ends with neither 0 nor 1"
inside cuzk params fetch --dry-run
inside bash -n /usr/share/bash-completion/completions/cuzk
[[ -z $(inside dpkg --verify cuzk) ]] || fail "files differ from the package"

say "upgrade keeps an edited configuration"
echo '# edited' >>"$debian/etc/cuzk/cuzk.toml"
inside dpkg --install "$(basename "$newer")"
grep -q '# edited' "$debian/etc/cuzk/cuzk.toml" || fail "the edit is gone"
# shellcheck disable=SC2016 # dpkg-query's own variable
[[ $(inside dpkg-query -W -f '${Version}' cuzk) == *+1 ]] || fail "the version is the old one"

say "remove keeps configuration and state, purge does not"
mkdir -p "$debian/var/lib/cuzk" "$debian/var/tmp/filecoin-proof-parameters"
inside dpkg --remove cuzk
lacks /usr/bin/cuzk
has /etc/cuzk/cuzk.toml
has /var/lib/cuzk
inside dpkg --purge cuzk
lacks /etc/cuzk
lacks /var/lib/cuzk
has /var/tmp/filecoin-proof-parameters

say "once more, as it is shown"
inside dpkg --install "$(basename "$deb")" >/dev/null
transcript removal

say "the tarball, by the commands of the document"
commands=$(sed -n '/^sha256sum --check --ignore-missing/,/^```/p' docs/install.md | grep -v '^```')
inside userdel cuzk # which a purge leaves
inside bash -euc "$commands"
for file in /usr/local/bin/cuzk-daemon /etc/systemd/system/cuzk-daemon.socket /etc/cuzk/cuzk.toml; do
    has "$file"
done
grep -q '^ExecStart=/usr/local/bin/cuzk-daemon ' "$debian/etc/systemd/system/cuzk-daemon.service" || fail "the unit starts another"
inside cuzk-daemon --config /etc/cuzk/cuzk.toml --check-config >/dev/null
say "all of it went well"
