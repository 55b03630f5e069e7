"""Whether a text is a time that Postgres will take: one bad line must not stop the lines around it."""

from __future__ import annotations

_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def instant(text: object) -> str | None:
    """The text itself when it is an ISO 8601 date and time with zone ("2026-12-01T09:30:00.125Z"), else None.

    Years 1 to 9999, seconds up to 59, fractions of up to 9 digits, zone Z or up to 14 hours either way.
    """
    if not isinstance(text, str) or not 20 <= len(text) <= 35 or not text.isascii():
        return None
    if text[4] != "-" or text[7] != "-" or text[10] not in "Tt " or text[13] != ":" or text[16] != ":":
        return None
    digits = text[:4] + text[5:7] + text[8:10] + text[11:13] + text[14:16] + text[17:19]
    if not digits.isdigit() or not _is_zone(text[19:]):
        return None
    year, month, day = int(digits[:4]), int(digits[4:6]), int(digits[6:8])
    if year == 0 or not 1 <= month <= 12 or not 1 <= day <= _DAYS[month - 1]:
        return None
    if day == 29 and month == 2 and (year % 4 or (year % 100 == 0 and year % 400)):
        return None
    return text if digits[8:10] < "24" and digits[10:12] < "60" and digits[12:] < "60" else None


def _is_zone(rest: str) -> bool:
    """True for what may stand after the seconds: an optional fraction, then the zone."""
    if rest[0] == ".":
        end = 1
        while end < len(rest) and rest[end].isdigit():
            end += 1
        if not 2 <= end <= 10:
            return False
        rest = rest[end:]
    if rest in ("Z", "z"):
        return True
    if len(rest) != 6 or rest[0] not in "+-" or rest[3] != ":":
        return False
    hours, minutes = rest[1:3], rest[4:]
    return hours.isdigit() and minutes.isdigit() and hours <= "14" and minutes < "60"
