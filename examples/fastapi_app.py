"""Batching inside a FastAPI app: requests in flight at the same time share one call of the model.

pip install fastapi uvicorn
uvicorn --app-dir examples fastapi_app:app
curl -X POST http://127.0.0.1:8000/score -H 'content-type: application/json' -d '{"text": "lovely"}'
"""

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

import shoal

app = FastAPI()


class Text(BaseModel):
    text: str


@shoal.batched(queue_size=1000)
def score(texts: list[str]) -> list[int]:
    """Stands for a model that is better at many texts than at one; it runs in a thread, beside the event loop."""
    return [len(text) for text in texts]


@app.post("/score")
async def answer(text: Text) -> dict[str, int]:
    try:
        return {"score": await score.aio(text.text, timeout=5.0)}
    except shoal.ServingError as error:  # the queue is full, or it took too long
        raise HTTPException(503, str(error)) from error


@app.get("/batches")
async def batches() -> dict[str, object]:
    return score.describe()
