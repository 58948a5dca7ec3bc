#!/usr/bin/env python3
"""The contract, spoken by another implementation: Python's grpcio, from the same .proto file.

    tests/daemon/client.py ADDRESS            every shape of real callers against a running daemon
    from client import Caller, recorded       for soak.py

ADDRESS is `unix:///path` or `host:port`. It needs the packages grpcio and grpcio-tools.
"""

import base64
import importlib
import json
import pathlib
import sys
import tempfile

import grpc
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data/filecoin"
PROTO = ROOT / "crates/wire/proto"
MESSAGE_BYTES_MAX = 256 << 20


def compile_contract():
    out = tempfile.mkdtemp(prefix="cuzk-contract-")
    contract = "cuzk/v1/proving_engine.proto"
    code = protoc.main(["protoc", f"-I{PROTO}", f"--python_out={out}", f"--grpc_python_out={out}", contract])
    if code != 0:
        sys.exit(f"the contract does not compile: {code}")
    sys.path.insert(0, out)
    return (
        importlib.import_module("cuzk.v1.proving_engine_pb2"),
        importlib.import_module("cuzk.v1.proving_engine_pb2_grpc"),
    )


pb, rpc = compile_contract()
End = pb.AwaitProofResponse
KINDS = {
    "porep-c2": pb.POREP_SEAL_COMMIT,
    "snap-update": pb.SNAP_DEALS_UPDATE,
    "window-post": pb.WINDOW_POST_PARTITION,
    "winning-post": pb.WINNING_POST,
}


def connect(address):
    # Over a socket file, C-core would send the file's path here, which HTTP/2 servers in Rust refuse as no authority.
    options = [
        ("grpc.default_authority", "localhost"),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ]
    return rpc.ProvingEngineStub(grpc.insecure_channel(address, options=options))


def recorded(folder, request_id, index=0):
    """A recorded job as its caller sends it."""
    folder = DATA / folder
    manifest = json.loads((folder / "manifest.json").read_text())
    request = manifest["requests"][index]
    inputs = [(folder / name).read_bytes() for name in request["vanilla"]]
    submit = pb.SubmitProofRequest(
        request_id=request_id,
        proof_kind=KINDS[manifest["kind"]],
        registered_proof=manifest["registered_proof"]["number"],
        miner_id=manifest["miner_id"],
        partition_index=request.get("partition_index", 0),
    )
    if manifest["kind"] == "porep-c2":
        submit.vanilla_proof = inputs[0]
        submit.sector_number = manifest["sector_number"]
    else:
        submit.vanilla_proofs.extend(inputs)
    if manifest["kind"] == "snap-update":
        for field in ("comm_r_old", "comm_r_new", "comm_d_new"):
            setattr(submit, field, bytes.fromhex(manifest[field]))
    if "post" in manifest["kind"]:
        submit.randomness = bytes.fromhex(manifest["randomness"])
    return submit


def prove(stub, submit, timeout=300):
    return stub.Prove(pb.ProveRequest(submit=submit), timeout=timeout).result


def check(what, condition, shown=""):
    if not condition:
        sys.exit(f"FAILED: {what}: {shown}")
    print(f"ok: {what}")


def was_read(result, circuit):
    """Proved; or all that is missing is the parameter file, which takes a gigabyte."""
    return result.status == End.COMPLETED or f"not found for circuit {circuit}" in result.error_message


def main(address):
    stub = connect(address)
    status = stub.GetStatus(pb.GetStatusRequest(), timeout=5)
    kinds = {queue.proof_kind for queue in status.queues}
    check("status has the four kinds", kinds == set(KINDS), kinds)

    porep = recorded("porep-2k/sector-1", "porep-6413-801282")
    check("PoRep, wrapped", was_read(result := prove(stub, porep), "porep-2k"), result)
    bare = pb.SubmitProofRequest()
    bare.CopyFrom(porep)
    wrapper = json.loads(porep.vanilla_proof)
    c1 = json.loads(base64.b64decode(wrapper["Phase1Out"]))
    # Another language writes the same with its keys in another order.
    bare.vanilla_proof = json.dumps(dict(sorted(c1.items(), reverse=True)), separators=(",", ":")).encode()
    check("PoRep, bare, as another language writes it", was_read(result := prove(stub, bare), "porep-2k"), result)
    snap = recorded("snap-2k/sector-1", "snap-5951-999634")
    check("SnapDeals", was_read(result := prove(stub, snap), "snap-2k"), result)

    name = "wdpost-1000-0-[101 2 3 4 5 6 7 8]"
    calls = [
        stub.Prove.future(pb.ProveRequest(submit=recorded(folder, name)), timeout=300)
        for folder in ("window-2k/two-partitions", "window-2k/full-partition")
    ]
    first, second = (call.result().result for call in calls)
    both = first.status == second.status == End.COMPLETED and first.proof != second.proof
    check("two WindowPoSt under one name", both and first.job_id != second.job_id, (first, second))
    winning = prove(stub, recorded("winning-2k/sector-1", ""))
    check("WinningPoSt without a name", winning.status == End.COMPLETED and len(winning.proof) == 192, winning)
    submitted = stub.SubmitProof(recorded("winning-2k/sector-1", "again"), timeout=60)
    waited = stub.AwaitProof(pb.AwaitProofRequest(job_id=submitted.job_id), timeout=300)
    check("SubmitProof and AwaitProof", waited.status == End.COMPLETED, waited)

    for what, call, code in [
        ("no submit", lambda: stub.Prove(pb.ProveRequest(), timeout=60), grpc.StatusCode.INVALID_ARGUMENT),
        (
            "an unknown job",
            lambda: stub.AwaitProof(pb.AwaitProofRequest(job_id="never"), timeout=60),
            grpc.StatusCode.NOT_FOUND,
        ),
    ]:
        try:
            answer = call()
            check(what, False, answer)
        except grpc.RpcError as error:
            check(what, error.code() == code, error)
    wrong = recorded("winning-2k/sector-1", "wrong")
    wrong.randomness = b"\1" * 5
    result = prove(stub, wrong)
    check("a wrong field is named", result.status == End.FAILED and "randomness" in result.error_message, result)


if __name__ == "__main__":
    main(sys.argv[1])
