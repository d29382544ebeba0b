"""A worker whose jobs end in all ways that handlers know, with whatever version of the SDK.

MODE says which kind of handler it has. Each run of a job leaves a line in the file that the input
names.
"""
import asyncio
import os
import time

import runpod


def mark(job):
    with open(job["input"]["mark"], "a") as f:
        f.write("run\n")


def sync(job):
    mark(job)
    act = job["input"]["act"]
    if act == "nan":
        return {"loss": float("nan")}
    if act == "bytes":
        return b"\x89PNG"
    if act == "set":
        return {"labels": {1, 2}}
    if act == "generator":
        return (n for n in range(3))
    if act == "snooze":
        with open(job["input"]["mark"]) as f:
            if len(f.readlines()) < 3:
                return {"podyard": {"snooze": 1000}}
    if act == "cancel":
        return {"podyard": {"cancel": True}}
    if act == "output":
        return {"snooze": 1, "cancel": True}
    if act == "raise":
        raise ValueError("no luck")
    if act == "sleep":
        time.sleep(25)
    if act == "print":
        for n in range(20000):
            print("line", n, "x" * 100)
    return "done"


async def slow(job):
    mark(job)
    await asyncio.sleep(25)
    return "done"


def chunks(job):
    mark(job)
    if job["input"]["act"] == "exit":
        os._exit(3)
    if job["input"]["act"] == "one":
        yield "x" * (21 << 20)
    else:
        for n in range(70):
            yield "x" * (1 << 20)


handlers = {"sync": sync, "slow": slow, "chunks": chunks}
runpod.serverless.start({"handler": handlers[os.environ["MODE"]]})
