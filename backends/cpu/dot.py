"""Integer dot products and byte look-ups, the two kinds whose code differs from target to target.

Arrives: the nodes `group_dot` and `lookup`; leaves: LLVM IR in a `Writer`. Vectors of any size are cut into registers.
Every target gives the same integers: nothing saturates and nothing overflows. Next module: `order.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gml.backends.cpu.target import Target
from gml.backends.cpu.text import Writer, constant, llvm_type, suffix, words
from gml.kernel_ir import BOOL, I8, I16, I32, U8, Node, Type
from gml.kernel_ir.nodes import KINDS

#: a pair's weight and values by number: one register of the weight, and of each node's values when it is asked for
Pairs = Callable[[int], "tuple[str, Iterator[str]]"]
#: (writer, pairs, how many, number of nodes, type of a register of weights, w_max) to the i32 sums, one per node
Dot = Callable[[Writer, Pairs, int, int, Type, int], "list[str]"]

#: most that a value of `group_dot` can be
X_MAX = 127


def group_dots(out: Writer, nodes: Sequence[Node], target: Target, write: Callable[[Node], None]) -> None:
    """i32 sums of four neighbouring products over all pairs, a register at a time, for nodes with the same weights.

    `write(node)` is called before an operand is used the first time. A weight is used for all nodes before the next
    one, and weights unpacked from the same bytes follow each other: so few are held in registers at a time. (The order
    of sums of integers makes no difference.)
    """
    n, t, w_max = len(nodes[0].args) // 2, nodes[0].args[0].type, nodes[0].attrs["w_max"]
    origins = [_origin(w) for w in nodes[0].args[:n]]
    order = sorted(range(n), key=lambda i: origins.index(origins[i]))
    emit, widths = _choose(target, t, w_max)
    width = next((w for w in widths if t.lanes % w == 0), 0)
    if not width:
        emit, width = _anywhere, t.lanes
    cut: dict[Node, list[str]] = {}

    def pieces(node: Node) -> list[str]:
        if node not in cut:
            write(node)
            cut[node] = out.pieces(node, width)
        return cut[node]

    sums: list[list[str]] = [[] for _ in nodes]
    for piece in range(t.lanes // width):

        def pairs(i: int, piece: int = piece) -> tuple[str, Iterator[str]]:
            i = order[i]
            return pieces(nodes[0].args[i])[piece], (pieces(node.args[n + i])[piece] for node in nodes)

        for found, total in zip(sums, emit(out, pairs, n, len(nodes), t.vec(width), w_max), strict=True):
            found.append(total)
    for node, found in zip(nodes, sums, strict=True):
        out.names[node] = out.join(found, I32.vec(width // 4))


def _origin(node: Node) -> Node:
    """The load that a vector of codes is unpacked from, about."""
    while node.args and KINDS[node.kind][2] and node.kind != "result":
        node = node.args[0]
    return node


def _choose(target: Target, t: Type, w_max: int) -> tuple[Dot, tuple[int, ...]]:
    """The code for weights of a type and range, and the bytes that its registers can have."""
    signed = t.kind == "i" or w_max <= 127
    if target.dot == "maddubs" and 2 * w_max * X_MAX <= 32767:
        return _maddubs, (32, 16)
    if target.dot == "vpdpbusd":
        return _vpdpbusd, (32, 16)
    if target.dot == "usdot" and t.kind == "u":
        return _usdot, (16, 8)
    if target.dot in ("sdot", "usdot") and signed:
        return _sdot, (16, 8)
    if target.arch == "aarch64":
        return (_smull if signed else _anywhere), (8,)
    if target.arch == "x86_64":
        return _maddwd, ((16, 8) if target.vector_bytes == 32 else (8,))
    return _anywhere, ()


def _plus(out: Writer, vector: str, total: str, more: str) -> str:
    """A sum that starts with nothing."""
    return out.new(f"add {vector} {total}, {more}") if total else more


# -- x86 ---------------------------------------------------------------------------------------------------------------

_MADDUBS = {32: "llvm.x86.avx2.pmadd.ub.sw", 16: "llvm.x86.ssse3.pmadd.ub.sw.128"}
_MADDWD = {16: "llvm.x86.avx2.pmadd.wd", 8: "llvm.x86.sse2.pmadd.wd"}
_SIGN = {32: "llvm.x86.avx2.psign.b", 16: "llvm.x86.ssse3.psign.b.128"}


def _unsigned(out: Writer, w: str, xs: Iterator[str], t: Type) -> tuple[str, Iterator[str]]:
    """The same products with a weight's signs moved to the values: |w| times x sign(w)."""
    if t.kind == "u":
        return w, xs
    v = llvm_type(t)
    size = out.call(v, f"llvm.abs.{suffix(t)}", [(v, w), ("i1", "false")])
    return size, (out.call(v, _SIGN[t.lanes], [(v, x), (v, w)]) for x in xs)


def _maddubs(out: Writer, pairs: Pairs, n: int, n_rows: int, t: Type, w_max: int) -> list[str]:
    """AVX2: products are summed in 16 bits as long as they cannot overflow, then widened by a product with ones."""
    lanes = t.lanes
    v8, v16, v32 = llvm_type(t), llvm_type(I16.vec(lanes // 2)), words(lanes // 4)
    per_sum = 32767 // (2 * w_max * X_MAX)
    ones = constant(I16.vec(lanes // 2), 1)
    totals = [""] * n_rows
    for start in range(0, n, per_sum):
        short = [""] * n_rows
        for i in range(start, min(start + per_sum, n)):
            w, xs = _unsigned(out, *pairs(i), t)
            for j, x in enumerate(xs):
                short[j] = _plus(out, v16, short[j], out.call(v16, _MADDUBS[lanes], [(v8, w), (v8, x)]))
        wide = [out.call(v32, _MADDWD[lanes // 2], [(v16, v), (v16, ones)]) for v in short]
        totals = [_plus(out, v32, a, b) for a, b in zip(totals, wide, strict=True)]
    return totals


def _vpdpbusd(out: Writer, pairs: Pairs, n: int, n_rows: int, t: Type, w_max: int) -> list[str]:
    """VNNI: four products added to 32 bits at once. Operands are words; LLVM upgrades the call where it wants bytes."""
    v8, v32 = llvm_type(t), words(t.lanes // 4)
    name = f"llvm.x86.avx512.vpdpbusd.{t.lanes * 8}"
    totals = ["zeroinitializer"] * n_rows
    for i in range(n):
        w, xs = _unsigned(out, *pairs(i), t)
        w = out.new(f"bitcast {v8} {w} to {v32}")
        for j, x in enumerate(xs):
            x = out.new(f"bitcast {v8} {x} to {v32}")
            totals[j] = out.call(v32, name, [(v32, totals[j]), (v32, w), (v32, x)])
    return totals


def _maddwd(out: Writer, pairs: Pairs, n: int, n_rows: int, t: Type, w_max: int) -> list[str]:
    """Any x86: bytes widened to 16 bits, products of neighbours summed in 32."""
    v16, v32 = llvm_type(I16.vec(t.lanes)), words(t.lanes // 2)

    def product(a: str, b: str) -> str:
        return out.call(v32, _MADDWD[t.lanes], [(v16, a), (v16, b)])

    totals = _widened(out, pairs, n, n_rows, t, product, v32)
    return [_fold(out, total, I32.vec(t.lanes // 2)) for total in totals]


# -- AArch64 -----------------------------------------------------------------------------------------------------------


def _dot_instruction(name: str) -> Dot:
    def emit(out: Writer, pairs: Pairs, n: int, n_rows: int, t: Type, w_max: int) -> list[str]:
        v8, sums = llvm_type(t), I32.vec(t.lanes // 4)
        v32 = llvm_type(sums)
        full = f"llvm.aarch64.neon.{name}.{suffix(sums)}.{suffix(t)}"
        totals = ["zeroinitializer"] * n_rows
        for i in range(n):
            w, xs = pairs(i)
            totals = [out.call(v32, full, [(v32, a), (v8, w), (v8, x)]) for a, x in zip(totals, xs, strict=True)]
        return totals

    return emit


_sdot, _usdot = _dot_instruction("sdot"), _dot_instruction("usdot")


def _smull(out: Writer, pairs: Pairs, n: int, n_rows: int, t: Type, w_max: int) -> list[str]:
    """Eight products of signed bytes in 16 bits, neighbours added to 32."""
    v8, v16, v32 = llvm_type(t), llvm_type(I16.vec(8)), words(4)
    totals = [""] * n_rows
    for i in range(n):
        w, xs = pairs(i)
        for j, x in enumerate(xs):
            product = out.call(v16, "llvm.aarch64.neon.smull.v8i16", [(v8, w), (v8, x)])
            wide = out.call(v32, "llvm.aarch64.neon.saddlp.v4i32.v8i16", [(v16, product)])
            totals[j] = _plus(out, v32, totals[j], wide)
    return [_fold(out, total, I32.vec(4)) for total in totals]


# -- anywhere ----------------------------------------------------------------------------------------------------------


def _anywhere(out: Writer, pairs: Pairs, n: int, n_rows: int, t: Type, w_max: int) -> list[str]:
    """Products in 16 bits, which hold them; sums in 32."""
    v16, v32 = llvm_type(I16.vec(t.lanes)), words(t.lanes)

    def product(a: str, b: str) -> str:
        return out.new(f"sext {v16} {out.new(f'mul {v16} {a}, {b}')} to {v32}")

    totals = _widened(out, pairs, n, n_rows, t, product, v32)
    return [_fold(out, _fold(out, total, I32.vec(t.lanes)), I32.vec(t.lanes // 2)) for total in totals]


def _widened(
    out: Writer, pairs: Pairs, n: int, n_rows: int, t: Type, product: Callable[[str, str], str], sums: str
) -> list[str]:
    """Sums of products of bytes that were widened to 16 bits."""
    v8, v16 = llvm_type(t), llvm_type(I16.vec(t.lanes))
    totals = [""] * n_rows
    for i in range(n):
        w, xs = pairs(i)
        a = out.new(f"{'zext' if t.kind == 'u' else 'sext'} {v8} {w} to {v16}")
        for j, x in enumerate(xs):
            b = out.new(f"sext {v8} {x} to {v16}")
            totals[j] = _plus(out, sums, totals[j], product(a, b))
    return totals


def _fold(out: Writer, total: str, t: Type) -> str:
    """Sums of neighbouring lanes, of which there are at least two pairs."""
    even, odd = (out.shuffle(t, total, "poison", range(i, t.lanes, 2)) for i in (0, 1))
    return out.new(f"add {words(t.lanes // 2)} {even}, {odd}")


# -- look-ups ----------------------------------------------------------------------------------------------------------


def lookup(out: Writer, node: Node, target: Target) -> None:
    """A table of 16 bytes is one register, shuffled by the indices."""
    (index,) = node.args
    table, lanes = node.attrs["table"], node.lanes
    if target.arch == "aarch64":
        width, name = 16, "llvm.aarch64.neon.tbl1.v16i8"
    elif target.dot == "widen" or target.arch != "x86_64":
        out.names[node] = _select_from(out, table, index, node.type)
        return
    elif lanes % 32 == 0:
        width, name = 32, "llvm.x86.avx2.pshuf.b"
    else:
        width, name = 16, "llvm.x86.ssse3.pshuf.b.128"
    vector, entries = llvm_type(I8.vec(width)), constant(node.type.vec(width), table * (width // 16))
    found = []
    for piece in _padded(out, index, width):
        a, b = ((vector, entries), (vector, piece))
        found.append(out.call(vector, name, [a, b]))
    whole = out.join(found, I8.vec(width))
    if lanes == 1:
        whole = out.new(f"extractelement {vector} {whole}, i32 0")
    elif lanes % width:
        whole = out.shuffle(I8.vec(len(found) * width), whole, "poison", range(lanes))
    out.names[node] = whole


def _padded(out: Writer, node: Node, width: int) -> list[str]:
    """A vector of any length cut into registers; lanes behind its end hold index 0."""
    lanes = node.lanes
    if lanes % width == 0:
        return out.pieces(node, width)
    value, t = out.value(node), node.type
    if lanes == 1:
        value = out.new(f"insertelement {llvm_type(U8.vec(width))} zeroinitializer, i8 {value}, i32 0")
        return [value]
    return [
        out.shuffle(t, value, "zeroinitializer", [i if i < lanes else lanes for i in range(start, start + width)])
        for start in range(0, lanes, width)
    ]


def _select_from(out: Writer, table: Sequence[int], index: Node, result: Type) -> str:
    """A chain of selects, for targets without a byte shuffle."""
    vector, mask, at = llvm_type(result), llvm_type(BOOL.vec(result.lanes)), out.value(index)
    value = constant(result, table[0])
    for i, entry in enumerate(table[1:], 1):
        condition = out.new(f"icmp eq {vector} {at}, {constant(result, i)}")
        value = out.new(f"select {mask} {condition}, {vector} {constant(result, entry)}, {vector} {value}")
    return value
