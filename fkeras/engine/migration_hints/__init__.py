"""Migration hints: error messages for Keras code, with the fkeras code to write instead.

Layers, models and Trainers are values here, so parts of Keras's interface have no counterpart of
the same name. `hints.txt` holds the hints by name, and `hints` looks them up. Each other module writes
the messages of one kind of code: `attributes` of objects and symbolic tensors, `arguments` of
constructors and functions, `names` in the package's namespaces, `classes` and `overrides` for
subclasses written for Keras, and `keras_objects` passed to fkeras. Hints show code in backticks; a
test compiles and runs that code.
"""
