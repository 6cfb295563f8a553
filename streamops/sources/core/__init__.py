"""What sources read from bytes: pure functions, without Spark and without a connection."""
