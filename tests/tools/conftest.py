"""A model small enough to run everything in moments, and ways to run the command line."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from gguf import GGUFWriter

from gml.models.tokenizer.text import BYTE_ALPHABET
from gml.tools.cli import main

CONTROL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tiny_model(path: Path, template: bool = True) -> Path:
    """A llama of one layer with random weights over a vocabulary of bytes."""
    n_embd, n_ff, n_head, n_ctx = 32, 64, 2, 256
    tokens = [*BYTE_ALPHABET, *CONTROL, "ab"]
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(n_embd)
    writer.add_block_count(1)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(n_head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 256 + [3] * len(CONTROL) + [1])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_add_bos_token(True)
    if template:
        writer.add_chat_template(TEMPLATE)
    shapes = {"token_embd": (len(tokens), n_embd), "output_norm": (n_embd,)}
    layer = {"attn_norm": (n_embd,), "ffn_norm": (n_embd,), "ffn_down": (n_embd, n_ff)}
    layer |= dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (n_embd, n_embd))
    layer |= dict.fromkeys(("ffn_gate", "ffn_up"), (n_ff, n_embd))
    shapes |= {f"blk.0.{name}": shape for name, shape in layer.items()}
    rng = np.random.default_rng(7)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of the small model."""
    return str(write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf"))


@pytest.fixture(scope="session")
def untemplated(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of the small model without a chat template."""
    return str(write_tiny_model(tmp_path_factory.mktemp("models") / "untemplated.gguf", template=False))


class Done(NamedTuple):
    """What a command gave."""

    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of an error; asserts that it is one line and all there is."""
        assert self.out == ""
        assert self.err.startswith("gml: error: ") and self.err.count("\n") == 1, self.err
        return self.err.removeprefix("gml: error: ").strip()


@pytest.fixture
def gml(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Run a command line in this process: `gml("run", path, "hi", stdin=b"...")`."""

    def run(*args: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capsys.readouterr()
        status = main(list(args))
        return Done(status, *capsys.readouterr())

    return run


def start(*args: str, **options: object) -> subprocess.Popen[bytes]:
    """Start a command line as a process of its own."""
    # UTF-8 whatever the machine's locale, and interruptible even where the test run itself is not
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", **options.pop("env", {})}  # type: ignore[dict-item]
    if os.name == "posix":
        options["preexec_fn"] = _interruptible
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "gml.tools.cli", *args]
    return subprocess.Popen(command, **{**pipes, **options}, env=environment)  # type: ignore[call-overload]


def _interruptible() -> None:
    import signal

    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(name="start")
def start_fixture() -> Callable[..., subprocess.Popen[bytes]]:
    """`start`, for tests."""
    return start
