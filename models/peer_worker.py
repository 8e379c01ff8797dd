"""Runs llama.cpp or ik_llama.cpp for `gml bench --vs`: a script of its own, in a process of its own.

Arrives on standard input, a JSON object per line: first what to open, then one test after another. Leaves on standard
output: a line of JSON for each. It imports nothing of gml, so that any interpreter that has the peer can run it.
Next module: `peers.py`, which starts it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.metadata
import json
import sys
import time
from typing import Any

#: ggml's numbers of the cache types
KV_TYPES = {"F32": 0, "F16": 1, "Q8_0": 8}


def test_ids(n: int, n_vocab: int) -> list[int]:
    """The tokens of a test: arbitrary, and the same for every runtime."""
    return [(i * 7919 + 1000) % n_vocab for i in range(n)]


class Peer:
    """A model in one of the runtimes, through their common C interface."""

    def __init__(self, request: dict[str, Any]) -> None:
        module = request["module"]
        self.api: Any = importlib.import_module(module + ("._ctypes_api" if module == "ik_llama_cpp" else ".llama_cpp"))
        api, started = self.api, time.perf_counter()
        self._silence()
        api.llama_backend_init()
        params = api.llama_model_default_params()
        params.n_gpu_layers = 0
        if request["repack"] and hasattr(params, "repack_tensors"):
            # the packed layout of this runtime needs the weights in memory of their own
            params.repack_tensors, params.use_mmap = True, False
        if not request["repack"] and hasattr(params, "use_extra_bufts"):
            params.use_extra_bufts = False
        self.model = api.llama_model_load_from_file(request["path"].encode(), params)
        if not self.model:
            raise RuntimeError(f"{module} cannot open {request['path']}")
        context = api.llama_context_default_params()
        context.n_ctx, context.n_batch, context.n_ubatch = request["n_ctx"], request["n_batch"], request["n_batch"]
        context.n_threads = context.n_threads_batch = request["threads"]
        context.type_k = context.type_v = KV_TYPES[request["kv_type"]]
        if hasattr(context, "flash_attn"):
            context.flash_attn = True
        if hasattr(context, "flash_attn_type"):
            context.flash_attn_type = 1
        self.context = api.llama_init_from_model(self.model, context)
        if not self.context:
            raise RuntimeError(f"{module} cannot make a context of {request['n_ctx']} tokens")
        self.n_vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.n_batch = request["n_batch"]
        self.batch = api.llama_batch_init(self.n_batch, 0, 1)
        self.load_s = time.perf_counter() - started

    def _silence(self) -> None:
        """Its log goes nowhere; kept, since C holds on to it."""
        with contextlib.suppress(AttributeError):
            self._log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
            self.api.llama_log_set(self._log, None)

    def clear(self) -> None:
        """Forget all tokens."""
        if hasattr(self.api, "llama_get_memory"):
            self.api.llama_memory_clear(self.api.llama_get_memory(self.context), False)
        else:
            self.api.llama_kv_cache_clear(self.context)

    def decode(self, ids: list[int], start: int) -> None:
        """Evaluate tokens from a position; the logits of the last one."""
        for at in range(0, len(ids), self.n_batch):
            piece, batch = ids[at : at + self.n_batch], self.batch
            batch.n_tokens = len(piece)
            for i, token in enumerate(piece):
                batch.token[i] = token
                batch.pos[i] = start + at + i
                batch.n_seq_id[i] = 1
                batch.seq_id[i][0] = 0
                batch.logits[i] = at + i == len(ids) - 1
            if self.api.llama_decode(self.context, batch) != 0:
                raise RuntimeError("llama_decode failed")
        self.api.llama_get_logits_ith(self.context, len(piece) - 1)

    def run(self, kind: str, n: int, depth: int) -> float:
        """Seconds of one test."""
        ids = test_ids(depth + n, self.n_vocab)
        self.clear()
        if depth:
            self.decode(ids[:depth], 0)
        started = time.perf_counter()
        if kind == "pp":
            self.decode(ids[depth:], depth)
        else:
            for i, token in enumerate(ids[depth:]):
                self.decode([token], depth + i)
        return time.perf_counter() - started


def main() -> None:
    """Answer requests until standard input ends."""
    out = sys.stdout
    sys.stdout = sys.stderr  # what the peer prints itself
    try:
        request = json.loads(sys.stdin.readline())
        peer = Peer(request)
        version = importlib.metadata.version(request["package"])
        print(json.dumps({"version": version, "load_s": peer.load_s}), file=out, flush=True)
        for line in sys.stdin:
            test = json.loads(line)
            seconds = peer.run(test["kind"], test["n"], test["depth"])
            print(json.dumps({"seconds": seconds}), file=out, flush=True)
    except (RuntimeError, ImportError, AttributeError) as error:
        print(json.dumps({"error": str(error)}), file=out, flush=True)


if __name__ == "__main__":
    main()
