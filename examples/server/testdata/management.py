"""Management code as people write it with the newer package, runpod 2, unmodified.

RUNPOD_API_BASE_URL is where it runs. The last line of output is what it got.
"""
import asyncio
import json

import runpod
from runpod.apps import volume
from runpod.apps.api import AppsApiClient

got = {}
gpu = runpod.get_gpus()[0]["id"]
pod = runpod.create_pod("a", "org/image", gpu, min_vcpu_count=2, min_memory_in_gb=8, docker_args="serve 'a b'", gpu_count=2)
got["pod"] = [pod["args"], pod["entrypoint"], pod["cmd"], pod["gpu"]["count"], pod["gpu"]["vcpuCount"] >= 4, pod["gpu"]["memory"] >= 16]
got["pods"] = [p["id"] for p in runpod.get_pods()] == [pod["id"]]
got["missing"] = runpod.get_pod("none")
try:
    runpod.create_pod("b", "org/image", gpu, min_memory_in_gb=1 << 20)
except Exception as e:
    got["no host"] = "with at least" in str(e)
runpod.terminate_pod(pod["id"])
got["template"] = runpod.create_template("t", "org/image", docker_start_cmd="a b")["cmd"]


async def volumes():
    api = AppsApiClient()
    made = [await api.create_network_volume(name, 10, "EU-RO-1") for name in ("one", "two")]
    got["volumes"] = [v["id"] for v in await api.list_network_volumes()] == [v["id"] for v in made]
    got["globals"] = await api.list_global_volumes()


asyncio.run(volumes())
print(json.dumps(got))
