import torhc


def predict(items):
    return [torhc.run(item) for item in items]
