"""Gets what an envelope hands over: answers one item for each thing given, and says what it was."""


def handle(data, context):
    if data is None:
        return None
    return [
        {"type": type(item).__name__, "item": shown(item), "explain": context.get_request_header(0, "explain")}
        for item in data
    ]


def shown(item):
    if isinstance(item, (bytes, bytearray)):
        return bytes(item).decode("latin-1")
    if isinstance(item, dict):
        return {name: shown(value) for name, value in item.items()}
    return item.tolist() if hasattr(item, "tolist") else item
