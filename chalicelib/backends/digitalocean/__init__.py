"""DigitalOcean, and AMD Developer Cloud, which is operated by it."""
