"""A worker as people write them for the hosted service, with the public SDK, unmodified.

MODE says which kind of handler it has.
"""
import asyncio
import os
import signal
import time

import runpod

running = 0
most = 0


def sync(job):
    i = job["input"]
    act = i.get("act")
    if act == "raise":
        raise ValueError("no luck")
    if act == "error":
        return {"error": "bad input", "seen": i}
    if act == "refresh":
        return {"refresh_worker": True, "pid": os.getpid()}
    if act == "block":
        open(i["mark"], "w").close()
        time.sleep(120)
    if act == "die" and not os.path.exists(i["mark"]):
        open(i["mark"], "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "log":
        runpod.RunPodLogger().warn("step 1 of job", job["id"])
        print("a line without a job")
    if act == "progress":
        runpod.serverless.progress_update(job, {"half": True})
        while not os.path.exists(i["go"]):
            time.sleep(0.05)
    return {"pid": os.getpid(), "input": i, "bucket": (job.get("s3Config") or {}).get("bucketName")}


async def asynchronous(job):
    global running, most
    i = job["input"]
    running += 1
    most = max(most, running)
    try:
        while not i.get("together") or most < i["together"]:
            if i.get("mark"):
                open(i["mark"], "w").close()
            if not i.get("forever") and not i.get("together"):
                break
            await asyncio.sleep(0.02)
        return {"most": most}
    except asyncio.CancelledError:
        open(i["mark"] + ".cancelled", "w").close()
        raise
    finally:
        running -= 1


def generator(job):
    for n in range(job["input"]["n"]):
        yield {"tok": n}


async def chat(job):
    i = job["input"]
    if i["openai_route"] == "/v1/models":
        yield {"object": "list", "data": [{"id": "tiny", "object": "model", "created": 1, "owned_by": "tests"}]}
        return
    ask = i["openai_input"]
    said = "you said " + ask["messages"][-1]["content"]
    base = {"id": "chatcmpl-1", "created": 1, "model": ask["model"]}
    if said.endswith("fail"):
        yield {"error": {"message": "the model is out of order", "type": "worker_error", "code": None}}
        return
    if not ask.get("stream"):
        yield base | {"object": "chat.completion", "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}]}
        return
    import json
    for word in said.split():
        if word == "break":
            yield {"error": {"message": "the model broke", "type": "worker_error", "code": None}}
            return
        yield "data: " + json.dumps(base | {"object": "chat.completion.chunk", "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": word + " "}, "finish_reason": None}]}) + "\n\n"
    # Pieces of the stream end anywhere, not only between events.
    yield "data: " + json.dumps(base | {"object": "chat.completion.chunk", "choices": [
        {"index": 0, "delta": {}, "finish_reason": "stop"}]})
    yield "\n\ndata: [DONE]\n\n"


async def echo(job):
    return job["input"]


start = {
    "echo": {"handler": echo, "concurrency_modifier": lambda _: 8},
    "sync": {"handler": sync},
    "async": {"handler": asynchronous, "concurrency_modifier": lambda _: 4},
    "generator": {"handler": generator},
    "aggregate": {"handler": generator, "return_aggregate_stream": True},
    "chat": {"handler": chat},
}
runpod.serverless.start(start[os.environ["MODE"]])
