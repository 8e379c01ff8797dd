"""Printed kernels against golden files (`pytest --update-golden` refreshes them), and what the text must tell apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kernel_ir.samples import SAMPLES

from gml.kernel_ir import F32, F64, I32, I64, U8, Block, Builder, Kernel, KernelError, Node
from gml.kernel_ir.printer import kernel_key, print_kernel, print_node
from gml.kernel_ir.rewrite import rebuild

FOLDER = Path(__file__).parent / "golden"
GOLDEN = (
    "logic", "fma-f32-scalar", "shuffle-f32", "lookup-i8-32", "group_dot-u8-1x32-15", "reduce-max-f32-8",
    "bitcast-lanes", "const-f32--0.0", "load-store-f16-3", "gather-scatter-f32-apart", "scratch", "table", "atomic_add",
    "for-sums-9", "for-carried", "if", "if-lazy", "call",
)  # fmt: skip
BY_NAME = {s.name: s for s in SAMPLES}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    found = print_kernel(BY_NAME[name].build())
    path = FOLDER / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(found, encoding="utf-8", newline="\n")
    assert found == path.read_text(encoding="utf-8"), "run pytest --update-golden if the change is meant"


def test_there_are_no_other_golden_files() -> None:
    assert {p.stem for p in FOLDER.glob("*.txt")} == set(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_same_kernel_gives_the_same_text(name: str) -> None:
    first, second = BY_NAME[name].build(), BY_NAME[name].build()
    assert print_kernel(first) == print_kernel(second)
    assert kernel_key(first) == kernel_key(second)
    assert kernel_key(rebuild(first, lambda b, node, args: None)) == kernel_key(first)


def test_keys_have_no_names_and_samples_have_different_ones() -> None:
    keys: dict[str, list[str]] = {}
    for sample in SAMPLES:
        if sample.name not in ("for-never", "if-taken"):  # kernels of other samples, run on other data
            keys.setdefault(kernel_key(sample.build()), []).append(sample.name)
    same = ("for-sums", "gather", "const-f32-inf", "const-f16", "const-i64")  # one kernel with several numbers
    shared = [names for names in keys.values() if len(names) > 1 and not names[0].startswith(same)]
    assert shared == []
    assert all(key.startswith("kernel (p0: ptr, ") for key in keys)


def kernel(body: Callable[..., object], name: str = "k", pointers: tuple[str, ...] = ("x", "y")) -> Kernel:
    b = Builder(name)
    params = [b.param(p) for p in pointers]
    body(b, *params)
    return b.finish()


def copy(b: Builder, x: Node, y: Node) -> None:
    b.store(y, 0, b.load(x, 0, F32))


def test_names_and_where_constants_were_made_do_not_matter() -> None:
    def elsewhere(b: Builder, x: Node, y: Node) -> None:
        b.i64(7)
        b.const(0.5)
        copy(b, x, y)

    key = kernel_key(kernel(copy))
    assert kernel_key(kernel(elsewhere, "another", ("w", "out"))) == key
    described = kernel(copy)
    described.meta["from"] = "a layer"
    assert kernel_key(described) == key


def stores(b: Builder, x: Node, first: Node, y: Node, second: Node) -> None:
    b.store(x, 0, first)
    b.store(y, 0, second)


#: pairs of kernels that do different things
DIFFERENT: dict[str, tuple[Callable[..., object], Callable[..., object]]] = {
    "type": (lambda b, x, y: b.load(x, 0, F32), lambda b, x, y: b.load(x, 0, I32)),
    "lanes": (lambda b, x, y: b.load(x, 0, F32), lambda b, x, y: b.load(x, 0, F32.vec(2))),
    "pointer": (lambda b, x, y: b.load(x, 0, F32), lambda b, x, y: b.load(y, 0, F32)),
    "constant": (lambda b, x, y: b.load(x, 0, F32), lambda b, x, y: b.load(x, 0, F32, constant=True)),
    "zero": (lambda b, x, y: b.store(x, 0, b.const(0.0)), lambda b, x, y: b.store(x, 0, b.const(-0.0))),
    "neighbours": (
        lambda b, x, y: b.store(x, 0, b.const(1.0)), lambda b, x, y: b.store(x, 0, b.const(1.0 + 2.0**-23)),
    ),
    "neighbours_f64": (
        lambda b, x, y: b.store(x, 0, b.const(1.0, F64)), lambda b, x, y: b.store(x, 0, b.const(1.0 + 2.0**-52, F64)),
    ),
    "constant_type": (lambda b, x, y: b.store(x, 0, b.const(1, I32)), lambda b, x, y: b.store(x, 0, b.const(1, F32))),
    "attribute": (
        lambda b, x, y: b.round("floor", b.load(x, 0, F32)), lambda b, x, y: b.round("ceil", b.load(x, 0, F32)),
    ),
    "table": (
        lambda b, x, y: b.lookup(range(16), b.load(x, 0, U8), U8),
        lambda b, x, y: b.lookup((1, *range(1, 16)), b.load(x, 0, U8), U8),
    ),
    "order": (
        lambda b, x, y: (b.store(x, 0, b.i64(1)), b.store(y, 0, b.i64(2))),
        lambda b, x, y: (b.store(y, 0, b.i64(2)), b.store(x, 0, b.i64(1))),
    ),
    "nesting": (
        lambda b, x, y: (b.loop(0, 9, lambda i: b.store(x, 0, i)), b.store(y, 0, b.i64(2))),
        lambda b, x, y: b.loop(0, 9, lambda i: stores(b, x, i, y, b.i64(2))),
    ),
    "else": (
        lambda b, x, y: b.when(b.const(True, BOOLEAN), lambda: b.store(x, 0, b.i64(1))),
        lambda b, x, y: b.when(b.const(True, BOOLEAN), lambda: None, lambda: b.store(x, 0, b.i64(1))),
    ),
    "yields": (
        lambda b, x, y: b.loop(0, 9, lambda i, p, q: (q, p), (b.i64(1), b.i64(2))),
        lambda b, x, y: b.loop(0, 9, lambda i, p, q: (p, q), (b.i64(1), b.i64(2))),
    ),
    "which_result": (
        lambda b, x, y: b.store(x, 0, b.loop(0, 9, lambda i, p, q: (p, q), (b.i64(1), b.i64(1)))[0]),
        lambda b, x, y: b.store(x, 0, b.loop(0, 9, lambda i, p, q: (p, q), (b.i64(1), b.i64(1)))[1]),
    ),
    "function": (
        lambda b, x, y: b.call(lambda: None), lambda b, x, y: b.call(lambda: None),
    ),
    "table_bytes": (lambda b, x, y: b.load(b.table(b"abc"), 0, U8), lambda b, x, y: b.load(b.table(b"abd"), 0, U8)),
    "scratch": (lambda b, x, y: b.scratch(8), lambda b, x, y: b.scratch(9)),
}  # fmt: skip
BOOLEAN = (lambda b: b.cmp("eq", b.i64(0), 0).type)(Builder("b"))


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_kernels_have_different_keys(name: str) -> None:
    first, second = (kernel(body) for body in DIFFERENT[name])
    assert kernel_key(first) != kernel_key(second)


def test_different_parameters_have_different_keys() -> None:
    def body(b: Builder, *params: Node) -> None:
        b.load(params[0], 0, F32)

    keys = {kernel_key(kernel(body, pointers=p)) for p in (("x",), ("x", "y"), ("sizes",), ("sizes", "x"))}
    assert len(keys) == 4


def test_a_line_of_a_broken_kernel_can_be_printed() -> None:
    b = Builder("broken")
    x = b.param("x")
    far = Node("load", F32, (x, Node("add", I64, (), {}, b)), {}, b)
    assert print_node(b.finish(), far) == "%?: f32 = load x, %?"


def test_blocks_nested_without_end_are_refused() -> None:
    block = Block()
    b = Builder("endless")
    b.param("x")
    block.nodes.append(Node("if", b.scratch(1).type, (), {"then": block, "other": Block()}, b))
    b.kernel.body.nodes.append(block.nodes[0])
    with pytest.raises(KernelError, match="nested deeper"):
        print_kernel(b.finish())
