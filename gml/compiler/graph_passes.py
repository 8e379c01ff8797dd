"""Passes over tensor ops, before anything is lowered. Each keeps the meaning of every kept tensor.

canonicalise   drops copies of what is contiguous already        cont(x) -> x
expand         ops that are compositions become them             conv_2d(...) -> mul_mat(im2col(...), ...)
refine         ops take the form that compiles best              mul_mat(w, x) -> mul_mat_q8(pack(w), quantize_q8(x))
merge          common subexpressions are computed once           two quantize_q8(x) -> one
prune          what nothing needs is dropped

Next module: `regions.py`.
"""

from __future__ import annotations

from gml.compiler.state import State, rewrite
from gml.tensor import Tensor


def canonicalise(state: State) -> State:
    """Postcondition: no copy of a contiguous tensor to its own type and sizes, unless the copy itself is to be read."""
    needed = state.needed
    written = state.written_roots()

    def rule(node: Tensor) -> Tensor | None:
        op = node.op
        if op is None or not op.copies or node in needed:
            return None
        source = node.src[0]
        same = source.type is node.type and source.ne == node.ne and source.is_contiguous()
        return source if same and source.root not in written else None

    return rewrite(state, rule)


def expand(state: State) -> State:
    """Postcondition: every node's op has a lowering, is a view, or is called back."""
    while any(n.op is not None and n.op.expand is not None for n in state.nodes):
        state = rewrite(state, lambda n: n.op.expand(n.attrs, *n.src) if n.op is not None and n.op.expand else None)
    return state


def refine(state: State) -> State:
    """Postcondition: ops that offer a better form for these options and sources have taken it."""
    options = state.options
    return rewrite(state, lambda n: n.op.refine(n.attrs, options, *n.src) if n.op is not None and n.op.refine else None)


def merge(state: State) -> State:
    """Postcondition: no two nodes compute the same from the same sources.

    Nodes near storage that is written stay apart.
    """
    written = state.written_roots()
    known: dict[object, Tensor] = {}

    def rule(node: Tensor) -> Tensor | None:
        op = node.op
        if op is None or op.writes is not None or op.impure:
            return None
        if node.root in written or any(s.root in written for s in node.src):
            return None
        key = (op.name, node.attrs, node.src, node.type.name, node.ne, node.nb, node.offset)
        found = known.setdefault(key, node)
        return None if found is node else found

    return rewrite(state, rule)


def prune(state: State) -> State:
    """Postcondition: every node is needed by an output or a kept tensor."""
    reached: set[Tensor] = set()
    pending = list(state.needed)
    while pending:
        tensor = pending.pop()
        if tensor not in reached:
            reached.add(tensor)
            pending.extend(tensor.src)
            if tensor.view_of is not None:
                pending.append(tensor.view_of)
    return State(state.graph, state.options, [n for n in state.nodes if n in reached], state.outputs, state.moved)
