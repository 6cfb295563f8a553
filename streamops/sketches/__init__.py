"""Sketches in streaming state: answers within a stated error, from little memory."""
