"""Rules of alarms: pure functions over the progress of micro-batches, without Spark."""
