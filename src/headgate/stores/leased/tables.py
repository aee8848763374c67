"""Where the loans of each group are, by the limit they are under."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.stores.leased.loans import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.limits import Limit
    from headgate.stores.port import Terms

MOST_LIMITS: Final = 64
"""How many limits of one group are remembered: policies change."""


class Tables:
    """The tables of a book, made when they are first asked for, each with a number of its own."""

    def __init__(self) -> None:
        self.terms: Terms = {}
        self._groups: dict[str, dict[Limit, Table]] = {}
        # By the identity of limits, which each table keeps: to hash one takes longer than the rest.
        self._lately: dict[tuple[str, int], Table] = {}
        self._numbers = 0

    def __iter__(self) -> Iterator[Table]:
        for tables in list(self._groups.values()):
            yield from list(tables.values())

    def of_group(self, group: str) -> list[Table]:
        """All tables of *group*."""
        return list(self._groups.get(group, {}).values())

    def find(self, group: str, limit: Limit) -> Table | None:
        """The table of *group* under *limit*, if there is one."""
        found = self._lately.get((group, id(limit)))
        return found or self._groups.get(group, {}).get(limit)

    def open(self, group: str, limit: Limit) -> tuple[Table | None, Table | None]:
        """The table of *group* under *limit*, None if it is kept exactly; and one that had to make
        way for it."""
        table = self.find(group, limit)
        accuracy = self.terms.get(group)
        if table is not None or accuracy is None:
            return table, None
        tables = self._groups.setdefault(group, {})
        ousted = None
        if len(tables) >= MOST_LIMITS:
            ousted = next(iter(tables.values()))
            self._forget(ousted)
        table = tables[limit] = Table(group, limit, accuracy, 0)
        self._lately[group, id(limit)] = table
        self.number(table)
        return table, ousted

    def number(self, table: Table) -> None:
        """Give *table* a number that none had before."""
        self._numbers += 1
        table.number = self._numbers
        table.tag = f"{self._numbers}:{table.group}"

    def adopt(self, terms: Terms) -> list[Table]:
        """Take *terms* for those in force; the tables of groups that are kept otherwise now."""
        before, self.terms = self.terms, dict(terms)
        changed = {group for group in {*before, *terms} if before.get(group) != terms.get(group)}
        gone = [table for group in changed for table in self.of_group(group)]
        for table in gone:
            self._forget(table)
        return gone

    def _forget(self, table: Table) -> None:
        self._lately.pop((table.group, id(table.limit)), None)
        tables = self._groups[table.group]
        del tables[table.limit]
        if not tables:
            del self._groups[table.group]
