"""Stores in shared memory for tests, each with a name of its own, removed afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex

from headgate.clock import Clock
from headgate.stores.shm import ShmStore
from headgate.stores.shm.place import path_of


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
