"""Files, archives and processes of the machine, which know no layer."""
