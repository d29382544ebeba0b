"""A test double of the pod and serverless API: a server with a clock that tests move.

With pytest, ask for the fixture ``podyard_double``. Without it:

    with podyard_double.Double() as double:
        double.script("captions", {"reply": {"text": "a cat"}})
        ...
        double.require("jobs", endpoint="captions", status="COMPLETED")
"""

import json
import os
import subprocess
import urllib.error
import urllib.request

__all__ = ["Double", "Refused", "program"]


class Refused(AssertionError):
    """The double refuses a request, or did not see what was required: the text is its own."""


def program():
    """The path of the program."""
    name = "podyard.exe" if os.name == "nt" else "podyard"
    path = os.environ.get("PODYARD_PROGRAM") or os.path.join(os.path.dirname(__file__), "bin", name)
    if os.name != "nt" and not os.access(path, os.X_OK):
        os.chmod(path, 0o755)  # some installers lose the mode
    return path


class Double:
    """A server that runs until close. Its admin area is described at area + "/openapi.json"."""

    def __init__(self):
        self._before = {}
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

    def close(self):
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

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def ask(self, method, path, body=None):
        """Makes a request to the admin area."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.area + path, data=data, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            raise Refused("%s %s: %s" % (method, path, explanation(e))) from None

    def reset(self):
        """Everything as it was at the start."""
        self.ask("POST", "/reset", {})

    def script(self, endpoint, *outcomes):
        """Says what the jobs of an endpoint come to, in their order."""
        self.ask("POST", "/endpoints/%s/script" % endpoint, {"outcomes": outcomes})

    def advance(self, seconds):
        """Moves the clock."""
        self.ask("POST", "/clock/advance", {"ms": int(seconds * 1000)})

    def fault(self, name, **match):
        """Makes something go wrong: GET /fault-names lists what can."""
        self.ask("POST", "/faults", {"name": name, **match})

    def require(self, kind, **match):
        """Wants "requests", "jobs" or "webhooks" like the pattern, and returns them."""
        found = self.ask("POST", "/%s/find" % kind, match)
        if not found["ok"]:
            raise Refused(found["explanation"])
        return found["matches"]


def variables(url, key, webhook_secret):
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


def explanation(error):
    """What the server says of a refusal."""
    body = error.read().decode(errors="replace")
    try:
        doc = json.loads(body)
    except ValueError:
        return "%d %s" % (error.code, body)
    return "%d %s" % (error.code, "; ".join(doc.get("errors") or [doc.get("detail") or body]))
