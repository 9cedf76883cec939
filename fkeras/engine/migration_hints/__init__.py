"""Migration hints: error messages for habits of Keras users that name the code to write instead.

A layer, a model and a Trainer are values here, so a part of Keras's interface has no counterpart
under its own name. Each module of this package holds one table: `attributes` of objects and
symbolic tensors, `arguments` of constructors and functions, `names` of the package's namespaces,
`classes` in Keras's form, and `keras_objects` in the place of ours. Code stands in backticks; a
test compiles and runs it.
"""
