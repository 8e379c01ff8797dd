"""Nothing is declared by halves: every op, block format and kind of node has all its parts, and samples that run.

What runs the samples: `tests/backends/cpu/test_three_ways.py` for ops and formats, `test_kernels.py` there and
`tests/gml/kernel_ir/test_interp.py` for the kernel IR. They take what is registered, so a new op or format is in.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
from kernel_ir.samples import SAMPLES as KERNEL_SAMPLES

import gml
from gml.compiler.pipeline import compile_graph
from gml.compiler.state import Options
from gml.dtypes import DType
from gml.kernel_ir import Block
from gml.kernel_ir.nodes import KINDS
from gml.ops.base import Inferred, NoAttrs, OpDef, Sample, SampleBuilder, registry
from gml.ops.lower import Elementwise
from gml.testing import missing_format_parts, missing_parts

FORMATS = [t for t in gml.quants.all_types() if not t.is_scalar]

#: ops that only the compiler makes: sizes are those of the ops that they come from, which have all samples
MADE_BY_COMPILER = {"pack_panels", "mul_mat_q8", "mul_mat_q8_file", "quantize_q8", "rope_table", "rope_rotate"}
#: samples that cannot be: ops without sources or of a list of numbers
EXCUSED = {
    "arange": {"a run-time size", "elements that do not lie side by side"},
    "timestep_embedding": {"elements that do not lie side by side"},
    "reshape": {"elements that do not lie side by side"},
}


def gmls_own() -> Iterator[OpDef]:
    """Every op of gml's own modules, declared or made by the compiler."""
    for thing in gc.get_objects():
        if isinstance(thing, OpDef) and thing.infer.__module__.startswith("gml.ops."):
            yield thing


@pytest.mark.parametrize("op", list(registry.values()), ids=lambda op: op.name)
def test_an_op_has_all_its_parts(op: OpDef) -> None:
    missing = [
        part for part in missing_parts(op) if part.removeprefix("a sample with ") not in EXCUSED.get(op.name, ())
    ]
    if op.name in MADE_BY_COMPILER:
        missing = [part for part in missing if not part.startswith("a sample with")]
    assert missing == []


def test_ops_that_are_not_declared_are_made_by_the_compiler_and_can_be_compared() -> None:
    """They have no samples of their own: `check_products` runs them for every format, packed and in place."""
    undeclared = {op.name: op for op in gmls_own() if registry.get(op.name) is not op}
    seen = set()
    for layout in ("packed", "file"):
        s = SampleBuilder()
        y = gml.mul_mat(s.blocks(gml.Q8_0, 64, 11), s.f32(64, 3))
        compiled = compile_graph(gml.Graph(y), Options(layout=layout))
        seen |= {
            n.op.name for phase in [*compiled.setup, *compiled.step] for i in phase for n in i.region.nodes if n.op
        }
    assert undeclared.keys() == seen - registry.keys()
    for op in undeclared.values():
        assert op.lower is not None


def test_an_op_without_its_parts_is_found() -> None:
    def infer(attrs: NoAttrs, a: gml.Tensor) -> Inferred:
        return Inferred(a.type, a.ne)

    bare = OpDef("bare", infer, lambda attrs, a: a, [])
    assert missing_parts(bare)[:2] == ["one of lower and expand", "samples (at least two; found 0)"]
    form = Elementwise(lambda b, attrs, x: x)
    op = OpDef("half", infer, lambda attrs, a: a, [Sample("even", lambda s: op(s.f32(4)))] * 2, lower=form)
    assert missing_parts(op) == [
        "different names of its samples",
        "a sample with an odd size",
        "a sample with no elements",
        "a sample with a run-time size",
        "a sample with elements that do not lie side by side",
    ]


def test_samples_are_of_their_op() -> None:
    op = OpDef(
        "mine",
        lambda attrs, a: Inferred(a.type, a.ne),
        lambda attrs, a: a,
        [Sample("other", lambda s: gml.neg(s.f32(3)))],
        lower=Elementwise(lambda b, attrs, x: x),
    )
    with pytest.raises(AssertionError, match="sample 'other' of mine gives the result of <op neg>"):
        missing_parts(op)


# -- formats -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FORMATS, ids=lambda t: t.name)
def test_a_format_has_all_its_parts(dtype: gml.QuantType) -> None:
    assert missing_format_parts(dtype) == []
    assert dtype.numpy.itemsize == dtype.type_size
    assert getattr(gml, dtype.name) is dtype
    assert dtype.name in gml.__dir__()


def test_a_format_without_its_parts_is_found() -> None:
    bare = gml.QuantType("BARE", 900, 32, 18, [("d", "<f2"), ("qs", "u1", 16)])
    assert missing_format_parts(bare) == ["decode_blocks", "traits", "unpack"]
    with pytest.raises(AssertionError, match="17 bytes, not 18"):
        gml.QuantType("SHORT", 901, 32, 18, [("d", "<f2"), ("qs", "u1", 15)])


@pytest.mark.parametrize("dtype", gml.quants.all_types(), ids=lambda t: t.name)
def test_a_type_round_trips_what_it_decodes(dtype: DType) -> None:
    """Every type stores its own values again, where it is written at all: zeros as zeros."""
    if not dtype.can_encode:
        with pytest.raises(gml.Error):
            dtype.encode(np.zeros(dtype.block_size, np.float32))
        return
    zeros = dtype.encode(np.zeros((2, dtype.block_size), np.float32))
    assert zeros.dtype == dtype.numpy
    assert zeros.nbytes == 2 * dtype.type_size
    np.testing.assert_array_equal(dtype.decode(zeros), np.zeros((2, dtype.block_size)))


# -- kernel IR ---------------------------------------------------------------------------------------------------------


def kinds(block: Block) -> Iterator[str]:
    """Kinds of the nodes of a block and of the blocks in it."""
    for node in block.nodes:
        yield node.kind
        yield from (result.kind for result in node.attrs.get("results", ()))
        for inner in node.attrs.values():
            if isinstance(inner, Block):
                yield from (param.kind for param in inner.params)
                yield from kinds(inner)


def test_every_kind_of_node_is_in_a_kernel_that_runs_both_ways() -> None:
    """Compiled and interpreted results of these samples are held against the same expected bits."""
    seen: set[str] = set()
    for sample in KERNEL_SAMPLES:
        if sample.native:
            kernel = sample.build()
            seen |= {param.kind for param in kernel.params} | set(kinds(kernel.body))
    # a Python function in the middle of a kernel is for the interpreter alone
    assert seen == KINDS.keys() - {"call"}
