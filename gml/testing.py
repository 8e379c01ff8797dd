"""Checks of ops and block formats, gml's own and yours: the numpy meaning, the kernel IR and machine code agree.

Arrives: an `OpDef` or a `QuantType`; leaves: nothing, or an `AssertionError` that says what is missing or differs.
Three ways run the same values: the `reference` backend, the interpreter of the kernel IR, and compiled code with and
without vectors, on one thread and on three. The interpreter and compiled code run the same kernels, so they must agree
bit for bit (but for which NaN it is); both must be within a tolerance of the reference. See `docs/extending.md`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from math import lcm
from typing import Any

import numpy as np

from gml.backend import Program, get_backend
from gml.compiler.interpret import InterpretedProgram
from gml.compiler.pipeline import compile_graph
from gml.compiler.plan import CompiledGraph
from gml.compiler.state import Options
from gml.dims import max_of
from gml.dtypes import F32
from gml.graph import Graph
from gml.kernel_ir import Builder, Node
from gml.kernel_ir.math import expand_math
from gml.kernel_ir.rewrite import rebuild
from gml.ops import cast, cpy, get_rows, mul_mat, set_rows
from gml.ops.activations import quantize_rows
from gml.ops.base import OpDef, Sample, SampleBuilder
from gml.quants import QuantType
from gml.tensor import Tensor

#: largest difference from the reference over the largest magnitude of the result, by type; a block format's own
#: rounding may tip over at a tie
TOLERANCE = {"F32": 3e-6, "F64": 1e-12, "F16": 1e-3, "BF16": 8e-3}
BLOCK_TOLERANCE = 2e-2


class ThreeWays:
    """A graph made once and run by everybody on the same values: what ops write is put back before each run."""

    def __init__(self, make: Callable[[SampleBuilder], Tensor], seed: int = 0) -> None:
        self.builder = SampleBuilder(seed)
        self.tensor = make(self.builder)
        self.graph = Graph(self.tensor)
        self.states = {leaf: leaf.bytes().copy() for leaf in self.builder.context.leaves if leaf.role == "state"}

    def kernels(self, **options: Any) -> CompiledGraph:
        """What the interpreter and compiled code share. Nothing is folded: samples are made of constants."""
        return compile_graph(self.graph, Options(disabled=frozenset({"fold"}), **options))

    def reference(self) -> Program:
        """The ops' numpy meanings."""
        return get_backend("reference").compile(self.graph)

    def interpreted(self, kernels: CompiledGraph) -> Program:
        """The interpreter, vector maths expanded as for machine code."""
        followed = copy.copy(kernels)
        followed.kernels = {name: rebuild(kernel, _expanded) for name, kernel in kernels.kernels.items()}
        return InterpretedProgram(followed)

    def compiled(self, kernels: CompiledGraph, threads: int = 3) -> Program:
        """Machine code."""
        backend: Any = get_backend("cpu", threads=threads)
        return backend.program(kernels)

    def run(self, program: Program) -> np.ndarray:
        """The result of one step."""
        for state, before in self.states.items():
            state.bytes()[...] = before
        with np.errstate(all="ignore"):
            program.run(**{dim.name: value for dim, value in self.builder.values.items()})
        return np.array(program.read(self.tensor))


def _expanded(b: Builder, node: Node, args: Sequence[Node]) -> Node | None:
    return expand_math(b, node, args) if node.kind == "math" else None


def assert_close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Equal infinities and NaNs; the rest within `tolerance` of the largest magnitude."""
    assert found.shape == expected.shape, f"expected shape {expected.shape}, found {found.shape}"
    wide, want = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(wide[~finite], want[~finite])
    largest = np.abs(want[finite]).max(initial=0.0)
    error = np.abs(wide[finite] - want[finite]).max(initial=0.0)
    assert error <= tolerance * max(largest, 1e-30), f"differs by {error:.3g} of {largest:.3g}; tolerance {tolerance}"


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal values, signs of zeros included; NaNs in the same places."""
    np.testing.assert_array_equal(found, expected)
    if expected.dtype.kind == "f":
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(expected[number]))


# -- ops ---------------------------------------------------------------------------------------------------------------


def check_op(op: OpDef) -> None:
    """All parts are there, and every sample agrees three ways."""
    missing = missing_parts(op)
    assert not missing, f"{op.name} lacks {', '.join(missing)}"
    for sample in op.samples:
        check_sample(sample)


def check_sample(sample: Sample, lanes: Sequence[int] = (16, 1)) -> None:
    """One sample three ways, with float activations for quantised weights (`exact`) and row loops of these widths."""
    ways = ThreeWays(sample.make)
    expected, dtype = ways.run(ways.reference()), ways.tensor.type
    for width in lanes:
        kernels = ways.kernels(exact=True, lanes=width)
        found = ways.run(ways.compiled(kernels, threads=1))
        if dtype.is_integer:
            np.testing.assert_array_equal(found, expected)
        else:
            assert_close(found, expected, TOLERANCE.get(dtype.name, BLOCK_TOLERANCE))
        assert_same_bits(ways.run(ways.compiled(kernels, threads=3)), found)
        if width > 1:
            assert_same_bits(ways.run(ways.interpreted(kernels)), found)


def missing_parts(op: OpDef) -> list[str]:
    """What an op that users call should have and has not, in words."""
    missing = []
    if (op.lower is None) == (op.expand is None) and not op.view:
        missing.append("one of lower and expand")
    if len(op.samples) < 2:
        missing.append(f"samples (at least two; found {len(op.samples)})")
    if len({s.name for s in op.samples}) < len(op.samples):
        missing.append("different names of its samples")
    seen = [t for s in op.samples for t in _tensors_of(op, s)]
    sizes = [[max_of(n) for n in t.ne] for t in seen]
    kinds = {
        "an odd size": any(n % 2 and n > 1 for ne in sizes for n in ne),
        "a size of 1": any(ne[0] == 1 or ne[1:] == [1, 1, 1] for ne in sizes),
        "no elements": any(0 in ne for ne in sizes),
        "a run-time size": any(t.dims for t in seen),
        "elements that do not lie side by side": not all(t.is_contiguous() for t in seen),
    }
    return missing + [f"a sample with {what}" for what, there in kinds.items() if not there]


def _tensors_of(op: OpDef, sample: Sample) -> list[Tensor]:
    """The sample's result and its sources; the sample must be of this op."""
    tensor = sample.make(SampleBuilder())
    assert tensor.op is op, f"sample {sample.name!r} of {op.name} gives the result of {tensor.op}"
    return [tensor, *tensor.src]


# -- block formats -----------------------------------------------------------------------------------------------------


def check_format(dtype: QuantType) -> None:
    """All parts are there; products, look-ups and writes agree three ways."""
    missing = missing_format_parts(dtype)
    assert not missing, f"{dtype.name} lacks {', '.join(missing)}"
    check_products(dtype)
    check_rows(dtype)
    check_writes(dtype)


def missing_format_parts(dtype: QuantType) -> list[str]:
    """What a block format should have and has not, in words."""
    kind, missing = type(dtype), []
    if kind.decode_blocks is QuantType.decode_blocks:
        missing.append("decode_blocks")
    if dtype.traits is None:
        missing.append("traits")
    elif dtype.traits.block_size != dtype.block_size:
        missing.append(f"traits of its {dtype.block_size} columns (group * n_groups = {dtype.traits.block_size})")
    if kind.unpack is QuantType.unpack:
        missing.append("unpack")
    return missing


def random_blocks(s: SampleBuilder, dtype: QuantType, *ne: int) -> Tensor:
    """A constant of random bytes; blocks whose values are huge or not finite (a random exponent) are replaced."""
    tensor = s.blocks(dtype, *ne)
    blocks = tensor.bytes().view(dtype.numpy)
    with np.errstate(all="ignore"):
        largest = np.abs(dtype.decode(blocks).reshape(len(blocks), -1)).max(axis=1)
    usable = np.flatnonzero(largest < 1e4)
    assert usable.size, f"{dtype.name}: of {len(blocks)} random blocks none has usable values"
    bad = np.flatnonzero(~(largest < 1e4))
    blocks[bad] = blocks[usable[bad % usable.size]]
    return tensor


def check_products(dtype: QuantType, n: int = 11) -> None:
    """mul_mat with one column, some and many, in integers (packed and in place: the same bits) and in floats.

    In integers activations are rounded to 8 bits per 32 values with a scale d: the result is that of the rounded
    activations up to float sums, and so within sum(|w|) * d / 2 of the product itself. In floats (`exact`) it is the
    product up to float sums.
    """
    k = lcm(dtype.block_size, 32)
    k *= 3 if k < 256 else 2 if k < 512 else 1
    weights: list[Tensor] = []

    def make(s: SampleBuilder) -> Tensor:
        weights.append(random_blocks(s, dtype, k, n))
        return mul_mat(weights[0], s.context.input("x", F32, [k, s.dim("m", 1, max=50)]))

    ways = ThreeWays(make)
    w = dtype.decode(weights[0].bytes().view(dtype.numpy).reshape(n, -1)).astype(np.float64)
    kernels = {
        "packed": ways.kernels(layout="packed"),
        "file": ways.kernels(layout="file"),
        "exact": ways.kernels(exact=True),
    }
    compiled = {name: ways.compiled(k) for name, k in kernels.items()}
    interpreted = {name: ways.interpreted(k) for name, k in kernels.items()}
    reference = ways.reference()
    for m in (50, 4, 1):
        ways.builder.values = dict.fromkeys(ways.builder.values, m)
        x = ways.builder.random.uniform(-2, 2, size=(m, k)).astype(np.float32)
        ways.graph.inputs["x"].set(x)
        codes, d = quantize_rows(x)
        rounded = (codes.astype(np.float64) * d[..., None]).reshape(m, k) @ w.T
        found = {name: ways.run(program).reshape(m, n) for name, program in compiled.items()}
        if m < 50:
            for name, program in interpreted.items():
                assert_same_bits(ways.run(program).reshape(m, n), found[name])
        assert_same_bits(found["file"], found["packed"])
        assert_close(found["packed"], rounded, TOLERANCE["F32"])
        product = ways.run(reference).reshape(m, n)
        half_steps = np.repeat(d.astype(np.float64) / 2, 32, axis=-1)
        slack = half_steps @ np.abs(w).T + TOLERANCE["F32"] * np.abs(rounded).max()
        assert (np.abs(found["packed"] - product) <= slack).all()
        assert_close(found["exact"], product, TOLERANCE["F32"])


def check_rows(dtype: QuantType) -> None:
    """get_rows and a cast to F32 give the bits of `decode`."""
    k = dtype.block_size * 3
    for make in (
        lambda s: get_rows(random_blocks(s, dtype, k, 5), s.array([3, 0, 3])),
        lambda s: cast(random_blocks(s, dtype, k, 3), F32),
    ):
        ways = ThreeWays(make)
        kernels = ways.kernels()
        found = ways.run(ways.compiled(kernels))
        assert_same_bits(found, ways.run(ways.reference()))
        assert_same_bits(ways.run(ways.interpreted(kernels)), found)


def check_writes(dtype: QuantType) -> None:
    """set_rows, cpy and cast into the format, where it can be encoded, give the blocks of `encode`.

    Formats without `pack` are encoded by `encode` itself, called between kernels.
    """
    if not dtype.can_encode:
        return
    k = dtype.block_size * 3
    for make in (
        lambda s: set_rows(s.state(dtype, k, 5), s.f32(k, 3), s.array([3, 0, 4])),
        lambda s: cpy(s.f32(k, 3), s.state(dtype, k, 3)),
        lambda s: cast(s.f32(k, 3), dtype),
    ):
        ways = ThreeWays(make)
        kernels = ways.kernels()
        found = ways.run(ways.compiled(kernels))
        assert_same_bits(found, ways.run(ways.reference()))
        assert_same_bits(ways.run(ways.interpreted(kernels)), found)
