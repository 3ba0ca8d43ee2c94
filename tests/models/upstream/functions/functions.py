"""Entry points with names of their own, among classes that do not count."""

from typing import Any


class One:
    pass


class Two:
    pass


def predict(data: Any, context: Any) -> Any:
    return data and ["predicted"] * len(data)


def other(data: Any, context: Any) -> Any:
    return data and ["other"] * len(data)


async def later(data: Any, context: Any) -> Any:
    return data and ["later"] * len(data)
