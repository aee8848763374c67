"""The process of a worker, started by a supervisor: `python -m headgate.service CHANNEL`."""

import sys

from headgate.service.worker import main

sys.exit(main(int(sys.argv[1])))
