"""The test double as a fixture. Copy this file."""

import json
import os
import subprocess
import tempfile
import urllib.request

import pytest


class Double:
    """Asks the area /_test of the server: see /_test/openapi.json."""

    def __init__(self, area):
        self.area = area

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.area + path, data=data, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def script(self, endpoint, *outcomes):
        self.ask("POST", f"/endpoints/{endpoint}/script", {"outcomes": outcomes})

    def advance(self, seconds):
        self.ask("POST", "/clock/advance", {"ms": int(seconds * 1000)})

    def fault(self, name, **match):
        self.ask("POST", "/faults", {"name": name, **match})

    def require(self, kind, **match):
        found = self.ask("POST", f"/{kind}/find", match)
        assert found["ok"], found["explanation"]
        return found["matches"]


def start():
    """The server: one that runs, or a new one on free ports."""
    if "PODYARD_TEST_URL" in os.environ:
        return None, os.environ["PODYARD_URL"], os.environ["PODYARD_TEST_URL"]
    # Built and not run by go run, which would end without it.
    program = os.path.join(tempfile.mkdtemp(), "server.exe")
    source = os.environ.get("PODYARD_SOURCE", ".")
    build = ["go", "build", "-C", source, "-o", program, "github.com/podyard/podyard/examples/server"]
    if subprocess.call(build) != 0:
        pytest.exit("the server was not built: PODYARD_SOURCE must name a checkout of podyard", 1)
    process = subprocess.Popen(
        [program, "-addr", "127.0.0.1:0", "-test", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    url = process.stdout.readline().split()[-1]
    return process, url, process.stdout.readline().split()[-1]


process, url, area = start()
# The SDK reads these when it is imported.
os.environ["RUNPOD_ENDPOINT_BASE_URL"] = url + "/v2"
os.environ["RUNPOD_API_KEY"] = json.load(urllib.request.urlopen(area))["key"]


@pytest.fixture
def double():
    server = Double(area)
    server.ask("POST", "/reset", {})
    return server


def pytest_unconfigure():
    if process:
        process.terminate()
        process.wait()
