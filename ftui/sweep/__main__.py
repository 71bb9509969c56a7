"""`python -P -m ftui.sweep FOLDER [LOCK_FD]`: the process that decides what a sweep tries next."""

import sys

from ftui.sweep.controller import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
