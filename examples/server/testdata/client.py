"""Client code as people write it for the hosted service, with the public SDK, unmodified.

RUNPOD_ENDPOINT_BASE_URL is where it runs. The last line of output is what it got.
"""
import asyncio
import json
import sys

import aiohttp
import runpod
from runpod import AsyncioEndpoint, AsyncioJob

runpod.api_key = sys.argv[1]
got = {}


def synchronous():
    e = runpod.Endpoint("echo")
    got["health"] = sorted(e.health()["workers"])
    job = e.run({"input": {"a": 1}})
    got["output"] = job.output(timeout=20)
    got["status"] = job.status()
    got["run_sync"] = e.run_sync({"input": {"b": 2}}, timeout=20)
    slow = e.run({"input": {"sleep_ms": 60000}})
    slow.cancel()
    got["cancelled"] = slow.status()
    got["stream"] = list(e.run({"input": {"chunks": 3}}).stream())
    got["purged"] = e.purge_queue()
    failed = e.run({"input": {"fail": "why"}})
    got["failed output"] = failed.output(timeout=20)
    got["failed"] = failed.status()


async def asynchronous():
    async with aiohttp.ClientSession() as session:
        e = AsyncioEndpoint("echo", session)
        job: AsyncioJob = await e.run({"c": 3})
        got["async output"] = await job.output(timeout=20)
        got["async status"] = await job.status()
        job = await e.run({"chunks": 2})
        got["async stream"] = [c async for c in job.stream()]
        job = await e.run({"sleep_ms": 60000})
        got["async cancel"] = (await job.cancel())["status"]


synchronous()
asyncio.run(asynchronous())
print(json.dumps(got))
