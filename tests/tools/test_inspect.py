"""`gml inspect` and `gml dump`."""

from __future__ import annotations

import json

import gguf
import pytest


def test_json_is_what_the_gguf_package_reads(gml, tiny):
    found = json.loads(gml("inspect", "--json", tiny).out)
    assert list(found) == ["version", "metadata", "tensors"]
    reader = gguf.GGUFReader(tiny)
    assert found["version"] == 3
    assert found["metadata"] == {
        name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")
    }
    expected = [
        {
            "name": t.name,
            "type": t.tensor_type.name,
            "ne": t.shape.tolist(),
            "offset": int(t.data_offset - reader.data_offset),
            "n_bytes": int(t.n_bytes),
        }
        for t in reader.tensors
    ]
    assert found["tensors"] == expected


def test_tables_for_people(gml, tiny):
    done = gml("inspect", tiny)
    assert done.status == 0
    assert "GGUF version 3" in done.out.splitlines()[0]
    assert "token_embd.weight" in done.out
    assert "261: [" in done.out
    assert "\x1b" not in done.out


def test_values_that_json_does_not_have(gml, tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "odd.gguf", "llama")
    writer.add_float32("odd.nan", float("nan"))
    writer.add_array("odd.list", [1.5, float("inf")])
    writer.add_bool("odd.bool", True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    done = gml("inspect", "--json", str(tmp_path / "odd.gguf"))
    assert json.loads(done.out)["metadata"] == {
        "general.architecture": "llama",
        "odd.nan": None,
        "odd.list": [1.5, None],
        "odd.bool": True,
    }


@pytest.mark.parametrize("kind", ["text", "dot", "json"])
def test_dump_prints_the_graph(gml, tiny, tmp_path, kind):
    done = gml("dump", tiny, "--format", kind)
    assert (done.status, done.err) == (0, "")
    assert "blk.0.attn_q.weight" in done.out and "mul_mat" in done.out
    if kind == "json":
        assert {"dims", "leaves", "nodes", "outputs"} <= json.loads(done.out).keys()
    if kind == "dot":
        assert done.out.startswith("digraph")
    assert gml("dump", tiny, "--format", kind, "-o", str(tmp_path / "out")).out == ""
    assert (tmp_path / "out").read_text(encoding="utf-8") == done.out


@pytest.mark.parametrize(
    ("stage", "shown"),
    [
        ("ops", "rope"), ("fused", "reads %"), ("phases", "step 0"), ("memory", "activation buffer: "),
        ("kernel", "kernel k0_"), ("llvm", "define void @k0_"), ("asm", "k0_"),
    ],
)  # fmt: skip
def test_dump_prints_every_stage(gml, tiny, stage, shown):
    done = gml("dump", tiny, "--stage", stage)
    assert (done.status, done.err) == (0, "") and shown in done.out


def test_dump_prints_one_kernel_and_says_what_is_missing(gml, tiny):
    done = gml("dump", tiny, "--stage", "kernel", "--only", "k0")
    assert done.out.startswith("kernel k0_") and done.out.count("\nkernel ") == 0
    assert "no kernel is called 'k999'" in gml("dump", tiny, "--stage", "kernel", "--only", "k999").error
    assert "format of stage asm" in gml("dump", tiny, "--stage", "asm", "--format", "json").error
    assert json.loads(gml("dump", tiny, "--stage", "fused", "--format", "json").out)[0]["region"] == "r0"
    assert "no stage 'fused'" in gml("dump", tiny, "--stage", "fused", "--backend", "reference").error
