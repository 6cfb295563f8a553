"""Kill what a query with sinks runs on, start it again, and compare its targets with the batch result.

    python -m tests.kills                          everything; takes half an hour
    python -m tests.kills driver --kills 9         one part, and fewer kills
    python -m tests.kills driver --targets naive   a writer without a ledger, to see what is detected

=============  =====================================================================================
part           what is killed
=============  =====================================================================================
``driver``     the process group of a driver, Python and JVM: in a micro-batch, between the commit of
               a sink and the one of Spark, and at random times
``workers``    Python workers of Spark, while a micro-batch runs
``executors``  executors of a cluster, while a micro-batch runs
``tasks``      workers of tasks that write a micro-batch in a cluster, and their executors, between
               delivery and receipt; and both executors at once
``copies``     nothing: tasks are slow between delivery and receipt, and Spark runs copies of them on
               another host
``postgres``   the PostgreSQL server that a sink writes to
``kafka``      the Kafka broker that the rows are read from, and that a sink writes to
``zombies``    nothing: two drivers of one query run at once, and a frozen one goes on after its
               successor has committed
=============  =====================================================================================

A *driver* is a process of its own that runs a query ``operator -> foreachBatch(sink)``, where the sink
fans out to all targets. A *round* is one input, one checkpoint and one set of targets; within it a
supervisor starts drivers until one of them finishes. Then all rows of all targets are compared with what
they must be. A part or a target that is not installed is left out and named, and the exit code is 1; name
the parts and ``--targets`` that are there to do without.
"""
