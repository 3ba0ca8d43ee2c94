"""Fails while it loads, in a function."""


def handle(data, context):
    raise ValueError("this handler cannot be initialised")
