"""Runs the docstring examples of `fk.ops`, which doctest misses because `Op` objects are no functions.

python tools/ci/op_examples.py
"""

import doctest
import sys

import fkeras as fk

SPACES = (fk.ops, fk.ops.image, fk.ops.linalg, fk.ops.nn, fk.ops.numpy)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

ops = {
    op.name: op
    for space in SPACES
    for name in space.__all__
    if isinstance(op := getattr(space, name), fk.ops.Op)
}
runner, parser = doctest.DocTestRunner(optionflags=FLAGS), doctest.DocTestParser()
lacking = []
for name, op in sorted(ops.items()):
    home = sys.modules.get(getattr(op.function, "__module__", None))
    names = {**vars(home), "fk": fk} if home.__name__.startswith("fkeras") else {"fk": fk}
    test = parser.get_doctest(op.__doc__, names, f"fk.ops.{name}", None, None)
    if not test.examples:
        lacking.append(name)
    runner.run(test)
print(f"{len(ops)} functions, {runner.tries} lines of examples, {runner.failures} failures")
if runner.failures or lacking:
    sys.exit(f"without an example: {', '.join(lacking)}" if lacking else 1)
