"""OpenAPI document, built from the declarations of the served operations, with tested examples."""
