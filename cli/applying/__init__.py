"""From a configuration to what it describes: read, planned, confirmed, applied and followed."""
