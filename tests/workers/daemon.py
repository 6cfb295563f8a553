"""The process from which Spark forks Python workers, with the packages imported that all of them need.

Otherwise each worker imports them again, which takes a seventh of the time of the tests on Spark.
"""

from pyspark.daemon import manager

import tests.workers.preload  # noqa: F401

if __name__ == "__main__":
    manager()
