"""The fixture podyard_double: a test double, as new for each test."""

import pytest

from . import Double


@pytest.fixture(scope="session")
def podyard_server():
    """The server, which all tests share."""
    double = Double()
    yield double
    double.close()


@pytest.fixture
def podyard_double(podyard_server):
    """The server as it is at its start, with the keys and URLs that the SDK reads set."""
    podyard_server.reset()
    return podyard_server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that has failed says what the service saw."""
    report = yield
    double = getattr(item, "funcargs", {}).get("podyard_double")
    if report.failed and call.when == "call" and double is not None:
        try:
            text = double.report()
        except Exception as e:  # the test's own failure is what counts
            text = "it cannot be asked: %s" % e
        report.sections.append(("podyard: what the service saw", text))
    return report
