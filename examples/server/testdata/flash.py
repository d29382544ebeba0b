"""Asks an endpoint through the package runpod-flash, both through its client of an
endpoint that is there already and through the class that it has for a resource.

The environment says where it runs. The last line of output is what it got.
"""
import asyncio
import json
import os
from datetime import datetime, timezone

from runpod_flash import Endpoint
from runpod_flash.core.resources import ServerlessEndpoint
from runpod_flash.core.resources.request_logs import QBRequestLogFetcher
from runpod_flash.core.resources.serverless import ServerlessHealth

got = {}


async def client():
    e = Endpoint(id="echo")
    job = await e.runsync({"a": 1})
    got["runsync"] = [job.done, job.output]
    job = await e.run({"b": 2})
    got["run"] = [job.done, job.output]
    await job.wait(timeout=60)
    got["wait"] = [job.done, job.output]
    job = await (await e.run({"fail": "why"})).wait(timeout=60)
    got["failed"] = [await job.status(), job.error]
    job = await e.run({"sleep_ms": 600000})
    await job.cancel()
    got["cancelled"] = await job.status()


async def resource():
    e = ServerlessEndpoint(name="echo", id="echo", imageName="any")
    got["resource runsync"] = (await e.runsync({"input": {"c": 3}})).model_dump(exclude={"id", "delayTime", "executionTime"})
    got["resource run"] = (await e.run({"input": {"d": 4}})).model_dump(exclude={"id", "delayTime", "executionTime"})
    got["resource failed"] = (await e.run({"input": {"fail": "again"}})).model_dump(exclude={"id", "delayTime", "executionTime"})
    health = ServerlessHealth(**await asyncio.to_thread(e.endpoint.health))
    got["health"] = [health.is_ready, health.workers.status.value, health.jobs.model_dump()]
    # What it prints while a job runs: a worker's state, from /metrics.
    job = await Endpoint(id="echo").runsync({"e": 5})
    key = os.environ["RUNPOD_API_KEY"]
    batch = await QBRequestLogFetcher(start_time=datetime.now(timezone.utc)).fetch_logs("echo", job.id, key, key)
    got["metrics"] = [batch.worker_metrics, batch.ready_worker_ids]


async def everything():
    await client()
    await resource()


asyncio.run(everything())
print(json.dumps(got))
