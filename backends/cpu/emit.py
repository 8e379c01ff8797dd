"""Kernel IR to LLVM IR text.

Arrives: legalised kernels and a target; leaves: the text of one LLVM module. Regular kinds are rows of tables, every
other kind has a method named after it. No fast-math flags anywhere: the order of float operations is the kernel's.
Every kernel becomes

    void NAME(ptr args, ptr sizes, ptr scratch, i64 begin, i64 end)

where `args` is an array of pointers to buffers and `scratch` the calling thread's private memory. Next module:
`jit.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from gml.backends.cpu.dot import group_dots, lookup
from gml.backends.cpu.order import dots_together, only_for_dots, runs, users
from gml.backends.cpu.target import Target
from gml.backends.cpu.text import Writer, constant, llvm_type, suffix
from gml.kernel_ir import BOOL, F16, F32, U16, Block, Kernel, KernelError, Node, Type

SCRATCH_ALIGNMENT = 64
INVARIANT = ", !invariant.load !0"

_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shl": "shl"}
#: opcodes by the kind of number
_BINARY = {
    "i": _INTEGER | {"div": "sdiv", "rem": "srem", "shr": "ashr"},
    "u": _INTEGER | {"div": "udiv", "rem": "urem", "shr": "lshr"},
    "b": {"and": "and", "or": "or", "xor": "xor"},
    "f": {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"},
}
_FLOAT_COMPARE = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_ROUND = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "even": "roundeven", "away": "round"}


def _compare(how: str, t: Type) -> str:
    """The comparison instruction of a type."""
    if t.kind == "f":
        return f"fcmp {_FLOAT_COMPARE[how]}"
    return f"icmp {how if how in ('eq', 'ne') else ('s' if t.kind == 'i' else 'u') + how}"


def _attributes(target: Target) -> str:
    """Registers of the target's width, not of the widest that the processor has."""
    width = target.vector_bytes * 8
    return f' "min-legal-vector-width"="{width}" "prefer-vector-width"="{width}"' if target.arch == "x86_64" else ""


class Emitter(Writer):
    """Writes one kernel as a function."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        super().__init__()
        self.target = target
        self.scratch_bytes = 0
        self._label = "entry"
        self._users = users(kernel)
        self._waiting: frozenset[Node] = frozenset()
        parameters = "ptr %args, ptr %sizes, ptr %scratch, i64 %begin, i64 %end"
        self.lines += [f"define void @{kernel.name}({parameters}){_attributes(target)} {{", "entry:"]
        self._parameters(kernel)
        self._block(kernel.body)
        self.lines += ["  ret void", "}"]

    def _parameters(self, kernel: Kernel) -> None:
        n_buffers = 0
        for param in kernel.params:
            name = param.attrs["name"]
            if name in ("sizes", "begin", "end"):
                self.names[param] = f"%{name}"
                continue
            address = self.new(f"getelementptr inbounds ptr, ptr %args, i64 {n_buffers}")
            self.names[param] = self.new(f"load ptr, ptr {address}{INVARIANT}")
            n_buffers += 1

    def _block(self, block: Block) -> None:
        for nodes in runs(block):
            self._waiting = only_for_dots(nodes, self._users)
            for i, node in enumerate(nodes):
                if node in self.names or node in self._waiting:
                    continue
                if node.kind == "group_dot":
                    self._dots(nodes[i:])
                else:
                    self._node(node)

    def _node(self, node: Node) -> None:
        opcode = _BINARY.get(node.type.kind, {}).get(node.kind)
        if opcode is not None:
            self.names[node] = self.new(f"{opcode} {self.typed(node.args[0])}, {self.value(node.args[1])}")
            return
        handler = getattr(self, f"_emit_{node.kind}", None)
        if handler is None:
            raise KernelError(f"the CPU backend has no code for node kind {node.kind!r} of type {node.type}")
        handler(node)

    def _dots(self, nodes: Sequence[Node]) -> None:
        """A dot product at once with those behind it that have the same weights and do not depend on it."""
        chosen, needed = dots_together(nodes)
        for node in needed:
            if node not in self.names and node not in self._waiting:
                self._node(node)
        group_dots(self, chosen, self.target, self._write)

    def _write(self, node: Node) -> None:
        """Write what waits for the dot product that uses it."""
        if node in self._waiting and node not in self.names:
            for arg in node.args:
                self._write(arg)
            self._node(node)

    def _emit_const(self, node: Node) -> None:
        """Constants are written where they are used; parameters and results have their names already."""

    _emit_param = _emit_block_param = _emit_result = _emit_const

    # -- memory --------------------------------------------------------------------------------------------------------

    def _address(self, pointer: Node, offset: str) -> str:
        return self.new(f"getelementptr i8, ptr {self.value(pointer)}, i64 {offset}")

    def _emit_load(self, node: Node) -> None:
        pointer, offset = node.args
        address = self._address(pointer, self.value(offset))
        # other constant loads may be of scratch that this kernel has filled before
        invariant = INVARIANT if node.attrs.get("constant") and self.value(pointer) == "%sizes" else ""
        self.names[node] = self.new(f"load {llvm_type(node.type)}, ptr {address}, align 1{invariant}")

    def _emit_store(self, node: Node) -> None:
        pointer, offset, value = node.args
        address = self._address(pointer, self.value(offset))
        self.lines.append(f"  store {self.typed(value)}, ptr {address}, align 1")

    def _emit_gather(self, node: Node) -> None:
        pointer, offset, stride = node.args
        # half floats are collected as integers: as `half` each would be converted by itself
        t = U16.vec(node.lanes) if node.type.scalar == F16 else node.type
        scalar, vector = llvm_type(t.scalar), llvm_type(t)
        lanes, at = "poison", self.value(offset)
        for i in range(node.lanes):
            value = self.new(f"load {scalar}, ptr {self._address(pointer, at)}, align 1")
            lanes = self.new(f"insertelement {vector} {lanes}, {scalar} {value}, i32 {i}")
            at = self.new(f"add i64 {at}, {self.value(stride)}")
        self.names[node] = lanes if t == node.type else self.new(f"bitcast {vector} {lanes} to {llvm_type(node.type)}")

    def _emit_scatter(self, node: Node) -> None:
        pointer, offset, stride, value = node.args
        scalar, at = llvm_type(value.type.scalar), self.value(offset)
        for i in range(value.lanes):
            lane = self.new(f"extractelement {self.typed(value)}, i32 {i}")
            self.lines.append(f"  store {scalar} {lane}, ptr {self._address(pointer, at)}, align 1")
            at = self.new(f"add i64 {at}, {self.value(stride)}")

    def _emit_prefetch(self, node: Node) -> None:
        address = self._address(node.args[0], self.value(node.args[1]))
        self.declared.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.lines.append(f"  call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 3, i32 1)")

    def _emit_offset(self, node: Node) -> None:
        address = self._address(node.args[0], self.value(node.args[1]))
        if node.attrs.get("apart"):
            # nothing in it: LLVM only does not know any more where the pointer comes from
            address = self.new(f'call ptr asm "", "=r,0"(ptr {address})')
        self.names[node] = address

    def _emit_scratch(self, node: Node) -> None:
        self.names[node] = self.new(f"getelementptr i8, ptr %scratch, i64 {self.scratch_bytes}")
        self.scratch_bytes += -(-node.attrs["n_bytes"] // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT

    def _emit_table(self, node: Node) -> None:
        data = node.attrs["data"]
        name = f"@table.{hashlib.sha256(data).hexdigest()[:32]}"
        text = "".join([f"\\{byte:02X}" for byte in data])
        # equal tables of a module are one
        self.declared.add(f'{name} = private unnamed_addr constant [{len(data)} x i8] c"{text}", align 64')
        self.names[node] = name

    def _emit_atomic_add(self, node: Node) -> None:
        address = self._address(node.args[0], self.value(node.args[1]))
        self.names[node] = self.new(f"atomicrmw add ptr {address}, i64 {self.value(node.args[2])} seq_cst")

    def _emit_fence(self, node: Node) -> None:
        self.lines.append("  fence seq_cst")

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def _intrinsic(self, name: str, node: Node, *more: tuple[str, str]) -> None:
        arguments = [(llvm_type(a.type), self.value(a)) for a in node.args]
        name = f"llvm.{name}.{suffix(node.args[0].type)}"
        self.names[node] = self.call(llvm_type(node.type), name, [*arguments, *more])

    def _extreme(self, how: str, t: Type, a: str, b: str) -> str:
        """The smaller or larger of two values; b when one is NaN, which is what minps and maxps do."""
        vector = llvm_type(t)
        condition = self.new(f"{_compare('lt' if how == 'min' else 'gt', t)} {vector} {a}, {b}")
        return self.new(f"select {llvm_type(BOOL.vec(t.lanes))} {condition}, {vector} {a}, {vector} {b}")

    def _emit_min(self, node: Node) -> None:
        self.names[node] = self._extreme(node.kind, node.type, self.value(node.args[0]), self.value(node.args[1]))

    _emit_max = _emit_min

    def _emit_neg(self, node: Node) -> None:
        opcode = "fneg" if node.type.kind == "f" else "sub"
        zero = "" if opcode == "fneg" else f"{constant(node.type, 0)}, "
        self.names[node] = self.new(f"{opcode} {llvm_type(node.type)} {zero}{self.value(node.args[0])}")

    def _emit_abs(self, node: Node) -> None:
        if node.type.kind == "f":
            self._intrinsic("fabs", node)
        elif node.type.kind == "u":
            self.names[node] = self.value(node.args[0])
        else:
            self._intrinsic("abs", node, ("i1", "false"))

    def _emit_fma(self, node: Node) -> None:
        self._intrinsic("fma", node)

    def _emit_cmp(self, node: Node) -> None:
        a, b = node.args
        self.names[node] = self.new(f"{_compare(node.attrs['how'], a.type)} {self.typed(a)}, {self.value(b)}")

    def _emit_select(self, node: Node) -> None:
        self.names[node] = self.new("select " + ", ".join([self.typed(a) for a in node.args]))

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
            self.names[node] = self._float_to_int(x, result)
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
        self.names[node] = self.new(f"{opcode} {self.typed(x)} to {llvm_type(result)}")

    def _float_to_int(self, x: Node, result: Type) -> str:
        """Rounded half to even, saturated, 0 for NaN."""
        source, value = llvm_type(x.type), self.value(x)
        if self.target.rounds:  # elsewhere it is rounded already
            value = self.call(source, f"llvm.roundeven.{suffix(x.type)}", [(source, value)])
        if x.type.lanes > 1 and x.type.bits == 32 and result.bits < 32:
            return self._vector_to_short(source, value, result)
        name = f"llvm.fpto{'s' if result.kind == 'i' else 'u'}i.sat.{suffix(result)}.{suffix(x.type)}"
        return self.call(llvm_type(result), name, [(source, value)])

    def _vector_to_short(self, source: str, value: str, result: Type) -> str:
        """Rounded f32 lanes to 8 or 16 bits by way of 32: LLVM does the saturating conversion lane by lane."""
        low, high = (
            (-(1 << result.bits - 1), (1 << result.bits - 1) - 1) if result.kind == "i" else (0, (1 << result.bits) - 1)
        )
        number = self.new(f"fcmp ord {source} {value}, zeroinitializer")
        lanes = f"<{result.lanes} x i1>"
        value = self.new(f"select {lanes} {number}, {source} {value}, {source} zeroinitializer")
        for compare, bound in (("ogt", low), ("olt", high)):
            limit = constant(F32.vec(result.lanes), float(bound))
            inside = self.new(f"fcmp {compare} {source} {value}, {limit}")
            value = self.new(f"select {lanes} {inside}, {source} {value}, {source} {limit}")
        wide = f"<{result.lanes} x i32>"
        whole = self.new(f"fptosi {source} {value} to {wide}")
        return self.new(f"trunc {wide} {whole} to {llvm_type(result)}")

    def _emit_bitcast(self, node: Node) -> None:
        self.names[node] = self.new(f"bitcast {self.typed(node.args[0])} to {llvm_type(node.type)}")

    # -- lanes ---------------------------------------------------------------------------------------------------------

    def _emit_splat(self, node: Node) -> None:
        vector, (x,) = llvm_type(node.type), node.args
        if x.kind == "const":
            self.names[node] = constant(node.type, x.attrs["value"])
            return
        first = self.new(f"insertelement {vector} poison, {self.typed(x)}, i32 0")
        self.names[node] = self.new(
            f"shufflevector {vector} {first}, {vector} poison, <{node.lanes} x i32> zeroinitializer"
        )

    def _emit_extract(self, node: Node) -> None:
        self.names[node] = self.new(f"extractelement {self.typed(node.args[0])}, i32 {node.attrs['lane']}")

    def _emit_insert(self, node: Node) -> None:
        a, scalar = node.args
        self.names[node] = self.new(f"insertelement {self.typed(a)}, {self.typed(scalar)}, i32 {node.attrs['lane']}")

    def _emit_shuffle(self, node: Node) -> None:
        a, b = node.args
        self.names[node] = self.shuffle(a.type, self.value(a), self.value(b), node.attrs["lanes"])

    def _emit_reduce(self, node: Node) -> None:
        (x,) = node.args
        how, t, value = node.attrs["how"], x.type, self.value(x)
        while t.lanes > 1:
            half = t.lanes // 2
            if half == 1:
                parts = [self.new(f"extractelement {llvm_type(t)} {value}, i32 {i}") for i in (0, 1)]
            else:
                parts = [self.shuffle(t, value, "poison", range(i * half, (i + 1) * half)) for i in (0, 1)]
            t = t.vec(half)
            if how == "add":
                value = self.new(f"{_BINARY[t.kind]['add']} {llvm_type(t)} {parts[0]}, {parts[1]}")
            else:
                value = self._extreme(how, t, parts[0], parts[1])
        self.names[node] = value

    def _emit_lookup(self, node: Node) -> None:
        lookup(self, node, self.target)

    # -- structure -----------------------------------------------------------------------------------------------------

    def _open(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self._label = label

    def _emit_for(self, node: Node) -> None:
        start, stop, step, *carried = node.args
        body: Block = node.attrs["body"]
        head, inside, done = (self.fresh(what) for what in ("head", "body", "done"))
        before = self._label
        self.lines.append(f"  br label %{head}")
        self._open(head)
        names = [f"%{self.fresh()}" for _ in body.params]
        self.names.update(zip(body.params, names, strict=True))
        at = len(self.lines)
        self.lines += [""] * len(names)  # the phis, written when the values that come back are known
        more = self.new(f"icmp slt i64 {names[0]}, {self.value(stop)}")
        self.lines.append(f"  br i1 {more}, label %{inside}, label %{done}")
        self._open(inside)
        self._block(body)
        following = self.new(f"add nsw i64 {names[0]}, {self.value(step)}")
        after = self._label
        self.lines.append(f"  br label %{head}")
        self._open(done)
        again = [following, *(self.value(y) for y in body.yields)]
        for i, (first, value) in enumerate(zip([start, *carried], again, strict=True)):
            phi = f"phi {llvm_type(first.type)} [ {self.value(first)}, %{before} ], [ {value}, %{after} ]"
            self.lines[at + i] = f"  {names[i]} = {phi}"
        for result in node.attrs.get("results", ()):
            self.names[result] = names[1 + result.attrs["index"]]

    def _emit_if(self, node: Node) -> None:
        then, other, done = (self.fresh(what) for what in ("then", "else", "done"))
        self.lines.append(f"  br i1 {self.value(node.args[0])}, label %{then}, label %{other}")
        ends = []
        for label, block in ((then, node.attrs["then"]), (other, node.attrs["other"])):
            self._open(label)
            self._block(block)
            ends.append((self._label, [self.value(y) for y in block.yields]))
            self.lines.append(f"  br label %{done}")
        self._open(done)
        for result in node.attrs.get("results", ()):
            i = result.attrs["index"]
            choices = ", ".join([f"[ {values[i]}, %{label} ]" for label, values in ends])
            self.names[result] = self.new(f"phi {llvm_type(result.type)} {choices}")


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
