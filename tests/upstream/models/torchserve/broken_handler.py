"""Fails while it loads."""


def handle(data, context):
    raise ValueError("this handler cannot be initialised")
