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
from reward_server.handler import LOST, Handler
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
        gauges, states, outcomes = asyncio.run_coroutine_threadsafe(self._read(), self.loop).result(
            _READ_S
        )
        for (name, text), value in gauges.items():
            yield GaugeMetricFamily(name, text, value)
        for (name, text), values in states.items():
            family = GaugeMetricFamily(name, text, labels=["state"])
            for state, value in values.items():
                family.add_metric([state], value)
            yield family
        text = "Rows by how they ended: scored, or lost with their call."
        rows = CounterMetricFamily("reward_rows", text, labels=["outcome"])
        for outcome in (*(status.name.lower() for status in RowStatus), *LOST):
            rows.add_metric([outcome], outcomes[outcome])
        yield rows

    async def _read(
        self,
    ) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], dict[str, int]], dict[str, int]]:
        scorer = self.handler.scorer
        gauges = {
            ("reward_queue_rows", "Rows that wait for a slot."): scorer.rows_queued,
            ("reward_inflight_rows", "Rows under way, waiting or not."): scorer.rows_missing,
            ("reward_slots", "Rows that can be scored at the same time."): scorer.slots,
        }
        workers = {"usable": scorer.workers, "unusable": len(scorer.unusable_workers)}
        states = {
            ("reward_workers", "Workers known to a server, by whether they can be used."): workers,
            ("reward_children", "Child processes, by what they do."): scorer.children,
        }
        return gauges, states, self.handler.outcomes.copy()


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
