"""The OpenAPI document: made from the declarations that are served, with examples that tests
read.
"""
