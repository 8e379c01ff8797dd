"""From a region to a kernel: the region's last op asks its sources for values, and they theirs, down to loads.

Arrives: a `Region`; leaves: a kernel in kernel IR, and its signature: equal regions (22 equal layers) have equal
ones and share a kernel. Next module: `plan.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gml.compiler.regions import Region, form_of
from gml.compiler.state import Options
from gml.dims import Dim, is_static
from gml.dtypes import F32
from gml.kernel_ir import Block, Kernel, KernelError, Node
from gml.ops.lower import (
    Chunks,
    Direct,
    Elementwise,
    Index,
    Indexed,
    KernelContext,
    Operand,
    Place,
    Row,
    RowSink,
    Rowwise,
    Tiled,
    Tiles,
    from_storage,
    tiles_lanes,
    to_storage,
)  # fmt: skip
from gml.tensor import Tensor, product


def region_roots(region: Region) -> list[Tensor]:
    """The tensors whose storage the kernel gets pointers to, in the order of its parameters."""
    found: dict[Tensor, None] = {}
    for tensor in [*region.inputs, region.out]:
        found.setdefault(tensor.root)
    return list(found)


def signature(region: Region, options: Options) -> str:
    """Everything that the kernel depends on, but not which buffers it works on: equal regions can share a kernel."""
    roots = {root: i for i, root in enumerate(region_roots(region))}
    inputs = {t: i for i, t in enumerate(region.inputs)}
    members = {t: i for i, t in enumerate(region.nodes)}
    rows = [f"lanes={options.lanes}"]
    for t in region.inputs:
        rows.append(f"in {_shape_text(t)} root={roots[t.root]} {t.role == 'constant'}")
    for t in region.nodes:
        src = [f"n{members[s]}" if s in members else f"i{inputs[s]}" for s in t.src]
        rows.append(f"{t.op.name if t.op else ''} {t.attrs!r} {src} {_shape_text(t)}")
    rows.append(f"out root={roots[region.out.root]}")
    return "\n".join(rows)


def _shape_text(t: Tensor) -> str:
    return f"{t.type.name} ne={t.ne} nb={t.nb} offset={t.offset}"


def chunks_of(region: Region) -> Chunks:
    """How much work the region is."""
    out = region.out
    for node in region.nodes:
        form = form_of(node)
        if isinstance(form, (Tiles, Direct)):
            return form.chunks(node.attrs, node, *node.src)
    form = form_of(out)
    if isinstance(form, RowSink) and form.ordered:
        return Chunks(())
    return Chunks(tuple((n, 1) for n in _visited(out).ne[1:] if n != 1))


def _visited(out: Tensor) -> Tensor:
    """The tensor whose rows a region of pulled ops visits."""
    form = form_of(out)
    return out.src[form.over] if isinstance(form, RowSink) and form.over is not None else out


def lower_region(region: Region, name: str, dims: Sequence[Dim], options: Options) -> Kernel:
    """The region's kernel."""
    k = KernelContext(name, options.lanes)
    k.open(region_roots(region), dims)
    lowering = _RegionLowering(k, region)
    tiles = [n for n in region.nodes if isinstance(form_of(n), Tiles)]
    form = form_of(region.out)
    if tiles:
        lowering.tiles(tiles)
    elif isinstance(form, Direct):
        form.fn(k, region.out.attrs, k.place(region.out), *[k.place(s) for s in region.out.src])
    else:
        lowering.rows()
    kernel = k.b.finish()
    kernel.meta["failures"] = k.failures
    kernel.meta["region"] = [n.op.name for n in region.nodes if n.op]
    return kernel


class _Pulled:
    """A fused node as a source of values."""

    def __init__(self, lowering: _RegionLowering, node: Tensor) -> None:
        self.lowering, self.tensor, self.k = lowering, node, lowering.k

    def at(self, index: Index, lanes: int = 1) -> Node:
        return self.lowering.pull(self.tensor, index, lanes)


class _TileVisitor:
    """What a walk over tiles calls: computes the tile of every producer and finishes the results."""

    def __init__(
        self, lowering: _RegionLowering, tiles: Sequence[Tensor], places: dict[Tensor, list[Place]], target: Place
    ) -> None:
        self.lowering, self.tiles, self.places, self.target = lowering, tiles, places, target
        self.entered: dict[Tensor, Any] = {}

    def enter(self, panel: Any) -> None:
        for t in self.tiles:
            form = form_of(t)
            assert isinstance(form, Tiles)
            self.entered[t] = form.enter(self.lowering.k, t.attrs, panel, *self.places[t])

    def tile(self, tile: Any) -> None:
        k = self.lowering.k
        computed = []
        for t in self.tiles:
            form = form_of(t)
            assert isinstance(form, Tiles)
            computed.append(form.compute(k, t.attrs, tile, self.entered[t], *self.places[t]))
        for results in zip(*computed, strict=True):
            values = {t: value for t, (_, value) in zip(self.tiles, results, strict=True)}
            self.lowering.finish_tile(values, self.target, results[0][0])


class _RegionLowering:
    """Builds the kernel of one region."""

    def __init__(self, k: KernelContext, region: Region) -> None:
        self.k, self.region = k, region
        #: per node: the element function of rowwise ops, made once per row
        self.prepared: dict[Tensor, Any] = {}
        #: values that were pulled already, and the block in which they can be used
        self.pulled: dict[Any, tuple[Node, Block]] = {}
        #: values of tile producers at the index that is being finished
        self.tile_values: dict[Tensor, Node] = {}
        self.row: Row = (0, 0, 0)

    # -- values --------------------------------------------------------------------------------------------------------

    def source(self, tensor: Tensor) -> Any:
        """Something with `.at(index, lanes)` for a tensor: another member of the region, or memory."""
        return _Pulled(self, tensor) if tensor in self.region.members else self.k.place(tensor)

    def pull(self, node: Tensor, index: Index, lanes: int) -> Node:
        """The value of a member at an index."""
        if node in self.tile_values:
            return self.tile_values[node]
        key = (node, index, lanes)
        known = self.pulled.get(key)
        if known is not None and self.k.b.is_open(known[1]):
            return known[0]
        value = self._pull(node, index, lanes)
        self.pulled[key] = (value, self.k.b.block)
        return value

    def _pull(self, node: Tensor, index: Index, lanes: int) -> Node:
        op, form = node.op, form_of(node)
        assert op is not None
        if lanes > 1 and not self._vector(node):
            return self._one_by_one(node, index, lanes)
        if isinstance(form, Elementwise):
            values = [Tiled(self.source(s), s, node).at(index, lanes) for s in node.src]
            return self._rounded(node, form.fn(self.k.b, node.attrs, *values))
        if isinstance(form, Indexed):
            sources = [self.source(s) for s in node.src]
            if form.tiled:
                sources = [Tiled(source, s, node) for source, s in zip(sources, node.src, strict=True)]
            return self._rounded(node, form.fn(self.k, node.attrs, index, lanes, *sources))
        if isinstance(form, Rowwise):
            if node not in self.prepared:
                raise KernelError(f"{node.describe()} was asked for before its row was prepared")
            return self._rounded(node, self.prepared[node](index[0], lanes))
        raise KernelError(f"{node.describe()} cannot be pulled into another kernel")

    def _vector(self, node: Tensor) -> bool:
        form = form_of(node)
        if isinstance(form, Indexed):
            return form.vector(node.attrs, node, *node.src)
        if isinstance(form, Elementwise):
            return all(tiles_lanes(s, node) for s in node.src)
        return True

    def _one_by_one(self, node: Tensor, index: Index, lanes: int) -> Node:
        """Lanes that are not neighbours in the sources, gathered one at a time."""
        k, b = self.k, self.k.b
        first = k.value(index[0])
        values = [self.pull(node, (first + i, *index[1:]), 1) for i in range(lanes)]
        vector = b.splat(values[0], lanes)
        for i, value in enumerate(values[1:], 1):
            vector = b.insert(vector, value, i)
        return vector

    def _rounded(self, node: Tensor, value: Node) -> Node:
        """The value as it would come back from the node's storage type."""
        if node is self.region.out or node.type is F32 or node.type.is_integer:
            return value
        return from_storage(self.k.b, node.type, to_storage(self.k.b, node.type, value))

    # -- kernels -------------------------------------------------------------------------------------------------------

    def rows(self) -> None:
        """One row after the other."""
        k, out = self.k, self.region.out
        form, rows = form_of(out), _visited(out)

        def one_row(chunk: Node) -> None:
            self.row = self._row_index(chunk, rows)
            self.prepared.clear()
            for node in self.region.nodes:
                rowwise = form_of(node)
                if isinstance(rowwise, Rowwise):
                    sources = [self.source(s) for s in node.src]
                    self.prepared[node] = rowwise.fn(k, node.attrs, self.row, *sources)
            if isinstance(form, RowSink):
                form.fn(k, out.attrs, self.row, k.place(out), *[self.source(s) for s in out.src])
            else:
                place = k.place(out)
                self._store_row(place)

        if isinstance(form, RowSink) and form.ordered:
            n_rows = k.value(k.size(product(rows.ne[1:])))
            k.b.loop(k.begin, k.end, lambda _: k.b.loop(0, n_rows, one_row) and None)
        else:
            k.b.loop(k.begin, k.end, one_row)

    def _store_row(self, place: Place) -> None:
        out = self.region.out

        def store(i0: Operand, lanes: int) -> None:
            index = (i0, *self.row)
            place.put(index, self.pull(out, index, lanes))

        scalar_only = not all(self._vector(n) for n in self.region.nodes)
        if scalar_only:
            self.k.b.loop(0, self.k.size(out.ne[0]), lambda i: store(i, 1))
        else:
            self.k.for_lanes(self.k.size(out.ne[0]), store)

    def _row_index(self, chunk: Node, rows: Tensor) -> Row:
        """(i1, i2, i3) of a row number; sizes of 1 cost nothing."""
        axes = [i for i in range(1, 4) if rows.ne[i] != 1]
        found: list[Operand] = [0, 0, 0]
        flat: Operand = chunk
        for n, axis in enumerate(axes):
            if n == len(axes) - 1:
                found[axis - 1] = flat
            else:
                size = self.k.size(rows.ne[axis])
                found[axis - 1] = self.k.value(flat) % size
                flat = self.k.value(flat) // size
        i1, i2, i3 = found
        return i1, i2, i3

    def tiles(self, tiles: Sequence[Tensor]) -> None:
        """Tiles of the producers, finished by the elementwise members in registers."""
        k, out = self.k, self.region.out
        first = tiles[0]
        form = form_of(first)
        assert isinstance(form, Tiles)
        places = {t: [k.place(s) for s in t.src] for t in tiles}
        form.walk(k, first.attrs, first, _TileVisitor(self, tiles, places, k.place(out)), *places[first])

    def finish_tile(self, values: dict[Tensor, Node], target: Place, index: Index) -> None:
        """Store a vector of results, after the elementwise members."""
        self.tile_values = values
        self.pulled.clear()
        out = self.region.out
        self._put_tile(target, index, values.get(out))
        self.tile_values = {}

    def _put_tile(self, target: Place, index: Index, value: Node | None) -> None:
        out = self.region.out
        lanes = next(iter(self.tile_values.values())).lanes
        n = out.ne[0]
        if is_static(n) and n % lanes == 0:  # type: ignore[operator]
            self._finish(target, index, value, lanes)
            return
        # the last tile reaches over the edge: its lanes are finished one at a time
        k, b = self.k, self.k.b
        start = k.value(index[0])
        whole = b.cmp("le", start + lanes, k.value(k.size(n)))
        saved = dict(self.tile_values)

        def edge() -> None:
            for lane in range(lanes):

                def one(lane: int = lane) -> None:
                    self.tile_values = {t: b.extract(v, lane) for t, v in saved.items()}
                    own = self.tile_values[out] if value is not None else None
                    self._finish(target, (start + lane, *index[1:]), own, 1)

                b.when(b.cmp("lt", start + lane, k.value(k.size(n))), one)
            self.tile_values = saved

        b.when(whole, lambda: self._finish(target, index, value, lanes), edge)

    def _finish(self, target: Place, index: Index, value: Node | None, lanes: int) -> None:
        target.put(index, self.pull(self.region.out, index, lanes) if value is None else value)
