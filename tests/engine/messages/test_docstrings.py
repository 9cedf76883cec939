"""Docstrings of class families."""

import dataclasses
import inspect

import fkeras as fk
from fkeras.engine.messages.docstrings import complete_docstring


class Base:
    """Scales x.

    Args of the family:
        rate: the factor.
        bias: the
            summand.

    Raises of the family:
        ValueError: for NaN.
    """


def test_sections_of_the_family_complete_a_docstring():
    class Half(Base):
        """Halves x.

        Args:
            rate: the divisor.

        Example:
            >>> Half()

        Notes:
            None.
        """

    complete_docstring(Half, ["bias", "rate"])
    assert Half.__doc__ == inspect.cleandoc(
        """
        Halves x.

        Args:
            bias: the
                summand.
            rate: the divisor.

        Raises:
            ValueError: for NaN.

        Example:
            >>> Half()

        Notes:
            None.
        """
    )


def test_only_arguments_of_the_class_are_added():
    class Scale(Base):
        """Scales x."""

    complete_docstring(Scale, ["rate"])
    assert "rate: the factor." in (Scale.__doc__ or "")
    assert "bias" not in (Scale.__doc__ or "")


def test_other_docstrings_stay():
    class Plain:
        """Returns x."""

    class Silent(Base):
        pass

    for cls in (Plain, Silent, Base):
        before = cls.__doc__
        complete_docstring(cls, ["rate"])
        assert cls.__doc__ == before


def test_classes_of_a_family_document_all_arguments():
    layers = fk.layers
    families = (layers.MaxPooling1D, layers.Conv3D, layers.GRU, layers.LSTMCell, layers.ConvLSTM2D)
    for cls in (*families, layers.GroupQueryAttention, fk.initializers.HeNormal):
        general = ("name", "trainable", "dtype")
        text = (cls.__doc__ or "").partition("Args:\n")[2]
        for field in dataclasses.fields(cls):
            if field.init and field.name not in general:
                assert f"\n    {field.name}:" in f"\n{text}", f"{cls.__name__}: {field.name}"
