"""The environment of a job: Java, sessions, their settings, required versions, and what checks them."""
