"""Rules of alarms, as pure functions over what micro-batches told. No Spark."""
