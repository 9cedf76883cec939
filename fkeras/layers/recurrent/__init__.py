"""Recurrent layers: SimpleRNN, LSTM, GRU, RNN with any cell, and what wraps them."""

from fkeras.layers.recurrent.bidirectional import Bidirectional
from fkeras.layers.recurrent.cells import StackedRNNCells
from fkeras.layers.recurrent.conv_lstm import conv_lstm_step
from fkeras.layers.recurrent.convolutional import ConvLSTM1D, ConvLSTM2D, ConvLSTM3D
from fkeras.layers.recurrent.gru import GRU, GRUCell, gru_step
from fkeras.layers.recurrent.lstm import LSTM, LSTMCell, lstm_step
from fkeras.layers.recurrent.rnn import RNN
from fkeras.layers.recurrent.simple_rnn import SimpleRNN, SimpleRNNCell, simple_rnn_step
from fkeras.layers.recurrent.time_distributed import TimeDistributed
from fkeras.nn.scanning import scan_sequence

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
