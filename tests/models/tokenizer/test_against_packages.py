"""Ids equal those of the `tokenizers` package on real text, where its pipeline is the original of llama.cpp's."""

from __future__ import annotations

import json

import pytest

tokenizers = pytest.importorskip("tokenizers")

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def _pretokenizer(name):
    pre = tokenizers.pre_tokenizers
    if name in ("llama-bpe", "qwen2"):
        pattern = tokenizers.Regex(LLAMA3 if name == "llama-bpe" else QWEN2)
        return pre.Sequence([pre.Split(pattern, "isolated"), pre.ByteLevel(add_prefix_space=False, use_regex=False)])
    if name == "starcoder":
        return pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])
    return pre.ByteLevel(add_prefix_space=False)


@pytest.mark.parametrize("name", ["gpt-2", "starcoder", "llama-bpe", "qwen2"])
def test_ids_on_the_corpora(name, load, load_metadata, vectors):
    metadata = load_metadata(name)
    ids = {token: n for n, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = [tuple(line.split(" ")) for line in metadata["tokenizer.ggml.merges"]]
    other = tokenizers.Tokenizer(tokenizers.models.BPE(ids, merges, ignore_merges=name == "llama-bpe"))
    other.pre_tokenizer = _pretokenizer(name)
    tokenizer = load(name)
    for corpus in ("prose", "code", "multi"):
        with (vectors / "text" / f"corpus-{corpus}.jsonl").open(encoding="utf-8") as lines:
            documents = [json.loads(line) for _, line in zip(range(150), lines, strict=False)]
        assert len(documents) > 50
        for document, encoding in zip(documents, other.encode_batch(documents), strict=True):
            assert tokenizer.encode(document).tolist() == encoding.ids, (corpus, document[:60])
