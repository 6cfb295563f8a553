"""Sources: records of Kafka as typed rows, ranges of its topics, and the events of an outbox table.

================  ================================================================
``kafka_events``  parse the records of a Kafka topic: JSON, Avro or Protobuf
``replay``        plan to read a range of topics, and to go on with what follows it
``KafkaReplay``   the plan: the range by partition, and Spark's options to read it
``outbox``        read the events of a service from its outbox table in PostgreSQL
================  ================================================================
"""

from streamops.kernel.calls import explain_calls
from streamops.sources.kafka_events import kafka_events
from streamops.sources.kafka_replay import KafkaReplay, replay
from streamops.sources.outbox import outbox

__all__ = ["KafkaReplay", "kafka_events", "outbox", "replay"]

explain_calls(globals())
