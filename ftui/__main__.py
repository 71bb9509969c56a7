"""`python -m ftui` is the same program as the command `ftui`."""

from ftui.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
