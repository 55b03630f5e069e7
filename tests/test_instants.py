"""Times that Postgres takes, and times that it would refuse."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.instants import instant


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-01T12:26:09.776Z",
        "2026-12-01T12:26:09Z",
        "2026-12-01t12:26:09z",
        "2026-12-01 12:26:09+00:00",
        "2026-12-01T12:26:09.123456789-03:30",
        "2024-02-29T00:00:00Z",
        "2000-02-29T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999Z",
    ],
)
def test_taken(text: str) -> None:
    assert instant(text) == text


@pytest.mark.parametrize(
    "text",
    [
        None, 0, 1796127969776, True, [], {}, "", "now", "infinity", "2026-12-01", "2026-12-01T12:26:09",
        "2026-12-01T12:26Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-01-00T00:00:00Z", "0000-01-01T00:00:00Z",
        "2026-12-01T24:00:00Z", "2026-12-01T12:60:00Z", "2026-12-01T12:00:60Z", "2026-12-01T12:00:00.Z",
        "2026-12-01T12:00:00.1234567890Z", "2026-12-01T12:00:00+15:00", "2026-12-01T12:00:00+01:60",
        "2026-12-01T12:00:00+0100", "2026-12-01T12:00:00 Europe/Berlin", "２０２６-12-01T12:00:00Z",
        "2026-12-01T12:00:00Z\n", " 2026-12-01T12:00:00Z", "+026-12-01T12:00:00Z", "2026-1²-01T12:00:00Z",
    ],
)  # fmt: skip
def test_refused(text: object) -> None:
    assert instant(text) is None


@given(
    st.datetimes(),
    st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
def test_every_time_of_python(moment: datetime, zone: timezone) -> None:
    text = moment.replace(tzinfo=zone).isoformat()
    assert instant(text) == text


@given(st.text(max_size=40))
def test_every_text(text: str) -> None:
    assert instant(text) in (None, text)


@given(st.lists(st.sampled_from([*"0123456789-T:.Z+ "]), min_size=20, max_size=30).map("".join))
def test_near_misses(text: str) -> None:
    if instant(text):
        datetime.fromisoformat(text[:19])
