"""All that knows how Spark is started and driven. It does not know any operator by name."""
