"""The functions of the SDKs that are generated from the OpenAPI document."""
