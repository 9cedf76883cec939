"""`python -m fkeras`: see `fkeras.saving.command`."""

from fkeras.saving.command import main

if __name__ == "__main__":
    raise SystemExit(main())
