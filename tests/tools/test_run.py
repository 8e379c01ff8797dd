"""`gml run`: streamed text, JSON, prompts from everywhere, sampling that repeats."""

from __future__ import annotations

import json

import pytest

RUN = ("--backend", "reference")


def run_json(gml, *args, **options):
    done = gml("run", *args, "--json", *RUN, **options)
    assert done.status == 0, done.err
    return json.loads(done.out)


def test_json_has_what_was_promised(gml, tiny):
    result = run_json(gml, tiny, "hi", "--temp", "0", "-n", "5", "--ignore-eos")
    assert list(result) == ["prompt_ids", "ids", "text", "stop_reason", "timings"]
    assert result["prompt_ids"] == [256, *b"hi"]
    assert len(result["ids"]) == 5
    assert result["stop_reason"] == "length"
    assert result["timings"]["n_prompt"] == 3
    assert {"load_s", "prompt_s", "generation_s"} <= result["timings"].keys()


def test_streamed_text_is_that_of_json(gml, tiny):
    options = ("-n", "40", "--seed", "5", "--temp", "2", "--top-k", "0")
    done = gml("run", tiny, "hi", *options, *RUN)
    assert done.status == 0
    assert done.out == run_json(gml, tiny, "hi", *options)["text"] + "\n"
    assert done.err.startswith("[load ")
    assert "prompt 3 tokens" in done.err and "generation 40 tokens" in done.err


def test_a_seed_repeats_and_another_does_not(gml, tiny):
    texts = [
        run_json(gml, tiny, "hi", "-n", "20", "--temp", "3", "--top-k", "0", "--seed", seed)["ids"] for seed in "112"
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("stdin", [b"h\xc3\xa9", b"h\xc3\xa9\n", b"h\xc3\xa9\r\n"])
@pytest.mark.parametrize("args", [(), ("-",)])
def test_the_prompt_may_come_from_standard_input(gml, tiny, stdin, args):
    assert run_json(gml, tiny, *args, "-n", "1", stdin=stdin)["prompt_ids"] == [256, *"hé".encode()]


def test_a_prompt_is_text_unless_asked(gml, tiny):
    text = "<|im_end|>"
    assert run_json(gml, tiny, text, "-n", "0")["prompt_ids"] == [256, *text.encode()]
    assert run_json(gml, tiny, text, "-n", "0", "--special")["prompt_ids"] == [256, 259]


def test_an_empty_prompt_is_bos(gml, tiny):
    assert run_json(gml, tiny, "", "-n", "0")["prompt_ids"] == [256]


def test_stop_strings_end_before_themselves(gml, tiny):
    options = ("-n", "30", "--seed", "3", "--temp", "2", "--top-k", "0", "--logit-bias", "256=-inf")
    whole = run_json(gml, tiny, "hi", *options)["text"]
    stop = whole[10:13]
    cut = run_json(gml, tiny, "hi", *options, "--stop", "\x00\x01\x02", "--stop", stop)
    assert cut["stop_reason"] == "stop"
    assert cut["text"] == whole[: whole.index(stop)]


def test_a_full_context_ends_or_shifts(gml, tiny):
    options = ("-n", "30", "--ctx", "8", "--temp", "0", "--ignore-eos")
    assert run_json(gml, tiny, "hi", *options)["stop_reason"] == "context"
    shifted = run_json(gml, tiny, "hi", *options, "--shift")
    assert (shifted["stop_reason"], len(shifted["ids"])) == ("length", 30)


def test_batches_do_not_change_the_ids(gml, tiny):
    options = ("a longer prompt", "-n", "10", "--temp", "0", "--ignore-eos", "--kv-type", "F32")
    ids = {tuple(run_json(gml, tiny, *options, "--batch", batch)["ids"]) for batch in ("1", "3", "512")}
    assert len(ids) == 1


def test_temperature_zero_of_a_real_model_names_paris(gml, pulled):
    done = gml("run", str(pulled("smollm2")), "The capital of France is", "--temp", "0", "-n", "2", *RUN)
    assert done.out.startswith(" Paris")
