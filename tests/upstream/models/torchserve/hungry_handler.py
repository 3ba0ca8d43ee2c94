"""Runs out of memory while it loads."""


def handle(data, context):
    raise MemoryError("no room for the weights")
