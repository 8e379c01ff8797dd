"""Integer dot products and byte look-ups, the two kinds whose code differs from target to target.

Arrives: the nodes `group_dot` and `lookup`; leaves: LLVM IR in a `Writer`. Vectors of any size are cut into registers.
Every target gives the same integers: nothing saturates and nothing overflows. Next module: `emit.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gml.backends.cpu.target import Target
from gml.backends.cpu.text import Writer, constant, llvm_type, suffix, words
from gml.kernel_ir import BOOL, I8, I16, I32, U8, Node, Type

Pair = tuple[str, str]
#: (writer, pairs of weights and values, the weights' type, w_max) to the name of the i32 sums
Dot = Callable[[Writer, Sequence[Pair], Type, int], str]

#: most that a value of `group_dot` can be
X_MAX = 127


def group_dot(out: Writer, node: Node, target: Target) -> None:
    """i32 sums of four neighbouring products over all pairs, a register at a time."""
    n = len(node.args) // 2
    weights, values, t = node.args[:n], node.args[n:], node.args[0].type
    w_max = node.attrs["w_max"]
    emit, widths = _choose(target, t, w_max)
    width = next((w for w in widths if t.lanes % w == 0), 0)
    if not width:
        emit, width = _anywhere, t.lanes
    cut = [(out.pieces(w, width), out.pieces(x, width)) for w, x in zip(weights, values, strict=True)]
    sums = [emit(out, [(w[i], x[i]) for w, x in cut], t.vec(width), w_max) for i in range(t.lanes // width)]
    out.names[node] = out.join(sums, I32.vec(width // 4))


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


# -- x86 ---------------------------------------------------------------------------------------------------------------

_MADDUBS = {32: "llvm.x86.avx2.pmadd.ub.sw", 16: "llvm.x86.ssse3.pmadd.ub.sw.128"}
_MADDWD = {16: "llvm.x86.avx2.pmadd.wd", 8: "llvm.x86.sse2.pmadd.wd"}
_SIGN = {32: "llvm.x86.avx2.psign.b", 16: "llvm.x86.ssse3.psign.b.128"}


def _unsigned(out: Writer, w: str, x: str, t: Type) -> Pair:
    """The same products with the weights' signs moved to the values: |w| times x sign(w)."""
    if t.kind == "u":
        return w, x
    v = llvm_type(t)
    size = out.call(v, f"llvm.abs.{suffix(t)}", [(v, w), ("i1", "false")])
    return size, out.call(v, _SIGN[t.lanes], [(v, x), (v, w)])


def _maddubs(out: Writer, pairs: Sequence[Pair], t: Type, w_max: int) -> str:
    """AVX2: products are summed in 16 bits as long as they cannot overflow, then widened by a product with ones."""
    lanes = t.lanes
    v8, v16, v32 = llvm_type(t), llvm_type(I16.vec(lanes // 2)), words(lanes // 4)
    per_sum = 32767 // (2 * max(w_max, 1) * X_MAX)
    ones = constant(I16.vec(lanes // 2), 1)
    total = ""
    for start in range(0, len(pairs), per_sum):
        short = ""
        for w, x in pairs[start : start + per_sum]:
            w, x = _unsigned(out, w, x, t)
            product = out.call(v16, _MADDUBS[lanes], [(v8, w), (v8, x)])
            short = out.new(f"add {v16} {short}, {product}") if short else product
        wide = out.call(v32, _MADDWD[lanes // 2], [(v16, short), (v16, ones)])
        total = out.new(f"add {v32} {total}, {wide}") if total else wide
    return total


def _maddwd(out: Writer, pairs: Sequence[Pair], t: Type, w_max: int) -> str:
    """Any x86: bytes widened to 16 bits, products of neighbours summed in 32."""
    v8, v16, v32 = llvm_type(t), llvm_type(I16.vec(t.lanes)), words(t.lanes // 2)
    total = ""
    for w, x in pairs:
        a = out.new(f"{'zext' if t.kind == 'u' else 'sext'} {v8} {w} to {v16}")
        b = out.new(f"sext {v8} {x} to {v16}")
        product = out.call(v32, _MADDWD[t.lanes], [(v16, a), (v16, b)])
        total = out.new(f"add {v32} {total}, {product}") if total else product
    return _fold(out, total, I32.vec(t.lanes // 2))


def _vpdpbusd(out: Writer, pairs: Sequence[Pair], t: Type, w_max: int) -> str:
    """VNNI: four products added to 32 bits at once. Operands are words; LLVM upgrades the call where it wants bytes."""
    v8, v32 = llvm_type(t), words(t.lanes // 4)
    name = f"llvm.x86.avx512.vpdpbusd.{t.lanes * 8}"
    total = "zeroinitializer"
    for w, x in pairs:
        w, x = _unsigned(out, w, x, t)
        a, b = (out.new(f"bitcast {v8} {v} to {v32}") for v in (w, x))
        total = out.call(v32, name, [(v32, total), (v32, a), (v32, b)])
    return total


# -- AArch64 -----------------------------------------------------------------------------------------------------------


def _dot_instruction(name: str) -> Dot:
    def emit(out: Writer, pairs: Sequence[Pair], t: Type, w_max: int) -> str:
        v8, sums = llvm_type(t), I32.vec(t.lanes // 4)
        v32, total = llvm_type(sums), "zeroinitializer"
        full = f"llvm.aarch64.neon.{name}.{suffix(sums)}.{suffix(t)}"
        for w, x in pairs:
            total = out.call(v32, full, [(v32, total), (v8, w), (v8, x)])
        return total

    return emit


_sdot, _usdot = _dot_instruction("sdot"), _dot_instruction("usdot")


def _smull(out: Writer, pairs: Sequence[Pair], t: Type, w_max: int) -> str:
    """Eight products of signed bytes in 16 bits, neighbours added to 32."""
    v8, v16, v32 = llvm_type(t), llvm_type(I16.vec(8)), words(4)
    total = ""
    for w, x in pairs:
        product = out.call(v16, "llvm.aarch64.neon.smull.v8i16", [(v8, w), (v8, x)])
        wide = out.call(v32, "llvm.aarch64.neon.saddlp.v4i32.v8i16", [(v16, product)])
        total = out.new(f"add {v32} {total}, {wide}") if total else wide
    return _fold(out, total, I32.vec(4))


# -- anywhere ----------------------------------------------------------------------------------------------------------


def _anywhere(out: Writer, pairs: Sequence[Pair], t: Type, w_max: int) -> str:
    """Products in 16 bits, which hold them; sums in 32."""
    v8, v16, v32 = llvm_type(t), llvm_type(I16.vec(t.lanes)), words(t.lanes)
    total = ""
    for w, x in pairs:
        a = out.new(f"{'zext' if t.kind == 'u' else 'sext'} {v8} {w} to {v16}")
        b = out.new(f"sext {v8} {x} to {v16}")
        product = out.new(f"mul {v16} {a}, {b}")
        wide = out.new(f"sext {v16} {product} to {v32}")
        total = out.new(f"add {v32} {total}, {wide}") if total else wide
    return _fold(out, _fold(out, total, I32.vec(t.lanes)), I32.vec(t.lanes // 2))


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
