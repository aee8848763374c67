"""Stores in shared memory for tests, each with a name of its own, removed afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex

from headgate.clock import Clock
from headgate.stores.shm import ShmStore
from headgate.stores.shm.file import path_of
from headgate.stores.shm.table import HEAD, INLINE, Blocks


def new_name() -> str:
    """A name that no store has."""
    return f"test-{token_hex(8)}"


@contextmanager
def fresh_url(options: str = "size=2MB&timeout=10") -> Iterator[str]:
    """The URL of a store that nobody has used; its file is removed in the end."""
    name = new_name()
    try:
        yield f"shm://{name}?{options}"
    finally:
        path_of(name).unlink(missing_ok=True)


@contextmanager
def fresh_store(clock: Clock | None = None, options: str = "size=2MB") -> Iterator[ShmStore]:
    """A store that nobody has used."""
    with fresh_url(options) as url:
        store = ShmStore(url, clock=clock)
        try:
            yield store
        finally:
            store.close()


def assert_every_block_has_one_owner(store: ShmStore) -> None:
    """No block is lost, and none is in two chains: those of the cells, and the free one."""
    file = store._files.current
    assert file is not None
    blocks = Blocks(file)
    owned: list[int] = []
    for table in (file.own, file.overflow):
        for bucket in range(len(table)):
            for cell in table.used_cells(bucket):
                _, length, first = HEAD.unpack_from(file.memory, cell)
                if length > INLINE:
                    owned += blocks.read(first, length)[1]
    free = blocks.first_free
    while free <= file.layout.blocks:
        owned.append(free)
        free = blocks.next(free)
    assert sorted(owned) == list(range(1, file.layout.blocks + 1))
