"""Conditions that a session, Java and packages must satisfy."""

from streamops.kernel import codes

JAVA_NOT_FOUND = codes.JAVA_NOT_FOUND(
    "no Java that can start Spark was found",
    "Java {oldest_java} or later in JAVA_HOME, on PATH, or from the extra `java`",
    'apt-get install -y openjdk-17-jre-headless, or pip install "streamops[java]"',
)
PARAMETER_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`{parameter}` must be at least 1",
    "an integer, 1 or more",
    "leave `{parameter}` out, or pass the number of cores to use",
)
SPARK_REMOTE_SET = codes.SESSION_TYPE(
    "a local session was requested, but the environment requests a remote one",
    "SPARK_REMOTE not set",
    "unset SPARK_REMOTE, or use SparkSession.builder.getOrCreate() for the remote one",
)
VERSION_NOT_SUPPORTED = codes.VERSION_NOT_SUPPORTED(
    "{package} {version} is {verdict}",
    "{requirement}",
    'pip install "{requirement}", and start Python again',
)
WATERMARK_POLICY = codes.WATERMARK_POLICY(
    "the watermark of the session is the maximum of those of the streams: rows of the slower stream would be late, and rows reported as unmatched before their partners arrive",
    "min, the default of Spark",
    'spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "min") before the query starts, with a new checkpoint: Spark stores the policy there',
)
