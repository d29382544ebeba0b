"""A test double of the pod and serverless API: a server with a clock that tests move.

With pytest, ask for the fixture ``podyard_double``. Without it:

    with podyard_double.Double() as double:
        double.script("captions", {"reply": {"text": "a cat"}})
        ...
        double.require("jobs", endpoint="captions", status="COMPLETED")
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import Any, Iterator

__all__ = ["Double", "Refused", "program"]


class Refused(AssertionError):
    """The double refuses a request, or did not see what was required: the text is its own."""


def program() -> str:
    """The path of the program."""
    name = "podyard.exe" if os.name == "nt" else "podyard"
    path = os.environ.get("PODYARD_PROGRAM") or os.path.join(os.path.dirname(__file__), "bin", name)
    if os.name != "nt" and not os.access(path, os.X_OK):
        os.chmod(path, 0o755)  # some installers lose the mode
    return path


class Double:
    """A server that runs until close. Its admin area is described at area + "/openapi.json"."""

    url: str
    area: str
    key: str
    env: dict[str, str]

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}
        self._process = None
        self.url = os.environ.get("PODYARD_URL")
        self.area = os.environ.get("PODYARD_TEST_URL")
        if not self.area:
            self._start()
        about = self.ask("GET", "")
        self.key = about["key"]
        self.env = variables(self.url, self.key, about["webhookSecret"])
        self._set()

    def _start(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith("PODYARD_")}
        self._process = subprocess.Popen(
            [program(), "test", "-addr", "127.0.0.1:0", "-log-level", "warn"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=env,
        )
        lines = [self._process.stdout.readline() for _ in range(2)]
        if not lines[1]:
            raise RuntimeError("the test double did not start: exit code %s" % self._process.wait())
        self.url, self.area = (line.split()[-1] for line in lines)

    def _set(self):
        for name, value in self.env.items():
            self._before[name] = os.environ.get(name)
            os.environ[name] = value
        self._sdk = None
        try:
            import runpod
        except ImportError:
            return
        # It may have read the environment before, and takes its key from a file.
        self._sdk = (runpod, runpod.api_key, runpod.endpoint_url_base)
        runpod.api_key, runpod.endpoint_url_base = self.key, self.env["RUNPOD_ENDPOINT_BASE_URL"]

    def close(self) -> None:
        """Ends the server, and sets the environment as it was."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}
        if self._sdk:
            runpod = self._sdk[0]
            runpod.api_key, runpod.endpoint_url_base = self._sdk[1:]
            self._sdk = None
        if self._process:
            self._process.terminate()
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    def __enter__(self) -> Double:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Makes a request to the admin area."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.area + path, data=data, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            raise Refused("%s %s: %s" % (method, path, explanation(e))) from None

    def reset(self) -> None:
        """Everything as it was at the start."""
        self.ask("POST", "/reset", {})

    def script(self, endpoint: str, *outcomes: dict[str, Any]) -> None:
        """Says what the jobs of an endpoint come to, in their order."""
        self.ask("POST", "/endpoints/%s/script" % endpoint, {"outcomes": outcomes})

    def advance(self, seconds: float) -> None:
        """Moves the clock."""
        self.ask("POST", "/clock/advance", {"ms": int(seconds * 1000)})

    def fault(self, name: str, **match: Any) -> None:
        """Makes something go wrong: GET /fault-names lists what can."""
        self.ask("POST", "/faults", {"name": name, **match})

    def require(self, kind: str, **match: Any) -> list[dict[str, Any]]:
        """Wants "requests", "jobs" or "webhooks" like the pattern, and returns them."""
        found = self.ask("POST", "/%s/find" % kind, match)
        if not found["ok"]:
            raise Refused(found["explanation"])
        return found["matches"]


    @contextlib.contextmanager
    def running_clock(self) -> Iterator[None]:
        """The clock goes on with that of the system, for programs that take real time."""
        ended = threading.Event()

        def run() -> None:
            before = time.monotonic()
            while not ended.wait(0.1):
                now = time.monotonic()
                self.advance(now - before)
                before = now

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    @contextlib.contextmanager
    def worker(self, endpoint: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """Runs a handler of your own as a worker of an endpoint, with the clock running:

            with podyard_double.worker("captions", "handler.py"):
                assert runpod.Endpoint("captions").run_sync({"input": {}}) == ...

        A file *.py is run by this Python; anything else is a command line. Its processes end with
        the block.
        """
        if len(command) == 1 and command[0].endswith(".py"):
            command = (sys.executable, command[0])
        self.ask("POST", "/endpoints/%s/queue" % endpoint, {})
        env = {**os.environ, **worker_variables(self.url, self.key, endpoint)}
        group: dict[str, Any] = {} if os.name == "nt" else {"start_new_session": True}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=env, **group)
        try:
            with self.running_clock():
                yield process
        finally:
            if os.name == "nt":
                process.kill()
            else:
                with contextlib.suppress(ProcessLookupError):  # the SDK starts processes of its own
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def report(self) -> str:
        """What the service saw, without headers, inputs and secrets: for a test that has failed."""
        requests = self.ask("GET", "/requests")["requests"]
        lines = ["the last %d of %d requests:" % (min(len(requests), SHOWN), len(requests))]
        if not requests:
            lines = ["no request came: do clients have the base URL %s/v2?" % self.url]
        for r in requests[-SHOWN:]:
            line = "  %s %s -> %s" % (r["method"], r["path"], r.get("status") or ("no answer" if r["done"] else "waits"))
            if r.get("status", 0) >= 400:
                line += " " + told(r.get("answer", ""))
            if r.get("fault"):
                line += " (fault %s)" % r["fault"]
            lines.append(line)
        for j in self.ask("GET", "/jobs")["jobs"][-SHOWN:]:
            if j["status"] != "COMPLETED":
                lines.append("  job %s of %s: %s %s" % (j["id"], j["endpoint"], j["status"], short(j.get("error", ""))))
        clock = self.ask("GET", "/clock")
        lines.append("the clock is at %s; next is due: %s" % (clock["now"], clock.get("next") or "nothing"))
        return "\n".join(lines)


SHOWN = 20  # how many requests and jobs a report has


def short(text: str) -> str:
    """One line, not too long."""
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:300] + "..."


def told(answer: str) -> str:
    """What an answer says of an error."""
    try:
        doc = json.loads(answer)
    except ValueError:
        return short(answer)
    return short(str(doc.get("detail") or doc.get("error") or "")) if isinstance(doc, dict) else ""


def worker_variables(url: str, key: str, endpoint: str) -> dict[str, str]:
    """What a worker reads. The addresses have a query, because the SDK appends to it."""
    base = "%s/v2/%s" % (url, endpoint)
    return {
        "RUNPOD_WEBHOOK_GET_JOB": base + "/job-take/$ID?gpu=cpu",
        "RUNPOD_WEBHOOK_POST_OUTPUT": base + "/job-done/$RUNPOD_POD_ID/$ID?gpu=cpu",
        "RUNPOD_WEBHOOK_POST_STREAM": base + "/job-stream/$RUNPOD_POD_ID/$ID?gpu=cpu",
        "RUNPOD_WEBHOOK_PING": base + "/ping/$RUNPOD_POD_ID?gpu=cpu",
        "RUNPOD_POD_ID": "test",
        "RUNPOD_AI_API_KEY": key,
        "RUNPOD_PING_INTERVAL": "3000",
        "RUNPOD_ENDPOINT_ID": endpoint,
        "RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",
        "RUNPOD_SKIP_GPU_CHECK": "true",
    }


def variables(url: str, key: str, webhook_secret: str) -> dict[str, str]:
    """What clients of the service read."""
    return {
        "RUNPOD_API_KEY": key,
        "RUNPOD_ENDPOINT_BASE_URL": url + "/v2",
        "RUNPOD_SERVERLESS_API_URL": url + "/v2",
        "RUNPOD_API_BASE_URL": url,
        "RUNPOD_REST_API_URL": url + "/v2",
        "RUNPOD_URL_MIXED_OK": "1",
        "PODYARD_URL": url,
        "PODYARD_API_KEY": key,
        "PODYARD_WEBHOOK_SECRET": webhook_secret,
    }


def explanation(error: urllib.error.HTTPError) -> str:
    """What the server says of a refusal."""
    body = error.read().decode(errors="replace")
    try:
        doc = json.loads(body)
    except ValueError:
        return "%d %s" % (error.code, body)
    return "%d %s" % (error.code, "; ".join(doc.get("errors") or [doc.get("detail") or body]))
