"""Passes over tensor ops, before anything is lowered. Each keeps the meaning of every kept tensor.

canonicalise   drops copies of what is contiguous already        cont(x) -> x
expand         ops that are compositions become them             conv_2d(...) -> mul_mat(im2col(...), ...)
fold           small results of constants are constants          2 * constant -> constant
refine         ops take the form that compiles best              mul_mat(w, x) -> mul_mat_q8(pack(w), quantize_q8(x))
merge          common subexpressions are computed once           two quantize_q8(x) -> one
prune          what nothing needs is dropped

Next module: `regions.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from gml.arena import aligned_bytes
from gml.compiler.state import State, rewrite
from gml.dims import SizeExpr
from gml.dtypes import F64
from gml.errors import Error
from gml.ops.evaluate import evaluate
from gml.tensor import Tensor, strided

#: bytes of a result, and of all its sources together, up to which it is computed at compile time
MAX_FOLDED_BYTES = 64 << 10


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
        # neither may the source change behind the copy, nor the copy be what an op writes
        return source if same and source.root not in written and node not in written else None

    return rewrite(state, rule, written)


def expand(state: State) -> State:
    """Postcondition: every node's op has a lowering, is a view, or is called back."""
    while any(n.op is not None and n.op.expand is not None for n in state.nodes):
        state = rewrite(state, lambda n: n.op.expand(n.attrs, *n.src) if n.op is not None and n.op.expand else None)
    return state


def fold(state: State) -> State:
    """Postcondition: no small result of an exact op over constants is left to be computed.

    Only ops whose reference gives the bits of kernels (`OpDef.exact`), so that leaving the pass out changes nothing.
    Constants are read here: what changes in their memory later is not seen. Larger results are hoisted (`plan.py`).
    """
    written = state.written_roots()
    if not any(_is_foldable(node, written) for node in state.nodes):
        return state
    folded: list[Tensor] = []

    def rule(node: Tensor) -> Tensor | None:
        if not _is_foldable(node, written):
            return None
        try:
            with np.errstate(all="ignore"):
                blocks = evaluate(node, {}, _constant_blocks, lambda t: t.type.decode(_constant_blocks(t)))
        except Error:
            # a row that does not exist, say: an error when the program runs
            return None
        assert blocks is not None
        made = Tensor(node.type, node.ne, role="constant", name=node.name)
        made.storage = aligned_bytes(blocks.nbytes, node.describe())
        made.storage[:] = np.ascontiguousarray(blocks).reshape(-1).view(np.uint8)
        folded.append(made)
        return made

    state = rewrite(state, rule, written)
    return dataclasses.replace(state, folded=[*state.folded, *folded])


def _is_foldable(node: Tensor, written: set[Tensor]) -> bool:
    op = node.op
    if op is None or not op.exact or op.view or op.impure or op.writes is not None or node.root in written:
        return False
    if not all(s.root.role == "constant" and s.root.storage is not None and s.root not in written for s in node.src):
        return False
    if any(t.dims or not t.type.is_scalar or (t.type is F64 and not op.moves) for t in (node, *node.src)):
        return False
    if _has_dims(node.attrs):
        return False
    if _static(node.n_bytes) > MAX_FOLDED_BYTES or sum(_static(s.n_bytes) for s in node.src) > MAX_FOLDED_BYTES:
        return False
    return op.exact(node.attrs, node, *node.src) if callable(op.exact) else op.exact


def _static(size: Any) -> int:
    assert isinstance(size, int)
    return size


def _has_dims(attrs: Any) -> bool:
    """Whether an attribute is a run-time size."""
    values = [getattr(attrs, f.name) for f in dataclasses.fields(attrs)]
    return any(isinstance(v, SizeExpr) for value in values for v in (value if isinstance(value, tuple) else (value,)))


def _constant_blocks(tensor: Tensor) -> np.ndarray:
    return strided(tensor, tensor.root.bytes(), {})


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

    return rewrite(state, rule, written)


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
    nodes, folded = ([t for t in tensors if t in reached] for tensors in (state.nodes, state.folded))
    return dataclasses.replace(state, nodes=nodes, folded=folded)
