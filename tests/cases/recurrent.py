"""Rows of the layer table: recurrent layers, their cells and wrappers."""

from fkeras import layers
from tests.cases import Case

X = ((2, 5, 3),)
MASK = (2, 5)
REGULARIZED = {
    "kernel_regularizer": "l2",
    "recurrent_regularizer": "l1",
    "bias_regularizer": "l2",
    "kernel_constraint": "max_norm",
    "recurrent_constraint": "unit_norm",
    "bias_constraint": "non_neg",
}


def _rows(cls, exhaustive=False):
    """All rows run the same loop; `exhaustive` marks rows whose options another row covers."""
    loop = {"mask": MASK, "exhaustive": exhaustive}
    return (
        Case(cls(4), X),
        Case(cls(4, return_sequences=True, return_state=True), X, mask=MASK),
        Case(cls(4, return_sequences=True, go_backwards=True), X, **loop),
        Case(cls(4, go_backwards=True), X, **loop),
        Case(cls(4, return_sequences=True, zero_output_for_mask=True), X, **loop),
        Case(cls(4, unroll=True, go_backwards=True, return_state=True), X, **loop),
        Case(cls(4, use_bias=False, activation=None), X),
        Case(cls(4, activation="relu", bias_initializer="ones", **REGULARIZED), X),
        # Keras's stateless_call does not penalize activity
        Case(cls(4, activity_regularizer="l2"), X, keras=False),
        Case(cls(4, dropout=0.3, recurrent_dropout=0.2, seed=3), X, training=True, keras=False),
        Case(cls(4, stateful=True, return_sequences=True), X, mask=MASK, keras=False),
    )


CASES = (
    *_rows(layers.LSTM),
    *_rows(layers.SimpleRNN, exhaustive=True),
    # first of the rows with a mask: the comparison with Keras runs that row by default
    Case(layers.GRU(4, reset_after=False), X, mask=MASK),
    *_rows(layers.GRU, exhaustive=True),
    Case(layers.LSTM(4, recurrent_activation="hard_sigmoid", unit_forget_bias=False), X),
    Case(layers.LSTM(4, dropout=0.5, implementation=1), X, training=True, keras=False),
    Case(layers.LSTM(4, use_cudnn=False, recurrent_activation=None), X),
    Case(layers.GRU(4, reset_after=False, bias_initializer="ones", return_sequences=True), X),
    Case(
        layers.GRU(4, reset_after=False, dropout=0.5, recurrent_dropout=0.5),
        X,
        training=True,
        keras=False,
    ),
    Case(layers.SimpleRNNCell(4), ((2, 3), [(2, 4)])),
    Case(layers.SimpleRNNCell(3, "relu", use_bias=False), ((2, 4), [(2, 3)])),
    Case(layers.LSTMCell(4), ((2, 3), [(2, 4), (2, 4)])),
    Case(layers.LSTMCell(4, implementation=1, use_bias=False), ((2, 3), [(2, 4), (2, 4)])),
    Case(
        layers.LSTMCell(4, dropout=0.5, recurrent_dropout=0.5),
        ((2, 3), [(2, 4), (2, 4)]),
        training=True,
        keras=False,
    ),
    Case(layers.GRUCell(4), ((2, 3), [(2, 4)])),
    Case(layers.GRUCell(4, reset_after=False, bias_initializer="ones"), ((2, 3), [(2, 4)])),
    Case(layers.RNN(layers.LSTMCell(4), return_sequences=True), X, mask=MASK),
    Case(layers.RNN(layers.GRUCell(4), return_state=True, go_backwards=True), X, mask=MASK),
    Case(layers.RNN(layers.SimpleRNNCell(4), unroll=True), X, mask=MASK),
    Case(layers.RNN(layers.LSTMCell(4), stateful=True), X, keras=False),
    Case(layers.RNN(layers.LSTMCell(4, dropout=0.5)), X, training=True, keras=False),
    Case(
        layers.RNN(
            [layers.LSTMCell(4), layers.GRUCell(3)], return_sequences=True, return_state=True
        ),
        X,
        mask=MASK,
    ),
    Case(
        layers.RNN([layers.GRUCell(3), layers.SimpleRNNCell(4, dropout=0.5)], stateful=True),
        X,
        training=True,
        keras=False,
    ),
    Case(
        layers.StackedRNNCells([layers.LSTMCell(4), layers.GRUCell(3)]),
        ((2, 3), [[(2, 4), (2, 4)], [(2, 3)]]),
    ),
    Case(
        layers.StackedRNNCells([layers.SimpleRNNCell(2, "relu"), layers.SimpleRNNCell(3)]),
        ((2, 4), [[(2, 2)], [(2, 3)]]),
    ),
    Case(layers.Bidirectional(layers.LSTM(4, return_sequences=True)), X, mask=MASK),
    Case(layers.Bidirectional(layers.LSTM(4)), X, mask=MASK),
    # each compiles two loops: one row is enough to compare the merge modes with Keras
    Case(
        layers.Bidirectional(layers.GRU(4, return_sequences=True), merge_mode="sum"),
        X,
        exhaustive=True,
    ),
    Case(layers.Bidirectional(layers.GRU(4), merge_mode="mul"), X, mask=MASK, exhaustive=True),
    Case(layers.Bidirectional(layers.GRU(4, return_sequences=True), "ave"), X, mask=MASK),
    Case(layers.Bidirectional(layers.LSTM(4, return_sequences=True), None), X, mask=MASK),
    Case(layers.Bidirectional(layers.LSTM(4, return_state=True)), X, mask=MASK),
    Case(
        layers.Bidirectional(layers.GRU(4, return_state=True), merge_mode=None),
        X,
        exhaustive=True,
    ),
    Case(
        layers.Bidirectional(
            layers.LSTM(4, name="ahead"),
            backward_layer=layers.GRU(4, go_backwards=True, name="back"),
            merge_mode="sum",
        ),
        X,
        mask=MASK,
    ),
    Case(layers.Bidirectional(layers.RNN(layers.LSTMCell(4))), X, exhaustive=True),
    Case(layers.Bidirectional(layers.GRU(4, stateful=True)), X, keras=False),
    Case(layers.Bidirectional(layers.LSTM(4, dropout=0.5)), X, training=True, keras=False),
    Case(layers.TimeDistributed(layers.Dense(4)), X),
    # Keras ignores the penalty of the inner layer
    Case(layers.TimeDistributed(layers.Dense(4, activity_regularizer="l2")), X, keras=False),
    Case(layers.TimeDistributed(layers.Dense(4)), X, mask=MASK),
    # a loop in a loop
    Case(layers.TimeDistributed(layers.LSTM(4)), ((2, 3, 4, 2),), exhaustive=True),
    Case(layers.TimeDistributed(layers.BatchNormalization()), X),
    Case(layers.TimeDistributed(layers.BatchNormalization()), X, training=True),
    Case(layers.TimeDistributed(layers.Dropout(0.5)), X, training=True, keras=False),
)
