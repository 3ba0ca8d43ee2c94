"""For the KServe v2 envelope: the inputs of one request in, each doubled, out."""


def handle(data, context):
    if data is None:
        return None
    return [doubled(item["data"]) for item in data]


def doubled(value):
    return [doubled(item) for item in value] if isinstance(value, list) else value * 2
