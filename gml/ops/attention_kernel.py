"""The attention kernel: blocks of keys against a block of queries, softmax online, nothing of size n_q * n_kv in
memory.

A chunk is one key/value head, one sequence and a few tokens; all query heads that share the key/value head are computed
together, so each K and V row is read (and decoded) once for all of them. Keys come in blocks of 32 that start at
multiples of 32, and sums run over the block's keys in order, so that a result does not depend on how a prompt was
split. Per block and query row:

    s = q . k        m' = max(m, max s)      p = exp(s - m')      l = l * exp(m - m') + sum p      o = o * exp(m - m') +
    p . v

Source: Dao et al., https://arxiv.org/abs/2205.14135; the online softmax: Milakov and Gimelshein,
https://arxiv.org/abs/1805.02867.
"""

from __future__ import annotations

from collections.abc import Callable

from gml.dims import max_of
from gml.kernel_ir import F32, I64, Node
from gml.ops.float_panels import ROWS, batch_index, fill_columns, fill_row
from gml.ops.lower import Chunks, KernelContext, Operand, Place
from gml.records import dataclass
from gml.tensor import Tensor

#: keys of a block
KEYS = 32
#: query rows whose sums are held in registers together
PAIR = 2
#: query rows of a chunk, about
CHUNK_ROWS = 32
#: a finite number below every score
LOWEST = -3.0e38


@dataclass(frozen=True)
class AttentionSpec:
    """What the kernel is asked for; see `flash_attn_ext`."""

    scale: float
    max_bias: float = 0.0
    logit_softcap: float = 0.0
    causal: bool = False
    window: int = 0


def tokens_per_chunk(q: Tensor, kv: Tensor) -> int:
    """Tokens whose queries are computed together."""
    n_head, n_head_kv = max_of(q.ne[2]), max_of(kv.ne[2])
    return max(1, CHUNK_ROWS // max(1, n_head // max(1, n_head_kv)))


def attention_chunks(q: Tensor, kv: Tensor) -> Chunks:
    """One chunk per block of tokens, key/value head and sequence."""
    return Chunks(((q.ne[1], tokens_per_chunk(q, kv)), (kv.ne[2], 1), (q.ne[3], 1)))


class AttentionKernel:
    """Builds the loops of one chunk range."""

    def __init__(
        self,
        k: KernelContext,
        spec: AttentionSpec,
        out: Place,
        q: Place,
        keys: Place,
        values: Place,
        mask: Place | None,
        sinks: Place | None,
    ) -> None:
        self.k, self.b, self.spec, self.out = k, k.b, spec, out
        self.q, self.keys, self.values, self.mask, self.sinks = q, keys, values, mask, sinks
        self.d, self.dv = max_of(keys.tensor.ne[0]), max_of(values.tensor.ne[0])
        self.n_head = max_of(q.tensor.ne[2])
        self.n_group = self.n_head // max(1, max_of(keys.tensor.ne[2]))
        self.n_tokens = tokens_per_chunk(q.tensor, keys.tensor)
        n_rows = self.n_tokens * self.n_group
        self.n_q = k.value(k.size(q.tensor.ne[1]))
        self.n_kv = k.value(k.size(keys.tensor.ne[1]))
        b = self.b
        self.queries = b.scratch(n_rows * self.d * 4)
        self.sums = b.scratch(n_rows * self.dv * 4)
        self.state = b.scratch(n_rows * 8)
        self.key_block = b.scratch(max(self.d, 1) * KEYS * 4)
        self.value_block = b.scratch(KEYS * max(self.dv, 1) * 4)
        self.scores = b.scratch(PAIR * KEYS * 4)

    def build(self) -> None:
        """Loop over the chunks."""
        b, k = self.b, self.k
        n_blocks = (self.n_q + (self.n_tokens - 1)) // self.n_tokens

        def chunk(c: Node) -> None:
            block, head, seq = k.split(c, [n_blocks, self.keys.ne[2], self.q.ne[3]])
            first = k.value(block) * self.n_tokens
            count = b.min(self.n_q - first, self.n_tokens)
            self._one_chunk(first, count, k.value(head), k.value(seq))

        b.loop(k.begin, k.end, chunk)

    # -- one chunk -----------------------------------------------------------------------------------------------------

    def _one_chunk(self, first: Node, count: Node, head: Node, seq: Node) -> None:
        b, spec = self.b, self.spec
        n_rows = count * self.n_group
        self._load_queries(first, n_rows, head, seq)
        start: Operand = 0
        stop: Node = self.n_kv
        shift = self.n_kv - self.n_q
        if spec.causal:
            stop = b.max(b.min(stop, first + count + shift), 0)
            if spec.window:
                start = b.max(first + shift - (spec.window - 1), 0) // KEYS * KEYS
        kv2, kv3 = head, batch_index(self.k, seq, self.keys, self.q, 3)

        def key_block(at: Node) -> None:
            self._load_keys(at, kv2, kv3)
            pairs = n_rows // PAIR * PAIR
            b.loop(0, pairs, lambda r: self._rows(r, PAIR, at, first, shift, head, seq), step=PAIR)
            b.loop(pairs, n_rows, lambda r: self._rows(r, 1, at, first, shift, head, seq))

        b.loop(start, stop, key_block, step=KEYS)
        b.loop(0, n_rows, lambda r: self._finish(r, first, head, seq))

    def _place(self, row: Node, first: Node, head: Node) -> tuple[Node, Node]:
        """Token and query head of a row of the chunk."""
        return first + row // self.n_group, head * self.n_group + row % self.n_group

    def _load_queries(self, first: Node, n_rows: Node, head: Node, seq: Node) -> None:
        b = self.b

        def one(row: Node) -> None:
            token, query_head = self._place(row, first, head)
            fill_row(self.k, self.q, (token, query_head, seq), self.queries, row * (self.d * 4))
            b.store(self.state, row * 8, b.const(LOWEST))
            b.store(self.state, row * 8 + 4, b.const(0.0))
            self._over_values(
                lambda i, lanes: b.store(self.sums, (row * self.dv + i) * 4, b.const(0.0, F32.vec(lanes)))
            )

        b.loop(0, n_rows, one)

    def _load_keys(self, at: Node, kv2: Operand, kv3: Operand) -> None:
        """Decode 32 keys, transposed, and 32 values; past the end the last one is repeated (and masked)."""
        b = self.b
        last = self.n_kv - 1
        for part in range(0, KEYS, ROWS):
            rows = [(b.min(at + (part + r), last), kv2, kv3) for r in range(ROWS)]
            fill_columns(self.k, self.keys, rows, self.key_block, stride=KEYS * 4, at=part * 4)
        b.loop(
            0,
            KEYS,
            lambda j: fill_row(
                self.k, self.values, (b.min(at + j, last), kv2, kv3), self.value_block, j * (self.dv * 4)
            ),
        )

    # -- a block of keys against one or two rows -----------------------------------------------------------------------

    def _rows(self, row: Node, n: int, at: Node, first: Node, shift: Node, head: Node, seq: Node) -> None:
        b = self.b
        scores = self._dots(row, n)
        factors = []
        for i in range(n):
            token, query_head = self._place(row + i, first, head)
            s = self._masked(scores[i], at, token, shift, query_head, seq)
            m = b.load(self.state, (row + i) * 8, F32)
            total = b.load(self.state, (row + i) * 8 + 4, F32)
            m_new = b.max(m, b.reduce("max", s))
            p = b.math("exp", s - b.splat(m_new, KEYS))
            factor = b.math("exp", m - m_new)
            b.store(self.state, (row + i) * 8, m_new)
            b.store(self.state, (row + i) * 8 + 4, b.fma(total, factor, b.reduce("add", p)))
            b.store(self.scores, i * KEYS * 4, p)
            factors.append(factor)
        self._over_values(lambda i, lanes: self._weigh(row, n, factors, i, lanes))

    def _dots(self, row: Node, n: int) -> list[Node]:
        """q . k of n rows with 32 keys."""
        b = self.b

        def step(i: Node, *sums: Node) -> list[Node]:
            keys = b.load(self.key_block, i * (KEYS * 4), F32.vec(KEYS))
            result = []
            for r, total in enumerate(sums):
                x = b.load(self.queries, (row + r) * (self.d * 4) + i * 4, F32)
                result.append(b.fma(keys, b.splat(x, KEYS), total))
            return result

        return list(b.loop(0, self.d, step, [b.const(0.0, F32.vec(KEYS))] * n))

    def _masked(self, dots: Node, at: Node, token: Node, shift: Node, head: Node, seq: Node) -> Node:
        """Scores: scaled, capped, with the mask's and the structural -inf."""
        b, spec, k = self.b, self.spec, self.k
        s = dots * spec.scale
        if spec.logit_softcap:
            s = b.math("tanh", s * (1.0 / spec.logit_softcap)) * spec.logit_softcap
        j = b.splat(at, KEYS) + b.const(tuple(range(KEYS)), I64.vec(KEYS))
        visible = b.cmp("lt", j, b.splat(self.n_kv, KEYS))
        if spec.causal:
            position = b.splat(token + shift, KEYS)
            visible = b.and_(visible, b.cmp("le", j, position))
            if spec.window:
                visible = b.and_(visible, b.cmp("gt", j, position - spec.window))
        if self.mask is not None:
            m2 = _within(k, head, self.mask, 2)
            m3 = _within(k, seq, self.mask, 3)
            bias = self._mask_lanes(at, token, m2, m3)
            if spec.max_bias:
                bias = bias * b.splat(self._slope(head), KEYS)
            s = s + bias
        elif spec.max_bias:
            distance = b.cast(j - b.splat(token + shift, KEYS), F32)
            s = s + distance * b.splat(self._slope(head), KEYS)
        return b.select(visible, s, float("-inf"))

    def _mask_lanes(self, at: Node, token: Node, m2: Operand, m3: Operand) -> Node:
        """32 mask values from key `at` on; past the end anything (those keys are masked anyway)."""
        b, mask = self.b, self.mask
        assert mask is not None
        inside = b.cmp("le", at + KEYS, self.n_kv)

        def one_by_one() -> Node:
            lanes = b.const(0.0, F32.vec(KEYS))
            for i in range(KEYS):
                lanes = b.insert(lanes, mask.at((b.min(at + i, self.n_kv - 1), token, m2, m3), 1), i)
            return lanes

        (value,) = b.when(inside, lambda: mask.at((at, token, m2, m3), KEYS), one_by_one)
        return value

    def _slope(self, head: Node) -> Node:
        """ALiBi's slope of a head: a table made here, since heads and bias are known. Source: ggml's soft_max."""
        b = self.b
        n_log2 = 1 << (max(self.n_head, 1).bit_length() - 1)
        m0 = 2.0 ** (-self.spec.max_bias / n_log2)
        m1 = 2.0 ** (-(self.spec.max_bias / 2.0) / n_log2)
        slope = b.const(1.0)
        for h in range(self.n_head):
            value = m0 ** (h + 1) if h < n_log2 else m1 ** (2 * (h - n_log2) + 1)
            slope = b.select(b.cmp("eq", head, h), b.const(value), slope)
        return slope

    def _weigh(self, row: Node, n: int, factors: list[Node], column: Node, lanes: int) -> None:
        """o = o * factor + p . v for some columns of n rows."""
        b = self.b
        old = [b.load(self.sums, ((row + r) * self.dv + column) * 4, F32.vec(lanes)) for r in range(n)]
        start = [o * b.splat(f, lanes) for o, f in zip(old, factors, strict=True)]

        def step(j: Node, *sums: Node) -> list[Node]:
            v = b.load(self.value_block, (j * self.dv + column) * 4, F32.vec(lanes))
            result = []
            for r, total in enumerate(sums):
                p = b.load(self.scores, j * 4 + r * KEYS * 4, F32)
                result.append(b.fma(v, b.splat(p, lanes), total))
            return result

        done = b.loop(0, KEYS, step, start)
        for r, total in enumerate(done):
            b.store(self.sums, ((row + r) * self.dv + column) * 4, total)

    def _over_values(self, body: Callable[[Node, int], None]) -> None:
        """body(column, lanes) over the columns of a value row: 32, then 8, then 1 at a time."""
        b, at = self.b, 0
        for lanes in (32, 8, 1):
            stop = self.dv // lanes * lanes
            b.loop(at, stop, lambda i, lanes=lanes: body(i, lanes), step=lanes)
            at = stop

    # -- the end of a row ----------------------------------------------------------------------------------------------

    def _finish(self, row: Node, first: Node, head: Node, seq: Node) -> None:
        """o / l to the result; zeros for a row that saw nothing."""
        b = self.b
        token, query_head = self._place(row, first, head)
        m, total = b.load(self.state, row * 8, F32), b.load(self.state, row * 8 + 4, F32)
        factor = b.const(1.0)
        if self.sinks is not None:
            sink = self.sinks.at((query_head, 0, 0, 0), 1)
            m_new = b.max(m, sink)
            factor = b.math("exp", m - m_new)
            total = total * factor + b.math("exp", sink - m_new)
        scale = b.select(b.cmp("gt", total, 0.0), factor / total, b.const(0.0))

        def store(i: Node, lanes: int) -> None:
            o = b.load(self.sums, (row * self.dv + i) * 4, F32.vec(lanes))
            self.out.put((i, query_head, token, seq), o * b.splat(scale, lanes))

        self._over_values(store)


def _within(k: KernelContext, index: Node, place: Place, axis: int) -> Operand:
    """An index into a mask that may be shared along this axis."""
    n = place.tensor.ne[axis]
    return 0 if n == 1 else k.value(index) % k.size(n)
