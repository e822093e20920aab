"""What the server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from holdfast.server.service import Service
from holdfast.server.tally import Histogram


class Collector:
    """Reads the counts when somebody asks, so that commands pay nothing for it."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def collect(self) -> Iterable[Metric]:
        """Every metric as of now."""
        yield from self._counters()
        yield from self._gauges()
        tally = self.service.tally
        yield histogram("holdfast_wait_seconds", "How long a granted claim stood in line.", tally.wait_seconds)
        yield histogram("holdfast_hold_seconds", "How long a released lock was held.", tally.hold_seconds)
        yield histogram("holdfast_commit_seconds", "How long the store took for a batch.", tally.commit_seconds)
        yield histogram("holdfast_commit_changes", "How many changes a batch had.", tally.commit_changes)

    def _counters(self) -> Iterable[Metric]:
        tally, figures = self.service.tally, self.service.store.figures()
        for name, text, value in (
            ("holdfast_commands", "Requests carried out.", tally.commands),
            ("holdfast_connections_accepted", "Connections that came.", tally.connections),
            ("holdfast_grants", "Claims granted, at once or from the line.", tally.grants),
            ("holdfast_queued", "Claims that had to stand in line.", tally.queued),
            ("holdfast_releases", "Grants given back.", tally.releases),
            ("holdfast_expiries", "Grants that ended with their session or their max_hold.", tally.expiries),
            ("holdfast_deadlocks", "Claims refused because waiting would never have ended.", tally.deadlocks),
            ("holdfast_broken", "Grants that an operator broke.", tally.broken),
            ("holdfast_logins_refused", "Wrong passwords.", tally.logins_refused),
            ("holdfast_batches_refused", "Batches that the full disk did not take.", tally.refused_batches),
            ("holdfast_store_bytes_written", "Bytes that went to the store.", figures.bytes_written),
        ):
            yield CounterMetricFamily(name, text, value=value)
        errors = CounterMetricFamily("holdfast_errors", "Error replies.", labels=["user", "error"])
        for (user, word), count in tally.errors.copy().items():
            errors.add_metric([user, word], count)
        yield errors

    def _gauges(self) -> Iterable[Metric]:
        service = self.service
        table, figures = service.table, service.store.figures()
        for name, text, value in (
            ("holdfast_up_seconds", "Since the start.", service.uptime()),
            ("holdfast_connections", "Connections now.", len(service.connections)),
            ("holdfast_sessions", "Sessions now.", len(table.sessions)),
            ("holdfast_locks", "Names in use.", len(table.lines) + len(table.alone)),
            ("holdfast_claims", "Claims, granted or in line.", len(table.rows)),
            ("holdfast_waiting", "Claims in line.", table.waiting.count),
            ("holdfast_longest_line", "Claims in line for the name that most wait for.", table.waiting.longest),
            ("holdfast_cells", "Cells.", len(table.cells)),
            ("holdfast_watches", "Watches.", len(table.watches)),
            ("holdfast_store_bytes", "What the store takes on disk.", figures.file_bytes),
            ("holdfast_store_log_bytes", "What a start has to replay.", figures.log_bytes),
            ("holdfast_store_short_of_room", "Whether the disk is full.", int(figures.short_of_room)),
            *self._cluster(),
        ):
            yield GaugeMetricFamily(name, text, value=value)

    def _cluster(self) -> Iterable[tuple[str, str, float]]:
        node = self.service.node
        if node is not None:
            yield "holdfast_cluster_leader", "Whether this server leads.", int(node.store.leads)
            yield "holdfast_cluster_batch", "The last batch of the log that is known here.", node.number


def histogram(name: str, text: str, found: Histogram) -> HistogramMetricFamily:
    """A histogram in Prometheus' form, where each bucket counts those below it too."""
    buckets, total = [], 0
    for bound, count in zip([*map(str, found.bounds), "+Inf"], found.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=found.total)


class Metrics:
    """The page at /metrics."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(Collector(service))

    def page(self) -> bytes:
        return generate_latest(self._registry)
