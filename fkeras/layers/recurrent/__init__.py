"""Recurrent layers: SimpleRNN, LSTM, GRU, RNN with any cell, and what wraps them."""

from fkeras.layers.recurrent.bidirectional import Bidirectional
from fkeras.layers.recurrent.cells import StackedRNNCells
from fkeras.layers.recurrent.conv_lstm import ConvLSTM1D, ConvLSTM2D, ConvLSTM3D
from fkeras.layers.recurrent.gru import GRU, GRUCell
from fkeras.layers.recurrent.lstm import LSTM, LSTMCell
from fkeras.layers.recurrent.rnn import RNN
from fkeras.layers.recurrent.simple_rnn import SimpleRNN, SimpleRNNCell
from fkeras.layers.recurrent.time_distributed import TimeDistributed
from fkeras.nn.recurrence import conv_lstm_step, gru_step, lstm_step, scan_sequence, simple_rnn_step

__all__ = (
    "GRU",
    "LSTM",
    "RNN",
    "Bidirectional",
    "ConvLSTM1D",
    "ConvLSTM2D",
    "ConvLSTM3D",
    "GRUCell",
    "LSTMCell",
    "SimpleRNN",
    "SimpleRNNCell",
    "StackedRNNCells",
    "TimeDistributed",
    "conv_lstm_step",
    "gru_step",
    "lstm_step",
    "scan_sequence",
    "simple_rnn_step",
)
