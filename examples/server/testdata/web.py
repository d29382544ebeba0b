# A template as it is published for load-balancing endpoints: FastAPI behind uvicorn.
import os

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
stats = {"requests": 0, "tokens": 0}


class GenerationRequest(BaseModel):
    prompt: str
    max_tokens: int = 100


@app.get("/ping")
async def health_check():
    return {"status": "healthy"}


@app.post("/generate")
async def generate(request: GenerationRequest):
    stats["requests"] += 1
    stats["tokens"] += request.max_tokens
    return {"generated_text": f"Response to: {request.prompt}", "max_tokens": request.max_tokens}


@app.get("/stats")
async def get_stats():
    return {"total_requests": stats["requests"], "total_tokens": stats["tokens"]}


if __name__ == "__main__":
    uvicorn.run(app, host="0.0.0.0", port=int(os.getenv("PORT", "80")))
