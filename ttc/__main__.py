"""`python -m ttc`: the command line, where no script of that name is installed."""

from ttc.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
