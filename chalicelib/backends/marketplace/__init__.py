"""The hosted marketplace, `type: dstack`."""
