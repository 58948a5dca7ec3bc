#!/usr/bin/env python3
"""Runs the commands of transcripts in the documents, and looks whether they still print what stands there.

Usage: packaging/transcripts.py [--write] [--bin DIR] [--home DIR] [--shell COMMAND] [NAME...]

A transcript is a block of lines, "$ COMMAND" and what it prints, below a line that names it:

    <!-- transcript NAME -->

What differs from one machine and run to the next (free room, times) is not compared; `VARYING` has all of it.

A command that fails, or a part of a pipeline that does, makes its transcript wrong, whatever it prints. One that is meant to
fail says so where it stands: `COMMAND || echo "exit code $?"`.

  --document to look into, instead of the README and docs/; may be given more than once
  --write    puts what the commands print into the documents, instead of comparing
  --bin      folder with `cuzk` [target/release]; each transcript has a home and folders of its own, and `cuzk doctor` looks
             at a made-up machine
  --home     an empty folder in the place of that home, which is kept
  --shell    runs commands by this instead, as they are, such as "chroot ROOT bash -c"
  NAME       of the transcripts [those that --bin is enough for]
"""

import argparse
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BY_PROGRAMS_ALONE = ["parameters", "doctor", "fetch"]
BLOCK = re.compile(r"(<!-- transcript (\S+) -->\n```console\n)(.*?)(```\n)", re.S)
VARYING = [
    (re.compile(r"[0-9.]+ [KMGT]iB free"), "ROOM free"),
    (re.compile(r"\b[0-9.]+ (ms|s|min)\b( [0-9.]+ s\b)?"), "TIME"),
    (re.compile(r"\(Reading database \.\.\. .*\)"), "(Reading database ...)"),
    (re.compile(r":x:\d+:\d+:"), ":x:ID:ID:"),
]
# Where documents say things are; here they are in a folder of the run's own.
PARAMS, HOME, MIRROR = "/var/tmp/filecoin-proof-parameters/", "/home/operator", "/mnt/share"
MACHINE = {
    "proc/cpuinfo": "processor : 0\nmodel name : AMD EPYC\nflags : fpu adx bmi2 avx2 sha_ni\n\n" * 16,
    "proc/meminfo": "MemTotal: 268435456 kB\nHugePages_Total: 0\nHugepagesize: 2048 kB\n",
    "proc/self/limits": "Max open files  1024  524288  files\nMax locked memory  8388608  8388608  bytes\n",
    "proc/net/tcp": "  sl  local_address\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/devices/system/node/node0/cpulist": "0-15\n",
    "run/systemd/timesync/synchronized": "",
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--document", type=Path, action="append")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--bin", type=Path, default=ROOT / "target/release")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--shell")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    names = options.names or BY_PROGRAMS_ALONE
    changed = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            shell = Given(options.shell) if options.shell else Own(Path(folder), options.bin.resolve(), options.home)
            if not transcript(name, shell, options.document or DOCUMENTS, options.write):
                changed.append(name)
    if changed:
        sys.exit(f"transcripts that are no longer right: {', '.join(changed)}; --write puts in what is printed now")
    print(f"transcripts: {', '.join(names)} {'written' if options.write else 'are as printed'}")


class Given:
    """A shell that somebody else prepared."""

    def __init__(self, command):
        self.command = shlex.split(command)

    def run(self, line):
        done = subprocess.run([*self.command, together(line)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        return done.stdout, done.returncode


class Own:
    """A folder in the place of home, parameters and mirror, in which no configuration but the default counts."""

    def __init__(self, folder, programs, home):
        self.folder, self.home, self.programs = folder, home or folder / "home", programs
        self.places = {f"{folder / 'params'}/": PARAMS, str(self.home): HOME, str(folder / "share"): MIRROR}
        self.environment = {
            "PATH": f"{folder / 'bin'}:{programs}:/usr/bin:/bin",
            "HOME": str(self.home),
            "FIL_PROOFS_PARAMETER_CACHE": f"{folder / 'params'}/",
        }
        for path, text in MACHINE.items():
            file = folder / "machine" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        self.home.mkdir(exist_ok=True)
        (folder / "bin").mkdir()
        # The only command that looks at the machine looks at the made-up one.
        script = f"""#!/bin/sh
[ "$1" != doctor ] || set -- "$@" --root "{folder / 'machine'}"
exec "{programs / 'cuzk'}" "$@"
"""
        (folder / "bin/cuzk").write_text(script)
        (folder / "bin/cuzk").chmod(0o755)

    def make_mirror(self):
        """A folder as somebody may share it."""
        script = '. packaging/common.sh; example_mirror "$1" "$2"'
        subprocess.run(
            ["bash", "-c", script, "bash", self.programs / "cuzk", self.folder / "share"],
            cwd=ROOT, env=self.environment, check=True,
        )

    def run(self, line):
        if MIRROR in line and not (self.folder / "share").exists():
            self.make_mirror()
        for there, documented in self.places.items():
            line = line.replace(documented, there)
        done = subprocess.run(
            ["bash", "-c", together(line)], cwd=self.home, env=self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )
        printed = done.stdout
        for there, documented in self.places.items():
            printed = printed.replace(there, documented)
        return printed, done.returncode


def transcript(name, shell, documents, write):
    """Whether the transcript is right, after it was written if that is wanted. Where a command fails it is not written."""
    document, written = next(
        ((document, block[3]) for document in documents for block in BLOCK.finditer(document.read_text()) if block[2] == name),
        (None, None),
    )
    if document is None:
        sys.exit(f"no document has a transcript {name}")
    printed, failed = "", False
    for line in commands(written):
        output, code = shell.run(line)
        printed += f"$ {line}\n{output}"
        if code != 0:
            print(f"{document.name}: {name}: exit code {code} of: {line}\n{output}", end="")
            failed = True
    if failed:
        return False
    if write:
        put = lambda block: block[1] + printed + block[4] if block[2] == name else block[0]
        document.write_text(BLOCK.sub(put, document.read_text()))
        return True
    if same(written) == same(printed):
        return True
    lines = difflib.unified_diff(same(written), same(printed), f"{document.name}: {name}", "printed now", lineterm="")
    print("\n".join(lines))
    return False


def together(line):
    """Both outputs as one, but for what the command sends elsewhere itself. A pipeline fails where any part of it does."""
    return f"set -o pipefail; {{ {line}\n}} 2>&1"


def commands(block):
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def same(text):
    """Lines without what varies, and without the space that lines it up."""
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return [re.sub(r"  +", "  ", line.rstrip()) for line in text.splitlines()]


if __name__ == "__main__":
    main()
