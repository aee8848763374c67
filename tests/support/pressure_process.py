"""A process of a fleet that fares well: it prints each factor that is in force for it."""

import sys
import threading
from dataclasses import replace

from headgate.overload import PressureControl
from headgate.policy.model import Pressure
from headgate.stores.redis import RedisStore
from headgate.units import MILLISECOND

QUICK = replace(Pressure(), interval_ns=50 * MILLISECOND)


def main(url: str) -> None:
    """Have requests until the standard input ends."""
    control = PressureControl(QUICK, store=RedisStore(url))
    control.on_change(lambda factor: print(float(factor), flush=True))
    ending = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ending.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    print("ready", flush=True)
    while not ending.wait(0.01):
        control.record(latency_ns=MILLISECOND)
    control.close()


if __name__ == "__main__":
    main(sys.argv[1])
