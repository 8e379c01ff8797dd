"""Every sample on the interpreter, against what it must give; and what the interpreter refuses."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_ir.samples import SAMPLES, Sample, assert_same

from gml.errors import Error
from gml.kernel_ir import F32, I8, I16, I32, I64, U8, Block, Builder, Kernel, KernelError, Node
from gml.kernel_ir.interp import run
from gml.kernel_ir.math import expand_math
from gml.kernel_ir.nodes import KINDS
from gml.kernel_ir.rewrite import rebuild
from gml.kernel_ir.rules import ATTRS, COMPARISONS, FUNCTIONS, REDUCTIONS, ROUNDINGS


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_sample(sample: Sample) -> None:
    buffers = sample.fresh()
    run(sample.build(), buffers, sample.sizes, 0, sample.end)
    for index, expected in sample.expected.items():
        assert_same(buffers[index], expected, 1 if sample.ulp else 0)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.ulp], ids=lambda s: s.name)
def test_expanded_functions_stay_within_two_ulp(sample: Sample) -> None:
    buffers = sample.fresh()
    run(rebuild(sample.build(), expand_math), buffers, sample.sizes, 0, sample.end)
    for index, expected in sample.expected.items():
        assert_same(buffers[index], expected, sample.ulp)


def nodes_of(block: Block) -> list[Node]:
    found = list(block.params)
    for node in block.nodes:
        found.append(node)
        for name in ("body", "then", "other"):
            if name in node.attrs:
                found += nodes_of(node.attrs[name])
    return found


def test_every_kind_and_every_variant_has_a_sample() -> None:
    kinds: set[str] = set()
    variants: set[tuple[str, str]] = set()
    for sample in SAMPLES:
        kernel = sample.build()
        for node in [*kernel.params, *nodes_of(kernel.body)]:
            kinds.add(node.kind)
            if "how" in node.attrs or ("fn" in node.attrs and node.kind == "math"):
                variants.add((node.kind, node.attrs.get("how") or node.attrs["fn"]))
    assert kinds == set(KINDS)
    expected = [("cmp", COMPARISONS), ("round", ROUNDINGS), ("reduce", REDUCTIONS), ("math", FUNCTIONS)]
    assert variants == {(kind, how) for kind, hows in expected for how in hows}
    assert set(ATTRS) <= set(KINDS)


def test_names_are_unique() -> None:
    assert len({s.name for s in SAMPLES}) == len(SAMPLES)


# -- refusals ----------------------------------------------------------------------------------------------------------


def kernel_of(body) -> Kernel:  # type: ignore[no-untyped-def]
    b = Builder("small")
    x = b.param("x")
    sizes = b.param("sizes")
    body(b, x, sizes)
    return b.finish()


REFUSED = {
    "load_behind": (lambda b, x, s: b.load(x, 13, I32), "touches bytes 13 to 17 of x, which has 16"),
    "load_before": (lambda b, x, s: b.load(b.offset(x, -4), 0, I32), "touches bytes -4 to 0 of x"),
    "load_of_sizes": (lambda b, x, s: b.load(s, 8, I64), "of sizes, which has 8"),
    "store_behind": (lambda b, x, s: b.store(x, 2**62, b.i64(0)), "touches bytes 4611686018427387904"),
    "store_to_sizes": (lambda b, x, s: b.store(s, 0, b.i64(0)), "writes to sizes, which is read-only"),
    "gather": (lambda b, x, s: b.gather(x, 0, -4, I32.vec(2)), "touches bytes -4 to 0 of x"),
    "scatter": (lambda b, x, s: b.scatter(x, 0, 8, b.const(0, I32.vec(3))), "touches bytes 16 to 20"),
    "atomic_place": (lambda b, x, s: b.atomic_add(x, 4, 1), "not a multiple of 8"),
    "scratch_behind": (lambda b, x, s: b.load(b.scratch(4), 4, U8), "touches bytes 4 to 5 of scratch, which has 4"),
    "table_behind": (lambda b, x, s: b.load(b.table(b"abc"), 2, I16), "touches bytes 2 to 4 of table, which has 3"),
    "table_written": (lambda b, x, s: b.store(b.table(b"abc"), 0, b.const(1, U8)), "writes to table, which is read"),
    "shift": (lambda b, x, s: b.shl(b.load(x, 0, I32), b.load(x, 8, I32)), "shift counts must be 0 to 31, found [40]"),
    "lookup": (lambda b, x, s: b.lookup(range(16), b.load(x, 0, U8.vec(16)), U8), "indices must be below 16"),
    "w_max": (lambda b, x, s: dot(b, x, 39, 0), "w_max is 39, but a weight is 40"),
    "least_x": (lambda b, x, s: dot(b, x, 40, -128), "no x may be -128"),
    "step": (lambda b, x, s: b.loop(0, 4, lambda i: None, step=b.load(x, 0, I32)), "step must be positive, found 0"),
    "call": (lambda b, x, s: b.call(lambda: [1, 2], type=I32), "gave 2 numbers instead of 1"),
}  # fmt: skip


def dot(b: Builder, x: Node, w_max: int, value: int) -> None:
    b.group_dot([b.load(x, 4, U8.vec(8))], [b.const(value, I8.vec(8))], w_max)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body, message = REFUSED[name]
    data = np.array([0, 0, 40, 0], np.int32).view(np.uint8)
    with pytest.raises(KernelError) as caught:
        run(kernel_of(body), [data], [1])
    assert isinstance(caught.value, Error)
    text = str(caught.value)
    assert text.startswith("kernel small: `") and message in text and "\n" not in text


def test_read_only_buffers_are_read_only() -> None:
    data = np.zeros(16, np.uint8)
    data.flags.writeable = False
    run(kernel_of(lambda b, x, s: b.load(x, 0, I32)), [data])
    with pytest.raises(KernelError, match="writes to x, which is read-only"):
        run(kernel_of(lambda b, x, s: b.store(x, 0, b.i64(1))), [data])


def test_wrong_buffers_are_refused() -> None:
    kernel = kernel_of(lambda b, x, s: None)
    with pytest.raises(KernelError, match="expected 1 buffers, found 2"):
        run(kernel, [np.zeros(4, np.uint8)] * 2)
    with pytest.raises(KernelError, match="buffer x must be a flat, contiguous uint8 array"):
        run(kernel, [np.zeros(4, np.float32)])
    with pytest.raises(KernelError, match="buffer x must be a flat"):
        run(kernel, [np.zeros(8, np.uint8)[::2]])


def test_scratch_is_poisoned_every_time() -> None:
    def body(b: Builder, x: Node, s: Node) -> None:
        def step(i: Node) -> None:
            memory = b.scratch(8)
            b.store(x, i * 8, b.load(memory, 0, F32))
            b.store(x, i * 8 + 4, b.load(memory, 4, I32))
            b.store(memory, 0, b.i64(5))

        b.loop(0, 2, step)

    data = np.zeros(16, np.uint8)
    run(kernel_of(body), [data])
    assert np.isnan(data.view(np.float32)[[0, 2]]).all()
    assert data.view(np.int32)[[1, 3]].tolist() == [-1, -1]


def test_a_loaded_value_does_not_change_with_memory() -> None:
    def body(b: Builder, x: Node, s: Node) -> None:
        before = b.load(x, 0, I32.vec(2))
        b.store(x, 0, b.const(9, I32.vec(2)))
        b.store(x, 8, before)

    data = np.array([1, 2, 3, 4], np.int32).view(np.uint8)
    run(kernel_of(body), [data])
    assert data.view(np.int32).tolist() == [9, 9, 1, 2]
