# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A chat-completions endpoint for tests, and rewards files that use it."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import json
import threading
import time
from typing import Any

from aiohttp import web

from reward_server.config import RewardFnConfig

KEY = "sk-do-not-print-this-0123456789"
PROBE = "The capital of France is Paris."


@dataclasses.dataclass
class Request:
    """One request that arrived."""

    time: float
    content: str
    body: dict[str, Any]
    authorization: str
    transport: asyncio.Transport


class Judge:
    """Answers by the completion, which its template makes the whole request.

    A number is a score, `raw:TEXT` an answer, `hang` is never answered. `CODE` is an error with
    that status, `CODExTIMES` one that ends after so many times; `breakx1` closes the connection
    once. `all N` is answered when N are waiting. `bye` closes the connection after its answer.
    """

    def __init__(self):
        """Starts nothing yet."""
        self.requests = []
        self.retry_after = ""
        self.waiting = 0
        self.together = 0
        self._seen = collections.Counter()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(ready := threading.Event(),))
        self._thread.start()
        assert ready.wait(30)

    def _run(self, ready):
        asyncio.set_event_loop(self._loop)
        self._stop = asyncio.Event()
        self._loop.run_until_complete(self._serve(ready))
        self._loop.close()

    async def _serve(self, ready):
        self._full = asyncio.Event()
        app = web.Application(client_max_size=1 << 24)
        app.router.add_post("/v1/chat/completions", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0]
        self.base_url = f"http://{host}:{port}/v1"
        ready.set()
        await self._stop.wait()
        await runner.cleanup()

    def close(self):
        """Stops and waits for it."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    async def _answer(self, request):
        body = await request.json()
        content = body["messages"][-1]["content"]
        authorization = request.headers.get("Authorization", "")
        self.requests.append(
            Request(time.monotonic(), content, body, authorization, request.transport)
        )
        word, _, rest = content.partition(":")
        code, _, times = word.partition("x")
        self._seen[content] += 1
        if times.isdigit() and self._seen[content] > int(times):
            return self._said("<score>10</score>")
        if code == "hang":
            await self._stop.wait()
        if code == "break":
            request.transport.abort()
        if code.startswith("all "):
            await self._wait_for(int(code.removeprefix("all ")))
            return self._said("<score>10</score>")
        if code in ("400", "401", "429", "500", "503", "307"):
            headers = {"Retry-After": self.retry_after} if self.retry_after else {}
            message = f"no, {authorization} may not"
            return web.json_response(
                {"error": {"message": message}}, status=int(code), headers=headers
            )
        if code == "bye":
            response = self._said("<score>10</score>")
            await response.prepare(request)
            await response.write_eof()
            request.transport.close()
            return response
        if code == "html":
            return web.Response(text="<html>hello</html>")
        said = f"<score>{'10' if PROBE in content else code}</score>"
        return self._said(rest if code == "raw" else said)

    async def _wait_for(self, count):
        self.waiting += 1
        self.together = max(self.together, self.waiting)
        if self.waiting >= count:
            self._full.set()
        await self._full.wait()
        self.waiting -= 1

    def _said(self, text):
        message = {"role": "assistant", "content": text}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})

    def asked(self, content):
        """Requests with this content."""
        return [request for request in self.requests if request.content == content]


@contextlib.contextmanager
def judging():
    """A running judge."""
    judge = Judge()
    try:
        yield judge
    finally:
        judge.close()


def fn(judge, folder, *, timeout_s=60.0, **params):
    """Entry for the built-in function with a template of nothing but the completion."""
    template = folder / "template.txt"
    template.write_text("$completion", encoding="utf-8")
    values = {"base_url": judge.base_url, "model": "m", "template": str(template), **params}
    return RewardFnConfig(fn="llm_judge", timeout_s=timeout_s, params=values)


def toml(function):
    """The parameters of an entry as they stand in a rewards file."""
    values = ", ".join(f"{name} = {json.dumps(value)}" for name, value in function.params.items())
    return f"params = {{ {values} }}"
