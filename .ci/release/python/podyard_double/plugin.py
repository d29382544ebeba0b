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
