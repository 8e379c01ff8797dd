"""`gml bench` and `gml perplexity` on the real model."""

from __future__ import annotations

import json

import pytest

from gml.tools.cli import main


def out_of(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Standard output of a command that succeeds."""
    assert main(args) == 0
    return capsys.readouterr().out


def test_bench_prints_rows(pulled, capsys) -> None:
    found = json.loads(
        out_of(capsys, "bench", str(pulled("smollm2")), *["-p", "16", "-n", "4", "-t", "2", "-r", "2", "-o", "json"])
    )
    assert [row["test"] for row in found["rows"]] == ["pp16", "tg4"]
    for row in found["rows"]:
        assert 0 < row["tok_s_min"] <= row["tok_s"] <= row["tok_s_max"]
        assert row["threads"] == 2
    assert found["rows"][0]["gb_s"] is None
    assert found["rows"][1]["gb_s"] > 0
    head = found["head"]
    assert head["model_bytes"] > 90e6
    assert head["step_bytes"] == head["model_bytes"]  # the embedding is the output matrix too
    assert head["load_s"] > 0 and head["compile_s"] > 0 and head["first_token_s"] > 0
    table = out_of(capsys, "bench", str(pulled("smollm2")), *["-p", "0", "-n", "2", "-r", "1"])
    assert "| tg2 |" in table
    assert "| pp" not in table


def test_divergence_from_a_saved_run(pulled, vectors, capsys, tmp_path) -> None:
    model, text = str(pulled("smollm2")), str(vectors / "text" / "prose-60k.txt")
    base = tmp_path / "base"
    shared = ("perplexity", model, text, "--ctx", "128", "--chunks", "2", "--json")
    exact = json.loads(out_of(capsys, *shared, "--exact", "--save-base", str(base)))
    assert base.stat().st_size == 2 * 63 * 49152 * 4
    quantised = json.loads(out_of(capsys, *shared, "--base", str(base)))
    assert exact["n_scored"] == quantised["n_scored"] == 126
    assert 0 < quantised["kl_mean"] <= 0.005
    assert quantised["same_top"] > 0.95
    assert abs(quantised["ppl"] / exact["ppl"] - 1) < 0.02
    again = json.loads(out_of(capsys, *shared, "--exact", "--base", str(base)))
    assert again["kl_max"] == 0
    assert main(["perplexity", model, text, "--ctx", "256", "--chunks", "2", "--base", str(base)]) == 2


@pytest.mark.slow
def test_perplexity_of_float32_arithmetic(pulled, vectors, capsys) -> None:
    """llama.cpp on the file expanded to F32 gives 7.9275 for these chunks."""
    text = str(vectors / "text" / "prose-60k.txt")
    shared = ("perplexity", str(pulled("smollm2")), text, "--chunks", "8", "--json", "--kv-type", "F32")
    exact = json.loads(out_of(capsys, *shared, "--exact", "--kl"))
    assert exact["ppl"] == pytest.approx(7.9275, abs=0.005)
    assert exact["kl_mean"] <= 1e-5
    quantised = json.loads(out_of(capsys, *shared, "--kl"))
    assert quantised["kl_mean"] <= 0.003


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["missing.txt"], "missing.txt: cannot be read"),
        (["README.md", "--ctx", "2"], "a context of at least 4 tokens"),
        (["README.md", "--ctx", "8000"], "one chunk needs 8000"),
        (["README.md", "--kl", "--base", "x"], "exclude each other"),
    ],
)
def test_wrong_use_is_one_line(args, message, pulled, capsys, monkeypatch, request) -> None:
    monkeypatch.chdir(request.config.rootpath)
    assert main(["perplexity", str(pulled("smollm2")), *args]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
