"""Imports what all Python processes of Spark need, before any is forked."""

import streamops.changes
import streamops.joins
import streamops.sketches
import streamops.spark.processors
import streamops.time
import streamops.windows  # noqa: F401
