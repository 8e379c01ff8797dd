"""Other runtimes beside gml: starts one in a process of its own and asks it for the seconds of the same tests.

Arrives: the name of a peer and what to open; leaves: seconds. The peer sleeps while gml runs and the other way round.
Next module: `peer_worker.py`, which is what runs there.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from gml.errors import Error, UsageError
from gml.models import peer_worker
from gml.records import dataclass


@dataclass(frozen=True)
class PeerKind:
    """Where a runtime comes from: its module and the package that brings it."""

    name: str
    module: str
    package: str


PEERS = {
    "llama.cpp": PeerKind("llama.cpp", "llama_cpp", "llama-cpp-python"),
    "ik": PeerKind("ik_llama.cpp", "ik_llama_cpp", "ik-llama-cpp-python"),
}


class PeerProcess:
    """A model opened by another runtime; use it in a `with` statement.

    python  the interpreter that has the peer's package [this one]
    repack  let the peer rearrange its weights for speed, where it can

    Raises `UsageError` for an unknown peer, `Error` when it is not installed or refuses the model.
    """

    def __init__(
        self,
        name: str,
        path: str | Path,
        *,
        threads: int,
        n_ctx: int,
        n_batch: int = 512,
        kv_type: str = "F16",
        repack: bool = True,
        python: str | None = None,
    ) -> None:
        if name not in PEERS:
            raise UsageError(f"no peer {name!r}; known: {', '.join(PEERS)}")
        if kv_type not in peer_worker.KV_TYPES:
            raise UsageError(f"a peer's cache can be {', '.join(peer_worker.KV_TYPES)}, found {kv_type!r}")
        self.kind = PEERS[name]
        self._process = self._start(python or sys.executable)
        head = self._ask(
            {
                "module": self.kind.module,
                "package": self.kind.package,
                "path": os.fspath(path),
                "threads": threads,
                "n_ctx": n_ctx,
                "n_batch": n_batch,
                "kv_type": kv_type,
                "repack": repack,
            }
        )
        self.version, self.load_s = str(head["version"]), float(head["load_s"])

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def seconds(self, kind: str, n: int, depth: int = 0) -> float:
        """How long a test takes there: `pp` evaluates n tokens at once, `tg` one by one, behind `depth` others."""
        return float(self._ask({"kind": kind, "n": n, "depth": depth})["seconds"])

    def _start(self, python: str) -> subprocess.Popen[str]:
        try:
            return subprocess.Popen(
                [python, peer_worker.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
            )
        except OSError as error:
            raise UsageError(f"cannot start {python}: {error.strerror or error}; give a Python interpreter") from None

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            answer = ""
        found: dict[str, Any] = json.loads(answer) if answer else {"error": "its process has ended"}
        if "error" in found:
            self.close()
            raise Error(
                f"{self.kind.name}: {found['error']}; is the package {self.kind.package} installed there "
                "(`pip install`, or --peer-python with an interpreter that has it)?"
            )
        return found
