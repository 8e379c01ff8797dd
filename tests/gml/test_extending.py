"""docs/extending.md is true: its code is that of the examples, which run, fuse, and equal their references."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import gml
from gml.compiler.pipeline import compile_graph
from gml.models.gguf.reader import GGUFFile
from gml.models.gguf.writer import write_gguf
from gml.ops.base import registry
from gml.quants import base

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "extending.md").read_text(encoding="utf-8")
EXAMPLES = {path.stem: path for path in sorted((DOCS / "examples").glob("*.py"))}


def imported(name: str) -> Iterator[ModuleType]:
    """An example as a module; what it registers is forgotten afterwards."""
    tables: list[Any] = [registry, base._by_id, base._by_name]
    known = [set(table) for table in tables]
    spec = importlib.util.spec_from_file_location(name, EXAMPLES[name])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        yield module
    finally:
        for table, before in zip(tables, known, strict=True):
            for key in set(table) - before:
                del table[key]


@pytest.fixture(scope="module")
def own_ops() -> Iterator[ModuleType]:
    yield from imported("own_ops")


@pytest.fixture(scope="module")
def own_format() -> Iterator[ModuleType]:
    yield from imported("own_format")


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What the examples print, each run as a program that checks itself with `gml.testing`."""
    found = {}
    for name, path in EXAMPLES.items():
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        found[name] = done.stdout
    return found


@pytest.mark.parametrize("block", re.findall(r"```(?:python|text)\n(.*?)```", PAGE, re.DOTALL))
def test_the_page_quotes_the_examples(block: str, printed: dict[str, str]) -> None:
    texts = [path.read_text(encoding="utf-8") for path in EXAMPLES.values()] + list(printed.values())
    assert any(block in text for text in texts)


def test_every_file_is_linked() -> None:
    assert sorted(re.findall(r"\(examples/(\w+)\.py\)", PAGE)) == sorted(EXAMPLES)
    for link in re.findall(r"\]\((?!http)([^)#]+)", PAGE):
        assert (DOCS / link).exists()


def regions(graph: gml.Graph) -> list[list[str]]:
    compiled = compile_graph(graph)
    return [[n.op.name for n in i.region.nodes if n.op] for phase in compiled.step for i in phase]


def test_own_ops_fuse(own_ops: ModuleType) -> None:
    assert regions(own_ops.graph()) == [
        ["rms_norm", "quantize_q8"],
        ["mul_mat_q8"],
        ["soft_cap", "add", "quiet_soft_max", "scale"],
    ]
    ctx = gml.Context()
    w, x = ctx.constant(np.ones((16, 64), np.float32), type=gml.Q8_0), ctx.input("x", gml.F32, [64, 3])
    y = own_ops.soft_cap(gml.mul_mat(w, own_ops.quiet_soft_max(x)), 2.0) + 1.0
    assert regions(gml.Graph(y)) == [["quiet_soft_max", "quantize_q8"], ["mul_mat_q8", "soft_cap", "scale"]]


def test_own_ops_equal_their_references(own_ops: ModuleType) -> None:
    x = np.random.default_rng(2).normal(size=(5, 256)).astype(np.float32)
    expected = gml.compile(own_ops.graph(), "reference")(x=x)
    # what they should mean, from float64
    whole = np.concatenate([x.astype(np.float64), np.zeros((5, 1))], axis=1)
    want = np.exp(whole) / np.exp(whole).sum(axis=1, keepdims=True)
    leaf = gml.Context().constant(x)
    np.testing.assert_allclose(gml.compile(own_ops.quiet_soft_max(leaf), "reference")(), want[:, :-1], rtol=1e-5)
    for threads in (1, 3):
        np.testing.assert_allclose(
            gml.compile(own_ops.graph(), "cpu", threads=threads, exact=True)(x=x), expected, rtol=1e-5, atol=1e-7
        )


def test_own_ops_refuse_as_gmls_own_do(own_ops: ModuleType) -> None:
    ids = gml.Context().constant([1, 2, 3])
    with pytest.raises(gml.ShapeError, match=r"soft_cap\(.*I32.*\): a must be F32, F16 or BF16, found I32"):
        own_ops.soft_cap(ids, 1.0)
    with pytest.raises(gml.GraphError, match="'soft_cap' is declared already"):
        gml.declare(own_ops.SOFT_CAP)


@pytest.mark.parametrize("m", [1, 7])
def test_products_of_an_own_format(own_format: ModuleType, m: int) -> None:
    dtype, random = own_format.Q3_32, np.random.default_rng(3)
    ctx = gml.Context()
    w = ctx.constant(random.normal(size=(19, 160)), type=dtype)
    values = dtype.decode(w.bytes().view(dtype.numpy).reshape(19, -1)).astype(np.float64)
    x = random.normal(size=(m, 160)).astype(np.float32)
    y = gml.mul_mat(w, ctx.constant(x))
    product = x.astype(np.float64) @ values.T
    found = {}
    for name, options in {"packed": {}, "file": {"layout": "file"}, "exact": {"exact": True}}.items():
        found[name] = gml.compile(y, "cpu", threads=2, **options)().reshape(m, 19)
    np.testing.assert_array_equal(found["packed"], found["file"])
    sums = 1e-6 * np.abs(product).max()
    assert np.abs(found["exact"] - product).max() < sums
    # activations are off by at most half a step of 1 / 127 of the largest of their 32
    steps = np.abs(x.reshape(m, 5, 32)).max(axis=2).repeat(32, axis=1) / 127
    assert (np.abs(found["packed"] - product) <= steps / 2 @ np.abs(values).T + sums).all()


def test_rows_and_writes_of_an_own_format(own_format: ModuleType) -> None:
    dtype, random = own_format.Q3_32, np.random.default_rng(4)
    ctx = gml.Context()
    values = random.normal(size=(5, 96)).astype(np.float32)
    table = ctx.constant(values, type=dtype)
    decoded = dtype.decode(dtype.encode(values))
    found = gml.compile(gml.get_rows(table, ctx.constant([4, 0, 4])), "cpu", threads=2)()
    np.testing.assert_array_equal(found, decoded[[4, 0, 4]])
    cache = ctx.state("cache", dtype, [96, 8])
    written = gml.compile(gml.set_rows(cache, ctx.constant(values), ctx.constant([7, 1, 2, 3, 0])), "cpu", threads=2)()
    np.testing.assert_array_equal(written[[7, 1, 2, 3, 0]], decoded)
    # 3 bits: half a step of a quarter of the largest, and the largest of the other sign is clipped by a whole one
    step = np.abs(values.reshape(-1, 32)).max(axis=1).repeat(32).reshape(values.shape) / 4
    assert (np.abs(decoded - values) <= step * 1.01).all()
    assert np.abs(decoded - values).mean() < step.mean() / 2


def test_an_own_format_lives_in_gguf_files(own_format: ModuleType, tmp_path: Path) -> None:
    dtype = own_format.Q3_32
    values = np.random.default_rng(5).normal(size=(4, 64)).astype(np.float32)
    blocks = dtype.encode(values)
    write_gguf(tmp_path / "own.gguf", {"general.architecture": "mine"}, [("w", dtype, [64, 4], blocks)])
    with GGUFFile.open(tmp_path / "own.gguf") as file:
        assert file.tensors["w"].type is dtype
        np.testing.assert_array_equal(file.tensors["w"].decode(), dtype.decode(blocks))
