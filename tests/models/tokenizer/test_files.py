"""Files of every kind are opened, and what is written gives the same ids when it is read again."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

tokenizers = pytest.importorskip("tokenizers")

from gml.errors import TokenizerError, UnsupportedError  # noqa: E402
from gml.models.gguf import write_gguf  # noqa: E402
from gml.models.tokenizer import Tokenizer  # noqa: E402
from gml.models.tokenizer.files import load, load_vocab_and_merges, save_json  # noqa: E402
from gml.models.tokenizer.pipeline import Pipeline  # noqa: E402
from gml.models.tokenizer.pipeline_pretokenizers import pretokenizer  # noqa: E402
from gml.models.tokenizer.pretokenizers import TABLE  # noqa: E402
from gml.models.tokenizer.sentencepiece import SentencePieceFile, from_file  # noqa: E402
from gml.models.tokenizer.to_gguf import PROBE, to_gguf  # noqa: E402
from gml.models.tokenizer.to_json import _splits, oniguruma, to_json  # noqa: E402


@cache
def neighbour(name: str) -> ModuleType:
    """Another test module of this folder, for the vocabularies that it makes."""
    spec = importlib.util.spec_from_file_location(f"{__name__}_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TRUTH = neighbour("test_llama_cpp").TRUTH
small_metadata = neighbour("test_llama_cpp").small_metadata
BYTE_LEVEL = [row for row in TABLE if row.byte_level]
SAVED = ["gpt2/gemma4", "gpt2/sarvam-moe", "whitespace/whitespace", "t5", "t5/merged", "t5/prefixed", "bert", "llama"]


def same_ids(first, second, texts=TRUTH["texts"]) -> None:
    for text in texts:
        ids = first.encode(text, add_special=True, parse_special=True).tolist()
        assert second.encode(text, add_special=True, parse_special=True).tolist() == ids, text


@pytest.mark.parametrize("row", BYTE_LEVEL, ids=lambda row: row.name)
def test_expressions_mean_the_same_to_tokenizers(row):
    pre = tokenizers.pre_tokenizers
    steps = [pre.Split(tokenizers.Regex(oniguruma(expression)), "isolated") for expression in row.expressions]
    ours = pretokenizer({"type": "Sequence", "pretokenizers": _splits(row.expressions)})
    for text in [*TRUTH["texts"], PROBE, "a \u2003\u3000b\x85\n", "한 국 “, ”", "123456789012 １２３４"]:
        assert [piece for piece, _ in pre.Sequence(steps).pre_tokenize_str(text)] == row.split(text)
        # Package regex knows a letter of Unicode 17.
        assert "\U0001264c" in text or ours(text, True) == row.split(text)


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm", "starcoder"])
def test_gguf_to_json(name, load_metadata, vectors):
    tokenizer = Tokenizer.from_metadata(load_metadata(name))
    text = json.dumps(to_json(tokenizer))
    other, ours = tokenizers.Tokenizer.from_str(text), Pipeline.from_json(text)
    lines = (vectors / "tokenizer" / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
    texts = {row["text"] for row in map(json.loads, filter(None, lines)) if row["text"] is not None}
    same_ids(tokenizer, ours, texts)
    for one in texts:
        ids = ours.encode(one, add_special=True, parse_special=True).tolist()
        assert other.encode(one).ids == ids
        assert ours.decode(ids, skip_special=True) == other.decode(ids)


@pytest.mark.parametrize("name", SAVED)
def test_gguf_to_gguf(name, tmp_path):
    tokenizer = Tokenizer.from_metadata(small_metadata(name))
    path = tmp_path / "vocab.gguf"
    write_gguf(path, {"general.architecture": "llama", **to_gguf(tokenizer)}, [])
    again = load(path)
    assert isinstance(again, Tokenizer)
    same_ids(tokenizer, again)
    ids = tokenizer.encode(TRUTH["texts"][0], add_special=True)
    assert again.decode(ids, clean=True) == tokenizer.decode(ids, clean=True)


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe"])
def test_json_to_gguf(name, load_metadata):
    tokenizer = Tokenizer.from_metadata(load_metadata(name))
    metadata = to_gguf(Pipeline(to_json(tokenizer)))
    assert metadata["tokenizer.ggml.pre"] == name
    same_ids(tokenizer, Tokenizer.from_metadata(metadata))


@pytest.mark.parametrize("row", BYTE_LEVEL, ids=lambda row: row.name)
def test_the_probe_tells_all_rows_apart(row):
    words = row.split(PROBE)
    same = [other for other in BYTE_LEVEL if other.split(PROBE) == words]
    assert all(other.split(text) == row.split(text) for other in same for text in TRUTH["texts"])


def _trained():
    pipelines = neighbour("test_pipeline")
    return pipelines.byte_level(), pipelines.llama3()


def test_trained_pipelines_become_gguf():
    with_flags, llama3 = _trained()
    pipeline = Pipeline.from_json(llama3.to_str())
    metadata = to_gguf(pipeline)
    assert metadata["tokenizer.ggml.pre"] == "llama-bpe" and metadata["tokenizer.ggml.add_bos_token"]
    same_ids(pipeline, Tokenizer.from_metadata(metadata))
    with pytest.raises(UnsupportedError, match="single_word, lstrip or rstrip"):
        to_gguf(Pipeline.from_json(with_flags.to_str()))


def test_sentencepiece_to_gguf():
    train = neighbour("test_sentencepiece").train
    for name in ("bpe-bytes", "unigram"):
        file = SentencePieceFile.read(train(name))
        again = Tokenizer.from_metadata(to_gguf(file))
        same_ids(
            from_file(file),
            again,
            ["the quick brown fox", "lazy word-word, 12345", "dolor  sit\u3000amet"][: 1 + 2 * (name != "bpe-bytes")],
        )


def test_json_round_trip(tmp_path):
    for other in _trained():
        pipeline = Pipeline.from_json(other.to_str())
        path = tmp_path / "tokenizer.json"
        save_json(pipeline, path)
        again = load(tmp_path)
        assert isinstance(again, Pipeline)
        same_ids(pipeline, again)
        assert tokenizers.Tokenizer.from_file(str(path)).encode("Hello <s>").ids == other.encode("Hello <s>").ids


def test_vocab_and_merges(tmp_path):
    other, _ = _trained()
    other.model.save(str(tmp_path))
    reference = tokenizers.ByteLevelBPETokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"))
    ours = load(tmp_path)
    assert isinstance(ours, Pipeline)
    for text in TRUTH["texts"]:
        ids = ours.encode(text).tolist()
        assert ids == reference.encode(text).ids
        assert ours.decode(ids) == reference.decode(ids)
    same_ids(ours, load_vocab_and_merges(tmp_path / "vocab.json", tmp_path / "merges.txt"))


def test_what_is_no_tokenizer(tmp_path):
    with pytest.raises(TokenizerError, match="expected one of tokenizer"):
        load(tmp_path)
    with pytest.raises(TokenizerError, match="No such file"):
        load(tmp_path / "nonesuch")
    (tmp_path / "vocab.json").write_text("[")
    (tmp_path / "merges.txt").write_text("a b\n")
    with pytest.raises(TokenizerError, match="expected JSON and lines"):
        load(tmp_path)
