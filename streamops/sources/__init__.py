"""Sources: records of Kafka as typed rows, and ranges of its topics.

================  ================================================================
``kafka_events``  parse the records of a Kafka topic: JSON or Avro
``replay``        plan to read a range of topics, and to go on with what follows it
``KafkaReplay``   the plan: the range by partition, and Spark's options to read it
================  ================================================================
"""

from streamops.sources.kafka_events import kafka_events
from streamops.sources.kafka_replay import KafkaReplay, replay

__all__ = ["KafkaReplay", "kafka_events", "replay"]
