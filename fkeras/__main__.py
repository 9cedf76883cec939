"""`python -m fkeras`: see `fkeras.saving.command`."""

from fkeras.saving.command import main

raise SystemExit(main())
