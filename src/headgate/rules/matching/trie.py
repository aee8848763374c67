"""Where patterns end, found by walking a path: a trie with edges for words, `*` and `**`.

A walk keeps the set of nodes that the segments so far lead to, as one does for a nondeterministic
automaton: its effort is the length of the path times the nodes it stands on at once, whatever the
patterns, and nodes it does not come to cost nothing. A `**` at the end of a pattern is done with as
soon as it is reached; only one with more behind it goes along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from headgate.rules.matching.pattern import ANY, ONE

if TYPE_CHECKING:
    from headgate.rules.matching.path import Segments
    from headgate.rules.matching.pattern import Pattern

T = TypeVar("T")


class Node(Generic[T]):
    """What can follow a prefix of patterns, and the *content* of those that end here.

    *deep* is the node behind `**`; on such a node the walk stays, whatever comes.
    """

    __slots__ = ("content", "deep", "one", "words")

    def __init__(self) -> None:
        self.words: dict[str, Node[T]] = {}
        self.one: Node[T] | None = None
        self.deep: Node[T] | None = None
        self.content: T | None = None

    def child(self, segment: str) -> Node[T]:
        """The node that *segment* of a pattern leads to, made if need be."""
        if segment == ANY:
            self.deep = self.deep or Node()
            return self.deep
        if segment == ONE:
            self.one = self.one or Node()
            return self.one
        return self.words.setdefault(segment, Node())

    @property
    def goes_on(self) -> bool:
        return bool(self.words) or self.one is not None


class Trie(Generic[T]):
    """Contents, by patterns. Filled first, through `place`; then only walked."""

    def __init__(self) -> None:
        self._root: Node[T] = Node()

    def place(self, pattern: Pattern) -> Node[T]:
        """The node where *pattern* ends; the same for the same pattern."""
        node = self._root
        for segment in pattern.segments:
            node = node.child(segment)
        return node

    def walk(self, path: Segments) -> set[T]:
        """The contents of all patterns that *path* fits.

        A node other than one behind `**` is reached through its parent only, so that no step
        comes to it twice; those are kept apart, as a set, for the walk never leaves them.
        """
        found: set[T] = set()
        staying: set[Node[T]] = set()
        nodes = [self._root]
        _look_deep(nodes, staying, found)
        for segment in path:
            reached: list[Node[T]] = []
            for node in [*nodes, *staying] if staying else nodes:
                word = node.words.get(segment)
                if word is not None:
                    reached.append(word)
                if node.one is not None:
                    reached.append(node.one)
            nodes = reached
            if nodes:
                _look_deep(nodes, staying, found)
            elif not staying:
                return found
        found.update([node.content for node in nodes if node.content is not None])
        return found


def _look_deep(nodes: list[Node[T]], staying: set[Node[T]], found: set[T]) -> None:
    """Follow the `**` behind *nodes*."""
    for node in nodes:
        deep = node.deep
        if deep is not None:
            if deep.content is not None:
                found.add(deep.content)
            if deep.goes_on:
                staying.add(deep)
