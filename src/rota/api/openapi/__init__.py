"""The OpenAPI document, built from the declarations that are served, with tested examples."""
