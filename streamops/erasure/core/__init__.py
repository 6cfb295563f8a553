"""The format of shredded values, and its encryption; without Spark."""
