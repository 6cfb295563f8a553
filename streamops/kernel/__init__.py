"""The ground floor: time, columns, state and errors. No Spark, no operator."""
