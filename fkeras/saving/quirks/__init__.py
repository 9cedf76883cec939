"""Quirks: behaviour of Keras versions that files do not record; see `table`.

Arguments of the quirks, documented here only:

    config: configuration of the model, before or after the conversion to Keras 3's form.
    origin: the program that wrote the file.
    custom: names of the user's classes, which no quirk changes.
"""
