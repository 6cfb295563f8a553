"""Observation of streaming queries: live view, metrics, late rows, alarms, watermarks, and lag.

=========================  ===========================================================
``watch``                  display a running query, in a terminal or in a notebook
``history``                its recent micro-batches as frames and as a plot: ``QueryHistory``
``PrometheusListener``     exports the progress of all queries to Prometheus
``OpenTelemetryListener``  exports it as metrics of OpenTelemetry
``grafana_dashboard``      a dashboard of these metrics
``account_late``           late rows, counted by key, window, producer and lateness
``merge_accounts``         combine such accounts
``lateness_needed``        the allowed lateness that would have saved a share of them
``AlarmListener``          raises an ``Alarm`` if a rule is violated
``LateRows``               rule: the number of late rows in recent micro-batches
``LateShare``              rule: the share of late rows in recent micro-batches
``StuckWatermark``         rule: the watermark does not advance although event times do
``PoisonedWatermark``      rule: the watermark is ahead of the current time
``ConsumerLag``            rule: the query is behind its Kafka topics, and does not catch up
``DataLoss``               rule: the query loses data of its Kafka topics within a given time
``KafkaRetention``         what the brokers delete, for that rule and the exporters
``ConsumerGroupListener``  commits the progress to consumer groups, for Kafka's tools
``consumer_lag``           how far a query is behind each partition: a ``PartitionLag``
``supervise``              run several queries as one job: restarts, health, an orderly end
``SupervisionEvent``       what happened to a query of the job
``stop_after_batch``       stop a query after its present micro-batch
``explain``                why a query has a result or none: one key of it, replayed
``files``                  the files that a query read, for ``explain``: a ``RecordedSource``
``topics``                 the topics of Kafka that it read
``table``                  the table of Delta Lake that it read
``furthest_ahead``         the producers of event times in the future
=========================  ===========================================================
"""

from streamops.kernel.calls import explain_calls
from streamops.observe.accounts import account_late, lateness_needed, merge_accounts
from streamops.observe.core.alarms import Alarm
from streamops.observe.core.progress import PartitionLag
from streamops.observe.core.retention import DataLoss
from streamops.observe.core.rules import (
    ConsumerLag,
    LateRows,
    LateShare,
    PoisonedWatermark,
    StuckWatermark,
)
from streamops.observe.core.supervision import SupervisionEvent
from streamops.observe.explain import explain
from streamops.observe.explanation import Explanation
from streamops.observe.exporters import (
    OpenTelemetryListener,
    PrometheusListener,
    grafana_dashboard,
)
from streamops.observe.furthest import furthest_ahead
from streamops.observe.history import QueryHistory, history
from streamops.observe.kafka import ConsumerGroupListener, KafkaRetention
from streamops.observe.listener import AlarmListener, consumer_lag
from streamops.observe.log_files import files
from streamops.observe.log_tables import table
from streamops.observe.log_topics import topics
from streamops.observe.plan import RecordedSource
from streamops.observe.stopping import stop_after_batch
from streamops.observe.supervisor import supervise
from streamops.observe.watch import watch

__all__ = [
    "Alarm",
    "AlarmListener",
    "ConsumerGroupListener",
    "ConsumerLag",
    "DataLoss",
    "Explanation",
    "KafkaRetention",
    "LateRows",
    "LateShare",
    "OpenTelemetryListener",
    "PartitionLag",
    "PoisonedWatermark",
    "PrometheusListener",
    "QueryHistory",
    "RecordedSource",
    "StuckWatermark",
    "SupervisionEvent",
    "account_late",
    "consumer_lag",
    "explain",
    "files",
    "furthest_ahead",
    "grafana_dashboard",
    "history",
    "lateness_needed",
    "merge_accounts",
    "stop_after_batch",
    "supervise",
    "table",
    "topics",
    "watch",
]

explain_calls(globals())
