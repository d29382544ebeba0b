import json
import sys

from podyard_api import AuthenticatedClient
from podyard_api.api.control import list_endpoint_jobs
from podyard_api.api.jobs import run, status, stream
from podyard_api.models import JobReceipt, JobsError, RunRequest, RunRequestInput, RunRequestPolicyType0, StreamFormat

url, key = sys.argv[1:]
with AuthenticatedClient(base_url=url, token=key) as client:
    for _ in range(3):
        body = RunRequest(input_=RunRequestInput.from_dict({"chunks": 3}), policy=RunRequestPolicyType0(execution_timeout=5000))
        receipt = run.sync("echo", client=client, body=body)
        assert isinstance(receipt, JobReceipt), receipt
    parts = 0
    while True:
        got = stream.sync("echo", receipt.id, client=client, format_=StreamFormat.ENVELOPE)
        parts += len(got.stream)
        if not got.stream and got.status == "COMPLETED":
            break
    jobs, pages, cursor = 0, 0, {}
    while True:
        page = list_endpoint_jobs.sync("echo", client=client, limit=2, **cursor)
        jobs, pages = jobs + len(page.jobs), pages + 1
        if page.cursor is None:
            break
        cursor = {"cursor": page.cursor}
    none = status.sync("echo", "none", client=client)
    assert isinstance(none, JobsError), none
    print(json.dumps({"status": got.status, "parts": parts, "jobs": jobs, "pages": pages, "code": none.status, "detail": none.detail}))
