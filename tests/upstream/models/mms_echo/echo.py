"""A module-level handler for MMS: says what it got, or does what it is told."""

import behave
from mms.service import PredictionException


def handle(data, context):
    return behave.handle(data, context, PredictionException)
