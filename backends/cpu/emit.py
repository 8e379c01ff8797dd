"""Kernel IR to LLVM IR text.

Arrives: legalised kernels and a target; leaves: the text of one LLVM module. Regular kinds are rows of tables, every other kind has
a method named after it. No fast-math flags anywhere: the order of float operations is the kernel's. Every kernel becomes

    void NAME(ptr args, ptr sizes, ptr scratch, i64 begin, i64 end)

where `args` is an array of pointers to buffers and `scratch` the calling thread's private memory. Next module: `jit.py`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from gml.backends.cpu.target import Target
from gml.kernel_ir import BOOL, I8, I16, I32, Block, Kernel, KernelError, Node, Type

SCRATCH_ALIGNMENT = 64
INVARIANT = ", !invariant.load !0"

_FLOAT = {16: "half", 32: "float", 64: "double"}
_SIGNED = {"div": "sdiv", "rem": "srem", "shr": "ashr"}
_UNSIGNED = {"div": "udiv", "rem": "urem", "shr": "lshr"}
_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"}
_BINARY = ("add", "sub", "mul", "div", "rem", "and", "or", "xor", "shl", "shr")
_FLOAT_COMPARE = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_ROUND = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "even": "roundeven", "away": "round"}


def llvm_type(t: Type) -> str:
    """A type as LLVM writes it."""
    if t.kind == "p":
        base = "ptr"
    elif t.kind == "b":
        base = "i1"
    else:
        base = _FLOAT[t.bits] if t.kind == "f" else f"i{t.bits}"
    return base if t.lanes == 1 else f"<{t.lanes} x {base}>"


def suffix(t: Type) -> str:
    """A type as it ends an intrinsic's name."""
    base = f"{'f' if t.kind == 'f' else 'i'}{t.bits}"
    return base if t.lanes == 1 else f"v{t.lanes}{base}"


def number(t: Type, value: Any) -> str:
    """A constant of a scalar kind."""
    if t.kind == "f":
        if t.bits == 16:
            return f"0xH{int(np.float16(value).view(np.uint16)):04X}"
        wide = float(np.float32(value)) if t.bits == 32 else float(value)
        if math.isnan(wide):
            return "0x7FF8000000000000"
        return f"0x{struct.unpack('<Q', struct.pack('<d', wide))[0]:016X}"
    if t.kind == "b":
        return "true" if value else "false"
    return str(int(value))


class Emitter:
    """Writes one kernel as a function. `lines` is the text, `declared` the intrinsics it needs."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.target = target
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.scratch_bytes = 0
        self._names: dict[Node, str] = {}
        self._n = 0
        self._label = "entry"
        self.lines += [
            f"define void @{kernel.name}(ptr %args, ptr %sizes, ptr %scratch, i64 %begin, i64 %end) {{",
            "entry:",
        ]
        self._parameters(kernel)
        self._block(kernel.body)
        self.lines += ["  ret void", "}"]

    # -- names and lines --------------------------------------------------------------------------------------------------

    def _parameters(self, kernel: Kernel) -> None:
        n_buffers = 0
        for param in kernel.params:
            name = param.attrs["name"]
            if name in ("sizes", "begin", "end"):
                self._names[param] = f"%{name}"
                continue
            address = self._new(f"getelementptr inbounds ptr, ptr %args, i64 {n_buffers}")
            self._names[param] = self._new(f"load ptr, ptr {address}{INVARIANT}")
            n_buffers += 1

    def _new(self, text: str) -> str:
        self._n += 1
        name = f"%v{self._n}"
        self.lines.append(f"  {name} = {text}")
        return name

    def _value(self, node: Node) -> str:
        if node.kind != "const":
            return self._names[node]
        value, t = node.attrs["value"], node.type
        if t.lanes == 1:
            return number(t, value)
        lanes = value if isinstance(value, tuple) else (value,) * t.lanes
        scalar = llvm_type(t.scalar)
        return "<" + ", ".join(f"{scalar} {number(t, v)}" for v in lanes) + ">"

    def _typed(self, node: Node) -> str:
        return f"{llvm_type(node.type)} {self._value(node)}"

    def _call(self, result: str, name: str, arguments: Sequence[tuple[str, str]]) -> str:
        self.declared.add(f"declare {result} @{name}({', '.join(t for t, _ in arguments)})")
        return self._new(f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in arguments)})")

    def _intrinsic(self, name: str, node: Node, *more: tuple[str, str]) -> None:
        t = llvm_type(node.type)
        arguments = [(llvm_type(a.type), self._value(a)) for a in node.args]
        self._names[node] = self._call(t, f"llvm.{name}.{suffix(node.args[0].type)}", [*arguments, *more])

    def _fresh_label(self, what: str) -> str:
        self._n += 1
        return f"{what}{self._n}"

    def _open(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self._label = label

    # -- nodes ------------------------------------------------------------------------------------------------------------

    def _block(self, block: Block) -> None:
        for node in block.nodes:
            if node.kind in _BINARY:
                self._names[node] = self._new(
                    f"{self._opcode(node)} {self._typed(node.args[0])}, {self._value(node.args[1])}"
                )
                continue
            handler = getattr(self, f"_emit_{node.kind}", None)
            if handler is None:
                raise KernelError(f"the CPU backend has no code for node kind {node.kind!r}")
            handler(node)

    def _opcode(self, node: Node) -> str:
        if node.type.kind == "f":
            return _FLOAT_OPS[node.kind]
        return (_SIGNED if node.type.kind == "i" else _UNSIGNED).get(node.kind, node.kind)

    def _emit_const(self, node: Node) -> None:
        """Constants are written where they are used."""

    _emit_param = _emit_block_param = _emit_result = _emit_const

    def _address(self, pointer: Node, offset: str) -> str:
        return self._new(f"getelementptr i8, ptr {self._value(pointer)}, i64 {offset}")

    def _emit_load(self, node: Node) -> None:
        pointer, offset = node.args
        address = self._address(pointer, self._value(offset))
        invariant = INVARIANT if self._names.get(pointer) == "%sizes" else ""
        self._names[node] = self._new(f"load {llvm_type(node.type)}, ptr {address}, align 1{invariant}")

    def _emit_store(self, node: Node) -> None:
        pointer, offset, value = node.args
        address = self._address(pointer, self._value(offset))
        self.lines.append(f"  store {self._typed(value)}, ptr {address}, align 1")

    def _emit_gather(self, node: Node) -> None:
        pointer, offset, stride = node.args
        scalar, vector = llvm_type(node.type.scalar), llvm_type(node.type)
        lanes, at = "poison", self._value(offset)
        for i in range(node.lanes):
            value = self._new(f"load {scalar}, ptr {self._address(pointer, at)}, align 1")
            lanes = self._new(f"insertelement {vector} {lanes}, {scalar} {value}, i32 {i}")
            at = self._new(f"add i64 {at}, {self._value(stride)}")
        self._names[node] = lanes

    def _emit_scatter(self, node: Node) -> None:
        pointer, offset, stride, value = node.args
        scalar, at = llvm_type(value.type.scalar), self._value(offset)
        for i in range(value.lanes):
            lane = self._new(f"extractelement {self._typed(value)}, i32 {i}")
            self.lines.append(f"  store {scalar} {lane}, ptr {self._address(pointer, at)}, align 1")
            at = self._new(f"add i64 {at}, {self._value(stride)}")

    def _emit_prefetch(self, node: Node) -> None:
        address = self._address(node.args[0], self._value(node.args[1]))
        self.declared.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.lines.append(f"  call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 3, i32 1)")

    def _emit_offset(self, node: Node) -> None:
        self._names[node] = self._address(node.args[0], self._value(node.args[1]))

    def _emit_scratch(self, node: Node) -> None:
        self._names[node] = self._new(f"getelementptr i8, ptr %scratch, i64 {self.scratch_bytes}")
        self.scratch_bytes += -(-node.attrs["n_bytes"] // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT

    def _emit_atomic_add(self, node: Node) -> None:
        address = self._address(node.args[0], self._value(node.args[1]))
        self._names[node] = self._new(f"atomicrmw add ptr {address}, i64 {self._value(node.args[2])} seq_cst")

    def _emit_fence(self, node: Node) -> None:
        self.lines.append("  fence seq_cst")

    def _extreme(self, how: str, t: Type, a: str, b: str) -> str:
        """The smaller or larger of two values; b when one is NaN, which is what minps and maxps do."""
        less = {"min": "lt", "max": "gt"}[how]
        compare = f"fcmp o{less}" if t.kind == "f" else f"icmp {'s' if t.kind == 'i' else 'u'}{less}"
        condition = self._new(f"{compare} {llvm_type(t)} {a}, {b}")
        return self._new(f"select {llvm_type(BOOL.vec(t.lanes))} {condition}, {llvm_type(t)} {a}, {llvm_type(t)} {b}")

    def _emit_min(self, node: Node) -> None:
        self._names[node] = self._extreme(node.kind, node.type, self._value(node.args[0]), self._value(node.args[1]))

    _emit_max = _emit_min

    def _emit_neg(self, node: Node) -> None:
        if node.type.kind == "f":
            self._names[node] = self._new(f"fneg {self._typed(node.args[0])}")
        else:
            zero = "zeroinitializer" if node.lanes > 1 else "0"
            self._names[node] = self._new(f"sub {llvm_type(node.type)} {zero}, {self._value(node.args[0])}")

    def _emit_abs(self, node: Node) -> None:
        if node.type.kind == "f":
            self._intrinsic("fabs", node)
        elif node.type.kind == "u":
            self._names[node] = self._value(node.args[0])
        else:
            self._intrinsic("abs", node, ("i1", "false"))

    def _emit_fma(self, node: Node) -> None:
        self._intrinsic("fma", node)

    def _emit_cmp(self, node: Node) -> None:
        how, t = node.attrs["how"], node.args[0].type
        if t.kind == "f":
            compare = f"fcmp {_FLOAT_COMPARE[how]}"
        else:
            compare = f"icmp {how if how in ('eq', 'ne') else ('s' if t.kind == 'i' else 'u') + how}"
        self._names[node] = self._new(f"{compare} {self._typed(node.args[0])}, {self._value(node.args[1])}")

    def _emit_select(self, node: Node) -> None:
        self._names[node] = self._new("select " + ", ".join(self._typed(a) for a in node.args))

    def _emit_round(self, node: Node) -> None:
        self._intrinsic(_ROUND[node.attrs["how"]], node)

    def _emit_math(self, node: Node) -> None:
        if node.attrs["fn"] != "sqrt":
            raise KernelError(f"math function {node.attrs['fn']} was not expanded")
        self._intrinsic("sqrt", node)

    def _emit_cast(self, node: Node) -> None:
        (x,) = node.args
        source, result = x.type, node.type
        if source.kind == "f" and result.is_int:
            self._names[node] = self._float_to_int(x, result)
            return
        if source.kind == "f":
            opcode = "fpext" if result.bits > source.bits else "fptrunc"
        elif result.kind == "f":
            opcode = "uitofp" if source.kind in "ub" else "sitofp"
        elif result.bits == source.bits:
            opcode = "bitcast"
        elif result.bits < source.bits:
            opcode = "trunc"
        else:
            opcode = "zext" if source.kind in "ub" else "sext"
        self._names[node] = self._new(f"{opcode} {self._typed(x)} to {llvm_type(result)}")

    def _float_to_int(self, x: Node, result: Type) -> str:
        """Rounded half to even, saturated, 0 for NaN."""
        source = llvm_type(x.type)
        rounded = self._call(source, f"llvm.roundeven.{suffix(x.type)}", [(source, self._value(x))])
        name = f"llvm.fpto{'s' if result.kind == 'i' else 'u'}i.sat.{suffix(result)}.{suffix(x.type)}"
        return self._call(llvm_type(result), name, [(source, rounded)])

    def _emit_bitcast(self, node: Node) -> None:
        (x,) = node.args
        if llvm_type(x.type) == llvm_type(node.type) and x.kind != "const":
            self._names[node] = self._value(x)
        else:
            self._names[node] = self._new(f"bitcast {self._typed(x)} to {llvm_type(node.type)}")

    # -- lanes ------------------------------------------------------------------------------------------------------------

    def _shuffle(self, t: Type, a: str, b: str, lanes: Sequence[int]) -> str:
        indices = ", ".join(f"i32 {i}" for i in lanes)
        vector = llvm_type(t)
        return self._new(f"shufflevector {vector} {a}, {vector} {b}, <{len(lanes)} x i32> <{indices}>")

    def _emit_splat(self, node: Node) -> None:
        vector = llvm_type(node.type)
        first = self._new(f"insertelement {vector} poison, {self._typed(node.args[0])}, i32 0")
        self._names[node] = self._new(
            f"shufflevector {vector} {first}, {vector} poison, <{node.lanes} x i32> zeroinitializer"
        )

    def _emit_extract(self, node: Node) -> None:
        self._names[node] = self._new(f"extractelement {self._typed(node.args[0])}, i32 {node.attrs['lane']}")

    def _emit_insert(self, node: Node) -> None:
        a, scalar = node.args
        self._names[node] = self._new(
            f"insertelement {self._typed(a)}, {self._typed(scalar)}, i32 {node.attrs['lane']}"
        )

    def _emit_shuffle(self, node: Node) -> None:
        a, b = node.args
        self._names[node] = self._shuffle(a.type, self._value(a), self._value(b), node.attrs["lanes"])

    def _emit_reduce(self, node: Node) -> None:
        (x,) = node.args
        how, t, value = node.attrs["how"], x.type, self._value(x)
        while t.lanes > 1:
            half = t.lanes // 2
            if half == 1:
                parts = [self._new(f"extractelement {llvm_type(t)} {value}, i32 {i}") for i in (0, 1)]
            else:
                parts = [self._shuffle(t, value, "poison", range(i * half, (i + 1) * half)) for i in (0, 1)]
            t = t.vec(half)
            if how == "add":
                value = self._new(f"{'fadd' if t.kind == 'f' else 'add'} {llvm_type(t)} {parts[0]}, {parts[1]}")
            else:
                value = self._extreme(how, t, parts[0], parts[1])
        self._names[node] = value

    def _emit_lookup(self, node: Node) -> None:
        """A table of 16 bytes is one register: shuffled by the indices, a register's width at a time."""
        (index,) = node.args
        table = node.attrs["table"]
        if self.target.arch == "aarch64":
            width, name = 16, "llvm.aarch64.neon.tbl1.v16i8"
        elif self.target.vector_bytes == 32 and node.lanes % 32 == 0:
            width, name = 32, "llvm.x86.avx2.pshuf.b"
        else:
            self._names[node] = self._select_from(table, index, node.type)
            return
        entries = ", ".join(f"i8 {v}" for v in table * (width // 16))
        vector = llvm_type(I8.vec(width))
        pieces = []
        for piece in self._pieces(index, width):
            pieces.append(self._call(vector, name, [(vector, f"<{entries}>"), (vector, piece)]))
        self._names[node] = self._join(pieces, I8.vec(width))

    def _select_from(self, table: Sequence[int], index: Node, result: Type) -> str:
        """A chain of selects, for targets without a byte shuffle."""
        vector, mask = llvm_type(result), llvm_type(BOOL.vec(result.lanes))
        value = self._value_of(result, table[0])
        for i, entry in enumerate(table[1:], 1):
            condition = self._new(f"icmp eq {vector} {self._value(index)}, {self._value_of(result, i)}")
            value = self._new(f"select {mask} {condition}, {vector} {self._value_of(result, entry)}, {vector} {value}")
        return value

    def _value_of(self, t: Type, value: int) -> str:
        scalar = llvm_type(t.scalar)
        return str(value) if t.lanes == 1 else "<" + ", ".join([f"{scalar} {value}"] * t.lanes) + ">"

    def _pieces(self, node: Node, width: int) -> list[str]:
        """A vector cut into pieces of `width` lanes."""
        value = self._value(node)
        if node.lanes == width:
            return [value]
        return [self._shuffle(node.type, value, "poison", range(i, i + width)) for i in range(0, node.lanes, width)]

    def _join(self, pieces: Sequence[str], t: Type) -> str:
        """Pieces of type t, one after the other."""
        found = list(pieces)
        while len(found) > 1:
            lanes = range(2 * t.lanes)
            found = [self._shuffle(t, a, b, lanes) for a, b in zip(found[::2], found[1::2], strict=True)]
            t = t.vec(2 * t.lanes)
        return found[0]

    # -- integer dot products ---------------------------------------------------------------------------------------------

    def _emit_group_dot(self, node: Node) -> None:
        n = len(node.args) // 2
        weights, values = node.args[:n], node.args[n:]
        emit = {"maddubs": self._maddubs, "vpdpbusd": self._vpdpbusd, "sdot": self._sdot}.get(
            self.target.dot, self._widen
        )
        width = min(weights[0].lanes, self.target.vector_bytes)
        if weights[0].lanes % width or (emit is not self._widen and width != self.target.vector_bytes):
            emit, width = self._widen, weights[0].lanes
        cut = [(self._pieces(w, width), self._pieces(x, width)) for w, x in zip(weights, values, strict=True)]
        sums = []
        for piece in range(weights[0].lanes // width):
            pairs = [(w[piece], x[piece]) for w, x in cut]
            sums.append(emit(pairs, weights[0].type.vec(width), node.attrs["w_max"]))
        self._names[node] = self._join(sums, I32.vec(width // 4))

    def _unsigned(self, w: str, x: str, t: Type) -> tuple[str, str]:
        """The same products with the weights' signs moved to the other factor."""
        if t.kind == "u":
            return w, x
        v = llvm_type(t)
        size = self._call(v, f"llvm.abs.{suffix(t)}", [(v, w), ("i1", "false")])
        return size, self._call(v, "llvm.x86.avx2.psign.b", [(v, x), (v, w)])

    def _maddubs(self, pairs: Sequence[tuple[str, str]], t: Type, w_max: int) -> str:
        """AVX2: products are summed in 16 bits as long as they cannot overflow, then widened."""
        v8, v16, v32 = (llvm_type(k.vec(n)) for k, n in ((I8, 32), (I16, 16), (I32, 8)))
        per_sum = max(1, 32767 // (2 * w_max * 127))
        ones = self._value_of(I16.vec(16), 1)
        total = ""
        for start in range(0, len(pairs), per_sum):
            short = ""
            for w, x in pairs[start : start + per_sum]:
                w, x = self._unsigned(w, x, t)
                product = self._call(v16, "llvm.x86.avx2.pmadd.ub.sw", [(v8, w), (v8, x)])
                short = product if not short else self._new(f"add {v16} {short}, {product}")
            wide = self._call(v32, "llvm.x86.avx2.pmadd.wd", [(v16, short), (v16, ones)])
            total = wide if not total else self._new(f"add {v32} {total}, {wide}")
        return total

    def _vpdpbusd(self, pairs: Sequence[tuple[str, str]], t: Type, w_max: int) -> str:
        v32 = llvm_type(I32.vec(8))
        v8 = llvm_type(I8.vec(32))
        total = "zeroinitializer"
        for w, x in pairs:
            w, x = self._unsigned(w, x, t)
            total = self._dpbusd(v32, v8, total, w, x)
        return total

    def _dpbusd(self, v32: str, v8: str, total: str, w: str, x: str) -> str:
        # LLVM 21 gave the intrinsic operands of bytes; before, they were words
        if llvm_version() >= 22:
            return self._call(v32, "llvm.x86.avx512.vpdpbusd.256", [(v32, total), (v8, w), (v8, x)])
        words = [self._new(f"bitcast {v8} {value} to {v32}") for value in (w, x)]
        return self._call(v32, "llvm.x86.avx512.vpdpbusd.256", [(v32, total), (v32, words[0]), (v32, words[1])])

    def _sdot(self, pairs: Sequence[tuple[str, str]], t: Type, w_max: int) -> str:
        """AArch64: signed bytes; codes are below 128."""
        if t.kind == "u" and w_max > 127:
            return self._widen(pairs, t, w_max)
        v32, v8 = llvm_type(I32.vec(4)), llvm_type(I8.vec(16))
        total = "zeroinitializer"
        for w, x in pairs:
            total = self._call(v32, "llvm.aarch64.neon.sdot.v4i32.v16i8", [(v32, total), (v8, w), (v8, x)])
        return total

    def _widen(self, pairs: Sequence[tuple[str, str]], t: Type, w_max: int) -> str:
        """Anywhere: products in 16 bits (they fit), neighbours added in 32."""
        v8, v16 = llvm_type(t), llvm_type(I16.vec(t.lanes))
        v32 = I32.vec(t.lanes)
        total = ""
        for w, x in pairs:
            a = self._new(f"{'zext' if t.kind == 'u' else 'sext'} {v8} {w} to {v16}")
            b = self._new(f"sext {v8} {x} to {v16}")
            product = self._new(f"mul {v16} {a}, {b}")
            wide = self._new(f"sext {v16} {product} to {llvm_type(v32)}")
            part, kind = wide, v32
            for _ in range(2):
                half = kind.lanes // 2
                even = self._shuffle(kind, part, "poison", range(0, kind.lanes, 2))
                odd = self._shuffle(kind, part, "poison", range(1, kind.lanes, 2))
                kind = kind.vec(half)
                part = self._new(f"add {llvm_type(kind)} {even}, {odd}")
            total = part if not total else self._new(f"add {llvm_type(kind)} {total}, {part}")
        return total

    # -- structure --------------------------------------------------------------------------------------------------------

    def _emit_for(self, node: Node) -> None:
        start, stop, step, *carried = node.args
        body: Block = node.attrs["body"]
        head, inside, done = (self._fresh_label(what) for what in ("head", "body", "done"))
        before = self._label
        self.lines.append(f"  br label %{head}")
        self._open(head)
        names = []
        for param in body.params:
            self._n += 1
            names.append(f"%v{self._n}")
            self._names[param] = names[-1]
        at = len(self.lines)
        self.lines += [""] * len(names)
        more = self._new(f"icmp slt i64 {names[0]}, {self._value(stop)}")
        self.lines.append(f"  br i1 {more}, label %{inside}, label %{done}")
        self._open(inside)
        self._block(body)
        following = self._new(f"add nsw i64 {names[0]}, {self._value(step)}")
        after = self._label
        self.lines.append(f"  br label %{head}")
        self._open(done)
        sources = [(start, following), *((c, self._value(y)) for c, y in zip(carried, body.yields, strict=True))]
        for i, (name, (first, again)) in enumerate(zip(names, sources, strict=True)):
            kind = llvm_type(first.type)
            self.lines[at + i] = f"  {name} = phi {kind} [ {self._value(first)}, %{before} ], [ {again}, %{after} ]"
        for result in node.attrs.get("results", ()):
            self._names[result] = names[1 + result.attrs["index"]]

    def _emit_if(self, node: Node) -> None:
        then, other, done = (self._fresh_label(what) for what in ("then", "else", "done"))
        self.lines.append(f"  br i1 {self._value(node.args[0])}, label %{then}, label %{other}")
        ends = []
        for label, block in ((then, node.attrs["then"]), (other, node.attrs["other"])):
            self._open(label)
            self._block(block)
            ends.append((self._label, [self._value(y) for y in block.yields]))
            self.lines.append(f"  br label %{done}")
        self._open(done)
        for result in node.attrs.get("results", ()):
            i = result.attrs["index"]
            choices = ", ".join(f"[ {values[i]}, %{label} ]" for label, values in ends)
            self._names[result] = self._new(f"phi {llvm_type(result.type)} {choices}")


def llvm_version() -> int:
    """The major version of LLVM in use."""
    import llvmlite.binding as llvm

    return int(llvm.llvm_version_info[0])


def emit_module(kernels: Sequence[Kernel], target: Target) -> tuple[str, dict[str, int]]:
    """The text of a module with all kernels, and the scratch bytes that each needs."""
    functions: list[str] = []
    declared: set[str] = set()
    scratch: dict[str, int] = {}
    for kernel in kernels:
        emitter = Emitter(kernel, target)
        functions += emitter.lines
        declared |= emitter.declared
        scratch[kernel.name] = emitter.scratch_bytes
    return "\n".join([*functions, *sorted(declared), "!0 = !{}", ""]), scratch
