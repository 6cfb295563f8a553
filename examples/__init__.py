"""Programs that use streamops as its users do; they are not part of the package."""
