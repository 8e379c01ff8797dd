"""Builds kernel IR: `b.add(x, y)`, `x + 1.0`, `b.loop(...)`. Types are checked here, at the call that is wrong.

Pure nodes are value-numbered within their block and the blocks around it, and integer arithmetic on constants is
folded, so lowerings may recompute indices freely. Next module: `printer.py`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gml.errors import Error
from gml.kernel_ir.nodes import BOOL, F32, I32, I64, KINDS, PTR, VOID, Block, Kernel, Node, Type

Operand: TypeAlias = "Node | int | float"


#: most copies of a loop's body that `unroll` makes
MAX_UNROLLED = 4096


class KernelError(Error):
    """A lowering built kernel IR that does not fit together: a fault in an op or a pass, not in the user's model."""


class Builder:
    """Appends nodes to the innermost open block of one kernel."""

    def __init__(self, name: str) -> None:
        self.kernel = Kernel(name, [], Block())
        self._blocks = [self.kernel.body]
        self._numbers: list[dict[Any, Node]] = [{}]

    # -- parameters and constants --------------------------------------------------------------------------------------

    def param(self, name: str, type: Type = PTR) -> Node:
        """A new parameter of the kernel."""
        node = Node("param", type, (), {"index": len(self.kernel.params), "name": name}, self)
        self.kernel.params = [*self.kernel.params, node]
        return node

    def const(self, value: Any, type: Type = F32) -> Node:
        """A number in every lane, or one number per lane given as a tuple.

        The number is kept as the type holds it: floats rounded, integers signed or unsigned as the type is (a bit
        pattern may be given either way). KernelError for an integer that does not fit.
        """
        if isinstance(value, (tuple, list)):
            if len(value) != type.lanes:
                raise KernelError(f"const: {type} needs {type.lanes} numbers, found {len(value)}")
            value = tuple(_number(v, type) for v in value)
            value = value[0] if type.lanes == 1 else value
        else:
            value = _number(value, type)
        return self._node("const", type, (), {"value": value})

    def i64(self, value: int) -> Node:
        """A scalar i64 constant."""
        return self.const(int(value), I64)

    # -- memory --------------------------------------------------------------------------------------------------------

    def load(self, pointer: Node, offset: Operand, type: Type, *, constant: bool = False) -> Node:
        """`type.n_bytes` bytes at pointer + offset."""
        return self._node("load", type, (pointer, self._i64(offset)), {"constant": constant} if constant else {})

    def store(self, pointer: Node, offset: Operand, value: Node) -> None:
        """All lanes of `value` to pointer + offset."""
        self._node("store", VOID, (pointer, self._i64(offset), value), {})

    def gather(self, pointer: Node, offset: Operand, stride: Operand, type: Type) -> Node:
        """Lane i from pointer + offset + i * stride."""
        if type.lanes == 1:
            return self.load(pointer, offset, type)
        return self._node("gather", type, (pointer, self._i64(offset), self._i64(stride)), {})

    def scatter(self, pointer: Node, offset: Operand, stride: Operand, value: Node) -> None:
        """Lane i to pointer + offset + i * stride."""
        if value.lanes == 1:
            self.store(pointer, offset, value)
        else:
            self._node("scatter", VOID, (pointer, self._i64(offset), self._i64(stride), value), {})

    def prefetch(self, pointer: Node, offset: Operand) -> None:
        """Say that the line at pointer + offset will be read soon."""
        self._node("prefetch", VOID, (pointer, self._i64(offset)), {})

    def offset(self, pointer: Node, n_bytes: Operand, *, apart: bool = False) -> Node:
        """The pointer moved by bytes.

        apart: kept in a register of its own, where a compiler would rather count from another pointer.
        """
        if isinstance(n_bytes, int) and n_bytes == 0 and not apart:
            return pointer
        return self._node("offset", PTR, (pointer, self._i64(n_bytes)), {"apart": True} if apart else {})

    def scratch(self, n_bytes: int) -> Node:
        """Memory private to this call of the kernel, aligned to 64 bytes."""
        return self._node("scratch", PTR, (), {"n_bytes": int(n_bytes)})

    def table(self, data: bytes) -> Node:
        """Constant memory with these bytes: what is looked up in it is loaded from an offset that was computed."""
        return self._node("table", PTR, (), {"data": bytes(data)})

    def atomic_add(self, pointer: Node, offset: Operand, value: Operand) -> Node:
        """Add to the i64 at pointer + offset; the old value."""
        return self._node("atomic_add", I64, (pointer, self._i64(offset), self._i64(value)), {})

    def fence(self) -> None:
        """Memory operations before it are not moved behind it."""
        self._node("fence", VOID, (), {})

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def add(self, a: Operand, b: Operand) -> Node:
        return self._binary("add", a, b)

    def sub(self, a: Operand, b: Operand) -> Node:
        return self._binary("sub", a, b)

    def mul(self, a: Operand, b: Operand) -> Node:
        return self._binary("mul", a, b)

    def div(self, a: Operand, b: Operand) -> Node:
        return self._binary("div", a, b)

    def rem(self, a: Operand, b: Operand) -> Node:
        return self._binary("rem", a, b)

    def min(self, a: Operand, b: Operand) -> Node:
        return self._binary("min", a, b)

    def max(self, a: Operand, b: Operand) -> Node:
        return self._binary("max", a, b)

    def and_(self, a: Operand, b: Operand) -> Node:
        return self._binary("and", a, b)

    def or_(self, a: Operand, b: Operand) -> Node:
        return self._binary("or", a, b)

    def xor(self, a: Operand, b: Operand) -> Node:
        return self._binary("xor", a, b)

    def shl(self, a: Operand, b: Operand) -> Node:
        return self._binary("shl", a, b)

    def shr(self, a: Operand, b: Operand) -> Node:
        return self._binary("shr", a, b)

    def neg(self, a: Node) -> Node:
        return self._node("neg", a.type, (a,), {})

    def abs(self, a: Node) -> Node:
        return self._node("abs", a.type, (a,), {})

    def fma(self, a: Operand, b: Operand, c: Operand) -> Node:
        """a * b + c, rounded once."""
        a, b, c = self._same(a, b, c)
        return self._node("fma", a.type, (a, b, c), {})

    def cmp(self, how: str, a: Operand, b: Operand) -> Node:
        """A truth value per lane; how: lt le gt ge eq ne."""
        a, b = self._same(a, b)
        return self._node("cmp", BOOL.vec(a.lanes), (a, b), {"how": how})

    def select(self, condition: Node, a: Operand, b: Operand) -> Node:
        """a where the condition holds, else b."""
        a, b = self._same(a, b, lanes=condition.lanes)
        if condition.lanes == 1 and a.lanes > 1:
            condition = self.splat(condition, a.lanes)
        return self._node("select", a.type, (condition, a, b), {})

    def round(self, how: str, a: Node) -> Node:
        """floor, ceil, trunc, even or away."""
        return self._node("round", a.type, (a,), {"how": how})

    def math(self, fn: str, a: Node) -> Node:
        """sqrt exp log sin cos tanh erf of f32."""
        return self._node("math", a.type, (a,), {"fn": fn})

    def cast(self, a: Node, type: Type) -> Node:
        """By value to a scalar kind; lanes stay."""
        type = type.vec(a.lanes)
        return a if a.type == type else self._node("cast", type, (a,), {})

    def bitcast(self, a: Node, type: Type) -> Node:
        """The same bits as another type of the same size."""
        return a if a.type == type else self._node("bitcast", type, (a,), {})

    # -- lanes ---------------------------------------------------------------------------------------------------------

    def splat(self, a: Node, lanes: int) -> Node:
        """A scalar in every lane; what has that many lanes already stays as it is."""
        if a.lanes not in (1, lanes):
            raise KernelError(f"splat: expected a scalar or {lanes} lanes, found {a.type}")
        return a if a.lanes == lanes else self._node("splat", a.type.vec(lanes), (a,), {})

    def extract(self, a: Node, lane: int) -> Node:
        """One lane as a scalar."""
        return a if a.lanes == 1 else self._node("extract", a.type.scalar, (a,), {"lane": lane})

    def insert(self, a: Node, scalar: Node, lane: int) -> Node:
        """`a` with one lane replaced."""
        return self._node("insert", a.type, (a, scalar), {"lane": lane})

    def shuffle(self, a: Node, b: Node | None, lanes: Sequence[int]) -> Node:
        """Lanes chosen by index from a's lanes followed by b's."""
        if len(lanes) == 1:
            return self.extract(a if b is None or lanes[0] < a.lanes else b, lanes[0] % a.lanes)
        return self._node("shuffle", a.type.vec(len(lanes)), (a, a if b is None else b), {"lanes": tuple(lanes)})

    def concat(self, first: Node, *more: Node) -> Node:
        """The lanes of 2, 4, 8, ... values of the same type, one after the other."""
        parts = [first, *more]
        if len(parts) & (len(parts) - 1):
            raise KernelError(f"concat: expected 2, 4, 8, ... values, found {len(parts)}")
        while len(parts) > 1:
            parts = [self._joined(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def _joined(self, a: Node, b: Node) -> Node:
        if a.type != b.type:
            raise KernelError(f"concat: expected values of one type, found {a.type} and {b.type}")
        if a.lanes == 1:
            return self.insert(self.splat(a, 2), b, 1)
        return self.shuffle(a, b, range(2 * a.lanes))

    def slice(self, a: Node, start: int, lanes: int) -> Node:
        """Some neighbouring lanes."""
        return self.extract(a, start) if lanes == 1 else self.shuffle(a, None, range(start, start + lanes))

    def reduce(self, how: str, a: Node) -> Node:
        """add, min or max of all lanes, halves folded."""
        return a if a.lanes == 1 else self._node("reduce", a.type.scalar, (a,), {"how": how})

    def lookup(self, table: Sequence[int], index: Node, type: Type) -> Node:
        """Each lane (u8, below 16) replaced by its entry of a table of 16 eight-bit numbers."""
        return self._node("lookup", type.vec(index.lanes), (index,), {"table": tuple(table)})

    def group_dot(self, w: Sequence[Node], x: Sequence[Node], w_max: int) -> Node:
        """i32 sums over all pairs of 4 neighbouring products; `w_max` bounds |w|."""
        return self._node("group_dot", I32.vec(w[0].lanes // 4), (*w, *x), {"w_max": w_max})

    # -- structure -----------------------------------------------------------------------------------------------------

    def loop(
        self,
        start: Operand,
        stop: Operand,
        body: Callable[..., Sequence[Node] | Node | None],
        carried: Sequence[Node] = (),
        *,
        step: Operand = 1,
        unroll: bool = False,
    ) -> tuple[Node, ...]:
        """for index in range(start, stop, step): carried = body(index, *carried). Gives the last carried values.

        A loop of known trip count 0 is dropped, of 1 inlined; with `unroll` all of known count are.
        """
        bounds = [_known(v) if isinstance(v, Node) else int(v) for v in (start, stop, step)]
        if bounds[2] is not None and bounds[2] < 1:
            raise KernelError(f"loop: the step must be positive, found {bounds[2]}")
        if all(v is not None for v in bounds):
            indices = range(*bounds)  # type: ignore[arg-type]
            if unroll and indices[MAX_UNROLLED:]:
                raise KernelError(f"loop: {indices} is too long to unroll; at most {MAX_UNROLLED} times")
            if unroll or not indices[1:]:
                values = tuple(carried)
                for i in indices:
                    values = _tuple(body(self.i64(i), *values))
                return values
        block = Block()
        block.params = [
            Node("block_param", t, (), {"index": i}, self) for i, t in enumerate([I64, *(c.type for c in carried)])
        ]
        block.yields = self._inside(block, lambda: _tuple(body(*block.params)))
        if [y.type for y in block.yields] != [c.type for c in carried]:
            raise KernelError(f"loop: carries {[c.type for c in carried]} but yields {[y.type for y in block.yields]}")
        node = self._node("for", VOID, (self._i64(start), self._i64(stop), self._i64(step), *carried), {"body": block})
        return tuple(self._result(node, i, c.type) for i, c in enumerate(carried))

    def when(
        self,
        condition: Node,
        then: Callable[[], Sequence[Node] | Node | None],
        other: Callable[[], Sequence[Node] | Node | None] | None = None,
    ) -> tuple[Node, ...]:
        """Do `then` where the (scalar) condition holds, else `other`; both yield values of the same types."""
        blocks = (Block(), Block())
        for block, make in zip(blocks, (then, other or (lambda: None)), strict=True):
            block.yields = self._inside(block, lambda make=make: _tuple(make()))
        types = [y.type for y in blocks[0].yields]
        if types != [y.type for y in blocks[1].yields]:
            raise KernelError(f"when: yields {types} and {[y.type for y in blocks[1].yields]}")
        node = self._node("if", VOID, (condition,), {"then": blocks[0], "other": blocks[1]})
        return tuple(self._result(node, i, t) for i, t in enumerate(types))

    def call(self, fn: Any, *args: Node, type: Type = VOID) -> Node:
        """Call a Python function with these values (map_custom)."""
        return self._node("call", type, args, {"fn": fn})

    @property
    def block(self) -> Block:
        """The innermost open block."""
        return self._blocks[-1]

    def is_open(self, block: Block) -> bool:
        """Whether values of this block can be used now."""
        return block in self._blocks

    def emit(self, kind: str, type: Type, args: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
        """A node of any kind without blocks, as it is."""
        return self._node(kind, type, args, attrs)

    def finish(self) -> Kernel:
        """The kernel; nothing can be added afterwards."""
        if len(self._blocks) != 1:
            raise KernelError(f"kernel {self.kernel.name}: {len(self._blocks) - 1} blocks are still open")
        self._blocks = []
        return self.kernel

    # -- inside --------------------------------------------------------------------------------------------------------

    def _inside(self, block: Block, make: Callable[[], tuple[Node, ...]]) -> tuple[Node, ...]:
        self._blocks.append(block)
        self._numbers.append({})
        try:
            return make()
        finally:
            self._blocks.pop()
            self._numbers.pop()

    def _result(self, node: Node, index: int, type: Type) -> Node:
        made = self._node("result", type, (node,), {"index": index})
        node.attrs.setdefault("results", []).append(made)
        return made

    def _i64(self, value: Operand) -> Node:
        if isinstance(value, Node):
            return value if value.type == I64 else self.cast(value, I64)
        return self.const(int(value), I64)

    def _same(self, *operands: Operand, lanes: int = 1) -> tuple[Node, ...]:
        """Operands with one type: numbers take it, scalars are splatted."""
        nodes = [v for v in operands if isinstance(v, Node)]
        if not nodes:
            raise KernelError("an operation needs at least one value that is not a Python number")
        scalar = nodes[0].type.scalar
        lanes = max(lanes, *(n.lanes for n in nodes))
        made = []
        for v in operands:
            if not isinstance(v, Node):
                made.append(self.const(v, scalar.vec(lanes)))
            elif v.type.scalar != scalar or v.lanes not in (1, lanes):
                raise KernelError(f"operands of types {[str(n.type) for n in nodes]} do not fit together; cast them")
            else:
                made.append(self.splat(v, lanes))
        return tuple(made)

    def _binary(self, kind: str, a: Operand, b: Operand) -> Node:
        a, b = self._same(a, b)
        if a.type == I64:
            folded = _fold(kind, _known(a), _known(b), a, b)
            if folded is not None:
                return folded if isinstance(folded, Node) else self.const(folded, I64)
        return self._node(kind, a.type, (a, b), {})

    def _node(self, kind: str, type: Type, args: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
        pure = KINDS[kind][2]
        key = None
        if pure and kind != "result":
            key = (kind, type, args, tuple(sorted((k, _number_key(v)) for k, v in attrs.items())))
            for numbers in reversed(self._numbers):
                if key in numbers:
                    return numbers[key]
        node = Node(kind, type, args, attrs, self)
        self._blocks[-1].nodes.append(node)
        if key is not None:
            self._numbers[-1][key] = node
        return node


def _number(value: Any, type: Type) -> Any:
    """A constant as a lane of this type holds it."""
    if type.kind == "f":
        return _rounded(float(value), type.bits)
    if type.kind == "b":
        return bool(value)
    if not type.is_int:
        raise KernelError(f"const: there are no constants of type {type}")
    try:
        number = int(value)
    except (ValueError, OverflowError):  # NaN, infinity
        raise KernelError(f"const: {value!r} does not fit {type.scalar}") from None
    if number != value or not -(1 << type.bits - 1) <= number < 1 << type.bits:
        raise KernelError(f"const: {value!r} does not fit {type.scalar}")
    return wrap(number, type)


def _rounded(value: float, bits: int) -> float:
    """To the nearest float of so many bits, half to even."""
    code = {16: "<e", 32: "<f", 64: "<d"}[bits]
    try:
        return struct.unpack(code, struct.pack(code, value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def wrap(number: int, type: Type) -> int:
    """An integer modulo 2^bits, in the range of the type."""
    number &= (1 << type.bits) - 1
    return number - (1 << type.bits) if type.kind == "i" and number >> type.bits - 1 else number


def _number_key(value: Any) -> Any:
    """Constants that compare equal but differ (0.0 and -0.0, 1 and 1.0) are different numbers here."""
    return (type(value).__name__, repr(value)) if isinstance(value, (float, tuple)) else value


def _tuple(values: Sequence[Node] | Node | None) -> tuple[Node, ...]:
    if values is None:
        return ()
    return (values,) if isinstance(values, Node) else tuple(values)


def _known(node: Node) -> int | None:
    return node.attrs["value"] if node.kind == "const" and node.type == I64 else None


def _fold(kind: str, x: int | None, y: int | None, a: Node, b: Node) -> int | Node | None:
    """Arithmetic on index constants, and the neutral elements."""
    if x is not None and y is not None:
        if kind in ("div", "rem") and y:
            quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
            return wrap(quotient if kind == "div" else x - quotient * y, I64)
        simple = {"add": x + y, "sub": x - y, "mul": x * y, "min": min(x, y), "max": max(x, y)}
        return wrap(simple[kind], I64) if kind in simple else None
    if kind == "add" and 0 in (x, y):
        return b if x == 0 else a
    if kind == "sub" and y == 0:
        return a
    if kind == "mul" and 0 in (x, y):
        return 0
    if kind == "mul" and 1 in (x, y):
        return b if x == 1 else a
    if kind == "div" and y == 1:
        return a
    if kind == "rem" and y == 1:
        return 0
    return None
