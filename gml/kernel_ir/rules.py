"""The rules for nodes by themselves: numbers of arguments, types, lanes, attributes.

Arrives: a node; leaves: a complaint or None. `_RULES` has a row per kind. Next module: `verify.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gml.kernel_ir.nodes import (
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    KINDS,
    MAX_LANES,
    MAX_SCRATCH_BYTES,
    MAX_TABLE_BYTES,
    PTR,
    U8,
    Block,
    Node,
    Type,
)

Rule = Callable[[Node], "str | None"]

COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
ROUNDINGS = ("floor", "ceil", "trunc", "even", "away")
FUNCTIONS = ("sqrt", "exp", "log", "sin", "cos", "tanh", "erf")
REDUCTIONS = ("add", "min", "max")

#: attrs that a kind must have; `load` may have `constant`, loops and conditions may have `results`
ATTRS: dict[str, frozenset[str]] = {
    "const": frozenset(("value",)), "param": frozenset(("index", "name")), "scratch": frozenset(("n_bytes",)),
    "cmp": frozenset(("how",)), "round": frozenset(("how",)), "reduce": frozenset(("how",)), "math": frozenset(("fn",)),
    "extract": frozenset(("lane",)), "insert": frozenset(("lane",)), "shuffle": frozenset(("lanes",)),
    "lookup": frozenset(("table",)), "group_dot": frozenset(("w_max",)), "for": frozenset(("body",)),
    "if": frozenset(("then", "other")), "result": frozenset(("index",)), "block_param": frozenset(("index",)),
    "call": frozenset(("fn",)), "table": frozenset(("data",)),
}  # fmt: skip
_OPTIONAL = {
    "load": frozenset(("constant",)), "offset": frozenset(("apart",)), "for": frozenset(("results",)),
    "if": frozenset(("results",)),
}  # fmt: skip
_NONE: frozenset[str] = frozenset()
_SCALARS = {("i", 8), ("i", 16), ("i", 32), ("i", 64), ("u", 8), ("u", 16), ("u", 32), ("u", 64)} | {
    ("f", 16), ("f", 32), ("f", 64), ("b", 1), ("p", 64), ("void", 0),
}  # fmt: skip


def complaint(node: Node) -> str | None:
    """What is wrong with a node whose arguments are all known."""
    row = KINDS.get(node.kind)
    if row is None:
        return f"there is no node kind {node.kind!r}"
    n_args, has_result, _, _ = row
    if n_args is not None and len(node.args) != n_args:
        return f"{node.kind} takes {n_args} arguments, found {len(node.args)}"
    for arg in node.args:
        if arg.type.kind == "void" and node.kind != "result":
            return f"`{arg.kind}` gives no value that could be used"
    t = node.type
    if (t.kind, t.bits) not in _SCALARS or not 1 <= t.lanes <= (1 if t.kind in ("p", "void") else MAX_LANES):
        return f"there is no type {t} (at most {MAX_LANES} lanes, pointers have one)"
    if (t.kind == "void") == has_result and node.kind != "call":
        return f"{node.kind} must {'have a type' if has_result else 'be void'}, found {t}"
    needed, found = ATTRS.get(node.kind, _NONE), node.attrs.keys()
    if found != needed and (needed - found or found - needed - _OPTIONAL.get(node.kind, _NONE)):
        return f"{node.kind} has attrs {sorted(needed)}, found {sorted(found)}"
    return _RULES[node.kind](node)


def _is_number(t: Type) -> bool:
    return t.kind in "iuf"


def _expect(what: str, found: Type, expected: Type) -> str | None:
    return None if found == expected else f"{what} must be {expected}, found {found}"


def _first(complaints: Sequence[str | None]) -> str | None:
    return next((c for c in complaints if c is not None), None)


def _same(node: Node, kinds: str, what: str) -> str | None:
    """Arguments have the result's type, which is one of some kinds."""
    if node.type.kind not in kinds:
        return f"{node.kind} is of {what}, found {node.type}"
    for arg in node.args:
        if arg.type != node.type:
            return f"all arguments must be {node.type}, found {arg.type}"
    return None


def _number_rule(node: Node) -> str | None:
    return _same(node, "iuf", "numbers")


def _bits_rule(node: Node) -> str | None:
    return _same(node, "iub", "integers or truth values")


def _shift_rule(node: Node) -> str | None:
    count = node.args[1]
    if count.kind == "const":
        values = count.attrs.get("value")
        for v in values if isinstance(values, tuple) else (values,):
            if not isinstance(v, int) or not 0 <= v < node.type.bits:
                return f"shifts by 0 to {node.type.bits - 1} bits, found {v}"
    return _same(node, "iu", "integers")


def _fma_rule(node: Node) -> str | None:
    return _same(node, "f", "f32 or f64") or ("fma is of f32 or f64, found f16" if node.type.bits == 16 else None)


def _const_rule(node: Node) -> str | None:
    value, t = node.attrs["value"], node.type
    if isinstance(value, tuple):
        if len(value) != t.lanes or t.lanes == 1:
            return f"{t} needs one number for all lanes or a tuple of {t.lanes}, found {len(value)}"
        return _first([_lane_rule(v, t) for v in value])
    return _lane_rule(value, t)


def _lane_rule(value: Any, t: Type) -> str | None:
    kind = {"f": float, "i": int, "u": int, "b": bool}.get(t.kind)
    if kind is None:
        return f"there are no constants of type {t}"
    if type(value) is not kind:
        return f"{value!r} must be a Python {kind.__name__}"
    if t.is_int:
        low = -(1 << t.bits - 1) if t.kind == "i" else 0
        if not low <= value < low + (1 << t.bits):
            return f"{value} does not fit {t.scalar}"
    return None


def _misplaced_rule(node: Node) -> str | None:
    return f"a {node.kind} does not stand among the nodes of a block"


def _address_rule(node: Node) -> str | None:
    """Pointer and i64s, then what there is to store."""
    n = {"gather": 3, "scatter": 3}.get(node.kind, 2)
    for arg, expected in zip(node.args[:n], (PTR, I64, I64), strict=False):
        if arg.type != expected:
            return f"an address is a ptr and i64 bytes, found {arg.type} for {expected}"
    values = [a.type for a in node.args[n:]] + ([node.type] if node.kind in ("load", "gather") else [])
    for t in values:
        if not _is_number(t):
            return f"memory holds numbers, found {t}"
    if node.kind in ("gather", "scatter") and values[0].lanes == 1:
        return f"{node.kind} is of vectors; a scalar is a {'load' if node.kind == 'gather' else 'store'}"
    return None


def _offset_rule(node: Node) -> str | None:
    if node.attrs.get("apart", True) is not True:
        return f"apart must be True or left out, found {node.attrs['apart']!r}"
    return _address_rule(node) or _expect("the result", node.type, PTR)


def _scratch_rule(node: Node) -> str | None:
    n = node.attrs["n_bytes"]
    if type(n) is not int or not 0 <= n <= MAX_SCRATCH_BYTES:
        return f"n_bytes must be 0 to {MAX_SCRATCH_BYTES}, found {n!r}"
    return _expect("the result", node.type, PTR)


def _table_rule(node: Node) -> str | None:
    data = node.attrs["data"]
    if type(data) is not bytes or not 0 < len(data) <= MAX_TABLE_BYTES:
        found = f"{len(data)} bytes" if type(data) is bytes else repr(data)
        return f"data must be 1 to {MAX_TABLE_BYTES} bytes, found {found}"
    return _expect("the result", node.type, PTR)


def _atomic_rule(node: Node) -> str | None:
    return _address_rule(node) or _expect("the number", node.args[2].type, I64) or _expect("the result", node.type, I64)


def _how(node: Node, attr: str, known: Sequence[str]) -> str | None:
    value = node.attrs[attr]
    return None if value in known else f"{attr} must be one of {' '.join(known)}, found {value!r}"


def _cmp_rule(node: Node) -> str | None:
    a, b = (arg.type for arg in node.args)
    if not _is_number(a):
        return f"cmp is of numbers, found {a}"
    return (
        _expect("the second", b, a)
        or _expect("the result", node.type, BOOL.vec(a.lanes))
        or _how(node, "how", COMPARISONS)
    )


def _select_rule(node: Node) -> str | None:
    condition, a, b = (arg.type for arg in node.args)
    expected = BOOL.vec(node.lanes)
    return _first(
        [_expect("the condition", condition, expected), _expect("a", a, node.type), _expect("b", b, node.type)]
    )


def _round_rule(node: Node) -> str | None:
    return _same(node, "f", "floats") or _how(node, "how", ROUNDINGS)


def _math_rule(node: Node) -> str | None:
    fn, scalar = node.attrs["fn"], node.type.scalar
    if scalar != F32 and not (fn == "sqrt" and scalar == F64):
        return f"{fn} is of f32 (sqrt also of f64), found {node.type}"
    return _same(node, "f", "floats") or _how(node, "fn", FUNCTIONS)


def _cast_rule(node: Node) -> str | None:
    source, result = node.args[0].type, node.type
    if source.kind == "p" or not _is_number(result):
        return f"cast is of numbers and truth values to numbers, found {source} to {result}"
    if source.scalar == F64 and result.scalar == F16:
        return "f64 to f16 must be cast over f32"
    return _expect("the result", result, result.vec(source.lanes))


def _bitcast_rule(node: Node) -> str | None:
    source, result = node.args[0].type, node.type
    if not _is_number(source) or not _is_number(result) or source.n_bytes != result.n_bytes:
        return f"bitcast is between numbers of equal size, found {source} to {result}"
    return None


def _splat_rule(node: Node) -> str | None:
    if node.lanes == 1 or node.type.kind == "p":
        return f"splat makes a vector, found {node.type}"
    return _expect("the argument", node.args[0].type, node.type.scalar)


def _lane_of(node: Node) -> str | None:
    lanes, lane = node.args[0].lanes, node.attrs["lane"]
    if lanes == 1:
        return f"{node.kind} is of a vector, found {node.args[0].type}"
    return None if type(lane) is int and 0 <= lane < lanes else f"lane must be 0 to {lanes - 1}, found {lane!r}"


def _extract_rule(node: Node) -> str | None:
    return _lane_of(node) or _expect("the result", node.type, node.args[0].type.scalar)


def _insert_rule(node: Node) -> str | None:
    a, scalar = (arg.type for arg in node.args)
    return _lane_of(node) or _expect("the vector", a, node.type) or _expect("the scalar", scalar, a.scalar)


def _shuffle_rule(node: Node) -> str | None:
    (a, b), lanes = (arg.type for arg in node.args), node.attrs["lanes"]
    if a.lanes == 1 or type(lanes) is not tuple or len(lanes) < 2:
        return f"shuffle is of vectors and makes one by a tuple of lanes, found {a} and {lanes!r}"
    for lane in lanes:
        if type(lane) is not int or not 0 <= lane < 2 * a.lanes:
            return f"lanes must be 0 to {2 * a.lanes - 1}, found {lane!r}"
    return _expect("b", b, a) or _expect("the result", node.type, a.vec(len(lanes)))


def _reduce_rule(node: Node) -> str | None:
    a = node.args[0].type
    if not _is_number(a) or a.lanes == 1 or a.lanes & (a.lanes - 1):
        return f"reduce is of 2^k lanes of numbers, found {a}"
    return _expect("the result", node.type, a.scalar) or _how(node, "how", REDUCTIONS)


def _lookup_rule(node: Node) -> str | None:
    table, t = node.attrs["table"], node.type
    if t.scalar not in (I8, U8):
        return f"lookup makes i8 or u8, found {t}"
    if type(table) is not tuple or len(table) != 16:
        return f"table must be a tuple of 16 numbers, found {table!r}"
    return _expect("the index", node.args[0].type, U8.vec(t.lanes)) or _first([_lane_rule(v, t) for v in table])


def _group_dot_rule(node: Node) -> str | None:
    n = len(node.args) // 2
    if n == 0 or len(node.args) != 2 * n:
        return f"group_dot takes as many w as x, found {len(node.args)} arguments"
    w = node.args[0].type
    if w.scalar not in (I8, U8) or w.lanes % 4 or w.lanes < 8:
        return f"w must be u8 or i8 with 4 n lanes (n > 1), found {w}"
    for i, arg in enumerate(node.args):
        expected = w if i < n else I8.vec(w.lanes)
        if arg.type != expected:
            return f"argument {i} must be {expected}, found {arg.type}"
    w_max, most = node.attrs["w_max"], 255 if w.kind == "u" else 128
    if type(w_max) is not int or not 0 < w_max <= most:
        return f"w_max must be 1 to {most}, found {w_max!r}"
    if 4 * n * w_max * 127 >= 1 << 31:
        return f"{n} pairs of up to {w_max} * 127 may overflow i32"
    return _expect("the result", node.type, I32.vec(w.lanes // 4))


def _results_rule(node: Node) -> str | None:
    for result in node.attrs.get("results", ()):
        if not isinstance(result, Node) or result.kind != "result" or result.args != (node,):
            return "results must list `result` nodes of this node"
    return None


def _types(nodes: Sequence[Node]) -> list[str]:
    return [str(n.type) for n in nodes]


def _for_rule(node: Node) -> str | None:
    body = node.attrs["body"]
    if len(node.args) < 3 or not isinstance(body, Block):
        return "for takes start, stop, step and a block"
    for arg, what in zip(node.args, ("start", "stop", "step"), strict=False):
        if arg.type != I64:
            return f"{what} must be i64, found {arg.type}"
    step = node.args[2]
    if step.kind == "const" and step.attrs.get("value", 0) < 1:
        return f"the step must be positive, found {step.attrs.get('value')}"
    carried = _types(node.args[3:])
    if _types(body.params) != ["i64", *carried]:
        return f"the body must take i64 and what is carried {carried}, found {_types(body.params)}"
    if _types(body.yields) != carried:
        return f"the body must yield what is carried {carried}, found {_types(body.yields)}"
    return _results_rule(node)


def _if_rule(node: Node) -> str | None:
    then, other = node.attrs["then"], node.attrs["other"]
    if not isinstance(then, Block) or not isinstance(other, Block) or then.params or other.params:
        return "if takes two blocks without parameters"
    if _types(then.yields) != _types(other.yields):
        return f"both blocks must yield the same types, found {_types(then.yields)} and {_types(other.yields)}"
    return _expect("the condition", node.args[0].type, BOOL) or _results_rule(node)


def _result_rule(node: Node) -> str | None:
    parent, index = node.args[0], node.attrs["index"]
    if parent.kind not in ("for", "if"):
        return f"result is of a for or an if, found {parent.kind}"
    if not any(r is node for r in parent.attrs.get("results", ())):
        return f"the {parent.kind} must list it in its results"
    values = parent.args[3:] if parent.kind == "for" else parent.attrs["then"].yields
    if type(index) is not int or not 0 <= index < len(values):
        return f"the {parent.kind} yields {len(values)} values, found index {index!r}"
    return _expect("the result", node.type, values[index].type)


def _call_rule(node: Node) -> str | None:
    if not callable(node.attrs["fn"]):
        return f"fn must be a Python function, found {node.attrs['fn']!r}"
    fits = node.type.kind == "void" or _is_number(node.type)
    return None if fits else f"call gives numbers or nothing, found {node.type}"


def _nothing(node: Node) -> str | None:
    return None


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "rem", "min", "max", "neg", "abs"), _number_rule),
    **dict.fromkeys(("and", "or", "xor"), _bits_rule),
    **dict.fromkeys(("shl", "shr"), _shift_rule),
    **dict.fromkeys(("param", "block_param"), _misplaced_rule),
    **dict.fromkeys(("load", "store", "gather", "scatter", "prefetch"), _address_rule),
    "const": _const_rule, "offset": _offset_rule, "scratch": _scratch_rule, "table": _table_rule,
    "atomic_add": _atomic_rule, "fma": _fma_rule, "cmp": _cmp_rule, "select": _select_rule, "round": _round_rule,
    "math": _math_rule, "cast": _cast_rule, "bitcast": _bitcast_rule, "splat": _splat_rule, "extract": _extract_rule,
    "insert": _insert_rule, "shuffle": _shuffle_rule, "reduce": _reduce_rule, "lookup": _lookup_rule,
    "group_dot": _group_dot_rule, "for": _for_rule, "if": _if_rule, "result": _result_rule, "call": _call_rule,
    "fence": _nothing,
}  # fmt: skip
