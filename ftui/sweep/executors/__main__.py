"""`python -P -m ftui.sweep.executors SWEEP TRIAL [--until-eof]`: what a node of a cluster does with a trial."""

import sys

from ftui.sweep.executors.on_node import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
