"""Rota beside Celery, Dramatiq and Huey, on the same machine in the same run."""
