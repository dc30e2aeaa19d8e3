"""The logger ``slipring``, which gets what nobody else is told."""

from __future__ import annotations


def log(text: str, error: BaseException) -> None:
    from logging import getLogger  # most programs never need it

    getLogger("slipring").error("%s", text, exc_info=error)
