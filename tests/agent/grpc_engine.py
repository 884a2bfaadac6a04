"""As much of an engine that speaks gRPC as a router asks for before it sends requests: `PORT vllm|sglang ROLE`.

Run with a Python that has grpcio. What it answers is spelt out, so that nothing of the engines is needed.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.struct_pb2 import Struct

SERVICES = {"vllm": "vllm.grpc.engine.VllmEngine", "sglang": "sglang.grpc.scheduler.SglangScheduler"}
NAME = 6  # the field of a model's name in both


def text(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + length(len(value)) + value


def length(size: int) -> bytes:
    return bytes([size]) if size < 128 else bytes([size & 127 | 128]) + length(size >> 7)


def answers(engine: str, role: str) -> dict[str, bytes]:
    if engine == "vllm":
        info = bytes([1 << 3, 0]) + text(5, b"vllm-grpc") + text(7, role.encode())
    else:
        said = Struct()
        more = {f"argument_{at}": "x" * 200 for at in range(60)}  # an answer that takes more than one frame
        said.update({"disaggregation_mode": role or "null", "disaggregation_bootstrap_port": 8998, "tp": 1.5, **more})
        info = text(1, said.SerializeToString())
    return {"HealthCheck": b"\x08\x01", "GetModelInfo": text(NAME, b"m"), "GetServerInfo": info}


def main(port: int, engine: str, role: str) -> None:
    def method(answer: bytes) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda *_: answer)

    handlers = {name: method(answer) for name, answer in answers(engine, role).items()}
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICES[engine], handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
