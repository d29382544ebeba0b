import os

import pytest
import runpod

import captions

runpod.api_key = os.environ["RUNPOD_API_KEY"]


def test_caption_is_the_text_of_the_output(double):
    double.script("captions", {"reply": {"text": "a cat"}})
    assert captions.caption("cat.png") == "a cat"
    double.require("jobs", endpoint="captions", input={"image": "cat.png"}, status="COMPLETED")


def test_failure_is_an_exception(double):
    double.script("captions", {"fail": "no such image"})
    with pytest.raises(captions.Failed):
        captions.caption("none.png")


def test_job_of_five_minutes_takes_no_time(double):
    double.script("captions", {"afterMs": 300_000, "reply": {"text": "late"}})
    job = captions.submit("big.png")
    assert job.status() == "IN_PROGRESS"
    double.advance(300)
    assert job.output() == {"text": "late"}


def test_a_lost_answer_is_not_a_lost_job(double):
    double.script("captions", {"reply": {"text": "a cat"}})
    double.fault("lost-acknowledgement", operation="run", count=1)
    with pytest.raises(Exception):
        captions.submit("cat.png")
    double.require("jobs", endpoint="captions", status="COMPLETED", times=1)
