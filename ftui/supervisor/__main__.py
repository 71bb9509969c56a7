"""`python -P -m ftui.supervisor RUN_DIR [LOCK_FD [CARD_FD ...]]`: the process that watches one run."""

import sys

from ftui.supervisor.supervise import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
