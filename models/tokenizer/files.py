"""Tokenizers from files of any kind, and back.

Arrives: a path. Leaves: a `Tokenizer` (GGUF, SentencePiece) or a `Pipeline` (tokenizer.json, vocab.json with
merges.txt). Folders, as models are published in, are searched for the first of tokenizer.json, tokenizer.model and
vocab.json. Next module: `tokenizer.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gml.errors import TokenizerError
from gml.models.tokenizer.pipeline import Pipeline
from gml.models.tokenizer.sentencepiece import load_sentencepiece
from gml.models.tokenizer.to_json import to_json
from gml.models.tokenizer.tokenizer import Tokenizer

IN_FOLDERS = ("tokenizer.json", "tokenizer.model", "vocab.json")


def load(path: str | Path, pre: str | None = None) -> Tokenizer | Pipeline:
    """The tokenizer of a file or folder. `pre` overrides a GGUF file's pre-tokenizer.

    Raises TokenizerError for a file that is no tokenizer, UnsupportedError for one with parts that are not known.
    """
    path = Path(path)
    if path.is_dir():
        found = [path / name for name in IN_FOLDERS if (path / name).is_file()]
        if not found:
            raise TokenizerError(f"{path}: expected one of {', '.join(IN_FOLDERS)} in the folder, found none")
        path = found[0]
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise TokenizerError(f"{path}: {error.strerror or error}") from None
    if head.startswith(b"GGUF"):
        from gml.models.gguf import GGUFFile

        with GGUFFile.open(path) as gguf:
            return Tokenizer.from_metadata(gguf.metadata, pre=pre)
    if path.suffix == ".json" or head.lstrip().startswith(b"{"):
        merges = path.with_name("merges.txt")
        if path.name == "vocab.json" and merges.is_file():
            return load_vocab_and_merges(path, merges)
        return Pipeline.from_file(path)
    return load_sentencepiece(path)


def load_vocab_and_merges(vocab: str | Path, merges: str | Path) -> Pipeline:
    """GPT-2's two files: an object of spellings to ids, lines of two spellings each. Pieces are cut as GPT-2 does."""
    return Pipeline(_two_files(Path(vocab), Path(merges)))


def _two_files(vocab: Path, merges: Path) -> dict[str, Any]:
    try:
        ids = json.loads(vocab.read_text(encoding="utf-8"))
        lines = merges.read_text(encoding="utf-8").split("\n")
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{vocab} and {merges.name}: expected JSON and lines in UTF-8: {error}") from None
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    pairs = [line.rstrip("\r").split(" ") for line in lines if line.strip() and not line.startswith("#version")]
    model = {"type": "BPE", "vocab": ids, "merges": pairs}
    return {"version": "1.0", "pre_tokenizer": level, "decoder": level, "model": model}


def save_json(tokenizer: Tokenizer | Pipeline, path: str | Path) -> None:
    """Writes a tokenizer.json that has the same ids; see `to_json.py` for the few texts that differ."""
    text = tokenizer.to_json() if isinstance(tokenizer, Pipeline) else json.dumps(to_json(tokenizer), indent=2)
    Path(path).write_text(text, encoding="utf-8")
