"""What the API does: authorise, validate, write intent, wake the engine. No HTTP here, no cloud either."""
