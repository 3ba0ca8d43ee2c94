"""Batching inside a Flask app: requests that its threads handle at the same time share one call of the model.

pip install flask
flask --app examples/flask_app.py run            # threads by default; gunicorn: --worker-class gthread --threads 32
curl -X POST http://127.0.0.1:5000/score -H 'content-type: application/json' -d '{"text": "lovely"}'
"""

from flask import Flask, Response, jsonify, request

import shoal

app = Flask(__name__)


@shoal.batched
def score(texts: list[str]) -> list[int]:
    """Stands for a model that is better at many texts than at one."""
    return [len(text) for text in texts]


@app.post("/score")
def answer() -> Response:
    return jsonify(score=score(request.get_json()["text"], timeout=5.0))


@app.get("/batches")
def batches() -> Response:
    return jsonify(score.describe())
