# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A chat-completions endpoint: one question, one answer, and what is tried again.

Needs the extra `judge`.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import math
import random
import time
from typing import Any

import aiohttp

from reward_server.pace import Pace

_BACKOFF_S = 0.5
_MAX_BACKOFF_S = 20.0
_MAX_RETRY_AFTER_S = 60.0
_MAX_QUOTED = 200


class EndpointError(Exception):
    """The endpoint gave no answer; the message names it and what it said."""


class ChatEndpoint:
    """Asks an OpenAI-compatible endpoint, with limits and retries.

    Belongs to the event loop in which it was made.

    Args:
        base_url: address up to and without `/chat/completions`.
        api_key: bearer token, or "" for none.
        retries: attempts after the first.
        timeout_s: seconds for one attempt.
        max_concurrency: questions under way in this process.
        pace: rate of attempts, or None.

    Attributes:
        url: where questions are sent.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str,
        retries: int,
        timeout_s: float,
        max_concurrency: int,
        pace: Pace | None,
    ) -> None:
        self.url = base_url.rstrip("/") + "/chat/completions"
        self._api_key = api_key
        self._retries = retries
        self._pace = pace
        self._free = asyncio.Semaphore(max_concurrency)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=max_concurrency),
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        )
        self._timeout_s = timeout_s

    async def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        """Sends a question and returns the first choice of the answer.

        Timeouts, broken connections, 429 and 5xx are tried again, after a random part of a time
        that doubles, and not before `Retry-After`. Any other status is final.

        Args:
            body: the request, as JSON.

        Raises:
            EndpointError: there is no answer after the last attempt.
        """
        async with self._free:
            for attempt in range(self._retries + 1):
                if self._pace is not None:
                    await self._pace.turn()
                answer, problem, wait_s = await self._try(body)
                if answer is not None:
                    return answer
                if wait_s is None or wait_s > _MAX_RETRY_AFTER_S or attempt == self._retries:
                    break
                backoff = min(_MAX_BACKOFF_S, _BACKOFF_S * 2**attempt)
                await asyncio.sleep(wait_s + random.uniform(0, backoff))  # noqa: S311 - no secret
        tried = f" ({attempt + 1} attempts)" if attempt else ""
        raise EndpointError(f"{self.url}: {problem}{tried}")

    async def _try(self, body: dict[str, Any]) -> tuple[dict[str, Any] | None, str, float | None]:
        """Returns the answer, or what was wrong and how long to wait; None is for ever."""
        try:
            # A redirect could lead the key elsewhere.
            async with self._session.post(self.url, json=body, allow_redirects=False) as response:
                text = await response.text("utf-8", errors="replace")
        except TimeoutError:
            return None, f"no answer in {self._timeout_s:g} s", 0.0
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            return None, self._redact(f"{type(error).__name__}: {error}"), 0.0
        except aiohttp.ClientError as error:
            return None, self._redact(f"{type(error).__name__}: {error}"), None
        if response.status == 200:
            return _choice(_json(text)), "the answer is no chat completion", None
        # Cut afterwards: half a key would not be found.
        said = self._redact(_said(text))[:_MAX_QUOTED]
        problem = f"HTTP {response.status}{': ' if said else ''}{said}"
        if response.status == 429 or response.status >= 500:
            wait_s = _retry_after(response.headers.get("Retry-After", ""))
            if wait_s > _MAX_RETRY_AFTER_S:
                problem += f"; asks to wait {wait_s:.0f} s"
            return None, problem, wait_s
        return None, problem, None

    def _redact(self, text: str) -> str:
        return text.replace(self._api_key, "***") if self._api_key else text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _choice(data: Any) -> dict[str, Any] | None:
    try:
        choice = data["choices"][0]
        return choice if isinstance(choice["message"], dict) else None
    except (TypeError, LookupError):
        return None


def _said(text: str) -> str:
    """Picks the endpoint's own words from the body of an error."""
    data = _json(text)
    error = data.get("error", data) if isinstance(data, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join((message if isinstance(message, str) else text).split())


def _retry_after(value: str) -> float:
    """Seconds of a Retry-After header, which holds seconds or a date."""
    with contextlib.suppress(ValueError):
        seconds = float(value)
        return max(0.0, seconds) if math.isfinite(seconds) else 0.0
    with contextlib.suppress(ValueError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return 0.0
