"""What the API does: authorise, validate, write intent, wake the engine. No HTTP and no cloud calls."""
