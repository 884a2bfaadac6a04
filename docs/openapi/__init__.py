"""The OpenAPI document, made from what handlers declare."""
