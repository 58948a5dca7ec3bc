#!/usr/bin/env bash
# Makes the Debian package, and a tarball with its checksum, of programs that are built. The same programs give the same
# bytes.
# Usage: packaging/deb/build.sh [--bin DIR] [--out DIR] [--version VERSION]
#   --bin      folder with cuzk, cuzk-daemon and cuzk-bench [dist/bin, which packaging/build.sh makes]
#   --out      where cuzk_VERSION_ARCH.deb, cuzk-VERSION-ARCH-linux.tar.gz and SHA256SUMS are put [dist]
#   --version  [that of Cargo.toml]
. "$(dirname "$0")/../common.sh"
umask 022
export LC_ALL=C

bin=dist/bin
out=dist
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
options bin out version -- "$@"
arch=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
doc=$root/usr/share/doc/cuzk

put() { install -D -m "$1" "$2" "$3"; }

programs() {
    for program in cuzk cuzk-daemon cuzk-bench; do
        put 0755 "$bin/$program" "$root/usr/bin/$program"
    done
}

system_files() {
    for unit in packaging/systemd/*.service packaging/systemd/*.socket; do
        put 0644 "$unit" "$root/usr/lib/systemd/system/$(basename "$unit")"
    done
    put 0644 packaging/deb/cuzk.sysusers "$root/usr/lib/sysusers.d/cuzk.conf"
    put 0644 config.example.toml "$root/etc/cuzk/cuzk.toml"
}

documents() {
    for file in README.md config.example.toml docs/*.md; do
        put 0644 "$file" "$doc/$(basename "$file")"
    done
    put 0644 packaging/deb/copyright "$doc/copyright"
    gzip -9n <CHANGELOG.md >"$doc/changelog.gz"
    "$bin/cuzk" man --out "$root/usr/share/man/man1" >/dev/null
    gzip -9n "$root"/usr/share/man/man1/*.1
    mkdir -p "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" \
        "$root/usr/share/fish/vendor_completions.d"
    "$bin/cuzk" completions bash >"$root/usr/share/bash-completion/completions/cuzk"
    ln -s cuzk "$root/usr/share/bash-completion/completions/cuzk-daemon"
    "$bin/cuzk" completions zsh >"$root/usr/share/zsh/vendor-completions/_cuzk"
    "$bin/cuzk" completions fish >"$root/usr/share/fish/vendor_completions.d/cuzk.fish"
}

# The newest version of the C library's symbols that the programs use.
libc_version() {
    objdump -T "$root"/usr/bin/* | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n 1
}

control() {
    mkdir -p "$root/DEBIAN"
    cat >"$root/DEBIAN/control" <<END
Package: cuzk
Version: $version
Architecture: $arch
Maintainer: The CuZK developers <cuzk@localhost>
Section: net
Priority: optional
Installed-Size: $(du -k --apparent-size -s "$root/usr" | cut -f1)
Depends: libc6 (>= $(libc_version)), libgcc-s1, passwd
Recommends: procps
Suggests: prometheus
Description: Groth16 proving daemon for Filecoin
 Proves PoRep, SnapDeals, WindowPoSt and WinningPoSt on every NVIDIA GPU of a
 machine, or on its CPU. It needs NVIDIA's driver, 580 or later, for GPUs, and
 none to start. "cuzk params fetch" gets Filecoin's parameter files, and
 "cuzk doctor" says what a machine lacks.
END
    echo /etc/cuzk/cuzk.toml >"$root/DEBIAN/conffiles"
    for script in postinst prerm postrm; do
        put 0755 "packaging/deb/$script" "$root/DEBIAN/$script"
    done
    (cd "$root" && find etc usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
}

# Every file of the same age, so that archives differ only where files do.
age() { find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +; }

tarball() {
    name=cuzk-$version-$(uname -m)-linux
    mkdir -p "$work/$name"
    cp -a "$root/usr/bin" "$root/usr/share" "$work/$name/"
    cp -a "$root/usr/lib/systemd" "$work/$name/"
    put 0644 config.example.toml "$work/$name/cuzk.toml"
    cp LICENSE-APACHE LICENSE-MIT "$work/$name/"
    age "$work/$name"
    tar --create --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu \
        --mtime="@$SOURCE_DATE_EPOCH" "$name" | gzip -9n >"$out/$name.tar.gz"
}

mkdir -p "$out"
programs
system_files
documents
control
tarball
age "$root"
deb=$out/cuzk_${version}_$arch.deb
dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$root" "$deb" >/dev/null
(cd "$out" && sha256sum "cuzk_${version}_$arch.deb" "$name.tar.gz" >SHA256SUMS)
echo "$deb"
