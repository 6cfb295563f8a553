"""Python processes that Spark starts for the tests, from processes that have imported their packages."""
