"""The algorithms of event sourcing: columns in, columns out, no Spark."""
