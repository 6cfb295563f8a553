"""All that knows how Spark is started and driven. It knows no operator by name."""
