"""Build the data and the network of a program in the catalogue."""

from __future__ import annotations

from tf_jobs import models, text_models
from tf_jobs.data import DataSet, load_digits
from tf_jobs.flags import Values
from tf_jobs.models import Model
from tf_jobs.text_data import CONTEXT, alphabet, load_text


def load_data(program: str) -> DataSet:
    """Return the data set of a program. Raises InputError if it is not installed."""
    return load_text() if program.startswith("text_") else load_digits()


def build_model(program: str, values: Values) -> Model:
    """Return the network of a program, sized by its flags."""
    hidden = values.whole("hidden")
    match program:
        case "digits_cnn":
            return models.convolutional(values.whole("filters"), hidden)
        case "digits_dense":
            return models.dense(hidden)
        case "digits_lstm":
            return models.recurrent(hidden)
        case "text_lstm":
            return text_models.recurrent(len(alphabet()), CONTEXT, hidden)
        case _:
            sizes = values.whole("layers"), values.whole("heads")
            return text_models.transformer(len(alphabet()), CONTEXT, hidden, *sizes)
