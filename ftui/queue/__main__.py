"""`python -P -m ftui.queue ROOT [LOCK_FD]`: the process that starts the runs of one queue."""

import sys

from ftui.queue.dispatcher import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
