"""Pictures are drawn in memory."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
