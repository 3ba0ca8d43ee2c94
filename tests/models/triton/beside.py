"""Found from model.py, with and without a dot."""

WORD = "beside"
