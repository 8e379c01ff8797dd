"""Every sample is valid; every way of breaking a kernel is found and told in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kernel_ir.samples import SAMPLES, Sample

from gml.kernel_ir import (
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    PTR,
    U8,
    VOID,
    Block,
    Builder,
    Kernel,
    KernelError,
    Node,
    Type,
)  # fmt: skip
from gml.kernel_ir.nodes import KINDS, MAX_DEPTH
from gml.kernel_ir.rules import _RULES, ATTRS
from gml.kernel_ir.verify import verify


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_samples_are_valid(sample: Sample) -> None:
    kernel = sample.build()
    assert verify(kernel) is kernel


def test_every_kind_has_a_rule() -> None:
    assert set(_RULES) == set(KINDS)
    assert set(ATTRS) <= set(KINDS)


class Broken(Builder):
    """A builder that puts anything into a kernel."""

    def __init__(self) -> None:
        super().__init__("broken")
        self.x = self.param("x")

    def any(self, kind: str, type: Type, *args: Node, **attrs: Any) -> Node:
        node = Node(kind, type, args, attrs, self)
        self._blocks[-1].nodes.append(node)
        return node

    def value(self, type: Type) -> Node:
        """A value of a type, truth values included."""
        if type.kind == "b":
            return self.cmp("lt", self.load(self.x, 0, I32.vec(type.lanes)), 3)
        return self.load(self.x, 0, type)

    def values(self, *types: Type) -> list[Node]:
        return [self.value(t) for t in types]


X4, B4, I4 = F32.vec(4), BOOL.vec(4), I32.vec(4)
Break = Callable[[Broken], Any]


def body_of(*params: Type, yields: tuple[Node, ...] = ()) -> Block:
    return Block([Node("block_param", t, (), {"index": i}) for i, t in enumerate(params)], [], yields)


def loop(b: Broken, carried: tuple[Node, ...], body: Block, step: int = 1) -> Node:
    bounds = (b.i64(0), b.i64(4), b.i64(step))
    return b.any("for", VOID, *bounds, *carried, body=body)


def outside(b: Broken) -> None:
    """A value of a loop's body used behind the loop."""
    found: list[Node] = []
    b.loop(0, 4, lambda i: found.append(i + 1))
    b.store(b.x, 0, found[0])


def other_branch(b: Broken) -> None:
    found: list[Node] = []
    b.when(b.value(BOOL), lambda: found.append(b.value(F32)), lambda: b.store(b.x, 0, found[0]))


def index_outside(b: Broken) -> None:
    found: list[Node] = []
    b.loop(0, 4, lambda i: found.append(i))
    b.store(b.x, 0, found[0])


def later(b: Broken) -> None:
    first = b.value(F32)
    second = b.any("neg", F32, first)
    b.kernel.body.nodes.reverse()
    b.kernel.body.nodes.insert(0, b.kernel.body.nodes.pop())
    assert second.args


def twice(b: Broken) -> None:
    b.kernel.body.nodes.append(b.value(F32))


def shared_block(b: Broken) -> None:
    block = Block()
    b.any("if", VOID, b.value(BOOL), then=block, other=block)


def deep(b: Broken) -> None:
    def inner(depth: int) -> None:
        if depth:
            b.loop(0, 4, lambda i: inner(depth - 1))

    inner(MAX_DEPTH + 1)


def endless(b: Broken) -> None:
    block = body_of(I64)
    node = loop(b, (), block)
    block.nodes.append(node)


def yields_unknown(b: Broken) -> None:
    found: list[Node] = []
    b.loop(0, 4, lambda i: found.append(i))
    loop(b, (b.i64(0),), body_of(I64, I64, yields=(found[0],)))


def unlisted_result(b: Broken) -> None:
    node = loop(b, (), body_of(I64))
    b.any("result", F32, node, index=0)


def result_index(b: Broken) -> None:
    b.loop(0, 4, lambda i, v: v, (b.value(F32),))[0].attrs["index"] = 1


def result_type(b: Broken) -> None:
    b.loop(0, 4, lambda i, v: v, (b.value(F32),))[0].type = I32


def void_yield(b: Broken) -> None:
    blocks = [Block(), Block()]
    for block in blocks:
        store = Node("fence", VOID, (), {}, b)
        block.nodes, block.yields = [store], (store,)
    b.any("if", VOID, b.value(BOOL), then=blocks[0], other=blocks[1])


def used_void(b: Broken) -> None:
    b.store(b.x, 0, b.i64(1))
    b.any("call", VOID, b.kernel.body.nodes[-1], fn=print)


def dots(b: Broken, w: Type, x: Type, w_max: Any, made: Type, n: int = 1) -> None:
    b.any("group_dot", made, *b.values(*[w] * n, *[x] * n), w_max=w_max)


def param(b: Broken, name: Any, type: Type = PTR, index: int | None = None) -> None:
    made = b.param(name, type)
    if index is not None:
        made.attrs["index"] = index


U32_, I8_8, U8_8 = U8.vec(32), I8.vec(8), U8.vec(8)
TABLE = tuple(range(16))

#: what is done to a kernel, and what must be said of it
BROKEN: dict[str, tuple[Break, str]] = {
    # the kernel and its parameters
    "name": (lambda b: setattr(b.kernel, "name", "k() {\n"), "the name must be an identifier"),
    "param_index": (lambda b: param(b, "y", index=0), "parameter 1 of the kernel must be a `param` with this index"),
    "param_name": (lambda b: param(b, "x"), "a name of its own"),
    "param_no_name": (lambda b: param(b, 3), "a name of its own"),
    "param_type": (lambda b: param(b, "n", I64), "parameters are pointers"),
    "param_begin": (lambda b: param(b, "begin"), "`begin` and `end` are i64"),
    "param_inside": (lambda b: b.any("param", PTR, index=1, name="y"), "does not stand among the nodes"),
    "block_param_inside": (lambda b: b.any("block_param", I64, index=0), "does not stand among the nodes"),
    # any node
    "kind": (lambda b: b.any("frob", F32), "there is no node kind 'frob'"),
    "n_args": (lambda b: b.any("add", F32, b.value(F32)), "add takes 2 arguments, found 1"),
    "no_result": (lambda b: b.any("load", VOID, b.x, b.i64(0)), "load must have a type, found void"),
    "result_of_store": (lambda b: b.any("store", F32, b.x, b.i64(0), b.value(F32)), "store must be void, found f32"),
    "attr_missing": (lambda b: b.any("round", F32, b.value(F32)), "round has attrs ['how'], found []"),
    "attr_unknown": (lambda b: b.any("neg", F32, b.value(F32), fast=1), "neg has attrs [], found ['fast']"),
    "type_bits": (lambda b: b.any("load", Type("f", 8), b.x, b.i64(0)), "there is no type f8"),
    "type_lanes": (lambda b: b.any("load", F32.vec(0), b.x, b.i64(0)), "there is no type f32x0"),
    "too_many_lanes": (lambda b: b.any("load", F32.vec(5000), b.x, b.i64(0)), "at most 4096 lanes"),
    "pointers": (lambda b: b.any("load", PTR.vec(2), b.x, b.i64(0)), "pointers have one"),
    "void_argument": (used_void, "`store` gives no value"),
    # scopes
    "later": (later, "before it is made"),
    "outside": (outside, "outside of the block that it belongs to"),
    "other_branch": (other_branch, "outside of the block that it belongs to"),
    "index_outside": (index_outside, "outside of the block that it belongs to"),
    "twice": (twice, "stands in the kernel twice"),
    "shared_block": (shared_block, "a block belongs to one node only"),
    "deep": (deep, "nested deeper than 64"),
    "endless": (endless, "twice"),
    "yields_unknown": (yields_unknown, "outside of the block that it belongs to"),
    "body_yields": (lambda b: setattr(b.kernel.body, "yields", (b.value(F32),)), "yields nothing"),
    # constants
    "const_count": (lambda b: b.any("const", X4, value=(1.0, 2.0)), "a tuple of 4, found 2"),
    "const_int": (lambda b: b.any("const", F32, value=1), "1 must be a Python float"),
    "const_float": (lambda b: b.any("const", I32, value=1.0), "1.0 must be a Python int"),
    "const_bool": (lambda b: b.any("const", BOOL, value=1), "1 must be a Python bool"),
    "const_range": (lambda b: b.any("const", I8, value=128), "128 does not fit i8"),
    "const_negative": (lambda b: b.any("const", U8, value=-1), "-1 does not fit u8"),
    "const_pointer": (lambda b: b.any("const", PTR, value=0), "no constants of type ptr"),
    # memory
    "load_pointer": (lambda b: b.any("load", F32, b.i64(0), b.i64(0)), "found i64 for ptr"),
    "load_offset": (lambda b: b.any("load", F32, b.x, b.value(I32)), "found i32 for i64"),
    "load_bool": (lambda b: b.any("load", BOOL, b.x, b.i64(0)), "memory holds numbers, found bool"),
    "load_ptr": (lambda b: b.any("load", PTR, b.x, b.i64(0)), "memory holds numbers, found ptr"),
    "store_bool": (lambda b: b.any("store", VOID, b.x, b.i64(0), b.value(BOOL)), "memory holds numbers, found bool"),
    "store_offset": (lambda b: b.any("store", VOID, b.x, b.value(F32), b.value(F32)), "found f32 for i64"),
    "gather_stride": (lambda b: b.any("gather", X4, b.x, b.i64(0), b.value(I32)), "found i32 for i64"),
    "gather_scalar": (lambda b: b.any("gather", F32, b.x, b.i64(0), b.i64(0)), "a scalar is a load"),
    "scatter_scalar": (lambda b: b.any("scatter", VOID, b.x, b.i64(0), b.i64(0), b.value(F32)), "a scalar is a store"),
    "prefetch": (lambda b: b.any("prefetch", VOID, b.i64(0), b.i64(0)), "found i64 for ptr"),
    "offset": (lambda b: b.any("offset", I64, b.x, b.i64(0)), "the result must be ptr, found i64"),
    "scratch_bytes": (lambda b: b.any("scratch", PTR, n_bytes=1 << 40), "n_bytes must be 0 to"),
    "scratch_float": (lambda b: b.any("scratch", PTR, n_bytes=8.0), "n_bytes must be 0 to"),
    "scratch_type": (lambda b: b.any("scratch", I64, n_bytes=8), "the result must be ptr"),
    "table_bytes": (lambda b: b.any("table", PTR, data=b"x" * 16385), "data must be 1 to 16384 bytes, found 16385"),
    "table_empty": (lambda b: b.any("table", PTR, data=b""), "data must be 1 to 16384 bytes, found 0"),
    "table_list": (lambda b: b.any("table", PTR, data=[1, 2]), "data must be 1 to 16384 bytes, found [1, 2]"),
    "table_type": (lambda b: b.any("table", I64, data=b"x"), "the result must be ptr"),
    "atomic_value": (lambda b: b.any("atomic_add", I64, b.x, b.i64(0), b.value(I32)), "the number must be i64"),
    "atomic_type": (lambda b: b.any("atomic_add", I32, b.x, b.i64(0), b.i64(0)), "the result must be i64"),
    # arithmetic
    "add_types": (lambda b: b.any("add", F32, *b.values(F32, F64)), "all arguments must be f32, found f64"),
    "add_lanes": (lambda b: b.any("add", X4, *b.values(X4, F32)), "all arguments must be f32x4, found f32"),
    "add_bool": (lambda b: b.any("add", BOOL, *b.values(BOOL, BOOL)), "add is of numbers, found bool"),
    "neg_pointer": (lambda b: b.any("neg", PTR, b.x), "neg is of numbers, found ptr"),
    "and_float": (lambda b: b.any("and", F32, *b.values(F32, F32)), "and is of integers or truth values, found f32"),
    "shl_float": (lambda b: b.any("shl", F32, *b.values(F32, F32)), "shl is of integers, found f32"),
    "shl_count": (lambda b: b.any("shl", I32, b.value(I32), b.const(32, I32)), "shifts by 0 to 31 bits, found 32"),
    "shr_count": (lambda b: b.any("shr", I8, b.value(I8), b.const(-1, I8)), "shifts by 0 to 7 bits, found -1"),
    "fma_half": (lambda b: b.any("fma", F16, *b.values(F16, F16, F16)), "fma is of f32 or f64, found f16"),
    "fma_int": (lambda b: b.any("fma", I32, *b.values(I32, I32, I32)), "fma is of f32 or f64, found i32"),
    "cmp_types": (lambda b: b.any("cmp", BOOL, *b.values(F32, I32), how="lt"), "the second must be f32, found i32"),
    "cmp_result": (lambda b: b.any("cmp", BOOL, *b.values(X4, X4), how="lt"), "the result must be boolx4, found bool"),
    "cmp_how": (lambda b: b.any("cmp", BOOL, *b.values(F32, F32), how="ult"), "how must be one of lt le gt ge eq ne"),
    "cmp_pointers": (lambda b: b.any("cmp", BOOL, b.x, b.x, how="eq"), "cmp is of numbers, found ptr"),
    "select_condition": (lambda b: b.any("select", X4, *b.values(BOOL, X4, X4)), "the condition must be boolx4"),
    "select_a": (lambda b: b.any("select", X4, *b.values(B4, I4, X4)), "a must be f32x4, found i32x4"),
    "select_b": (lambda b: b.any("select", X4, *b.values(B4, X4, I4)), "b must be f32x4, found i32x4"),
    "round_int": (lambda b: b.any("round", I32, b.value(I32), how="floor"), "round is of floats, found i32"),
    "round_how": (lambda b: b.any("round", F32, b.value(F32), how="odd"), "how must be one of floor ceil"),
    "math_fn": (lambda b: b.any("math", F32, b.value(F32), fn="gamma"), "fn must be one of sqrt exp"),
    "math_f64": (lambda b: b.any("math", F64, b.value(F64), fn="exp"), "exp is of f32"),
    "cast_lanes": (lambda b: b.any("cast", I4, b.value(F32)), "the result must be i32, found i32x4"),
    "cast_bool": (
        lambda b: b.any("cast", BOOL, b.value(F32)),
        "numbers and truth values to numbers, found f32 to bool",
    ),
    "cast_pointer": (lambda b: b.any("cast", I64, b.x), "found ptr to i64"),
    "cast_f64_f16": (lambda b: b.any("cast", F16, b.value(F64)), "f64 to f16 must be cast over f32"),
    "bitcast_size": (lambda b: b.any("bitcast", I64, b.value(F32)), "numbers of equal size, found f32 to i64"),
    "bitcast_bool": (lambda b: b.any("bitcast", U8, b.value(BOOL.vec(8))), "numbers of equal size, found boolx8 to u8"),
    # lanes
    "splat_scalar": (lambda b: b.any("splat", F32, b.value(F32)), "splat makes a vector, found f32"),
    "splat_vector": (lambda b: b.any("splat", F32.vec(8), b.value(X4)), "the argument must be f32, found f32x4"),
    "extract_scalar": (lambda b: b.any("extract", F32, b.value(F32), lane=0), "extract is of a vector, found f32"),
    "extract_lane": (lambda b: b.any("extract", F32, b.value(X4), lane=4), "lane must be 0 to 3, found 4"),
    "extract_type": (lambda b: b.any("extract", I32, b.value(X4), lane=0), "the result must be f32, found i32"),
    "insert_scalar": (lambda b: b.any("insert", X4, *b.values(X4, I32), lane=0), "the scalar must be f32, found i32"),
    "insert_type": (lambda b: b.any("insert", I4, *b.values(X4, F32), lane=0), "the vector must be i32x4, found f32x4"),
    "insert_lane": (lambda b: b.any("insert", X4, *b.values(X4, F32), lane=-1), "lane must be 0 to 3, found -1"),
    "shuffle_lane": (
        lambda b: b.any("shuffle", X4, *b.values(X4, X4), lanes=(0, 1, 8, 2)),
        "lanes must be 0 to 7, found 8",
    ),
    "shuffle_list": (lambda b: b.any("shuffle", X4, *b.values(X4, X4), lanes=[0, 1, 2, 3]), "by a tuple of lanes"),
    "shuffle_types": (lambda b: b.any("shuffle", X4, *b.values(X4, I4), lanes=(0, 1, 2, 3)), "b must be f32x4"),
    "shuffle_count": (lambda b: b.any("shuffle", X4, *b.values(X4, X4), lanes=(0, 1)), "the result must be f32x2"),
    "shuffle_scalar": (lambda b: b.any("shuffle", X4, *b.values(F32, F32), lanes=(0, 1)), "shuffle is of vectors"),
    "reduce_lanes": (
        lambda b: b.any("reduce", F32, b.value(F32.vec(6)), how="add"),
        "2^k lanes of numbers, found f32x6",
    ),
    "reduce_scalar": (lambda b: b.any("reduce", F32, b.value(F32), how="add"), "2^k lanes of numbers, found f32"),
    "reduce_how": (lambda b: b.any("reduce", F32, b.value(X4), how="mul"), "how must be one of add min max"),
    "reduce_type": (lambda b: b.any("reduce", X4, b.value(X4), how="add"), "the result must be f32, found f32x4"),
    "lookup_type": (lambda b: b.any("lookup", I32, b.value(U8), table=TABLE), "lookup makes i8 or u8, found i32"),
    "lookup_index": (lambda b: b.any("lookup", I8, b.value(I8), table=TABLE), "the index must be u8, found i8"),
    "lookup_count": (lambda b: b.any("lookup", I8, b.value(U8), table=(1, 2)), "a tuple of 16 numbers"),
    "lookup_range": (lambda b: b.any("lookup", I8, b.value(U8), table=(200, *TABLE[1:])), "200 does not fit i8"),
    "dot_types": (lambda b: dots(b, I32.vec(8), I8_8, 1, I32.vec(2)), "w must be u8 or i8"),
    "dot_lanes": (lambda b: dots(b, U8.vec(6), I8.vec(6), 1, I32), "w must be u8 or i8 with 4 n lanes"),
    "dot_four": (lambda b: dots(b, U8.vec(4), I8.vec(4), 1, I32), "(n > 1), found u8x4"),
    "dot_x": (lambda b: dots(b, U8_8, U8_8, 1, I32.vec(2)), "argument 1 must be i8x8, found u8x8"),
    "dot_result": (lambda b: dots(b, U8_8, I8_8, 1, I4), "the result must be i32x2, found i32x4"),
    "dot_w_max": (lambda b: dots(b, U8_8, I8_8, 256, I32.vec(2)), "w_max must be 1 to 255, found 256"),
    "dot_w_max_signed": (lambda b: dots(b, I8_8, I8_8, 129, I32.vec(2)), "w_max must be 1 to 128, found 129"),
    "dot_odd": (lambda b: b.any("group_dot", I32.vec(2), b.value(U8_8), w_max=1), "as many w as x, found 1"),
    "dot_overflow": (lambda b: dots(b, U8_8, I8_8, 255, I32.vec(2), 16578), "may overflow i32"),
    # blocks
    "for_bounds": (
        lambda b: b.any("for", VOID, b.i64(0), b.value(I32), b.i64(1), body=body_of(I64)),
        "stop must be i64",
    ),
    "for_args": (lambda b: b.any("for", VOID, b.i64(0), body=body_of(I64)), "for takes start, stop, step and a block"),
    "for_block": (lambda b: b.any("for", VOID, b.i64(0), b.i64(4), b.i64(1), body=None), "and a block"),
    "for_step": (lambda b: loop(b, (), body_of(I64), step=0), "the step must be positive, found 0"),
    "for_index": (lambda b: loop(b, (), body_of(I32)), "the body must take i64"),
    "for_params": (
        lambda b: loop(b, (b.value(F32),), body_of(I64)),
        "the body must take i64 and what is carried ['f32']",
    ),
    "for_yields": (
        lambda b: loop(b, (b.value(F32),), body_of(I64, F32)),
        "must yield what is carried ['f32'], found []",
    ),
    "for_param_kind": (lambda b: loop(b, (), Block([b.value(I64)])), "must be a `block_param` of its own"),
    "if_condition": (
        lambda b: b.any("if", VOID, b.value(B4), then=Block(), other=Block()),
        "the condition must be bool",
    ),
    "if_blocks": (
        lambda b: b.any("if", VOID, b.value(BOOL), then=Block(), other=None),
        "two blocks without parameters",
    ),
    "if_yields": (
        lambda b: b.any("if", VOID, b.value(BOOL), then=Block(yields=(b.x,)), other=Block()), "yield the same types",
    ),
    "void_yield": (void_yield, "yields `fence`, which gives no value"),
    "result_parent": (lambda b: b.any("result", F32, b.value(F32), index=0), "result is of a for or an if, found load"),
    "result_unlisted": (unlisted_result, "the for must list it in its results"),
    "result_index": (result_index, "the for yields 1 values, found index 1"),
    "result_type": (result_type, "the result must be f32, found i32"),
    "results_foreign": (
        lambda b: loop(b, (), body_of(I64)).attrs.update(results=[b.x]),
        "results must list `result` nodes of this node",
    ),
    "call_fn": (lambda b: b.any("call", VOID, fn="print"), "fn must be a Python function, found 'print'"),
    "call_type": (lambda b: b.any("call", PTR, fn=print), "call gives numbers or nothing, found ptr"),
}  # fmt: skip


def broken(name: str) -> Kernel:
    b = Broken()
    BROKEN[name][0](b)
    return b.finish()


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels_are_refused(name: str) -> None:
    with pytest.raises(KernelError) as caught:
        verify(broken(name))
    text = str(caught.value)
    assert text.startswith("kernel ") and BROKEN[name][1] in text and "\n" not in text


def test_every_kind_is_broken_somehow() -> None:
    """Each kind with a rule of its own appears in a complaint's line."""
    lines = []
    for name in BROKEN:
        with pytest.raises(KernelError) as caught:
            verify(broken(name))
        lines.append(str(caught.value))
    text = "\n".join(lines)
    same_rule = {"sub", "mul", "div", "rem", "min", "max", "abs", "or", "xor", "fence"}  # as add, neg, and; no rule
    missing = [k for k in KINDS if k not in same_rule and f"{k}" not in text]
    assert missing == []


def test_the_line_is_named() -> None:
    with pytest.raises(KernelError) as caught:
        verify(broken("add_types"))
    assert str(caught.value) == ("kernel broken: `%2: f32 = add %0, %1`: all arguments must be f32, found f64")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda b: b.const(300, U8), "300 does not fit u8"),
        (lambda b: b.const(-129, I8), "does not fit i8"),
        (lambda b: b.const(1.5, I32), "1.5 does not fit i32"),
        (lambda b: b.const(float("nan"), I32), "nan does not fit i32"),
        (lambda b: b.const((1, 2), I4), "needs 4 numbers, found 2"),
        (lambda b: b.const(0, PTR), "no constants of type ptr"),
        (lambda b: b.loop(0, 4, lambda i: None, step=0), "step must be positive"),
        (lambda b: b.loop(0, 1 << 40, lambda i: None, unroll=True), "too long to unroll"),
        (lambda b: b.add(b.value(F32), b.value(I32)), "do not fit together"),
        (lambda b: b.concat(*[b.value(F32)] * 3), "expected 2, 4, 8, ... values, found 3"),
        (lambda b: b.concat(b.value(F32), b.value(I32)), "values of one type, found f32 and i32"),
    ],
)  # fmt: skip
def test_the_builder_refuses(body: Break, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        body(Broken())


def test_the_builder_folds_like_the_interpreter() -> None:
    b = Builder("fold")
    least, most = -(2**63), 2**63 - 1
    assert b.add(b.i64(most), 1).attrs["value"] == least
    assert b.div(b.i64(least), -1).attrs["value"] == least
    assert b.rem(b.i64(least), -1).attrs["value"] == 0
    assert b.mul(b.i64(most), 2).attrs["value"] == -2
    assert b.div(b.i64(-7), 2).attrs["value"] == -3
    assert b.rem(b.i64(-7), 2).attrs["value"] == -1
