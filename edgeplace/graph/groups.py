"""Groups of nodes that are merged step by step and always form an acyclic graph."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from edgeplace.graph.graph import Graph


class Groups:
    """A partition of a graph's nodes. Merging never makes two groups that need each other.

    A group is named by the lowest position (in the graph's order) of its nodes.

    Args:
        graph: Its constant producers are in no group: they are copied to their readers.
        replicated: Those constant producers.
        together: Sets of nodes that start in one group, with everything that lies on a path between them.
    """

    def __init__(
        self, graph: Graph, replicated: frozenset[int], together: Iterable[Sequence[int]] = ()
    ) -> None:
        self.graph = graph
        self.position = {node: at for at, node in enumerate(graph.order)}
        placed = [node for node in graph.order if node not in replicated]
        root = _joined(placed, together)
        edges = _edges(graph, set(placed))
        pairs = {(root[source], root[target]) for source, target in edges}
        component = _strong_components(sorted(set(root.values()), key=self.position.__getitem__), pairs)
        self.members: dict[int, list[int]] = {}
        where: dict[int, int] = {}
        names: dict[int, int] = {}
        for node in placed:
            group = names.setdefault(component[root[node]], self.position[node])
            where[node] = group
            self.members.setdefault(group, []).append(node)
        self.after: dict[int, dict[int, set[int]]] = {group: {} for group in self.members}
        self.before: dict[int, dict[int, set[int]]] = {group: {} for group in self.members}
        for (source, target), tensors in edges.items():
            start, end = where[source], where[target]
            if start != end:
                self.after[start].setdefault(end, set()).update(tensors)
                self.before[end].setdefault(start, set()).update(tensors)
        # A topological order of the groups that every merge keeps right, with holes (None) where groups vanished.
        self._slots: list[int | None] = list(self.in_order())
        self._slot = {group: slot for slot, group in enumerate(self._slots) if group is not None}

    def edge_bytes(self, source: int, target: int) -> int:
        """Bytes of the tensors that go from one group to the other."""
        return sum(self.graph.tensors[tensor].size_bytes for tensor in self.after[source].get(target, ()))

    def may_merge(self, one: int, other: int) -> bool:
        """Whether the two can become one without a third that needs it and is needed by it."""
        first, second = sorted((one, other), key=self._slot.__getitem__)
        between = self._reached(first, self._slot[second])
        return not any(group in self.before[second] for group in between)

    def merge(self, one: int, other: int) -> int:
        """Make one group of two for which :meth:`may_merge` holds; gives its name."""
        keep, gone = min(one, other), max(one, other)
        self._reorder(keep, gone)
        self.members[keep] = sorted(
            self.members[keep] + self.members.pop(gone), key=self.position.__getitem__
        )
        for links, back in ((self.after, self.before), (self.before, self.after)):
            for neighbour, tensors in links.pop(gone).items():
                del back[neighbour][gone]
                if neighbour != keep:
                    links[keep].setdefault(neighbour, set()).update(tensors)
                    back[neighbour].setdefault(keep, set()).update(tensors)
        return keep

    def in_order(self) -> list[int]:
        """The groups in a topological order: of those that may come next, the one that begins first."""
        return topological(self.members, {group: list(self.after[group]) for group in self.members})

    def _reached(self, start: int, limit: int) -> set[int]:
        """The groups in slots before ``limit`` that a path from ``start`` leads to, without ``start``."""
        seen: set[int] = set()
        waiting = [start]
        while waiting:
            for group in self.after[waiting.pop()]:
                if group not in seen and self._slot[group] < limit:
                    seen.add(group)
                    waiting.append(group)
        return seen

    def _reorder(self, keep: int, gone: int) -> None:
        """Bring the slots from the first to the second of two groups in the order that holds when they are one.

        What the first leads to comes after both, everything else between them comes before. (Only the stretch
        between the two is touched, as in the dynamic topological order of Pearce and Kelly, 2006.)
        """
        low, high = sorted((self._slot[keep], self._slot[gone]))
        first = self._slots[low]
        assert first is not None
        later = self._reached(first, high)
        between = [group for group in self._slots[low + 1 : high] if group is not None]
        stretch: list[int | None] = [group for group in between if group not in later]
        stretch += [keep, *(group for group in between if group in later)]
        stretch += [None] * (high - low + 1 - len(stretch))
        self._slots[low : high + 1] = stretch
        del self._slot[gone]
        for slot, group in enumerate(stretch, start=low):
            if group is not None:
                self._slot[group] = slot


def topological(names: Iterable[int], after: dict[int, list[int]]) -> list[int]:
    """Names so that each comes before those it leads to; the smallest of those that may come next goes first.

    Raises:
        ValueError: There is a circle.
    """
    missing = dict.fromkeys(names, 0)
    for targets in after.values():
        for target in targets:
            missing[target] += 1
    ready = [name for name, count in missing.items() if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        name = heapq.heappop(ready)
        order.append(name)
        for target in after.get(name, ()):
            missing[target] -= 1
            if missing[target] == 0:
                heapq.heappush(ready, target)
    if len(order) < len(missing):
        raise ValueError("the groups need each other")
    return order


def _edges(graph: Graph, placed: set[int]) -> dict[tuple[int, int], set[int]]:
    """(maker, reader) -> the tensors that go between them, among the placed nodes."""
    edges: dict[tuple[int, int], set[int]] = {}
    for tensor, maker in graph.producer.items():
        if maker in placed:
            for reader in graph.consumers.get(tensor, ()):
                if reader in placed:
                    edges.setdefault((maker, reader), set()).add(tensor)
    return edges


def _joined(nodes: Sequence[int], together: Iterable[Sequence[int]]) -> dict[int, int]:
    """Node -> representative of the set it is in (union-find over the bonds)."""
    parent = {node: node for node in nodes}

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for bonded in together:
        present = [node for node in bonded if node in parent]
        for node in present[1:]:
            parent[find(node)] = find(present[0])
    return {node: find(node) for node in nodes}


def _strong_components(names: Sequence[int], pairs: set[tuple[int, int]]) -> dict[int, int]:
    """Name -> number of its strongly connected component (Tarjan 1972, without recursion).

    Two sets of nodes that need each other are in one component, and so is all that lies on a path between members of
    one set: merging components is exactly the convex closure, for all sets at once.
    """
    after: dict[int, list[int]] = {name: [] for name in names}
    for source, target in sorted(pairs):
        if source != target:
            after[source].append(target)
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    component: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    components = 0
    for start in names:
        if start in index:
            continue
        work: list[tuple[int, int]] = [(start, 0)]
        while work:
            name, at = work.pop()
            if at == 0:
                index[name] = low[name] = len(index)
                stack.append(name)
                on_stack.add(name)
            else:
                low[name] = min(low[name], low[after[name][at - 1]])
            for step in range(at, len(after[name])):
                target = after[name][step]
                if target not in index:
                    work.append((name, step + 1))
                    work.append((target, 0))
                    break
                if target in on_stack:
                    low[name] = min(low[name], index[target])
            else:
                if low[name] == index[name]:
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component[member] = components
                        if member == name:
                            break
                    components += 1
    return component
