"""Describes images with an endpoint of the service, by the official SDK."""

import time

import runpod


class Failed(Exception):
    """The job did not complete."""


def submit(image):
    """Returns a job that will describe the image."""
    return runpod.Endpoint("captions").run({"input": {"image": image}})


def caption(image, every=0.01, most=10.0):
    """Describes one image."""
    job = submit(image)
    deadline = time.monotonic() + most
    while time.monotonic() < deadline:
        status = job.status()
        if status == "COMPLETED":
            return job.output()["text"]
        if status in ("FAILED", "CANCELLED", "TIMED_OUT"):
            raise Failed(status)
        time.sleep(every)
    raise Failed("it takes too long")
