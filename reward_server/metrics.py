# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a server or worker tells Prometheus: how much waits, how much it can do, how rows ended."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from reward_server.batch import RowStatus, StartError
from reward_server.handler import Handler
from reward_server.listen import Listen

if TYPE_CHECKING:
    from prometheus_client import Metric

_READ_S = 5.0
logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class _Collector:
    """Reads a handler at each scrape; nothing is counted twice or on the way of a call."""

    handler: Handler
    loop: asyncio.AbstractEventLoop

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics; called in a thread of the HTTP server."""
        from prometheus_client.core import (  # noqa: PLC0415 - needs the extra
            CounterMetricFamily,
            GaugeMetricFamily,
        )

        # Calls come and go in the event loop: it takes the numbers, all at one time.
        gauges, outcomes = asyncio.run_coroutine_threadsafe(self._read(), self.loop).result(_READ_S)
        for (name, text), value in gauges.items():
            yield GaugeMetricFamily(name, text, value)
        rows = CounterMetricFamily("reward_rows", "Rows scored, by outcome.", labels=["outcome"])
        for status in RowStatus:
            rows.add_metric([status.name.lower()], outcomes[status])
        yield rows

    async def _read(self) -> tuple[dict[tuple[str, str], int], dict[int, int]]:
        scorer = self.handler.scorer
        gauges = {
            ("reward_queue_rows", "Rows that wait for a slot."): scorer.rows_queued,
            ("reward_inflight_rows", "Rows under way, waiting or not."): scorer.rows_missing,
            ("reward_slots", "Rows that can be scored at the same time."): scorer.slots,
        }
        return gauges, self.handler.outcomes.copy()


@contextlib.asynccontextmanager
async def metrics_port(listen: Listen, handler: Handler) -> AsyncIterator[None]:
    """Answers Prometheus on a port of its own, if there is one, until the block ends.

    Raises:
        StartError: the port is taken or the package for it is missing.
    """
    if listen.metrics_address is None:
        yield
        return
    try:
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise StartError(
            f"`--metrics-listen` needs the package {error.name}: it is not installed."
            " Install shardward[metrics]."
        ) from error
    registry = CollectorRegistry()
    registry.register(_Collector(handler, asyncio.get_running_loop()))
    host, _, port = listen.metrics_address.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry)
    except OSError as error:
        raise StartError(
            f"`--metrics-listen` must be free, got {listen.metrics_address}: {error}."
        ) from error
    logger.info("metrics listen=%s:%d", host, server.server_port)
    try:
        yield
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join()
