#!/usr/bin/env python3
"""A daemon under callers that come, cancel and vanish, and under two restarts: every accepted job is accounted for.

    tests/daemon/soak.py DAEMON PARAMS SECONDS [SEED]

DAEMON is the program, PARAMS a folder with the parameters of winning-2k and wpost-2k. A third of the time after the start
the daemon is killed, two thirds after it, it is asked to end; each time it is started again on the same journal.
"""

import collections
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

import grpc
from client import End, connect, pb, recorded

FOLDERS = ["winning-2k/sector-1", "winning-2k/sector-2", "winning-2k/sector-3", "window-2k/full-partition"]
CALLERS = 6


class Daemon:
    def __init__(self, program, params):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="cuzk-soak-"))
        self.socket = self.dir / "cuzk.sock"
        self.program = program
        (self.dir / "cuzk.toml").write_text(
            f'[daemon]\nlisten = "unix://{self.socket}"\nstatus_listen = ""\nstate_dir = "{self.dir}"\n'
            f'drain_limit_s = 60\n[gpus]\ndevices = "sim:2"\n[srs]\nparams_dir = "{params}"\n'
            f'cache_dir = "{self.dir}"\n[logging]\nlevel = "info"\nformat = "json"\n'
        )
        self.start()

    def start(self):
        log = open(self.dir / "log", "ab")
        self.process = subprocess.Popen([self.program, "--config", self.dir / "cuzk.toml"], stderr=log)

    def stub(self):
        return connect(f"unix://{self.socket}")

    def wait_ready(self):
        until = time.monotonic() + 120
        while time.monotonic() < until:
            try:
                if self.stub().GetStatus(pb.GetStatusRequest(), timeout=5).ready:
                    return
            except grpc.RpcError:
                pass
            if self.process.poll() is not None:
                sys.exit(f"the daemon ended with {self.process.returncode}: {(self.dir / 'log').read_text()[-4000:]}")
            time.sleep(0.1)
        sys.exit("the daemon does not become ready")

    def restart(self, how):
        self.process.send_signal(how)
        code = self.process.wait(timeout=120)
        expected = -9 if how == signal.SIGKILL else 0
        if code != expected:
            sys.exit(f"the daemon ended with {code} after {how.name}")
        self.start()
        self.wait_ready()


class Books:
    """What every caller was promised, and what came of it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.accepted = {}  # job id -> the request
        self.cancelled = set()
        self.counts = collections.Counter()

    def count(self, what):
        with self.lock:
            self.counts[what] += 1


def call_until(daemon, books, ends_at, seed):
    rng = random.Random(seed)
    number = 0
    while time.monotonic() < ends_at:
        number += 1
        submit = recorded(rng.choice(FOLDERS), f"soak-{seed}-{number}")
        submit.priority = rng.choice([0, 0, 0, 1, 2, 3])
        stub = daemon.stub()
        try:
            act(stub, rng, submit, books)
        except grpc.RpcError as error:
            # It restarts, or its queue is full: nothing was promised.
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED):
                books.count(f"ERROR {error.code().name} {error.details()}")
            time.sleep(0.2)


def act(stub, rng, submit, books):
    choice = rng.random()
    if choice < 0.3:
        result = stub.Prove(pb.ProveRequest(submit=submit), timeout=120).result
        books.count("proved" if result.status == End.COMPLETED else f"ERROR Prove {result}")
    elif choice < 0.5:
        # Goes away in the middle: nobody is owed anything.
        call = stub.Prove.future(pb.ProveRequest(submit=submit), timeout=120)
        time.sleep(rng.random())
        call.cancel()
        books.count("vanished")
    else:
        accepted = stub.SubmitProof(submit, timeout=60)
        with books.lock:
            books.accepted[accepted.job_id] = submit
        if choice > 0.85:
            with books.lock:
                books.cancelled.add(accepted.job_id)
            time.sleep(rng.random() / 2)
            stub.CancelProof(pb.CancelProofRequest(job_id=accepted.job_id), timeout=60)
            books.count("cancelled")
        elif choice > 0.7:
            waited = stub.AwaitProof(pb.AwaitProofRequest(job_id=accepted.job_id), timeout=120)
            books.count("awaited" if waited.status == End.COMPLETED else f"ERROR AwaitProof {waited}")
        else:
            time.sleep(rng.random())


def settle(daemon, books):
    """Every promise is looked up: a proof, or the caller's own cancel."""
    stub = daemon.stub()
    lost = []
    for job_id in books.accepted:
        try:
            end = stub.AwaitProof(pb.AwaitProofRequest(job_id=job_id), timeout=300)
        except grpc.RpcError as error:
            # A cancelled job is forgotten by the journal.
            if not (job_id in books.cancelled and error.code() == grpc.StatusCode.NOT_FOUND):
                lost.append((job_id, error.code().name, error.details()))
            continue
        is_cancelled = job_id in books.cancelled and end.status == End.CANCELLED
        if not (is_cancelled or (end.status == End.COMPLETED and len(end.proof) == 192)):
            lost.append((job_id, end))
    return lost


def rest(daemon):
    """Jobs of calls that a kill cut off are proved with nobody waiting: the last status, once none is left."""
    stub = daemon.stub()
    for _ in range(300):
        status = stub.GetStatus(pb.GetStatusRequest(), timeout=5)
        if not status.jobs:
            break
        time.sleep(1)
    return status


def main(program, params, seconds, seed):
    daemon = Daemon(program, params)
    daemon.wait_ready()
    books = Books()
    begun = time.monotonic()
    callers = [
        threading.Thread(target=call_until, args=(daemon, books, begun + seconds, seed * 1000 + index))
        for index in range(CALLERS)
    ]
    for caller in callers:
        caller.start()
    for third, how in ((1, signal.SIGKILL), (2, signal.SIGTERM)):
        time.sleep(max(0, begun + third * seconds / 3 - time.monotonic()))
        daemon.restart(how)
        print(f"restarted after {how.name} at {time.monotonic() - begun:.0f} s", flush=True)
    for caller in callers:
        caller.join()
    lost = settle(daemon, books)
    status = rest(daemon)
    daemon.process.send_signal(signal.SIGTERM)
    code = daemon.process.wait(timeout=120)
    errors = [what for what in books.counts if what.startswith("ERROR")]
    print(f"seed {seed}, {seconds} s: {dict(books.counts)}, {len(books.accepted)} jobs accepted, {len(lost)} lost")
    print(f"the last daemon: {status.total_proofs_completed} completed, {status.total_proofs_failed} failed, exit {code}")
    if lost or errors or code != 0 or status.jobs or not books.accepted:
        sys.exit(f"FAILED: lost {lost[:5]}, errors {errors[:5]}, {status.jobs} jobs left; log in {daemon.dir}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 1)
